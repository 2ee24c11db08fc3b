//! How much a tenant's policies may be together, beside what each of them may be. Whether more of something was in
//! force before, and so may stay, is asked by whoever compiles.

use super::Sound;
use crate::annotations::PolicyEffect;
use crate::entry::Entry;
use crate::tenant::{
    CANARY_AGENTS_MAX, GROUPS_BYTES_MAX, IDS_BYTES_MAX, IN_FORCE_BYTES_MAX, Mode, NAMED_MAX, STATEMENTS_MAX,
};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};

/// How much there may be to validate in a set: some tens of seconds, also where types have thousands of members. A
/// hundred policies that look at what differs between ten thousand actions are within it, and five that ask in their
/// conditions whether the action is in a group of all of them.
pub(super) const CHECKS_MAX: usize = 1 << 25;
/// What there is so much of.
pub(super) const CHECKS: &str = "parts of conditions and policies to validate, each for every action that it is about, and twice for agents and users";
const AGENTS: &str = "agents of canaries, counted with each policy of theirs and each whose place that takes";
const TOO_MANY: &str = "write what is for many as one policy about a team or a group of actions";
const TOO_MANY_AGENTS: &str = "name fewer agents, or try fewer policies at a time";
const TOO_LONG: &str = "shorten the policies and the templates of links, or name fewer agents of canaries";
const TOO_MANY_GROUPS: &str = "name fewer teams in `@approvers`, or shorter ones";
/// What to do where it is too much.
pub(super) const TOO_WIDE: &str = "name the actions in the scopes of policies that look at `action`, `context.input` or `context.sources`, and compare single parameters";

/// What a set may hold, and what to do about more.
pub(super) const AMOUNTS: [(&str, usize, &str); 7] = [
    ("named policies", NAMED_MAX, TOO_MANY),
    ("policies in texts and links", STATEMENTS_MAX, TOO_MANY),
    ("bytes of ids", IDS_BYTES_MAX, TOO_MANY),
    ("bytes of groups that approve", GROUPS_BYTES_MAX, TOO_MANY_GROUPS),
    (AGENTS, CANARY_AGENTS_MAX, TOO_MANY_AGENTS),
    ("bytes of text in force", IN_FORCE_BYTES_MAX, TOO_LONG),
    (CHECKS, CHECKS_MAX, TOO_WIDE),
];

/// How much there is of what `AMOUNTS` names.
pub(super) fn amounts(policies: &[Sound<'_>]) -> [usize; 7] {
    let compiled = || policies.iter().map(|(_, compiled)| compiled);
    let statements = || compiled().flat_map(|compiled| &compiled.statements);
    let ids = statements().map(|statement| {
        // Quotes and a comma. Other characters than these stand in names as they stand in JSON.
        let id = statement.id.as_str();
        id.len() + id.matches(['"', '\\']).count() + 3
    });
    let groups = statements().filter_map(|statement| match &statement.annotations.effect {
        PolicyEffect::Approval(terms) => terms.group.as_deref(),
        PolicyEffect::Forbid | PolicyEffect::Permit | PolicyEffect::Advice => None,
    });
    let groups: BTreeSet<&str> = groups.collect();
    // As they stand in a list, `{"group":…,"quorum":4294967295},`.
    let groups = groups
        .into_iter()
        .map(|group| json!(group).to_string().len() + 31);
    let checks = compiled().map(|compiled| compiled.checks);
    let checks = checks.fold(0_usize, usize::saturating_add);
    let count = statements().count();
    let agents = canary_agents(policies);
    let text = text_bytes(policies);
    [
        policies.len(),
        count,
        ids.sum(),
        groups.sum(),
        agents,
        text,
        checks,
    ]
}

/// How many agents canaries have, each counted for every policy of its canary and for every one whose place that takes.
fn canary_agents(policies: &[Sound<'_>]) -> usize {
    let of_canary = policies.iter().filter_map(|(policy, _)| match &policy.mode {
        Mode::Canary(agents) => Some((&policy.name, agents.len())),
        Mode::Enforced | Mode::Shadow => None,
    });
    let of_canary: HashMap<_, _> = of_canary.collect();
    let counted = policies.iter().map(|(policy, compiled)| {
        let agents = of_canary.get(&policy.name).copied().unwrap_or_default();
        agents.saturating_mul(compiled.statements.len())
    });
    counted.fold(0, usize::saturating_add)
}

/// How long those that are in force are in the text that the digest of a set is of. A canary without policies is
/// counted as if it took the place of some.
fn text_bytes(policies: &[Sound<'_>]) -> usize {
    let bytes = policies.iter().map(|(policy, compiled)| {
        let canary = match &policy.mode {
            Mode::Enforced => None,
            Mode::Canary(agents) if !agents.is_empty() => Some(&**agents),
            Mode::Canary(_) | Mode::Shadow => return 0,
        };
        match canary {
            Some(agents) if compiled.statements.is_empty() => {
                Entry::of_nothing(policy.name.as_str(), agents).bytes()
            }
            _ => {
                let statements = compiled.statements.iter();
                let bytes = statements.map(|statement| Entry::of(statement, canary).bytes());
                bytes.sum::<usize>()
            }
        }
    });
    bytes.sum()
}
