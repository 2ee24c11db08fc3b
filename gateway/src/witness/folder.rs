//! Where a witness keeps what it has cosigned: a file for each log, replaced whole and on disk before anybody hears of it.
//!
//! One process has the folder. What cannot be read is never taken for nothing: a witness that forgot would cosign a fork.
//! Nor is what has gone while the process runs: it remembers of which logs there were files at its start, what it has
//! cosigned itself, and which folder it has locked.

use canon::Digest;
use ledger::witness::Cosigned;
use ledger::{Checkpoint, NOTE_BYTES_MAX, Note};
use model::Timestamp;
use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Nobody but its owner looks into it.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The file in it that is locked.
const LOCK: &str = "lock";
/// How long the name of a log's file is: a digest in hexadecimal.
const NAME_DIGITS: usize = 64;

/// Most requests of a kind that are kept of one log as evidence: whoever has its key can make any number of forks.
const EVIDENCE_MAX: usize = 16;
/// How long what is cosigned once more is not written once more, in milliseconds. What stands beside it then, the time
/// and the keys that have signed, is as old as that at most.
const WRITTEN_AGAIN_MILLIS: i64 = 60_000;
/// How many of what is unproven stay whatever comes later.
const FIRST_KEPT: usize = 8;

/// What a request shows that was not cosigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The log has signed two roots of one size, which proves that it has shown two pasts.
    Forked,
    /// The log has signed a checkpoint, and the proof that came with it does not lead there from what was cosigned.
    /// Either the log has rewritten that, or somebody else has sent a wrong proof.
    Unproven,
}

impl Evidence {
    /// What the names of its files end with.
    const fn extension(self) -> &'static str {
        match self {
            Self::Forked => "forked",
            Self::Unproven => "unproven",
        }
    }
}

/// The folder, and the lock on it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held as long as the process lives.
    _lock: File,
    /// Device and number of the file that is locked.
    identity: (u64, u64),
    /// The names of the files of logs that were there at the start.
    found: HashSet<String>,
    /// What this process has cosigned, or read here, of each log that it has cosigned.
    known: HashMap<String, Cosigned>,
    /// When this process has last written the file of each log.
    written_at: HashMap<String, Timestamp>,
}

/// Why nothing can be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The operating system refuses.
    #[error("`{}` cannot be used: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another witness uses the folder `{}`", .0.display())]
    InUse(PathBuf),
    /// It is not the folder that was opened.
    #[error(
        "the folder `{}`, or its file `{LOCK}`, was deleted, moved away or replaced while it was open, so nothing is cosigned any more: put the folder back as it was, or start the witness again with it",
        .0.display()
    )]
    Replaced(PathBuf),
    /// A file holds something else than was kept, or is gone.
    #[error("`{}` is not the checkpoint that was kept there", .0.display())]
    Damaged(PathBuf),
    /// Writing was broken off.
    #[error("writing broke off")]
    Interrupted,
}

impl Folder {
    /// Opens a folder, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or used, or another process has it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let io = |source| FolderError::Io {
            file: path.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(path)
            .map_err(io)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(FILE_MODE);
        let lock = options.open(path.join(LOCK)).map_err(io)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => FolderError::InUse(path.to_owned()),
            TryLockError::Error(source) => io(source),
        })?;
        let identity = lock.metadata().map(|locked| identity(&locked));
        Ok(Self {
            path: path.to_owned(),
            identity: identity.map_err(io)?,
            _lock: lock,
            found: files_of_logs(path).map_err(io)?,
            known: HashMap::new(),
            written_at: HashMap::new(),
        })
    }

    /// Whether it held what was cosigned of any log when it was opened.
    pub fn has_cosigned(&self) -> bool {
        !self.found.is_empty()
    }

    /// What was last cosigned of a log; nothing at all is a size of 0.
    ///
    /// # Errors
    /// It cannot be read, is something else or gone, or is less than this process has cosigned.
    pub fn cosigned(&mut self, origin: &str) -> Result<Cosigned, FolderError> {
        let kept = self.kept(origin)?;
        // More than is known may be there: keeping it may have failed when it had its name already.
        let is_less = |known: &Cosigned| kept.size < known.size || kept.size == known.size && kept != *known;
        if self.known.get(origin).is_some_and(is_less) {
            return Err(FolderError::Damaged(self.file(origin)));
        }
        // Of a log that nobody has cosigned nothing is remembered: anybody can name one.
        if kept.size > 0 {
            self.known.insert(origin.to_owned(), kept);
        }
        Ok(kept)
    }

    /// What the file of a log says.
    fn kept(&self, origin: &str) -> Result<Cosigned, FolderError> {
        let Some(text) = self.read(origin)? else {
            if self.found.contains(&hex(origin)) {
                return Err(FolderError::Damaged(self.file(origin)));
            }
            return Ok(Cosigned {
                size: 0,
                root: Digest::ZERO,
            });
        };
        let note = Note::parse(text.as_bytes()).ok();
        let checkpoint = note.and_then(|note| Checkpoint::parse(note.text()).ok());
        let checkpoint = checkpoint.filter(|checkpoint| checkpoint.origin == origin);
        let checkpoint = checkpoint.ok_or_else(|| FolderError::Damaged(self.file(origin)))?;
        Ok(Cosigned {
            size: checkpoint.size,
            root: checkpoint.root,
        })
    }

    /// The note that was last cosigned of a log, if anything was.
    ///
    /// # Errors
    /// As of [`Self::cosigned`].
    pub fn last(&mut self, origin: &str) -> Result<Option<String>, FolderError> {
        self.cosigned(origin)?;
        self.read(origin)
    }

    /// The text of a log's file, if it is there.
    fn read(&self, origin: &str) -> Result<Option<String>, FolderError> {
        self.check_locked()?;
        let file = self.file(origin);
        match text_of(&file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FolderError::Io { file, source }),
        }
    }

    /// Whether this process has written the file of a log just now. What it has written there is on disk then.
    pub(super) fn is_just_written(&self, origin: &str, now: Timestamp) -> bool {
        let written_at = self.written_at.get(origin);
        // A clock that was put back says nothing.
        written_at.is_some_and(|at| (0..WRITTEN_AGAIN_MILLIS).contains(&(now.millis() - at.millis())))
    }

    /// Keeps what was cosigned of a log, and when. When it returns, that survives the loss of power.
    ///
    /// # Errors
    /// It may not be on disk.
    pub fn keep(&mut self, checkpoint: &Checkpoint, note: &str, now: Timestamp) -> Result<(), FolderError> {
        let Checkpoint {
            origin, size, root, ..
        } = checkpoint;
        // Where this fails the file may have its name without being on disk.
        self.written_at.remove(origin);
        self.replace(self.file(origin), note.as_bytes())?;
        let (size, root) = (*size, *root);
        self.known.insert(origin.clone(), Cosigned { size, root });
        self.written_at.insert(origin.clone(), now);
        Ok(())
    }

    /// Fails unless the folder is the one that was locked: what has its name by now may be empty, and another process
    /// may have it.
    fn check_locked(&self) -> Result<(), FolderError> {
        let file = self.path.join(LOCK);
        match fs::metadata(&file) {
            Ok(there) if identity(&there) == self.identity => Ok(()),
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FolderError::Io { file, source }),
            _ => Err(FolderError::Replaced(self.path.clone())),
        }
    }

    /// Keeps a request that was not cosigned, once for each checkpoint. Of forks the first stay, for one proves as much
    /// as many. Of what is unproven the first and the latest do: whoever has got checkpoints of the log can send those
    /// with wrong proofs, before what proves something or behind it.
    ///
    /// # Errors
    /// It may not be on disk.
    pub(super) fn keep_evidence(
        &self,
        checkpoint: &Checkpoint,
        evidence: Evidence,
        request: &[u8],
    ) -> Result<(), FolderError> {
        let file = self.evidence_file(checkpoint, evidence);
        if file.exists() {
            return Ok(());
        }
        let in_folder = |source| FolderError::Io {
            file: self.path.clone(),
            source,
        };
        let kept = self.evidence(&checkpoint.origin, evidence).map_err(in_folder)?;
        if evidence == Evidence::Forked && kept.len() >= EVIDENCE_MAX {
            return Ok(());
        }
        self.replace(file, request)?;
        let latest = kept.iter().skip(FIRST_KEPT).rev();
        let mut displaced = latest.skip(EVIDENCE_MAX - FIRST_KEPT - 1);
        displaced.try_for_each(fs::remove_file).map_err(in_folder)
    }

    /// What is kept of a log as evidence of this kind, the oldest first.
    fn evidence(&self, origin: &str, evidence: Evidence) -> io::Result<Vec<PathBuf>> {
        let log = hex(origin);
        let mut kept = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let file = file?;
            let (name, path) = (file.file_name(), file.path());
            let is_of_log = name.to_str().is_some_and(|name| name.starts_with(&log));
            if is_of_log && path.extension().is_some_and(|end| end == evidence.extension()) {
                kept.push((file.metadata()?.modified()?, path));
            }
        }
        kept.sort_unstable();
        Ok(kept.into_iter().map(|(_, path)| path).collect())
    }

    /// The file of a log. An origin may hold anything, so its digest names the file.
    fn file(&self, origin: &str) -> PathBuf {
        self.path.join(hex(origin))
    }

    /// The file of a request with a checkpoint. The digest of that is in its name: nobody without a key of the log has
    /// a checkpoint that takes the place of another one.
    fn evidence_file(&self, checkpoint: &Checkpoint, evidence: Evidence) -> PathBuf {
        let (log, text) = (hex(&checkpoint.origin), hex(&checkpoint.to_string()));
        self.path.join(format!("{log}.{text}.{}", evidence.extension()))
    }

    fn replace(&self, file: PathBuf, bytes: &[u8]) -> Result<(), FolderError> {
        self.check_locked()?;
        let written = self.write(&file, bytes);
        written.map_err(|source| FolderError::Io { file, source })
    }

    fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let beside = self.path.join("new");
        let mut options = OpenOptions::new();
        let mut new = options
            .create(true)
            .truncate(true)
            .write(true)
            .mode(FILE_MODE)
            .open(&beside)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&beside, file)?;
        // The name is not on disk before its folder is.
        File::open(&self.path)?.sync_all()
    }
}

/// The text of a file, of one that is too long for a note only as much as shows that.
fn text_of(file: &Path) -> io::Result<String> {
    // Asked before it is opened: opening a pipe waits for somebody to write to it, and a device may have no end.
    // Anybody can ask for what stands here.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let bound = NOTE_BYTES_MAX as u64 + 1;
    File::open(file)?.take(bound).read_to_string(&mut text)?;
    Ok(text)
}

/// The names of the files of logs in a folder.
fn files_of_logs(folder: &Path) -> io::Result<HashSet<String>> {
    let mut found = HashSet::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let is_of_log =
            |name: &&str| name.len() == NAME_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit());
        found.extend(name.to_str().filter(is_of_log).map(str::to_owned));
    }
    Ok(found)
}

/// Device and number of a file.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The digest of a text, as it stands in the name of a file.
fn hex(text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{SignatureKind, SigningKey};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    fn checkpoint(origin: &str, size: u64, root: &[u8]) -> Checkpoint {
        let mut checkpoint = Checkpoint::new("log.example", "tnt_1", size, Digest::of(root));
        origin.clone_into(&mut checkpoint.origin);
        checkpoint
    }

    fn cosigned(checkpoint: &Checkpoint) -> String {
        let key = SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[7; 32]).unwrap();
        format!("{checkpoint}\n{}", checkpoint.cosign(&key, 1))
    }

    fn note(origin: &str, size: u64) -> String {
        cosigned(&checkpoint(origin, size, b"root"))
    }

    fn keep(folder: &mut Folder, origin: &str, size: u64) -> Result<(), FolderError> {
        let now = Timestamp::from_millis(1_769_851_800_000);
        folder.keep(&checkpoint(origin, size, b"root"), &note(origin, size), now)
    }

    #[test]
    fn a_witness_folder_is_read_by_the_next_process_and_by_one_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/witness");
        let mut folder = Folder::open(&path).unwrap();
        assert!(matches!(Folder::open(&path), Err(FolderError::InUse(_))));
        assert_eq!(folder.cosigned("log/1").unwrap().size, 0);
        assert!(!folder.has_cosigned());
        keep(&mut folder, "log/1", 7).unwrap();
        keep(&mut folder, "log/2", 3).unwrap();
        keep(&mut folder, "log/1", 9).unwrap();
        drop(folder);
        let mut folder = Folder::open(&path).unwrap();
        assert!(folder.has_cosigned());
        let size = |origin| folder.cosigned(origin).unwrap().size;
        assert_eq!(["log/1", "log/2", "log/3"].map(size), [9, 3, 0]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&path), mode(&folder.file("log/1"))),
            (FOLDER_MODE, FILE_MODE)
        );
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let home = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(home.path()).unwrap();
        for damaged in ["", "log/1\n7\n", &note("log/2", 7)] {
            fs::write(folder.file("log/1"), damaged).unwrap();
            assert!(
                matches!(folder.cosigned("log/1"), Err(FolderError::Damaged(_))),
                "{damaged}"
            );
        }
        fs::remove_file(folder.file("log/1")).unwrap();
        fs::create_dir(folder.file("log/1")).unwrap();
        assert!(matches!(folder.cosigned("log/1"), Err(FolderError::Io { .. })));
        assert!(keep(&mut folder, "log/1", 7).is_err());
    }

    #[test]
    fn what_is_no_file_or_too_long_for_a_note_is_not_read_to_its_end() {
        let home = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(home.path()).unwrap();
        symlink("/dev/null", folder.file("log/1")).unwrap();
        let refused = folder.cosigned("log/1").unwrap_err().to_string();
        assert!(refused.contains("it is not a regular file"), "{refused}");
        let long = "x".repeat(2 * NOTE_BYTES_MAX);
        fs::write(folder.file("log/2"), long).unwrap();
        let read = text_of(&folder.file("log/2")).unwrap();
        assert_eq!(read.len(), NOTE_BYTES_MAX + 1);
        assert!(matches!(folder.cosigned("log/2"), Err(FolderError::Damaged(_))));
        // One that stands elsewhere is read.
        let elsewhere = home.path().join("elsewhere");
        fs::write(&elsewhere, note("log/3", 7)).unwrap();
        symlink(&elsewhere, folder.file("log/3")).unwrap();
        assert_eq!(folder.cosigned("log/3").unwrap().size, 7);
    }

    #[test]
    fn a_file_that_says_less_than_was_cosigned_or_is_gone_is_damaged_and_not_nothing() {
        let home = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(home.path()).unwrap();
        keep(&mut folder, "log/1", 7).unwrap();
        drop(folder);
        let file = |folder: &Folder| folder.file("log/1");
        // By this process or by the one before: if this one has not read it, it is not known how much that was.
        for keeps_itself in [false, true] {
            let mut folder = Folder::open(home.path()).unwrap();
            if keeps_itself {
                keep(&mut folder, "log/1", 8).unwrap();
            }
            let good = fs::read(file(&folder)).unwrap();
            fs::remove_file(file(&folder)).unwrap();
            for refused in [folder.cosigned("log/1").map(drop), folder.last("log/1").map(drop)] {
                assert!(matches!(refused, Err(FolderError::Damaged(_))), "{refused:?}");
            }
            fs::write(file(&folder), &good).unwrap();
            folder.cosigned("log/1").unwrap();
            fs::remove_file(file(&folder)).unwrap();
            let refused = folder.cosigned("log/1");
            assert!(matches!(refused, Err(FolderError::Damaged(_))), "{refused:?}");
            let size = if keeps_itself { 8 } else { 7 };
            for other in [
                checkpoint("log/1", size - 1, b"root"),
                checkpoint("log/1", size, b"other"),
            ] {
                fs::write(file(&folder), cosigned(&other)).unwrap();
                let refused = folder.cosigned("log/1");
                assert!(matches!(refused, Err(FolderError::Damaged(_))), "{refused:?}");
            }
            fs::write(file(&folder), good).unwrap();
            assert_eq!(folder.cosigned("log/1").unwrap().size, size);
        }
    }

    #[test]
    fn a_folder_that_was_moved_away_and_made_again_is_not_the_one_that_was_opened() {
        let home = tempfile::tempdir().unwrap();
        let (path, away) = (home.path().join("witness"), home.path().join("away"));
        let mut folder = Folder::open(&path).unwrap();
        keep(&mut folder, "log/1", 7).unwrap();
        fs::rename(&path, &away).unwrap();
        for is_made_again in [false, true] {
            if is_made_again {
                drop(Folder::open(&path).unwrap());
            }
            for refused in [
                folder.cosigned("log/1").map(drop),
                folder.cosigned("log/2").map(drop),
                folder.last("log/1").map(drop),
                keep(&mut folder, "log/1", 8),
            ] {
                assert!(matches!(refused, Err(FolderError::Replaced(_))), "{refused:?}");
            }
        }
        fs::remove_dir_all(&path).unwrap();
        fs::rename(&away, &path).unwrap();
        assert_eq!(folder.cosigned("log/1").unwrap().size, 7);
    }

    #[test]
    fn of_forks_the_first_are_kept_and_of_what_is_unproven_the_first_and_the_latest() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let checkpoint =
            |tenant, size: usize| Checkpoint::new("log.example", tenant, size as u64, Digest::of(b"root"));
        let sizes = 1..=2 * EVIDENCE_MAX;
        let keep = |evidence, size: usize, request: &[u8]| {
            let checkpoint = checkpoint("tnt_1", size);
            folder.keep_evidence(&checkpoint, evidence, request).unwrap();
            // As if it had come in another second than the one before.
            if let Ok(file) = fs::File::open(folder.evidence_file(&checkpoint, evidence)) {
                let at = SystemTime::UNIX_EPOCH + Duration::from_secs(size as u64);
                file.set_modified(at).unwrap();
            }
        };
        let there = |evidence| {
            let file = |size: &usize| folder.evidence_file(&checkpoint("tnt_1", *size), evidence);
            let sizes = sizes.clone().filter(|size| file(size).exists());
            sizes.collect::<Vec<_>>()
        };
        let other = checkpoint("tnt_2", 1);
        for evidence in [Evidence::Forked, Evidence::Unproven] {
            folder.keep_evidence(&other, evidence, b"other").unwrap();
            for size in sizes.clone() {
                keep(evidence, size, b"first");
                keep(evidence, size, b"second");
            }
            assert!(folder.evidence_file(&other, evidence).exists(), "{evidence:?}");
        }
        assert_eq!(there(Evidence::Forked), (1..=EVIDENCE_MAX).collect::<Vec<_>>());
        let (first, latest) = (1..=FIRST_KEPT, 25..=2 * EVIDENCE_MAX);
        assert_eq!(there(Evidence::Unproven), first.chain(latest).collect::<Vec<_>>());
        let first = folder.evidence_file(&checkpoint("tnt_1", 1), Evidence::Forked);
        assert_eq!(fs::read(first).unwrap(), b"first");
    }
}
