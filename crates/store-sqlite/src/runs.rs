//! What runs have seen: written in the commit of the entry that tells of it, read by the name of the run.

use crate::commit::{NotWritten, Transaction};
use crate::decode::RowLabel;
use crate::{unread, unread_record};
use model::{Name, RunTaint, TenantId, Trust};
use rusqlite::params;
use store::StoreError;

const PUT: &str = "INSERT INTO runs (tenant_no, run_id, root, worst) \
    VALUES (?, ?, ?, ?) \
    ON CONFLICT (tenant_no, run_id) DO UPDATE SET root = excluded.root, worst = excluded.worst";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 1] = [PUT];

/// Writes down runs as they are from now on.
pub(crate) fn write(transaction: &Transaction<'_>, runs: &[(TenantId, RunTaint)]) -> Result<(), NotWritten> {
    for (tenant, run) in runs {
        transaction.statement(PUT)?.execute(params![
            transaction.tenant_no(*tenant)?,
            run.run_id.as_str(),
            run.root.as_str(),
            run.worst.as_str(),
        ])?;
    }
    Ok(())
}

/// Those of these runs that are there, with the level of their families. `asked` is `["<tenant><run id>",…]`, the tenant as 32
/// hexadecimal digits.
pub(crate) async fn find(
    executor: impl sqlx::SqliteExecutor<'_>,
    asked: String,
) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id,
               runs.tenant_no AS "tenant_no!",
               runs.run_id,
               runs.root,
               family.worst
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN runs
               ON runs.tenant_no = tenants.tenant_no
              AND runs.run_id = substr(asked.value, 33)
           CROSS JOIN runs AS family
               ON family.tenant_no = runs.tenant_no
              AND family.run_id = runs.root"#,
        asked,
    )
    .fetch_all(executor)
    .await
    .map_err(unread)?;
    let found = rows.into_iter().map(|row| {
        let label = label(row.tenant_no);
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        Ok((tenant, run(label, [&row.run_id, &row.root, &row.worst])?))
    });
    found.collect()
}

/// A tenant's runs behind this name, with the level of their families, in the order of their names.
pub(crate) async fn list(
    executor: impl sqlx::SqliteExecutor<'_>,
    tenant: TenantId,
    after: Option<&Name>,
    limit: u32,
) -> Result<Vec<RunTaint>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let after = after.map_or("", Name::as_str);
    let rows = sqlx::query!(
        r#"SELECT
               runs.tenant_no AS "tenant_no!",
               runs.run_id,
               runs.root,
               family.worst
           FROM tenants
           CROSS JOIN runs
               ON runs.tenant_no = tenants.tenant_no
              AND runs.run_id > ?2
           CROSS JOIN runs AS family
               ON family.tenant_no = runs.tenant_no
              AND family.run_id = runs.root
           WHERE tenants.tenant_id = ?1
           ORDER BY runs.run_id
           LIMIT ?3"#,
        tenant_id,
        after,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unread_record)?;
    let found = rows
        .into_iter()
        .map(|row| run(label(row.tenant_no), [&row.run_id, &row.root, &row.worst]));
    found.collect()
}

const fn label(row: i64) -> RowLabel {
    RowLabel { table: "runs", row }
}

fn run(label: RowLabel, [run_id, root, worst]: [&str; 3]) -> Result<RunTaint, StoreError> {
    let worst = Trust::from_word(worst);
    Ok(RunTaint {
        run_id: label.name("run_id", run_id)?,
        root: label.name("root", root)?,
        worst: worst.ok_or_else(|| label.corrupt("worst", "is no level of trust"))?,
    })
}
