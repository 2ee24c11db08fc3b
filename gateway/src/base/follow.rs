//! Taking over what another gateway has reloaded. Its text comes from the database, so no file has to be anywhere else for it.
//!
//! What a gateway starts with is its own: one that was started with an old file would otherwise take everybody back to
//! it. It is told, and the metric says that they differ.

use super::last;
use super::replacement::Replacement;
use crate::changes::{By, off_the_workers};
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use canon::Digest;
use engine::Snapshot;
use model::BaseInForce;
use policy::BasePolicies;
use serde_json::json;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a gateway waits between two looks at what it knows of the others.
const ROUND: Duration = Duration::from_millis(500);
/// How long it waits before it tries again what could not be put in force, as faults take time to pass.
const PAUSE: Duration = Duration::from_secs(2);
/// How long it waits at most where trying again mends nothing: twice as long each time.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// What could not be put in force, and why.
#[derive(Clone)]
struct NotPut {
    reloaded: Arc<BaseInForce>,
    refusal: Refusal,
    /// With what is compiled under it, if it could be read. The next try need not do that again.
    replacement: Option<Replacement>,
}

/// What could not be put in force, and how long it is left at that.
struct Refused {
    not_put: NotPut,
    at: Instant,
    /// How long it is waited from then on.
    pause: Duration,
}

impl Refused {
    /// What is refused now, perhaps once more.
    fn next(before: Option<&Self>, not_put: NotPut, at: Instant) -> Self {
        let before = before.filter(|before| before.is_of(&not_put.reloaded));
        let pause = match before {
            Some(before) if !may_pass(not_put.refusal.code()) => (before.pause * 2).min(PAUSE_MAX),
            _ => PAUSE,
        };
        Self { not_put, at, pause }
    }

    /// Whether it is this reload: at another time it was reloaded again, or somebody else has taken it over.
    fn is_of(&self, reloaded: &BaseInForce) -> bool {
        let ours = &self.not_put.reloaded;
        (ours.digest, ours.since) == (reloaded.digest, reloaded.since)
    }

    /// Whether the log has not told the same.
    fn is_news_after(&self, before: &Self) -> bool {
        let told = |refused: &Self| (refused.not_put.reloaded.digest, refused.not_put.refusal.code());
        told(self) != told(before)
    }

    /// Whether it is too early to try what was put in force last, where tenants are like this.
    fn waits(&self, last: &BaseInForce, snapshot: &Snapshot, now: Instant) -> bool {
        let may_fit = || {
            let replacement = self.not_put.replacement.as_ref();
            replacement.is_some_and(|replacement| replacement.may_fit(snapshot))
        };
        let waits_at_least = now < self.at + PAUSE;
        self.is_of(last) && (waits_at_least || (now < self.at + self.pause && !may_fit()))
    }

    /// What is compiled under this text, whoever has put it in force.
    fn compiled(&self, cedar: &Arc<str>) -> Option<&Replacement> {
        let replacement = self.not_put.replacement.as_ref();
        replacement.filter(|replacement| replacement.base().text() == cedar)
    }
}

/// Whether the same may be put in force soon: the store or the queue was in the way, and not what the policies say.
const fn may_pass(code: Code) -> bool {
    !matches!(code, Code::PolicyInvalid | Code::Internal)
}

/// Follows the others, as long as the gateway is there.
pub fn start(gateway: &Arc<Gateway>) {
    if gateway.store.is_shared() {
        tokio::spawn(run(Arc::downgrade(gateway)));
    }
}

async fn run(gateway: Weak<Gateway>) {
    let mut refused: Option<Refused> = None;
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        if refused.as_ref().is_some_and(|refused| gateway.waits(refused)) {
            continue;
        }
        match gateway.follow_base(refused.as_ref()).await {
            Ok(put) => {
                // Nobody needs any more what was compiled under others.
                refused = None;
                if let Some(digest) = put {
                    tracing::info!(%digest, "the base policies that another gateway has reloaded are in force");
                }
            }
            Err(not_put) => {
                let next = Refused::next(refused.as_ref(), not_put, Instant::now());
                if refused.as_ref().is_none_or(|before| next.is_news_after(before)) {
                    let (reloaded, refusal) = (&next.not_put.reloaded, &next.not_put.refusal);
                    tracing::error!(
                        digest = %reloaded.digest,
                        code = refusal.code().as_str(),
                        "the base policies that another gateway has reloaded are not put in force here: {}",
                        refusal.detail()
                    );
                }
                refused = Some(next);
            }
        }
    }
}

impl Gateway {
    /// Puts the base policies in force that another gateway has reloaded last, if they are others than those in force
    /// here. Returns their digest. What was refused before is tried again with what was compiled then.
    async fn follow_base(&self, refused: Option<&Refused>) -> Result<Option<Digest>, NotPut> {
        let Some((_, cedar)) = self.reloaded_elsewhere() else {
            return Ok(None);
        };
        let _one_at_a_time = self.base.reloading.lock().await;
        // They may have been reloaded here meanwhile.
        let Some((reloaded, _)) = self.reloaded_elsewhere().filter(|(_, text)| *text == cedar) else {
            return Ok(None);
        };
        let mut replacement = refused.and_then(|refused| refused.compiled(&cedar)).cloned();
        match self.put_reloaded(cedar, &mut replacement).await {
            Ok(is_put) => Ok(is_put.then_some(reloaded.digest)),
            Err(refusal) => Err(NotPut {
                reloaded,
                refusal,
                replacement,
            }),
        }
    }

    /// Puts the base policies in this text in force, and keeps what it has compiled under them.
    async fn put_reloaded(
        &self,
        cedar: Arc<str>,
        replacement: &mut Option<Replacement>,
    ) -> Result<bool, Refusal> {
        let replacement = match replacement {
            Some(replacement) => replacement,
            None => replacement.insert(Replacement::new(off_the_workers(move || checked(&cedar)).await??)),
        };
        self.replace_base(replacement, By::Gateway).await
    }

    fn waits(&self, refused: &Refused) -> bool {
        let snapshot = self.snapshot.load();
        let last = last(&snapshot);
        last.is_some_and(|last| refused.waits(last, &snapshot, Instant::now()))
    }

    fn reloaded_elsewhere(&self) -> Option<(Arc<BaseInForce>, Arc<str>)> {
        let snapshot = self.snapshot.load();
        let last = last(&snapshot).filter(|last| last.digest != snapshot.base_digest())?;
        Some((Arc::clone(last), Arc::clone(last.cedar.as_ref()?)))
    }
}

/// Policies as another gateway has read them. This one may be of another version, so they are tried here, too.
fn checked(cedar: &str) -> Result<BasePolicies, Refusal> {
    let base = BasePolicies::parse(cedar).map_err(|diagnostics| {
        let detail = "they are not valid for this version";
        Refusal::new(Code::PolicyInvalid, detail).with_diagnostics(json!(diagnostics))
    })?;
    policy::probe(&base).map_err(|failure| Refusal::new(Code::PolicyInvalid, failure.to_string()))?;
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::super::replacement::tests::{mended, replacement, snapshot, with_teams};
    use super::*;
    use model::Timestamp;

    /// Base policies that are the same each time, reloaded at this time.
    fn reloaded(since: i64) -> BaseInForce {
        BaseInForce {
            digest: Digest::of(b"base"),
            since: Timestamp::from_millis(since),
            cedar: None,
        }
    }

    fn fault(refusal: Refusal) -> NotPut {
        NotPut {
            reloaded: Arc::new(reloaded(1)),
            refusal,
            replacement: None,
        }
    }

    /// What does not fit a tenant in that snapshot.
    fn misfit(since: i64) -> NotPut {
        let mut replacement = replacement();
        replacement.recompile_missing(&snapshot());
        NotPut {
            reloaded: Arc::new(reloaded(since)),
            refusal: replacement.check_fits().unwrap_err(),
            replacement: Some(replacement),
        }
    }

    /// What is remembered after so many tries in a row of which each is refused like this.
    fn tried(times: usize, not_put: &NotPut, at: Instant) -> Refused {
        let first = Refused::next(None, not_put.clone(), at);
        (1..times).fold(first, |before, _| {
            Refused::next(Some(&before), not_put.clone(), at)
        })
    }

    #[test]
    fn what_a_fault_was_in_the_way_of_is_tried_again_soon_and_what_does_not_fit_ever_later() {
        let (now, misfit) = (Instant::now(), misfit(1));
        for refusal in [Refusal::ledger_unavailable(), Refusal::overloaded()] {
            assert_eq!(tried(20, &fault(refusal), now).pause, PAUSE);
        }
        let pauses = [1, 2, 3, 20].map(|times| tried(times, &misfit, now).pause);
        assert_eq!(pauses, [PAUSE, PAUSE * 2, PAUSE * 4, PAUSE_MAX]);
        let faulted = Refused::next(Some(&tried(20, &misfit, now)), fault(Refusal::overloaded()), now);
        assert_eq!(faulted.pause, PAUSE);
    }

    #[test]
    fn nobody_waits_for_long_once_there_is_another_reload_or_a_tenant_may_fit() {
        let (now, same) = (Instant::now(), snapshot());
        let refused = tried(20, &misfit(1), now);
        let waits = |since: i64, snapshot: &Snapshot, after: Duration| {
            refused.waits(&reloaded(since), snapshot, now + after)
        };
        assert!(waits(1, &same, PAUSE_MAX / 2));
        assert!(!waits(1, &same, PAUSE_MAX));
        // What changes that no policy is compiled from makes nobody fit.
        assert!(waits(1, &with_teams(&same), PAUSE_MAX / 2));
        let mended = mended(&same);
        assert!(waits(1, &mended, PAUSE / 2));
        assert!(!waits(1, &mended, PAUSE));
        // Others were put in force in between.
        assert!(!waits(2, &same, Duration::ZERO));
        let another = Refused::next(Some(&refused), misfit(2), now);
        assert_eq!(another.pause, PAUSE);
    }

    #[test]
    fn what_was_compiled_is_kept_for_the_same_text() {
        let refused = tried(2, &misfit(1), Instant::now());
        let text = Arc::clone(replacement().base().text());
        let kept = refused.compiled(&text).unwrap();
        let left = kept.recompiled().missing(&snapshot()).count();
        assert_eq!(left, 1, "the tenant that it does not fit");
        assert!(refused.compiled(&Arc::from("")).is_none());
        assert!(
            tried(1, &fault(Refusal::overloaded()), Instant::now())
                .compiled(&text)
                .is_none()
        );
    }
}
