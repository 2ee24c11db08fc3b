//! The search index, in tables of its own, written by whichever gateway has claimed a block. Each call is one statement.

use crate::decode::uuid;
use crate::{PostgresStore, bounded};
use async_trait::async_trait;
use canon::Digest;
use model::TenantId;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use store::{BlockClaim, IndexedBlock, Posting, SearchIndex, StoreError};

#[async_trait]
impl SearchIndex for PostgresStore {
    async fn indexed(
        &self,
        tenant: TenantId,
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<IndexedBlock>, StoreError> {
        let query = || {
            sqlx::query!(
                r#"SELECT
                       block,
                       end_hash AS "end_hash!",
                       token
                   FROM search_blocks
                   WHERE tenant_id = $1
                     AND block BETWEEN $2 AND $3
                     AND end_hash IS NOT NULL
                   ORDER BY block"#,
                uuid(tenant),
                number(*blocks.start()),
                number(*blocks.end()),
            )
        };
        let rows = bounded(self.readers.read(query)).await?;
        // A hash that is none matches no entry, so its block is made again.
        let end = |hash: Vec<u8>| Digest::from_bytes(hash.try_into().unwrap_or([0; 32]));
        let blocks = rows.into_iter().map(|row| IndexedBlock {
            block: row.block.cast_unsigned(),
            end: end(row.end_hash),
            token: row.token,
            made_at: None,
        });
        Ok(blocks.collect())
    }

    async fn postings(
        &self,
        tenant: TenantId,
        terms: &[u64],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<(u64, Posting)>, StoreError> {
        let terms: Vec<i64> = terms.iter().map(|term| term.cast_signed()).collect();
        // OFFSET 0 keeps the order: from each block and each term to its row, by the primary key. Otherwise a planner that thinks
        // little of the index reads all terms of all blocks.
        let query = || {
            sqlx::query!(
                "SELECT
                     search_blocks.block,
                     posting.term,
                     posting.places
                 FROM search_blocks
                 CROSS JOIN unnest($2::bigint[]) AS wanted (term)
                 CROSS JOIN LATERAL (
                     SELECT search_postings.term, search_postings.places
                     FROM search_postings
                     WHERE search_postings.tenant_id = $1
                       AND search_postings.block = search_blocks.block
                       AND search_postings.term = wanted.term
                     OFFSET 0
                 ) AS posting
                 WHERE search_blocks.tenant_id = $1
                   AND search_blocks.block BETWEEN $3 AND $4
                   AND search_blocks.end_hash IS NOT NULL",
                uuid(tenant),
                &terms,
                number(*blocks.start()),
                number(*blocks.end()),
            )
        };
        let rows = bounded(self.readers.read(query)).await?;
        let found = rows.into_iter().map(|row| {
            let posting = Posting {
                term: row.term.cast_unsigned(),
                places: row.places,
            };
            (row.block.cast_unsigned(), posting)
        });
        Ok(found.collect())
    }

    async fn claim_block(
        &self,
        tenant: TenantId,
        block: u64,
        claim: &BlockClaim,
    ) -> Result<bool, StoreError> {
        let statement = || {
            sqlx::query!(
                "INSERT INTO search_blocks AS known (tenant_id, block, token, claimed_until)
                 VALUES ($1, $2, $3, $4)
                 ON CONFLICT (tenant_id, block) DO UPDATE
                 SET token = excluded.token,
                     claimed_until = excluded.claimed_until,
                     end_hash = NULL
                 WHERE $5
                    OR (
                        known.end_hash IS NULL
                        AND (known.claimed_until <= $6 OR known.claimed_until > $7)
                    )",
                uuid(tenant),
                number(block),
                claim.token,
                claim.until.millis(),
                claim.by_force,
                claim.now.millis(),
                claim.believed_until().millis(),
            )
        };
        // Where it was run twice and the first time did arrive, this says that somebody else has a claim. It is ours, and
        // ends as any that nobody makes use of.
        if self.leases.write(statement).await? == 0 {
            return Ok(false);
        }
        // A statement of its own, because it has to see what was put while the one before waited for the row. From now on nobody
        // puts anything there who has no newer claim, and then that claim is what empties it.
        let statement = || {
            sqlx::query!(
                "DELETE FROM search_postings
                 USING search_blocks
                 WHERE search_postings.tenant_id = $1
                   AND search_postings.block = $2
                   AND search_blocks.tenant_id = $1
                   AND search_blocks.block = $2
                   AND search_blocks.token = $3
                   AND search_blocks.end_hash IS NULL",
                uuid(tenant),
                number(block),
                claim.token,
            )
        };
        self.leases.write(statement).await?;
        Ok(true)
    }

    async fn take_blocks(
        &self,
        tenant: TenantId,
        blocks: &BTreeSet<u64>,
        claim: &BlockClaim,
    ) -> Result<(), StoreError> {
        // The tables are not logged: a crash empties them, so what was taken out stays out.
        for block in blocks {
            self.claim_block(tenant, *block, claim).await?;
        }
        Ok(())
    }

    async fn put_block(
        &self,
        tenant: TenantId,
        block: &IndexedBlock,
        postings: &[Posting],
    ) -> Result<bool, StoreError> {
        let terms: Vec<i64> = postings
            .iter()
            .map(|posting| posting.term.cast_signed())
            .collect();
        let places: Vec<&[u8]> = postings.iter().map(|posting| &posting.places[..]).collect();
        let statement = || {
            sqlx::query!(
                r#"WITH put AS (
                     UPDATE search_blocks
                     SET end_hash = $4
                     WHERE tenant_id = $1
                       AND block = $2
                       AND token = $3
                       AND end_hash IS NULL
                     RETURNING block
                 ), filled AS (
                     INSERT INTO search_postings (tenant_id, block, term, places)
                     SELECT $1, put.block, posting.term, posting.places
                     FROM put
                     CROSS JOIN unnest($5::bigint[], $6::bytea[]) AS posting (term, places)
                 )
                 SELECT block FROM put"#,
                uuid(tenant),
                number(block.block),
                block.token,
                &block.end.as_bytes()[..],
                &terms,
                &places as &[&[u8]],
            )
        };
        // Where it was run twice and the first time did arrive, this says that the claim is gone. It is, and the block is
        // in the index.
        let put = self.leases.read(statement).await?;
        Ok(!put.is_empty())
    }

    async fn release_block(&self, tenant: TenantId, block: u64, token: i64) -> Result<(), StoreError> {
        let statement = || {
            sqlx::query!(
                "DELETE FROM search_blocks
                 WHERE tenant_id = $1
                   AND block = $2
                   AND token = $3
                   AND end_hash IS NULL",
                uuid(tenant),
                number(block),
                token,
            )
        };
        self.leases.write(statement).await.map(drop)
    }
}

/// A number as PostgreSQL has them. There are fewer blocks than entries, and those fit.
fn number(block: u64) -> i64 {
    i64::try_from(block).unwrap_or(i64::MAX)
}
