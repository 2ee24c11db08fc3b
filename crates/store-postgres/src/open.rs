//! From an address to a database that is ready: reachable, new enough, ours, and of this program's schema.
//!
//! Everything that can be wrong is said in words that name the server and the database and what to do, and never the password.
//! Nothing is repaired.

use crate::address::Address;
use crate::connect::{self, CONNECT_TIME_MAX};
use crate::connections::look_at;
use crate::tree::{self, TreeError};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::types::Uuid;
use sqlx::{ConnectOptions, Connection};
use std::io::ErrorKind;
use tokio::time::timeout;

/// The schema, a step a file.
static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// The tables, and the rights that a gateway needs on each for what it does there. To lock rows takes the right to
/// update them.
pub(crate) const NEEDED_RIGHTS: &[(&str, &str)] = &[
    ("tenants", "SELECT, INSERT, UPDATE"),
    ("audit_events", "SELECT, INSERT, UPDATE"),
    ("decisions", "SELECT, INSERT, DELETE"),
    ("receipts", "SELECT, INSERT, DELETE"),
    ("requests", "SELECT, INSERT, DELETE"),
    ("outcomes", "SELECT, INSERT, UPDATE"),
    ("directory", "SELECT, INSERT, UPDATE, DELETE"),
    ("directory_changes", "SELECT, INSERT, UPDATE, DELETE"),
    ("contents", "SELECT, INSERT"),
    ("approvals", "SELECT, INSERT, UPDATE, DELETE"),
    ("runs", "SELECT, INSERT, UPDATE"),
    ("run_links", "SELECT, INSERT"),
    ("budgets", "SELECT, INSERT, UPDATE"),
    ("reservations", "SELECT, INSERT, UPDATE, DELETE"),
    ("replies", "SELECT, INSERT, UPDATE, DELETE"),
    ("quota_counters", "SELECT, INSERT, UPDATE, DELETE"),
    ("buckets", "SELECT, INSERT, UPDATE, DELETE"),
    ("search_blocks", "SELECT, INSERT, UPDATE, DELETE"),
    ("search_postings", "SELECT, INSERT, DELETE"),
];
/// The oldest server that is tested with, as it writes its version.
const SERVER_VERSION_MIN: u32 = 150_000;
/// The only encoding in which every text can be kept.
const ENCODING: &str = "UTF8";

/// Why a database could not be opened. No message holds a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL does not say where the database is. It is not repeated, because a password may be in it.
    #[error("the URL of the PostgreSQL database is not right: {expected}")]
    Url {
        /// What would be right.
        expected: &'static str,
    },
    /// Something behind the `?` of the URL is not known.
    #[error(
        "the URL of the PostgreSQL database is not right: the parameters behind its `?` can be {known}; {found} is none of these"
    )]
    Parameter {
        /// Its name in backticks, if that is surely no piece of a password.
        found: String,
        /// Those that are known.
        known: String,
    },
    /// Neither the URL nor the environment names a user.
    #[error("the URL of the PostgreSQL database names no user: name one in it or in `PGUSER`")]
    Nobody,
    /// A variable that counts for what the URL leaves out holds nothing that is known.
    #[error("`{name}` is `{found}`, and can be {expected}")]
    Variable {
        /// Which one. It is no secret.
        name: &'static str,
        /// What it holds.
        found: String,
        /// What it can hold.
        expected: &'static str,
    },
    /// A way to reach the server that is not what PostgreSQL's own programs make of it.
    #[error("`{name}` is {told}")]
    Mode {
        /// The parameter or the variable that says so.
        name: &'static str,
        /// The mode, why it is refused, and what to say in its place.
        told: &'static str,
    },
    /// A file of authorities is named that nothing would be held against.
    #[error(
        "`{name}` names an authority, and the server's certificate is held against it with `sslmode=verify-full` only: set that mode, or unset `{name}`; where there is no TLS, as over a Unix socket, `sslmode=disable` has the variable passed over"
    )]
    Authority {
        /// The parameter or the variable that names it.
        name: &'static str,
    },
    /// Nobody answers there.
    #[error(
        "no PostgreSQL server answers at `{server}`: check the host, the port, `sslmode` and that it is running"
    )]
    Unreachable {
        /// The host and the port, or the folder of the socket.
        server: String,
        /// What the network says.
        #[source]
        source: sqlx::Error,
    },
    /// A file that the connection takes is not there.
    #[error(
        "a file is not there that `sslrootcert`, `sslcert` or `sslkey` names for the server at `{server}`"
    )]
    NoFile {
        /// The host and the port.
        server: String,
        /// What the operating system says.
        #[source]
        source: sqlx::Error,
    },
    /// The server did not finish answering.
    #[error("the PostgreSQL server at `{server}` did not take the connection in time")]
    TimedOut {
        /// The host and the port, or the folder of the socket.
        server: String,
    },
    /// The user or the password is wrong.
    #[error("the PostgreSQL server at `{server}` does not let `{user}` in: check the user and the password")]
    Refused {
        /// The host and the port, or the folder of the socket.
        server: String,
        /// Who tried.
        user: String,
        /// What the server says.
        #[source]
        source: sqlx::Error,
    },
    /// The database has to be made by somebody who may.
    #[error(
        "there is no database `{database}` at `{server}`: make it first, with `CREATE DATABASE \"{database}\"`"
    )]
    NoDatabase {
        /// The host and the port, or the folder of the socket.
        server: String,
        /// Its name.
        database: String,
    },
    /// The server is older than any that this program is tested with.
    #[error("the PostgreSQL server at `{server}` is version {found}: it takes 15 or newer")]
    OldServer {
        /// The host and the port, or the folder of the socket.
        server: String,
        /// Its version.
        found: u32,
    },
    /// The server follows another one.
    #[error(
        "the PostgreSQL server at `{server}` is a standby, which takes no commits and may be behind: name the primary"
    )]
    Standby {
        /// The host and the port, or the folder of the socket.
        server: String,
    },
    /// Somebody between has dropped the settings that were sent with the start of the connection.
    #[error(
        "the PostgreSQL server at `{server}` was reached without the settings of the connection, as through a pooler \
         that drops `options`: name the server itself, or a pooler that hands `options` on to it"
    )]
    SettingsLost {
        /// The host and the port, or the folder of the socket.
        server: String,
    },
    /// The database cannot keep every text.
    #[error(
        "the database `{database}` is encoded in {found}: make one with `ENCODING 'UTF8' TEMPLATE template0`"
    )]
    Encoding {
        /// Where it is.
        database: String,
        /// Its encoding.
        found: String,
    },
    /// The database belongs to another program.
    #[error("`{database}` holds tables of another program: use a database of its own, or a schema")]
    Foreign {
        /// Where it is.
        database: String,
    },
    /// A newer program has been at work here.
    #[error(
        "the database `{database}` has schema {found}, this program knows {known}: start a newer version of it"
    )]
    Newer {
        /// Where it is.
        database: String,
        /// The version of its schema.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The schema is not the one that the migrations of this program make.
    #[error("the schema of `{database}` could not be brought up to date")]
    Migrate {
        /// Where it is.
        database: String,
        /// Which migration, and why.
        #[source]
        source: MigrateError,
    },
    /// The role lacks rights that a gateway needs on tables, which a migration may have made since the role was given
    /// its rights.
    #[error("the role `{user}` lacks rights on tables of `{database}`: `{grants}` as their owner")]
    NoRights {
        /// Where it is.
        database: String,
        /// Who lacks them.
        user: String,
        /// The statements that give all that are needed on each such table.
        grants: String,
    },
    /// A copy goes on into a database on which a gateway was to start.
    #[error("a copy into the database `{database}` is going on: start the gateway when it is done")]
    CopiedTo {
        /// Where it is.
        database: String,
    },
    /// Another copy goes on into a database, or a gateway starts on it.
    #[error(
        "another copy into the database `{database}` is going on, or a gateway begins in it: leave it to that one, and \
         copy into another, empty database if this copy is meant as well"
    )]
    Claimed {
        /// Where it is.
        database: String,
    },
    /// A ledger from before trees were kept is not what was recorded.
    #[error("{broken} in `{database}`, so there can be no tree over this ledger: put a backup in its place")]
    Broken {
        /// Where it is.
        database: String,
        /// Which entry.
        broken: String,
    },
    /// The server did not do as it was asked.
    #[error("the database `{database}` could not be opened")]
    Database {
        /// Where it is.
        database: String,
        /// What the server says.
        #[source]
        source: sqlx::Error,
    },
}

/// What the schema of a database turns out to be.
enum Schema {
    /// Nothing is there yet, or an older step of ours.
    Behind,
    /// Exactly what this program makes.
    UpToDate,
}

/// Checks the database and brings its schema up to date. Returns an id that no other store has.
pub(crate) async fn prepare(address: &Address) -> Result<Uuid, OpenError> {
    let mut connection = connect(address).await?;
    let failed = |source| failed(address, source);
    check_server(address, &mut connection).await?;
    // A role that may not change the schema can still serve, if there is nothing to change.
    if let Schema::Behind = schema(address, &mut connection).await? {
        migrate(address).await?;
    }
    match tree::complete(&mut connection).await {
        Ok(()) => {}
        Err(TreeError::Database(source)) => return Err(failed(source)),
        Err(broken @ TreeError::Broken { .. }) => {
            return Err(OpenError::Broken {
                database: address.to_string(),
                broken: broken.to_string(),
            });
        }
    }
    let id = sqlx::query_scalar!(r#"SELECT gen_random_uuid() AS "id!""#)
        .fetch_one(&mut connection)
        .await
        .map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(id)
}

async fn connect(address: &Address) -> Result<PgConnection, OpenError> {
    connect_with(address, &connect::migrator(&address.options)).await
}

/// A connection to the database that is set up like this.
pub(crate) async fn connect_with(
    address: &Address,
    options: &PgConnectOptions,
) -> Result<PgConnection, OpenError> {
    match timeout(CONNECT_TIME_MAX, options.connect()).await {
        Ok(connected) => connected.map_err(|error| not_connected(address, error)),
        Err(_) => Err(OpenError::TimedOut {
            server: address.server(),
        }),
    }
}

fn not_connected(address: &Address, source: sqlx::Error) -> OpenError {
    let server = address.server();
    let code = source
        .as_database_error()
        .and_then(|error| Some(error.code()?.into_owned()));
    match code.as_deref() {
        // invalid_password, invalid_authorization_specification
        Some("28P01" | "28000") => OpenError::Refused {
            server,
            user: address.user().to_owned(),
            source,
        },
        // invalid_catalog_name
        Some("3D000") => OpenError::NoDatabase {
            server,
            database: address.database().to_owned(),
        },
        Some(_) => failed(address, source),
        None if is_of_a_file(address, &source) => OpenError::NoFile { server, source },
        None => OpenError::Unreachable { server, source },
    }
}

/// Whether this is about a file: of a network nothing is said not to be there in these words, but for a socket.
fn is_of_a_file(address: &Address, error: &sqlx::Error) -> bool {
    let is_absent = matches!(error, sqlx::Error::Io(error) if error.kind() == ErrorKind::NotFound);
    is_absent && !address.is_socket()
}

/// What is said where the server does not do as it was asked.
pub(crate) fn failed(address: &Address, source: sqlx::Error) -> OpenError {
    OpenError::Database {
        database: address.to_string(),
        source,
    }
}

async fn check_server(address: &Address, connection: &mut PgConnection) -> Result<(), OpenError> {
    let version = connection.server_version_num().unwrap_or(0);
    if version < SERVER_VERSION_MIN {
        return Err(OpenError::OldServer {
            server: address.server(),
            found: version / 10_000,
        });
    }
    let reached = look_at(connection).await;
    let reached = reached.map_err(|source| failed(address, source))?;
    if reached.is_standby {
        return Err(OpenError::Standby {
            server: address.server(),
        });
    }
    if !reached.has_settings {
        return Err(OpenError::SettingsLost {
            server: address.server(),
        });
    }
    let settings = sqlx::query!(
        r#"SELECT
               current_setting('server_encoding') AS "encoding!",
               current_setting('fsync') AS "fsync!""#
    )
    .fetch_one(connection)
    .await
    .map_err(|source| failed(address, source))?;
    if settings.encoding != ENCODING {
        return Err(OpenError::Encoding {
            database: address.to_string(),
            found: settings.encoding,
        });
    }
    if settings.fsync != "on" {
        tracing::warn!(
            fsync = settings.fsync,
            "the PostgreSQL server runs with fsync = {}: what it commits may not survive the loss of power",
            settings.fsync
        );
    }
    Ok(())
}

/// Fails if the role cannot do with each table what a gateway does: that would show with the first ask, or when
/// somebody is to be frozen, or not at all where the search index is not kept up.
pub(crate) async fn check_rights(address: &Address) -> Result<(), OpenError> {
    let mut connection = connect(address).await?;
    let failed = |source| failed(address, source);
    let (tables, rights): (Vec<&str>, Vec<&str>) = NEEDED_RIGHTS.iter().copied().unzip();
    // Of several rights in one text the server would tell whether there is any.
    let denied = sqlx::query!(
        r#"SELECT
               name AS "table!",
               rights AS "rights!",
               current_user::text AS "user!"
           FROM unnest($1::text[], $2::text[]) AS needed (name, rights)
           WHERE EXISTS (
               SELECT
               FROM unnest(string_to_array(rights, ', ')) AS one (word)
               WHERE NOT has_table_privilege(name, word)
           )"#,
        &tables[..] as &[&str],
        &rights[..] as &[&str],
    )
    .fetch_all(&mut connection)
    .await
    .map_err(failed)?;
    warn_of_hidden_sessions(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    let Some(first) = denied.first() else {
        return Ok(());
    };
    let grants = denied
        .iter()
        .map(|denied| {
            format!(
                "GRANT {} ON {} TO \"{}\"",
                denied.rights, denied.table, denied.user
            )
        })
        .collect::<Vec<_>>();
    Err(OpenError::NoRights {
        database: address.to_string(),
        user: first.user.clone(),
        grants: grants.join("; "),
    })
}

/// Says so where the role may not see its own sessions, as where each session is made to act as another role: it costs
/// time with every batch, and nothing else.
async fn warn_of_hidden_sessions(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let own = sqlx::query!(
        r#"SELECT
               backend_start IS NULL AS "is_hidden!",
               session_user::text AS "user!",
               current_user::text AS "role!"
           FROM pg_stat_activity
           WHERE pid = pg_backend_pid()"#
    )
    .fetch_one(connection)
    .await?;
    if own.is_hidden {
        tracing::warn!(
            user = own.user,
            role = own.role,
            "sessions of `{}` act as the role `{}`, which may not see them, so every batch takes a turn and waits for the \
             server three times: connect as a user that acts as itself, or `GRANT pg_read_all_stats, pg_signal_backend \
             TO \"{}\"` and start again",
            own.user,
            own.role,
            own.role
        );
    }
    Ok(())
}

/// Looks at what is there, without changing anything.
async fn schema(address: &Address, connection: &mut PgConnection) -> Result<Schema, OpenError> {
    let failed = |source| failed(address, source);
    // What an extension has brought along is nobody's ledger.
    let tables = sqlx::query_scalar!(
        r#"SELECT relname::text AS "name!"
           FROM pg_class
           WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
             AND relkind IN ('r', 'p', 'v', 'm', 'f')
             AND NOT EXISTS (
                 SELECT
                 FROM pg_depend
                 WHERE pg_depend.classid = 'pg_class'::regclass
                   AND pg_depend.objid = pg_class.oid
                   AND pg_depend.deptype = 'e'
             )"#
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(failed)?;
    let foreign = || OpenError::Foreign {
        database: address.to_string(),
    };
    let is_kept = tables.iter().any(|table| *table == MIGRATIONS.table_name);
    if !is_kept {
        return if tables.is_empty() {
            Ok(Schema::Behind)
        } else {
            Err(foreign())
        };
    }
    let applied: Vec<(i64, String, Vec<u8>)> = sqlx::query_as(
        "SELECT version, description, checksum FROM _sqlx_migrations WHERE success ORDER BY version",
    )
    .fetch_all(connection)
    .await
    .map_err(failed)?;
    let Some((_, first, _)) = applied.first() else {
        // Another gateway is making it at this moment.
        return if tables.len() == 1 {
            Ok(Schema::Behind)
        } else {
            Err(foreign())
        };
    };
    let ours: Vec<_> = MIGRATIONS.iter().collect();
    if ours
        .first()
        .is_none_or(|migration| *migration.description != **first)
    {
        return Err(foreign());
    }
    // A role that may not change the schema is not told so by migrating.
    if let Some((found, ..)) = applied.last()
        && *found > newest_known()
    {
        return Err(newer(address, *found));
    }
    let is_same = ours.len() == applied.len()
        && ours.iter().zip(&applied).all(|(ours, (version, _, checksum))| {
            ours.version == *version && ours.checksum[..] == checksum[..]
        });
    Ok(if is_same { Schema::UpToDate } else { Schema::Behind })
}

/// Runs the steps that are missing. Of several gateways that start at once, one does it and the others wait.
async fn migrate(address: &Address) -> Result<(), OpenError> {
    // A pool of one and not a connection, because the future of migrating a connection is not `Send`.
    let one = connect::pool(1)
        // A step may take longer than the server's owner lets a transaction last.
        .after_connect(|connection, _| Box::pin(async move { look_at(connection).await.map(drop) }));
    let one = one
        .connect_with(connect::migrator(&address.options))
        .await
        .map_err(|source| failed(address, source))?;
    let migrated = MIGRATIONS.run(&one).await;
    // Closing it gives back the lock that a failed migration leaves behind.
    one.close().await;
    migrated.map_err(|error| explain(address, error))
}

fn explain(address: &Address, error: MigrateError) -> OpenError {
    match error {
        MigrateError::VersionMissing(found) if found > newest_known() => newer(address, found),
        source => OpenError::Migrate {
            database: address.to_string(),
            source,
        },
    }
}

fn newest_known() -> i64 {
    let versions = MIGRATIONS.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

fn newer(address: &Address, found: i64) -> OpenError {
    OpenError::Newer {
        database: address.to_string(),
        found,
        known: newest_known(),
    }
}
