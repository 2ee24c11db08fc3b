//! A round: every ledger that has moved is shown to every witness, a ledger at a time, and to all witnesses at once.
//! What witnesses are remembered to have cosigned is compared first, of all ledgers, and again every now and then
//! between two that are shown: no comparison waits for more than one ledger to be shown.
//!
//! What the database says is compared with what a witness has cosigned, whether it says so now or is remembered to have
//! said it. A witness that does not answer is left out for the rest of the round. Where nothing may be signed, nothing
//! is shown, and only what is remembered is compared.

use super::asking::{Answer, AskError, Health, WitnessClient};
use super::{Cosigning, Difference, Fork};
use crate::records::tree::{self, TreeError};
use crate::signing::signs_ledger;
use futures_util::future::join_all;
use ledger::merkle::verify_consistency;
use ledger::witness::{AddCheckpoint, Cosigned};
use ledger::{Checkpoint, NoteFault};
use model::TenantId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use store::StoreError;

/// Once in so many rounds ledgers are shown even if they have not moved: somebody else may go on with a copy.
const ALSO_UNCHANGED_EVERY: u64 = 60;
/// How often one witness is asked about one ledger in a round: it may say what it has seen, and meanwhile somebody else may have
/// shown it more.
const ATTEMPTS_MAX: usize = 4;

/// What has become of the witnesses in a round, by their places in the options.
#[derive(Default)]
struct Round {
    /// Those that do not answer.
    silent: HashSet<usize>,
    /// Those that have cosigned something.
    cosigned: HashSet<usize>,
    /// What was first or worst with those that have not cosigned everything.
    failed: HashMap<usize, Failure>,
}

/// What was wrong with a witness.
struct Failure {
    health: Health,
    /// Of which tenant, and why.
    what: String,
}

impl Round {
    /// Notes what a witness has not cosigned.
    fn note_failure(&mut self, place: usize, tenant: TenantId, error: &AskError) {
        let health = error.health();
        let before = self.failed.get(&place);
        if before.is_none_or(|before| before.health < health) {
            let what = format!("{tenant}: {error}");
            self.failed.insert(place, Failure { health, what });
        }
        if error.is_silence() {
            self.silent.insert(place);
        }
    }
}

/// What asking a witness about a ledger has come to.
enum Outcome {
    /// It has seen the same.
    Same,
    /// It has cosigned.
    Cosigned,
    /// It was not asked, because nothing is signed for this ledger now.
    Unasked,
    /// It cannot be asked now.
    Failed(AskError),
    /// It has seen something else.
    Forked(Difference),
}

/// Why a ledger was not shown.
#[derive(Debug, thiserror::Error)]
enum Unshown {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Note(#[from] NoteFault),
}

impl Unshown {
    /// Whether it would be the same for any other ledger.
    const fn is_of_all(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable(_)))
    }
}

impl Cosigning {
    /// Starts the job, which ends with this. Without witnesses there is none.
    pub fn start(self: &Arc<Self>) {
        if !self.clients.is_empty() {
            tokio::spawn(run(Arc::downgrade(self), self.every));
        }
    }

    /// One round.
    pub async fn ask_all(&self) {
        let mut rounds = self.rounds.lock().await;
        let also_unchanged = rounds.is_multiple_of(ALSO_UNCHANGED_EVERY);
        *rounds += 1;
        let tenants: BTreeSet<TenantId> = self
            .snapshot
            .load()
            .tenants()
            .map(|(tenant, _)| *tenant)
            // It is shown with what there is now, and whoever has cosigned more knows better.
            .chain(self.watch.gone())
            .collect();
        let mut round = Round::default();
        let to_show = self.compare_all(&tenants, also_unchanged).await;
        let mut compared = Instant::now();
        for tenant in to_show {
            if self.fork().is_some() || round.silent.len() == self.clients.len() {
                break;
            }
            if let Err(error) = self.show(tenant, also_unchanged, &mut round).await {
                tell_unshown(tenant, &error);
                if error.is_of_all() {
                    break;
                }
            }
            if compared.elapsed() >= self.every {
                self.compare_all(&tenants, false).await;
                compared = Instant::now();
            }
        }
        for (place, client) in self.clients.iter().enumerate() {
            match round.failed.get(&place) {
                Some(failure) => tell_failure(client, failure),
                None if round.cosigned.contains(&place) => tell_recovery(client, also_unchanged),
                // It was shown nothing, so it is not known whether it is as it was.
                None => {}
            }
        }
    }

    /// Compares all ledgers with what witnesses are remembered to have cosigned, and asks none of them. Returns those
    /// that are to be shown: not every witness is known to have cosigned all of them, or those that have not moved are
    /// wanted, too.
    async fn compare_all(&self, tenants: &BTreeSet<TenantId>, also_unchanged: bool) -> Vec<TenantId> {
        let mut to_show = Vec::new();
        for tenant in tenants {
            match self.is_cosigned(*tenant).await {
                Ok(is_cosigned) if is_cosigned && !also_unchanged => {}
                Ok(_) => to_show.push(*tenant),
                Err(error) => {
                    let error = Unshown::from(error);
                    tell_unshown(*tenant, &error);
                    if error.is_of_all() {
                        break;
                    }
                }
            }
            if self.fork().is_some() {
                break;
            }
        }
        to_show
    }

    /// Whether every witness is remembered to have cosigned all of a ledger. Where the database says something else
    /// than what is remembered, the gateway stops.
    async fn is_cosigned(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let seen: Vec<Option<Cosigned>> = {
            let kept = self.kept();
            (0..self.clients.len())
                .map(|place| kept.seen(tenant, place))
                .collect()
        };
        if seen.iter().all(Option::is_none) {
            return Ok(false);
        }
        let newest = self.newest_or_stop(tenant).await?;
        for (place, seen) in seen.iter().enumerate() {
            if let Some(what) = seen.and_then(|seen| shorter_or_other(&seen, &newest)) {
                self.stop_for(tenant, place, what);
            }
        }
        Ok(seen
            .iter()
            .all(|seen| seen.is_some_and(|seen| seen.size == newest.size)))
    }

    /// Shows one ledger to all witnesses but those that are silent.
    async fn show(&self, tenant: TenantId, also_unchanged: bool, round: &mut Round) -> Result<(), Unshown> {
        let newest = self.newest_or_stop(tenant).await?;
        let asked: Vec<_> = (0..self.clients.len())
            .filter(|place| !round.silent.contains(place))
            .collect();
        let outcomes = join_all(
            asked
                .iter()
                .map(|place| self.compare(tenant, *place, newest.clone(), also_unchanged)),
        )
        .await;
        // What one witness says counts, whatever went wrong before another could be asked.
        let mut unshown = Ok(());
        for (place, outcome) in asked.into_iter().zip(outcomes) {
            let client = &self.clients[place];
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    unshown = Err(error);
                    continue;
                }
            };
            match outcome {
                Outcome::Same | Outcome::Unasked => {}
                Outcome::Cosigned => {
                    self.metrics.count_witness(client.name(), "cosigned");
                    round.cosigned.insert(place);
                }
                Outcome::Failed(error) => {
                    self.metrics.count_witness(client.name(), "failed");
                    round.note_failure(place, tenant, &error);
                }
                Outcome::Forked(what) => self.stop_for(tenant, place, what),
            }
        }
        unshown
    }

    /// A witness has seen something else than the database says.
    fn stop_for(&self, tenant: TenantId, place: usize, what: Difference) {
        let witness = self.clients[place].name();
        self.metrics.count_witness(witness, "forked");
        self.stop(Fork {
            tenant,
            witness: witness.to_owned(),
            what,
        });
    }

    /// What the database says of a ledger now. One that a witness has cosigned and whose end cannot be read any more
    /// stops the gateway: it is not known to be the one that was cosigned.
    async fn newest_or_stop(&self, tenant: TenantId) -> Result<Checkpoint, StoreError> {
        let has_seen = |place: &usize| self.kept().seen(tenant, *place).is_some();
        let Some(place) = (0..self.clients.len()).find(has_seen) else {
            return self.newest(tenant).await;
        };
        let mut newest = self.newest(tenant).await;
        if matches!(newest, Err(StoreError::Corrupt { .. })) {
            tokio::time::sleep(self.look_again).await;
            newest = self.newest(tenant).await;
        }
        if let Err(StoreError::Corrupt { what }) = &newest {
            self.stop(Fork {
                tenant,
                witness: self.clients[place].name().to_owned(),
                what: Difference::Unprovable(what.clone()),
            });
        }
        newest
    }

    /// What the database says of a ledger now.
    async fn newest(&self, tenant: TenantId) -> Result<Checkpoint, StoreError> {
        let tip = self.store.tip(tenant).await?;
        Ok(tree::checkpoint(
            &self.signing_key,
            tenant,
            tip.head().seq,
            tip.tree().root(),
        ))
    }

    /// Compares what the database says with what a witness has seen.
    async fn compare(
        &self,
        tenant: TenantId,
        place: usize,
        mut checkpoint: Checkpoint,
        also_unchanged: bool,
    ) -> Result<Outcome, Unshown> {
        let seen = self.kept().seen(tenant, place);
        if let Some(difference) = seen.and_then(|seen| shorter_or_other(&seen, &checkpoint)) {
            return Ok(Outcome::Forked(difference));
        }
        if !also_unchanged && seen.is_some_and(|seen| seen.size == checkpoint.size) {
            return Ok(Outcome::Same);
        }
        let mut old = seen.map_or(0, |seen| seen.size);
        for _ in 0..ATTEMPTS_MAX {
            // The root is known of what this process has shown itself, and only that is compared here.
            let known = seen.filter(|seen| seen.size == old);
            if !self.may_sign(tenant, checkpoint.size).await? {
                return Ok(Outcome::Unasked);
            }
            let request = match self.request(tenant, old, known, &checkpoint).await? {
                Ok(request) => request,
                Err(difference) => return Ok(Outcome::Forked(difference)),
            };
            match self.ask(place, request).await {
                Err(error) => return Ok(Outcome::Failed(error)),
                Ok(Answer::Cosigned(signature)) => {
                    self.kept()
                        .keep(tenant, place, &checkpoint, signature, self.quorum);
                    return Ok(Outcome::Cosigned);
                }
                Ok(Answer::Inconsistent) => return Ok(Outcome::Forked(Difference::Other { seen: old })),
                // INVARIANT: a witness is asked to go on only from what it has seen at least. One that has forgotten
                // would cosign whatever it is shown first, such as an old copy that was put back.
                Ok(Answer::Seen(says)) if says < old => {
                    return Ok(Outcome::Failed(AskError::Forgotten { seen: old, says }));
                }
                Ok(Answer::Seen(size)) if size == old && size == checkpoint.size => {
                    return Ok(Outcome::Forked(Difference::Other { seen: size }));
                }
                Ok(Answer::Seen(size)) if size == old => return Ok(Outcome::Failed(AskError::Contradiction)),
                Ok(Answer::Seen(size)) => {
                    if size > checkpoint.size {
                        // Another gateway on the same database may have shown it more just now. What was shown was committed.
                        checkpoint = self.newest(tenant).await?;
                    }
                    if size > checkpoint.size {
                        let there = checkpoint.size;
                        return Ok(Outcome::Forked(Difference::Shorter { seen: size, there }));
                    }
                    old = size;
                }
            }
        }
        // Others were faster each time, and so the witness has seen what they have shown.
        Ok(Outcome::Failed(AskError::Contradiction))
    }

    /// Whether this ledger may be what was recorded, and the time of the signing key is not over. A witness that has
    /// cosigned what is not would refuse the ledger that is.
    async fn may_sign(&self, tenant: TenantId, size: u64) -> Result<bool, StoreError> {
        if self.watch.check(tenant).is_err() {
            return Ok(false);
        }
        let snapshot = self.snapshot.load_full();
        let ledger = (&*self.store, tenant, size);
        signs_ledger(&self.signing_key, &snapshot, self.clock.now(), ledger).await
    }

    /// The request, with a proof that the database continues its own ledger of the size `old`, and what is `known` of it.
    async fn request(
        &self,
        tenant: TenantId,
        old: u64,
        known: Option<Cosigned>,
        checkpoint: &Checkpoint,
    ) -> Result<Result<AddCheckpoint, Difference>, Unshown> {
        let note = checkpoint.sign(&[&self.signing_key])?;
        let mut request = AddCheckpoint {
            old_size: old,
            proof: Vec::new(),
            checkpoint: note.to_string(),
        };
        if old == 0 {
            return Ok(Ok(request));
        }
        let mut proof = tree::consistency(&*self.store, tenant, old, checkpoint.size).await;
        if matches!(proof, Err(TreeError::Store(StoreError::Corrupt { .. }))) {
            tokio::time::sleep(self.look_again).await;
            proof = tree::consistency(&*self.store, tenant, old, checkpoint.size).await;
        }
        match proof {
            Ok(proof) => request.proof = proof,
            Err(TreeError::Store(StoreError::Corrupt { what }) | TreeError::Unprovable(what)) => {
                return Ok(Err(Difference::Unprovable(what)));
            }
            Err(TreeError::Store(error)) => return Err(error.into()),
        }
        let continues = known.is_none_or(|known| {
            let (from, to) = ((old, &known.root), (checkpoint.size, &checkpoint.root));
            verify_consistency(from, to, &request.proof).is_ok()
        });
        Ok(continues
            .then_some(request)
            .ok_or(Difference::Other { seen: old }))
    }

    async fn ask(&self, place: usize, request: AddCheckpoint) -> Result<Answer, AskError> {
        let client = Arc::clone(&self.clients[place]);
        let asking = tokio::task::spawn_blocking(move || client.ask(&request));
        asking.await?
    }
}

/// Tells that a ledger could not be compared or shown.
fn tell_unshown(tenant: TenantId, error: &Unshown) {
    tracing::warn!(
        %tenant,
        error = error as &dyn std::error::Error,
        "the ledger of {tenant} could not be shown to witnesses: {error}"
    );
}

/// Tells when a witness begins to fail, and when it is worse than that.
fn tell_failure(client: &WitnessClient, Failure { health, what }: &Failure) {
    if client.note_failure(*health) {
        let name = client.name();
        tracing::warn!(witness = name, "the witness `{name}` has not cosigned: {what}");
    }
}

/// Tells when a witness that failed cosigns again. Of one that had forgotten something that is known only if it was
/// also shown what has not moved.
fn tell_recovery(client: &WitnessClient, also_unchanged: bool) {
    if client.note_cosigning(also_unchanged) {
        let name = client.name();
        tracing::info!(witness = name, "the witness `{name}` cosigns again");
    }
}

/// What is different from what a witness is known to have cosigned, as far as sizes and roots tell.
fn shorter_or_other(seen: &Cosigned, checkpoint: &Checkpoint) -> Option<Difference> {
    let (size, there) = (seen.size, checkpoint.size);
    if size > there {
        return Some(Difference::Shorter { seen: size, there });
    }
    (size == there && seen.root != checkpoint.root).then_some(Difference::Other { seen: size })
}

async fn run(cosigning: Weak<Cosigning>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(cosigning) = cosigning.upgrade() else {
            return;
        };
        cosigning.ask_all().await;
        if cosigning.fork().is_some() {
            return;
        }
    }
}
