//! A counterexample made easier to read: whatever does not matter is taken away or made ordinary, one thing after the other,
//! as long as it still shows what it is there to show.

use crate::ask::{Ask, plain_agent, plain_trust};
use model::{Timestamp, Trust};

/// The same ask with nothing remarkable about it but what is needed for `shows`.
pub(crate) fn plainer(ask: Ask, now: Timestamp, shows: impl Fn(&Ask) -> bool) -> Ask {
    let mut best = ask;
    for edit in EDITS {
        attempt(&mut best, &shows, edit);
    }
    attempt(&mut best, &shows, |ask| ask.now = now);
    // The last one that shows it stays: what is ordinary comes last.
    for level in ORDINARY {
        attempt(&mut best, &shows, |ask| ask.trust = plain_trust(level));
    }
    for name in best.parameters.clone().keys() {
        attempt(&mut best, &shows, |ask| drop(ask.parameters.remove(name)));
    }
    for name in best.attributes.clone().keys() {
        attempt(&mut best, &shows, |ask| drop(ask.attributes.remove(name)));
    }
    attempt(&mut best, &shows, Ask::round);
    best
}

fn attempt(best: &mut Ask, shows: &impl Fn(&Ask) -> bool, edit: impl Fn(&mut Ask)) {
    let mut edited = best.clone();
    edit(&mut edited);
    if shows(&edited) {
        *best = edited;
    }
}

/// The levels that most asks have, the most ordinary one last.
const ORDINARY: [Trust; 3] = [
    Trust::UntrustedExternal,
    Trust::SemiTrustedCustomer,
    Trust::TrustedInternalUnsigned,
];

/// What is tried, each by itself.
const EDITS: [fn(&mut Ask); 16] = [
    |ask| ask.user = None,
    |ask| ask.user_teams = imbl::OrdMap::new(),
    |ask| ask.run = None,
    |ask| ask.usage = model::Usage::default(),
    |ask| ask.agent.environment = None,
    |ask| ask.agent.owner = None,
    |ask| ask.agent.team = None,
    |ask| ask.agent.attributes = model::Attributes::default(),
    |ask| ask.team_attributes = model::Attributes::default(),
    |ask| ask.agent.risk_tier = model::RiskTier::Low,
    |ask| ask.agent.name = plain_agent(ask.now).name,
    |ask| ask.agent.id = plain_agent(ask.now).id,
    |ask| ask.resource.clear(),
    |ask| ask.sensitive = false,
    |ask| ask.attributes.clear(),
    |ask| ask.sources = model::Sources::default(),
];
