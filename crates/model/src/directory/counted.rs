//! How many bytes the nouns have of which a directory may hold any number.
//!
//! They are counted as storage keeps them; in memory they take some times that. Schemas of actions and the keys of
//! agents are trees there, which may take many times their text, and so may attributes: each of their values counts
//! beside it, and so does each action, whose text may be much shorter than what policies know it by. Counting makes no
//! text of them.

use crate::agent::{Agent, AgentToken};
use crate::key::ApiKey;
use crate::people::{Team, User};
use crate::tool::{Tool, ToolAction};
use imbl::OrdMap;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// What a value of JSON counts for beside its text, wherever it is kept as a value: what it takes where objects keep the
/// order of their members.
pub const VALUE_BYTES: usize = 72;

/// What an action counts for beside its text and its schema: policies are compiled for each of them. One of forty bytes
/// takes about a kilobyte while its tool is there, and seven with the schema that policies are validated against, of
/// which that of the registry that changed last is kept in any case.
pub const ACTION_BYTES: usize = 2_048;

/// A noun of which there may be any number.
pub(super) trait Countable: Serialize {
    /// How many values stand in it for which storage has no more than their text, those within others among them.
    fn values(&self) -> usize {
        0
    }

    /// How many actions stand in it that may be asked for.
    fn actions(&self) -> usize {
        0
    }
}

impl Countable for ApiKey {}
impl Countable for AgentToken {}

impl Countable for Agent {
    fn values(&self) -> usize {
        // Whatever stands beside the keys is kept with them.
        self.attributes.count() + self.signing_keys.as_deref().map_or(0, values)
    }
}

impl Countable for Team {
    fn values(&self) -> usize {
        self.attributes.count()
    }
}

impl Countable for User {
    fn values(&self) -> usize {
        self.attributes.count()
    }
}

impl Countable for Tool {
    fn values(&self) -> usize {
        self.actions.values().map(schema_values).sum()
    }

    fn actions(&self) -> usize {
        self.actions.len()
    }
}

/// The bytes of the nouns in maps that are changed through this and in no other way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted(usize);

impl Counted {
    /// All of them together.
    pub(super) const fn bytes(self) -> usize {
        self.0
    }

    /// Puts a noun in place of the one with its id.
    pub(super) fn put<K: Ord + Clone, N: Countable>(
        &mut self,
        nouns: &mut OrdMap<K, Arc<N>>,
        id: K,
        noun: Arc<N>,
    ) {
        self.0 += bytes_of(&*noun);
        if let Some(before) = nouns.insert(id, noun) {
            self.0 -= bytes_of(&*before);
        }
    }

    /// Takes the noun with this id out, if it is there.
    pub(super) fn delete<K: Ord + Clone, N: Countable>(&mut self, nouns: &mut OrdMap<K, Arc<N>>, id: &K) {
        if let Some(before) = nouns.remove(id) {
            self.0 -= bytes_of(&*before);
        }
    }
}

/// How long a noun is as storage keeps it, and what the values and actions in it take beyond that.
fn bytes_of<N: Countable>(noun: &N) -> usize {
    let length = canon::length(noun).expect("nouns have string keys and no fallible serializers");
    length + VALUE_BYTES * noun.values() + ACTION_BYTES * noun.actions()
}

/// How many values the schema of an action has, and that of the definition of it that is held.
fn schema_values(action: &ToolAction) -> usize {
    let held = action.held.as_ref();
    action.input_schema.as_deref().map_or(0, values) + held.map_or(0, |held| schema_values(&held.action))
}

/// How many values this one is, with those within it. What has something in it has room for four more.
fn values(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(members) => members.values().map(values).sum(),
        _ => 0,
    };
    if within == 0 { 1 } else { 5 + within }
}
