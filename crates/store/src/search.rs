//! What a search index promises.

use crate::StoreError;
use async_trait::async_trait;
use canon::Digest;
use ledger::Head;
use model::{TenantId, Timestamp};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Which decisions of a block have a term in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The term.
    pub term: u64,
    /// Their places in the block, as whoever made the index writes them.
    pub places: Vec<u8>,
}

/// A block that is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedBlock {
    /// Which.
    pub block: u64,
    /// The hash of the last entry that it was made from. The chain makes it stand for all entries before, too.
    pub end: Digest,
    /// With which claim it was put: whoever puts it again has another one.
    pub token: i64,
    /// Where the ledger ended before the block was made: what was erased until then is not in it. None where the index
    /// is a part of the database: it is put back from a backup with the ledger.
    pub made_at: Option<Head>,
}

/// No claim lasts longer than this: one that still holds for more was made while a clock was ahead. Claims are made for
/// two minutes at most; the rest is for clocks that differ.
const CLAIM_MILLIS_MAX: i64 = 60 * 60 * 1_000;

/// The right to put a block into the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockClaim {
    /// Whose it is: a number that nobody else has.
    pub token: i64,
    /// The time.
    pub now: Timestamp,
    /// Until when nobody else gets it, unless by force.
    pub until: Timestamp,
    /// Takes it from whoever has it, and takes the block out of the index.
    pub by_force: bool,
}

impl BlockClaim {
    /// Until when another claim to the block can hold. One that ends later counts as one that has ended: a clock was
    /// ahead when it was made, and nobody would get the block until that time.
    pub const fn believed_until(&self) -> Timestamp {
        self.now.plus_millis(CLAIM_MILLIS_MAX)
    }
}

/// A search index: made from what was recorded, in blocks of entries, and made again if it is gone.
///
/// Consistency: a block is in the index whole or not at all, and only as it was put by whoever still had the claim to
/// it. It says nothing about blocks that are not in it. Durability: of what was put none is promised, and an index that
/// was lost or damaged is empty; what [`Self::take_blocks`] took out stays out. It is no part of a commit and holds up
/// none. Concurrency: any number of calls at once; of several that claim a block, in this program or another, one gets
/// it. Errors: [`StoreError`]; whoever searches can do without.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// The blocks of a range that are in the index, in order.
    async fn indexed(
        &self,
        tenant: TenantId,
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<IndexedBlock>, StoreError>;

    /// What blocks of a range that are in the index have for these terms, with the block, in no particular order.
    async fn postings(
        &self,
        tenant: TenantId,
        terms: &[u64],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<(u64, Posting)>, StoreError>;

    /// Claims a block. False, and nothing happens, if it is in the index or somebody else has a claim to it that holds.
    async fn claim_block(&self, tenant: TenantId, block: u64, claim: &BlockClaim)
    -> Result<bool, StoreError>;

    /// Takes blocks out of the index by claims by force, one after the other. When it returns, nothing of what they
    /// said comes back, not even if the machine loses power. After an error some of them may be taken out.
    async fn take_blocks(
        &self,
        tenant: TenantId,
        blocks: &BTreeSet<u64>,
        claim: &BlockClaim,
    ) -> Result<(), StoreError>;

    /// Puts a block into the index. False, and nothing happens, if the claim to it is gone.
    async fn put_block(
        &self,
        tenant: TenantId,
        block: &IndexedBlock,
        postings: &[Posting],
    ) -> Result<bool, StoreError>;

    /// Gives a claim back, if it is still there and the block was not put.
    async fn release_block(&self, tenant: TenantId, block: u64, token: i64) -> Result<(), StoreError>;
}
