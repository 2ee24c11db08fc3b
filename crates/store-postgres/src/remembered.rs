//! What is remembered of the last changes of directories: which nouns each has put or taken away. A gateway that
//! follows reads those nouns and not the whole directory.
//!
//! Every row says which revision its change was made from, so that the rows themselves tell whether they lead from one
//! revision to another. Nothing has to be right for that but the rows: those of a time before there were any, of a
//! change of too many nouns or of one that was forgotten are missing, and the directory is read whole.

use crate::PostgresStore;
use crate::commit::CHANNEL;
use crate::decode::uuid;
use crate::directories::{self, Row};
use model::{TenantId, Write};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use store::{Batch, ChainPosition, ChangedNoun, ChangedTenant, StoreError};

/// For how many revisions of a tenant the changes are remembered. A gateway looks every half second, and a tenant has
/// some hundred changes a second at most.
const REVISIONS_KEPT: u64 = 256;
/// How many nouns a change may have that is remembered. Who brings a whole directory has it read whole.
const NOUNS_MAX: usize = 256;

/// The nouns that a batch changes, a vector a column, with nothing borrowed from it.
#[derive(Default)]
pub(crate) struct Remembered {
    tenants: Vec<Uuid>,
    revisions: Vec<i64>,
    kinds: Vec<&'static str>,
    ids: Vec<String>,
    since: Vec<i64>,
    /// The tenants whose revisions change, up to which revision of each changes were forgotten before, and up to which
    /// they are by now. What was forgotten before is not looked at again: its rows may be there for long, dead.
    changed: Vec<Uuid>,
    forgotten_before: Vec<i64>,
    forgotten: Vec<i64>,
}

impl Remembered {
    /// What is to be remembered of a batch whose tenants stand at these positions.
    pub(crate) fn of(batch: &Batch, positions: &HashMap<TenantId, ChainPosition>) -> Self {
        let mut written: BTreeMap<TenantId, BTreeSet<_>> = BTreeMap::new();
        for (tenant, write) in &batch.writes {
            let (Write::Put(noun) | Write::Delete(noun)) = write;
            let nouns = written.entry(*tenant).or_default();
            nouns.insert((noun.kind().as_str(), noun.id()));
        }
        let mut remembered = Self::default();
        for advance in &batch.advances {
            let tenant = uuid(advance.tenant);
            let since = positions
                .get(&advance.tenant)
                .map_or(0, |position| position.revision);
            // A copy brings a directory in parts, all but the last of which are no change of it.
            if advance.revision <= since {
                continue;
            }
            let forgotten = |revision: u64| revision.saturating_sub(REVISIONS_KEPT).cast_signed();
            remembered.changed.push(tenant);
            // INVARIANT: no revision is written to `tenants` that does not fit.
            remembered.forgotten_before.push(forgotten(since));
            remembered.forgotten.push(forgotten(advance.revision));
            // The operators' directory has another revision where a tenant is made, and no other noun. What has no rows
            // is read whole.
            let nouns = written.remove(&advance.tenant).unwrap_or_default();
            if nouns.len() > NOUNS_MAX {
                continue;
            }
            for (kind, id) in nouns {
                remembered.tenants.push(tenant);
                remembered.revisions.push(advance.revision.cast_signed());
                remembered.kinds.push(kind);
                remembered.ids.push(id);
                remembered.since.push(since.cast_signed());
            }
        }
        remembered
    }

    /// Writes it down, forgets what is too long ago, and tells the other gateways when this commits, and not if it does
    /// not. `store` is the one that says so.
    pub(crate) async fn write(&self, connection: &mut PgConnection, store: Uuid) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "WITH forgotten AS (
                 DELETE FROM directory_changes AS change
                 USING unnest($6::uuid[], $7::bigint[], $8::bigint[]) AS changed (tenant_id, before, forgotten)
                 WHERE change.tenant_id = changed.tenant_id
                   AND change.revision > changed.before
                   AND change.revision <= changed.forgotten
             ), remembered AS (
                 INSERT INTO directory_changes (tenant_id, revision, kind, id, since)
                 SELECT *
                 FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
                 ON CONFLICT (tenant_id, revision, kind, id) DO UPDATE
                 SET since = excluded.since
             )
             SELECT pg_notify($9, $10)",
            &self.tenants,
            &self.revisions,
            &self.kinds as &[&str],
            &self.ids,
            &self.since,
            &self.changed,
            &self.forgotten_before,
            &self.forgotten,
            CHANNEL,
            store.to_string(),
        )
        .execute(connection)
        .await
        .map(drop)
    }
}

/// A tenant that is known at some revision, and one of its nouns that have changed since, if there is any. The hash and
/// the edge of its head stand in one of its rows.
struct ChangedRow {
    tenant_id: Uuid,
    head_seq: i64,
    head_hash: Option<Vec<u8>>,
    head_at: i64,
    edge: Option<Vec<u8>>,
    revision: i64,
    /// Through how many revisions the changes lead that are remembered since the one that is known.
    steps: i64,
    /// How many there are.
    behind: i64,
    kind: Option<String>,
    id: Option<String>,
    value: Option<String>,
}

/// What has changed of tenants since the revisions at which they are known, where all of it is remembered.
pub(crate) async fn changes(
    store: &PostgresStore,
    known: &[(TenantId, u64)],
) -> Result<Vec<ChangedTenant>, StoreError> {
    let (tenants, revisions): (Vec<_>, Vec<_>) = known
        .iter()
        .map(|(tenant, revision)| (uuid(*tenant), revision.cast_signed()))
        .unzip();
    // One statement sees the state after one commit: heads, changes and nouns cannot be of different times. Each noun
    // is looked up by itself, also where the planner knows nothing of the tables and would read all nouns of all
    // tenants.
    let query = || {
        sqlx::query_as!(
            ChangedRow,
            r#"SELECT
                   tenants.tenant_id,
                   tenants.head_seq,
                   CASE WHEN row_number() OVER alike = 1 THEN tenants.head_hash END AS "head_hash?",
                   tenants.head_at,
                   CASE WHEN row_number() OVER alike = 1 THEN tenants.edge END AS "edge?",
                   tenants.revision,
                   remembered.steps AS "steps!",
                   tenants.revision - known.revision AS "behind!",
                   changed.kind AS "kind?",
                   changed.id AS "id?",
                   directory.value AS "value?"
               FROM unnest($1::uuid[], $2::bigint[]) AS known (tenant_id, revision)
               CROSS JOIN LATERAL (
                   SELECT * FROM tenants AS tenant WHERE tenant.tenant_id = known.tenant_id LIMIT 1
               ) AS tenants
               CROSS JOIN LATERAL (
                   SELECT coalesce(sum(step.revision - step.since), 0)::bigint AS steps
                   FROM (
                       SELECT DISTINCT change.revision, change.since
                       FROM directory_changes AS change
                       WHERE change.tenant_id = known.tenant_id
                         AND change.revision > known.revision
                   ) AS step
               ) AS remembered
               LEFT JOIN LATERAL (
                   SELECT DISTINCT change.kind, change.id
                   FROM directory_changes AS change
                   WHERE change.tenant_id = known.tenant_id
                     AND change.revision > known.revision
               ) AS changed ON true
               LEFT JOIN LATERAL (
                   SELECT noun.value
                   FROM directory AS noun
                   WHERE noun.tenant_id = known.tenant_id
                     AND noun.kind = changed.kind
                     AND noun.id = changed.id
                   LIMIT 1
               ) AS directory ON true
               WINDOW alike AS (PARTITION BY tenants.tenant_id)"#,
            &tenants,
            &revisions,
        )
    };
    let rows = store.loads.read(query).await?;
    // What is remembered has to lead to where the tenant is.
    let known = rows.into_iter().filter(|row| row.steps == row.behind);
    let (rows, ids): (Vec<_>, Vec<_>) = known.map(ChangedRow::into_parts).unzip();
    let unchanged = |(tenant, position)| {
        let unchanged = ChangedTenant {
            tenant,
            position,
            nouns: Vec::new(),
        };
        (tenant, unchanged)
    };
    let positions = directories::positions(&rows)?.into_iter();
    let mut found: BTreeMap<_, _> = positions.map(unchanged).collect();
    for (row, id) in rows.into_iter().zip(ids) {
        let tenant = row.tenant();
        if let (Some(changed), Some(noun)) = (found.get_mut(&tenant), changed(tenant, row, id)?) {
            changed.nouns.push(noun);
        }
    }
    Ok(found.into_values().collect())
}

impl ChangedRow {
    /// What a directory that is read whole has of it, and the id of the noun.
    fn into_parts(self) -> (Row, Option<String>) {
        let row = Row {
            tenant_id: self.tenant_id,
            head_seq: self.head_seq,
            head_hash: self.head_hash,
            head_at: self.head_at,
            edge: self.edge,
            revision: self.revision,
            kind: self.kind,
            value: self.value,
        };
        (row, self.id)
    }
}

/// What became of the noun in a row, if there is one.
fn changed(tenant: TenantId, row: Row, id: Option<String>) -> Result<Option<ChangedNoun>, StoreError> {
    let gone = directories::kind(tenant, &row)?.zip(id);
    let there = directories::noun(tenant, row)?;
    Ok(there
        .map(ChangedNoun::There)
        .or_else(|| gone.map(|(kind, id)| ChangedNoun::Gone { kind, id })))
}
