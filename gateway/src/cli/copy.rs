//! `countersign copy --from URL --to URL`: moves everything from one store to another.
//!
//! All ledgers are verified before the first one is copied, entry by entry as they go over, and once more where they
//! arrive. The system tenant's one comes last, and no gateway starts on a target without it: what is left of a copy
//! that was not finished is never served. The target has to be empty, and no gateway starts on it while a copy goes on;
//! should one have written to it all the same, what it has answered is not to be removed. Nobody may write to the
//! source meanwhile: if at the end it has other tenants than have gone over, or a ledger or a directory of theirs has
//! moved, the copy is not what is there now, and the command says so and fails.

mod beside;
mod named;
mod outcomes;

use beside::{Answers, Beside};
use named::Named;
use outcomes::Outcomes;

use crate::background::Breaks;
use crate::config::Copy;
use crate::records::audit::Audit;
use crate::start::is_unfinished_copy;
use crate::stores::{self, Claimant};
use anyhow::{Context, bail, ensure};
use canon::Limits;
use engine::EntryKind;
use ledger::merkle::Frontier;
use ledger::{Head, NewEntry, Tip};
use model::{Name, Noun, TenantId, Write};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use store::{
    Advance, Batch, CommitError, DecisionRow, EntryRow, ErasureRow, Recorded, Room, Store, StoredDecision,
    StoredEntry, StoredTenant,
};

/// Entries in one commit, and nouns: the hop and the sync are spread over many, and memory stays flat. Of large ones it
/// is fewer, as many as are read at once, and so it is of those that name much: a server gives up a commit that takes
/// seconds.
const CHUNK: u32 = 1_024;
/// Erasures after which a commit takes no further entry, for the same reason: one entry tells of some hundreds.
const ERASURES_MAX: usize = 4_096;

/// More than any body: the largest tells of a tool with all its schemas.
const BODY_LIMITS: Limits = Limits {
    bytes_max: 16 * 1024 * 1024,
    depth_max: 128,
};

/// What is said of a source that has not stood still.
const WRITTEN_MEANWHILE: &str =
    "somebody wrote to the source meanwhile: stop its gateways, and copy again into an empty database";

/// What is said of a copy that failed when something had gone over already.
const NOT_FINISHED: &str =
    "the copy was not finished: remove what is in the target, and copy again into an empty database";

/// What is said where nothing has.
const NOTHING_COPIED: &str = "nothing was copied, and the target is empty";

/// What is said where it failed only when all had gone over, or may have.
const SERVABLE: &str = "what is in the target may not be all of the source, and gateways may start on it: if one has begun there since, keep it for what it has answered; if not, remove it, and copy again into an empty database";

/// Somebody else writes to the target. What a gateway has answered is in it then, which nobody has to remove.
#[derive(Debug, thiserror::Error)]
#[error(
    "another gateway or copy has written to the target meanwhile: stop it, keep the target for what it has answered, and copy again into another, empty database"
)]
struct Taken;

/// Where a tenant stood when it went over.
struct Copied {
    tenant: TenantId,
    revision: u64,
    head: Head,
    answers: Answers,
}

/// Copies, and says what went over.
pub async fn run(options: Copy) -> anyhow::Result<()> {
    ensure!(
        options.from != options.to,
        "`--from` and `--to` name the same database"
    );
    let from = stores::open_known(&options.from).await.context("the source")?;
    let is_whole = !is_unfinished_copy(from.revisions().await?);
    ensure!(
        is_whole,
        "the source holds ledgers without the whole one of the system tenant, as a copy does that was not finished"
    );
    let to = stores::open(&options.to).await.context("the target")?;
    // Also before: a copy onto a database that is served is a slip, and keeps no gateway from starting there again. What
    // may be another copy's, which goes on, is left to the claim.
    if !is_unfinished_copy(to.revisions().await?) {
        check_empty(&*to).await?;
    }
    let claim = stores::claim(&options.to, Claimant::Copy).await;
    let claim = claim.context("the target")?;
    let copied = copy(&*from, &*to).await;
    from.close().await;
    to.close().await;
    if let Some(claim) = claim {
        claim.give_back().await;
    }
    let copied = copied?;
    let (tenants, entries) = (copied.len(), copied.iter().map(|head| head.seq).sum::<u64>());
    writeln!(
        std::io::stdout(),
        "copied and verified {entries} entries of {tenants} ledgers"
    )?;
    Ok(())
}

/// Copies every tenant of one store to another, empty one. Returns where their chains end.
pub async fn copy(from: &dyn Store, to: &dyn Store) -> anyhow::Result<Vec<Head>> {
    check_empty(to).await?;
    let mut tenants = from.load(None).await?;
    for tenant in &tenants {
        let verified = verify_source(from, tenant).await;
        verified.with_context(|| format!("copying {}", tenant.tenant))?;
    }
    // That has taken its time.
    let is_empty = to.revisions().await?.is_empty();
    ensure!(is_empty, Taken);
    tenants.sort_by_key(|tenant| tenant.tenant == TenantId::SYSTEM);
    let mut copied = Vec::new();
    for tenant in tenants {
        let id = tenant.tenant;
        let copying = copy_tenant(from, to, tenant, &copied).await;
        match copying.with_context(|| format!("copying {id}")) {
            Ok(tenant) => copied.push(tenant),
            Err(error) => return Err(not_finished(to, error).await),
        }
    }
    check_unmoved(from, &copied).await.context(SERVABLE)?;
    copied.sort_by_key(|copied| copied.tenant);
    Ok(copied.into_iter().map(|copied| copied.head).collect())
}

/// Says what became of a target into which something may have gone over, and what to do about it.
async fn not_finished(to: &dyn Store, error: anyhow::Error) -> anyhow::Error {
    if error.is::<Taken>() {
        return error;
    }
    // A commit of which nobody knows may still come to be kept, and it may be the last one.
    let is_unknown = matches!(error.downcast_ref::<CommitError>(), Some(CommitError::Unknown(_)));
    error.context(match to.revisions().await {
        Ok(there) if there.is_empty() && !is_unknown => NOTHING_COPIED,
        Ok(there) if is_unfinished_copy(there.iter().copied()) && !is_unknown => NOT_FINISHED,
        // One that cannot be read may have all of it, too.
        Ok(_) | Err(_) => SERVABLE,
    })
}

async fn check_empty(to: &dyn Store) -> anyhow::Result<()> {
    let revisions = to.revisions().await?;
    let is_empty = revisions.is_empty();
    ensure!(
        !is_unfinished_copy(revisions),
        "the target holds ledgers without the whole one of the system tenant: if it is what is left of a copy, remove it, and copy again into an empty database; otherwise keep it"
    );
    ensure!(
        is_empty,
        "the target is not empty: a ledger is never written over, so use an empty database"
    );
    Ok(())
}

/// Verifies a ledger with its end, of the tree as well, unless somebody has written to it since it was read.
async fn verify_source(from: &dyn Store, tenant: &StoredTenant) -> anyhow::Result<()> {
    let (id, tip) = (tenant.tenant, &tenant.position.tip);
    let verified = verify(from, id, tip.head(), Some(tip.tree())).await;
    ensure!(from.head(id).await? == tip.head(), WRITTEN_MEANWHILE);
    verified.context("the source does not verify, so nothing of it was copied")
}

/// Fails if the tenants that have gone over are not what they were then.
async fn check_copied(from: &dyn Store, copied: &[Copied]) -> anyhow::Result<()> {
    for Copied {
        tenant,
        head,
        answers,
        ..
    } in copied
    {
        let now = from.head(*tenant).await?;
        ensure!(now == *head, "{WRITTEN_MEANWHILE} ({tenant} has grown)");
        let now = Answers::read(from, *tenant, CHUNK).await?;
        ensure!(
            now == *answers,
            "{WRITTEN_MEANWHILE} ({tenant} has given answers)"
        );
    }
    Ok(())
}

/// Fails if the source is not what went over: while the later tenants did, somebody may have written to the earlier
/// ones, or made another.
async fn check_unmoved(from: &dyn Store, copied: &[Copied]) -> anyhow::Result<()> {
    let then = copied.iter().map(|copied| (copied.tenant, copied.revision));
    let then: BTreeMap<_, _> = then.collect();
    let now: BTreeMap<_, _> = from.revisions().await?.into_iter().collect();
    ensure!(now == then, WRITTEN_MEANWHILE);
    check_copied(from, copied).await
}

/// Fails if a gateway has begun in the target: each makes the system tenant first, which is copied last.
async fn check_unbegun(to: &dyn Store) -> anyhow::Result<()> {
    let system = to.head(TenantId::SYSTEM).await?;
    ensure!(system == Head::GENESIS, Taken);
    Ok(())
}

/// Copies a tenant behind those that have gone over.
async fn copy_tenant(
    from: &dyn Store,
    to: &dyn Store,
    tenant: StoredTenant,
    before: &[Copied],
) -> anyhow::Result<Copied> {
    check_unbegun(to).await?;
    let (id, head) = (tenant.tenant, tenant.position.head());
    let revision = tenant.position.revision;
    // A gateway does not start on a directory without its tenant, so that comes last.
    let (itself, others): (Vec<_>, Vec<_>) = tenant
        .nouns
        .into_iter()
        .partition(|noun| id == TenantId::SYSTEM || matches!(noun, Noun::Tenant(_)));
    let mut others = others.into_iter();
    let mut at = Tip::GENESIS;
    let (mut beside, mut chain) = (Beside::default(), Chain::new(from, id));
    while at.head().seq < head.seq {
        let mut batch = Batch::default();
        beside.add_page(from, id, CHUNK, &mut batch).await?;
        let left = u32::try_from(head.seq - at.head().seq).unwrap_or(CHUNK);
        let limit = beside.entries_max(CHUNK).min(left);
        let reached = chain.add_entries(&at, limit, &mut batch).await?;
        if reached.head().seq == head.seq {
            while !beside.is_done() {
                // Only answers can be more than entries have room for, and they need none.
                if at.head() != Head::GENESIS {
                    commit(to, id, &answers_of(&mut batch)).await?;
                }
                beside.add_page(from, id, CHUNK, &mut batch).await?;
            }
            if id == TenantId::SYSTEM {
                // With this commit the target can be served. A tenant that is new in the source has its entry here.
                ensure!(from.head(id).await? == head, WRITTEN_MEANWHILE);
                check_copied(from, before).await?;
            }
            batch.advances[0].revision = revision;
            put(id, others.by_ref().chain(itself.iter().cloned()), &mut batch);
        } else {
            put(id, next_nouns(&mut others), &mut batch);
        }
        commit(to, id, &batch).await?;
        at = reached;
    }
    let now = from.head(id).await?;
    ensure!(now == head, WRITTEN_MEANWHILE);
    verify(to, id, head, Some(at.tree()))
        .await
        .context("the copy does not verify")?;
    Ok(Copied {
        tenant: id,
        revision,
        head,
        answers: beside.answers(),
    })
}

async fn commit(to: &dyn Store, tenant: TenantId, batch: &Batch) -> anyhow::Result<()> {
    let turn = to.begin(&[tenant]).await?;
    match turn.commit(batch).await {
        Err(CommitError::HeadMoved { .. }) => Err(Taken.into()),
        committed => committed.map_err(anyhow::Error::from),
    }
}

/// Takes the answers out of a batch, into one of their own.
fn answers_of(batch: &mut Batch) -> Batch {
    let mut answers = Batch::default();
    answers.budgets.replies.append(&mut batch.budgets.replies);
    answers
}

/// The nouns that go over with the next entries. They are not what they were at these, but what they are at the last one.
fn next_nouns(nouns: &mut impl Iterator<Item = Noun>) -> Vec<Noun> {
    let (mut next, mut room) = (Vec::new(), Room::default());
    while next.len() < CHUNK as usize
        && room.is_left()
        && let Some(noun) = nouns.next()
    {
        room.take(noun.to_json().len());
        next.push(noun);
    }
    next
}

fn put(tenant: TenantId, nouns: impl IntoIterator<Item = Noun>, batch: &mut Batch) {
    let writes = nouns.into_iter().map(|noun| (tenant, Write::Put(noun)));
    batch.writes.extend(writes);
}

async fn verify(
    store: &dyn Store,
    tenant: TenantId,
    head: Head,
    edge: Option<&Frontier>,
) -> anyhow::Result<()> {
    if head.seq == 0 {
        return Ok(());
    }
    let audit = Audit {
        store,
        tenant,
        head,
        edge,
        keys: None,
        held: None,
        from: None,
        breaks: Breaks::short(),
    };
    let findings = audit.run(1..=head.seq).await?;
    match findings.first_fault {
        Some(fault) => bail!("entry {}: {}", fault.seq, fault.what),
        None => Ok(()),
    }
}

/// A ledger as it is read, and what is remembered on the way.
struct Chain<'a> {
    from: &'a dyn Store,
    tenant: TenantId,
    outcomes: Outcomes,
    named: Named,
}

impl<'a> Chain<'a> {
    fn new(from: &'a dyn Store, tenant: TenantId) -> Self {
        Self {
            from,
            tenant,
            outcomes: Outcomes::default(),
            named: Named::default(),
        }
    }

    /// Adds the next entries behind a tip to a batch, with everything that belongs to them. Returns where they end.
    async fn add_entries(&mut self, at: &Tip, limit: u32, batch: &mut Batch) -> anyhow::Result<Tip> {
        let (from, tenant) = (self.from, self.tenant);
        let chunk = from.recorded(tenant, at.head().seq + 1, limit).await?;
        self.outcomes.find(from, tenant, &chunk).await?;
        let (mut to, mut room) = (at.clone(), Room::default());
        for Recorded {
            entry,
            decision,
            receipt,
        } in chunk
        {
            if batch.erasures.len() >= ERASURES_MAX || !room.is_left() {
                break;
            }
            if entry.kind == EntryKind::BodiesErased.as_str() {
                batch.erasures.extend(erasures(from, tenant, &entry).await?);
            }
            for row in self.named.rows(from, tenant, &entry).await? {
                room.take(row.bytes.len());
                batch.contents.push(row);
            }
            batch.outcomes.extend(self.outcomes.row(tenant, &entry)?);
            if let (Some(decision), Some(receipt)) = (decision, receipt) {
                batch.decisions.push(decision_row(tenant, decision, receipt)?);
            }
            batch.entries.push(entry_row(tenant, &entry, &mut to)?);
        }
        ensure!(to.head().seq > at.head().seq, "entries are missing");
        batch.advances.push(Advance {
            tenant,
            from: at.head(),
            to: to.clone(),
            revision: 0,
        });
        Ok(to)
    }
}

/// What an entry tells of erasures, as far as it is the one by which they were erased.
async fn erasures(
    from: &dyn Store,
    tenant: TenantId,
    telling: &StoredEntry,
) -> anyhow::Result<Vec<ErasureRow>> {
    #[derive(Deserialize)]
    struct Told {
        seqs: Vec<[u64; 2]>,
    }
    let told: Told = serde_json::from_str(&telling.body)?;
    let mut rows = Vec::new();
    for [first, last] in told.seqs {
        let mut next = first;
        while next <= last {
            let entries = from.entries(tenant, next, CHUNK).await?;
            let end = entries.last().context("entries are missing")?.seq;
            let erased = entries.iter().take_while(|entry| entry.seq <= last);
            let erased = erased.filter_map(|entry| Some((entry.seq, entry.erased?)));
            let erased = erased.filter(|(_, erased)| erased.by == telling.seq);
            rows.extend(erased.map(|(seq, erased)| ErasureRow {
                tenant,
                seq,
                body: erased.body,
                by: telling.seq,
                request: None,
                outcome: None,
                approval: None,
                reservation: None,
            }));
            next = end + 1;
        }
    }
    Ok(rows)
}

/// An entry behind the end of a ledger, which moves to it.
fn entry_row(tenant: TenantId, entry: &StoredEntry, to: &mut Tip) -> anyhow::Result<EntryRow> {
    let kind = EntryKind::from_word(&entry.kind);
    let kind =
        kind.with_context(|| format!("entry {} is of a kind that this version does not know", entry.seq))?;
    // An erased body is written as what stands for nothing, and erased with the entry that tells of it.
    let stored = if entry.erased.is_some() {
        "null"
    } else {
        &entry.body
    };
    let body = canon::canonicalize(stored.as_bytes(), BODY_LIMITS)?;
    ensure!(
        body.as_str() == stored,
        "the body of entry {} is not canonical JSON",
        entry.seq
    );
    let body_digest = entry.erased.map_or_else(|| body.digest(), |erased| erased.body);
    let appended = to.append(
        &NewEntry {
            tenant: &tenant.to_string(),
            kind: kind.as_str(),
            at: &entry.at.to_string(),
            body: body_digest,
        },
        &mut String::new(),
    );
    let stored = (entry.seq, entry.prev, entry.hash, &entry.nodes[..]);
    let computed = (
        appended.head.seq,
        appended.prev,
        appended.head.hash,
        appended.completed.as_bytes(),
    );
    ensure!(stored == computed, "entry {} is not what was recorded", entry.seq);
    Ok(EntryRow {
        tenant,
        seq: entry.seq,
        kind: kind.as_str(),
        at: entry.at,
        prev: entry.prev,
        hash: entry.hash,
        body,
        body_digest,
        nodes: appended.completed,
    })
}

/// What of a decision's body stands in a table besides.
#[derive(Deserialize)]
struct Asked {
    request_id: Option<Name>,
}

fn decision_row(tenant: TenantId, decision: StoredDecision, receipt: Vec<u8>) -> anyhow::Result<DecisionRow> {
    let asked: Asked = serde_json::from_str(&decision.body)?;
    Ok(DecisionRow {
        tenant,
        seq: decision.seq,
        id: decision.id,
        agent: decision.agent,
        tool: decision.tool,
        action: decision.action,
        reason: decision.reason,
        run_id: decision.run_id,
        // Where an id keeps standing for an earlier decision, this one has no digest.
        request: asked.request_id.zip(decision.ask),
        receipt: receipt.into(),
    })
}
