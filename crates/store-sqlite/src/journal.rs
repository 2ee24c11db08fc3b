//! Writing, and finding again what a batch may have to repeat.

use crate::decode::RowLabel;
use crate::packed::{self, RowValues};
use crate::requests::RequestDigest;
use crate::writer::Writer;
use crate::{
    SqliteStore, approvals, bounded, budgets, counters, entry, links, reservations, runs, unavailable,
};
use async_trait::async_trait;
use canon::Digest;
use model::{
    Approval, ApprovalId, Budget, Counter, DecisionId, Name, Reservation, RunLink, RunTaint, TenantId,
    Timestamp,
};
use sqlx::{SqliteConnection, SqliteExecutor};
use std::collections::HashMap;
use std::sync::Arc;
use store::{
    Batch, ChainPosition, CommitError, FoundRequest, Journal, ReplyKey, ReplyRow, RequestKey, StoreError,
    Turn, WantedBudgets, WantedReservations,
};
use tokio::sync::{Notify, OwnedMutexGuard};

/// Keys looked up by one statement: some hundred microseconds of reading.
const KEYS_MAX: usize = 512;

#[async_trait]
impl Journal for SqliteStore {
    async fn begin(&self, tenants: &[TenantId]) -> Result<Box<dyn Turn>, StoreError> {
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        writer.begin().await.map_err(unavailable)?;
        Ok(Box::new(SqliteTurn {
            positions: writer.positions(tenants),
            writer,
            committed: Arc::clone(&self.committed),
        }))
    }
}

/// The turn on the one connection that writes. Nothing has begun in the database yet: whoever holds this is alone.
struct SqliteTurn {
    writer: OwnedMutexGuard<Writer>,
    positions: HashMap<TenantId, ChainPosition>,
    /// Wakes the checkpointer.
    committed: Arc<Notify>,
}

#[async_trait]
impl Turn for SqliteTurn {
    fn positions(&self) -> &HashMap<TenantId, ChainPosition> {
        &self.positions
    }

    async fn find_requests(&mut self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError> {
        ready(&mut self.writer).await?;
        let wanted: Vec<_> = keys.iter().map(request_digest).collect();
        let answered = self.writer.find_requests(&wanted).map_err(unavailable)?;
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::with_capacity(answered.len());
            for (key, entry) in answered {
                found.extend(find_answer(&mut *connection, &keys[key], entry).await?);
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_outcomes(
        &mut self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::new();
            for some in decisions.chunks(KEYS_MAX) {
                find_some_outcomes(connection, some, &mut found).await?;
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_erased(&mut self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, u64)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::new();
            for some in entries.chunks(KEYS_MAX) {
                find_some_erased(connection, some, &mut found).await?;
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_approvals(
        &mut self,
        approvals: &[(TenantId, ApprovalId)],
    ) -> Result<Vec<(TenantId, Approval)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::new();
            for some in approvals.chunks(KEYS_MAX) {
                found.extend(approvals::find(connection, some).await?);
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_runs(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::new();
            for some in runs.chunks(KEYS_MAX) {
                found.extend(runs::find(&mut *connection, runs_json(some)).await?);
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_counters(
        &mut self,
        keys: &[(TenantId, Digest)],
    ) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        let find = async {
            let mut found = Vec::new();
            for some in keys.chunks(KEYS_MAX) {
                found.extend(counters::find(&mut *connection, counters_json(some)).await?);
            }
            Ok(found)
        };
        bounded(find).await
    }

    async fn find_budgets(&mut self, wanted: &WantedBudgets) -> Result<Vec<(TenantId, Budget)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(budgets::find(connection, wanted)).await
    }

    async fn find_reservations(
        &mut self,
        wanted: &WantedReservations,
    ) -> Result<Vec<(TenantId, Reservation)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(reservations::find(connection, wanted)).await
    }

    async fn find_first_ends(
        &mut self,
        tenants: &[TenantId],
        after: Timestamp,
    ) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(reservations::first_ends(connection, tenants, after)).await
    }

    async fn have_budgets(&mut self, tenants: &[TenantId]) -> Result<Vec<TenantId>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(budgets::have(connection, tenants)).await
    }

    async fn find_run_links(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(links::find(connection, runs_json(runs))).await
    }

    async fn find_replies(&mut self, keys: &[ReplyKey]) -> Result<Vec<ReplyRow>, StoreError> {
        let connection = ready(&mut self.writer).await?;
        bounded(links::find_replies(connection, keys)).await
    }

    async fn commit(self: Box<Self>, batch: &Batch) -> Result<(), CommitError> {
        let Self {
            mut writer,
            committed,
            ..
        } = *self;
        let outcome = writer.commit(batch).await;
        committed.notify_one();
        outcome
    }
}

impl SqliteStore {
    /// What was answered to a request. Only the writer knows which entry it was; the answer is read beside it.
    pub(crate) async fn find_request(&self, key: &RequestKey) -> Result<Option<FoundRequest>, StoreError> {
        let entries = {
            let _looking = self.looking.lock().await;
            let mut writer = self.writer.lock().await;
            ready(&mut writer).await?;
            let found = writer.find_requests(&[request_digest(key)]);
            found.map_err(unavailable)?
        };
        for (_, entry) in entries {
            if let Some(found) = find_answer(&self.readers, key, entry).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

async fn ready(writer: &mut Writer) -> Result<&mut SqliteConnection, StoreError> {
    writer.ready().await.map_err(unavailable)
}

fn request_digest(key: &RequestKey) -> RequestDigest {
    RequestDigest::of(
        key.tenant.as_bytes(),
        key.agent.as_bytes(),
        key.request_id.as_str(),
    )
}

/// What was answered to a request, which this entry tells.
async fn find_answer(
    executor: impl SqliteExecutor<'_>,
    key: &RequestKey,
    entry: i64,
) -> Result<Option<FoundRequest>, StoreError> {
    let row = sqlx::query!(
        "SELECT
             decisions.ask,
             decisions.reason,
             audit_events.at,
             audit_events.prev,
             audit_events.hash,
             audit_events.body,
             audit_events.packed,
             receipts.bytes
         FROM decisions
         JOIN audit_events USING (entry)
         JOIN receipts USING (entry)
         WHERE decisions.entry = ?1",
        entry,
    )
    .fetch_optional(executor)
    .await
    .map_err(crate::unread)?;
    let Some(row) = row else {
        return Ok(None);
    };
    let label = RowLabel {
        table: "decisions",
        row: entry,
    };
    let values = RowValues {
        tenant: key.tenant,
        at: Timestamp::from_millis(row.at),
        prev: label.digest("prev", row.prev)?,
        hash: label.digest("hash", row.hash)?,
    };
    let body = packed::body(row.body, row.packed.as_deref());
    Ok(Some(FoundRequest {
        key: key.clone(),
        ask: label.digest("ask", row.ask.unwrap_or_default())?,
        reason: label.reason(&row.reason)?,
        receipt: packed::answer(row.bytes, &body, &values).into(),
    }))
}

async fn find_some_outcomes(
    connection: &mut SqliteConnection,
    decisions: &[(TenantId, DecisionId)],
    found: &mut Vec<DecisionId>,
) -> Result<(), StoreError> {
    let asked = decisions_json(decisions);
    let rows = sqlx::query!(
        r#"SELECT
                   outcomes.entry,
                   outcomes.decision
               FROM json_each(?1) AS asked
               CROSS JOIN tenants
                   ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
               CROSS JOIN outcomes
                   ON outcomes.tenant_no = tenants.tenant_no
                  AND outcomes.decision = unhex(substr(asked.value, 33, 32))"#,
        asked,
    )
    .fetch_all(connection)
    .await
    .map_err(unavailable)?;
    for row in rows {
        let label = RowLabel {
            table: "outcomes",
            row: row.entry,
        };
        found.push(DecisionId::from_bytes(label.id("decision", row.decision)?));
    }
    Ok(())
}

async fn find_some_erased(
    connection: &mut SqliteConnection,
    entries: &[(TenantId, u64)],
    found: &mut Vec<(TenantId, u64)>,
) -> Result<(), StoreError> {
    let asked = entries_json(entries);
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id AS "tenant_id!: Vec<u8>",
               audit_events.entry AS "entry!: i64"
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN audit_events
               ON audit_events.entry = (tenants.tenant_no << 40) + CAST(substr(asked.value, 33) AS INTEGER)
           WHERE audit_events.erased_by IS NOT NULL"#,
        asked,
    )
    .fetch_all(connection)
    .await
    .map_err(unavailable)?;
    for row in rows {
        let label = RowLabel {
            table: "audit_events",
            row: row.entry,
        };
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        found.push((tenant, entry::seq(row.entry)));
    }
    Ok(())
}

/// `["<tenant><run id>",…]`, the tenant as 32 hexadecimal digits: taken apart by place, which is cheaper than arrays in an array.
pub(crate) fn runs_json(runs: &[(TenantId, Name)]) -> String {
    let mut text = String::new();
    json_array(runs, |json, (tenant, run)| {
        text.clear();
        push_hex(&mut text, tenant.as_bytes());
        text.push_str(run.as_str());
        canon::write_string(json, &text);
    })
}

/// `["<tenant><key>",…]`, both as hexadecimal digits.
pub(crate) fn counters_json(keys: &[(TenantId, Digest)]) -> String {
    let mut text = String::new();
    json_array(keys, |json, (tenant, key)| {
        text.clear();
        push_hex(&mut text, tenant.as_bytes());
        push_hex(&mut text, key.as_bytes());
        canon::write_string(json, &text);
    })
}

/// `["<tenant><decision>",…]`, ids as 32 hexadecimal digits.
fn decisions_json(decisions: &[(TenantId, DecisionId)]) -> String {
    ids_json(
        decisions
            .iter()
            .map(|(tenant, id)| (tenant.as_bytes(), id.as_bytes())),
    )
}

/// `["<tenant><seq>",…]`, the tenant as 32 hexadecimal digits.
fn entries_json(entries: &[(TenantId, u64)]) -> String {
    json_array(entries, |json, (tenant, seq)| {
        json.push('"');
        push_hex(json, tenant.as_bytes());
        json.push_str(&seq.to_string());
        json.push('"');
    })
}

/// `["<id><id>",…]`, ids as 32 hexadecimal digits.
pub(crate) fn ids_json<'i>(pairs: impl Iterator<Item = (&'i [u8; 16], &'i [u8; 16])>) -> String {
    let pairs: Vec<_> = pairs.collect();
    json_array(&pairs, |json, (first, second)| {
        json.push('"');
        push_hex(json, *first);
        push_hex(json, *second);
        json.push('"');
    })
}

/// `["<tenant>",…]`, ids as 32 hexadecimal digits.
pub(crate) fn tenants_json(tenants: &[TenantId]) -> String {
    json_array(tenants, |json, tenant| {
        json.push('"');
        push_hex(json, tenant.as_bytes());
        json.push('"');
    })
}

fn json_array<T>(items: &[T], mut write: impl FnMut(&mut String, &T)) -> String {
    let mut json = String::with_capacity(items.len() * 96 + 2);
    for (at, item) in items.iter().enumerate() {
        json.push(if at == 0 { '[' } else { ',' });
        write(&mut json, item);
    }
    json.push_str(if items.is_empty() { "[]" } else { "]" });
    json
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    push_hex(&mut text, bytes);
    text
}

pub(crate) fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let digit = |value: u8| char::from_digit(u32::from(value), 16).expect("four bits are a digit");
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_json_whatever_a_run_id_holds() {
        let tenant = TenantId::from_bytes([0xab; 16]);
        let runs = ["a", "\"],[\"", "\\", "Zoë\u{1F600}"].map(|text| (tenant, Name::new(text).unwrap()));
        let json: Vec<String> = serde_json::from_str(&runs_json(&runs)).unwrap();
        for ((_, run), text) in runs.iter().zip(json) {
            assert_eq!(text, format!("{}{}", "ab".repeat(16), run.as_str()));
        }
        assert_eq!(runs_json(&[]), "[]");
        assert_eq!(decisions_json(&[]), "[]");
    }
}
