//! Who may open what: every wrong address is said in words that help, and none of them holds the password.

use super::{database, open, open_at, server, write_three};
use crate::open::NEEDED_RIGHTS;
use crate::testing::{Database, Network, Server};
use crate::{OpenError, PostgresStore};
use async_trait::async_trait;
use sqlx::{Connection, PgConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use store::conformance::sample::Chain;
use store::conformance::{Fixture, causes, load};
use tokio::sync::Mutex;

/// Opens what cannot be opened, and returns why, after making sure that the password is nowhere in it.
async fn refused(url: &str) -> (OpenError, String) {
    let error = PostgresStore::open(url).await.unwrap_err();
    let message = causes(&error);
    for secret in [password(url), password(&server().unwrap())] {
        assert!(!message.contains(&secret), "{message}");
        assert!(!format!("{error:?} {error:#?}").contains(&secret), "{error:?}");
    }
    (error, message)
}

fn password(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    let (user, _) = rest.rsplit_once('@').unwrap();
    user.split_once(':').unwrap().1.to_owned()
}

#[tokio::test]
async fn a_wrong_password_names_the_server_and_the_user() {
    let database = database().await;
    let url = database
        .url()
        .replace(&password(&database.url()), "not-the-password");
    let (error, message) = refused(&url).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{message}");
    assert!(message.contains("does not let `countersign` in"), "{message}");
    let url = database.url().replace("countersign:", "nobody:");
    let (error, message) = refused(&url).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{message}");
    assert!(message.contains("`nobody`"), "{message}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named_with_how_to_make_it() {
    let database = database().await;
    let url = database.url().replace(database.name(), "no_such_ledger");
    let (error, message) = refused(&url).await;
    assert!(matches!(error, OpenError::NoDatabase { .. }), "{message}");
    assert!(
        message.contains("`CREATE DATABASE \"no_such_ledger\"`"),
        "{message}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    // It takes connections and says nothing.
    let begin = Instant::now();
    let (error, message) = refused(&format!("postgres://u:a-password@{place}/ledger")).await;
    assert!(matches!(error, OpenError::TimedOut { .. }), "{message}");
    assert!(message.contains(&place), "{message}");
    assert!(begin.elapsed() < Duration::from_secs(30));
    drop(listener);
    for host in [&place[..], "no-such-host.invalid:5432"] {
        let (error, message) = refused(&format!("postgres://u:a-password@{host}/ledger")).await;
        let is_told = match error {
            OpenError::Unreachable { .. } => true,
            // Nobody may say in time where the host is.
            OpenError::TimedOut { .. } => host != place,
            _ => false,
        };
        assert!(is_told, "{message}");
        assert!(message.contains(host), "{message}");
    }
}

/// Whether this machine has addresses of IPv6: some have that switched off.
fn has_ipv6() -> bool {
    let has = std::net::TcpListener::bind("[::1]:0").is_ok();
    if !has {
        println!("skipped: this machine has no `::1`");
    }
    has
}

#[tokio::test]
async fn a_server_is_reached_at_an_address_of_ipv6() {
    if !has_ipv6() {
        return;
    }
    let database = database().await;
    let network = Network::at("[::1]:0", &database.url()).await;
    let url = network.url(&database.url());
    assert!(url.contains("@[::1]:"), "{url}");
    let store = open_at(&url).await;
    write_three(&store, &mut Chain::new(1)).await;
    store::Store::close(&store).await;
}

/// As a newer version leaves the schema.
async fn move_on(stranger: &mut PgConnection) {
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', TRUE, '', 0)",
    )
    .execute(stranger)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_with_both_versions() {
    let database = database().await;
    drop(open(&database).await);
    let mut stranger = database.stranger().await;
    move_on(&mut stranger).await;
    let (error, message) = refused(&database.url()).await;
    assert!(matches!(error, OpenError::Newer { found: 9999, .. }), "{message}");
    assert!(message.contains("start a newer version"), "{message}");
    assert!(matches!(
        PostgresStore::migrate(&database.url()).await,
        Err(OpenError::Newer { .. })
    ));
}

#[tokio::test]
async fn a_migration_that_was_changed_afterwards_is_refused() {
    let database = database().await;
    drop(open(&database).await);
    let mut stranger = database.stranger().await;
    let change = sqlx::query("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1");
    change.execute(&mut stranger).await.unwrap();
    let (error, message) = refused(&database.url()).await;
    assert!(matches!(error, OpenError::Migrate { .. }), "{message}");
    assert!(message.contains("migration 1"), "{message}");
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_not_touched() {
    let theirs = "CREATE TABLE theirs (a int)";
    // The second is of a program that keeps its schema in the same way.
    let alike =
        "CREATE TABLE _sqlx_migrations (version bigint, description text, success boolean, checksum bytea);
                 INSERT INTO _sqlx_migrations VALUES (1, 'something else', TRUE, '')";
    for theirs in [theirs, alike] {
        let database = database().await;
        let mut stranger = database.stranger().await;
        sqlx::raw_sql(theirs).execute(&mut stranger).await.unwrap();
        let (error, message) = refused(&database.url()).await;
        assert!(matches!(error, OpenError::Foreign { .. }), "{message}");
        let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .fetch_one(&mut stranger)
            .await
            .unwrap();
        assert_eq!(tables, 1);
    }
}

#[tokio::test]
async fn a_database_that_cannot_keep_every_text_is_refused() {
    let latin = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    let database = Database::make_with(server(), latin).await;
    let (error, message) = refused(&database.url()).await;
    assert!(matches!(error, OpenError::Encoding { .. }), "{message}");
    assert!(message.contains("LATIN1"), "{message}");
}

#[tokio::test]
async fn many_gateways_that_start_at_once_make_one_schema() {
    let database = database().await;
    let url = database.url();
    let starting: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { PostgresStore::open(&url).await.map(drop) })
        })
        .collect();
    for one in starting {
        one.await.unwrap().unwrap();
    }
    assert!(load(&open(&database).await).await.is_empty());
}

/// Makes a role that may read and write and not change the schema, and returns its name and the URL for it.
pub(super) async fn make_role(database: &Database, stranger: &mut PgConnection) -> (String, String) {
    let role = format!("{}_role", database.name());
    let make = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'another-password';
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(make))
        .execute(stranger)
        .await
        .unwrap();
    let url = database
        .url()
        .replace(&password(&database.url()), "another-password");
    let url = url.replace("countersign:", &format!("{role}:"));
    (role, url)
}

pub(super) async fn drop_role(role: &str, mut stranger: PgConnection) {
    let gone = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(gone))
        .execute(&mut stranger)
        .await
        .unwrap();
    stranger.close().await.unwrap();
}

#[tokio::test]
async fn a_role_that_may_not_change_the_schema_can_serve() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    let (role, url) = make_role(&database, &mut stranger).await;
    let store = PostgresStore::open(&url).await.unwrap();
    write_three(&store, &mut Chain::new(1)).await;
    store.close().await;
    drop_role(&role, stranger).await;
}

#[tokio::test]
async fn a_role_that_lacks_a_right_on_any_table_is_refused() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    let (role, url) = make_role(&database, &mut stranger).await;
    for (table, revoked, needed) in [
        // As where a migration has made the table since.
        ("directory_changes", "ALL", "SELECT, INSERT, UPDATE, DELETE"),
        ("receipts", "INSERT", "SELECT, INSERT, DELETE"),
        ("search_postings", "DELETE", "SELECT, INSERT, DELETE"),
    ] {
        let revoke = format!("REVOKE {revoked} ON {table} FROM {role}");
        let revoke = sqlx::raw_sql(sqlx::AssertSqlSafe(revoke));
        revoke.execute(&mut stranger).await.unwrap();
        let (error, message) = refused(&url).await;
        assert!(matches!(error, OpenError::NoRights { .. }), "{message}");
        let grant = format!("GRANT {needed} ON {table} TO \"{role}\"");
        assert!(message.contains(&format!("`{grant}`")), "{message}");
        // Whoever only reads needs no more than that.
        PostgresStore::open_to_read(&url).await.unwrap().close().await;
        let grant = sqlx::raw_sql(sqlx::AssertSqlSafe(grant));
        grant.execute(&mut stranger).await.unwrap();
        PostgresStore::open(&url).await.unwrap().close().await;
    }
    drop_role(&role, stranger).await;
}

#[tokio::test]
async fn all_tables_on_which_a_role_lacks_rights_are_named_at_once() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    let (role, url) = make_role(&database, &mut stranger).await;
    let revoke = format!("REVOKE SELECT ON run_links FROM {role}; REVOKE ALL ON budgets FROM {role}");
    let revoke = sqlx::raw_sql(sqlx::AssertSqlSafe(revoke));
    revoke.execute(&mut stranger).await.unwrap();
    let (_, message) = refused(&url).await;
    let (_, told) = message.split_once(": `").unwrap();
    let (grants, _) = told.split_once('`').unwrap();
    for (table, needed) in [
        ("run_links", "SELECT, INSERT"),
        ("budgets", "SELECT, INSERT, UPDATE"),
    ] {
        let grant = format!("GRANT {needed} ON {table} TO \"{role}\"");
        assert!(grants.contains(&grant), "{message}");
    }
    // Together they are all that is missing, and can be run as they stand there.
    let grants = sqlx::raw_sql(sqlx::AssertSqlSafe(grants.to_owned()));
    grants.execute(&mut stranger).await.unwrap();
    PostgresStore::open(&url).await.unwrap().close().await;
    drop_role(&role, stranger).await;
}

#[tokio::test]
async fn the_rights_on_every_table_are_looked_at() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut tables: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_sqlx_migrations'",
    )
    .fetch_all(&mut database.stranger().await)
    .await
    .unwrap();
    tables.sort_unstable();
    let mut looked_at: Vec<_> = NEEDED_RIGHTS.iter().map(|(table, _)| *table).collect();
    looked_at.sort_unstable();
    assert_eq!(tables, looked_at);
}

/// A database, and a role that has the rights there that a start looks for, and no others.
struct Confined {
    database: Database,
    role: String,
    url: String,
    open: Mutex<Option<Arc<PostgresStore>>>,
}

impl Confined {
    async fn make() -> Self {
        let database = database().await;
        PostgresStore::migrate(&database.url()).await.unwrap();
        let mut stranger = database.stranger().await;
        let (role, url) = make_role(&database, &mut stranger).await;
        let grants = NEEDED_RIGHTS
            .iter()
            .map(|(table, rights)| format!("GRANT {rights} ON {table} TO {role}"))
            .collect::<Vec<_>>();
        let confine = format!(
            "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role};
             GRANT SELECT ON _sqlx_migrations TO {role};
             {}",
            grants.join("; ")
        );
        let confine = sqlx::raw_sql(sqlx::AssertSqlSafe(confine));
        confine.execute(&mut stranger).await.unwrap();
        Self {
            database,
            role,
            url,
            open: Mutex::default(),
        }
    }

    async fn close(&self) {
        if let Some(store) = self.open.lock().await.take() {
            store.close().await;
        }
    }

    async fn end(self) {
        self.close().await;
        drop_role(&self.role, self.database.stranger().await).await;
    }
}

#[async_trait]
impl Fixture for Confined {
    async fn open(&self) -> Arc<dyn Store> {
        let store = Arc::new(open_at(&self.url).await);
        *self.open.lock().await = Some(Arc::clone(&store));
        store
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.close().await;
        self.open().await
    }
}

/// Everything that is done with rows is done in one of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_are_looked_for_are_enough() {
    macro_rules! are_kept {
        ($($module:ident::$promise:ident,)*) => {
            $(
                let confined = Confined::make().await;
                store::conformance::$module::$promise(&confined).await;
                confined.end().await;
            )*
        };
    }
    are_kept! {
        erasures::an_erased_body_is_gone_with_all_that_tells_of_it,
        erasures::what_was_held_is_gone_with_the_body_that_told_of_it,
        directories::a_noun_is_replaced_and_taken_away,
        directories::what_has_changed_since_leads_to_what_is_there,
        records::contents_are_found_by_their_digest_once_they_are_written,
        approvals::an_approval_is_as_it_was_written_last,
        runs::a_family_of_runs_has_the_level_of_the_one_that_began_it,
        budgets::an_ancestry_of_runs_is_found_upwards_and_never_changed,
        budgets::a_budget_is_as_it_was_written_last,
        budgets::answers_are_forgotten_that_were_given_long_ago,
        counters::counters_that_nothing_was_counted_in_for_long_are_forgotten,
        buckets::what_is_given_back_can_be_lent_again,
        buckets::only_full_buckets_are_forgotten,
        index::a_block_that_is_taken_out_by_force_is_gone,
    }
}

#[tokio::test]
async fn a_newer_version_is_named_to_a_role_that_may_not_change_the_schema() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    move_on(&mut stranger).await;
    let (role, url) = make_role(&database, &mut stranger).await;
    let (error, message) = refused(&url).await;
    assert!(matches!(error, OpenError::Newer { found: 9999, .. }), "{message}");
    drop_role(&role, stranger).await;
}

#[tokio::test]
async fn a_connection_is_as_safe_as_the_url_asks() {
    let server = Server::start();
    let url = |mode: &str| server.url().replace("sslmode=disable", mode);
    let is_encrypted = async |url: &str| -> Result<bool, OpenError> {
        let store = PostgresStore::open(url).await?;
        let mut lent = store.turns.lend().await.unwrap();
        let query = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        Ok(query.fetch_one(lent.start().unwrap()).await.unwrap())
    };
    assert!(!is_encrypted(&url("sslmode=disable")).await.unwrap());
    assert!(is_encrypted(&url("sslmode=prefer")).await.unwrap());
    assert!(is_encrypted(&url("sslmode=require")).await.unwrap());
    let known = format!("sslmode=verify-full&sslrootcert={}", server.authority().display());
    assert!(is_encrypted(&url(&known)).await.unwrap());
    if has_ipv6() {
        // Its certificate is for this address, too.
        let network = Network::at("[::1]:0", &server.url()).await;
        assert!(is_encrypted(&network.url(&url(&known))).await.unwrap());
    }
    let (error, message) = refused(&url("sslmode=verify-full&sslrootcert=/no/such/file")).await;
    assert!(matches!(error, OpenError::NoFile { .. }), "{message}");
    assert!(message.contains("`sslrootcert`"), "{message}");
    // Nobody knows its authority, unless told.
    let (error, message) = refused(&url("sslmode=verify-full")).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{message}");
    assert!(message.contains("certificate"), "{message}");
}
