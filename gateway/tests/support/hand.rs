//! A hand on the database of a gateway: SQL that no gateway would run, in words that are translated for each store.
//!
//! - `entry = #9` is the row of the tenant's entry 9 (on PostgreSQL also of other tenants with as many entries);
//! - `(PLACE, …) SELECT ENTRY #9, …` begins a new row for that entry; `ITS` keeps to the tenant's rows, `MINE` to its
//!   row in `tenants`;
//! - `<<text>>` makes bytes of a text, `[[bytes]]` a text of bytes;
//! - `zeroblob(n)` is n bytes of zero, `NOBODY` an id of zeros.

use super::home::Home;
use model::{BudgetId, TenantId};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::fmt::Write;
use store::{Recorded, Store};

/// PostgreSQL has no function of this name.
const ZEROBLOB: &str = "CREATE FUNCTION zeroblob(integer) RETURNS bytea LANGUAGE sql \
    AS $$ SELECT decode(repeat('00', $1), 'hex') $$";

/// The hand.
pub(crate) enum Hand {
    /// With what stands before the `seq` in the number of an entry.
    Sqlite(SqliteConnection, i64),
    /// With the tenant's id.
    Postgres(PgConnection, String),
}

impl Hand {
    /// A hand on what one tenant has recorded.
    pub(crate) async fn on(home: &Home, tenant: TenantId) -> Self {
        if let Home::Database(database) = home {
            let id = format!("{:032x}", u128::from_be_bytes(*tenant.as_bytes()));
            let mut connection = database.stranger().await;
            sqlx::raw_sql(ZEROBLOB).execute(&mut connection).await.unwrap();
            return Self::Postgres(connection, id);
        }
        let options = SqliteConnectOptions::new().filename(home.file());
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let base = sqlx::query_scalar("SELECT tenant_no << 40 FROM tenants WHERE tenant_id = ?")
            .bind(&tenant.as_bytes()[..])
            .fetch_one(&mut connection)
            .await
            .unwrap();
        Self::Sqlite(connection, base)
    }

    /// Takes the triggers away, as somebody with the file or the right role can.
    pub(crate) async fn disarm(&mut self) {
        let texts: Vec<String> = match self {
            Self::Sqlite(connection, _) => sqlx::query_scalar(
                "SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type = 'trigger'",
            )
            .fetch_all(connection)
            .await
            .unwrap(),
            Self::Postgres(connection, _) => sqlx::query_scalar(
                "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger WHERE NOT tgisinternal",
            )
            .fetch_all(connection)
            .await
            .unwrap(),
        };
        assert!(!texts.is_empty(), "nothing protects the ledger");
        for text in texts {
            self.execute(text).await;
        }
    }

    /// Has every body and answer of a tenant stand in the file as the text that it is, as it did before they were
    /// packed: SQL cannot replace what it cannot read. On PostgreSQL they do.
    pub(crate) async fn lay_open(&mut self, store: &dyn Store, tenant: TenantId) {
        let Self::Sqlite(connection, base) = self else {
            return;
        };
        let mut all: Vec<Recorded> = Vec::new();
        loop {
            let next = all.last().map_or(1, |last| last.entry.seq + 1);
            let page = store.recorded(tenant, next, u32::MAX).await.unwrap();
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        for Recorded { entry, receipt, .. } in all {
            let number = *base + entry.seq.cast_signed();
            if entry.erased.is_none() {
                sqlx::query("UPDATE audit_events SET body = ?, packed = NULL WHERE entry = ?")
                    .bind(&entry.body)
                    .bind(number)
                    .execute(&mut *connection)
                    .await
                    .unwrap();
            }
            if let Some(answer) = receipt {
                sqlx::query("UPDATE receipts SET bytes = ? WHERE entry = ?")
                    .bind(answer)
                    .bind(number)
                    .execute(&mut *connection)
                    .await
                    .unwrap();
            }
        }
    }

    /// Puts the key of the log that was published into the directory once more, under a label that is not its own.
    /// Gateways read it when they start.
    pub(crate) async fn double_log_key(&mut self) {
        self.run(
            r#"CREATE TABLE doubled AS SELECT * FROM directory WHERE kind = 'log_key';
               UPDATE doubled
               SET id = 'log.example+00000000',
                   value = replace(value, '"label":"' || id || '"', '"label":"log.example+00000000"');
               INSERT INTO directory SELECT * FROM doubled;
               DROP TABLE doubled"#,
        )
        .await;
    }

    /// What SQL says for these bytes.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let mut digits = String::new();
        for byte in bytes {
            write!(digits, "{byte:02x}").unwrap();
        }
        match self {
            Self::Sqlite(..) => format!("unhex('{digits}')"),
            Self::Postgres(..) => format!("decode('{digits}', 'hex')"),
        }
    }

    /// Puts so many budgets beside the tenant's only one in this unit that are what it is but for their ids, which are
    /// the next ones.
    pub(crate) async fn multiply_budget(&mut self, id: BudgetId, unit: &str, times: u32) {
        let mut sql = format!(
            "CREATE TEMPORARY TABLE doubled AS SELECT * FROM budgets WHERE MINE AND unit = '{unit}'; BEGIN;"
        );
        let (mut last, number) = (id, u128::from_be_bytes(*id.as_bytes()));
        for step in 1..=u128::from(times) {
            let next = BudgetId::from_bytes((number + step).to_be_bytes());
            let digits = format!("{:032x}", number + step);
            let bytes = match self {
                Self::Sqlite(..) => format!("unhex('{digits}')"),
                Self::Postgres(..) => format!("'{digits}'"),
            };
            write!(
                sql,
                "UPDATE doubled SET id = {bytes}, value = replace(value, '{last}', '{next}');
                 INSERT INTO budgets SELECT * FROM doubled;"
            )
            .unwrap();
            last = next;
        }
        sql.push_str("COMMIT; DROP TABLE doubled");
        self.run(&sql).await;
    }

    /// Runs SQL.
    pub(crate) async fn run(&mut self, sql: &str) {
        let text = match self {
            Self::Sqlite(_, base) => {
                let words = [
                    ("PLACE", "entry"),
                    ("SELECT ENTRY ", "SELECT "),
                    ("ITS", "TRUE"),
                    ("MINE", &format!("tenant_no * 1099511627776 = {base}")),
                    ("<<", "CAST("),
                    (">>", " AS BLOB)"),
                    ("[[", "CAST("),
                    ("]]", " AS TEXT)"),
                    ("NOBODY", "zeroblob(16)"),
                ];
                with_entries(&replaced(sql, &words), *base)
            }
            Self::Postgres(_, tenant) => {
                let mine = format!("tenant_id = '{tenant}'");
                let words = [
                    ("PLACE", "tenant_id, seq"),
                    ("SELECT ENTRY ", &*format!("SELECT '{tenant}'::uuid, ")),
                    ("ITS", &mine),
                    ("MINE", &mine),
                    ("entry", "seq"),
                    ("<<", "convert_to("),
                    (">>", ", 'UTF8')"),
                    ("[[", "convert_from("),
                    ("]]", ", 'UTF8')"),
                    ("NOBODY", "'00000000-0000-0000-0000-000000000000'"),
                ];
                with_entries(&replaced(sql, &words), 0)
            }
        };
        self.execute(text).await;
    }

    async fn execute(&mut self, text: String) {
        let text = sqlx::raw_sql(AssertSqlSafe(text));
        match self {
            Self::Sqlite(connection, _) => drop(text.execute(connection).await.unwrap()),
            Self::Postgres(connection, _) => drop(text.execute(connection).await.unwrap()),
        }
    }
}

fn replaced(sql: &str, words: &[(&str, &str)]) -> String {
    words
        .iter()
        .fold(sql.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// With the number of an entry for every `#9`.
fn with_entries(sql: &str, base: i64) -> String {
    let mut text = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('#') {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let seq: i64 = after[..digits].parse().unwrap();
        text.push_str(before);
        text.push_str(&(base + seq).to_string());
        rest = &after[digits..];
    }
    text.push_str(rest);
    text
}
