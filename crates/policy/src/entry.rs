//! A policy as it stands in the text that the digest of a set is of. It borrows all that it says: a canary may be for
//! very many agents, and they stand with each of its policies.

use crate::statement::Statement;
use model::AgentId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How long an agent is in a list: an id of thirty characters, its quotes, and a comma.
const AGENT_BYTES: usize = 33;

/// The agents of a canary where they are counted and not written.
static NOBODY: BTreeSet<AgentId> = BTreeSet::new();

/// A policy in that text: its id, its own text, and an object where there is more to say.
///
/// An array of strings and of objects of strings with a single word for a key has nothing that RFC 8785 would write
/// otherwise than `serde_json` does, as long as the keys are in order.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Entry<'s>(
    &'s str,
    &'s str,
    #[serde(skip_serializing_if = "Option::is_none")] Option<More<'s>>,
);

/// What not every policy has. The members stand in the order of their names.
#[derive(Debug, Clone, Copy, Serialize)]
struct More<'s> {
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<&'s BTreeSet<AgentId>>,
    /// What the slots of a link stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<&'s BTreeMap<String, String>>,
}

impl<'s> Entry<'s> {
    /// A policy, with the agents of its canary if it is of one.
    pub(crate) fn of(statement: &'s Statement, canary: Option<&'s BTreeSet<AgentId>>) -> Self {
        let values = Some(&statement.values).filter(|values| !values.is_empty());
        let is_more = canary.is_some() || values.is_some();
        let more = is_more.then_some(More { canary, values });
        Self(statement.id.as_str(), statement.text(), more)
    }

    /// A canary that has nothing in the place of the policies with this name.
    pub(crate) const fn of_nothing(name: &'s str, canary: &'s BTreeSet<AgentId>) -> Self {
        let more = More {
            canary: Some(canary),
            values: None,
        };
        Self(name, "", Some(more))
    }

    /// How long it is, with a comma behind it. The agents of a canary may be too many to be written for this.
    pub(crate) fn bytes(&self) -> usize {
        let Self(id, text, more) = *self;
        let agents = more.and_then(|more| more.canary).map_or(0, BTreeSet::len);
        let more = more.map(|more| More {
            canary: more.canary.map(|_| &NOBODY),
            ..more
        });
        let length = canon::length(&Self(id, text, more)).expect("strings have no fallible serializers");
        length + (agents * AGENT_BYTES).saturating_sub(1) + 1
    }
}
