//! What a commit is about to write, with nothing borrowed from the batch: it goes to a task that outlives the caller.

use crate::approvals::{self, ApprovalRow};
use crate::counters;
use crate::entry;
use crate::entry::SEQ_MAX;
use crate::erasures::Erasures;
use crate::insert::{self, Statement, TenantNumbers};
use crate::purse::Purse;
use crate::requests::RequestDigest;
use crate::runs::{self, RunRow};
use canon::Digest;
use ledger::Head;
use model::{TenantId, Timestamp, Write};
use store::{Advance, Batch, CommitError, DecisionRow, Place};

/// The last number that a tenant can have: 23 bits.
const TENANT_NO_MAX: i64 = (1 << 23) - 1;

/// Everything that one transaction writes.
pub(crate) struct Work {
    pub(crate) moves: Vec<Move>,
    pub(crate) inserts: Vec<Statement>,
    /// The requests that are answered, each with the number of its entry.
    pub(crate) requests: Vec<(RequestDigest, i64)>,
    /// Whether the first insert begins the transaction and moves the one head.
    pub(crate) opens: bool,
    /// Whether the last insert commits it.
    pub(crate) closes: bool,
    pub(crate) changes: Vec<Change>,
    pub(crate) approvals: Vec<ApprovalRow>,
    pub(crate) runs: Vec<RunRow>,
    /// Counters, as the JSON that the statement takes.
    pub(crate) counters: Option<String>,
    /// What is written of budgets, if it does not travel with the last insert.
    pub(crate) budgets: Option<Statement>,
    pub(crate) contents: Vec<Content>,
    pub(crate) erasures: Erasures,
}

/// How one tenant's head moves.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) tenant: TenantId,
    pub(crate) tenant_no: i64,
    pub(crate) is_new: bool,
    pub(crate) from_seq: i64,
    pub(crate) from_hash: Vec<u8>,
    pub(crate) to_seq: i64,
    pub(crate) to_hash: Vec<u8>,
    pub(crate) to_at: i64,
    /// The edge of the tree, as a column holds it.
    pub(crate) to_edge: Vec<u8>,
    pub(crate) revision: i64,
    /// Where the tenant stands afterwards.
    pub(crate) to: Place,
}

/// A change of a directory.
#[derive(Debug)]
pub(crate) enum Change {
    /// The noun is there from now on.
    Put {
        key: NounKey,
        name: Option<String>,
        value: String,
    },
    /// The noun is gone.
    Delete(NounKey),
}

/// Bytes that entries name by their digest.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) tenant_no: i64,
    pub(crate) digest: Digest,
    pub(crate) bytes: bytes::Bytes,
}

/// What a noun is found by.
#[derive(Debug)]
pub(crate) struct NounKey {
    pub(crate) tenant_no: i64,
    pub(crate) kind: &'static str,
    pub(crate) id: String,
}

/// More tenants than there are numbers.
#[derive(Debug, thiserror::Error)]
#[error("the database has no room for another tenant")]
struct TooManyTenants;

/// A number that does not fit into the database's integers.
#[derive(Debug, thiserror::Error)]
#[error("the `{field}` of {tenant} is beyond what the database can hold")]
struct TooLarge {
    field: &'static str,
    tenant: TenantId,
}

impl Work {
    /// The work of a batch, on top of the tenants that are known.
    pub(crate) fn of(batch: &Batch, known: &TenantNumbers) -> Result<Self, CommitError> {
        batch.check().map_err(not_written)?;
        let mut moves = Vec::with_capacity(batch.advances.len());
        let mut next = 0;
        for advance in &batch.advances {
            let at = batch.last_at(advance.tenant);
            if let Some(tenant_no) = known.get(&advance.tenant) {
                moves.push(Move::of(advance, at, *tenant_no, false)?);
            } else if advance.from == Head::GENESIS {
                // Counted once a batch, and only when there is a new tenant: it is rare.
                next = if next == 0 {
                    known.values().max().unwrap_or(&0) + 1
                } else {
                    next + 1
                };
                moves.push(Move::of(advance, at, next, true)?);
            } else {
                return Err(CommitError::HeadMoved {
                    tenant: advance.tenant,
                });
            }
        }
        if next > TENANT_NO_MAX {
            return Err(not_written(TooManyTenants));
        }
        let numbers = moves.iter().map(|step| (step.tenant, step.tenant_no)).collect();
        let only = match &moves[..] {
            [only] if !only.is_new && !batch.entries.is_empty() => Some(only),
            _ => None,
        };
        let (carried, alone) = match Purse::of(batch, &numbers) {
            Some(purse) if batch.is_rows_and_budgets_only() && !batch.entries.is_empty() => {
                (Some(purse), None)
            }
            purse => (None, purse),
        };
        let digests: Vec<_> = batch.decisions.iter().map(RequestDigest::of_decision).collect();
        let inserts = insert::statements(batch, &digests, &numbers, only, carried.as_ref());
        let inserts = inserts.map_err(not_written)?;
        Ok(Self {
            closes: inserts.last().is_some_and(|last| last.closes),
            inserts,
            requests: requests(batch, digests, &numbers),
            changes: changes(batch, &numbers),
            approvals: approvals::rows(batch, &numbers),
            runs: runs::rows(batch, &numbers),
            counters: counters::rows(batch, &numbers),
            budgets: alone
                .map(|purse| purse.statement())
                .transpose()
                .map_err(not_written)?,
            contents: contents(batch, &numbers),
            erasures: Erasures::of(batch, &numbers),
            opens: only.is_some(),
            moves,
        })
    }
}

impl Move {
    fn of(advance: &Advance, at: Timestamp, tenant_no: i64, is_new: bool) -> Result<Self, CommitError> {
        let fits = |field, value: u64, max: i64| {
            let value = i64::try_from(value).ok().filter(|value| *value <= max);
            value.ok_or_else(|| {
                not_written(TooLarge {
                    field,
                    tenant: advance.tenant,
                })
            })
        };
        let to = advance.to.head();
        Ok(Self {
            tenant: advance.tenant,
            tenant_no,
            is_new,
            from_seq: fits("seq", advance.from.seq, SEQ_MAX)?,
            from_hash: advance.from.hash.as_bytes().to_vec(),
            to_seq: fits("seq", to.seq, SEQ_MAX)?,
            to_hash: to.hash.as_bytes().to_vec(),
            to_at: at.millis(),
            to_edge: advance.to.tree().to_bytes(),
            revision: fits("revision", advance.revision, i64::MAX)?,
            to: Place {
                tip: advance.to.clone(),
                at,
                revision: advance.revision,
            },
        })
    }
}

fn requests(
    batch: &Batch,
    digests: Vec<Option<RequestDigest>>,
    numbers: &TenantNumbers,
) -> Vec<(RequestDigest, i64)> {
    let answered = |(digest, row): (Option<RequestDigest>, &DecisionRow)| {
        // INVARIANT: the statements could be made, so every decision has a number.
        let tenant_no = *numbers.get(&row.tenant)?;
        Some((digest?, entry::number(tenant_no, row.seq)?))
    };
    digests
        .into_iter()
        .zip(&batch.decisions)
        .filter_map(answered)
        .collect()
}

fn changes(batch: &Batch, numbers: &TenantNumbers) -> Vec<Change> {
    let change = |(tenant, write): &(TenantId, Write)| {
        let (Write::Put(noun) | Write::Delete(noun)) = write;
        let key = NounKey {
            // INVARIANT: a checked batch advances the tenant of every write.
            tenant_no: *numbers.get(tenant)?,
            kind: noun.kind().as_str(),
            id: noun.id(),
        };
        match write {
            Write::Put(noun) => Some(Change::Put {
                key,
                name: noun.unique_name().map(str::to_owned),
                value: noun.to_json(),
            }),
            // A tenant is never taken out of its own directory: memory keeps it, so storage does.
            Write::Delete(model::Noun::Tenant(_)) => None,
            Write::Delete(_) => Some(Change::Delete(key)),
        }
    };
    batch.writes.iter().filter_map(change).collect()
}

fn contents(batch: &Batch, numbers: &TenantNumbers) -> Vec<Content> {
    let content = |row: &store::ContentRow| {
        Some(Content {
            // INVARIANT: a checked batch advances the tenant of every content.
            tenant_no: *numbers.get(&row.tenant)?,
            digest: row.digest,
            bytes: row.bytes.clone(),
        })
    };
    batch.contents.iter().filter_map(content).collect()
}

fn not_written(error: impl std::error::Error + Send + Sync + 'static) -> CommitError {
    CommitError::NotWritten(Box::new(error))
}
