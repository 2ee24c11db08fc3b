//! What counts towards the buckets of an agent and is no ask.

use super::{Asking, Tokens};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};

/// How often buckets are asked, the first time included: those that are short of tokens are given some, and others may
/// take these.
const ATTEMPTS_MAX: usize = 8;

impl Gateway {
    /// Takes a token from each bucket of an agent, as an ask does that is about no tool.
    pub(crate) async fn pass_buckets(&self, caller: &AgentCaller) -> Result<(), Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let (tenant, now) = (self.tenant(caller.tenant)?, self.clock.now());
            let agent = caller.refresh(&tenant, now)?;
            let asking = Asking {
                tenant: &tenant.directory.tenant,
                agent: &agent,
                tool: "",
            };
            match self.limits.take(&asking, now)? {
                Tokens::Enough => return Ok(()),
                Tokens::Short(short) => self.limits.fill(&short).await?,
            }
        }
        Err(Refusal::contended())
    }
}
