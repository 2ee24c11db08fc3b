//! Writing, and finding again what a batch may have to repeat.

use crate::decode::Place;
use crate::work::Work;
use crate::{SqliteStore, unavailable};
use async_trait::async_trait;
use model::{DecisionId, TenantId};
use std::fmt::Write as _;
use std::sync::Arc;
use store::{Batch, CommitError, FoundRequest, Journal, RequestKey, StoreError};

/// Keys looked up by one statement: some hundred microseconds of reading.
const KEYS_MAX: usize = 512;

#[async_trait]
impl Journal for SqliteStore {
    async fn commit(&self, batch: &Batch) -> Result<(), CommitError> {
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        writer.ready().await?;
        let work = Work::of(batch, writer.numbers())?;
        // Up to here the caller can go away and nothing has happened. From here on it cannot stop the transaction: the
        // task owns the turn and all that it writes.
        let task = tokio::spawn(async move { writer.run(work).await });
        let outcome = task
            .await
            .unwrap_or_else(|error| Err(CommitError::Unknown(Box::new(error))));
        self.committed.notify_one();
        outcome
    }

    async fn find_requests(&self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError> {
        let find = async {
            let mut found = Vec::new();
            for some in keys.chunks(KEYS_MAX) {
                self.find_some_requests(some, &mut found).await?;
            }
            Ok(found)
        };
        self.read(find).await
    }

    async fn find_outcomes(
        &self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError> {
        let find = async {
            let mut found = Vec::new();
            for some in decisions.chunks(KEYS_MAX) {
                self.find_some_outcomes(some, &mut found).await?;
            }
            Ok(found)
        };
        self.read(find).await
    }
}

impl SqliteStore {
    async fn find_some_requests(
        &self,
        keys: &[RequestKey],
        found: &mut Vec<FoundRequest>,
    ) -> Result<(), StoreError> {
        let asked = requests_json(keys);
        // The `+ 0` makes an expression of a column that has no declared type, which the macro cannot look up. CROSS JOIN
        // keeps the order: from the keys that are asked for to the rows, each by its primary key.
        let rows = sqlx::query!(
            r#"SELECT
                   asked.key + 0 AS "place!: i64",
                   requests.entry,
                   decisions.ask,
                   decisions.reason,
                   receipts.bytes
               FROM json_each(?1) AS asked
               CROSS JOIN tenants
                   ON tenants.tenant_id = unhex(asked.value ->> 0)
               CROSS JOIN requests
                   ON requests.tenant_no = tenants.tenant_no
                  AND requests.agent = unhex(asked.value ->> 1)
                  AND requests.request_id = asked.value ->> 2
               CROSS JOIN decisions
                   ON decisions.entry = requests.entry
               CROSS JOIN receipts
                   ON receipts.entry = requests.entry"#,
            asked,
        )
        .fetch_all(&self.readers)
        .await
        .map_err(unavailable)?;
        for row in rows {
            let place = Place {
                table: "requests",
                row: row.entry,
            };
            let key = usize::try_from(row.place).ok().and_then(|at| keys.get(at));
            found.push(FoundRequest {
                key: key
                    .ok_or_else(|| place.corrupt("request_id", "was not asked for"))?
                    .clone(),
                ask: place.digest("ask", row.ask.unwrap_or_default())?,
                reason: place.reason(&row.reason)?,
                receipt: row.bytes.into(),
            });
        }
        Ok(())
    }

    async fn find_some_outcomes(
        &self,
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
                   ON tenants.tenant_id = unhex(asked.value ->> 0)
               CROSS JOIN outcomes
                   ON outcomes.tenant_no = tenants.tenant_no
                  AND outcomes.decision = unhex(asked.value ->> 1)"#,
            asked,
        )
        .fetch_all(&self.readers)
        .await
        .map_err(unavailable)?;
        for row in rows {
            let place = Place {
                table: "outcomes",
                row: row.entry,
            };
            found.push(DecisionId::from_bytes(place.id("decision", row.decision)?));
        }
        Ok(())
    }
}

/// `[["<tenant>","<agent>","<request id>"],…]`, ids in hexadecimal.
fn requests_json(keys: &[RequestKey]) -> String {
    let mut json = String::with_capacity(keys.len() * 112 + 2);
    json.push('[');
    for key in keys {
        separate(&mut json);
        json.push_str("[\"");
        push_hex(&mut json, key.tenant.as_bytes());
        json.push_str("\",\"");
        push_hex(&mut json, key.agent.as_bytes());
        json.push_str("\",");
        canon::write_string(&mut json, key.request_id.as_str());
        json.push(']');
    }
    json.push(']');
    json
}

/// `[["<tenant>","<decision>"],…]`, ids in hexadecimal.
fn decisions_json(decisions: &[(TenantId, DecisionId)]) -> String {
    let mut json = String::with_capacity(decisions.len() * 72 + 2);
    json.push('[');
    for (tenant, decision) in decisions {
        separate(&mut json);
        json.push_str("[\"");
        push_hex(&mut json, tenant.as_bytes());
        json.push_str("\",\"");
        push_hex(&mut json, decision.as_bytes());
        json.push_str("\"]");
    }
    json.push(']');
    json
}

fn separate(json: &mut String) {
    if json.len() > 1 {
        json.push(',');
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(out, "{byte:02x}").expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AgentId, Name};

    #[test]
    fn keys_are_written_as_json_whatever_a_request_id_holds() {
        let keys = ["a", "\"],[\"", "\\", "Zoë\u{1F600}"].map(|text| RequestKey {
            tenant: TenantId::from_bytes([0xab; 16]),
            agent: AgentId::from_bytes([1; 16]),
            request_id: Name::new(text).unwrap(),
        });
        let json: Vec<[String; 3]> = serde_json::from_str(&requests_json(&keys)).unwrap();
        for (key, [tenant, agent, request_id]) in keys.iter().zip(json) {
            assert_eq!(tenant, "ab".repeat(16));
            assert_eq!(agent, "01".repeat(16));
            assert_eq!(request_id, key.request_id.as_str());
        }
        assert_eq!(requests_json(&[]), "[]");
        assert_eq!(decisions_json(&[]), "[]");
    }
}
