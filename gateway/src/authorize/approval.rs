//! Attempts to use an approval that is not theirs, or not for this, are recorded.

use crate::gateway::{self, Gateway};
use crate::http::{AgentCaller, Refusal};
use canon::ObjectWriter;
use engine::proposal::Intent;
use engine::{Ask, EntryKind, Proposal, ProposedEntry, Salt};
use model::Name;
use model::approval::Unusable;

impl Gateway {
    /// Somebody tries to use what is not theirs, or not for this. The refusal does not depend on the directory, so it is
    /// recorded at whatever revision that is.
    pub(super) async fn record_misuse(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        why: Unusable,
    ) -> Result<(), Refusal> {
        let salt = Salt::new(&*self.entropy);
        let recording = self.record_current(None, |snapshot| {
            let tenant = gateway::tenant(snapshot, caller.tenant)?;
            let misuse = Intent::Misuse(misuse(caller, ask, why, salt));
            Ok(Proposal::of(tenant, misuse))
        });
        recording.await.map(drop)
    }
}

/// The entry that tells of it, and for whom it was asked, so that it is erased with the rest. The members stand in
/// canonical order.
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
pub(super) const fn is_misuse(why: Unusable) -> bool {
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
