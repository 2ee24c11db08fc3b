//! A file that a stranger can verify: lines of entries, and around them what says where they belong.
//!
//! - `{"start":{…}}`, first, where the entries do not begin with the first of the ledger: the end of the ledger before
//!   them. Further on it says again where the entries before it end, so that a file which was cut can be continued with
//!   another one.
//! - lines of entries, each with its answer behind it where that is exported too: `{"answer":…}`, the exact bytes.
//! - `{"end":{…}}`, last: a checkpoint, and the proof that it continues the entries.
//!
//! The start is what the file says; that it is right follows from the end, because the tree of the checkpoint has it in
//! it. Bodies that were erased are held against the entries that tell of erasures, and those of most kinds never are.

mod untold;

use canon::{Digest, write_string};
use serde::Deserialize;

use crate::checkpoint::Checkpoint;
use crate::encoding;
use crate::entry::write_decimal;
use crate::erasure::is_erasable;
use crate::line::Line;
use crate::merkle::{Frontier, PROOF_LEN_MAX};
use crate::note::Note;
use crate::range::EntryRange;
use crate::reader::{Malformed, Reader};
use crate::receipt::{RECEIPT_KIND, ReceiptVerifier, SignedAnswer};
use crate::trust::{TrustPolicy, TrustedCheckpoint, Untrusted};
use crate::{Broken, Fault, Head, Report, Tip, Unverified, Verifier};
use untold::{ERASURE_KIND, Untold};

/// What has been verified of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportReport {
    /// The entries.
    pub entries: Report,
    /// How many bodies were left out by whoever made the file.
    pub left_out: u64,
    /// How many bodies were erased, and no entry in the file tells of that.
    pub untold: u64,
    /// How many answers stood beside them.
    pub answers: u64,
    /// How many decisions have a body and no answer.
    pub unanswered: u64,
    /// Whether the file has an end. One that was cut off has none.
    pub has_end: bool,
    /// The checkpoint at the end, if it was there and its keys are trusted: then entries and start are those of the log.
    pub checkpoint: Option<TrustedCheckpoint>,
}

/// Appends the line of the start. The tip is not that of an empty ledger: there the entries begin with the first.
pub fn write_start_line(tip: &Tip, out: &mut String) {
    out.push_str(r#"{"start":{"seq":"#);
    write_decimal(out, tip.head().seq);
    out.push_str(r#","hash":""#);
    tip.head().hash.write_to(out);
    out.push_str(r#"","edge":"#);
    write_hashes(tip.tree().hashes(), out);
    out.push_str("}}\n");
}

/// Appends the line of an answer, behind that of its entry. The bytes are those of the answer as it was sent.
pub fn write_answer_line(answer: &str, out: &mut String) {
    out.push_str(r#"{"answer":"#);
    out.push_str(answer);
    out.push_str("}\n");
}

/// Appends the line of the end: the note of a checkpoint, and the consistency proof from the entries to it.
pub fn write_end_line(checkpoint: &str, proof: &[Digest], out: &mut String) {
    out.push_str(r#"{"end":{"checkpoint":"#);
    write_string(out, checkpoint);
    out.push_str(r#","proof":"#);
    write_hashes(proof, out);
    out.push_str("}}\n");
}

fn write_hashes(hashes: &[Digest], out: &mut String) {
    out.push('[');
    for (place, hash) in hashes.iter().enumerate() {
        out.push_str(if place == 0 { "\"" } else { ",\"" });
        encoding::encode_to(out, hash.as_bytes());
        out.push('"');
    }
    out.push(']');
}

/// Verifies a file line by line, in memory that does not grow with it.
#[derive(Debug)]
pub struct ExportVerifier<'t> {
    verifier: Verifier,
    trust: Option<&'t TrustPolicy>,
    receipts: Option<ReceiptVerifier<'t>>,
    has_lines: bool,
    /// Whether the last line was a start. Two of them say nothing together that one would not say.
    is_started: bool,
    answers: u64,
    unanswered: u64,
    left_out: u64,
    untold: Untold,
    /// The body of the last entry, if an answer may follow it.
    answerable: Option<Answerable>,
    end: Option<End>,
}

#[derive(Debug)]
struct Answerable {
    /// Empty if it was erased.
    body: String,
}

#[derive(Debug)]
struct End {
    checkpoint: String,
    proof: Vec<Digest>,
}

impl Default for ExportVerifier<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'t> ExportVerifier<'t> {
    /// A verifier that knows nobody: it finds whether the file agrees with itself.
    pub fn new() -> Self {
        Self {
            verifier: Verifier::from_first_entry(),
            trust: None,
            receipts: None,
            has_lines: false,
            is_started: false,
            answers: 0,
            unanswered: 0,
            left_out: 0,
            untold: Untold::default(),
            answerable: None,
            end: None,
        }
    }

    /// Checkpoint and answers must be signed by whom one trusts, and there must be a checkpoint.
    #[must_use]
    pub fn trusting(mut self, trust: &'t TrustPolicy) -> Self {
        self.trust = Some(trust);
        self.receipts = Some(ReceiptVerifier::new(&trust.keys));
        self
    }

    /// The entries must be those of `tenant`.
    #[must_use]
    pub fn of_tenant(mut self, tenant: &str) -> Self {
        self.verifier = self.verifier.of_tenant(tenant);
        self
    }

    /// The entries must agree with a checkpoint that was held elsewhere, and reach as far. Without an end they must not
    /// reach further than one that is held.
    #[must_use]
    pub fn against(mut self, checkpoint: TrustedCheckpoint) -> Self {
        self.verifier = self.verifier.against(checkpoint);
        self
    }

    /// Exactly these entries must be there.
    #[must_use]
    pub fn over(mut self, range: EntryRange) -> Self {
        self.verifier = self.verifier.over(range);
        self
    }

    /// Checks a line, with or without its newline.
    ///
    /// # Errors
    /// The first fault of the file. It stays: what comes after a fault is not checked.
    pub fn push_line(&mut self, line: &[u8]) -> Result<(), &Broken> {
        let is_first = !std::mem::replace(&mut self.has_lines, true);
        let is_started = std::mem::take(&mut self.is_started);
        if self.end.is_some() {
            return self
                .verifier
                .fail(Fault::Misplaced("a line stands behind the end"));
        }
        if line.starts_with(br#"{"answer":"#) {
            return self.push_answer(line);
        }
        self.answerable = None;
        if line.starts_with(br#"{"start":"#) {
            self.is_started = true;
            return self.push_start(line, is_first, is_started);
        }
        if line.starts_with(br#"{"end":"#) {
            return match read_end(line) {
                Ok(end) => {
                    self.end = Some(end);
                    Ok(())
                }
                Err(malformed) => self.verifier.fail(malformed.into()),
            };
        }
        self.push_entry(line)
    }

    fn push_entry(&mut self, line: &[u8]) -> Result<(), &Broken> {
        let line = match Line::read(line) {
            Ok(line) => line,
            Err(malformed) => return self.verifier.fail(malformed.into()),
        };
        let kind = line.entry().header.kind;
        if line.is_erased() && !is_erasable(kind) {
            // Whatever an entry behind it says, also in another file: so nothing of what comes is waited for.
            let kind = kind.to_owned();
            return self.verifier.refuse_read(&line, Fault::NeverErased { kind });
        }
        if self.verifier.push_read(&line).is_ok() {
            self.note(&line);
        }
        self.verifier.standing()
    }

    /// What comes later has to do with the entry.
    fn note(&mut self, line: &Line<'_>) {
        let entry = line.entry();
        let (kind, seq) = (entry.header.kind, entry.header.seq);
        if kind == RECEIPT_KIND {
            let body = entry.body.unwrap_or_default().to_owned();
            self.unanswered += u64::from(entry.body.is_some());
            self.answerable = Some(Answerable { body });
        }
        match entry.body {
            Some(body) if kind == ERASURE_KIND => self.untold.read(body, seq),
            Some(_) => {}
            None if line.is_left_out() => self.left_out += 1,
            None => self.untold.note(seq),
        }
    }

    fn push_start(&mut self, line: &[u8], is_first: bool, is_started: bool) -> Result<(), &Broken> {
        match read_start(line) {
            Ok(tip) if is_first => {
                self.verifier.start_from(&tip);
                Ok(())
            }
            Ok(tip) if !is_started && self.verifier.tip().as_ref() == Some(&tip) => Ok(()),
            Ok(_) => self.verifier.fail(Fault::Misplaced(
                "a start that is not the first line does not say where the entries before it end",
            )),
            Err(malformed) => self.verifier.fail(malformed.into()),
        }
    }

    fn push_answer(&mut self, line: &[u8]) -> Result<(), &Broken> {
        let Some(answerable) = self.answerable.take() else {
            return self
                .verifier
                .fail(Fault::Misplaced("an answer stands behind no decision"));
        };
        let checked = self.check_answer(line, &answerable);
        self.answers += 1;
        match checked {
            Ok(()) => {
                self.unanswered -= u64::from(!answerable.body.is_empty());
                Ok(())
            }
            Err(what) => self.verifier.fail_last(what),
        }
    }

    fn check_answer(&mut self, line: &[u8], entry: &Answerable) -> Result<(), Fault> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let bytes = line[br#"{"answer":"#.len()..].strip_suffix(b"}");
        let answer = SignedAnswer::read(bytes.unwrap_or_default())?;
        let (expected, found) = (self.verifier.head().hash, answer.receipt().hash);
        if found != expected {
            return Err(Fault::OtherEntry { expected, found });
        }
        match &mut self.receipts {
            Some(receipts) => receipts.verify(&answer)?,
            None => answer.check_path()?,
        }
        let computed = answer.answer_hash();
        let recorded = recorded_answer(&entry.body);
        if entry.body.is_empty() || recorded == Some(computed) {
            return Ok(());
        }
        Err(Fault::OtherAnswer { recorded, computed })
    }

    /// The report, if everything was right.
    ///
    /// # Errors
    /// The first fault; or what is wrong with the whole.
    pub fn finish(mut self) -> Result<ExportReport, Unverified> {
        let Some(end) = self.end.take() else {
            return self.finish_without_end();
        };
        let mut verifier = self.verifier;
        let (entries, size, checkpoint) = match end.open(self.trust) {
            Ok(Opened::Trusted(trusted)) => {
                let entries = verifier.finish_within(&trusted, &end.proof)?;
                (entries, trusted.checkpoint().size, Some(*trusted))
            }
            Ok(Opened::Unsigned(checkpoint)) => {
                let entries = verifier.finish_within_unsigned(&checkpoint, &end.proof)?;
                (entries, checkpoint.size, None)
            }
            Err(untrusted) => {
                let _ = verifier.fail_last(untrusted.into());
                return Err(verifier.finish().err().unwrap_or(Unverified::Empty));
            }
        };
        if size == entries.head.seq {
            self.untold.check()?;
        }
        Ok(ExportReport {
            left_out: self.left_out,
            untold: self.untold.count(),
            answers: self.answers,
            unanswered: self.unanswered,
            has_end: true,
            checkpoint,
            entries: entries.without(self.left_out),
        })
    }

    /// The report of a file that has no end. What nobody has signed anybody can compute, also behind a checkpoint that
    /// is held: only one of exactly these entries stands for the end.
    fn finish_without_end(self) -> Result<ExportReport, Unverified> {
        let agreed = self.verifier.agreed();
        // A fault, or that there is nothing, is worth more than that it is not signed.
        let entries = self.verifier.finish()?;
        if agreed == Some(entries.head.seq) {
            self.untold.check()?;
        } else if self.trust.is_some() {
            return Err(Unverified::Unsigned);
        }
        Ok(ExportReport {
            left_out: self.left_out,
            untold: self.untold.count(),
            answers: self.answers,
            unanswered: self.unanswered,
            has_end: false,
            checkpoint: None,
            entries: entries.without(self.left_out),
        })
    }
}

enum Opened {
    Trusted(Box<TrustedCheckpoint>),
    Unsigned(Checkpoint),
}

impl End {
    fn open(&self, trust: Option<&TrustPolicy>) -> Result<Opened, Untrusted> {
        let note = self.checkpoint.as_bytes();
        if let Some(trust) = trust {
            return Ok(Opened::Trusted(Box::new(trust.open(note)?)));
        }
        Ok(Opened::Unsigned(Checkpoint::parse(Note::parse(note)?.text())?))
    }
}

fn read_start(line: &[u8]) -> Result<Tip, Malformed> {
    let mut reader = Reader::new(line.strip_suffix(b"\n").unwrap_or(line))?;
    reader.literal(r#"{"start":{"seq":"#)?;
    let seq = reader.integer()?;
    reader.literal(r#","hash":"#)?;
    let hash = reader.digest()?;
    reader.literal(r#","edge":"#)?;
    let edge = reader.hashes(PROOF_LEN_MAX)?;
    let tree = Frontier::new(seq, edge).filter(|_| seq > 0);
    let tip = tree.and_then(|tree| Tip::new(Head { seq, hash }, tree));
    let tip = tip.ok_or_else(|| reader.malformed("a hash for each bit of `seq`"))?;
    reader.literal("}}")?;
    reader.end()?;
    Ok(tip)
}

fn read_end(line: &[u8]) -> Result<End, Malformed> {
    let mut reader = Reader::new(line.strip_suffix(b"\n").unwrap_or(line))?;
    reader.literal(r#"{"end":{"checkpoint":"#)?;
    let checkpoint = reader.string()?.into_owned();
    reader.literal(r#","proof":"#)?;
    let proof = reader.hashes(PROOF_LEN_MAX)?;
    reader.literal("}}")?;
    reader.end()?;
    Ok(End { checkpoint, proof })
}

/// What the body of an entry says of its answer: the one word of bodies that is known here.
fn recorded_answer(body: &str) -> Option<Digest> {
    #[derive(Deserialize)]
    struct Body {
        answer_hash: Digest,
    }
    serde_json::from_str::<Body>(body)
        .ok()
        .map(|body| body.answer_hash)
}
