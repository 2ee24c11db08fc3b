//! Keys of issuers from files that the operator keeps: `FOLDER/<tenant>/<issuer>.json`, a JWKS each.
//!
//! No decision waits for a file. They are read every now and then, and what one holds becomes the keys of the issuer of
//! that name as if an admin had sent it: a change of the directory, with an entry that has the keys in it, on every
//! gateway. A file that is gone or not good leaves the keys as they are, and the log says so once. Tenants name no
//! files, and a name that is no plain file name, or too long for one, has none.
//!
//! Keys are given when a file has changed, and not because they are others: gateways whose files differ would set each
//! other's keys back for ever. So each remembers what it has given, and one that starts gives what its files hold once.

use super::{IssuerView, check_keys, find};
use crate::changes::{By, Force, Order, Plan};
use crate::directory::{facts, put};
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::http::json::DEPTH_MAX;
use crate::locks::lock;
use canon::{Digest, Integers, Limits};
use engine::EntryKind;
use model::{Name, Noun, TenantId, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokens::KEY_SET_BYTES_MAX;

/// What a file may be.
const FILE_LIMITS: Limits = Limits {
    bytes_max: KEY_SET_BYTES_MAX,
    depth_max: DEPTH_MAX,
};

/// The longest name of a file, in bytes, of nearly every file system.
const FILE_NAME_BYTES_MAX: usize = 255;

/// What is wrong with files, so that it is told once, and what was taken from the others, so that it is given once.
#[derive(Default)]
pub struct Complaints {
    /// Held for one look-up at a time and never across an `await`.
    told: Mutex<HashMap<PathBuf, Told>>,
    /// What of each file its issuer was given last. Held like the other.
    given: Mutex<HashMap<PathBuf, Given>>,
}

/// What was told of a file or of their folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    /// When the issuer of the file was registered: of another one of its name nothing was told. `None` for the folder.
    since: Option<Timestamp>,
    /// What is wrong.
    wrong: String,
}

/// What of a file was given, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Given {
    /// The digest of the file.
    file: Digest,
    /// When the issuer was registered: another one of its name was given nothing.
    since: Timestamp,
}

impl Complaints {
    /// Whether this is news about the file; `None` is that nothing is wrong with it.
    fn is_news(&self, file: &Path, news: Option<&Told>) -> bool {
        let mut told = lock(&self.told);
        let before = match news {
            Some(news) => told.insert(file.to_owned(), news.clone()),
            None => told.remove(file),
        };
        before.as_ref() != news
    }

    /// What the files hold; nothing if their folder cannot be read, and that is told. Where it was read, the files of
    /// issuers that are not registered any more are forgotten: whoever registers and deletes some makes new names
    /// without end.
    fn found(&self, folder: Option<&Path>, ReadFiles(read): ReadFiles) -> Vec<Found> {
        let wrong = read.as_ref().err().map(|wrong| Told {
            since: None,
            wrong: wrong.clone(),
        });
        if let Some(folder) = folder
            && self.is_news(folder, wrong.as_ref())
            && let Some(Told { wrong, .. }) = &wrong
        {
            let folder = folder.display();
            tracing::warn!(%folder, "the files in `{folder}` are not used, and issuers keep their keys: {wrong}");
        }
        if let Ok(found) = &read {
            self.forget_all_but(found);
        }
        read.unwrap_or_default()
    }

    /// Forgets what was told of other files, and given of them.
    fn forget_all_but(&self, found: &[Found]) {
        let files: HashSet<&Path> = found.iter().map(|found| found.file.as_path()).collect();
        lock(&self.told).retain(|file, _| files.contains(file.as_path()));
        self.given().retain(|file, _| files.contains(file.as_path()));
    }

    /// Whether this was the last of the file that was given.
    fn was_given(&self, file: &Path, given: Given) -> bool {
        self.given().get(file) == Some(&given)
    }

    /// What is wrong with what was found, if anything is. An issuer whose keys nobody keeps in a file lacks none.
    fn wrong(&self, found: &Found) -> Option<String> {
        match &found.jwks {
            Ok(Some((jwks, _))) => check_keys(jwks).err().map(|refusal| refusal.detail().to_owned()),
            Ok(None) => {
                let given = self.given().get(&found.file).copied();
                let is_gone = given.is_some_and(|given| given.since == found.since);
                is_gone.then(|| "it is not there any more".to_owned())
            }
            Err(wrong) => Some(wrong.clone()),
        }
    }

    /// Notes that this was given.
    fn note_given(&self, file: PathBuf, given: Given) {
        self.given().insert(file, given);
    }

    fn given(&self) -> MutexGuard<'_, HashMap<PathBuf, Given>> {
        lock(&self.given)
    }
}

/// How long reading the files takes before it is told that it takes long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Issuers by tenant, and when each was registered.
type Registered = Vec<(TenantId, Vec<(Name, Timestamp)>)>;

/// The files of registered issuers. Reading them takes no gateway, so that none is kept by a disk that does not answer.
pub struct Files {
    folder: PathBuf,
    registered: Registered,
}

/// What was read, or why the folder could not be.
pub struct ReadFiles(Result<Vec<Found>, String>);

impl Files {
    /// Reads them, however long that takes, where nobody waits for a decision.
    pub async fn read(self) -> ReadFiles {
        let Self { folder, registered } = self;
        let shown = folder.display().to_string();
        let mut reading = tokio::task::spawn_blocking(move || found(&folder, registered));
        let early = tokio::time::timeout(PATIENCE, &mut reading).await;
        let read = if let Ok(read) = early {
            read
        } else {
            tracing::warn!(
                folder = shown,
                "the files in `{shown}` do not answer, and issuers keep their keys until they do"
            );
            reading.await
        };
        ReadFiles(read.unwrap_or_else(|_| Err("reading them broke off".to_owned())))
    }
}

/// What was found in the file of an issuer.
struct Found {
    tenant: TenantId,
    issuer: Name,
    /// When the issuer was registered.
    since: Timestamp,
    file: PathBuf,
    /// With the digest of the file; none if there is no file.
    jwks: Result<Option<(Value, Digest)>, String>,
}

/// What issuers of a tenant are to be given.
pub struct KeysDue(Vec<KeysOfFile>);

/// What an issuer is to be given.
struct KeysOfFile {
    issuer: Name,
    file: PathBuf,
    jwks: Arc<Value>,
    given: Given,
}

impl Gateway {
    /// Reads the files of all registered issuers, and gives those the keys whose files have changed since they were
    /// given any. What could not be given is told, keeps no other waiting and is tried again the next time.
    ///
    /// # Errors
    /// The last of what could not be given.
    pub async fn read_issuer_files(&self) -> Result<(), Refusal> {
        match self.files_of_issuers() {
            Some(files) => self.give_issuer_keys(files.read().await).await,
            None => Ok(()),
        }
    }

    /// Gives issuers the keys in what was read of their files, one tenant after the other.
    async fn give_issuer_keys(&self, read: ReadFiles) -> Result<(), Refusal> {
        let mut given_all = Ok(());
        for (tenant, due) in self.issuer_keys_due(read) {
            given_all = self.give_issuer_keys_of(tenant, due).await.and(given_all);
        }
        given_all
    }

    /// The files of the issuers that are registered now; none if there is no folder for them.
    pub fn files_of_issuers(&self) -> Option<Files> {
        let folder = self.options.issuer_keys.clone()?;
        let snapshot = self.snapshot.load_full();
        let registered = snapshot.tenants().filter_map(|(id, tenant)| {
            let issuers = tenant.directory.issuers.values();
            let issuers: Vec<_> = issuers
                .map(|issuer| (issuer.name.clone(), issuer.created_at))
                .collect();
            (!issuers.is_empty() && tenant.directory.tenant.deleted_at.is_none()).then_some((*id, issuers))
        });
        let registered = registered.collect();
        Some(Files { folder, registered })
    }

    /// What of what was read of the files was not given yet, of each tenant. What is wrong with the others is told.
    pub fn issuer_keys_due(&self, read: ReadFiles) -> BTreeMap<TenantId, KeysDue> {
        let mut due = BTreeMap::new();
        let folder = self.options.issuer_keys.as_deref();
        for found in self.issuer_files.found(folder, read) {
            let wrong = self.issuer_files.wrong(&found);
            let wrong = wrong.map(|wrong| Told {
                since: Some(found.since),
                wrong,
            });
            if self.issuer_files.is_news(&found.file, wrong.as_ref())
                && let Some(Told { wrong, .. }) = &wrong
            {
                let file = found.file.display();
                tracing::warn!(%file, "the keys in `{file}` are not used, and the issuer keeps its own: {wrong}");
            }
            if let (None, Ok(Some((jwks, digest)))) = (wrong, found.jwks) {
                let given = Given {
                    file: digest,
                    since: found.since,
                };
                if self.issuer_files.was_given(&found.file, given) {
                    continue;
                }
                let KeysDue(of_tenant) = due.entry(found.tenant).or_insert_with(|| KeysDue(Vec::new()));
                of_tenant.push(KeysOfFile {
                    issuer: found.issuer,
                    file: found.file,
                    jwks: Arc::new(jwks),
                    given,
                });
            }
        }
        due
    }

    /// Gives issuers of a tenant their keys. Whatever else is changed in the tenant, however long that takes, may come
    /// before.
    ///
    /// # Errors
    /// The last of what could not be given.
    pub async fn give_issuer_keys_of(&self, tenant: TenantId, KeysDue(due): KeysDue) -> Result<(), Refusal> {
        let mut given_all = Ok(());
        for due in due {
            let issuer = &due.issuer;
            match self.give_keys(tenant, issuer, &due.jwks).await {
                Ok(()) => self.issuer_files.note_given(due.file, due.given),
                Err(refusal) => {
                    let error = refusal.detail();
                    tracing::warn!(%tenant, %issuer, error, "the keys of `{issuer}` of {tenant} could not be taken from their file, and are tried again soon: {error}");
                    given_all = Err(refusal);
                }
            }
        }
        given_all
    }

    async fn give_keys(&self, tenant: TenantId, name: &Name, jwks: &Arc<Value>) -> Result<(), Refusal> {
        // A key that is not in its file any more may have been stolen.
        let (order, by) = (Order::AtOnce, By::File(name));
        self.change_in(order, by, Force::No, tenant, |directory, _| {
            let Ok(known) = find(directory, name.as_str()) else {
                return Ok(Plan::nothing(()));
            };
            let issuer = known.with_keys(Arc::clone(jwks));
            if issuer == **known {
                return Ok(Plan::nothing(()));
            }
            let facts = facts(&IssuerView::from(&issuer));
            Ok(put(
                EntryKind::IssuerUpdated,
                Noun::Issuer(Arc::new(issuer)),
                facts,
                (),
            ))
        })
        .await
    }
}

/// What the files of these issuers hold, or why the folder cannot be read.
fn found(folder: &Path, registered: Registered) -> Result<Vec<Found>, String> {
    check_folder(folder).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for (tenant, issuers) in registered {
        let folder = folder.join(tenant.to_string());
        for (issuer, since) in issuers {
            let Some(file) = file(&folder, &issuer) else {
                continue;
            };
            let jwks = match read(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.to_string()),
                Ok(bytes) => parse(&bytes).map(|jwks| Some((jwks, Digest::of(&bytes)))),
            };
            all.push(Found {
                tenant,
                issuer,
                since,
                file,
                jwks,
            });
        }
    }
    Ok(all)
}

/// The keys in a file, read as those in the body of a request are: no member stands twice, and no key is one that `serde_json`
/// keeps for itself.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = canon::canonicalize_sent(bytes, FILE_LIMITS, Integers::Exact);
    let text = text.map_err(|error| error.to_string())?;
    canon::value(text.as_str()).map_err(|error| error.to_string())
}

/// Whether the folder of the files is there.
///
/// # Errors
/// It is not, or may not be looked at, or is something else.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    if fs::metadata(folder)?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// The file of this issuer; none if its name would lead out of the folder, or is too long for a file.
fn file(folder: &Path, issuer: &Name) -> Option<PathBuf> {
    let name = PathBuf::from(format!("{issuer}.json"));
    let mut parts = name.components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name.as_os_str());
    let is_short = name.as_os_str().len() <= FILE_NAME_BYTES_MAX;
    (is_plain && is_short && !issuer.as_str().contains('\\')).then(|| folder.join(name))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe waits for somebody to write to it, and every other file would wait
    // with it.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let limit = KEY_SET_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is too large for a key set",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let file = |name: &str| file(Path::new("/keys/tnt"), &Name::new(name).unwrap());
        assert_eq!(file("crm"), Some(PathBuf::from("/keys/tnt/crm.json")));
        assert_eq!(file("crm eu"), Some(PathBuf::from("/keys/tnt/crm eu.json")));
        for odd in ["../other/crm", "/etc/keys", "a/b", "./crm", "..\\crm", "crm/"] {
            assert_eq!(file(odd), None, "{odd}");
        }
        assert_eq!(file(".."), Some(PathBuf::from("/keys/tnt/...json")));
    }

    #[test]
    fn a_name_that_is_too_long_for_a_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = |bytes| file(folder.path(), &Name::new(&"x".repeat(bytes)).unwrap());
        let longest = file(250).unwrap();
        assert_eq!(read(&longest).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!([251, 256].map(file), [None, None]);
    }

    #[test]
    fn what_is_wrong_is_told_once_until_it_is_something_else() {
        let complaints = Complaints::default();
        let news = |since| {
            let complaints = &complaints;
            move |wrong: Option<&str>| {
                let told = wrong.map(|wrong| Told {
                    since: Some(Timestamp::from_millis(since)),
                    wrong: wrong.to_owned(),
                });
                complaints.is_news(Path::new("/a.json"), told.as_ref())
            }
        };
        assert_eq!(
            [Some("bad"), Some("bad"), Some("worse"), None, None, Some("bad")].map(news(1)),
            [true, false, true, true, false, true]
        );
        let again = [Some("bad"), Some("bad")].map(news(2));
        assert_eq!(again, [true, false], "that was another issuer of its name");
    }

    #[test]
    fn a_folder_that_is_not_there_and_a_file_that_is_gone_are_told_and_an_issuer_without_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (tenant, since) = (TenantId::from_bytes([1; 16]), Timestamp::from_millis(1));
        let read = |folder: &Path| found(folder, vec![(tenant, vec![(Name::new("crm").unwrap(), since)])]);
        assert!(read(&folder.path().join("missing")).is_err());
        let complaints = Complaints::default();
        let wrong = || {
            let found = read(folder.path()).unwrap();
            found.iter().find_map(|found| complaints.wrong(found))
        };
        assert_eq!(wrong(), None);
        let of_tenant = folder.path().join(tenant.to_string());
        fs::write(&of_tenant, "").unwrap();
        assert!(read(&of_tenant).is_err());
        assert!(wrong().is_some(), "it is no folder");
        fs::remove_file(&of_tenant).unwrap();
        assert_eq!(wrong(), None);
        let given = |since| Given {
            file: Digest::of(b""),
            since: Timestamp::from_millis(since),
        };
        complaints.note_given(of_tenant.join("crm.json"), given(0));
        assert_eq!(wrong(), None, "that was another issuer of its name");
        complaints.note_given(of_tenant.join("crm.json"), given(1));
        assert_eq!(wrong().as_deref(), Some("it is not there any more"));
    }

    #[test]
    fn what_was_told_of_files_and_given_of_them_is_forgotten_with_their_issuers() {
        let folder = tempfile::tempdir().unwrap();
        let (tenant, since) = (TenantId::from_bytes([1; 16]), Timestamp::from_millis(1));
        let of_tenant = folder.path().join(tenant.to_string());
        fs::create_dir(&of_tenant).unwrap();
        fs::write(of_tenant.join("crm.json"), "no keys").unwrap();
        let complaints = Complaints::default();
        let round = |names: &[&str]| {
            let issuers = names.iter().map(|name| (Name::new(name).unwrap(), since));
            let read = found(folder.path(), vec![(tenant, issuers.collect())]);
            for found in complaints.found(Some(folder.path()), ReadFiles(read)) {
                let wrong = complaints.wrong(&found).map(|wrong| Told {
                    since: Some(since),
                    wrong,
                });
                complaints.is_news(&found.file, wrong.as_ref());
            }
        };
        let known = || (lock(&complaints.told).len(), complaints.given().len());
        let given = Given {
            file: Digest::of(b""),
            since,
        };
        complaints.note_given(of_tenant.join("crm.json"), given);
        round(&["crm", "idp"]);
        assert_eq!(known(), (1, 1));
        let unread = || ReadFiles(Err("it does not answer".to_owned()));
        assert!(complaints.found(Some(folder.path()), unread()).is_empty());
        assert_eq!(known(), (2, 1), "what is there cannot be seen");
        round(&["crm"]);
        assert_eq!(known(), (1, 1));
        round(&["idp"]);
        assert_eq!(known(), (0, 0));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_told_and_keeps_no_other_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (tenant, since) = (TenantId::from_bytes([1; 16]), Timestamp::from_millis(1));
        let of_tenant = folder.path().join(tenant.to_string());
        fs::create_dir(&of_tenant).unwrap();
        let pipe = of_tenant.join("crm.json");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(of_tenant.join("idp.json"), r#"{"keys":[]}"#).unwrap();
        let issuers = ["crm", "idp"].map(|name| (Name::new(name).unwrap(), since));
        let found = found(folder.path(), vec![(tenant, issuers.to_vec())]).unwrap();
        let [crm, idp]: [Found; 2] = found.try_into().ok().unwrap();
        assert_eq!(crm.jwks.unwrap_err(), "it is not a regular file");
        assert!(idp.jwks.unwrap().is_some());
    }

    #[test]
    fn a_file_is_given_once_until_it_or_its_issuer_is_another() {
        let complaints = Complaints::default();
        let given = |file: &[u8], since| Given {
            file: Digest::of(file),
            since: Timestamp::from_millis(since),
        };
        let is_new = |given| {
            let is_new = !complaints.was_given(Path::new("/a.json"), given);
            complaints.note_given("/a.json".into(), given);
            is_new
        };
        let read = [
            given(b"old", 1),
            given(b"old", 1),
            given(b"new", 1),
            given(b"new", 1),
            given(b"new", 2),
            given(b"new", 2),
        ];
        assert_eq!(read.map(is_new), [true, false, true, false, true, false]);
        assert!(!complaints.was_given(Path::new("/b.json"), given(b"new", 2)));
    }
}
