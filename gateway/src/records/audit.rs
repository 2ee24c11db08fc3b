//! What verifying a stored ledger means: the entries are a chain, it ends at the recorded head, and every decision and
//! receipt says what its entry says.
//!
//! It reads a chunk at a time, holds no read transaction between chunks, and its memory does not grow with the range.
//! That the head itself was not rewritten together with the chain, only a head or a receipt kept elsewhere can show.

use super::line::Readable;
use super::told::{self, Told};
use ledger::{Head, Verifier};
use model::TenantId;
use serde::Serialize;
use std::ops::RangeInclusive;
use store::{DecisionFilter, Store, StoreError, StoredDecision, StoredEntry};

/// Entries in a chunk: below a millisecond of reading and of hashing, so that decisions do not wait.
const CHUNK: u32 = 256;

/// The first thing that is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// At which entry.
    pub(crate) seq: u64,
    /// What is wrong there.
    pub(crate) what: String,
}

/// What an audit found.
#[derive(Debug)]
pub(crate) struct Findings {
    /// How many entries were right before the first fault.
    pub(crate) checked: u64,
    pub(crate) first_fault: Option<Fault>,
}

/// A ledger to be verified.
#[derive(Clone, Copy)]
pub(crate) struct Audit<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) tenant: TenantId,
    /// Where the last commit says that the chain ends.
    pub(crate) head: Head,
}

/// A part of the ledger that could be read, or what stands in the way.
type Part<T> = Result<T, Fault>;

/// A stretch of entries with what belongs to them.
struct Chunk {
    entries: Vec<StoredEntry>,
    /// The rows of their decisions that have a receipt, in the same order.
    decisions: Vec<(StoredDecision, Vec<u8>)>,
}

impl Audit<'_> {
    /// Verifies a range that is within the head.
    pub(crate) async fn run(self, range: RangeInclusive<u64>) -> Result<Findings, StoreError> {
        let tenant = self.tenant.to_string();
        let mut pass = match self.anchor(*range.start()).await? {
            Ok(anchor) => Pass {
                verifier: Verifier::from_head(anchor).of_tenant(&tenant),
                tenant_text: &tenant,
                checked: 0,
            },
            Err(fault) => {
                return Ok(Findings {
                    checked: 0,
                    first_fault: Some(fault),
                });
            }
        };
        let fault = self.check(&mut pass, &range).await?;
        Ok(Findings {
            checked: pass.checked,
            first_fault: fault.err(),
        })
    }

    async fn check(self, pass: &mut Pass<'_>, range: &RangeInclusive<u64>) -> Result<Part<()>, StoreError> {
        while pass.due() <= *range.end() {
            let chunk = match self.chunk(pass.due(), *range.end()).await? {
                Ok(chunk) => chunk,
                Err(fault) => return Ok(Err(fault)),
            };
            if let Err(fault) = pass.check(&chunk) {
                return Ok(Err(fault));
            }
            // A long range is many short turns: whoever waits for a decision comes in between.
            tokio::task::yield_now().await;
        }
        if *range.end() == self.head.seq
            && let Err(fault) = self.check_end(pass.verifier.head()).await?
        {
            return Ok(Err(fault));
        }
        self.check_strays(range).await
    }

    /// The head that the first entry must follow.
    async fn anchor(self, first: u64) -> Result<Part<Head>, StoreError> {
        if first == 1 {
            return Ok(Ok(Head::GENESIS));
        }
        let seq = first - 1;
        let before = match self.store.entries(self.tenant, seq, 1).await {
            Ok(entries) => entries.into_iter().find(|entry| entry.seq == seq),
            Err(StoreError::Corrupt { what }) => return Ok(Err(Fault { seq, what })),
            Err(error) => return Err(error),
        };
        Ok(before
            .map(|entry| Head {
                seq,
                hash: entry.hash,
            })
            .ok_or_else(|| missing(seq)))
    }

    /// The entries from `next` on, and what belongs to them. A row that cannot be read is found by reading less and less.
    async fn chunk(self, next: u64, last: u64) -> Result<Part<Chunk>, StoreError> {
        let mut limit = u32::try_from(last - next + 1).unwrap_or(CHUNK).min(CHUNK);
        loop {
            match self.read(next, limit).await {
                Err(StoreError::Corrupt { .. }) if limit > 1 => limit /= 2,
                Err(StoreError::Corrupt { what }) => return Ok(Err(Fault { seq: next, what })),
                Ok(chunk) if chunk.entries.is_empty() => return Ok(Err(missing(next))),
                chunk => return chunk.map(Ok),
            }
        }
    }

    async fn read(self, next: u64, limit: u32) -> Result<Chunk, StoreError> {
        let entries = self.store.entries(self.tenant, next, limit).await?;
        let decided = entries
            .iter()
            .filter(|entry| told::is_decision(&entry.kind))
            .count();
        let decisions = match u32::try_from(decided).unwrap_or(limit) {
            0 => Vec::new(),
            decided => self.store.receipts(self.tenant, next, decided).await?,
        };
        Ok(Chunk { entries, decisions })
    }

    /// Whether the chain ends at the head, and nothing stands behind it that no commit has put there.
    async fn check_end(self, end: Head) -> Result<Part<()>, StoreError> {
        if end != self.head {
            let what = format!(
                "its hash is `{}`, but the ledger's head has `{}`",
                end.hash, self.head.hash
            );
            return Ok(Err(Fault { seq: end.seq, what }));
        }
        let Some(behind) = self
            .store
            .entries(self.tenant, end.seq + 1, 1)
            .await?
            .into_iter()
            .next()
        else {
            return Ok(Ok(()));
        };
        let now = self.store.head(self.tenant).await?;
        if behind.seq <= now.seq {
            return Ok(Ok(()));
        }
        let what = format!("the entry stands behind the head, which is at seq {}", now.seq);
        Ok(Err(Fault {
            seq: behind.seq,
            what,
        }))
    }

    /// Whether there is a row of a decision whose entry tells of no such decision: it has no receipt either, or it would
    /// have been met. Rows are read from the newest backwards, because that is how they can be read.
    async fn check_strays(self, range: &RangeInclusive<u64>) -> Result<Part<()>, StoreError> {
        let mut before = *range.end() + 1;
        loop {
            let all = DecisionFilter::default();
            let rows = match self.store.decisions(self.tenant, &all, Some(before), CHUNK).await {
                Err(StoreError::Corrupt { what }) => {
                    return Ok(Err(Fault {
                        seq: *range.start(),
                        what,
                    }));
                }
                rows => rows?,
            };
            for row in rows.iter().take_while(|row| row.seq >= *range.start()) {
                if let Err(what) = Told::read(&row.body).and_then(|told| told.agrees_with(row)) {
                    return Ok(Err(Fault { seq: row.seq, what }));
                }
            }
            match rows.last() {
                Some(row) if row.seq > *range.start() => before = row.seq,
                _ => return Ok(Ok(())),
            }
            tokio::task::yield_now().await;
        }
    }
}

fn missing(seq: u64) -> Fault {
    Fault {
        seq,
        what: "the entry is missing".to_owned(),
    }
}

/// One way through a range.
struct Pass<'a> {
    verifier: Verifier,
    tenant_text: &'a str,
    checked: u64,
}

impl Pass<'_> {
    /// The entry that comes next.
    fn due(&self) -> u64 {
        self.verifier.head().seq + 1
    }

    fn check(&mut self, chunk: &Chunk) -> Part<()> {
        let mut decisions = chunk.decisions.iter().peekable();
        for stored in &chunk.entries {
            let due = self.due();
            if stored.seq != due {
                return Err(missing(due));
            }
            let entry = Readable::new(self.tenant_text, stored);
            if let Err(broken) = self.verifier.push(&entry.entry()) {
                let what = broken.what.to_string();
                return Err(Fault { seq: due, what });
            }
            let decision = decisions.next_if(|(row, _)| row.seq == due);
            self.check_decision(stored, decision)
                .map_err(|what| Fault { seq: due, what })?;
            self.checked += 1;
        }
        Ok(())
    }

    /// Whether the entry of a decision has a row and a receipt that say the same, and another entry has none.
    fn check_decision(
        &self,
        entry: &StoredEntry,
        found: Option<&(StoredDecision, Vec<u8>)>,
    ) -> Result<(), String> {
        match (told::is_decision(&entry.kind), found) {
            (false, None) => Ok(()),
            (false, Some(_)) => Err(format!(
                "a decision is stored for an entry of the kind `{}`",
                entry.kind
            )),
            (true, None) => Err("the decision or its receipt is missing".to_owned()),
            (true, Some((row, receipt))) => {
                let told = Told::read(&entry.body)?;
                told.agrees_with(row)?;
                told.is_answered_by(receipt, self.tenant_text, entry).map(drop)
            }
        }
    }
}
