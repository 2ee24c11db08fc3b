//! Verifying evidence: the archive of `GET /v1/ledger/evidence`, read once from the beginning to the end, a line at a time.

use super::named::{Count, NAMED_MAX, Named};
use super::of_run::OfRun;
use super::{Failure, Input};
use crate::records::evidence::tar::{self, BadHeader};
use canon::{Digest, ErrorKind, Hasher, Limits};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};

/// What is there once, beside entries and what decisions name.
const PLAIN: [&str; 3] = ["README.md", "manifest.json", "keys.json"];
/// How much is read at once of a file that is only hashed: a set of policies, or a noun.
const PART_BYTES: u64 = 64 * 1024;
/// The only file beside entries that says something, in four members.
const MANIFEST_LIMITS: Limits = Limits {
    bytes_max: 64 * 1024 * 1024,
    depth_max: 8,
};

/// What is wrong with an archive, beside its entries.
#[derive(Debug, thiserror::Error)]
pub enum BadPack {
    /// It is cut off, or was put together by somebody else.
    #[error("the archive is cut off or damaged")]
    Damaged,
    /// It was packed again, in the format that many programs have for their own.
    #[error("the archive is not in the ustar format; pack it with `--format=ustar`")]
    OtherFormat,
    /// It was packed again with more than the files.
    #[error("there is a folder or a link in the archive; pack the files alone, in the same order")]
    NotAFile,
    /// A program would take a file for another one than a different program does.
    #[error("a name in the archive has a prefix, which no name of evidence needs")]
    Prefixed,
    /// A file in it is not what it should be.
    #[error("`{file}`: {what}")]
    File {
        /// Which.
        file: String,
        /// What is wrong.
        what: &'static str,
    },
    /// An answer is not there.
    #[error("the answers to {0} decisions are missing")]
    Unanswered(u64),
    /// The policies by which something was decided are not there.
    #[error("the policies `{0}` are missing, and decisions name them")]
    NoPolicies(Digest),
    /// It has more than is kept in mind.
    #[error("decisions name more than {NAMED_MAX} things; ask for evidence of fewer entries")]
    TooMuchNamed,
    /// Behind each other, its files of entries are no export.
    #[error("a file of entries in the archive does not end with a newline, and another one follows")]
    NoNewline,
    /// The last line of its entries is not there.
    #[error("the entries in the archive have no end: they were cut off, or made by hand")]
    NoEnd,
}

impl From<BadHeader> for BadPack {
    fn from(bad: BadHeader) -> Self {
        match bad {
            BadHeader::OfGnu | BadHeader::OfPax => Self::OtherFormat,
            BadHeader::NotAFile => Self::NotAFile,
            BadHeader::Prefixed => Self::Prefixed,
            BadHeader::Damaged => Self::Damaged,
        }
    }
}

/// What an archive says of itself.
#[derive(Deserialize)]
pub(super) struct Manifest {
    tenant: String,
    from_seq: u64,
    to_seq: u64,
    /// The run that it is about.
    pub(super) run_id: Option<String>,
}

impl Manifest {
    /// Reads one, or says what is wrong with it: it has one meaning, whoever reads it.
    fn read(file: &mut impl Read) -> io::Result<Result<Self, &'static str>> {
        let mut bytes = Vec::new();
        file.take(MANIFEST_LIMITS.bytes_max as u64 + 1)
            .read_to_end(&mut bytes)?;
        if let Err(error) = canon::canonicalize(&bytes, MANIFEST_LIMITS) {
            return Ok(Err(match error.kind {
                ErrorKind::TooLarge { .. } => "it is too large",
                _ => "it is no JSON with one meaning",
            }));
        }
        let manifest = std::str::from_utf8(&bytes).map(canon::read);
        Ok(match manifest {
            Ok(Ok(manifest)) => Ok(manifest),
            _ => Err("it does not say what the evidence is about"),
        })
    }
}

/// What was found in an archive, beside its entries.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) manifest: Option<Manifest>,
    /// How much of what decisions name is there.
    pub(super) count: Count,
    /// The last file of entries.
    part: String,
    /// Which of the files were there that are there once.
    plain: BTreeSet<String>,
}

/// Where an archive says in its first block that it is one, and what it says (POSIX.1-1988, ustar).
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";

/// What a file begins with: a block of it, unless it is shorter. Of a pipe not all of that may have come yet.
pub(super) fn begin(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::with_capacity(tar::BLOCK);
    file.take(tar::BLOCK as u64).read_to_end(&mut begin)?;
    Ok(begin)
}

/// Whether what begins like this is an archive, whichever file comes first in it.
pub(super) fn is_pack(begin: &[u8]) -> bool {
    begin.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(MAGIC))
}

/// Reads an archive: its lines go to the verifier of the input.
pub(super) fn read(archive: &mut impl BufRead, input: &mut Input<'_>) -> Result<Contents, Failure> {
    let mut contents = Contents::default();
    let mut header = [0; tar::BLOCK];
    loop {
        fill(archive, &mut header)?;
        if header == [0; tar::BLOCK] {
            // An archive ends with two blocks of zeros, and most programs fill up what is left of twenty.
            fill(archive, &mut header)?;
            return if header == [0; tar::BLOCK] && is_filled_up(archive)? {
                Ok(contents)
            } else {
                Err(BadPack::Damaged.into())
            };
        }
        let (name, length) = tar::read_header(&header).map_err(BadPack::from)?;
        let mut file = archive.by_ref().take(length);
        contents.file(&name, &mut file, input)?;
        if file.limit() > 0 {
            return Err(BadPack::Damaged.into());
        }
        let mut padding = [0; tar::BLOCK];
        let padding = &mut padding[..tar::padding(length)];
        fill(archive, padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(BadPack::Damaged.into());
        }
    }
}

/// Whether nothing but further blocks of zeros follows.
fn is_filled_up(archive: &mut impl BufRead) -> Result<bool, Failure> {
    let mut block = [0; tar::BLOCK];
    while !archive.fill_buf()?.is_empty() {
        fill(archive, &mut block)?;
        if block != [0; tar::BLOCK] {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill(archive: &mut impl Read, bytes: &mut [u8]) -> Result<(), Failure> {
    archive.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BadPack::Damaged.into(),
        _ => error.into(),
    })
}

/// The digest of a file of any length.
fn hash(file: &mut impl Read) -> io::Result<Digest> {
    let (mut hasher, mut part) = (Hasher::default(), Vec::new());
    while file.by_ref().take(PART_BYTES).read_to_end(&mut part)? > 0 {
        hasher.update(&part);
        part.clear();
    }
    Ok(hasher.finish())
}

impl Contents {
    fn file(&mut self, name: &str, file: &mut impl BufRead, input: &mut Input<'_>) -> Result<(), Failure> {
        let wrong = |what| BadPack::File {
            file: name.to_owned(),
            what,
        };
        match name.split_once('/') {
            Some(("ledger", part)) if is_part(part) => {
                if *part <= *self.part {
                    return Err(wrong("files of entries are not in their order").into());
                }
                part.clone_into(&mut self.part);
                return input.push_lines(file);
            }
            None if PLAIN.contains(&name) => {
                if !self.plain.insert(name.to_owned()) {
                    return Err(wrong("it is there twice, and only one of them is unpacked").into());
                }
            }
            Some(("named", _)) => {}
            _ => return Err(wrong("evidence has no such file").into()),
        }
        match name.split_once('/') {
            Some((_, digest)) => {
                let found = hash(file)?;
                if found.to_string().strip_prefix("sha256:") != Some(digest) {
                    return Err(wrong("its bytes do not hash to its name").into());
                }
                if let Some(named) = &mut input.named {
                    named.come(found);
                }
            }
            None if name == "manifest.json" => {
                self.manifest = Some(Manifest::read(file)?.map_err(wrong)?);
            }
            // What proves nothing is skipped.
            None => {
                io::copy(file, &mut io::sink())?;
            }
        }
        Ok(())
    }

    /// Whether the archive has what it says it has, and what its decisions name.
    pub(super) fn check(
        &mut self,
        report: &ledger::export::ExportReport,
        named: &Named,
        of_run: &OfRun,
    ) -> Result<(), BadPack> {
        let says = self.manifest.as_ref().ok_or(BadPack::Damaged)?;
        let wrong = |what| BadPack::File {
            file: "manifest.json".to_owned(),
            what,
        };
        let entries = &report.entries;
        if (&says.tenant, says.from_seq, says.to_seq) != (&entries.tenant, entries.first, entries.head.seq) {
            return Err(wrong("it names other entries than there are"));
        }
        if says.run_id.is_none() && report.left_out > 0 {
            return Err(wrong("it names no run, and bodies are left out"));
        }
        if let Some(what) = says.run_id.as_deref().and_then(|run| of_run.differs_from(run)) {
            return Err(wrong(what));
        }
        if report.unanswered > 0 {
            return Err(BadPack::Unanswered(report.unanswered));
        }
        if !report.has_end {
            return Err(BadPack::NoEnd);
        }
        self.count = named.count()?;
        Ok(())
    }
}

/// Whether a file of entries is called like this: by a number, so that no two names lead to one place where they are unpacked.
fn is_part(name: &str) -> bool {
    name.strip_suffix(".ndjson")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::export::ExportVerifier;
    use std::io::BufReader;

    #[test]
    fn an_archive_is_told_from_lines_however_little_of_it_comes_at_once() {
        let mut block = [0; tar::BLOCK];
        block[MAGIC_AT..][..MAGIC.len()].copy_from_slice(MAGIC);
        let (first, rest) = block.split_at(10);
        assert!(is_pack(&begin(&mut first.chain(rest)).unwrap()));
        assert!(!is_pack(&begin(&mut &b"{\"start\":"[..]).unwrap()));
    }

    #[test]
    fn what_was_packed_again_with_folders_or_links_is_told_so() {
        for (kind, words) in [
            (b'5', "there is a folder or a link in the archive"),
            (b'2', "there is a folder or a link in the archive"),
            (b'x', "pack it with `--format=ustar`"),
        ] {
            let mut packed = Vec::new();
            tar::file("ledger", b"", &mut packed);
            packed[156] = kind;
            // The sum is taken with spaces in its own place.
            packed[148..156].fill(b' ');
            let sum: u32 = packed.iter().map(|byte| u32::from(*byte)).sum();
            packed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            let found = read(&mut &packed[..], &mut Input::new(ExportVerifier::new()));
            let why = found.err().unwrap().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    fn add(name: &str, bytes: impl Read) -> Result<Contents, Failure> {
        let mut contents = Contents::default();
        let mut input = Input::new(ExportVerifier::new());
        contents.file(name, &mut BufReader::new(bytes), &mut input)?;
        Ok(contents)
    }

    #[test]
    fn what_decisions_name_is_hashed_however_long_it_is() {
        // The SHA-256 of 64 MiB of zeros and one more.
        let name = "named/91990977345985aaf03af1358f4f989d7eaf985b58529efb72f613c588f6599a";
        let zeros = |count| io::repeat(0).take(count);
        add(name, zeros(64 * 1024 * 1024 + 1)).unwrap();
        let why = add(name, zeros(64 * 1024 * 1024)).err().unwrap().to_string();
        assert!(why.contains("its bytes do not hash to its name"), "{why}");
    }

    #[test]
    fn a_manifest_is_one_object_with_one_meaning_and_not_endless() {
        let manifest = r#"{"tenant":"tnt_1","from_seq":1,"to_seq":2,"run_id":null,"more":[]}"#;
        let found = add("manifest.json", manifest.as_bytes()).unwrap();
        assert!(found.manifest.is_some());
        let twice = manifest.replace("\"more\"", "\"more\":1,\"more\"");
        for (wrong, expected) in [
            (twice.as_str(), "one meaning"),
            (r#"["tnt_1",1,2,null]"#, "does not say"),
            (r#"{"tenant":"tnt_1","from_seq":1.0,"to_seq":2}"#, "does not say"),
        ] {
            let why = add("manifest.json", wrong.as_bytes()).err().unwrap();
            assert!(why.to_string().contains(expected), "{why}");
        }
        let why = add("manifest.json", io::repeat(b' ')).err().unwrap();
        assert!(why.to_string().contains("too large"), "{why}");
    }
}
