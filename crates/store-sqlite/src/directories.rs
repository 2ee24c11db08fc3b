//! Loading everything that the snapshot is made from.

use crate::decode::RowLabel;
use crate::journal::tenants_json;
use crate::{SqliteStore, unavailable};
use async_trait::async_trait;
use ledger::Head;
use model::{Noun, NounKind, TenantId, Timestamp};
use store::{ChangedTenant, Directories, StoreError, StoredTenant};

/// A tenant, and one of its nouns if it has any.
struct Row {
    tenant_no: i64,
    tenant_id: Vec<u8>,
    head_seq: i64,
    head_hash: Vec<u8>,
    head_at: i64,
    edge: Vec<u8>,
    revision: i64,
    kind: Option<String>,
    value: Option<String>,
}

#[async_trait]
impl Directories for SqliteStore {
    async fn load(&self, only: Option<&[TenantId]>) -> Result<Vec<StoredTenant>, StoreError> {
        let only = only.map(tenants_json);
        // One statement sees the state after one commit: heads and nouns cannot be of different times.
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT
                   tenants.tenant_no,
                   tenants.tenant_id,
                   tenants.head_seq,
                   tenants.head_hash,
                   tenants.head_at,
                   tenants.edge,
                   tenants.revision,
                   directory.kind AS "kind?",
                   directory.value AS "value?"
               FROM tenants
               LEFT JOIN directory ON directory.tenant_no = tenants.tenant_no
               WHERE ?1 IS NULL
                  OR tenants.tenant_id IN (SELECT unhex(asked.value) FROM json_each(?1) AS asked)
               ORDER BY tenants.tenant_no"#,
            only,
        )
        .fetch_all(&self.readers)
        .await
        .map_err(unavailable)?;
        let mut tenants: Vec<StoredTenant> = Vec::new();
        let mut last = 0;
        for row in rows {
            if row.tenant_no != last {
                tenants.push(tenant(&row)?);
                last = row.tenant_no;
            }
            if let (Some(tenant), Some(noun)) = (tenants.last_mut(), noun(row)?) {
                tenant.nouns.push(noun);
            }
        }
        Ok(tenants)
    }

    /// Nothing is remembered: nobody else writes to the file, so there is hardly ever anything to follow.
    async fn changes(&self, _known: &[(TenantId, u64)]) -> Result<Vec<ChangedTenant>, StoreError> {
        Ok(Vec::new())
    }

    async fn revisions(&self) -> Result<Vec<(TenantId, u64)>, StoreError> {
        let rows = sqlx::query!("SELECT tenant_no, tenant_id, revision FROM tenants")
            .fetch_all(&self.readers)
            .await
            .map_err(unavailable)?;
        let revision = |tenant_no, id, revision| {
            let label = label(tenant_no);
            let id = TenantId::from_bytes(label.id("tenant_id", id)?);
            Ok((id, label.unsigned("revision", revision)?))
        };
        rows.into_iter()
            .map(|row| revision(row.tenant_no, row.tenant_id, row.revision))
            .collect()
    }

    /// The file is looked after by who writes to it.
    async fn incarnation(&self) -> Result<String, StoreError> {
        Ok(String::new())
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn changed(&self) -> Result<(), StoreError> {
        std::future::pending().await
    }
}

fn label(tenant_no: i64) -> RowLabel {
    RowLabel {
        table: "tenants",
        row: tenant_no,
    }
}

fn tenant(row: &Row) -> Result<StoredTenant, StoreError> {
    let label = label(row.tenant_no);
    let head = Head {
        seq: label.unsigned("head_seq", row.head_seq)?,
        hash: label.digest("head_hash", row.head_hash.clone())?,
    };
    Ok(StoredTenant {
        tenant: TenantId::from_bytes(label.id("tenant_id", row.tenant_id.clone())?),
        position: store::ChainPosition {
            tip: label.tip(head, &row.edge)?,
            at: Timestamp::from_millis(row.head_at),
            revision: label.unsigned("revision", row.revision)?,
        },
        nouns: Vec::new(),
    })
}

fn noun(row: Row) -> Result<Option<Noun>, StoreError> {
    let (Some(kind), Some(value)) = (row.kind, row.value) else {
        return Ok(None);
    };
    let label = RowLabel {
        table: "directory",
        row: row.tenant_no,
    };
    let kind = NounKind::from_word(&kind)
        .ok_or_else(|| label.corrupt("kind", "is no kind of noun that this program knows"))?;
    let noun =
        Noun::from_json(kind, &value).map_err(|error| label.malformed(kind.as_str(), error.column()))?;
    Ok(Some(noun))
}
