//! How far one ledger has been verified.

use crate::background::Breaks;
use crate::gateway::Gateway;
use crate::records::audit::{Audit, Fault, Reached};
use crate::watch::Watch;
use ledger::{Head, KeySet, Tip};
use model::TenantId;
use std::time::{Duration, Instant};
use store::{Store, StoreError};

/// Entries that are verified before somebody else's turn: some tens of milliseconds.
const SLICE: u64 = 1_024;
/// How often a fault is looked at before it is one. What is erased while it is read looks like one, and so does what
/// another gateway has signed with a key that this one hears of in a moment.
const LOOKS: u32 = 3;
/// How long it waits in between.
const DOUBT: Duration = Duration::from_millis(900);
/// How long a ledger rests that has been verified as a whole.
const REST: Duration = Duration::from_secs(5);

/// How far it has come.
pub(super) struct Progress {
    /// The end of the ledger as far as it was verified.
    seen: Reached,
    /// How many entries there are behind that.
    behind: u64,
    again: Again,
    doubts: u32,
    /// When what looked like a fault is looked at again.
    doubtful: Option<Instant>,
}

/// Going over everything once more.
enum Again {
    /// Not before this time; at once, if there is none.
    Rests(Option<Instant>),
    /// From here to there.
    Goes { at: Reached, to: Tip },
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            seen: Reached::GENESIS,
            behind: 0,
            again: Again::Rests(None),
            doubts: 0,
            doubtful: None,
        }
    }
}

/// What one look found: how many entries were right, or what is wrong.
type Look = Result<u64, Fault>;

/// A ledger, and what it is verified with.
struct Ledger<'g> {
    store: &'g dyn Store,
    tenant: TenantId,
    /// The keys of the log, if they can be read.
    keys: Option<&'g KeySet>,
    breaks: Breaks<'g>,
}

impl Progress {
    /// How many entries have never been verified.
    pub(super) const fn behind(&self) -> u64 {
        self.behind
    }

    /// Verifies what somebody has found to be wrong, a slice of what is new, and a slice of what is old. Where there
    /// was a fault it looks at the same entries again. Returns how many were right; none, if there is nothing to do
    /// now.
    pub(super) async fn look(&mut self, gateway: &Gateway, tenant: TenantId) -> Result<u64, StoreError> {
        if self.doubtful.is_some_and(|until| Instant::now() < until) {
            return Ok(0);
        }
        let began = Instant::now();
        // Keys that cannot be read are a fault of the ledger that tells of them, and all but signatures is verified
        // without.
        let log_keys = gateway.log_keys();
        let tells_of_keys = tenant == TenantId::SYSTEM;
        if log_keys.is_err() && !tells_of_keys && self.doubts >= LOOKS {
            // What was found may be a signature: it stands until there are keys to look at it again.
            return Ok(0);
        }
        let ledger = Ledger {
            store: &*gateway.background.store,
            tenant,
            keys: log_keys.as_ref().ok(),
            breaks: Breaks::long(gateway.sequencer.load_signal()),
        };
        let suspect = ledger.look_at_suspect(&gateway.watch).await?;
        let new = self.look_at_new(&ledger).await?;
        let is_rested = matches!(self.again, Again::Rests(Some(until)) if Instant::now() >= until);
        let differ = if tells_of_keys && is_rested && log_keys.is_ok() {
            match gateway.keys_differ(ledger.store).await {
                // An entry that cannot be read is found where it is verified, and that is next.
                Err(StoreError::Corrupt { .. }) => None,
                differ => differ?,
            }
        } else {
            None
        };
        let old = match differ {
            Some(what) => Err(Fault::at(self.seen.tip.head().seq.max(1), what)),
            None => self.look_at_old(&ledger).await?,
        };
        let old = match (old, &log_keys) {
            // Behind what is wrong with entries, which may say that another ledger is gone.
            (Ok(_), Err(what)) if tells_of_keys => {
                Err(Fault::at(self.seen.tip.head().seq.max(1), what.clone()))
            }
            (old, _) => old,
        };
        match (suspect, new, old) {
            (Ok(_), Ok(new), Ok(old)) => {
                self.doubts = 0;
                self.doubtful = None;
                gateway.watch.clear(tenant);
                Ok(new + old)
            }
            (Err(fault), ..) | (_, Err(fault), _) | (.., Err(fault)) => {
                self.doubts = self.doubts.saturating_add(1);
                if self.doubts >= LOOKS {
                    gateway.watch.raise(tenant, fault, began);
                }
                self.doubtful = Some(Instant::now() + DOUBT);
                Ok(0)
            }
        }
    }

    async fn look_at_new(&mut self, ledger: &Ledger<'_>) -> Result<Look, StoreError> {
        let seen = self.seen.tip.head().seq;
        let tip = match ledger.store.tip(ledger.tenant).await {
            Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(seen.max(1), what))),
            tip => tip?,
        };
        let head = tip.head().seq;
        self.behind = head.saturating_sub(seen);
        if head < seen {
            let what = format!("the entry is missing: the ledger ended at seq {seen} when it was verified");
            return Ok(Err(Fault::at(head + 1, what)));
        }
        if head == seen {
            let what = "the head is not the one that was verified";
            return Ok(if tip == self.seen.tip {
                Ok(0)
            } else {
                Err(Fault::at(head.max(1), what))
            });
        }
        let found = ledger.verify(&self.seen, head.min(seen + SLICE), &tip).await?;
        Ok(found.map(|end| {
            let checked = end.tip.head().seq - seen;
            self.seen = end;
            self.behind -= checked;
            checked
        }))
    }

    async fn look_at_old(&mut self, ledger: &Ledger<'_>) -> Result<Look, StoreError> {
        match &self.again {
            Again::Rests(until) if until.is_some_and(|until| Instant::now() < until) => return Ok(Ok(0)),
            Again::Rests(None) => {
                self.again = Again::Rests(Some(Instant::now() + REST));
                return Ok(Ok(0));
            }
            Again::Rests(Some(_)) => {
                self.again = Again::Goes {
                    at: Reached::GENESIS,
                    to: self.seen.tip.clone(),
                };
            }
            Again::Goes { .. } => {}
        }
        let Again::Goes { at, to } = &mut self.again else {
            return Ok(Ok(0));
        };
        let (first, last) = (at.tip.head().seq, to.head().seq);
        if first == last {
            self.again = Again::Rests(Some(Instant::now() + REST));
            return Ok(Ok(0));
        }
        let end = match ledger.verify(at, last.min(first + SLICE), to).await? {
            Ok(end) => end,
            Err(fault) => return Ok(Err(fault)),
        };
        let checked = end.tip.head().seq - first;
        *at = end;
        Ok(Ok(checked))
    }
}

impl Ledger<'_> {
    /// Verifies the entry that somebody has found to be wrong, if there is one. It is looked at again until it is right.
    async fn look_at_suspect(&self, watch: &Watch) -> Result<Look, StoreError> {
        let Some(seq) = watch.suspected(self.tenant) else {
            return Ok(Ok(0));
        };
        let tip = match self.store.tip(self.tenant).await {
            Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(seq, what))),
            tip => tip?,
        };
        let head = tip.head();
        // What stands behind the end is found with the last entry.
        let at = seq.min(head.seq);
        if at > 0 {
            let audit = Audit {
                store: self.store,
                tenant: self.tenant,
                head,
                edge: Some(tip.tree()),
                keys: self.keys,
                held: None,
                from: None,
                breaks: self.breaks,
            };
            if let Some(fault) = audit.run(at..=at).await?.first_fault {
                return Ok(Err(fault));
            }
        }
        if self.keys.is_some() {
            watch.acquit(self.tenant, seq);
        }
        Ok(Ok(0))
    }

    /// Verifies the entries behind `from` up to `last`. Where that is the end that is expected, it has to be the same,
    /// with its tree.
    async fn verify(
        &self,
        from: &Reached,
        last: u64,
        expected: &Tip,
    ) -> Result<Result<Reached, Fault>, StoreError> {
        let audit = Audit {
            store: self.store,
            tenant: self.tenant,
            head: expected.head(),
            edge: Some(expected.tree()),
            keys: self.keys,
            held: None,
            from: Some(from),
            breaks: self.breaks,
        };
        let Head { seq, .. } = from.tip.head();
        let findings = audit.run(seq + 1..=last).await?;
        Ok(match findings.first_fault {
            Some(fault) => Err(fault),
            None => findings
                .end
                .ok_or_else(|| Fault::at(last, "nothing was verified")),
        })
    }
}
