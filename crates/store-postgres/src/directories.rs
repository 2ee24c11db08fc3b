//! Loading what the snapshot is made from, and hearing of what others have changed.

use crate::decode::{self, uuid};
use crate::{PostgresStore, remembered};
use async_trait::async_trait;
use ledger::Head;
use model::{Noun, NounKind, TenantId, Timestamp};
use sqlx::types::Uuid;
use std::collections::BTreeMap;
use store::{ChainPosition, ChangedTenant, Directories, StoreError, StoredTenant};

/// A tenant, and one of its nouns if it has any. The hash and the edge of its head stand in one of its rows.
pub(crate) struct Row {
    pub(crate) tenant_id: Uuid,
    pub(crate) head_seq: i64,
    pub(crate) head_hash: Option<Vec<u8>>,
    pub(crate) head_at: i64,
    pub(crate) edge: Option<Vec<u8>>,
    pub(crate) revision: i64,
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
}

impl Row {
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId::from_bytes(self.tenant_id.into_bytes())
    }
}

#[async_trait]
impl Directories for PostgresStore {
    async fn load(&self, only: Option<&[TenantId]>) -> Result<Vec<StoredTenant>, StoreError> {
        let only: Option<Vec<_>> = only.map(|only| only.iter().map(|tenant| uuid(*tenant)).collect());
        // One statement sees the state after one commit: heads and nouns cannot be of different times. Of a tenant's
        // rows one has what is long about its head, which would be most of what is sent otherwise.
        let query = || {
            sqlx::query_as!(
                Row,
                r#"SELECT
                   tenants.tenant_id,
                   tenants.head_seq,
                   CASE WHEN row_number() OVER alike = 1 THEN tenants.head_hash END AS "head_hash?",
                   tenants.head_at,
                   CASE WHEN row_number() OVER alike = 1 THEN tenants.edge END AS "edge?",
                   tenants.revision,
                   directory.kind AS "kind?",
                   directory.value AS "value?"
               FROM tenants
               LEFT JOIN directory ON directory.tenant_id = tenants.tenant_id
               WHERE $1::uuid[] IS NULL
                  OR tenants.tenant_id = ANY ($1)
               WINDOW alike AS (PARTITION BY tenants.tenant_id)
               ORDER BY tenants.tenant_id"#,
                only.as_deref(),
            )
        };
        let rows = self.loads.read(query).await?;
        let stored = |(tenant, position)| {
            let stored = StoredTenant {
                tenant,
                position,
                nouns: Vec::new(),
            };
            (tenant, stored)
        };
        let mut tenants: BTreeMap<_, _> = positions(&rows)?.into_iter().map(stored).collect();
        for row in rows {
            let id = row.tenant();
            if let (Some(tenant), Some(noun)) = (tenants.get_mut(&id), noun(id, row)?) {
                tenant.nouns.push(noun);
            }
        }
        Ok(tenants.into_values().collect())
    }

    async fn changes(&self, known: &[(TenantId, u64)]) -> Result<Vec<ChangedTenant>, StoreError> {
        remembered::changes(self, known).await
    }

    async fn revisions(&self) -> Result<Vec<(TenantId, u64)>, StoreError> {
        // In the order of the key, because only then there is a plan that goes by the key.
        let query = || sqlx::query!("SELECT tenant_id, revision FROM tenants ORDER BY tenant_id");
        let rows = self.looks.read(query).await?;
        let decoded = rows.into_iter().map(|row| {
            let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
            Ok((tenant, of_tenant(tenant).unsigned("revision", row.revision)?))
        });
        decoded.collect()
    }

    /// Another server has another start, and the file of another database or of a table that was filled anew has
    /// another path. A role needs no rights for it.
    async fn incarnation(&self) -> Result<String, StoreError> {
        let query = || {
            sqlx::query!(
                r#"SELECT concat_ws(
                   ' ',
                   extract(epoch FROM pg_postmaster_start_time()),
                   pg_relation_filepath('tenants')
               ) AS "incarnation!""#
            )
        };
        let rows = self.looks.read(query).await?;
        Ok(rows.into_iter().map(|row| row.incarnation).collect())
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn changed(&self) -> Result<(), StoreError> {
        self.listener.changed().await
    }
}

const fn of_tenant(tenant: TenantId) -> decode::RowLabel {
    decode::RowLabel {
        table: "tenants",
        tenant,
        seq: None,
    }
}

const fn of_noun(tenant: TenantId) -> decode::RowLabel {
    decode::RowLabel {
        table: "directory",
        ..of_tenant(tenant)
    }
}

/// Where the tenants of these rows stand.
pub(crate) fn positions<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
) -> Result<BTreeMap<TenantId, ChainPosition>, StoreError> {
    let positions = rows.into_iter().map(|row| {
        let position = position(row)?;
        Ok(position.map(|position| (row.tenant(), position)))
    });
    positions.filter_map(Result::transpose).collect()
}

/// Where its tenant stands, if this is the row with its head.
fn position(row: &Row) -> Result<Option<ChainPosition>, StoreError> {
    let (Some(head_hash), Some(edge)) = (&row.head_hash, &row.edge) else {
        return Ok(None);
    };
    let place = of_tenant(row.tenant());
    let head = Head {
        seq: place.unsigned("head_seq", row.head_seq)?,
        hash: place.digest("head_hash", head_hash)?,
    };
    Ok(Some(ChainPosition {
        tip: place.tip(head, edge)?,
        at: Timestamp::from_millis(row.head_at),
        revision: place.unsigned("revision", row.revision)?,
    }))
}

/// The noun in a row, if there is one.
pub(crate) fn noun(tenant: TenantId, row: Row) -> Result<Option<Noun>, StoreError> {
    let (Some(kind), Some(value)) = (kind(tenant, &row)?, row.value) else {
        return Ok(None);
    };
    let noun = Noun::from_json(kind, &value)
        .map_err(|error| of_noun(tenant).malformed(kind.as_str(), error.column()))?;
    Ok(Some(noun))
}

/// The kind of the noun in a row, if there is one.
pub(crate) fn kind(tenant: TenantId, row: &Row) -> Result<Option<NounKind>, StoreError> {
    let kind = row.kind.as_deref().map(|word| {
        let kind = NounKind::from_word(word);
        kind.ok_or_else(|| of_noun(tenant).corrupt("kind", "is no kind of noun that this program knows"))
    });
    kind.transpose()
}
