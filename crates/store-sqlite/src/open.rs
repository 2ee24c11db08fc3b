//! From a URL to a database that is ready: found, claimed, ours, and of this program's schema.
//!
//! Everything that can be wrong is said in words that name the file and what to do. Nothing is repaired.

use crate::checkpoint;
use crate::connect;
use crate::file;
use crate::requests;
use crate::tree::{self, TreeError};
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, SqlitePool};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The schema, a step a file.
static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// What the first migration writes into the header of the file: "`CSgn`".
const APPLICATION_ID: i64 = 0x4353_676e;

/// What SQLite says where there is no room: `SQLITE_FULL`, and `SQLITE_IOERR_SHMSIZE` of the index of the log.
const NO_ROOM: [&str; 2] = ["13", "4874"];

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL does not name a file.
    #[error("`{url}` names no SQLite file: {expected}")]
    Url {
        /// What was given.
        url: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The folder is missing: it is not made, because a misspelt path would become an empty database.
    #[error("the folder of the database `{}` does not exist: make it first, or check the path", database.display())]
    NoFolder {
        /// The path of the database.
        database: PathBuf,
        /// What the file system says.
        #[source]
        source: std::io::Error,
    },
    /// A link to nothing: with the file it would get another name, and a lock under each.
    #[error("`{}` is a link to a file that does not exist: make that file first, empty, or name it instead", database.display())]
    DanglingLink {
        /// The path of the link.
        database: PathBuf,
    },
    /// The file has several names. SQLite takes the log and its locks for those of one of them
    /// (<https://www.sqlite.org/howtocorrupt.html>, section 2.5).
    #[error("`{}` has {names} names (hard links), of which each would have a log and a lock of its own: remove the others, or use a copy", database.display())]
    HardLinks {
        /// The path of the database.
        database: PathBuf,
        /// How many.
        names: u64,
    },
    /// The file is mounted by itself, as into a container. Its log and its lock are in the folder around it, which
    /// others that have the same file do not share, and which may go with the container.
    #[error("`{}` is mounted by itself, so its log and its lock would not be where the file is: others that have it would not see them, and they would go with the container; mount the folder that it is in, and first put there what the last container has beside it (`-wal`, `.key`)", database.display())]
    MountedAlone {
        /// The path of the database.
        database: PathBuf,
    },
    /// A log without its database, in which the latest commits may stand. SQLite would delete it, and begin anew.
    #[error("the database `{}` is missing or empty, but its write-ahead log `{}` is not: put the very database back beside it that it belongs to; before you put a backup there, move the log away, because SQLite would write it into the backup; to begin with a new one, move the log away together with the key of the old one", database.display(), log.display())]
    LogAlone {
        /// The path of the database.
        database: PathBuf,
        /// The path of the log.
        log: PathBuf,
    },
    /// There is no room for what SQLite has to write to open it.
    #[error("there is no room to open the database `{}`: the disk is full, or no file may be as large as one beside it has to be (`ulimit -f`); make room, and start again", database.display())]
    NoRoom {
        /// The path of the database.
        database: PathBuf,
        /// What SQLite says.
        #[source]
        source: sqlx::Error,
    },
    /// Another process has it open.
    #[error(
        "the database `{}` is in use by {holder}, which holds `{}`: stop it first, or use another database file",
        database.display(),
        lock.display()
    )]
    InUse {
        /// The path of the database.
        database: PathBuf,
        /// The path of the lock file.
        lock: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// The lock file could not be made or locked.
    #[error("could not lock `{}`: check that its folder can be written to and is not on a network file system", path.display())]
    Claim {
        /// The path of the lock file.
        path: PathBuf,
        /// What the file system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is a database of another program.
    #[error("`{}` is a database of another program: use another file", database.display())]
    Foreign {
        /// The path of the database.
        database: PathBuf,
    },
    /// A newer program has been at work here.
    #[error(
        "the database `{}` has schema {found}, this program knows {known}: start a newer version of it",
        database.display()
    )]
    Newer {
        /// The path of the database.
        database: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The schema is not the one that the migrations of this program make.
    #[error("the schema of `{}` could not be brought up to date", database.display())]
    Migrate {
        /// The path of the database.
        database: PathBuf,
        /// Which migration, and why.
        #[source]
        source: MigrateError,
    },
    /// A ledger from before trees were kept is not what was recorded.
    #[error("{broken} in `{}`, so there can be no tree over this ledger: move the file away with its `-wal` and `-shm`, and put a backup in its place", database.display())]
    Broken {
        /// The path of the database.
        database: PathBuf,
        /// Which entry.
        broken: String,
    },
    /// The file could not be opened, read or written.
    #[error("the database `{}` could not be opened", database.display())]
    Database {
        /// The path of the database.
        database: PathBuf,
        /// What SQLite says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The file that a URL names, with its links resolved, so that one database has one lock file under any of its names.
pub(crate) fn path_of(url: &str) -> Result<PathBuf, OpenError> {
    let refuse = |expected| OpenError::Url {
        url: url.to_owned(),
        expected,
    };
    let rest = url
        .strip_prefix("sqlite:")
        .ok_or_else(|| refuse("it should begin with `sqlite:`"))?;
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || Path::new(path).is_dir() {
        return Err(refuse("it should name a file, such as `sqlite:countersign.db`"));
    }
    if path == ":memory:" {
        return Err(refuse("a ledger in memory would not outlive the process"));
    }
    if path.contains('?') {
        return Err(refuse("it takes no parameters"));
    }
    resolve(Path::new(path))
}

fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    if let Ok(existing) = path.canonicalize() {
        return with_one_name(existing, is_mount);
    }
    if path.is_symlink() {
        return Err(OpenError::DanglingLink {
            database: path.to_owned(),
        });
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(|source| OpenError::NoFolder {
        database: path.to_owned(),
        source,
    })?;
    let name = path.file_name().ok_or_else(|| OpenError::Url {
        url: path.display().to_string(),
        expected: "it should name a file, such as `sqlite:countersign.db`",
    })?;
    Ok(folder.join(name))
}

/// Refuses a file of which others may have another log: one with several names, and one where `is_mount` says that it is
/// mounted by itself.
fn with_one_name(database: PathBuf, is_mount: fn(&Path) -> bool) -> Result<PathBuf, OpenError> {
    match database.metadata().map(|metadata| metadata.nlink()) {
        Ok(names @ 2..) => Err(OpenError::HardLinks { database, names }),
        Ok(_) if is_mount(&database) => Err(OpenError::MountedAlone { database }),
        // What is wrong with the file itself is said when it is opened.
        Ok(_) | Err(_) => Ok(database),
    }
}

/// Whether something is mounted right there. A system that does not tell has said no.
#[cfg(target_os = "linux")]
fn is_mount(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
const fn is_mount(_path: &Path) -> bool {
    false
}

/// Refuses a log with something in it whose database is not there. SQLite writes the first page of a database before it
/// makes a log, so this one has lost its database.
pub(crate) fn check_log(database: &Path) -> Result<(), OpenError> {
    let log = file::log_path(database);
    let has_bytes = |path: &Path| path.metadata().is_ok_and(|file| file.len() > 0);
    if has_bytes(&log) && !has_bytes(database) {
        return Err(OpenError::LogAlone {
            database: database.to_owned(),
            log,
        });
    }
    Ok(())
}

/// What an error of opening means.
fn failed(database: &Path, source: sqlx::Error) -> OpenError {
    let database = database.to_owned();
    let code = source.as_database_error().and_then(DatabaseError::code);
    if code.is_some_and(|code| NO_ROOM.contains(&&*code)) {
        OpenError::NoRoom { database, source }
    } else {
        OpenError::Database {
            database,
            source: source.into(),
        }
    }
}

/// Opens the file for writing, making it if it is not there, and brings its schema up to date. The write-ahead log is
/// moved whenever it has so many bytes: each row of a large database may have to be rewritten, and nobody else is
/// there to move it yet. Returns also how many frames so many bytes are.
pub(crate) async fn migrated(
    database: &Path,
    log_bytes_max: i64,
) -> Result<(SqliteConnection, i64), OpenError> {
    let failed = |source| failed(database, source);
    let mut connection = SqliteConnection::connect_with(&connect::plain(database))
        .await
        .map_err(failed)?;
    if !is_ours(&mut connection).await.map_err(failed)? {
        return Err(OpenError::Foreign {
            database: database.to_owned(),
        });
    }
    connection.close().await.map_err(failed)?;
    // Only now, because these options change the file (WAL). A pool of one and not the connection itself, because the
    // future of migrating a connection is not `Send`.
    // It stays the same connection, however long that takes: the bound of the log is set on it once.
    let one = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None);
    let one = one.connect_with(connect::aside(database)).await.map_err(failed)?;
    let log_frames_max = bound_log(&one, log_bytes_max).await.map_err(failed)?;
    MIGRATIONS
        .run(&one)
        .await
        .map_err(|error| explain(database, error))?;
    let mut connection = one.acquire().await.map_err(failed)?.detach();
    requests::convert(&mut connection).await.map_err(failed)?;
    tree::complete(&mut connection)
        .await
        .map_err(|error| match error {
            TreeError::Database(source) => failed(source),
            broken @ TreeError::Broken { .. } => OpenError::Broken {
                database: database.to_owned(),
                broken: broken.to_string(),
            },
        })?;
    // From now on the checkpointer moves it.
    let alone = sqlx::query("PRAGMA wal_autocheckpoint = 0");
    alone.execute(&mut connection).await.map_err(failed)?;
    Ok((connection, log_frames_max))
}

/// Has the log moved whenever it has so many bytes. Returns how many frames these are.
async fn bound_log(one: &SqlitePool, log_bytes_max: i64) -> Result<i64, sqlx::Error> {
    let page_bytes = sqlx::query_scalar("PRAGMA page_size").fetch_one(one).await?;
    let frames = checkpoint::frames(log_bytes_max, page_bytes);
    let bound = AssertSqlSafe(format!("PRAGMA wal_autocheckpoint = {frames}"));
    sqlx::query(bound).execute(one).await?;
    Ok(frames)
}

/// Whether the file is one of ours, or about to become one: empty, or left by a first start that died before the first
/// migration, with nothing but the table that says which of them were made.
async fn is_ours(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let id: i64 = sqlx::query_scalar("PRAGMA application_id")
        .fetch_one(&mut *connection)
        .await?;
    if id == APPLICATION_ID {
        return Ok(true);
    }
    let mut names: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .fetch_all(&mut *connection)
        .await?;
    names.retain(|name| name != "_sqlx_migrations");
    if id != 0 || !names.is_empty() {
        return Ok(false);
    }
    let made = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations");
    let made: Result<i64, _> = made.fetch_one(connection).await;
    // Where there is no such table the file is empty.
    Ok(made.unwrap_or(0) == 0)
}

fn explain(database: &Path, error: MigrateError) -> OpenError {
    let known = MIGRATIONS
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0);
    match error {
        MigrateError::VersionMissing(found) if found > known => OpenError::Newer {
            database: database.to_owned(),
            found,
            known,
        },
        source => OpenError::Migrate {
            database: database.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_url_names_a_file_in_three_ways() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let expected = folder.join("a.db");
        for url in [
            format!("sqlite:{}/a.db", folder.display()),
            format!("sqlite://{}/a.db", folder.display()),
            format!("sqlite:{}/./a.db", folder.display()),
        ] {
            assert_eq!(path_of(&url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn a_relative_path_is_taken_from_the_working_folder() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(path_of("sqlite:not-there.db").unwrap(), here.join("not-there.db"));
    }

    #[test]
    fn two_names_of_one_file_are_one_database() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real.db");
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link.db")).unwrap();
        let through_link = path_of(&format!("sqlite:{}/link.db", folder.path().display())).unwrap();
        assert_eq!(through_link, real.canonicalize().unwrap());
    }

    #[test]
    fn a_link_to_nothing_is_refused_until_there_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.db"), folder.path().join("link.db"));
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let url = format!("sqlite:{}", link.display());
        let refused = path_of(&url).unwrap_err();
        assert!(matches!(refused, OpenError::DanglingLink { .. }), "{refused}");
        std::fs::write(&real, "").unwrap();
        assert_eq!(path_of(&url).unwrap(), real.canonicalize().unwrap());
    }

    #[test]
    fn a_file_with_two_names_is_refused_under_either() {
        let folder = tempfile::tempdir().unwrap();
        let names = [folder.path().join("one.db"), folder.path().join("other.db")];
        std::fs::write(&names[0], "").unwrap();
        std::fs::hard_link(&names[0], &names[1]).unwrap();
        for name in names {
            let refused = path_of(&format!("sqlite:{}", name.display())).unwrap_err();
            assert!(
                matches!(refused, OpenError::HardLinks { names: 2, .. }),
                "{refused}"
            );
        }
    }

    /// A file in the place of another one, until this is dropped.
    struct Mounted(PathBuf);

    impl Mounted {
        /// None where this process may not mount.
        fn over(file: &Path, place: &Path) -> Option<Self> {
            let mounted = Command::new("mount").arg("--bind").args([file, place]).output();
            let is_done = mounted.is_ok_and(|mounted| mounted.status.success());
            is_done.then(|| Self(place.to_owned()))
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            drop(Command::new("umount").arg(&self.0).status());
        }
    }

    #[test]
    fn a_file_that_is_mounted_by_itself_is_refused_and_one_in_a_folder_that_is_mounted_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["host", "container"].map(|name| folder.path().join(name));
        let [on_host, in_container] = folders.each_ref().map(|folder| {
            std::fs::create_dir(folder).unwrap();
            let file = folder.join("a.db");
            std::fs::write(&file, "").unwrap();
            file
        });
        let url = format!("sqlite:{}", in_container.display());
        let Some(file) = Mounted::over(&on_host, &in_container) else {
            return eprintln!("skipped: this process may not mount");
        };
        let refused = path_of(&url).unwrap_err();
        assert!(matches!(refused, OpenError::MountedAlone { .. }), "{refused}");
        drop(file);
        let _folder = Mounted::over(&folders[0], &folders[1]).unwrap();
        assert_eq!(path_of(&url).unwrap(), in_container.canonicalize().unwrap());
    }

    #[test]
    fn a_file_of_which_the_system_says_that_it_is_mounted_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = with_one_name(file.path().to_owned(), |_| true).unwrap_err();
        assert!(matches!(refused, OpenError::MountedAlone { .. }), "{refused}");
        with_one_name(file.path().to_owned(), |_| false).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_mounted_is_told_from_what_lies_in_it() {
        assert!(is_mount(Path::new("/proc")));
        assert!(!is_mount(Path::new("/proc/version")));
    }

    #[test]
    fn a_url_that_names_no_file_is_refused_with_what_would_be_right() {
        for (url, hint) in [
            ("postgres://localhost/a", "begin with `sqlite:`"),
            ("sqlite:", "name a file"),
            ("sqlite::memory:", "would not outlive"),
            ("sqlite:a.db?mode=ro", "takes no parameters"),
            ("sqlite:/", "name a file"),
            ("sqlite:..", "name a file"),
        ] {
            let message = path_of(url)
                .map(|path| path.display().to_string())
                .unwrap_err()
                .to_string();
            assert!(message.contains(hint), "{url}: {message}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let message = path_of("sqlite:/no/such/folder/a.db").unwrap_err().to_string();
        assert!(message.contains("/no/such/folder/a.db"), "{message}");
        assert!(message.contains("does not exist"), "{message}");
    }
}
