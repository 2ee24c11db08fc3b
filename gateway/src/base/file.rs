//! A file with base policies: read whole, bounded, and tried before anybody is asked to serve with it.

use policy::{BasePolicies, Diagnostics, POLICY_BYTES_MAX, ProbeFailure};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaseFileError {
    /// It is not there, or may not be read.
    #[error("cannot read `{}`: {source}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// It is a folder, a pipe or a device, which cannot be read a second time.
    #[error("`{}` is not a regular file", file.display())]
    Irregular {
        /// Which file.
        file: PathBuf,
    },
    /// It is longer than policies may be.
    #[error("`{}` has more than {POLICY_BYTES_MAX} bytes, which is the most that a text of policies may have", file.display())]
    TooLarge {
        /// Which file.
        file: PathBuf,
    },
    /// It is not text.
    #[error("`{}` is not UTF-8", file.display())]
    NotText {
        /// Which file.
        file: PathBuf,
    },
    /// It holds no policies. That would deny everything, and is what a file looks like that is being written.
    #[error("`{}` holds no policies; to deny everything, write a `forbid`", file.display())]
    Empty {
        /// Which file.
        file: PathBuf,
    },
    /// What it holds are no policies.
    #[error("the policies in `{}` are not valid", file.display())]
    Invalid {
        /// Which file.
        file: PathBuf,
        /// What is wrong with them.
        #[source]
        diagnostics: Diagnostics,
    },
    /// The policies allow what they must not.
    #[error("the policies in `{}` do not hold: {failure}", file.display())]
    Probe {
        /// Which file.
        file: PathBuf,
        /// What they answer.
        failure: ProbeFailure,
    },
}

/// The policies in a file, if a gateway may serve with them.
pub fn read(path: &Path) -> Result<BasePolicies, BaseFileError> {
    let file = || path.to_owned();
    let bytes = bytes(path)?;
    let text = str::from_utf8(&bytes).map_err(|_| BaseFileError::NotText { file: file() })?;
    let base = BasePolicies::parse(text).map_err(|diagnostics| BaseFileError::Invalid {
        file: file(),
        diagnostics,
    })?;
    if base.policy_ids().is_empty() {
        return Err(BaseFileError::Empty { file: file() });
    }
    policy::probe(&base).map_err(|failure| BaseFileError::Probe {
        file: file(),
        failure,
    })?;
    Ok(base)
}

fn bytes(path: &Path) -> Result<Vec<u8>, BaseFileError> {
    let file = || path.to_owned();
    let unreadable = |source| BaseFileError::Unreadable { file: file(), source };
    // Asked before it is opened: opening a pipe waits for somebody to write to it.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(BaseFileError::Irregular { file: file() });
    }
    let mut bytes = Vec::new();
    let bound = POLICY_BYTES_MAX as u64 + 1;
    let opened = File::open(path).map_err(unreadable)?;
    opened.take(bound).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > POLICY_BYTES_MAX {
        return Err(BaseFileError::TooLarge { file: file() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a file with these bytes.
    fn said(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base.cedar");
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        error.replace(&path.display().to_string(), "FILE")
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        assert_eq!(
            said(b""),
            "`FILE` holds no policies; to deny everything, write a `forbid`"
        );
        assert_eq!(said(b"// Soon.\n"), said(b""));
        assert_eq!(said(&[0xff]), "`FILE` is not UTF-8");
        assert_eq!(said(b"permit"), "the policies in `FILE` are not valid");
        assert_eq!(
            said(b"@id(\"all\") permit (principal, action, resource);"),
            "the policies in `FILE` do not hold: the base policies answer `allow` to a change that a suspected attacker asks for"
        );
        let long = vec![b' '; POLICY_BYTES_MAX + 1];
        assert_eq!(
            said(&long),
            "`FILE` has more than 262144 bytes, which is the most that a text of policies may have"
        );
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            read(folder.path()),
            Err(BaseFileError::Irregular { .. })
        ));
        assert!(matches!(
            read(Path::new("/dev/zero")),
            Err(BaseFileError::Irregular { .. })
        ));
        let absent = folder.path().join("absent");
        assert!(matches!(read(&absent), Err(BaseFileError::Unreadable { .. })));
    }

    #[test]
    fn the_shipped_policies_can_be_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base.cedar");
        std::fs::write(&path, BasePolicies::SHIPPED).unwrap();
        assert_eq!(read(&path).unwrap().digest(), BasePolicies::shipped().digest());
    }
}
