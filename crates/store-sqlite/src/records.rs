//! Reading back what was recorded: entries, decisions, receipts.

use crate::decode::RowLabel;
use crate::packed::{self, RowValues};
use crate::{
    SqliteStore, bounded, ending, entry, in_room, journal, recorded, runs, search, unavailable,
    unread_record, weighed,
};
use async_trait::async_trait;
use canon::Digest;
use ledger::{Head, Tip};
use model::{AgentId, DecisionId, Name, RunTaint, TenantId, Timestamp};
use store::{
    DecisionFilter, Ending, Erased, FoundRequest, Recorded, Records, RequestKey, Room, StoreError,
    StoredDecision, StoredEntry,
};

/// A row of `decisions` with what its entry adds.
pub(crate) struct DecisionColumns {
    pub(crate) entry: i64,
    pub(crate) id: Vec<u8>,
    pub(crate) agent: Vec<u8>,
    pub(crate) tool: String,
    pub(crate) action: String,
    pub(crate) reason: String,
    pub(crate) run_id: Option<String>,
    pub(crate) ask: Option<Vec<u8>>,
    pub(crate) at: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) body: String,
    pub(crate) packed: Option<Vec<u8>>,
}

impl DecisionColumns {
    pub(crate) fn decode(self) -> Result<StoredDecision, StoreError> {
        let label = RowLabel {
            table: "decisions",
            row: self.entry,
        };
        let run_id = self.run_id.map(|text| label.name("run_id", &text)).transpose()?;
        Ok(StoredDecision {
            seq: entry::seq(self.entry),
            id: DecisionId::from_bytes(label.id("id", self.id)?),
            at: Timestamp::from_millis(self.at),
            agent: AgentId::from_bytes(label.id("agent", self.agent)?),
            tool: label.name("tool", &self.tool)?,
            action: label.name("action", &self.action)?,
            reason: label.reason(&self.reason)?,
            run_id,
            ask: self.ask.map(|bytes| label.digest("ask", bytes)).transpose()?,
            hash: label.digest("hash", self.hash)?,
            body: packed::body(self.body, self.packed.as_deref()),
        })
    }
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
            body: label.digest("erased_body", body)?,
            by: label.unsigned("erased_by", by)?,
        })),
        (None, Some(_)) => Err(label.corrupt("erased_by", "is there without `erased_body`")),
        (Some(_), None) => Err(label.corrupt("erased_body", "is there without `erased_by`")),
    }
}

/// The body of an entry, from the two columns of which one has it.
pub(crate) fn body(label: RowLabel, text: String, packed: Option<&[u8]>) -> Result<String, StoreError> {
    if packed.is_some() && !text.is_empty() {
        return Err(label.corrupt("body", "is there beside `packed`"));
    }
    Ok(packed::body(text, packed))
}

#[async_trait]
impl Records for SqliteStore {
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
        bounded(self.find_request(key)).await
    }

    async fn head(&self, tenant: TenantId) -> Result<Head, StoreError> {
        bounded(self.read_head(tenant)).await
    }

    async fn heads_at(&self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, Head)>, StoreError> {
        let mut heads = Vec::new();
        for (tenant, seq) in entries {
            let found = bounded(self.read_entries(*tenant, *seq, 1)).await?;
            let head = found.first().map(|entry| Head {
                seq: entry.seq,
                hash: entry.hash,
            });
            heads.extend(head.filter(|head| head.seq == *seq).map(|head| (*tenant, head)));
        }
        Ok(heads)
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

    async fn contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        bounded(self.read_contents(tenant, digests)).await
    }

    async fn runs(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        bounded(runs::find(&self.readers, journal::runs_json(runs))).await
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
        bounded(runs::list(&self.readers, tenant, after, limit)).await
    }

    async fn outcomes_of(&self, tenant: TenantId, decisions: &[DecisionId]) -> Result<Vec<u64>, StoreError> {
        bounded(self.read_outcomes(tenant, decisions)).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        bounded(self.read_size()).await
    }
}

impl SqliteStore {
    async fn read_head(&self, tenant: TenantId) -> Result<Head, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let row = sqlx::query!(
            r#"SELECT
                   tenant_no AS "tenant_no!",
                   head_seq,
                   head_hash
               FROM tenants
               WHERE tenant_id = ?1"#,
            tenant_id,
        )
        .fetch_optional(&self.readers)
        .await
        .map_err(unread_record)?;
        let Some(row) = row else {
            return Ok(Head::GENESIS);
        };
        let label = RowLabel {
            table: "tenants",
            row: row.tenant_no,
        };
        Ok(Head {
            seq: label.unsigned("head_seq", row.head_seq)?,
            hash: label.digest("head_hash", row.head_hash)?,
        })
    }

    /// One after the other: here a look-up is not a round trip.
    async fn read_nodes(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let mut connection = self.readers.acquire().await.map_err(unread_record)?;
        let mut found = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let Some(wanted) = i64::try_from(*seq).ok().filter(|seq| *seq <= entry::SEQ_MAX) else {
                continue;
            };
            let nodes = sqlx::query_scalar!(
                "SELECT audit_events.nodes
                 FROM tenants
                 CROSS JOIN audit_events
                     ON audit_events.entry = (tenants.tenant_no << 40) + ?2
                 WHERE tenants.tenant_id = ?1",
                tenant_id,
                wanted,
            )
            .fetch_optional(&mut *connection)
            .await
            .map_err(unread_record)?;
            found.extend(nodes.map(|nodes| (*seq, nodes)));
        }
        Ok(found)
    }

    async fn read_tip(&self, tenant: TenantId) -> Result<Tip, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let row = sqlx::query!(
            r#"SELECT
                   tenant_no AS "tenant_no!",
                   head_seq,
                   head_hash,
                   edge
               FROM tenants
               WHERE tenant_id = ?1"#,
            tenant_id,
        )
        .fetch_optional(&self.readers)
        .await
        .map_err(unread_record)?;
        let Some(row) = row else {
            return Ok(Tip::GENESIS);
        };
        let label = RowLabel {
            table: "tenants",
            row: row.tenant_no,
        };
        let head = Head {
            seq: label.unsigned("head_seq", row.head_seq)?,
            hash: label.digest("head_hash", row.head_hash)?,
        };
        label.tip(head, &row.edge)
    }

    async fn read_entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        // A `seq` beyond the last possible one finds nothing, as it should.
        let from_seq = i64::try_from(from_seq).unwrap_or(i64::MAX).min(entry::SEQ_MAX);
        let rows = sqlx::query!(
            r#"SELECT
                   audit_events.entry,
                   audit_events.kind,
                   audit_events.at,
                   audit_events.prev,
                   audit_events.hash,
                   audit_events.body,
                   audit_events.nodes,
                   audit_events.erased_body,
                   audit_events.erased_by,
                   audit_events.packed
               FROM tenants
               CROSS JOIN audit_events
                   ON audit_events.entry BETWEEN (tenants.tenant_no << 40) + ?2 AND (tenants.tenant_no << 40) + ?3
               WHERE tenants.tenant_id = ?1
               ORDER BY audit_events.entry
               LIMIT ?4"#,
            tenant_id,
            from_seq,
            entry::SEQ_MAX,
            limit,
        )
        .fetch(&self.readers);
        in_room(rows, &mut Room::default(), |row| {
            let label = RowLabel {
                table: "audit_events",
                row: row.entry,
            };
            Ok(weighed(StoredEntry {
                seq: entry::seq(row.entry),
                kind: row.kind,
                at: Timestamp::from_millis(row.at),
                prev: label.digest("prev", row.prev)?,
                hash: label.digest("hash", row.hash)?,
                body: body(label, row.body, row.packed.as_deref())?,
                nodes: row.nodes,
                erased: erased(label, row.erased_body, row.erased_by)?,
            }))
        })
        .await
    }

    async fn read_decision(
        &self,
        tenant: TenantId,
        id: DecisionId,
    ) -> Result<Option<StoredDecision>, StoreError> {
        let (tenant_id, id) = (&tenant.as_bytes()[..], &id.as_bytes()[..]);
        let row = sqlx::query_as!(
            DecisionColumns,
            r#"SELECT
                   decisions.entry AS "entry!",
                   decisions.id,
                   decisions.agent,
                   decisions.tool,
                   decisions.action,
                   decisions.reason,
                   decisions.run_id,
                   decisions.ask,
                   audit_events.at,
                   audit_events.hash,
                   audit_events.body,
                   audit_events.packed
               FROM decisions
               CROSS JOIN audit_events
                   ON audit_events.entry = decisions.entry
               CROSS JOIN tenants
                   ON tenants.tenant_no = decisions.entry >> 40
               WHERE decisions.id = ?2
                 AND tenants.tenant_id = ?1"#,
            tenant_id,
            id,
        )
        .fetch_optional(&self.readers)
        .await
        .map_err(unread_record)?;
        row.map(DecisionColumns::decode).transpose()
    }

    async fn read_receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError> {
        let (tenant_id, id) = (&tenant.as_bytes()[..], &id.as_bytes()[..]);
        let row = sqlx::query!(
            r#"SELECT
                   decisions.entry AS "entry!",
                   audit_events.at,
                   audit_events.prev,
                   audit_events.hash,
                   audit_events.body,
                   audit_events.packed,
                   receipts.bytes
               FROM decisions
               CROSS JOIN audit_events
                   ON audit_events.entry = decisions.entry
               CROSS JOIN receipts
                   ON receipts.entry = decisions.entry
               CROSS JOIN tenants
                   ON tenants.tenant_no = decisions.entry >> 40
               WHERE decisions.id = ?2
                 AND tenants.tenant_id = ?1"#,
            tenant_id,
            id,
        )
        .fetch_optional(&self.readers)
        .await
        .map_err(unread_record)?;
        let Some(row) = row else { return Ok(None) };
        let label = RowLabel {
            table: "audit_events",
            row: row.entry,
        };
        let values = RowValues {
            tenant,
            at: Timestamp::from_millis(row.at),
            prev: label.digest("prev", row.prev)?,
            hash: label.digest("hash", row.hash)?,
        };
        let body = packed::body(row.body, row.packed.as_deref());
        Ok(Some(packed::answer(row.bytes, &body, &values)))
    }

    /// One after the other: here a look-up is not a round trip.
    async fn read_contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let mut connection = self.readers.acquire().await.map_err(unread_record)?;
        let mut found = Vec::with_capacity(digests.len());
        for digest in digests {
            let wanted = &digest.as_bytes()[..];
            let bytes = sqlx::query_scalar!(
                "SELECT contents.bytes
                 FROM tenants
                 CROSS JOIN contents
                     ON contents.tenant_no = tenants.tenant_no
                 WHERE tenants.tenant_id = ?1
                   AND contents.digest = ?2",
                tenant_id,
                wanted,
            )
            .fetch_optional(&mut *connection)
            .await
            .map_err(unread_record)?;
            found.extend(bytes.map(|bytes| (*digest, bytes)));
        }
        Ok(found)
    }

    /// One after the other: here a look-up is not a round trip.
    async fn read_outcomes(
        &self,
        tenant: TenantId,
        decisions: &[DecisionId],
    ) -> Result<Vec<u64>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let mut connection = self.readers.acquire().await.map_err(unread_record)?;
        let mut found = Vec::new();
        for decision in decisions {
            let decision = &decision.as_bytes()[..];
            let number = sqlx::query_scalar!(
                "SELECT outcomes.entry
                 FROM tenants
                 CROSS JOIN outcomes
                     ON outcomes.tenant_no = tenants.tenant_no
                 WHERE tenants.tenant_id = ?1
                   AND outcomes.decision = ?2",
                tenant_id,
                decision,
            )
            .fetch_optional(&mut *connection)
            .await
            .map_err(unread_record)?;
            found.extend(number.map(entry::seq));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What the pages hold. The write-ahead log is not counted: it is bounded and comes back into the pages.
    async fn read_size(&self) -> Result<u64, StoreError> {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let bytes: i64 = sqlx::query_scalar(size)
            .fetch_one(&self.readers)
            .await
            .map_err(unavailable)?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}
