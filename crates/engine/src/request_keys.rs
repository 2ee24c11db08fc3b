//! The keys by which agents sign their requests: parsed once, when they are registered.

use imbl::OrdMap;
use model::{Agent, AgentId, Directory, Noun, Write};
use std::sync::Arc;
use tokens::KeySet;

/// The keys of the agents of a tenant that have any. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct RequestKeys(OrdMap<AgentId, Arc<SigningKeys>>);

/// The keys of an agent whose requests have to be signed.
#[derive(Debug)]
pub struct SigningKeys {
    /// None if they could not be read: then no signature is good. That they can be is checked when they are registered.
    keys: Option<KeySet>,
}

impl SigningKeys {
    /// The key with this name.
    pub fn named(&self, key_id: &str) -> Option<&tokens::PublicKey> {
        self.keys.as_ref()?.named(key_id)
    }
}

impl RequestKeys {
    /// The keys in a directory.
    pub fn of(directory: &Directory) -> Self {
        let mut keys = Self::default();
        for agent in directory.agents.values() {
            keys.put(agent);
        }
        keys
    }

    /// The keys of this agent; none if its requests need no signature.
    pub fn of_agent(&self, agent: AgentId) -> Option<&Arc<SigningKeys>> {
        self.0.get(&agent)
    }

    /// Takes one step of the directory.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Put(Noun::Agent(agent)) => self.put(agent),
            Write::Delete(Noun::Agent(agent)) => {
                self.0.remove(&agent.id);
            }
            _ => {}
        }
    }

    fn put(&mut self, agent: &Agent) {
        match &agent.signing_keys {
            Some(jwks) => {
                let keys = KeySet::parse(jwks.to_string().as_bytes()).ok();
                self.0.insert(agent.id, Arc::new(SigningKeys { keys }));
            }
            None => {
                self.0.remove(&agent.id);
            }
        }
    }
}
