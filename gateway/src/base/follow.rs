//! Taking over what another gateway has reloaded. Its text comes from the database, so no file has to be anywhere else for it.
//!
//! What a gateway starts with is its own: one that was started with an old file would otherwise take everybody back to it. It is told, and the
//! metric says that they differ.

use super::{blocking, last};
use crate::changes::By;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use canon::Digest;
use model::BaseInForce;
use policy::BasePolicies;
use serde_json::json;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a gateway waits between two looks at what it knows of the others.
const ROUND: Duration = Duration::from_millis(500);
/// How long it waits before it tries again what could not be put in force: at first, as everybody may be at it, and at most, as each try
/// compiles every tenant's policies.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// What could not be put in force.
#[derive(Clone, Copy)]
struct Refused {
    digest: Digest,
    /// How long was waited since, and until when it is.
    pause: Duration,
    until: Instant,
}

impl Refused {
    /// The same once more, or something else than before.
    fn again(before: Option<Self>, digest: Digest) -> Self {
        let before = before.filter(|before| before.digest == digest);
        let pause = before.map_or(PAUSE_MIN, |before| (before.pause * 2).min(PAUSE_MAX));
        Self {
            digest,
            pause,
            until: Instant::now() + pause,
        }
    }
}

/// Follows the others, as long as the gateway is there.
pub fn start(gateway: &Arc<Gateway>) {
    if gateway.store.is_shared() {
        tokio::spawn(run(Arc::downgrade(gateway)));
    }
}

async fn run(gateway: Weak<Gateway>) {
    let mut refused = None;
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        let waits = |refused: Refused| {
            let next = gateway.reloaded_elsewhere();
            next.is_some_and(|(next, _)| next.digest == refused.digest) && Instant::now() < refused.until
        };
        if refused.is_some_and(waits) {
            continue;
        }
        match gateway.follow_base().await {
            Ok(None) => {}
            Ok(Some(digest)) => {
                refused = None;
                tracing::info!(%digest, "the base policies that another gateway has reloaded are in force");
            }
            Err((digest, refusal)) => {
                let before = refused.replace(Refused::again(refused, digest));
                if before.is_none_or(|before| before.digest != digest) {
                    tracing::error!(
                        %digest,
                        code = refusal.code().as_str(),
                        "the base policies that another gateway has reloaded are not put in force here: {}",
                        refusal.detail()
                    );
                }
            }
        }
    }
}

impl Gateway {
    /// Puts the base policies in force that another gateway has reloaded last, if they are others than those in force here. Returns their
    /// digest.
    pub async fn follow_base(&self) -> Result<Option<Digest>, (Digest, Refusal)> {
        let Some((_, cedar)) = self.reloaded_elsewhere() else {
            return Ok(None);
        };
        let _one_at_a_time = self.base.reloading.lock().await;
        // They may have been reloaded here meanwhile.
        let Some((reloaded, _)) = self.reloaded_elsewhere().filter(|(_, text)| *text == cedar) else {
            return Ok(None);
        };
        let put = async {
            let base = blocking(move || checked(&cedar)).await??;
            self.replace_base(base, By::Gateway).await
        };
        put.await
            .map(|is_put| is_put.then_some(reloaded.digest))
            .map_err(|refusal| (reloaded.digest, refusal))
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
