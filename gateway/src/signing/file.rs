//! A file of signing keys: a key a line, nobody's but its owner's, made whole or not at all.

use super::Keyring;
use canon::Digest;
use ledger::{MalformedKey, SigningKey};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// More than the keys of a lifetime.
const BYTES_MAX: u64 = 64 * 1024;
/// Its owner reads and writes it.
const MODE: u32 = 0o600;
/// What others would be let do.
const OTHERS: u32 = 0o077;

/// Why a file of keys cannot be used. No message holds a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It may not be read.
    #[error("the signing key in `{}` cannot be read: {source}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// It could not be made.
    #[error(
        "a signing key could not be written to `{}`: {source}; name another file with --signing-key-file",
        file.display()
    )]
    Unwritable {
        /// Which file.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// It is a folder, a device, or a pipe to which nobody may ever write.
    #[error("the signing key in `{}` cannot be read: it is not a regular file", file.display())]
    Irregular {
        /// Which file.
        file: PathBuf,
    },
    /// Others than its owner can read it.
    #[error("the signing key in `{}` can be read by others (mode {mode:03o}): run `chmod 600` on it", file.display())]
    Open {
        /// Which file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A line is not a key.
    #[error("line {line} of `{}` is not a signing key: {source}", file.display())]
    Malformed {
        /// Which file.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        source: MalformedKey,
    },
    /// It is not text, is too long, or has no line.
    #[error("`{}` holds no signing key", file.display())]
    Empty {
        /// Which file.
        file: PathBuf,
    },
}

/// The keys in a file. One that is not there is made, with this key in it.
///
/// # Errors
/// It cannot be read or made, or holds something else.
pub(super) fn read_or_make(path: &Path, new: &str) -> Result<Keyring, KeyFileError> {
    let unwritable = |source| KeyFileError::Unwritable {
        file: path.to_owned(),
        source,
    };
    if !is_there(path)? && make(path, &format!("{new}\n")).map_err(unwritable)? {
        tracing::info!(file = %path.display(), "made a signing key in `{}`: keep a copy of it", path.display());
    }
    read(path)
}

/// Adds a key to a file, which signs from the next start on. The file stays where it is, also behind a link, and its owner's.
///
/// # Errors
/// It is not a file of keys, or cannot be written.
pub(super) fn append(path: &Path, new: &str) -> Result<(), KeyFileError> {
    let unwritable = |source| KeyFileError::Unwritable {
        file: path.to_owned(),
        source,
    };
    let unreadable = |source| KeyFileError::Unreadable {
        file: path.to_owned(),
        source,
    };
    let file = fs::canonicalize(path).map_err(unreadable)?;
    let opened = open(path)?;
    let owner = opened.metadata().map_err(unreadable)?;
    let before = text_of(path, opened)?;
    read_text(path, &before)?;
    let text = format!("{}\n{new}\n", before.trim_end());
    let (beside, written) = written_beside(&file, &text).map_err(unwritable)?;
    let replaced = give_to(&written, &owner)
        .and_then(|()| check_same(&file, &owner))
        .and_then(|()| fs::rename(&beside, &file));
    if let Err(error) = replaced {
        // The secret is of no use there.
        let _ = fs::remove_file(&beside);
        return Err(unwritable(error));
    }
    sync_folder(&file).map_err(unwritable)
}

/// Fails if another file has this name by now: whose folder it is may put a link to anything there.
fn check_same(path: &Path, before: &Metadata) -> io::Result<()> {
    let now = fs::symlink_metadata(path)?;
    if (now.dev(), now.ino()) == (before.dev(), before.ino()) {
        return Ok(());
    }
    Err(io::Error::other("another file has taken its place meanwhile"))
}

/// Gives a new file to the owner of the one that it replaces. Whoever adds a key may be root, and the gateway somebody
/// else, who could not read it at the next start.
// INVARIANT: the file that was made, and not what has its name by now.
fn give_to(file: &File, owner: &Metadata) -> io::Result<()> {
    if file.metadata()?.uid() == owner.uid() {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid())).map_err(|error| {
        let why = format!(
            "a new file cannot be given to user {}, whose it is: {error}",
            owner.uid()
        );
        io::Error::new(error.kind(), why)
    })?;
    file.sync_all()
}

/// The keys in a file.
///
/// # Errors
/// It cannot be read, or holds something else.
pub(super) fn read(path: &Path) -> Result<Keyring, KeyFileError> {
    read_text(path, &text(path)?)
}

/// Whether there is such a file. One in a folder that may not be entered is not taken for one that is not there:
/// another key would be made in its place.
///
/// # Errors
/// Nobody can tell.
pub(super) fn is_there(path: &Path) -> Result<bool, KeyFileError> {
    match path.try_exists() {
        Ok(is_there) => Ok(is_there),
        // What would be its folder is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(source) => Err(KeyFileError::Unreadable {
            file: path.to_owned(),
            source,
        }),
    }
}

/// Fails if a file of keys is not there and could not be made either, as far as that can be told without making one.
///
/// # Errors
/// Its folder is not there or may not be entered, or it is a link that leads nowhere.
pub(super) fn check_place(path: &Path) -> Result<(), KeyFileError> {
    if is_there(path)? {
        return Ok(());
    }
    let file = || path.to_owned();
    if fs::symlink_metadata(path).is_ok() {
        let source = io::ErrorKind::NotFound.into();
        return Err(KeyFileError::Unreadable { file: file(), source });
    }
    let unwritable = |source| KeyFileError::Unwritable { file: file(), source };
    let folder = fs::metadata(folder_of(path)).map_err(unwritable)?;
    if folder.is_dir() {
        Ok(())
    } else {
        Err(unwritable(io::ErrorKind::NotADirectory.into()))
    }
}

fn text(path: &Path) -> Result<String, KeyFileError> {
    text_of(path, open(path)?)
}

/// Opens what a key can be in. Of anything else not even the permissions are looked at, lest somebody is told to change
/// those of a device.
fn open(path: &Path) -> Result<File, KeyFileError> {
    let unreadable = |source| KeyFileError::Unreadable {
        file: path.to_owned(),
        source,
    };
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    // Asked before it is opened: opening a pipe waits for somebody to write to it.
    if kind.is_file() || kind.is_fifo() && !has_name(path) {
        return File::open(path).map_err(unreadable);
    }
    Err(KeyFileError::Irregular {
        file: path.to_owned(),
    })
}

/// Whether a pipe has a name of its own. One that a shell has made, `<(…)`, is reached by its number only, and its
/// writer is there.
fn has_name(pipe: &Path) -> bool {
    fs::canonicalize(pipe).is_ok_and(|name| !name.starts_with("/dev/fd"))
}

/// The text of this file, which was opened at this path.
fn text_of(path: &Path, file: File) -> Result<String, KeyFileError> {
    let unreadable = |source| KeyFileError::Unreadable {
        file: path.to_owned(),
        source,
    };
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Open {
            file: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    file.take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    Ok(text)
}

fn read_text(path: &Path, text: &str) -> Result<Keyring, KeyFileError> {
    let lines = text.lines().enumerate();
    let keys = lines.filter(|(_, line)| !line.trim().is_empty());
    let key = |(number, line): (usize, &str)| -> Result<SigningKey, KeyFileError> {
        line.trim().parse().map_err(|source| KeyFileError::Malformed {
            file: path.to_owned(),
            line: number + 1,
            source,
        })
    };
    let keys = keys.map(key).collect::<Result<_, _>>()?;
    Keyring::of_all(keys).ok_or_else(|| KeyFileError::Empty {
        file: path.to_owned(),
    })
}

/// Makes a file, whole, and says whether it did: of two who do it at once, one does.
fn make(path: &Path, text: &str) -> io::Result<bool> {
    let (beside, _) = written_beside(path, text)?;
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside)?;
    match linked {
        Ok(()) => sync_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file beside it with this text, on disk. Nobody else's has its name: in the text is a new key.
fn written_beside(path: &Path, text: &str) -> io::Result<(PathBuf, File)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let digest = Digest::of(text.as_bytes());
    name.push(".");
    for byte in &digest.as_bytes()[..8] {
        name.push(format!("{byte:02x}"));
    }
    let beside = path.with_file_name(name);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // The disk may be full: the secret is of no use there, and in the way of whoever tidies up.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok((beside, file))
}

/// The name is not on disk before its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::SignatureKind;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    fn key(seed: u8) -> String {
        SigningKey::encode("log.example", SignatureKind::Note, &[seed; 32]).unwrap()
    }

    fn label(seed: u8) -> String {
        key(seed).parse::<SigningKey>().unwrap().verifier().label()
    }

    #[test]
    fn a_file_is_made_once_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("countersign.db.key");
        let first = read_or_make(&path, &key(1)).unwrap();
        let again = read_or_make(&path, &key(2)).unwrap();
        assert_eq!(first.signing.verifier().label(), label(1));
        assert_eq!(again.signing.verifier().label(), label(1));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_process_left_that_died_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("countersign.db.key");
        // In a container every process has the same number.
        let left = folder
            .path()
            .join(format!("countersign.db.key.{}", std::process::id()));
        fs::write(&left, "").unwrap();
        read_or_make(&path, &key(1)).unwrap();
        append(&path, &key(2)).unwrap();
        assert_eq!(read(&path).unwrap().signing.verifier().label(), label(2));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_not_said_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("keys");
        let refusal = read_or_make(&path, &key(1)).unwrap_err();
        assert!(matches!(refusal, KeyFileError::Unwritable { .. }), "{refusal}");
    }

    #[test]
    fn the_last_key_signs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        read_or_make(&path, &key(1)).unwrap();
        append(&path, &key(2)).unwrap();
        append(&path, &key(3)).unwrap();
        let keys = read(&path).unwrap();
        let labels: Vec<_> = keys.all().map(|key| key.verifier().label()).collect();
        assert_eq!(labels, [label(1), label(2), label(3)]);
        assert_eq!(keys.signing.verifier().label(), label(3));
    }

    #[test]
    fn a_key_is_added_to_what_a_link_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        fs::create_dir(&kept).unwrap();
        let (path, link) = (kept.join("keys"), folder.path().join("keys"));
        read_or_make(&path, &key(1)).unwrap();
        symlink("kept/keys", &link).unwrap();
        append(&link, &key(2)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&path).unwrap().all().count(), 2);
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    }

    #[test]
    fn a_file_stays_its_owners_when_a_key_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        read_or_make(&path, &key(1)).unwrap();
        // Only root gives files away: for anybody else it is its own, before and after.
        let _ = std::os::unix::fs::chown(&path, Some(65_534), Some(65_534));
        let owner = || {
            let found = fs::metadata(&path).unwrap();
            (found.uid(), found.gid())
        };
        let before = owner();
        append(&path, &key(2)).unwrap();
        assert_eq!(owner(), before);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_to_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink("pipe", &link).unwrap();
        for path in [
            pipe.as_path(),
            link.as_path(),
            folder.path(),
            Path::new("/dev/null"),
            Path::new("/dev/zero"),
        ] {
            for refusal in [
                read(path).unwrap_err(),
                read_or_make(path, &key(1)).unwrap_err(),
                append(path, &key(1)).unwrap_err(),
            ] {
                assert!(matches!(refusal, KeyFileError::Irregular { .. }), "{refusal}");
            }
        }
    }

    /// As a shell hands it over, `--signing-key-file <(…)`.
    #[test]
    fn a_pipe_without_a_name_is_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(key(1).as_bytes()).unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let keys = read_or_make(&path, &key(2)).unwrap();
        assert_eq!(keys.signing.verifier().label(), label(1));
    }

    #[test]
    fn where_no_file_can_be_made_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (file, link) = (path("file"), path("link"));
        check_place(&file).unwrap();
        assert!(!file.exists());
        fs::write(&file, "").unwrap();
        check_place(&file).unwrap();
        symlink("nowhere", &link).unwrap();
        let refusal = check_place(&link).unwrap_err();
        assert!(matches!(refusal, KeyFileError::Unreadable { .. }), "{refusal}");
        for absent in ["missing/keys", "file/keys"] {
            let refusal = check_place(&path(absent)).unwrap_err();
            assert!(matches!(refusal, KeyFileError::Unwritable { .. }), "{refusal}");
        }
    }

    /// A folder that may not be entered does the same, but to root.
    #[test]
    fn a_file_of_which_nobody_can_tell_whether_it_is_there_is_not_taken_for_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        for name in ["loop", "loop/keys"] {
            let path = folder.path().join(name);
            for refusal in [
                is_there(&path).unwrap_err(),
                check_place(&path).unwrap_err(),
                read_or_make(&path, &key(1)).unwrap_err(),
            ] {
                assert!(matches!(refusal, KeyFileError::Unreadable { .. }), "{refusal}");
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_no_secret_or_holds_no_key_is_refused_without_showing_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let secret = key(1);
        for (text, mode, expected) in [
            (secret.as_str(), 0o640, "can be read by others (mode 640)"),
            ("", 0o600, "holds no signing key"),
            ("\n\n", 0o600, "holds no signing key"),
            (&secret[8..], 0o600, "line 1 of"),
            (&format!("{secret}\n\n{secret}x"), 0o600, "line 3 of"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refusal = read(&path).unwrap_err().to_string();
            assert!(refusal.contains(expected), "{refusal}");
            assert!(!refusal.contains(&secret[40..60]), "{refusal}");
        }
    }
}
