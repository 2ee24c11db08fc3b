//! Loading everything that the snapshot is made from.

use crate::decode::Place;
use crate::{SqliteStore, unavailable};
use async_trait::async_trait;
use ledger::Head;
use model::{Noun, NounKind, TenantId};
use store::{Directories, StoreError, StoredTenant};

/// A tenant, and one of its nouns if it has any.
struct Row {
    tenant_no: i64,
    tenant_id: Vec<u8>,
    head_seq: i64,
    head_hash: Vec<u8>,
    revision: i64,
    kind: Option<String>,
    value: Option<String>,
}

#[async_trait]
impl Directories for SqliteStore {
    async fn load(&self) -> Result<Vec<StoredTenant>, StoreError> {
        // One statement sees the state after one commit: heads and nouns cannot be of different times.
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT
                   tenants.tenant_no,
                   tenants.tenant_id,
                   tenants.head_seq,
                   tenants.head_hash,
                   tenants.revision,
                   directory.kind AS "kind?",
                   directory.value AS "value?"
               FROM tenants
               LEFT JOIN directory ON directory.tenant_no = tenants.tenant_no
               ORDER BY tenants.tenant_no"#,
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
}

fn tenant(row: &Row) -> Result<StoredTenant, StoreError> {
    let place = Place {
        table: "tenants",
        row: row.tenant_no,
    };
    Ok(StoredTenant {
        tenant: TenantId::from_bytes(place.id("tenant_id", row.tenant_id.clone())?),
        head: Head {
            seq: place.unsigned("head_seq", row.head_seq)?,
            hash: place.digest("head_hash", row.head_hash.clone())?,
        },
        revision: place.unsigned("revision", row.revision)?,
        nouns: Vec::new(),
    })
}

fn noun(row: Row) -> Result<Option<Noun>, StoreError> {
    let (Some(kind), Some(value)) = (row.kind, row.value) else {
        return Ok(None);
    };
    let place = Place {
        table: "directory",
        row: row.tenant_no,
    };
    let kind = NounKind::from_word(&kind).ok_or_else(|| place.corrupt("kind", "is no kind of noun"))?;
    let noun = Noun::from_json(kind, &value)
        .map_err(|error| place.corrupt("value", &format!("is not a {}: {error}", kind.as_str())))?;
    Ok(Some(noun))
}
