//! `countersign verify FILE`: whether an exported ledger, or evidence, is what was recorded, without a gateway and
//! without a network.
//!
//! It reads a line at a time, so a file of any size takes the same memory. A file that was cut off has no end. That the
//! ledger was not rewritten, or its end cut off before the export, only a checkpoint kept elsewhere can show: `--held`,
//! with the keys of the log.

mod named;
mod of_run;
mod pack;

use crate::config::Verify;
use crate::signing::history::{KeyHistory, UntoldKeys, is_about_keys};
use engine::EntryKind;
use ledger::export::{ExportReport, ExportVerifier};
use ledger::{
    Anchor, KeySet, MalformedKeySet, PublishedKey, Report, SignatureKind, TrustPolicy, TrustedCheckpoint,
    Unverified, VerifierKey,
};
use model::TenantId;
use named::Named;
use of_run::OfRun;
use pack::{BadPack, Contents};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The longest line: well above the largest entry, which tells of an ask with all its parameters, of a tool with all its
/// schemas, or of all policies of a tenant that decide one ask or take the place of others. These have bounds for it:
/// `TEXT_BYTES_MAX`, `policy::NAMED_MAX`, `STATEMENTS_MAX`, `IDS_BYTES_MAX`, `GROUPS_BYTES_MAX`.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The bytes of a time.
const TIME_BYTES: usize = 24;
/// Where the kind of an entry stands behind the beginning of its time: behind `","body":"`, a digest, and `",`.
const KIND_AT: usize = TIME_BYTES + 10 + 71 + 2;
/// The file is not an unbroken ledger.
const NOT_VERIFIED: u8 = 1;
/// There is no such file, or it cannot be read.
const NOT_READABLE: u8 = 2;

/// Why a file is not verified.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A file with keys or a checkpoint is none.
    #[error("`{}`: {what}", file.display())]
    Unusable {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No export has such a line.
    #[error("line {0} has more than {LINE_BYTES_MAX} bytes")]
    LineTooLong(u64),
    /// It is not an unbroken ledger.
    #[error(transparent)]
    Unverified(#[from] Unverified),
    /// It is no whole evidence.
    #[error(transparent)]
    Pack(#[from] BadPack),
    /// Nobody's signature was compared, and nobody has said that none was to be.
    #[error(
        "nothing says whose it is: name the keys of the log with `--keys`, or ask with `--unsigned` only whether it agrees with itself"
    )]
    NoKeys,
    /// The ledger tells of other keys.
    #[error("the keys are not those that the ledger tells of: {0}")]
    Keys(String),
    /// The last line is not there.
    #[error(
        "the file has no end: it was cut off, made by hand, or exported by a version that wrote none; export it again, or hold it against a checkpoint of its last entry (`--held`)"
    )]
    NoEnd,
}

/// Verifies a file, or what comes in if it is `-`, and says what was found: on one line, and by the exit code.
pub fn run(options: &Verify) -> ExitCode {
    let file = options.file.as_path();
    let is_stdin = file == Path::new("-");
    let name = if is_stdin {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let (code, line) = match verify_as_told(options, is_stdin) {
        Ok(report) => (ExitCode::SUCCESS, format!("{name}: {report}")),
        Err(failure) => (failure.exit_code(), format!("{name}: NOT VERIFIED: {failure}")),
    };
    let line = plain(&line);
    let written = if code == ExitCode::SUCCESS {
        writeln!(io::stdout(), "{line}")
    } else {
        writeln!(io::stderr(), "{line}")
    };
    // A success that nobody was told of is none.
    if written.is_ok() {
        code
    } else {
        ExitCode::from(NOT_READABLE)
    }
}

/// A line as it may be written on a terminal. What the file says of itself stands in it: whoever made that could write
/// another verdict over it.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    for character in line.chars() {
        if is_steering(character) {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whether a character is not shown, but has a terminal do something: a control, the end of a line, or a turn of the
/// direction of writing.
fn is_steering(character: char) -> bool {
    let turns_or_ends = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || turns_or_ends
}

/// Verifies, with the keys and checkpoints that the options name, and says what was found.
fn verify_as_told(options: &Verify, is_stdin: bool) -> Result<String, Failure> {
    // Read once: what comes through a pipe is gone then.
    let keys = options.keys.as_deref().map(published).transpose()?;
    let trust = trust(options, keys.as_ref())?;
    if trust.is_none() && !options.unsigned && options.held.is_empty() {
        return Err(Failure::NoKeys);
    }
    let mut verifier = ExportVerifier::new();
    if let Some(trust) = &trust {
        verifier = verifier.trusting(trust);
    }
    let held = held(options, trust.as_ref())?;
    for checkpoint in &held {
        verifier = verifier.against(checkpoint.clone());
    }
    let mut input = Input::new(verifier);
    input.history = keys.as_ref().map(|_| KeyHistory::default());
    let found = if is_stdin {
        input.read(&mut io::stdin().lock())?
    } else {
        input.read(&mut BufReader::new(File::open(&options.file)?))?
    };
    // With keys, a checkpoint that is held stands for it, if it is one of exactly these entries.
    if !found.report.has_end && trust.is_none() {
        return Err(Failure::NoEnd);
    }
    let untold = match &keys {
        Some(keys) => found.check_keys(keys, &held)?,
        None => UntoldKeys::default(),
    };
    Ok(found.describe(trust.as_ref(), untold))
}

/// The checkpoints that the options name.
fn held(options: &Verify, trust: Option<&TrustPolicy>) -> Result<Vec<TrustedCheckpoint>, Failure> {
    let open = |path: &PathBuf| {
        let unusable = |what: String| Failure::unusable(path, what);
        let trust = trust.ok_or_else(|| unusable("it takes `--key` or `--keys` to trust it".to_owned()))?;
        let read = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        trust
            .open(&read)
            .map_err(|untrusted| unusable(untrusted.to_string()))
    };
    options.held.iter().map(open).collect()
}

/// What a file with the log's keys has.
fn published(path: &Path) -> Result<KeySet, Failure> {
    let unusable = |what: String| Failure::unusable(path, what);
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    KeySet::parse(&text).map_err(|error: MalformedKeySet| unusable(error.to_string()))
}

/// The keys that the options name, if they name any. `published` are those of the file that they name.
fn trust(options: &Verify, published: Option<&KeySet>) -> Result<Option<TrustPolicy>, Failure> {
    let always = |vkey: &VerifierKey| PublishedKey {
        vkey: vkey.clone(),
        not_before: None,
        not_after: None,
    };
    let mut keys: Vec<_> = options.key.iter().map(always).collect();
    if let Some(published) = published {
        keys.extend(published.keys().iter().cloned());
    }
    let witnesses = witnesses(options)?;
    if keys.is_empty() {
        let unused = Failure::unusable(
            Path::new("--witness"),
            "it takes `--key` or `--keys` too".to_owned(),
        );
        return if witnesses.is_empty() {
            Ok(None)
        } else {
            Err(unused)
        };
    }
    let keys = KeySet::new(keys).map_err(|error| Failure::unusable(Path::new("--key"), error.to_string()))?;
    Ok(Some(TrustPolicy {
        keys,
        quorum: options
            .quorum
            .map_or_else(|| names(&witnesses).len(), NonZeroUsize::get),
        witnesses,
    }))
}

/// The witnesses that the options name.
fn witnesses(options: &Verify) -> Result<Vec<VerifierKey>, Failure> {
    let unusable = |what: String| Failure::unusable(Path::new("--witness"), what);
    let witnesses = &options.witness;
    if let Some(log) = witnesses
        .iter()
        .find(|key| key.kind() != SignatureKind::Cosignature)
    {
        return Err(unusable(format!("`{}` is the key of a log", log.label())));
    }
    let named = names(witnesses).len();
    match options.quorum {
        Some(quorum) if quorum.get() > named => Err(unusable(format!(
            "{quorum} must have cosigned, but {named} are named"
        ))),
        _ => Ok(witnesses.clone()),
    }
}

/// Witnesses count by name: two keys of one name are not two witnesses.
fn names(witnesses: &[VerifierKey]) -> BTreeSet<&str> {
    witnesses.iter().map(VerifierKey::name).collect()
}

/// Verifies an export that nobody vouches for, or a part of one: whether it agrees with itself.
pub fn verify(export: &mut impl BufRead) -> Result<Report, Failure> {
    let found = Input::new(ExportVerifier::new()).read(export)?;
    Ok(found.report.entries)
}

/// What is being verified.
struct Input<'t> {
    verifier: ExportVerifier<'t>,
    lines: u64,
    is_broken: bool,
    /// Whether the last line had no newline: nothing may follow it, not even in another file of an archive.
    lacks_newline: bool,
    /// What the entries say of the log's keys, if those are known otherwise.
    history: Option<KeyHistory>,
    /// Whether the body of an entry that tells of a key is left out.
    lacks_keys: bool,
    /// What decisions name, if it is to be there.
    named: Option<Named>,
    /// Which run the entries of an archive are of.
    of_run: OfRun,
    /// When the last entry was recorded.
    until: String,
}

/// What was found.
struct Found {
    report: ExportReport,
    /// What else an archive has.
    pack: Option<Contents>,
    history: KeyHistory,
    /// Whether the body of an entry that tells of a key is left out.
    lacks_keys: bool,
    until: String,
}

impl<'t> Input<'t> {
    const fn new(verifier: ExportVerifier<'t>) -> Self {
        Self {
            verifier,
            lines: 0,
            is_broken: false,
            lacks_newline: false,
            history: None,
            lacks_keys: false,
            named: None,
            of_run: OfRun::new(),
            until: String::new(),
        }
    }

    /// Reads an export or evidence, whichever it is.
    fn read(mut self, file: &mut impl BufRead) -> Result<Found, Failure> {
        let begin = pack::begin(file)?;
        let is_pack = pack::is_pack(&begin);
        let mut whole = begin.as_slice().chain(file);
        let mut pack = if is_pack {
            self.named = Some(Named::default());
            // What is wrong with an entry is worth more than that the rest was not read.
            let contents = pack::read(&mut whole, &mut self);
            if self.is_broken { None } else { Some(contents?) }
        } else {
            self.push_lines(&mut whole)?;
            None
        };
        let report = self.verifier.finish()?;
        if let (Some(contents), Some(named)) = (&mut pack, &self.named) {
            contents.check(&report, named, &self.of_run)?;
        }
        Ok(Found {
            report,
            pack,
            history: self.history.unwrap_or_default(),
            lacks_keys: self.lacks_keys,
            until: self.until,
        })
    }

    /// Verifies the lines of a file, up to the first fault.
    fn push_lines(&mut self, file: &mut impl BufRead) -> Result<(), Failure> {
        let mut line = Vec::new();
        while !self.is_broken {
            line.clear();
            let length = file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if length == 0 {
                break;
            }
            if self.lacks_newline {
                return Err(BadPack::NoNewline.into());
            }
            self.lacks_newline = !line.ends_with(b"\n");
            self.lines += 1;
            if length as u64 == LINE_BYTES_MAX && self.lacks_newline {
                return Err(Failure::LineTooLong(self.lines));
            }
            self.is_broken = self.verifier.push_line(&line).is_err();
            self.note(&line);
        }
        Ok(())
    }

    /// Takes in what an entry says of the log's keys, what a decision names, and of which run they are. The line has
    /// been verified, so its layout is known.
    fn note(&mut self, line: &[u8]) {
        if self.history.is_none() && self.named.is_none() {
            return;
        }
        let rest = line
            .strip_prefix(br#"{"header":{"at":""#)
            .filter(|_| !self.is_broken);
        let Some(Ok(rest)) = rest.map(std::str::from_utf8) else {
            return;
        };
        let at = rest.get(..TIME_BYTES).unwrap_or_default();
        at.clone_into(&mut self.until);
        // Behind the time stands the digest of the body, which is always as long, and then the kind.
        let kind = rest
            .get(KIND_AT..)
            .and_then(|rest| rest.strip_prefix(r#""kind":""#)?.split_once('"'));
        let Some((kind, rest)) = kind else { return };
        let (is_of_keys, is_decision) = (is_about_keys(kind), kind == EntryKind::Decision.as_str());
        if !is_of_keys && !is_decision && self.named.is_none() {
            return;
        }
        let body = rest.split_once(r#","body":"#);
        let body = body.map(|(_, body)| body.trim_end().strip_suffix('}').unwrap_or_default());
        if self.named.is_some() {
            self.of_run.push(kind, body);
        }
        let Some(body) = body else {
            self.lacks_keys |= is_of_keys;
            return;
        };
        match (&mut self.history, &mut self.named) {
            (Some(history), _) if is_of_keys => history.push(kind, body),
            (_, Some(named)) if is_decision => named.want(body),
            _ => {}
        }
    }
}

impl Found {
    /// Checks keys that are said to be the log's, if the file is the whole ledger that tells of them: bodies of entries
    /// about something else may be left out, which entries those are is proven by their headers. What is younger than
    /// its last entry, it cannot tell; but what has signed just these entries it must. Returns how much it does not tell.
    ///
    /// # Errors
    /// The ledger tells of other keys.
    fn check_keys(&self, keys: &KeySet, held: &[TrustedCheckpoint]) -> Result<UntoldKeys, Failure> {
        let (entries, history) = (&self.report.entries, &self.history);
        let is_whole = matches!(entries.anchor, Anchor::Genesis) && !self.lacks_keys;
        let tells_of_keys = entries.tenant == TenantId::SYSTEM.to_string();
        if !is_whole || !tells_of_keys {
            return Ok(UntoldKeys::default());
        }
        if let Some(what) = history.differs_from(keys.keys(), Some(&self.until)) {
            return Err(Failure::Keys(what));
        }
        let mut signers = self.at_end(held).map(|checkpoint| &checkpoint.key().vkey);
        if let Some(signer) = signers.find(|signer| !history.tells_of(signer)) {
            return Err(Failure::Keys(format!(
                "the key `{}` has signed the checkpoint of these entries, and none of them tells that it was added",
                signer.label()
            )));
        }
        Ok(history.untold_of(keys.keys()))
    }

    /// The checkpoints of exactly these entries: that of the end, or those of `held` that stand for it.
    fn at_end<'a>(&'a self, held: &'a [TrustedCheckpoint]) -> impl Iterator<Item = &'a TrustedCheckpoint> {
        let (last, has_end) = (self.report.entries.head.seq, self.report.has_end);
        let held = held.iter().filter(move |_| !has_end);
        let all = self.report.checkpoint.iter().chain(held);
        all.filter(move |checkpoint| checkpoint.checkpoint().size == last)
    }

    fn describe(&self, trust: Option<&TrustPolicy>, untold: UntoldKeys) -> String {
        let Self { report, pack, .. } = self;
        let mut text = describe(&report.entries);
        let mut add = |count: u64, what: &str| {
            if count > 0 {
                write!(text, ", {count} {what}").expect("writing to a string does not fail");
            }
        };
        add(report.untold, "of these without a word about it in this file");
        add(
            report.left_out,
            "whose body is left out on the word of whoever made the file",
        );
        add(report.answers, "answers");
        add(report.unanswered, "decisions whose answer is not in this file");
        if let Some(pack) = pack {
            add(pack.count.named, "files that decisions name");
            add(pack.count.unnamed, "files that no decision names");
            add(pack.count.missing, "missing of what decisions name");
        }
        add(
            untold.keys,
            "of the published keys without a word about it in this file",
        );
        add(
            untold.ends,
            "of the ends of published keys without a word about it in this file",
        );
        let run = pack
            .as_ref()
            .and_then(|pack| pack.manifest.as_ref()?.run_id.as_deref());
        if let Some(run) = run {
            write!(text, ", about the run `{run}`").expect("writing to a string does not fail");
        }
        let Some(trust) = trust else {
            text.push_str(", NOT compared with any key");
            return text;
        };
        text.push_str(", signed by the log");
        if trust.quorum > 0 {
            let (quorum, named) = (trust.quorum, names(&trust.witnesses).len());
            write!(text, ", cosigned by {quorum} of {named} witnesses or more")
                .expect("writing to a string does not fail");
        }
        text
    }
}

fn describe(report: &Report) -> String {
    let Report {
        checked,
        tenant,
        first,
        head,
        ..
    } = report;
    let entries = if *checked == 1 { "entry" } else { "entries" };
    let anchor = match report.anchor {
        Anchor::Genesis => "anchored at seq 1".to_owned(),
        Anchor::Head(_) | Anchor::None { .. } => {
            format!("NOT anchored at seq 1: what comes before seq {first} was not seen")
        }
    };
    let erased = match report.erased {
        0 => String::new(),
        erased => format!(", {erased} without a body"),
    };
    format!(
        "verified {checked} {entries} of {tenant}, seq {first} to {}{erased}, head {}, {anchor}",
        head.seq, head.hash
    )
}

impl Failure {
    fn unusable(file: &Path, what: String) -> Self {
        let file = file.to_owned();
        Self::Unusable { file, what }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreadable(_) | Self::Unusable { .. } => ExitCode::from(NOT_READABLE),
            Self::LineTooLong(_)
            | Self::Unverified(_)
            | Self::Pack(_)
            | Self::NoKeys
            | Self::Keys(_)
            | Self::NoEnd => ExitCode::from(NOT_VERIFIED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use ledger::export::write_end_line;
    use ledger::{Checkpoint, Entry, EntryHeader, Head, NewEntry, SigningKey, Tip};
    use serde_json::json;

    const TENANT: &str = "tnt_00000000000000000000000000";

    /// A ledger of so many entries, a line each.
    fn lines(count: u64) -> Vec<String> {
        let mut head = Head::GENESIS;
        let mut lines = Vec::new();
        for seq in 1..=count {
            let body = format!("{{\"n\":{seq}}}");
            let header = EntryHeader {
                tenant: TENANT,
                seq,
                kind: "decision",
                at: "2026-01-31T09:30:00.000Z",
                prev: head.hash,
                body: Digest::of(body.as_bytes()),
            };
            let hash = header.hash(&mut String::new());
            let mut line = String::new();
            Entry {
                header,
                hash,
                body: Some(&body),
            }
            .write_line(&mut line);
            lines.push(line);
            head = Head { seq, hash };
        }
        lines
    }

    fn check(lines: &[String]) -> Result<String, Failure> {
        verify(&mut lines.concat().as_bytes()).map(|report| describe(&report))
    }

    fn fault(lines: &[String]) -> String {
        check(lines).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_ledger_is_anchored_at_its_first_entry() {
        let text = check(&lines(3)).unwrap();
        assert!(
            text.starts_with(&format!(
                "verified 3 entries of {TENANT}, seq 1 to 3, head sha256:"
            )),
            "{text}"
        );
        assert!(text.ends_with(", anchored at seq 1"), "{text}");
    }

    #[test]
    fn a_stretch_of_a_ledger_says_what_was_not_seen() {
        let text = check(&lines(3)[1..2]).unwrap();
        assert!(
            text.starts_with(&format!("verified 1 entry of {TENANT}, seq 2 to 2, ")),
            "{text}"
        );
        assert!(
            text.ends_with("NOT anchored at seq 1: what comes before seq 2 was not seen"),
            "{text}"
        );
    }

    #[test]
    fn any_line_that_is_changed_or_missing_is_named() {
        for at in 0..3 {
            let mut changed = lines(4);
            changed[at] = changed[at].replace("\"n\":", "\"m\":");
            assert!(
                fault(&changed).starts_with(&format!("entry {}: ", at + 1)),
                "{at}"
            );
            let mut cut = lines(4);
            cut.remove(at);
            // Without its first line it is a stretch, and says so.
            match at {
                0 => assert!(check(&cut).unwrap().contains("NOT anchored")),
                _ => assert!(fault(&cut).contains("is due"), "{at}"),
            }
        }
    }

    #[test]
    fn a_file_without_entries_is_not_verified() {
        assert_eq!(fault(&[]), "there is no entry to verify");
    }

    #[test]
    fn a_line_without_end_is_not_read_to_its_end() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(matches!(verify(&mut endless), Err(Failure::LineTooLong(1))));
    }

    /// A whole export with its end, from the vectors.
    fn export() -> String {
        let vectors = include_str!("../../../crates/ledger/vectors/exports.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        let name = "a checkpoint, and nobody known who could have signed it";
        let case = cases.iter().find(|case| case["name"] == name).unwrap();
        case["file"].as_str().unwrap().to_owned()
    }

    const AT: &str = "2026-01-31T09:30:00.000Z";

    fn log_key(seed: u8) -> SigningKey {
        SigningKey::from_seed("log.example", SignatureKind::Note, &[seed; 32]).unwrap()
    }

    /// The ledger of the system tenant, which tells of the first key only, and then of a tenant, and its checkpoint,
    /// which the key of this seed has signed. The body of the entry with the number `left_out` is.
    fn system_ledger(seed: u8, left_out: Option<u64>) -> (String, String) {
        let tenant = TenantId::SYSTEM.to_string();
        let key = json!({"not_before": AT, "vkey": log_key(1).verifier().to_string()}).to_string();
        let told = [
            (EntryKind::LogKeyAdded, key),
            (EntryKind::TenantCreated, "{}".to_owned()),
        ];
        let (mut tip, mut lines) = (Tip::GENESIS, String::new());
        for (kind, body) in &told {
            let new = NewEntry {
                tenant: &tenant,
                kind: kind.as_str(),
                at: AT,
                body: Digest::of(body.as_bytes()),
            };
            let appended = tip.append(&new, &mut String::new());
            let entry = Entry {
                header: EntryHeader {
                    tenant: &tenant,
                    seq: appended.head.seq,
                    kind: new.kind,
                    at: AT,
                    prev: appended.prev,
                    body: new.body,
                },
                hash: appended.head.hash,
                body: Some(body),
            };
            if left_out == Some(appended.head.seq) {
                entry.write_line_without_body(&mut lines);
            } else {
                entry.write_line(&mut lines);
            }
        }
        let checkpoint = Checkpoint::new("log.example", &tenant, tip.head().seq, tip.tree().root());
        (lines, checkpoint.sign(&[&log_key(seed)]).unwrap().to_string())
    }

    /// The second one is published because somebody has put it into the database, and begins behind the last entry.
    #[test]
    fn a_key_of_which_no_entry_tells_is_counted_and_signs_no_whole_ledger_that_tells_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let keys = json!({"keys": [
            {"vkey": log_key(1).verifier().to_string(), "not_before": AT},
            {"vkey": log_key(2).verifier().to_string(), "not_before": "9999-12-31T23:59:59.999Z"},
        ]});
        let keys = write("keys.json", &keys.to_string());
        let verify = |text: &str, held: Vec<PathBuf>| {
            let options = Verify {
                file: write("system.ndjson", text),
                key: Vec::new(),
                keys: Some(keys.clone()),
                held,
                witness: Vec::new(),
                quorum: None,
                unsigned: false,
            };
            verify_as_told(&options, false).unwrap_or_else(|failure| failure.to_string())
        };
        let counted = ", 1 of the published keys without a word about it in this file, signed by the log";
        let refused = "none of them tells that it was added";
        // Where it is not known what an entry tells of keys, that is held against none.
        let not_compared = "of whoever made the file, signed by the log";
        for (seed, left_out, expected) in [
            (1, None, counted),
            (2, None, refused),
            (1, Some(2), counted),
            (2, Some(2), refused),
            (2, Some(1), not_compared),
        ] {
            let (entries, checkpoint) = system_ledger(seed, left_out);
            let mut whole = entries.clone();
            write_end_line(&checkpoint, &[], &mut whole);
            let held = write("checkpoint.txt", &checkpoint);
            for said in [verify(&whole, Vec::new()), verify(&entries, vec![held])] {
                assert!(said.contains(expected), "{said}");
            }
        }
    }

    #[test]
    fn what_would_steer_a_terminal_is_written_by_its_number() {
        let words = "ledger \\ \"é\" `ä` `\u{65e5}\u{672c}`: verified";
        assert_eq!(plain(words), words);
        let steering = "\r\n\u{1b}[2K\u{7f}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{2069}x";
        assert_eq!(
            plain(steering),
            r"\r\n\u{1b}[2K\u{7f}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{2069}x"
        );
    }

    #[test]
    fn the_exit_code_tells_a_bad_file_from_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.ndjson");
        let run = |file: &Path| {
            run(&Verify {
                file: file.to_owned(),
                key: Vec::new(),
                keys: None,
                held: Vec::new(),
                witness: Vec::new(),
                quorum: None,
                unsigned: true,
            })
        };
        assert_eq!(run(&file), ExitCode::from(NOT_READABLE));
        let whole = export();
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(run(&file), ExitCode::SUCCESS);
        std::fs::write(&file, whole.replacen("\"seq\":2", "\"seq\":3", 1)).unwrap();
        assert_eq!(run(&file), ExitCode::from(NOT_VERIFIED));
        let end = whole.rfind("{\"end\"").unwrap();
        std::fs::write(&file, &whole[..end]).unwrap();
        assert_eq!(run(&file), ExitCode::from(NOT_VERIFIED));
    }
}
