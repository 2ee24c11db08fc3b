//! A tenant's policies as they are written: a name, a text, the links of its templates, and for whom it counts.

use model::{AgentId, Name, SlashFreeName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many links one named policy may have.
pub const LINKS_MAX: usize = 10_000;
/// How long the policies of one tenant's links may be together, in bytes, if each is written out with the text of its
/// template. A link is short and costs what its template costs.
pub const LINKED_BYTES_MAX: usize = 8 << 20;
/// How many named policies a tenant may have in use, each version counted.
pub const NAMED_MAX: usize = 20_000;
/// How many policies there may be in all texts and links of a tenant. One ask may be about all of them.
pub const STATEMENTS_MAX: usize = 20_000;
/// How long the ids of these may be together, in bytes, each as one of a list in JSON. A decision names all that decide it, and
/// those that would have on trial, so this bounds its ledger entry.
pub const IDS_BYTES_MAX: usize = 1 << 20;
/// How long the groups whose approval they want may be together, in bytes, each once and as one of a list in JSON. A
/// decision names all that are asked.
pub const GROUPS_BYTES_MAX: usize = 64 << 10;

/// How many agents a tenant's canaries may have together, each counted for every policy of its canary and for every one
/// whose place that takes. They stand with each of them in the text that the digest of a set is of, and whoever
/// compares sets goes through them for each.
pub const CANARY_AGENTS_MAX: usize = 500_000;
/// How long the text of a tenant's policies that are in force may be, in bytes, as the digest of a set is of it. The
/// first decision after a change of any of them has all of it written, in a commit that other tenants wait for, and it
/// stays.
pub const IN_FORCE_BYTES_MAX: usize = 16 << 20;

/// A version of a policy of a tenant's: a name, and a text with any number of Cedar policies.
///
/// A set may hold two versions with one name: one that is enforced, and one on trial that would take its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Its name. `base` is the operator's.
    pub name: SlashFreeName,
    /// Its text.
    pub cedar: Arc<str>,
    /// What its templates are linked with.
    pub links: Vec<Link>,
    /// For whom it counts.
    pub mode: Mode,
}

impl TenantPolicy {
    /// A policy without links that is enforced.
    pub fn new(name: SlashFreeName, cedar: impl Into<Arc<str>>) -> Self {
        Self {
            name,
            cedar: cedar.into(),
            links: Vec::new(),
            mode: Mode::Enforced,
        }
    }
}

/// For whom a policy counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Mode {
    /// For everybody.
    #[default]
    Enforced,
    /// For nobody. What it would have said is told beside the answer.
    Shadow,
    /// For these agents, which all of its policies share. For everybody else it is a shadow.
    Canary(Arc<BTreeSet<AgentId>>),
}

impl Mode {
    /// The word of the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
            Self::Canary(_) => "canary",
        }
    }

    /// Whether it is tried beside what is enforced.
    pub(crate) const fn is_trial(&self) -> bool {
        !matches!(self, Self::Enforced)
    }
}

/// What a template is linked with. The link is a policy like any other, and its id is written down, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The `@id` of the template, which is in the same named policy.
    pub template: Name,
    /// The id of the policy that comes of it.
    pub id: Name,
    /// What each slot stands for.
    pub values: SlotValues,
}

/// What the slots of a template stand for: entities as Cedar writes them, `Agent::"agt_…"`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotValues {
    /// `?principal`.
    #[serde(rename = "?principal", default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `?resource`.
    #[serde(rename = "?resource", default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}
