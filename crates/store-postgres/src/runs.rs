//! What runs have seen: written in the commit of the entry that tells of it, read by the name of the run.

use crate::decode::{RowLabel, uuid};
use model::{Name, RunTaint, TenantId, Trust};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{Batch, StoreError};

/// Runs as they are from now on, a vector a column.
#[derive(Default)]
pub(crate) struct RunColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) ids: Vec<String>,
    pub(crate) roots: Vec<String>,
    pub(crate) worst: Vec<&'static str>,
}

impl RunColumns {
    /// The runs of a batch: of each, how it is at the end, because a statement cannot write a row twice.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut rows = Self::default();
        for (place, (tenant, run)) in batch.runs.iter().enumerate() {
            let is_same =
                |(other, later): &(TenantId, RunTaint)| other == tenant && later.run_id == run.run_id;
            if batch.runs[place + 1..].iter().any(is_same) {
                continue;
            }
            rows.tenants.push(uuid(*tenant));
            rows.ids.push(run.run_id.to_string());
            rows.roots.push(run.root.to_string());
            rows.worst.push(run.worst.as_str());
        }
        rows
    }
}

/// What is read of a run.
pub(crate) struct Columns {
    tenant_id: Uuid,
    run_id: String,
    root: String,
    worst: String,
}

/// Those of these runs that are there, with the level of their families.
pub(crate) fn question(
    runs: &[(TenantId, Name)],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = runs.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let ids: Vec<_> = runs.iter().map(|(_, id)| id.to_string()).collect();
    sqlx::query_as!(
        Columns,
        "SELECT
             runs.tenant_id,
             runs.run_id,
             runs.root,
             family.worst
         FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, run_id)
         JOIN runs
             ON runs.tenant_id = asked.tenant_id
            AND runs.run_id = asked.run_id
         JOIN runs AS family
             ON family.tenant_id = runs.tenant_id
            AND family.run_id = runs.root",
        &tenants,
        &ids,
    )
}

/// A tenant's runs behind this name, with the level of their families, in the order of their names.
pub(crate) fn list(
    tenant: TenantId,
    after: Option<&Name>,
    limit: u32,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        Columns,
        "SELECT
             runs.tenant_id,
             runs.run_id,
             runs.root,
             family.worst
         FROM runs
         JOIN runs AS family
             ON family.tenant_id = runs.tenant_id
            AND family.run_id = runs.root
         WHERE runs.tenant_id = $1
           AND runs.run_id > $2
         ORDER BY runs.run_id
         LIMIT $3",
        uuid(tenant),
        after.map_or("", Name::as_str),
        i64::from(limit),
    )
}

/// What was found.
pub(crate) fn decode(rows: Vec<Columns>) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        let label = RowLabel {
            table: "runs",
            tenant,
            seq: None,
        };
        let worst = Trust::from_word(&found.worst);
        let run = RunTaint {
            run_id: label.name("run_id", &found.run_id)?,
            root: label.name("root", &found.root)?,
            worst: worst.ok_or_else(|| label.corrupt("worst", "is no level of trust"))?,
        };
        Ok((tenant, run))
    });
    found.collect()
}
