//! Checks a chain entry by entry, in memory that does not grow with it. It proves that the entries given are a chain
//! without gap or change. That nothing follows them and that they are what was written at first, only a head or a
//! checkpoint known from elsewhere can prove: see [`Verifier::finish_at`] and [`Verifier::against`].

mod held;
mod report;

pub use report::{Anchor, Report};

use canon::{Digest, Limits, canonicalize};

use crate::checkpoint::Checkpoint;
use crate::fault::LastGood;
use crate::line::Line;
use crate::merkle::{Completed, Frontier, leaf_hash, verify_consistency};
use crate::range::EntryRange;
use crate::trust::TrustedCheckpoint;
use crate::{Broken, Entry, Fault, Head, Moment, Tip, Unverified};
use held::Held;

/// Bounds of a body: that of a line is the reader's business.
const BODY_LIMITS: Limits = Limits {
    bytes_max: usize::MAX,
    depth_max: usize::MAX,
};

/// Verifies entries in the order of their chain.
#[derive(Debug)]
pub struct Verifier {
    anchor: Option<Anchor>,
    tenant: Option<String>,
    checked: u64,
    erased: u64,
    first: u64,
    head: Head,
    /// Absent where the entries before the first were not seen.
    tree: Option<Frontier>,
    /// When the last entry was recorded.
    at: Option<Moment>,
    held: Held,
    range: Option<EntryRange>,
    broken: Option<Broken>,
    scratch: String,
}

impl Verifier {
    /// The first entry given must be the first of its chain.
    pub fn from_genesis() -> Self {
        Self::starting_at(Some(Anchor::Genesis), Head::GENESIS, Some(Frontier::EMPTY))
    }

    /// The first entry given must follow `head`. Without the tree up to there, checkpoints cannot be compared.
    pub fn from_head(head: Head) -> Self {
        if head == Head::GENESIS {
            return Self::from_genesis();
        }
        Self::starting_at(Some(Anchor::Head(head)), head, None)
    }

    /// The first entry given must follow this end of the ledger.
    pub fn from_tip(tip: &Tip) -> Self {
        let mut verifier = Self::from_head(tip.head());
        verifier.tree = Some(tip.tree().clone());
        verifier
    }

    /// The first entry given must not be earlier than this, which is when the one before it was recorded.
    #[must_use]
    pub const fn not_before(mut self, at: Moment) -> Self {
        self.at = Some(at);
        self
    }

    /// The first entry given may stand anywhere in its chain. The report says what that leaves open.
    pub fn from_first_entry() -> Self {
        Self::starting_at(None, Head::GENESIS, None)
    }

    fn starting_at(anchor: Option<Anchor>, head: Head, tree: Option<Frontier>) -> Self {
        Self {
            anchor,
            tenant: None,
            checked: 0,
            erased: 0,
            first: 0,
            head,
            tree,
            at: None,
            held: Held::default(),
            range: None,
            broken: None,
            scratch: String::new(),
        }
    }

    /// Begins at this end of the ledger after all. Nothing has been pushed yet.
    pub(crate) fn start_from(&mut self, tip: &Tip) {
        debug_assert_eq!(self.checked, 0, "what was pushed cannot follow what comes now");
        let started = Self::from_tip(tip);
        (self.anchor, self.head, self.tree) = (started.anchor, started.head, started.tree);
    }

    /// The chain must be that of `tenant`. Otherwise it must be that of the tenant the first entry names.
    #[must_use]
    pub fn of_tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// The entries must be those of this checkpoint, as far as they are given; and they must reach as far as it does.
    #[must_use]
    pub fn against(mut self, checkpoint: TrustedCheckpoint) -> Self {
        if let Err(what) = self.check_trusted(&checkpoint) {
            let _ = self.fail(what);
        }
        self.tenant.get_or_insert_with(|| checkpoint.tenant().to_owned());
        self.held.push(checkpoint);
        self
    }

    /// Exactly these entries must be given.
    #[must_use]
    pub const fn over(mut self, range: EntryRange) -> Self {
        self.range = Some(range);
        self
    }

    /// Checks one stored entry.
    ///
    /// # Errors
    /// The first fault of the chain. It stays: what comes after a fault is not checked.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), &Broken> {
        self.push_with(entry, None)
    }

    /// Checks one stored entry, and what is stored of the tree with it. Where the entries before the first were not seen,
    /// that is the hash of its own leaf only.
    ///
    /// # Errors
    /// As for `push`.
    pub fn push_stored(&mut self, entry: &Entry<'_>, stored: &Completed) -> Result<(), &Broken> {
        self.push_with(entry, Some(stored))
    }

    fn push_with(&mut self, entry: &Entry<'_>, stored: Option<&Completed>) -> Result<(), &Broken> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (computed, leaf) = entry.header.hash_and_leaf(&mut scratch);
        self.scratch = scratch;
        self.advance(entry, computed, leaf, stored)
    }

    /// Checks one line of an export, with or without its newline.
    ///
    /// # Errors
    /// As for `push`.
    pub fn push_line(&mut self, line: &[u8]) -> Result<(), &Broken> {
        match Line::read(line) {
            Ok(line) => self.push_read(&line),
            Err(malformed) => self.fail(malformed.into()),
        }
    }

    /// Checks a line that was read. The hash is that of the bytes in it, not of what they were read as.
    pub(crate) fn push_read(&mut self, line: &Line<'_>) -> Result<(), &Broken> {
        let header = line.header_bytes();
        self.advance(&line.entry(), Digest::of(header), leaf_hash(header), None)
    }

    /// Refuses a line that was read, unless something else is wrong with it, which is worth more.
    pub(crate) fn refuse_read(&mut self, line: &Line<'_>, what: Fault) -> Result<(), &Broken> {
        let entry = line.entry();
        let checked = self.check(&entry, Digest::of(line.header_bytes()));
        let broken = self.broken(entry.header.seq, checked.err().unwrap_or(what));
        self.outcome(Err(broken))
    }

    /// What was given at the place that is due is wrong.
    pub(crate) fn fail(&mut self, what: Fault) -> Result<(), &Broken> {
        let broken = self.broken(self.head.seq.saturating_add(1), what);
        self.outcome(Err(broken))
    }

    /// What belongs to the last entry is wrong.
    pub(crate) fn fail_last(&mut self, what: Fault) -> Result<(), &Broken> {
        let broken = self.broken(self.head.seq, what);
        self.outcome(Err(broken))
    }

    fn broken(&self, seq: u64, what: Fault) -> Broken {
        let good = self.at.filter(|_| self.checked > 0);
        let since = good.map(|at| LastGood {
            seq: self.head.seq,
            at,
        });
        Broken { seq, what, since }
    }

    /// The first fault, if there was one.
    pub(crate) fn standing(&self) -> Result<(), &Broken> {
        self.broken.as_ref().map_or(Ok(()), Err)
    }

    /// Where the chain ends so far, chain and tree; `None` where the entries before the first were not seen.
    pub(crate) fn tip(&self) -> Option<Tip> {
        Tip::new(self.head, self.tree.clone()?)
    }

    /// The size of the last checkpoint that was held and agrees.
    pub(crate) const fn agreed(&self) -> Option<u64> {
        self.held.agreed()
    }

    /// Where the chain ends so far, the fault aside.
    pub fn head(&self) -> Head {
        self.head
    }

    /// When the last entry was recorded so far, the fault aside; `None` where none is known.
    pub const fn at(&self) -> Option<Moment> {
        self.at
    }

    /// The tree so far, the fault aside; `None` where the entries before the first were not seen.
    pub const fn tree(&self) -> Option<&Frontier> {
        self.tree.as_ref()
    }

    /// The report, if every entry was right and there was one, and every checkpoint that was given agrees.
    ///
    /// # Errors
    /// The first fault; or that no entry was given, or not those that were asked for, or that a checkpoint has more.
    pub fn finish(self) -> Result<Report, Unverified> {
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        if self.checked > 0 {
            self.held.finish(self.first, self.tree.as_ref())?;
            self.check_range()?;
        }
        let (Some(tenant), Some(anchor), 1..) = (self.tenant, self.anchor, self.checked) else {
            return Err(Unverified::Empty);
        };
        let Self {
            checked,
            erased,
            first,
            head,
            ..
        } = self;
        Ok(Report {
            tenant,
            checked,
            erased,
            first,
            anchor,
            head,
        })
    }

    /// The report, if the chain also ends at `head`. Only this notices a missing tail.
    ///
    /// # Errors
    /// As for `finish`, and that the chain ends elsewhere.
    pub fn finish_at(self, head: &Head) -> Result<Report, Unverified> {
        let report = self.finish()?;
        if report.head != *head {
            return Err(Unverified::Head {
                expected: *head,
                found: report.head,
            });
        }
        Ok(report)
    }

    /// The report, if the entries are also the beginning of the tree of a checkpoint: the proof leads from their tree to its.
    ///
    /// # Errors
    /// As for `finish`, and that they are not.
    pub(crate) fn finish_within(
        mut self,
        checkpoint: &TrustedCheckpoint,
        proof: &[Digest],
    ) -> Result<Report, Unverified> {
        if self.broken.is_none()
            && let Err(what) = self.check_trusted(checkpoint)
        {
            let _ = self.fail_last(what);
        }
        self.finish_within_unsigned(checkpoint.checkpoint(), proof)
    }

    /// [`Self::finish_within`] where nobody says whether the checkpoint is to be believed.
    pub(crate) fn finish_within_unsigned(
        self,
        checkpoint: &Checkpoint,
        proof: &[Digest],
    ) -> Result<Report, Unverified> {
        if self.broken.is_none() && self.checked > 0 {
            let (size, first) = (checkpoint.size, self.first);
            let tree = self
                .tree
                .as_ref()
                .ok_or(Unverified::NotCompared { size, first })?;
            verify_consistency((tree.size(), &tree.root()), (size, &checkpoint.root), proof)?;
        }
        self.finish()
    }

    /// Whether a checkpoint is of this tenant, and its key still signed when the last entry was made.
    fn check_trusted(&self, checkpoint: &TrustedCheckpoint) -> Result<(), Fault> {
        match &self.tenant {
            Some(tenant) if tenant != checkpoint.tenant() => {
                return Err(Fault::Tenant {
                    expected: tenant.clone(),
                    found: checkpoint.tenant().to_owned(),
                });
            }
            _ => {}
        }
        Ok(self.at.map_or(Ok(()), |at| checkpoint.covers(at))?)
    }

    fn check_range(&self) -> Result<(), Unverified> {
        let (first, last) = (self.first, self.head.seq);
        match self.range {
            Some(expected) if (expected.from(), expected.to()) != (first, last) => Err(Unverified::Range {
                expected,
                first,
                last,
            }),
            _ => Ok(()),
        }
    }

    fn advance(
        &mut self,
        entry: &Entry<'_>,
        computed: Digest,
        leaf: Digest,
        stored: Option<&Completed>,
    ) -> Result<(), &Broken> {
        if self.broken.is_some() {
            return self.outcome(Ok(()));
        }
        let checked = self.check(entry, computed);
        let accepted = checked.and_then(|at| self.accept(entry, leaf, stored, at));
        let outcome = accepted.map_err(|what| self.broken(entry.header.seq, what));
        self.outcome(outcome)
    }

    /// Keeps the first fault.
    fn outcome(&mut self, checked: Result<(), Broken>) -> Result<(), &Broken> {
        if self.broken.is_none() {
            self.broken = checked.err();
        }
        self.standing()
    }

    /// Place before content: a missing entry is reported as missing, not as a wrong hash.
    fn check(&self, entry: &Entry<'_>, computed: Digest) -> Result<Moment, Fault> {
        let header = &entry.header;
        if let Some(expected) = self.tenant.as_deref().filter(|tenant| *tenant != header.tenant) {
            return Err(Fault::Tenant {
                expected: expected.to_owned(),
                found: header.tenant.to_owned(),
            });
        }
        let before = self.before(entry);
        // Nothing follows the last number that there is, and that one least of all.
        let expected = u128::from(before.seq) + 1;
        if u128::from(header.seq) != expected {
            return Err(Fault::Seq {
                expected,
                found: header.seq,
            });
        }
        if header.prev != before.hash {
            return Err(Fault::Prev {
                expected: before.hash,
                found: header.prev,
            });
        }
        if entry.hash != computed {
            return Err(Fault::Hash {
                recorded: entry.hash,
                computed,
            });
        }
        let at = header.at.parse().ok();
        let at = at.filter(|at| self.at.is_none_or(|before| before <= *at));
        let at = at.ok_or_else(|| Fault::Time {
            found: header.at.to_owned(),
        })?;
        entry
            .body
            .map_or(Ok(at), |body| check_body(body, header.body).map(|()| at))
    }

    /// The head that `entry` must follow. One that may stand anywhere follows what it names, but the first entry of a
    /// chain always follows genesis.
    fn before(&self, entry: &Entry<'_>) -> Head {
        match self.anchor {
            None if entry.header.seq > 1 => Head {
                seq: entry.header.seq - 1,
                hash: entry.header.prev,
            },
            _ => self.head,
        }
    }

    /// Goes on to the entry, unless a checkpoint says that the ledger was another one.
    fn accept(
        &mut self,
        entry: &Entry<'_>,
        leaf: Digest,
        stored: Option<&Completed>,
        at: Moment,
    ) -> Result<(), Fault> {
        let header = &entry.header;
        if self.checked == 0 {
            self.begin(entry);
            if let Some(tree) = &self.tree {
                self.held.meet(tree, None)?;
            }
        }
        let is_as_stored = match (&mut self.tree, stored) {
            (Some(tree), Some(stored)) => tree.extend_as_stored(leaf, stored),
            (Some(tree), None) => {
                tree.extend(leaf);
                true
            }
            (None, stored) => stored.is_none_or(|stored| stored.leaf() == leaf),
        };
        if !is_as_stored {
            return Err(Fault::Subtrees);
        }
        if let Some(tree) = &self.tree {
            self.held.meet(tree, Some(at))?;
        }
        self.checked += 1;
        self.erased += u64::from(entry.body.is_none());
        self.at = Some(at);
        self.head = Head {
            seq: header.seq,
            hash: entry.hash,
        };
        Ok(())
    }

    fn begin(&mut self, entry: &Entry<'_>) {
        let header = &entry.header;
        self.first = header.seq;
        if self.tenant.is_none() {
            self.tenant = Some(header.tenant.to_owned());
        }
        let unseen = if header.seq == 1 {
            self.tree.get_or_insert(Frontier::EMPTY);
            Anchor::Genesis
        } else {
            Anchor::None { prev: header.prev }
        };
        self.anchor.get_or_insert(unseen);
    }
}

fn check_body(body: &str, recorded: Digest) -> Result<(), Fault> {
    let computed = Digest::of(body.as_bytes());
    if computed != recorded {
        return Err(Fault::Body { recorded, computed });
    }
    // The digest shows that these bytes were recorded; this, that every reader finds the same in them.
    match canonicalize(body.as_bytes(), BODY_LIMITS) {
        Ok(canonical) if canonical.as_str() == body => Ok(()),
        _ => Err(Fault::BodyNotCanonical),
    }
}
