//! The base policies: where they come from, and how they are put in force, at the start and again later.
//!
//! They hold for every tenant, so a reload compiles every tenant's policies under the new ones, where nobody waits for
//! a decision, and swaps all at once or nothing. Other gateways over the same database take over what was reloaded
//! here: [`follow`].

mod file;
pub mod follow;
mod replacement;

pub use file::{BaseFileError, read};

use crate::changes::{By, CHANGE_ATTEMPTS_MAX, Force, Plan, entry, off_the_workers, unexpected};
use crate::compiling;
use crate::gateway::{self, Gateway};
use crate::http::{Code, Refusal};
use crate::sequencer::CommitStatus;
use canon::Digest;
use engine::proposal::{Change, Intent};
use engine::{Conflict, EntryKind, Proposal, Recompiled, Snapshot};
use model::{BaseInForce, Noun, TenantId, Timestamp, Write};
use policy::{BasePolicies, ProbeFailure};
use replacement::Replacement;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// How often base policies are compiled for everybody while others may change their directories.
const ATTEMPTS_BESIDE_OTHERS: usize = 4;

/// Where the base policies come from.
pub struct BaseSource {
    /// The file, if they are not those in the program.
    file: Option<PathBuf>,
    /// Held from before the file is read until what was read is in force or refused, so that an older reading does not
    /// replace a newer one.
    reloading: Arc<tokio::sync::Mutex<()>>,
}

impl BaseSource {
    /// This file, or the program.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            reloading: Arc::default(),
        }
    }
}

/// What a reload did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reloaded {
    /// The digest of the base policies that were in force before.
    pub before: Digest,
    /// The digest of those in force now.
    pub after: Digest,
}

impl Gateway {
    /// Records the base policies that this gateway starts with, unless they were the last to be put in force.
    pub async fn record_base(&self) -> Result<(), Refusal> {
        let base = self.snapshot.load().compiler().base().clone();
        let plan = |directory: &model::Directory, now| {
            let last = directory.base.as_ref().map(|last| last.digest);
            if last == Some(base.digest()) {
                return Ok(Plan::nothing(()));
            }
            Ok(Plan::Change {
                kind: EntryKind::BasePoliciesPut,
                facts: facts(&base, last),
                writes: in_force(&base, now, None),
                answer: (),
            })
        };
        self.change_by(By::Start, Force::No, TenantId::SYSTEM, plan).await
    }

    /// Waits until nobody else puts base policies in force.
    pub async fn turn_to_reload(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.base.reloading).lock_owned().await
    }

    /// Reads the file again and puts its policies in force for all tenants. If they do not hold or do not fit, those in
    /// force stay. The turn is over when this returns.
    pub async fn reload_base(&self, turn: OwnedMutexGuard<()>, by: By<'_>) -> Result<Reloaded, Refusal> {
        // It may have waited for others who reload, and then what is wrong with the file is not told any more either.
        by.check(&self.snapshot.load_full(), self.clock.now())?;
        let file = self.base.file.clone().ok_or_else(no_file)?;
        let base = off_the_workers(move || read(&file)).await??;
        let before = self.snapshot.load().base_digest();
        let after = base.digest();
        if self.is_in_force(after).await? {
            // Nothing is committed that would look whether the credential still works.
            by.check(&self.snapshot.load_full(), self.clock.now())?;
        } else {
            self.replace_base(&mut Replacement::new(base), by).await?;
        }
        drop(turn);
        Ok(Reloaded { before, after })
    }

    /// Whether these are in force for everybody, and no gateway has put others in force that this one has not heard of yet.
    async fn is_in_force(&self, base: Digest) -> Result<bool, Refusal> {
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let snapshot = self.snapshot.load_full();
            if snapshot.base_digest() != base || !self.is_everybodys(&snapshot, base) {
                return Ok(false);
            }
            // It may have to follow another gateway. Nothing is locked for the look: nobody's hanging up ends a reload.
            let known = gateway::tenant(&snapshot, TenantId::SYSTEM)?;
            if self.is_latest(known, None).await? {
                return Ok(true);
            }
        }
        Err(Refusal::contended())
    }

    /// Whether the ledger says these last, and the other gateways, if there may be some, have them in force or will
    /// soon: they were not only started with.
    fn is_everybodys(&self, snapshot: &Snapshot, base: Digest) -> bool {
        let is_alone = !self.store.is_shared();
        last(snapshot).map_or(is_alone, |last| {
            last.digest == base && (is_alone || last.cedar.is_some())
        })
    }

    /// Puts other base policies in force; those that another gateway has reloaded only as long as they are the last.
    /// Returns whether they are.
    async fn replace_base(&self, replacement: &mut Replacement, by: By<'_>) -> Result<bool, Refusal> {
        let digest = replacement.base().digest();
        for attempt in 0..CHANGE_ATTEMPTS_MAX {
            // Others may change meanwhile what their policies are compiled from, and then they are compiled again; but
            // not for ever. What has to hold at once is changed even then, and no policy is compiled from it.
            let _turn = if attempt < ATTEMPTS_BESIDE_OTHERS {
                None
            } else {
                Some(self.change_locks.lock_all().await)
            };
            let fits = self.recompile_missing(replacement).await;
            let (snapshot, now) = (self.snapshot.load_full(), self.clock.now());
            // It may have taken long: what does not fit is not told any more either.
            by.check(&snapshot, now)?;
            fits?;
            self.check_has_all(TenantId::SYSTEM)?;
            if matches!(by, By::Gateway) && last(&snapshot).is_none_or(|last| last.digest != digest) {
                return Ok(false);
            }
            let proposal = propose(&snapshot, replacement.recompiled().clone(), by, now)?;
            match self.sequencer.record(proposal).await? {
                CommitStatus::Recorded(_) => {
                    self.metrics.set_base_differs(false);
                    tell_oddities(&self.snapshot.load_full());
                    return Ok(true);
                }
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. }) => {}
                CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => return Err(unexpected()),
            }
        }
        Err(Refusal::contended())
    }

    /// Compiles for all tenants in whose directory something that policies are compiled from has changed since it was
    /// done last. Refused if it does not fit one of them; what does fit is compiled all the same.
    async fn recompile_missing(&self, replacement: &mut Replacement) -> Result<(), Refusal> {
        let (mut next, snapshot) = (replacement.clone(), self.snapshot.load_full());
        let recompile = move || {
            next.recompile_missing(&snapshot);
            next
        };
        *replacement = off_the_workers(recompile).await?;
        replacement.check_fits()
    }
}

/// Says what is odd about base policies that were just put in force, as far as that is soon known.
fn tell_oddities(snapshot: &Snapshot) {
    let of_tenants = snapshot.tenants();
    let of_tenants = of_tenants.filter_map(|(_, tenant)| compiling::wrong_for_users(tenant));
    for oddity in of_tenants.chain(compiling::base_oddities(snapshot)) {
        oddity.tell();
    }
}

fn propose(
    snapshot: &Snapshot,
    recompiled: Recompiled,
    by: By<'_>,
    now: Timestamp,
) -> Result<Proposal, Refusal> {
    let base = recompiled.compiler().base();
    let change = Change {
        entry: entry(
            EntryKind::BasePoliciesPut,
            by,
            facts(base, Some(snapshot.base_digest())),
        )?,
        writes: in_force(base, now, Some(Arc::clone(base.text()))),
        policies: None,
    };
    Ok(Proposal {
        tenant: TenantId::SYSTEM,
        revision: gateway::tenant(snapshot, TenantId::SYSTEM)?.revision,
        base: snapshot.base_digest(),
        intent: Intent::Base {
            change,
            recompiled: Arc::new(recompiled),
        },
    })
}

/// What the ledger says: the text, so that whoever has the ledger knows what a digest stands for.
fn facts(base: &BasePolicies, before: Option<Digest>) -> Value {
    json!({
        "cedar": base.text(),
        "policy_digests": {"before": before, "after": base.digest()},
    })
}

fn in_force(base: &BasePolicies, since: Timestamp, cedar: Option<Arc<str>>) -> Vec<Write> {
    let base = BaseInForce {
        digest: base.digest(),
        since,
        cedar,
    };
    vec![Write::Put(Noun::Base(Arc::new(base)))]
}

/// The base policies that were put in force last, on whatever gateway.
fn last(snapshot: &Snapshot) -> Option<&Arc<BaseInForce>> {
    snapshot.tenant(TenantId::SYSTEM)?.directory.base.as_ref()
}

fn no_file() -> Refusal {
    let detail = "this gateway serves with the base policies in the program; start it with `--policies FILE` to reload them";
    Refusal::new(Code::Conflict, detail)
}

impl From<BaseFileError> for Refusal {
    fn from(error: BaseFileError) -> Self {
        let detail = format!("{error}; the base policies in force stay");
        match error {
            BaseFileError::Invalid { diagnostics, .. }
            | BaseFileError::Probe {
                failure: ProbeFailure::Invalid(diagnostics),
                ..
            } => {
                let detail = "the base policies in the file are not valid, so those in force stay";
                Self::new(Code::PolicyInvalid, detail).with_diagnostics(json!(diagnostics))
            }
            BaseFileError::Probe { failure, .. } => {
                let finding = json!([{"severity": "error", "message": failure.to_string()}]);
                Self::new(Code::PolicyInvalid, detail).with_diagnostics(finding)
            }
            _ => Self::new(Code::PoliciesFileUnusable, detail),
        }
    }
}
