//! The ledger as lines that a stranger can verify, read a chunk at a time: docs/receipt-format.md, section 8.
//!
//! The first chunk is read before the answer begins, so that what keeps it from being read is answered with a status.
//! No read transaction outlives a chunk. What is recorded meanwhile is not in the file, but its checkpoint may cover it:
//! that is made when the last entry has been read.

use super::anchor::anchor;
use super::decision_body::is_decision;
use super::line::Readable;
use super::tree::{self, Signed};
use crate::fair_semaphore::Permit;
use crate::gateway::Gateway;
use crate::http::{Refusal, TenantCaller};
use canon::Digest;
use ledger::Tip;
use ledger::export::{write_answer_line, write_end_line, write_start_line};
use model::TenantId;
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::{Recorded, StoreError, StoredEntry};

/// Entries in a chunk: some hundred kilobytes of decisions.
const CHUNK: u32 = 256;

/// Why a file breaks off. It never looks whole when it is not.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    /// The store cannot be read on.
    #[error("the ledger cannot be read on")]
    Store(#[from] StoreError),
    /// The chain ends before the head that it had when the file was begun.
    #[error("entry {0} is missing, and there is none after it")]
    EndsEarly(u64),
    /// What is kept under its digest was changed. Whoever took it could not tell whether that was done on the way.
    #[error("what is stored as `{0}` does not hash to that")]
    Altered(Digest),
    /// The credential does not work any more, or this gateway cannot tell.
    #[error("its caller may not read it any more")]
    NotAllowed,
    /// Nothing is signed of a ledger that has a fault, with a key that has ended, or where the store does not answer.
    #[error("there is no checkpoint for its end")]
    NoCheckpoint,
}

impl BrokenOff {
    /// Writes it down: as an error, unless its caller may not read it any more or the store did not answer.
    pub(super) fn log(&self, tenant: TenantId) {
        let error = self as &dyn std::error::Error;
        match self {
            Self::NotAllowed | Self::Store(StoreError::Unavailable(_)) => {
                tracing::warn!(error, %tenant, "an export broke off");
            }
            Self::Store(StoreError::Corrupt { .. })
            | Self::EndsEarly(_)
            | Self::Altered(_)
            | Self::NoCheckpoint => {
                tracing::error!(error, %tenant, "an export broke off");
            }
        }
    }

    /// What is answered where nothing has been sent yet. It is logged here, once.
    fn refusal(self, tenant: TenantId) -> Refusal {
        match self {
            Self::Store(error) => error.into(),
            broken => {
                broken.log(tenant);
                Refusal::ledger_unavailable()
            }
        }
    }
}

/// A stretch of a ledger on its way into a file.
pub(super) struct Stretch {
    pub(super) gateway: Arc<Gateway>,
    pub(super) tenant: TenantId,
    caller: TenantCaller,
    tenant_text: String,
    first: u64,
    next: u64,
    last: u64,
    /// The first entries, until they are taken: they are read before the answer begins.
    ahead: Option<Vec<Recorded>>,
}

impl Stretch {
    /// These entries of the caller's tenant, of which there is at least one. What keeps the first of them from being read
    /// can still be answered.
    pub(super) async fn begin(
        gateway: Arc<Gateway>,
        caller: TenantCaller,
        seqs: &RangeInclusive<u64>,
    ) -> Result<Self, Refusal> {
        let mut stretch = Self {
            gateway,
            tenant: caller.tenant(),
            tenant_text: caller.tenant().to_string(),
            caller,
            first: *seqs.start(),
            next: *seqs.start(),
            last: *seqs.end(),
            ahead: None,
        };
        let permit = stretch.place().await;
        // The line may have taken a while.
        stretch.caller.check(&stretch.gateway)?;
        let first = stretch.read().await;
        drop(permit);
        stretch.ahead = Some(first.map_err(|broken| broken.refusal(stretch.tenant))?);
        Ok(stretch)
    }

    /// Whether all entries have been taken.
    pub(super) const fn is_done(&self) -> bool {
        self.next > self.last && self.ahead.is_none()
    }

    /// The line that the file begins with: none, if the entries begin with the first of the ledger. Where what is stored of the
    /// tree is not complete there is none either; then nobody can verify what comes before.
    pub(super) async fn start(&self) -> Result<String, BrokenOff> {
        let mut line = String::new();
        let before = anchor(&*self.gateway.store, self.tenant, self.first).await?;
        if let Some(before) = before.ok().filter(|before| before.tip != Tip::GENESIS) {
            write_start_line(&before.tip, &mut line);
        }
        Ok(line)
    }

    /// The place for the next entries, to be kept until they are written: nobody makes many files at once at the cost
    /// of those who ask.
    pub(super) async fn place(&self) -> Permit {
        self.gateway.ledger_chunks.acquire_for_part(self.tenant).await
    }

    /// The next entries with what stands at their places.
    pub(super) async fn chunk(&mut self) -> Result<Vec<Recorded>, BrokenOff> {
        self.check()?;
        match self.ahead.take() {
            Some(ahead) => Ok(ahead),
            None => self.read().await,
        }
    }

    /// Reads the next entries.
    async fn read(&mut self) -> Result<Vec<Recorded>, BrokenOff> {
        let left = u32::try_from(self.last - self.next + 1).unwrap_or(CHUNK);
        let store = &*self.gateway.store;
        let mut chunk = store.recorded(self.tenant, self.next, left.min(CHUNK)).await?;
        chunk.retain(|recorded| recorded.entry.seq <= self.last);
        let end = chunk.last().ok_or(BrokenOff::EndsEarly(self.next))?;
        self.next = end.entry.seq + 1;
        Ok(chunk)
    }

    /// Appends the line of an entry, and of a decision's the line of its answer behind it.
    pub(super) fn write(&self, recorded: &Recorded, out: &mut String) {
        let Recorded { entry, receipt, .. } = recorded;
        Readable::new(&self.tenant_text, entry).entry().write_line(out);
        let is_answered = is_decision(&entry.kind) && entry.erased.is_none();
        if let Some(answer) = receipt.as_ref().filter(|_| is_answered) {
            // Bytes that are no text are not what was recorded; whoever verifies the file finds that out.
            write_answer_line(&String::from_utf8_lossy(answer), out);
        }
    }

    /// Appends the line of an entry without what it tells.
    pub(super) fn write_without_body(&self, entry: &StoredEntry, out: &mut String) {
        Readable::new(&self.tenant_text, entry)
            .entry()
            .write_line_without_body(out);
    }

    /// Whoever takes a file slowly has what was sent while the credential worked.
    pub(super) fn check(&self) -> Result<(), BrokenOff> {
        let checked = self.caller.check(&self.gateway);
        checked.map_err(|_| BrokenOff::NotAllowed)
    }

    /// The line that the file ends with.
    pub(super) async fn end(&self) -> Result<String, BrokenOff> {
        self.check()?;
        let signed = self.checkpoint().await.map_err(|_| BrokenOff::NoCheckpoint)?;
        let store = &*self.gateway.store;
        let proof = tree::consistency(store, self.tenant, self.last, signed.size).await;
        let proof = proof.map_err(|error| {
            // It is logged there, once.
            let _ = error.refusal(self.tenant);
            BrokenOff::NoCheckpoint
        })?;
        let mut line = String::new();
        write_end_line(&signed.note.to_string(), &proof, &mut line);
        Ok(line)
    }

    /// One that witnesses have cosigned, if it goes further than the file. One that goes just as far has to be made
    /// now: a body that was erased while the file was read is told of behind it.
    async fn checkpoint(&self) -> Result<Signed, Refusal> {
        match Signed::witnessed(&self.gateway, self.tenant).await {
            Ok(witnessed) if witnessed.size > self.last => Ok(witnessed),
            _ => Signed::newest(&self.gateway, self.tenant).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// The level at which it is written down.
    fn level(broken: &BrokenOff) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = tracing_subscriber::fmt()
            .json()
            .with_writer(File::create(&path).unwrap());
        tracing::subscriber::with_default(lines.finish(), || broken.log(TenantId::SYSTEM));
        let line: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(line["fields"]["message"], "an export broke off");
        line["level"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_file_that_breaks_off_because_a_key_has_ended_is_no_error_of_the_ledger() {
        let unavailable = StoreError::Unavailable("it is gone".into());
        for broken in [BrokenOff::NotAllowed, BrokenOff::Store(unavailable)] {
            assert_eq!(level(&broken), "WARN", "{broken}");
        }
        let corrupt = StoreError::Corrupt {
            what: "a row".to_owned(),
        };
        for broken in [
            BrokenOff::Store(corrupt),
            BrokenOff::EndsEarly(7),
            BrokenOff::Altered(Digest::ZERO),
            BrokenOff::NoCheckpoint,
        ] {
            assert_eq!(level(&broken), "ERROR", "{broken}");
        }
    }
}
