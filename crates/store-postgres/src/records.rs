//! Reading back what was recorded: entries, decisions, receipts.
//!
//! What belongs to a decision is looked up for each one in a subquery of its own, with `LIMIT 1`. A plain join says the
//! same, but a planner whose statistics do not know the tenant yet takes it for one row, and then reads all of its
//! ledger for each decision.

use crate::decode::{RowLabel, uuid};
use crate::requests::Answered;
use crate::{PostgresStore, bounded, ending, recorded, runs, search};
use async_trait::async_trait;
use canon::Digest;
use ledger::{Head, Tip};
use model::{AgentId, DecisionId, Name, RunTaint, TenantId, Timestamp};
use sqlx::types::Uuid;
use store::{
    DecisionFilter, Ending, Erased, FoundRequest, Recorded, Records, RequestKey, Room, StoreError,
    StoredDecision, StoredEntry,
};

/// A row of `decisions` with what its entry adds.
pub(crate) struct DecisionColumns {
    pub(crate) seq: i64,
    pub(crate) id: Uuid,
    pub(crate) agent: Uuid,
    pub(crate) tool: String,
    pub(crate) action: String,
    pub(crate) reason: String,
    pub(crate) run_id: Option<String>,
    pub(crate) ask: Option<Vec<u8>>,
    pub(crate) at: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) body: String,
}

impl DecisionColumns {
    /// The bytes of its body.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(crate) fn decode(self, tenant: TenantId) -> Result<StoredDecision, StoreError> {
        let label = RowLabel {
            table: "decisions",
            tenant,
            seq: Some(self.seq),
        };
        Ok(StoredDecision {
            seq: label.unsigned("seq", self.seq)?,
            id: DecisionId::from_bytes(self.id.into_bytes()),
            at: Timestamp::from_millis(self.at),
            agent: AgentId::from_bytes(self.agent.into_bytes()),
            tool: label.name("tool", &self.tool)?,
            action: label.name("action", &self.action)?,
            reason: label.reason(&self.reason)?,
            run_id: self.run_id.map(|text| label.name("run_id", &text)).transpose()?,
            ask: self.ask.map(|bytes| label.digest("ask", &bytes)).transpose()?,
            hash: label.digest("hash", &self.hash)?,
            body: self.body,
        })
    }
}

/// A `seq` as it can be compared with a column. One beyond the last possible finds nothing, as it should.
pub(crate) fn from(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// What is left of a body that was erased.
pub(crate) fn erased(
    label: RowLabel,
    body: Option<Vec<u8>>,
    by: Option<i64>,
) -> Result<Option<Erased>, StoreError> {
    match (body, by) {
        (None, None) => Ok(None),
        (Some(body), Some(by)) => Ok(Some(Erased {
            body: label.digest("erased_body", &body)?,
            by: label.unsigned("erased_by", by)?,
        })),
        (None, Some(_)) => Err(label.corrupt("erased_by", "is there without `erased_body`")),
        (Some(_), None) => Err(label.corrupt("erased_body", "is there without `erased_by`")),
    }
}

#[async_trait]
impl Records for PostgresStore {
    async fn head(&self, tenant: TenantId) -> Result<Head, StoreError> {
        bounded(self.read_head(tenant)).await
    }

    async fn heads_at(&self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, Head)>, StoreError> {
        bounded(self.read_heads_at(entries)).await
    }

    async fn nodes(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        bounded(self.read_nodes(tenant, seqs)).await
    }

    async fn tip(&self, tenant: TenantId) -> Result<Tip, StoreError> {
        bounded(self.read_tip(tenant)).await
    }

    async fn ending(&self, tenant: TenantId) -> Result<Option<Ending>, StoreError> {
        bounded(ending::read(&self.readers, tenant)).await
    }

    async fn entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        bounded(self.read_entries(tenant, from_seq, limit)).await
    }

    async fn decision(&self, tenant: TenantId, id: DecisionId) -> Result<Option<StoredDecision>, StoreError> {
        bounded(self.read_decision(tenant, id)).await
    }

    async fn decisions(
        &self,
        tenant: TenantId,
        filter: &DecisionFilter,
        before_seq: Option<u64>,
        limit: u32,
    ) -> Result<Vec<StoredDecision>, StoreError> {
        bounded(search::decisions(
            &self.readers,
            tenant,
            filter,
            before_seq,
            limit,
        ))
        .await
    }

    async fn recorded(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, StoreError> {
        bounded(recorded::read(&self.readers, tenant, from_seq, limit)).await
    }

    async fn receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError> {
        bounded(self.read_receipt(tenant, id)).await
    }

    async fn answered_request(&self, key: &RequestKey) -> Result<Option<FoundRequest>, StoreError> {
        let read = self
            .readers
            .read(|| Answered::question(std::slice::from_ref(key)));
        Ok(Answered::decode(bounded(read).await?)?.pop())
    }

    async fn contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        bounded(self.read_contents(tenant, digests)).await
    }

    async fn runs(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        runs::decode(bounded(self.readers.read(|| runs::question(runs))).await?)
    }

    async fn decisions_at(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<StoredDecision>, StoreError> {
        bounded(search::decisions_at(&self.readers, tenant, seqs)).await
    }

    async fn runs_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunTaint>, StoreError> {
        let found = bounded(self.readers.read(|| runs::list(tenant, after, limit))).await?;
        Ok(runs::decode(found)?.into_iter().map(|(_, run)| run).collect())
    }

    async fn outcomes_of(&self, tenant: TenantId, decisions: &[DecisionId]) -> Result<Vec<u64>, StoreError> {
        bounded(self.read_outcomes(tenant, decisions)).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        bounded(self.read_size()).await
    }
}

impl PostgresStore {
    async fn read_head(&self, tenant: TenantId) -> Result<Head, StoreError> {
        let query = || {
            sqlx::query!(
                "SELECT head_seq, head_hash
             FROM tenants
             WHERE tenant_id = $1",
                uuid(tenant),
            )
        };
        let Some(row) = self.readers.read(query).await?.pop() else {
            return Ok(Head::GENESIS);
        };
        let label = RowLabel {
            table: "tenants",
            tenant,
            seq: None,
        };
        Ok(Head {
            seq: label.unsigned("head_seq", row.head_seq)?,
            hash: label.digest("head_hash", &row.head_hash)?,
        })
    }

    async fn read_nodes(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let seqs: Vec<_> = seqs.iter().map(|seq| from(*seq)).collect();
        let query = || {
            sqlx::query!(
                "SELECT seq, nodes
                 FROM audit_events
                 WHERE tenant_id = $1
                   AND seq = ANY ($2)",
                uuid(tenant),
                &seqs,
            )
        };
        let rows = self.readers.read(query).await?;
        let decoded = rows.into_iter().map(|row| {
            let label = RowLabel {
                table: "audit_events",
                tenant,
                seq: Some(row.seq),
            };
            Ok((label.unsigned("seq", row.seq)?, row.nodes))
        });
        decoded.collect()
    }

    async fn read_tip(&self, tenant: TenantId) -> Result<Tip, StoreError> {
        let query = || {
            sqlx::query!(
                "SELECT head_seq, head_hash, edge
                 FROM tenants
                 WHERE tenant_id = $1",
                uuid(tenant),
            )
        };
        let Some(row) = self.readers.read(query).await?.pop() else {
            return Ok(Tip::GENESIS);
        };
        let label = RowLabel {
            table: "tenants",
            tenant,
            seq: None,
        };
        let head = Head {
            seq: label.unsigned("head_seq", row.head_seq)?,
            hash: label.digest("head_hash", &row.head_hash)?,
        };
        label.tip(head, &row.edge)
    }

    async fn read_heads_at(&self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, Head)>, StoreError> {
        let (tenants, seqs): (Vec<_>, Vec<_>) = entries
            .iter()
            .map(|(tenant, seq)| (uuid(*tenant), from(*seq)))
            .unzip();
        let query = || {
            sqlx::query!(
                "SELECT audit_events.tenant_id, audit_events.seq, audit_events.hash
             FROM unnest($1::uuid[], $2::bigint[]) AS wanted (tenant_id, seq)
             JOIN audit_events ON audit_events.tenant_id = wanted.tenant_id
                              AND audit_events.seq = wanted.seq",
                &tenants,
                &seqs,
            )
        };
        // As the look is that it belongs to: on the same server, and no longer.
        let rows = self.looks.read(query).await?;
        let decoded = rows.into_iter().map(|row| {
            let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
            let label = RowLabel {
                table: "audit_events",
                tenant,
                seq: Some(row.seq),
            };
            let head = Head {
                seq: label.unsigned("seq", row.seq)?,
                hash: label.digest("hash", &row.hash)?,
            };
            Ok((tenant, head))
        });
        decoded.collect()
    }

    async fn read_entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let query = || {
            sqlx::query!(
                "SELECT seq, kind, at, prev, hash, body, nodes, erased_body, erased_by
             FROM audit_events
             WHERE tenant_id = $1
               AND seq >= $2
             ORDER BY seq
             LIMIT $3",
                uuid(tenant),
                from(from_seq),
                i64::from(limit),
            )
        };
        let mut room = Room::default();
        let rows = self.readers.read_in_room(query, &mut room, |row| row.body.len());
        let decoded = rows.await?.into_iter().map(|row| {
            let label = RowLabel {
                table: "audit_events",
                tenant,
                seq: Some(row.seq),
            };
            Ok(StoredEntry {
                seq: label.unsigned("seq", row.seq)?,
                kind: row.kind,
                at: Timestamp::from_millis(row.at),
                prev: label.digest("prev", &row.prev)?,
                hash: label.digest("hash", &row.hash)?,
                body: row.body,
                nodes: row.nodes,
                erased: erased(label, row.erased_body, row.erased_by)?,
            })
        });
        decoded.collect()
    }

    async fn read_decision(
        &self,
        tenant: TenantId,
        id: DecisionId,
    ) -> Result<Option<StoredDecision>, StoreError> {
        let query = || {
            sqlx::query_as!(
                DecisionColumns,
                "SELECT
                 decisions.seq,
                 decisions.id,
                 decisions.agent,
                 decisions.tool,
                 decisions.action,
                 decisions.reason,
                 decisions.run_id,
                 decisions.ask,
                 entry.at,
                 entry.hash,
                 entry.body
             FROM decisions
             CROSS JOIN LATERAL (
                 SELECT at, hash, body
                 FROM audit_events
                 WHERE audit_events.tenant_id = decisions.tenant_id
                   AND audit_events.seq = decisions.seq
                 LIMIT 1
             ) AS entry
             WHERE decisions.tenant_id = $1
               AND decisions.id = $2",
                uuid(tenant),
                Uuid::from_bytes(*id.as_bytes()),
            )
        };
        let row = self.readers.read(query).await?.pop();
        row.map(|row| row.decode(tenant)).transpose()
    }

    async fn read_receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError> {
        let query = || {
            sqlx::query!(
                "SELECT receipt.bytes
             FROM decisions
             CROSS JOIN LATERAL (
                 SELECT bytes
                 FROM receipts
                 WHERE receipts.tenant_id = decisions.tenant_id
                   AND receipts.seq = decisions.seq
                 LIMIT 1
             ) AS receipt
             WHERE decisions.tenant_id = $1
               AND decisions.id = $2",
                uuid(tenant),
                Uuid::from_bytes(*id.as_bytes()),
            )
        };
        let row = self.readers.read(query).await?.pop();
        Ok(row.map(|row| row.bytes))
    }

    async fn read_outcomes(
        &self,
        tenant: TenantId,
        decisions: &[DecisionId],
    ) -> Result<Vec<u64>, StoreError> {
        let ids: Vec<_> = decisions
            .iter()
            .map(|id| Uuid::from_bytes(*id.as_bytes()))
            .collect();
        let query = || {
            sqlx::query!(
                "SELECT seq
                 FROM outcomes
                 WHERE tenant_id = $1
                   AND decision = ANY ($2::uuid[])
                 ORDER BY seq",
                uuid(tenant),
                &ids,
            )
        };
        let rows = self.readers.read(query).await?;
        let seq = |seq| {
            let label = RowLabel {
                table: "outcomes",
                tenant,
                seq: Some(seq),
            };
            label.unsigned("seq", seq)
        };
        rows.into_iter().map(|row| seq(row.seq)).collect()
    }

    /// What the files of the database hold, indexes and all.
    async fn read_size(&self) -> Result<u64, StoreError> {
        let query = || sqlx::query!(r#"SELECT pg_database_size(current_database()) AS "bytes!""#);
        let row = self.readers.read(query).await?.pop();
        Ok(row.and_then(|row| u64::try_from(row.bytes).ok()).unwrap_or(0))
    }
}
