//! Where a batch moves its tenants' heads, and the integer keys (`tenant_no`) of tenants in this database.

use crate::entry::SEQ_MAX;
use ledger::Head;
use model::{TenantId, Timestamp};
use std::collections::HashMap;
use store::{Advance, Batch, ChainPosition, CommitError};

/// The last number that a tenant can have: 23 bits.
const TENANT_NO_MAX: i64 = (1 << 23) - 1;

/// The integer key (`tenant_no`) of every tenant in this database.
pub(crate) type TenantNumbers = HashMap<TenantId, i64>;

/// How one tenant's head moves.
#[derive(Debug)]
pub(crate) struct HeadMove {
    pub(crate) tenant: TenantId,
    pub(crate) tenant_no: i64,
    pub(crate) is_new: bool,
    pub(crate) from_seq: i64,
    pub(crate) from_hash: [u8; 32],
    pub(crate) to_seq: i64,
    pub(crate) revision: i64,
    /// Where the tenant stands afterwards.
    pub(crate) to: ChainPosition,
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

/// How a checked batch moves heads, on top of the tenants that are known. A new tenant gets the next number.
pub(crate) fn of(batch: &Batch, known: &TenantNumbers) -> Result<Vec<HeadMove>, CommitError> {
    let mut moves = Vec::with_capacity(batch.advances.len());
    let mut next = 0;
    for advance in &batch.advances {
        let at = batch.last_at(advance.tenant);
        if let Some(tenant_no) = known.get(&advance.tenant) {
            moves.push(HeadMove::of(advance, at, *tenant_no, false)?);
        } else if advance.from == Head::GENESIS {
            // Counted once a batch, and only when there is a new tenant: it is rare.
            next = if next == 0 {
                known.values().max().unwrap_or(&0) + 1
            } else {
                next + 1
            };
            moves.push(HeadMove::of(advance, at, next, true)?);
        } else {
            return Err(CommitError::HeadMoved {
                tenant: advance.tenant,
            });
        }
    }
    if next > TENANT_NO_MAX {
        return Err(not_written(TooManyTenants));
    }
    Ok(moves)
}

impl HeadMove {
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
        Ok(Self {
            tenant: advance.tenant,
            tenant_no,
            is_new,
            from_seq: fits("seq", advance.from.seq, SEQ_MAX)?,
            from_hash: *advance.from.hash.as_bytes(),
            to_seq: fits("seq", advance.to.head().seq, SEQ_MAX)?,
            revision: fits("revision", advance.revision, i64::MAX)?,
            to: ChainPosition {
                tip: advance.to.clone(),
                at,
                revision: advance.revision,
            },
        })
    }
}

fn not_written(error: impl std::error::Error + Send + Sync + 'static) -> CommitError {
    CommitError::NotWritten(Box::new(error))
}
