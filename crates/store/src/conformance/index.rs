//! What a search index promises: blocks are there whole or not at all, and put by whoever has the claim.

use super::Fixture;
use super::sample::Chain;
use crate::{BlockClaim, IndexedBlock, Posting, Store};
use canon::Digest;
use ledger::Head;
use model::{TenantId, Timestamp};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Every block.
const ALL: RangeInclusive<u64> = 0..=1_000;

/// A block as it is put.
fn made(block: u64, token: i64) -> IndexedBlock {
    IndexedBlock {
        block,
        end: Digest::of(b"end"),
        token,
        made_at: Some(Head {
            seq: u64::MAX >> 1,
            hash: Digest::of(b"made at"),
        }),
    }
}

fn posting(term: u64, places: &[u8]) -> Posting {
    Posting {
        term,
        places: places.to_vec(),
    }
}

/// A claim that holds until 20.
fn claim(token: i64, now: i64) -> BlockClaim {
    BlockClaim {
        token,
        now: Timestamp::from_millis(now),
        until: Timestamp::from_millis(20),
        by_force: false,
    }
}

fn by_force(token: i64) -> BlockClaim {
    BlockClaim {
        by_force: true,
        ..claim(token, 0)
    }
}

async fn put(store: &dyn Store, tenant: TenantId, block: u64, postings: &[Posting]) {
    assert!(store.claim_block(tenant, block, &claim(1, 0)).await.unwrap());
    assert!(store.put_block(tenant, &made(block, 1), postings).await.unwrap());
}

async fn indexed(store: &dyn Store, tenant: TenantId) -> Vec<u64> {
    let blocks = store.indexed(tenant, ALL).await.unwrap();
    blocks.iter().map(|block| block.block).collect()
}

async fn found(store: &dyn Store, tenant: TenantId, terms: &[u64]) -> Vec<(u64, Posting)> {
    let mut found = store.postings(tenant, terms, ALL).await.unwrap();
    found.sort_by_key(|(block, posting)| (*block, posting.term));
    found
}

/// Terms of any size, in the blocks that are asked for, of one tenant.
pub async fn what_was_put_is_found_by_its_terms(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (one, two) = (Chain::new(1).tenant, Chain::new(2).tenant);
    assert!(indexed(&*store, one).await.is_empty());
    assert!(found(&*store, one, &[1]).await.is_empty());
    let postings = [
        posting(u64::MAX, &[0, 255]),
        posting(1, &[1; 512]),
        posting(7, &[]),
    ];
    put(&*store, one, 0, &postings).await;
    put(&*store, one, 5, &postings[1..2]).await;
    put(&*store, two, 5, &postings[..1]).await;
    put(&*store, one, 6, &[]).await;
    let block = made(5, 1);
    let known = store.indexed(one, 1..=5).await.unwrap();
    // Where it was made is known to an index that is not a part of the database.
    let made_at = known.first().and_then(|known| known.made_at);
    assert!(made_at.is_none() || made_at == block.made_at, "{made_at:?}");
    assert_eq!(known, [IndexedBlock { made_at, ..block }]);
    assert_eq!(indexed(&*store, one).await, [0, 5, 6]);
    let expected = vec![
        (0, postings[1].clone()),
        (0, postings[0].clone()),
        (5, postings[1].clone()),
    ];
    assert_eq!(found(&*store, one, &[1, u64::MAX, 8]).await, expected);
    assert_eq!(store.postings(one, &[1], 1..=4).await.unwrap(), []);
    assert_eq!(store.postings(one, &[], ALL).await.unwrap(), []);
}

/// Nobody puts a block that somebody else is about to put, or one that is there.
pub async fn a_block_is_put_by_whoever_has_the_claim(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let tenant = Chain::new(1).tenant;
    let postings = [posting(1, &[1, 0])];
    assert!(!store.put_block(tenant, &made(0, 1), &postings).await.unwrap());
    assert!(store.claim_block(tenant, 0, &claim(1, 0)).await.unwrap());
    assert!(!store.claim_block(tenant, 0, &claim(2, 19)).await.unwrap());
    assert!(!store.put_block(tenant, &made(0, 2), &postings).await.unwrap());
    assert!(indexed(&*store, tenant).await.is_empty());
    // It did not come back in time.
    assert!(store.claim_block(tenant, 0, &claim(2, 20)).await.unwrap());
    assert!(!store.put_block(tenant, &made(0, 1), &postings).await.unwrap());
    store.release_block(tenant, 0, 1).await.unwrap();
    assert!(store.put_block(tenant, &made(0, 2), &postings).await.unwrap());
    assert!(!store.claim_block(tenant, 0, &claim(3, 99)).await.unwrap());
    store.release_block(tenant, 0, 2).await.unwrap();
    assert_eq!(
        indexed(&*store, tenant).await,
        [0],
        "what was put is not given back"
    );
}

/// Whoever was stopped while its clock was ahead does not keep the block from everybody until that time.
pub async fn a_claim_of_a_clock_that_was_ahead_is_not_waited_for(fixture: &dyn Fixture) {
    const HOUR: i64 = 60 * 60 * 1_000;
    let store = fixture.open().await;
    let tenant = Chain::new(1).tenant;
    for now in [HOUR, 365 * 24 * HOUR] {
        let ahead = BlockClaim {
            until: Timestamp::from_millis(now + 21),
            ..by_force(1)
        };
        assert!(store.claim_block(tenant, 0, &ahead).await.unwrap());
        let in_time = BlockClaim {
            now: Timestamp::from_millis(now + 21 - HOUR),
            ..claim(2, 0)
        };
        assert!(!store.claim_block(tenant, 0, &in_time).await.unwrap());
        assert!(store.claim_block(tenant, 0, &claim(3, 20)).await.unwrap());
        assert!(!store.put_block(tenant, &made(0, 1), &[]).await.unwrap());
    }
    // A block that was put stays put, whatever the time of its claim.
    let ahead = BlockClaim {
        until: Timestamp::from_millis(365 * 24 * HOUR),
        ..by_force(4)
    };
    assert!(store.claim_block(tenant, 0, &ahead).await.unwrap());
    assert!(store.put_block(tenant, &made(0, 4), &[]).await.unwrap());
    assert!(!store.claim_block(tenant, 0, &claim(5, 20)).await.unwrap());
}

/// Whoever erases what a block was made from takes it out, and nobody who began before puts it back.
pub async fn a_block_that_is_taken_out_by_force_is_gone(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let tenant = Chain::new(1).tenant;
    put(&*store, tenant, 0, &[posting(1, &[1, 0])]).await;
    assert!(store.claim_block(tenant, 1, &claim(1, 0)).await.unwrap());
    let all = BTreeSet::from([0, 1, 2]);
    store.take_blocks(tenant, &all, &by_force(9)).await.unwrap();
    assert!(indexed(&*store, tenant).await.is_empty());
    assert!(found(&*store, tenant, &[1]).await.is_empty());
    assert!(!store.put_block(tenant, &made(1, 1), &[]).await.unwrap());
    assert!(!store.claim_block(tenant, 0, &claim(2, 0)).await.unwrap());
    store.release_block(tenant, 0, 9).await.unwrap();
    put(&*store, tenant, 0, &[posting(2, &[1, 0])]).await;
    assert!(found(&*store, tenant, &[1]).await.is_empty());
    assert_eq!(found(&*store, tenant, &[2]).await.len(), 1);
    // Whoever has looked before can tell that it is not the same any more.
    let before = store.indexed(tenant, 0..=0).await.unwrap();
    assert!(store.claim_block(tenant, 0, &by_force(9)).await.unwrap());
    assert!(store.put_block(tenant, &made(0, 9), &[]).await.unwrap());
    assert_ne!(store.indexed(tenant, 0..=0).await.unwrap(), before);
}

/// Thousands of terms in one block, and nothing is left of them when it is taken out. Those of other tenants stay.
pub async fn a_block_of_many_terms_is_put_and_taken_out_whole(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (one, two) = (Chain::new(1).tenant, Chain::new(2).tenant);
    let many: Vec<Posting> = (0..20_000_u64)
        .map(|term| posting(term.wrapping_mul(0x9e37_79b9_7f4a_7c15), &[1, 0]))
        .collect();
    put(&*store, one, 0, &many).await;
    put(&*store, two, 0, &many[..1]).await;
    assert_eq!(
        found(&*store, one, &[many[7].term, many[19_999].term])
            .await
            .len(),
        2
    );
    assert!(store.claim_block(one, 0, &by_force(9)).await.unwrap());
    store.release_block(one, 0, 9).await.unwrap();
    assert!(indexed(&*store, one).await.is_empty());
    assert!(found(&*store, one, &[many[7].term]).await.is_empty());
    assert_eq!(indexed(&*store, two).await, [0]);
    put(&*store, one, 0, &many[..1]).await;
    assert!(found(&*store, one, &[many[7].term]).await.is_empty());
}
