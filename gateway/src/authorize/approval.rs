//! Asks whose approval cannot be used: an attempt to use what is not theirs is recorded.

use super::{ATTEMPTS_MAX, Answer, request_key, reused};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};
use crate::sequencer::Recorded;
use canon::ObjectWriter;
use engine::proposal::Happening;
use engine::{Ask, Conflict, EntryKind, Proposal, ProposedEntry, Salt};
use model::Name;
use model::approval::Unusable;

/// An ask whose approval cannot be used.
pub(super) struct NotUsable {
    /// What is wrong with it; `None` if there is none.
    pub(super) why: Option<Unusable>,
    /// What the caller is told.
    pub(super) refusal: Refusal,
}

impl Gateway {
    /// What becomes of an ask whose approval cannot be used. It may be one that used it, and whose answer was lost: then that
    /// is given again.
    pub(super) async fn without_approval(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        not_usable: NotUsable,
    ) -> Result<Answer, Refusal> {
        if let Some(answer) = self.recorded_before(caller, ask).await? {
            return Ok(answer);
        }
        if let Some(why) = not_usable.why
            && is_misuse(why)
        {
            self.record_misuse(caller, ask, why).await?;
        }
        Err(not_usable.refusal)
    }

    /// The recorded answer to an ask with a request id.
    async fn recorded_before(&self, caller: &AgentCaller, ask: &Ask) -> Result<Option<Answer>, Refusal> {
        let Some(key) = request_key(caller, ask) else {
            return Ok(None);
        };
        match self.store.answered_request(&key).await? {
            Some(found) if found.ask != ask.digest => Err(reused()),
            Some(found) => {
                self.metrics.count_replay();
                Ok(Some(Answer(found.receipt)))
            }
            None => Ok(None),
        }
    }

    /// Somebody tries to use what is not theirs, or not for this. The refusal does not depend on the directory, so it is
    /// recorded at whatever revision that is.
    async fn record_misuse(&self, caller: &AgentCaller, ask: &Ask, why: Unusable) -> Result<(), Refusal> {
        let salt = Salt::new(&*self.entropy);
        for _ in 0..ATTEMPTS_MAX {
            let tenant = self.tenant(caller.tenant)?;
            let proposal = Proposal {
                tenant: caller.tenant,
                revision: tenant.revision,
                base: tenant.policies.base_digest(),
                what: Happening::Note(misuse(caller, ask, why, salt)),
            };
            match self.sequencer.record(proposal).await? {
                Recorded::Not(Conflict::DirectoryMoved { .. }) => {}
                Recorded::Now(_) | Recorded::Before(_) | Recorded::Not(_) => return Ok(()),
            }
        }
        Err(Refusal::overloaded())
    }
}

/// The entry that tells of it, and for whom it was asked, so that it is erased with the rest. The members stand in canonical order.
fn misuse(caller: &AgentCaller, ask: &Ask, why: Unusable, salt: Salt) -> ProposedEntry {
    let mut body = ObjectWriter::new();
    if !ask.act.is_empty() {
        body.strings("act", ask.act.iter().map(Name::as_str));
    }
    body.digest("action_hash", &ask.action.digest);
    body.string("agent", &caller.agent.id.to_string());
    body.string("approval", ask.approval_id.as_ref().map_or("", Name::as_str));
    salt.write(&mut body);
    if let Some(user) = &ask.user {
        body.string("user", user.as_str());
    }
    body.string("why", word(why));
    ProposedEntry::new(EntryKind::ApprovalRefused, body.finish())
}

/// Whether somebody tries to use what is not theirs, or not for this. All else is only too early or too late.
const fn is_misuse(why: Unusable) -> bool {
    match why {
        Unusable::Foreign | Unusable::OtherAction | Unusable::OtherUser | Unusable::Spent => true,
        Unusable::Pending | Unusable::Rejected | Unusable::Expired => false,
    }
}

/// The word in the ledger.
const fn word(why: Unusable) -> &'static str {
    match why {
        Unusable::Foreign => "foreign",
        Unusable::OtherAction => "other_action",
        Unusable::OtherUser => "other_user",
        Unusable::Pending => "pending",
        Unusable::Rejected => "rejected",
        Unusable::Expired => "expired",
        Unusable::Spent => "spent",
    }
}
