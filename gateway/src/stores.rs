//! From a URL to a store: the one place that knows which backends there are.

use anyhow::{bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use store_postgres::{OpenError, PostgresStore};
use store_sqlite::SqliteStore;

pub use store_postgres::{Claim, Claimant};

/// What a database URL begins with.
enum Backend {
    Sqlite,
    Postgres,
}

/// Opens the store that a URL names, and brings its schema up to date.
pub async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match backend(url)? {
        Backend::Sqlite => Arc::new(SqliteStore::open(url).await?),
        Backend::Postgres => Arc::new(PostgresStore::open(url).await?),
    })
}

/// Opens the store that a URL names, to read it, where there has to be a ledger: a file that is not there, or empty, is not made,
/// so that a slip in its name is noticed.
pub async fn open_known(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    if let Some(path) = path(url) {
        let is_there = path.metadata().is_ok_and(|file| file.len() > 0);
        ensure!(is_there, "there is no database `{}`", path.display());
    }
    let store: Arc<dyn Store> = match backend(url)? {
        Backend::Sqlite => Arc::new(SqliteStore::open(url).await?),
        Backend::Postgres => Arc::new(PostgresStore::open_to_read(url).await?),
    };
    if store.revisions().await?.is_empty() {
        store.close().await;
        bail!("there is no ledger in the database: no gateway has been started on it");
    }
    Ok(store)
}

/// Keeps others out of a store until what this returns is given back. A SQLite file belongs to whoever has opened it, so
/// nothing more is needed there.
pub async fn claim(url: &str, claimant: Claimant) -> anyhow::Result<Option<Claim>> {
    Ok(match backend(url)? {
        Backend::Sqlite => None,
        Backend::Postgres => Some(PostgresStore::claim(url, claimant).await?),
    })
}

/// Brings the schema of the store that a URL names up to date, and closes it again.
pub async fn migrate(url: &str) -> anyhow::Result<()> {
    match backend(url)? {
        Backend::Sqlite => SqliteStore::open(url).await?.close().await,
        Backend::Postgres => PostgresStore::migrate(url).await.map_err(half_way)?,
    }
    Ok(())
}

/// Says of what may have come after some of the steps that those stay.
fn half_way(error: OpenError) -> anyhow::Error {
    let may_have_begun = matches!(
        error,
        OpenError::Migrate { .. } | OpenError::Broken { .. } | OpenError::Database { .. }
    );
    let error = anyhow::Error::new(error);
    if may_have_begun {
        error.context(
            "the schema may have come some steps further, if not to the last one; mend what stands here and migrate again, because a version from before those steps refuses the database",
        )
    } else {
        error
    }
}

/// A file that belongs to a store: beside the file of the database, or in the working folder if the database is none.
pub fn file_beside(url: &str, extension: &str) -> PathBuf {
    format!(
        "{}.{extension}",
        path(url).unwrap_or(Path::new("countersign")).display()
    )
    .into()
}

/// What a database is called where something is said of it: the URL of one that is no file may hold a password.
pub fn called(url: &str) -> String {
    path(url).map_or_else(
        || "the database".to_owned(),
        |path| format!("the database `{}`", path.display()),
    )
}

/// The file of the database, if it is one.
fn path(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("sqlite:")?;
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)))
}

fn backend(url: &str) -> anyhow::Result<Backend> {
    // Only the scheme is repeated: the rest of a URL may hold a password.
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => Ok(Backend::Sqlite),
        Some("postgres" | "postgresql") => Ok(Backend::Postgres),
        Some(scheme) => anyhow::bail!(
            "`{scheme}:` is not a store that this version knows; use `sqlite:PATH` or `postgres://USER@HOST/DATABASE`"
        ),
        None => {
            anyhow::bail!(
                "the database URL has no scheme; use `sqlite:PATH` or `postgres://USER@HOST/DATABASE`"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{file_beside, half_way};
    use store_postgres::OpenError;

    #[test]
    fn a_schema_that_may_be_half_way_is_not_said_to_be_as_it_was() {
        let database = || "db at host".to_owned();
        let broken = half_way(OpenError::Broken {
            database: database(),
            broken: "entry 2 is missing".to_owned(),
        });
        let told = format!("{broken:#}");
        assert!(told.contains("some steps further"), "{told}");
        assert!(told.contains("entry 2 is missing"), "{told}");
        let before = half_way(OpenError::Foreign { database: database() });
        let told = format!("{before:#}");
        assert!(told.starts_with("`db at host` holds tables"), "{told}");
    }

    #[test]
    fn a_file_stands_beside_the_database() {
        for (url, expected) in [
            ("sqlite:./countersign.db", "./countersign.db.key"),
            ("sqlite:///var/lib/a.db", "/var/lib/a.db.key"),
            ("postgres://user:secret@host/database", "countersign.key"),
        ] {
            assert_eq!(file_beside(url, "key").to_str(), Some(expected));
        }
    }
}
