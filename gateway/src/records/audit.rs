//! What verifying a stored ledger means: the entries are a chain, it ends at the recorded head, what is stored of the
//! tree is what they make, every decision and receipt says what its entry says, the receipt signed by a key of the log,
//! and no outcome is forgotten that was reported. Of the system tenant's ledger it also means that those which it tells
//! of are there.
//!
//! It reads a chunk at a time, holds no read transaction between chunks, and its memory does not grow with the range.
//! That the head itself was not rewritten together with the chain, only a checkpoint or a receipt kept elsewhere can show.

use super::anchor::anchor;
use super::announced;
use super::decision_body::{DecisionBody, is_decision};
use super::erasures::Erasures;
use super::line::Readable;
use super::outcomes;
use crate::background::Breaks;
use ledger::merkle::{Completed, Frontier};
use ledger::receipt::ReceiptVerifier;
use ledger::{Head, KeySet, Moment, Tip, TrustedCheckpoint, Verifier};
use model::{TenantId, Timestamp};
use serde::Serialize;
use std::ops::RangeInclusive;
use store::{Ending, Recorded, Store, StoreError, StoredEntry};

/// The first thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// At which entry.
    pub(crate) seq: u64,
    /// What is wrong there.
    pub(crate) what: String,
    /// The last entry that was right: whatever happened, happened after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Good>,
    /// Whose ledger is gone, if that is what is wrong.
    #[serde(skip)]
    pub(crate) gone: Option<TenantId>,
}

/// An entry up to which everything was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Good {
    seq: u64,
    at: Timestamp,
}

impl Fault {
    /// A fault of which nothing is known but the place.
    pub(crate) fn at(seq: u64, what: impl Into<String>) -> Self {
        Self {
            seq,
            what: what.into(),
            since: None,
            gone: None,
        }
    }
}

/// Where a ledger stands after some of its entries.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    /// Where it ends there, chain and tree.
    pub(crate) tip: Tip,
    /// When the last of them was recorded, if there is one. The next one is not earlier.
    pub(crate) at: Option<Moment>,
}

impl Reached {
    /// Before the first entry.
    pub(crate) const GENESIS: Self = Self {
        tip: Tip::GENESIS,
        at: None,
    };
}

/// What an audit found; by default that of nothing.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// How many entries were right before the first fault.
    pub(crate) checked: u64,
    pub(crate) first_fault: Option<Fault>,
    /// Where the ledger stands after the range, as its entries have it.
    pub(crate) end: Option<Reached>,
}

/// A ledger to be verified.
#[derive(Clone, Copy)]
pub(crate) struct Audit<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) tenant: TenantId,
    /// Where the last commit says that the chain ends.
    pub(crate) head: Head,
    /// The edge of the tree that the last commit has written beside the head, if that is to be compared.
    pub(crate) edge: Option<&'a Frontier>,
    /// The keys of the log, if signatures are to be checked.
    pub(crate) keys: Option<&'a KeySet>,
    /// A checkpoint that was kept elsewhere.
    pub(crate) held: Option<&'a TrustedCheckpoint>,
    /// Where the ledger stood before the range, if that is known from elsewhere than from the store.
    pub(crate) from: Option<&'a Reached>,
    /// How it lets others have the core.
    pub(crate) breaks: Breaks<'a>,
}

/// What was asked for, or the first thing that is wrong with the ledger. The error around it is the store's.
pub(super) type Audited<T> = Result<T, Fault>;

impl Audit<'_> {
    /// Verifies a range that is within the head.
    pub(crate) async fn run(self, range: RangeInclusive<u64>) -> Result<Findings, StoreError> {
        let tenant = self.tenant.to_string();
        let anchored = match self.from {
            Some(from) => Ok(from.clone()),
            None => anchor(self.store, self.tenant, *range.start()).await?,
        };
        let mut pass = match anchored {
            Ok(anchor) => Pass {
                verifier: self.verifier(&anchor, &tenant),
                receipts: self.keys.map(ReceiptVerifier::new),
                last: None,
                tenant_text: &tenant,
                checked: 0,
                breaks: self.breaks,
            },
            Err(fault) => {
                return Ok(Findings {
                    checked: 0,
                    first_fault: Some(fault),
                    end: None,
                });
            }
        };
        let found = self.check(&mut pass, &range).await?;
        let mut fault = found.err();
        let end = pass.reached();
        if fault.is_none()
            && self.held.is_some()
            && let Err(unverified) = pass.verifier.finish()
        {
            fault = Some(Fault::at(self.head.seq + 1, unverified.to_string()));
        }
        if let Some(fault) = &mut fault {
            fault.since = pass.last.filter(|good| good.seq < fault.seq);
        }
        Ok(Findings {
            checked: pass.checked,
            first_fault: fault,
            end,
        })
    }

    fn verifier(self, anchor: &Reached, tenant: &str) -> Verifier {
        let verifier = Verifier::from_tip(&anchor.tip).of_tenant(tenant);
        let verifier = match self.held {
            Some(held) => verifier.against(held.clone()),
            None => verifier,
        };
        match anchor.at {
            Some(at) => verifier.not_before(at),
            None => verifier,
        }
    }

    async fn check(
        self,
        pass: &mut Pass<'_>,
        range: &RangeInclusive<u64>,
    ) -> Result<Audited<()>, StoreError> {
        let mut erasures = Erasures::default();
        while pass.due() <= *range.end() {
            let permit = self.breaks.place().await;
            let chunk = match self.chunk(pass.due(), *range.end()).await? {
                Ok(chunk) => chunk,
                Err(fault) => return Ok(Err(fault)),
            };
            let before = (pass.checked, pass.last);
            if let Err(fault) = pass.check(&chunk) {
                return Ok(Err(fault));
            }
            if let Some(fault) = self.beside(&mut erasures, &chunk).await? {
                pass.step_back(&fault, &chunk, before);
                return Ok(Err(fault));
            }
            // A long range is many short turns: whoever waits for a decision comes in between.
            drop(permit);
            tokio::task::yield_now().await;
        }
        if *range.end() == self.head.seq {
            if let Err(fault) = self.check_end(pass.verifier.head()).await? {
                return Ok(Err(fault));
            }
            if self.edge.is_some() && self.edge != pass.verifier.tree() {
                let what = "the edge of the tree beside the head is not that of the entries";
                return Ok(Err(Fault::at(self.head.seq, what)));
            }
        }
        Ok(Ok(()))
    }

    /// The first of these entries with which something does not agree that stands elsewhere.
    async fn beside(self, erasures: &mut Erasures, chunk: &[Recorded]) -> Result<Option<Fault>, StoreError> {
        let faults = [
            erasures.untold(self.store, self.tenant, chunk).await?,
            announced::gone(self.store, self.tenant, chunk).await?,
            outcomes::forgotten(self.store, self.tenant, chunk).await?,
        ];
        Ok(faults.into_iter().flatten().min_by_key(|fault| fault.seq))
    }

    /// The entries from `next` on with what stands at their places, at least one. A row that cannot be read is found by reading
    /// less and less, and so is the first of many that a damaged page leads to.
    async fn chunk(self, next: u64, last: u64) -> Result<Audited<Vec<Recorded>>, StoreError> {
        let page = self.breaks.page();
        let mut limit = u32::try_from(last - next + 1).unwrap_or(page).min(page);
        loop {
            match self.store.recorded(self.tenant, next, limit).await {
                Err(StoreError::Corrupt { .. }) if limit > 1 => limit /= 2,
                Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(next, what))),
                Ok(chunk) if chunk.is_empty() => return Ok(Err(missing(next))),
                chunk => return chunk.map(Ok),
            }
        }
    }

    /// Whether the chain ends at the head, and nothing stands behind it that no commit has put there.
    async fn check_end(self, end: Head) -> Result<Audited<()>, StoreError> {
        if end != self.head {
            let what = format!(
                "its hash is `{}`, but the ledger's head has `{}`",
                end.hash, self.head.hash
            );
            return Ok(Err(Fault::at(end.seq, what)));
        }
        let ending = match self.store.ending(self.tenant).await {
            Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(end.seq, what))),
            ending => ending?,
        };
        Ok(ending.map_or_else(|| Err(missing(1)), |ending| check_ending(&ending)))
    }
}

/// Whether the last commit has written down when the last entry was recorded, and nothing is stored where no commit has put it.
fn check_ending(ending: &Ending) -> Audited<()> {
    let seq = ending.head.seq;
    if let Some(stray) = ending.stray_entry {
        return Err(astray("the entry", stray, seq));
    }
    if let Some(stray) = ending.stray_answer {
        return Err(astray("a decision or a receipt", stray, seq));
    }
    match ending.entry_at {
        None => Err(missing(seq)),
        Some(at) if at != ending.head_at => {
            let what = format!(
                "it was recorded at `{at}`, but the ledger's head has `{}`",
                ending.head_at
            );
            Err(Fault::at(seq, what))
        }
        Some(_) => Ok(()),
    }
}

fn astray(what: &str, seq: u64, head: u64) -> Fault {
    // Named with the last entry, because whoever looks at that one again finds it.
    if seq == 0 {
        return Fault::at(head, format!("{what} stands before the first entry, at seq 0"));
    }
    let what = format!("{what} stands behind the head, which is at seq {head}");
    Fault::at(seq, what)
}

pub(super) fn missing(seq: u64) -> Fault {
    Fault::at(seq, "the entry is missing")
}

/// One way through a range.
struct Pass<'a> {
    verifier: Verifier,
    receipts: Option<ReceiptVerifier<'a>>,
    tenant_text: &'a str,
    checked: u64,
    last: Option<Good>,
    breaks: Breaks<'a>,
}

impl Pass<'_> {
    /// The entry that comes next.
    fn due(&self) -> u64 {
        self.verifier.head().seq + 1
    }

    fn check(&mut self, chunk: &[Recorded]) -> Audited<()> {
        for recorded in chunk {
            let (due, stored) = (self.due(), &recorded.entry);
            if stored.seq != due {
                return Err(missing(due));
            }
            let entry = Readable::new(self.tenant_text, stored);
            let nodes = Completed::from_bytes(due, stored.nodes.clone());
            let pushed = match &nodes {
                Some(nodes) => self.verifier.push_stored(&entry.entry(), nodes),
                None => self.verifier.push(&entry.entry()),
            };
            if let Err(broken) = pushed {
                return Err(Fault::at(due, broken.what.to_string()));
            }
            if nodes.is_none() {
                return Err(Fault::at(due, ledger::Fault::Subtrees.to_string()));
            }
            // Its digest is the one that was left, so the hash says nothing about what is there.
            if stored.erased.is_some() && !stored.body.is_empty() {
                let what = "the body was erased, and something stands in its place";
                return Err(Fault::at(due, what));
            }
            self.check_decision(recorded)
                .map_err(|what| Fault::at(due, what))?;
            self.count(stored);
            self.breaks.give_way();
        }
        Ok(())
    }

    /// An entry was right.
    const fn count(&mut self, entry: &StoredEntry) {
        self.checked += 1;
        self.last = Some(Good {
            seq: entry.seq,
            at: entry.at,
        });
    }

    /// Counts of this page only what stands before the fault. `before` is what was counted before the page.
    fn step_back(&mut self, fault: &Fault, chunk: &[Recorded], before: (u64, Option<Good>)) {
        (self.checked, self.last) = before;
        for Recorded { entry, .. } in chunk {
            if entry.seq < fault.seq {
                self.count(entry);
            }
        }
    }

    /// Where the ledger stands after what was right.
    fn reached(&self) -> Option<Reached> {
        let tip = Tip::new(self.verifier.head(), self.verifier.tree()?.clone())?;
        Some(Reached {
            tip,
            at: self.verifier.at(),
        })
    }

    /// Whether the entry of a decision has a row and a receipt that say the same, and another entry has neither.
    fn check_decision(&mut self, recorded: &Recorded) -> Result<(), String> {
        let Recorded {
            entry,
            decision,
            receipt,
        } = recorded;
        let is_bare = decision.is_none() && receipt.is_none();
        if !is_decision(&entry.kind) {
            let kind = &entry.kind;
            return expect(is_bare, || {
                format!("a decision or a receipt is stored for an entry of the kind `{kind}`")
            });
        }
        if entry.erased.is_some() {
            // Its row and its receipt told what it told.
            return expect(is_bare, || {
                "the body was erased, and the decision or its receipt was not".to_owned()
            });
        }
        let (Some(row), Some(receipt)) = (decision, receipt) else {
            return Err("the decision or its receipt is missing".to_owned());
        };
        let body = DecisionBody::read(&entry.body)?;
        body.agrees_with(row)?;
        let signed = body.is_answered_by(receipt, self.tenant_text, entry)?;
        match &mut self.receipts {
            Some(receipts) => receipts.verify(&signed).map_err(|fault| fault.to_string()),
            None => Ok(()),
        }
    }
}

fn expect(is_right: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(what()) }
}
