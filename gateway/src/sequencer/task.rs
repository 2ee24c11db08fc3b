//! What runs on the sequencer's thread: batch after batch is gathered, applied, committed and answered.
//!
//! Where the tenants of a batch stand is remembered if nobody else writes to them, and then the batch is appended from
//! there; otherwise it is made in a turn, which says so. Whatever turns out to have been guessed wrongly is made again.

use super::ahead::Ahead;
use super::contents::Contents;
use super::footprints::Footprints;
use super::gathered::Gathered;
use super::lookup::BatchReads;
use super::overdue::Ends;
use super::pace::Pace;
use super::queue::Exit;
use super::retry::RetryCause;
use super::times::Times;
use super::{
    APPROVALS_MAX, END_ROUNDS_MAX, END_ROUNDS_MAX_UNDER_LOAD, Fault, LoadSignal, Parts, Sequencer, Submission,
};
use crate::seldom::Seldom;
use crate::signing::signs_at;
use engine::budgets::moves::{BudgetChange, Move};
use engine::proposal::{ApprovalUse, Intent};
use engine::{
    Applied, BatchTime, Books, Conflict, Disposition, Found, Proposal, ProposedDecision, Snapshot, apply,
};
use model::{ReasonCode, TenantId, Timestamp, Verdict};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{Batch, ChainPosition, CommitError, RequestKey, StoreError, Turn};
use tokio::sync::watch;

/// How long a sequencer in trouble waits for somebody before it looks by itself whether the trouble is over.
const PROBE_PAUSE: Duration = Duration::from_millis(500);
/// How many attempts a batch has, the first included: somebody else may be faster, or something in it may have been
/// recorded before.
const ATTEMPTS_MAX: usize = 4;
/// For how many batches after a repeated request earlier answers are looked up before the batch is applied: who repeats
/// one often repeats more.
const LOOK_UPS_AFTER_REPEAT: u32 = 64;

/// The sequencer at work.
pub(super) struct Task {
    healthy: Arc<AtomicBool>,
    /// How many more batches are looked up in storage before they are applied.
    look_ups_left: u32,
    footprints: Footprints,
    pace: Pace,
    load: Arc<LoadSignal>,
    commit_micros: Arc<AtomicU64>,
    ahead: Arc<Ahead>,
    contents: Arc<Contents>,
    /// Tells when another database has taken the place of the one before.
    databases: watch::Receiver<()>,
    /// When the log said last that a batch failed, and that the ledger does not answer.
    failed_told: Seldom,
    silent_told: Seldom,
    parts: Parts,
}

/// How a batch is written.
enum WriteMode {
    /// In a turn, which says where its tenants stand.
    Turn {
        turn: Box<dyn Turn>,
        /// When the overdue reservations of its tenants are ended.
        ends: Ends,
        looked_for: LookedFor,
    },
    /// Without one, from where this gateway has left its tenants.
    Append,
}

/// What of a batch was looked for in its turn among what was recorded before.
enum LookedFor {
    /// All of it.
    Everything,
    /// These asks, because a quota has no room for them.
    Asks(HashSet<RequestKey>),
}

impl WriteMode {
    /// Whether too many reservations are overdue to be ended with the batch.
    fn ends_first(&self) -> bool {
        match self {
            Self::Turn { ends, .. } => *ends == Ends::First,
            Self::Append => false,
        }
    }

    /// Whether this was looked for among what was recorded before.
    fn has_looked_for(&self, proposal: &Proposal) -> bool {
        match self {
            Self::Turn { looked_for, .. } => looked_for.has(proposal),
            Self::Append => false,
        }
    }
}

impl LookedFor {
    fn has(&self, proposal: &Proposal) -> bool {
        match (self, &proposal.intent) {
            (Self::Everything, _) => true,
            (Self::Asks(keys), Intent::Decision(decision)) => {
                let request = decision.request.as_ref();
                request.is_some_and(|named| keys.contains(&named.key))
            }
            (Self::Asks(_), _) => false,
        }
    }
}

/// What a batch is made from, and how it is written then.
struct Basis {
    mode: WriteMode,
    /// Where its tenants stand.
    positions: HashMap<TenantId, ChainPosition>,
    /// What has to be known beforehand.
    found: Found,
}

/// What an attempt at a batch may do.
#[derive(Clone, Copy)]
struct Allowed {
    /// Whether it may start from what is remembered, without a turn.
    guessing: bool,
    /// Whether it may end overdue reservations in a commit of their own, and leave the batch to the next attempt.
    ending_first: bool,
}

/// Why a batch is not settled by this attempt.
enum Failure {
    /// It can be made again at once.
    Again(RetryCause),
    /// It can be made again at once, in a turn.
    AgainInTurn(RetryCause),
    /// Its turn was over before it was written, as after this gateway stood still. It can be made again at once, in another turn.
    TurnOver,
    /// Reservations whose time is over were ended instead. It can be made at once.
    EndedFirst,
    /// A row that has to be known beforehand is damaged.
    Unreadable(StoreError),
    /// Everybody in it gets a fault.
    Fault,
}

/// Why nothing of a batch was recorded.
enum Unrecorded {
    /// A row that has to be known beforehand is damaged.
    Unreadable(StoreError),
    /// The ledger cannot be written now.
    Unavailable,
}

/// A batch of which nothing was recorded, because a row that it depends on is damaged. Nobody in it was told.
struct Unread {
    gathered: Gathered,
    error: StoreError,
}

impl Unread {
    /// Tells everybody in it, and the log whose row it is.
    fn answer(self) {
        let whose = match &tenants(self.gathered.proposals())[..] {
            [tenant] => tenant.to_string(),
            several => format!("one of {} tenants", several.len()),
        };
        tracing::error!(
            whose,
            error = &self.error as &dyn std::error::Error,
            "a batch failed: something of {whose} cannot be read"
        );
        self.gathered.answer(Err(Fault::Unreadable));
    }
}

impl Task {
    /// A task that works with these parts. Through `handle` others see its health, its load and how long its commits take.
    pub(super) fn new(handle: &Sequencer, parts: Parts) -> Self {
        Self {
            healthy: Arc::clone(&handle.healthy),
            look_ups_left: 0,
            footprints: Footprints::default(),
            pace: Pace::default(),
            load: Arc::clone(&handle.load),
            commit_micros: Arc::clone(&handle.commit_micros),
            ahead: Arc::clone(&handle.ahead),
            contents: Arc::clone(&handle.contents),
            databases: parts.snapshot.continuity.databases(),
            failed_told: Seldom::new(),
            silent_told: Seldom::new(),
            parts,
        }
    }

    /// Records what waits, until nothing can come any more.
    pub(super) async fn run(mut self, mut waiting: Exit<Submission>) {
        while let Some(first) = self.next(&mut waiting).await {
            let mut gathered = Gathered::of(drain(first, &waiting, self.parts.bounds.batch_max));
            self.send_away_in_vain(&mut gathered);
            if gathered.is_empty() {
                self.pace.ease();
            } else {
                self.process(gathered).await;
            }
        }
    }

    /// The next submission. A gateway that says it is not ready may be sent none that would find out that it is again.
    async fn next(&mut self, waiting: &mut Exit<Submission>) -> Option<Submission> {
        while !self.healthy.load(Ordering::Relaxed) {
            match tokio::time::timeout(PROBE_PAUSE, waiting.next()).await {
                Ok(next) => return next,
                Err(_) => self.probe().await,
            }
        }
        loop {
            tokio::select! {
                biased;
                next = waiting.next() => return next,
                // Not only with the next batch: whoever is in that would be sent away, however much later it comes.
                Ok(()) = self.databases.changed() => self.forget_committed(),
            }
        }
    }

    /// Sends away those of whom it is known already that nothing can be recorded.
    fn send_away_in_vain(&mut self, gathered: &mut Gathered) {
        if self.parts.fork.get().is_some() {
            gathered.send_away_all(Fault::Forked);
        }
        self.forget_other_database(gathered);
        gathered.send_away_incomplete(self.contents.losses());
        self.send_away_late(gathered);
    }

    /// Sends away those whose answers would come too late, before anything of theirs is recorded.
    fn send_away_late(&self, gathered: &mut Gathered) {
        if gathered.has_deadlines() {
            gathered.send_away(Instant::now() + self.pace.expected());
        }
    }

    /// Finds out whether the ledger can be locked for writing. It writes nothing, so it does not find out whether there is room.
    async fn probe(&mut self) {
        if let Ok(turn) = self.parts.store.begin(&[]).await
            && turn.commit(&Batch::default()).await.is_ok()
        {
            self.healthy.store(true, Ordering::Relaxed);
        }
    }

    /// Records a batch, and tells everybody in it. Where a row is damaged that it depends on, it is
    /// recorded in halves, and those again, until only what is of one tenant is left over: nobody else is refused.
    async fn process(&mut self, gathered: Gathered) {
        // What the gateway itself has to say, of what has expired for instance, is waited for by nobody.
        let proposals = gathered.proposals().iter();
        let asked = proposals.filter(|proposal| proposal.is_of_an_agent());
        self.load.note(asked.count());
        let Err(unread) = self.settle(gathered).await else {
            return;
        };
        let mut all_unread = vec![unread];
        while let Some(Unread { gathered, error }) = all_unread.pop() {
            let (one, other) = gathered.halved();
            if other.is_empty() {
                Unread { gathered: one, error }.answer();
                continue;
            }
            for mut part in [one, other] {
                part.begin_anew();
                self.send_away_in_vain(&mut part);
                if !part.is_empty()
                    && let Err(unread) = self.settle(part).await
                {
                    all_unread.push(unread);
                }
            }
        }
    }

    /// Records a batch, and tells everybody in it unless a row is damaged that it depends on.
    async fn settle(&mut self, mut gathered: Gathered) -> Result<(), Unread> {
        let recorded = match self.record(&mut gathered).await {
            Ok(dispositions) => Ok(dispositions),
            Err(Unrecorded::Unavailable) => Err(Fault::LedgerUnavailable),
            // The store has answered, and there was no commit: this says nothing about whether there can be one, or how
            // long it takes.
            Err(Unrecorded::Unreadable(error)) => return Err(Unread { gathered, error }),
        };
        let took = gathered.took();
        // Where everybody was sent away there may have been no commit. A wait that was longer than is expected of one
        // says something all the same.
        if !gathered.is_empty() || took > self.pace.expected() {
            self.pace.note(took);
        }
        let micros = u64::try_from(self.pace.usual().as_micros()).unwrap_or(u64::MAX);
        self.commit_micros.store(micros, Ordering::Relaxed);
        if !gathered.is_empty() || recorded.is_err() {
            self.healthy.store(recorded.is_ok(), Ordering::Relaxed);
        }
        gathered.answer(recorded);
        Ok(())
    }

    /// Records a batch, in several attempts if need be. Before each further attempt those are sent away who cannot wait
    /// for it. The time that is spent on ending overdue reservations first does not count as this batch's.
    async fn record(&mut self, gathered: &mut Gathered) -> Result<Vec<Disposition>, Unrecorded> {
        let tenants = tenants(gathered.proposals());
        let (mut may_guess, mut may_lose_turn) = (true, true);
        let mut attempts = ATTEMPTS_MAX;
        let mut end_rounds = self.end_rounds_max();
        while attempts > 0 {
            let allowed = Allowed {
                guessing: may_guess,
                ending_first: end_rounds > 0,
            };
            let failure = match self.attempt(&tenants, gathered, allowed).await {
                Ok(dispositions) => return Ok(dispositions),
                Err(failure) => failure,
            };
            // It may have read what should have ended, and then it was to be recorded with this batch.
            self.footprints.forget_ends(&tenants);
            let cause = match failure {
                Failure::EndedFirst => {
                    end_rounds -= 1;
                    gathered.begin_anew();
                    None
                }
                Failure::Again(cause) => Some(cause),
                Failure::AgainInTurn(cause) => {
                    may_guess = false;
                    Some(cause)
                }
                // Once: a gateway that stands still again and again had better say so.
                Failure::TurnOver if may_lose_turn => {
                    (may_guess, may_lose_turn) = (false, false);
                    Some(RetryCause::TurnOver)
                }
                Failure::TurnOver => {
                    tracing::error!("a batch failed: its turn was over twice");
                    return Err(Unrecorded::Unavailable);
                }
                Failure::Unreadable(error) => return Err(Unrecorded::Unreadable(error)),
                Failure::Fault => return Err(Unrecorded::Unavailable),
            };
            self.send_away_late(gathered);
            if gathered.is_empty() {
                return Ok(Vec::new());
            }
            if let Some(cause) = cause {
                attempts -= 1;
                if attempts > 0 {
                    self.note_retry(cause);
                } else {
                    tracing::error!(
                        cause = cause.as_str(),
                        "a batch failed: it was made again too often"
                    );
                }
            }
        }
        Err(Unrecorded::Unavailable)
    }

    /// How many commits that only end overdue reservations may go before a batch now.
    fn end_rounds_max(&self) -> u32 {
        if self.load.is_high() {
            END_ROUNDS_MAX_UNDER_LOAD
        } else {
            END_ROUNDS_MAX
        }
    }

    /// Counts a batch that is made again, and logs why.
    fn note_retry(&self, cause: RetryCause) {
        let cause = cause.as_str();
        self.parts.metrics.count_batch_retry(cause);
        tracing::debug!(cause, "a batch is made again");
    }

    /// Applies the batch to where its tenants stand, commits it, and puts in force what it changes. If too many
    /// reservations are overdue to be ended with it, and that is allowed, it only commits their ends and returns
    /// [`Failure::EndedFirst`]. Who cannot wait any more because the turn has come late is sent away.
    async fn attempt(
        &mut self,
        tenants: &[TenantId],
        gathered: &mut Gathered,
        allowed: Allowed,
    ) -> Result<Vec<Disposition>, Failure> {
        let snapshot = Arc::clone(&self.parts.snapshot);
        let _held = if gathered.proposals().iter().any(Proposal::replaces_base) {
            Some(snapshot.hold().await)
        } else {
            None
        };
        let looked_up = self.look_up(tenants, gathered.proposals(), allowed);
        let Basis {
            mode,
            positions,
            found,
        } = looked_up.await?;
        // As long as it has not taken longer than the whole of it was expected to, those who could wait for that still can.
        if gathered.has_deadlines() && gathered.took() > self.pace.expected() {
            self.send_away_late(gathered);
        }
        let as_of = self.parts.snapshot.as_of(TenantId::SYSTEM);
        let before = self.parts.snapshot.load_full();
        let time = self.signing_time(&before, &positions)?;
        // INVARIANT: behind the time that the batch has. Its key may have ended, and base policies may have been
        // replaced, and the revisions of its tenants tell of neither.
        if gathered.decides() && as_of.age() > self.parts.bounds.snapshot_age_max {
            self.parts.follow.notify_one();
            gathered.send_away_deciding();
        }
        // Its turn may be in another database than the one that was there when it was gathered. A look tells of that
        // before it moves the age on.
        self.forget_other_database(gathered);
        let books = Books::new(Snapshot::clone(&before), positions);
        let ends_first = allowed.ending_first && mode.ends_first();
        let proposals: &[Proposal] = if ends_first { &[] } else { gathered.proposals() };
        let applied = apply(&books, found, proposals, time, &self.parts.signing_key);
        self.reject_guesses(&mode, tenants, proposals, &applied)?;
        if !applied.batch.is_empty() {
            self.commit(mode, tenants, proposals, &applied).await?;
        }
        let dispositions = self.publish(&before, applied);
        if ends_first {
            return Err(Failure::EndedFirst);
        }
        Ok(dispositions)
    }

    /// The time of a batch whose tenants stand here. There is none when the signing key has been replaced.
    fn signing_time(
        &self,
        snapshot: &Snapshot,
        positions: &HashMap<TenantId, ChainPosition>,
    ) -> Result<BatchTime, Failure> {
        let key = &self.parts.signing_key;
        let clock = self.parts.clock.now();
        let latest = positions
            .values()
            .map(|position| position.at)
            .fold(clock, Timestamp::max);
        let Some(entries) = signs_at(key, snapshot, clock, latest) else {
            tracing::error!(
                key = key.verifier().label(),
                "the signing key has been replaced: restart with the one that replaced it"
            );
            return Err(Failure::Fault);
        };
        Ok(BatchTime { entries, clock })
    }

    /// The time that entries would have now: not before the signing key begins.
    fn expected_entry_time(&self) -> Timestamp {
        let now = self.parts.clock.now();
        let signs_at = signs_at(&self.parts.signing_key, &self.parts.snapshot.load(), now, now);
        signs_at.unwrap_or(now)
    }

    /// Fails if the batch says something that was only guessed and that storage would not refuse if it were wrong.
    /// The batch is made again then, and what was guessed is looked up.
    fn reject_guesses(
        &mut self,
        mode: &WriteMode,
        tenants: &[TenantId],
        proposals: &[Proposal],
        applied: &Applied,
    ) -> Result<(), Failure> {
        if matches!(mode, WriteMode::Append) && applied.dispositions.iter().any(was_turned_back) {
            // Where its tenants stand was a guess, and so it is that a directory has moved: another gateway may have
            // moved it, and then the guess is what is behind.
            self.footprints.doubt(tenants.iter().copied());
            return Err(Failure::Again(RetryCause::DirectoryGuessed));
        }
        let mut each = proposals.iter().zip(&applied.dispositions);
        if each.any(|one| may_be_repeated(one) && !mode.has_looked_for(one.0)) {
            self.look_ups_left = 1;
            return Err(Failure::Again(RetryCause::MayBeRecorded));
        }
        if matches!(mode, WriteMode::Append) && says_more_than_it_writes(applied, proposals) {
            return Err(Failure::AgainInTurn(RetryCause::ToldWithoutWrite));
        }
        Ok(())
    }

    /// Commits a batch in which there is something, and notes what is known by that.
    async fn commit(
        &mut self,
        mode: WriteMode,
        tenants: &[TenantId],
        proposals: &[Proposal],
        applied: &Applied,
    ) -> Result<(), Failure> {
        let (started, was_appended) = (Instant::now(), matches!(mode, WriteMode::Append));
        let outcome = match mode {
            WriteMode::Append => self.parts.store.append(&applied.batch).await,
            WriteMode::Turn { turn, .. } => turn.commit(&applied.batch).await,
        };
        self.parts
            .metrics
            .observe_commit(applied.batch.entries.len(), started.elapsed());
        outcome.map_err(|error| self.after_failed_commit(&error, &applied.batch, was_appended))?;
        let position = |tenant| applied.books.position(tenant).clone();
        self.footprints.note(tenants, position, &applied.batch.budgets);
        self.footprints.forget_erased(&applied.batch.erasures);
        self.contents.note(&applied.batch.contents);
        self.count(proposals, applied);
        Ok(())
    }

    /// Counts decisions, and the outcomes that differ from what was decided, with the commit that they are in: not
    /// before, because what is repeated is recorded once, and not later, because whoever has asked or reported may be
    /// gone by then.
    fn count(&self, proposals: &[Proposal], applied: &Applied) {
        for (proposal, disposition) in proposals.iter().zip(&applied.dispositions) {
            let Disposition::Recorded { denied, .. } = disposition else {
                continue;
            };
            match &proposal.intent {
                Intent::Decision(decision) => self.count_decision(decision, *denied),
                Intent::Outcome { mismatch: true, .. } => self.parts.metrics.count_mismatch(),
                _ => {}
            }
        }
    }

    /// Counts a decision that became a denial for this reason when it was recorded, if it did.
    fn count_decision(&self, decision: &ProposedDecision, denied: Option<ReasonCode>) {
        let reason = denied.unwrap_or(decision.records.reason());
        self.parts.metrics.count_decision(reason);
        // An allow on trial would have become the same denial.
        let is_told = |shadow: &Verdict| denied.is_none() || *shadow != Verdict::Allow;
        if let Some(shadow) = decision.shadow.filter(is_told) {
            self.parts
                .metrics
                .count_shadow_difference(reason.verdict(), shadow);
        }
    }

    /// Where the tenants stand and what has to be known beforehand: as it is remembered if it may be, or as the turn says.
    async fn look_up(
        &mut self,
        tenants: &[TenantId],
        proposals: &[Proposal],
        allowed: Allowed,
    ) -> Result<Basis, Failure> {
        let reads = BatchReads::of(proposals);
        if allowed.guessing
            && let Some(basis) = self.recall(tenants, &reads)
        {
            return Ok(basis);
        }
        self.take_turn(tenants, proposals, &reads).await
    }

    /// Where the tenants stand and what has to be known beforehand, if this gateway need not ask.
    fn recall(&self, tenants: &[TenantId], reads: &BatchReads<'_>) -> Option<Basis> {
        if self.look_ups_left > 0 {
            return None;
        }
        let positions = self.footprints.positions(tenants)?;
        let times = Times::new(self.expected_entry_time(), &positions);
        let found = reads.read_remembered(&self.footprints, times)?;
        Some(Basis {
            mode: WriteMode::Append,
            positions,
            found,
        })
    }

    /// Takes the turn, and looks up what has to be known beforehand.
    async fn take_turn(
        &mut self,
        tenants: &[TenantId],
        proposals: &[Proposal],
        reads: &BatchReads<'_>,
    ) -> Result<Basis, Failure> {
        let turn = self.parts.store.begin(tenants).await;
        let mut turn = turn.map_err(|error| self.after_failed_look_up(error))?;
        let positions = turn.positions().clone();
        if let Some(tenant) = self.footprints.compare(tenants, &positions) {
            self.forget_lost(tenant);
            return Err(Failure::Fault);
        }
        let times = Times::new(self.expected_entry_time(), &positions);
        let found = reads.read(&mut *turn, &mut self.footprints, times).await;
        let found = found.map_err(|error| self.after_failed_look_up(error))?;
        let (mut found, ends) = found.ok_or(Failure::Again(RetryCause::CacheCleared))?;
        let looked_for = if self.look_ups_left > 0 {
            self.look_ups_left -= 1;
            let looked = reads.read_earlier_of_all(&mut *turn, proposals, &mut found).await;
            looked.map(|()| LookedFor::Everything)
        } else {
            let looked = reads.read_earlier_of_refused(&mut *turn, proposals, &mut found, times);
            looked.await.map(LookedFor::Asks)
        };
        let looked_for = looked_for.map_err(|error| self.after_failed_look_up(error))?;
        let mode = WriteMode::Turn {
            turn,
            ends,
            looked_for,
        };
        Ok(Basis {
            mode,
            positions,
            found,
        })
    }

    /// Forgets what was committed to another database than the one there is now, if that is news, and sends away
    /// whoever left something out for it.
    fn forget_other_database(&mut self, gathered: &mut Gathered) {
        if self.databases.has_changed().unwrap_or(false) {
            self.databases.mark_unchanged();
            self.forget_committed();
            gathered.send_away_incomplete(self.contents.losses());
        }
    }

    /// Forgets what is only known because it was committed: another database has taken the place of the one before, and
    /// may lack some of that. Whether chains have become shorter is still told by where they were left, but not where
    /// another gateway was faster to write there.
    fn forget_committed(&mut self) {
        self.footprints.doubt_all();
        self.contents.forget();
        self.parts.repeats.forget_all();
    }

    /// Forgets what is only known because it was committed, because the store has lost some of that. Whoever was judged
    /// before may have left out contents that were believed to be stored, and is sent away.
    fn forget_lost(&mut self, tenant: TenantId) {
        tracing::error!(%tenant, "the database has lost entries of {tenant} that were answered");
        // Changes may be among them. Whether they are is found out by the follower.
        self.parts.snapshot.continuity.doubt();
        self.parts.follow.notify_one();
        self.footprints = Footprints::default();
        self.contents.forget();
        self.parts.repeats.forget_all();
    }

    /// Forgets what a batch that was not committed, or may have been, was made from, and says how it failed.
    fn after_failed_commit(&mut self, error: &CommitError, batch: &Batch, was_appended: bool) -> Failure {
        self.footprints
            .doubt(batch.advances.iter().map(|advance| advance.tenant));
        match error {
            // No batch is looked up beforehand without cause: nearly every request is new, and storage knows better.
            CommitError::AlreadyRecorded if self.look_ups_left == 0 => {
                self.look_ups_left = LOOK_UPS_AFTER_REPEAT;
                return Failure::Again(RetryCause::AlreadyRecorded);
            }
            CommitError::HeadMoved { .. } if was_appended => return Failure::Again(RetryCause::HeadMoved),
            CommitError::HeadMoved { tenant } => {
                tracing::warn!(%tenant, "somebody else moved the head of a chain during our turn");
                return Failure::Again(RetryCause::HeadMoved);
            }
            error if error.is_turn_over() => {
                tell_of_turn(error);
                return Failure::TurnOver;
            }
            _ => {}
        }
        if let Some(left_out) = self.failed_told.admit(Instant::now()) {
            tracing::error!(
                error = error as &dyn std::error::Error,
                entries = batch.entries.len(),
                left_out,
                "a batch failed"
            );
        }
        // It may have been written, and then it may have changed a directory.
        self.parts.follow.notify_one();
        Failure::Fault
    }

    /// How an attempt fails that could not read what has to be known beforehand.
    fn after_failed_look_up(&mut self, error: StoreError) -> Failure {
        if error.is_turn_over() {
            tell_of_turn(&error);
            return Failure::TurnOver;
        }
        if matches!(error, StoreError::Corrupt { .. }) {
            return Failure::Unreadable(error);
        }
        if let Some(left_out) = self.silent_told.admit(Instant::now()) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                left_out,
                "the ledger does not answer"
            );
        }
        Failure::Fault
    }

    /// Puts in force what a batch has changed, tells those who follow the ledger, and returns what became of each proposal.
    fn publish(&mut self, before: &Arc<Snapshot>, applied: Applied) -> Vec<Disposition> {
        if !applied.changed.is_empty() {
            // Noted first: a look that finds the new revision compares the entry that made it.
            for advance in &applied.batch.advances {
                if applied.changed.contains(&advance.tenant) {
                    let continuity = &self.parts.snapshot.continuity;
                    continuity.note_end(advance.tenant, advance.to.head());
                }
            }
            self.parts
                .snapshot
                .publish(before, applied.books.snapshot(), &applied.changed);
        }
        if let Some(latest) = applied.batch.entries.iter().max_by_key(|entry| entry.at) {
            self.ahead.note(latest.tenant, latest.at, self.parts.clock.now());
        }
        self.parts.live.grown(&applied.batch.advances);
        self.parts.indexing.grown(&applied.batch.advances);
        if applied.dispositions.iter().any(was_turned_back) {
            self.parts.follow.notify_one();
        }
        applied.dispositions
    }
}

const fn was_turned_back(disposition: &Disposition) -> bool {
    matches!(
        disposition,
        Disposition::Conflict(Conflict::DirectoryMoved { .. })
    )
}

/// Whether somebody would be told something about a tenant that nothing is written to. Only where something is, storage
/// says whether what was known of that tenant is so.
fn says_more_than_it_writes(applied: &Applied, proposals: &[Proposal]) -> bool {
    let advances = &applied.batch.advances;
    let is_written = |tenant| advances.iter().any(|advance| advance.tenant == tenant);
    let mut each = proposals.iter().zip(&applied.dispositions);
    each.any(|(proposal, disposition)| {
        !matches!(disposition, Disposition::Recorded { .. }) && !is_written(proposal.tenant)
    })
}

/// Whether something that its caller has named came to nothing: a move of budgets, or an ask that a quota has no room
/// for. It may have been recorded before, and that has an answer. Storage says so of what would be written again, and
/// of this nothing would be.
fn may_be_repeated((proposal, disposition): (&Proposal, &Disposition)) -> bool {
    match &proposal.intent {
        Intent::Budget(change) if change.repeat.is_some() => {
            !matches!(disposition, Disposition::Recorded { .. }) && !was_turned_back(disposition)
        }
        Intent::Decision(decision) if decision.request.is_some() => {
            matches!(disposition, Disposition::Conflict(Conflict::QuotaExceeded(_)))
        }
        _ => false,
    }
}

/// Says that a turn was over before its batch was written.
fn tell_of_turn(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "a turn was over before its batch was written");
}

/// Whose chains a batch may write to, each once.
fn tenants(proposals: &[Proposal]) -> Vec<TenantId> {
    let mut tenants: Vec<_> = proposals.iter().map(|proposal| proposal.tenant).collect();
    tenants.extend(proposals.iter().filter_map(|proposal| match proposal.intent {
        Intent::NewTenant { tenant, .. } => Some(tenant),
        _ => None,
    }));
    tenants.sort_unstable();
    tenants.dedup();
    tenants
}

/// What waits now, up to the submission with which it comes to the work of `batch_max` short proposals. Behind
/// [`APPROVALS_MAX`] votes, what else people want waits for the next commit, and what agents want does not: votes
/// without end keep no ask waiting. Behind as many asks that use approvals it ends. What closes budgets stands last in
/// it.
pub(super) fn drain(first: Submission, waiting: &Exit<Submission>, batch_max: usize) -> Vec<Submission> {
    let approvals_max = APPROVALS_MAX as usize;
    let mut work = first.work;
    let (mut votes, mut uses) = (count(&first, changes_approval), count(&first, uses_approval));
    let mut batch = vec![first];
    while work < batch_max && uses < approvals_max {
        let next = if votes < approvals_max {
            waiting.take()
        } else {
            waiting.take_beside_people()
        };
        let Some(next) = next else {
            break;
        };
        work += next.work;
        votes += count(&next, changes_approval);
        uses += count(&next, uses_approval);
        batch.push(next);
    }
    if batch.iter().any(closes_budget) {
        batch.sort_by_key(closes_budget);
    }
    batch
}

/// How many of its proposals are such.
fn count(submission: &Submission, is_such: fn(&Proposal) -> bool) -> usize {
    let proposals = submission.proposals.iter();
    proposals.filter(|proposal| is_such(proposal)).count()
}

/// Whether this is a vote, or says that an approval has expired.
fn changes_approval(proposal: &Proposal) -> bool {
    matches!(proposal.intent, Intent::Approval(_))
}

/// Whether this is an ask that uses an approval up.
fn uses_approval(proposal: &Proposal) -> bool {
    match &proposal.intent {
        Intent::Decision(decision) => matches!(decision.approval, Some(ApprovalUse::Spends { .. })),
        _ => false,
    }
}

/// Whether this closes a budget. No ask may stand behind that in a batch: whether its tenant still has any budget, and
/// an estimate so has to find one, is looked up before the batch.
fn closes_budget(submission: &Submission) -> bool {
    let first = submission.proposals.first();
    matches!(
        first.map(|proposal| &proposal.intent),
        Some(Intent::Budget(change)) if matches!(
            change.what,
            Move::Change { change: BudgetChange::Close, .. }
        )
    )
}
