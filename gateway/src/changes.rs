//! Changing the directory: one way for all endpoints.
//!
//! A change is worked out on a copy of the directory, its policies are compiled where it touches them, and the result is
//! recorded with its ledger entry in one commit. If the directory moved in between, it is worked out again. When the
//! call returns, the change is in force on this gateway.

use crate::gateway::Gateway;
use crate::http::{Code, Refusal, TenantCaller};
use crate::sequencer::Recorded;
use engine::proposal::{Change, Happening};
use engine::{Conflict, EntryKind, Proposal, ProposedEntry, TenantSnapshot};
use model::{ApiKey, Directory, Noun, TenantId, Timestamp, Write};
use policy::{Diagnostics, PolicySet};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a change is worked out again before it gives up. Those of one gateway wait for each other; quarantines and other
/// gateways move the directory in between, and of several that change the same tenant each time one gets through.
const ATTEMPTS_MAX: usize = 64;

/// A change that was worked out: what is written, and what the ledger says about it.
pub struct Plan<T> {
    /// The kind of the entry.
    pub kind: EntryKind,
    /// What the entry says, beside who did it. No secrets and no digests of secrets.
    pub facts: Value,
    /// What is written; empty if nothing needs to change, and then nothing is recorded.
    pub writes: Vec<Write>,
    /// What the caller gets.
    pub answer: T,
}

impl<T> Plan<T> {
    /// Nothing needs to change.
    pub fn nothing(answer: T) -> Self {
        Self {
            // Never recorded: a plan without writes has no entry.
            kind: EntryKind::TenantUpdated,
            facts: Value::Null,
            writes: Vec::new(),
            answer,
        }
    }
}

impl Gateway {
    /// Makes a change in the caller's tenant. `plan` may be called more than once, each time with the directory as it is.
    pub async fn change<T>(
        &self,
        caller: &TenantCaller,
        plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
    ) -> Result<T, Refusal> {
        self.change_tenant(caller.tenant, &caller.key, plan).await
    }

    /// Makes a change in any tenant, in the name of the holder of `key`.
    pub async fn change_tenant<T>(
        &self,
        tenant: TenantId,
        key: &ApiKey,
        plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
    ) -> Result<T, Refusal> {
        let _one_at_a_time = self.changing.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.tenant(tenant)?;
            let plan = plan(&before.directory, self.clock.now())?;
            if plan.writes.is_empty() {
                return Ok(plan.answer);
            }
            let proposal = self
                .propose(&before, key, plan.kind, plan.facts, plan.writes)
                .await?;
            match self.sequencer.record(proposal).await? {
                Recorded::Now(_) => return Ok(plan.answer),
                Recorded::Not(Conflict::DirectoryMoved { .. }) => {}
                Recorded::Before(_) | Recorded::Not(_) => return Err(unexpected()),
            }
        }
        Err(Refusal::overloaded())
    }

    /// Makes a new tenant: an entry in the system tenant's chain, and the first entry of its own, in one commit.
    pub async fn create_tenant(&self, key: &ApiKey, tenant: &Arc<model::Tenant>) -> Result<(), Refusal> {
        let _one_at_a_time = self.changing.lock().await;
        let policies = self.compile(Directory::new(Arc::clone(tenant))).await?;
        let policies = policies.map_err(|diagnostics| invalid_policies(&diagnostics))?;
        for _ in 0..ATTEMPTS_MAX {
            let facts = json!({"id": tenant.id, "name": tenant.name, "settings": tenant.settings});
            let change = Change {
                entry: entry(EntryKind::TenantCreated, key, facts.clone())?,
                writes: vec![Write::Put(Noun::Tenant(Arc::clone(tenant)))],
                policies: Some(Arc::clone(&policies)),
            };
            let proposal = Proposal {
                tenant: TenantId::SYSTEM,
                revision: self.tenant(TenantId::SYSTEM)?.revision,
                what: Happening::NewTenant {
                    tenant: tenant.id,
                    announcement: entry(EntryKind::TenantCreated, key, facts)?,
                    change,
                },
            };
            match self.sequencer.record(proposal).await? {
                Recorded::Now(_) => return Ok(()),
                Recorded::Not(Conflict::DirectoryMoved { .. }) => {}
                Recorded::Before(_) | Recorded::Not(_) => return Err(unexpected()),
            }
        }
        Err(Refusal::overloaded())
    }

    async fn propose(
        &self,
        before: &TenantSnapshot,
        key: &ApiKey,
        kind: EntryKind,
        mut facts: Value,
        writes: Vec<Write>,
    ) -> Result<Proposal, Refusal> {
        let policies = self.recompile(before, &writes).await?;
        let policies = policies
            .transpose()
            .map_err(|diagnostics| invalid_policies(&diagnostics))?;
        if let Some(policies) = &policies
            && policies.digest() != before.policies.digest()
        {
            facts["policy_digests"] = json!({
                "before": before.policies.digest(),
                "after": policies.digest(),
            });
        }
        Ok(Proposal {
            tenant: before.directory.tenant.id,
            revision: before.revision,
            what: Happening::Change(Change {
                entry: entry(kind, key, facts)?,
                writes,
                policies,
            }),
        })
    }

    /// The policies after these writes, if they make a difference to them.
    async fn recompile(
        &self,
        before: &TenantSnapshot,
        writes: &[Write],
    ) -> Result<Option<Result<Arc<PolicySet>, Diagnostics>>, Refusal> {
        let mut after = before.directory.clone();
        for write in writes {
            after.apply(write);
        }
        let same = after.tenant.settings == before.directory.tenant.settings
            && after.tools == before.directory.tools
            && after.policies == before.directory.policies;
        if same {
            return Ok(None);
        }
        self.compile(after).await.map(Some)
    }

    /// The policies of a directory, compiled where nobody waits for a decision.
    pub(crate) async fn compile(
        &self,
        directory: Directory,
    ) -> Result<Result<Arc<PolicySet>, Diagnostics>, Refusal> {
        let compiler = Arc::clone(&self.compiler);
        let work =
            tokio::task::spawn_blocking(move || crate::start::compile(&compiler, &directory).map(Arc::new));
        work.await.map_err(|error| {
            tracing::error!(%error, "compiling policies broke off");
            Refusal::new(
                Code::Internal,
                "the policies could not be compiled, so nothing was changed",
            )
        })
    }
}

/// The entry of a change: what happened, and who did it.
fn entry(kind: EntryKind, key: &ApiKey, facts: Value) -> Result<ProposedEntry, Refusal> {
    let mut body = match facts {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    let mut by = json!({"key": key.id, "role": key.role});
    if let Some(user) = &key.user {
        by["user"] = json!(user);
    }
    body.insert("by".to_owned(), by);
    let body = canon::of(&body).map_err(|error| {
        tracing::error!(%error, kind = kind.as_str(), "the body of an entry could not be written");
        Refusal::new(
            Code::Internal,
            "the change could not be written down, so it was not made",
        )
    })?;
    Ok(ProposedEntry::new(kind, body))
}

fn invalid_policies(diagnostics: &Diagnostics) -> Refusal {
    Refusal::new(
        Code::PolicyInvalid,
        "the policies in force would not be valid after this change, so nothing was changed",
    )
    .with_diagnostics(json!(diagnostics))
}

fn unexpected() -> Refusal {
    Refusal::new(
        Code::Conflict,
        "somebody else changed the same thing at the same time; try again",
    )
}
