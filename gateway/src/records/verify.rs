//! `POST /v1/ledger/verify`: whether what is stored is what was recorded. What that means stands in the module `audit`.

use super::audit::{Audit, Fault, Findings, missing};
use super::range::Range;
use crate::background::Breaks;
use crate::gateway::Gateway;
use crate::http::{Code, Json, OptionalJson, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use ledger::merkle::Frontier;
use ledger::{Head, KeySet, TrustPolicy, TrustedCheckpoint, Unverified};
use model::TenantId;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::StoreError;

/// Within how long this gateway hears of a key that another one has added.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(1);

/// What to verify.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    from_seq: Option<NonZeroU64>,
    to_seq: Option<NonZeroU64>,
    /// A checkpoint that was kept elsewhere: the ledger has to continue it.
    held: Option<String>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Verification {
    verified: bool,
    /// How many entries were looked at, up to the first fault.
    checked: u64,
    /// Where the ledger ended when the verification began.
    head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_fault: Option<Fault>,
}

/// Verifies a range.
pub async fn verify(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    OptionalJson(asked): OptionalJson<Asked>,
) -> Result<Json<Verification>, Refusal> {
    let began = Instant::now();
    let (store, tenant) = (&*gateway.store, caller.tenant());
    // Without them all but signatures and what is held is verified, and nothing passes for right.
    let keys = gateway.log_keys();
    let checkpoint = match &keys {
        Ok(keys) => asked.held(tenant, keys)?,
        Err(_) => None,
    };
    let (head, edge) = end(&gateway, tenant).await?;
    let range = asked.range();
    let audit = Audit {
        store,
        tenant,
        head,
        edge: edge.as_ref().ok(),
        keys: keys.as_ref().ok(),
        held: checkpoint.as_ref(),
        from: None,
        breaks: Breaks::in_line(&gateway.ledger_chunks, tenant),
    };
    let cut = cut_before(checkpoint.as_ref(), range, &head).or_else(|| cut_whole(&head));
    let Findings {
        checked, first_fault, ..
    } = if cut.is_some() || range.is_missing(head.seq) {
        Findings {
            first_fault: cut,
            ..Findings::default()
        }
    } else {
        audit.run(range.within(head.seq)?).await?
    };
    let found = first_fault.or_else(|| edge.err().map(|what| Fault::at(head.seq, what)));
    let found = match found {
        None if tenant == TenantId::SYSTEM => keys_fault(&gateway, &head).await?,
        fault => fault,
    };
    if let Some(fault) = &found {
        tracing::error!(%tenant, seq = fault.seq, what = fault.what, "the ledger does not verify");
        gateway.watch.suspect(tenant, fault.seq);
    }
    // Whether there was more is known to the caller alone, who may have mistaken the number.
    let found = found.or_else(|| range.expected_end().and_then(|end| ends_early(&head, end)));
    let (first_fault, checked) = match found {
        None => known_fault(&gateway, tenant, range, (checked, began)).await,
        fault => (fault, checked),
    };
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    // That of the system tenant's ledger has its fault above.
    if let (None, Err(what)) = (&first_fault, &keys) {
        return Err(Refusal::unreadable_keys(what));
    }
    Ok(Json(Verification {
        verified: first_fault.is_none(),
        checked,
        head,
        first_fault,
    }))
}

/// What is wrong where a ledger ends before the beginning of what is asked about and before the end that a checkpoint
/// says it had. The checkpoint is signed, so that is no mistake of whoever asks.
fn cut_before(checkpoint: Option<&TrustedCheckpoint>, range: Range, end: &Head) -> Option<Fault> {
    let (held, found) = (checkpoint?.checkpoint().size, end.seq);
    let is_cut = held > found && range.begins_behind(found);
    is_cut.then(|| Fault::at(found + 1, Unverified::Cut { held, found }.to_string()))
}

/// No ledger is empty: its first entry came with its tenant, before anybody could ask for it.
fn cut_whole(end: &Head) -> Option<Fault> {
    (end.seq == 0).then(|| missing(1))
}

/// The system tenant's ledger tells of the keys of the log. One that is added in this moment is asked for once more.
async fn keys_fault(gateway: &Gateway, head: &Head) -> Result<Option<Fault>, Refusal> {
    if keys_differ(gateway).await?.is_none() {
        return Ok(None);
    }
    tokio::time::sleep(FOLLOWED_WITHIN).await;
    let differ = keys_differ(gateway).await?;
    Ok(differ.map(|what| Fault::at(head.seq, what)))
}

/// What is wrong with the keys of the log. An entry that cannot be read may tell of one, and may stand before the range.
async fn keys_differ(gateway: &Gateway) -> Result<Option<String>, StoreError> {
    match gateway.keys_differ(&*gateway.store).await {
        Err(StoreError::Corrupt { what }) => Ok(Some(what)),
        differ => differ,
    }
}

/// What is left of a ledger that was cut or rewritten as a whole agrees with itself, and nothing is wrong with what was
/// read. The watch has seen it before, and what it knows is said here as it is to whoever wants a checkpoint. With it,
/// how many entries come before it.
async fn known_fault(
    gateway: &Gateway,
    tenant: TenantId,
    range: Range,
    (checked, began): (u64, Instant),
) -> (Option<Fault>, u64) {
    let entries = range.whole();
    let known = gateway
        .watch
        .fault_in(tenant, &entries, began, &gateway.background);
    let Some(fault) = known.await else {
        return (None, checked);
    };
    let before = fault.seq - entries.start();
    (Some(fault), checked.min(before))
}

impl Asked {
    const fn range(&self) -> Range {
        Range::new(self.from_seq, self.to_seq)
    }

    /// The checkpoint that the caller has kept, if it is one of this tenant's and a key of the log has signed it.
    fn held(&self, tenant: TenantId, keys: &KeySet) -> Result<Option<TrustedCheckpoint>, Refusal> {
        let Some(note) = &self.held else { return Ok(None) };
        let invalid = |what: String| Refusal::new(Code::InvalidField, format!("`held`: {what}"));
        if self.to_seq.is_some() {
            return Err(invalid(
                "a checkpoint is held against the whole rest: leave `to_seq` out".to_owned(),
            ));
        }
        let opened = TrustPolicy::in_log(keys.clone()).open(note.as_bytes());
        let held = opened.map_err(|untrusted| invalid(untrusted.to_string()))?;
        if held.tenant() != tenant.to_string() {
            return Err(invalid(format!("it is a checkpoint of `{}`", held.tenant())));
        }
        let size = held.checkpoint().size;
        if let Some(from) = self.from_seq.filter(|from| from.get() - 1 > size) {
            return Err(invalid(format!(
                "a checkpoint of {size} entries cannot be compared with entries from {from} on: leave `from_seq` out, or begin at the entry behind the checkpoint or before it"
            )));
        }
        Ok(Some(held))
    }
}

/// Where the last commit says that the ledger ends; of the tree, or what is wrong with what it says.
async fn end(gateway: &Gateway, tenant: TenantId) -> Result<(Head, Result<Frontier, String>), Refusal> {
    let what = match gateway.store.tip(tenant).await {
        Ok(tip) => return Ok((tip.head(), Ok(tip.tree().clone()))),
        Err(StoreError::Corrupt { what }) => what,
        Err(error) => return Err(error.into()),
    };
    match gateway.store.head(tenant).await {
        Ok(head) => Ok((head, Err(what))),
        Err(StoreError::Corrupt { what }) => Err(endless(gateway, tenant, &what)),
        Err(error) => Err(error.into()),
    }
}

/// What is said of a ledger of which nobody can read where it ends: there is nothing to verify up to. The watch looks
/// at it next, and what it has found is said.
fn endless(gateway: &Gateway, tenant: TenantId, what: &str) -> Refusal {
    tracing::error!(%tenant, what, "the ledger does not verify");
    gateway.watch.check(tenant).err().unwrap_or_else(|| {
        gateway.watch.suspect(tenant, 1);
        Refusal::unreadable()
    })
}

/// Whoever names an end has seen it, on a receipt for instance: a ledger that ends before it has lost something.
fn ends_early(head: &Head, expected: u64) -> Option<Fault> {
    (expected > head.seq).then(|| {
        let what = format!(
            "the entry is missing: the ledger ends at seq {}, and `to_seq` is {expected}",
            head.seq
        );
        Fault::at(head.seq + 1, what)
    })
}
