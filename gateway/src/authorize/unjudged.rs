//! Asks that are refused and not judged. One that was answered before has its answer, though it would be refused as a
//! new one: the tenant's settings, its agent or the time have changed since, and what was decided and held has not.

use super::approval::is_misuse;
use super::{Answer, request_key, reused};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};
use crate::snapshot::AsOf;
use engine::{Ask, RepeatRule};
use model::approval::Unusable;

/// An ask that is not judged.
pub(super) struct Unjudged {
    /// Which earlier answers to it may be given again.
    repeat: RepeatRule,
    /// As of when that was known by which it was refused.
    as_of: AsOf,
    /// What it tries with an approval that is not its own, or not for this.
    misuse: Option<Unusable>,
    /// What the caller is told.
    refusal: Refusal,
}

impl Unjudged {
    /// An ask that is refused for this.
    pub(super) fn new(refusal: engine::Refusal, repeat: RepeatRule, as_of: AsOf) -> Self {
        let why = match &refusal {
            engine::Refusal::ApprovalNotUsable { why, .. } => *why,
            _ => None,
        };
        Self {
            repeat,
            as_of,
            misuse: why.filter(|why| is_misuse(*why)),
            refusal: refusal.into(),
        }
    }

    /// Whether it is recorded, because it tries to use what is not its own, or not for this, unless it was answered
    /// before.
    pub(super) const fn is_misuse(&self) -> bool {
        self.misuse.is_some()
    }
}

impl Gateway {
    /// What becomes of an ask that is not judged. Its answer may have been lost, or be remembered by another gateway:
    /// then it is given again.
    pub(super) async fn unjudged(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        unjudged: Unjudged,
    ) -> Result<Answer, Refusal> {
        if let Some(answer) = self.recorded_before(caller, ask, unjudged.repeat).await? {
            self.check_answer_is_current(unjudged.as_of)?;
            return Ok(answer);
        }
        if let Some(why) = unjudged.misuse {
            self.record_misuse(caller, ask, why).await?;
        }
        Err(unjudged.refusal)
    }

    /// The recorded answer to an ask with a request id. Whom a bucket refuses does not come here, so it costs no more
    /// reads than that lets through, and each of them in its turn.
    async fn recorded_before(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        repeat: RepeatRule,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(key) = request_key(caller, ask) else {
            return Ok(None);
        };
        let permit = self.look_ups.acquire(caller.tenant).await?;
        let found = self.store.answered_request(&key).await?;
        drop(permit);
        match found {
            Some(found) if found.ask != ask.digest => Err(reused()),
            Some(found) if repeat.permits(found.reason.verdict()) => {
                self.metrics.count_repeat();
                Ok(Some(Answer(found.receipt)))
            }
            _ => Ok(None),
        }
    }
}
