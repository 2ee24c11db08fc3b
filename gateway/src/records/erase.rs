//! `POST /v1/ledger/erase`: takes what entries tell out of the ledger, and leaves that they were there.
//!
//! The header of an erased entry stays, with the digest of its body, so the chain and every proof still verify. The
//! body goes, and in the same commit the rows of the decision, its receipt, its request id, what was held and what
//! people were asked; before it, what the search index knows. The commit adds an entry that tells which bodies are
//! gone, by whom and by what they were chosen.
//!
//! A tenant may have it done by itself, after so many days: [`retention`]. Its people erase once at a time. Each page
//! of the ledger is read in the line of all who read ledgers, and of all erasures one at a time is recorded.
//!
//! What agents asked can be erased, and what came of it. What changed the directory cannot: that is who could do what,
//! by names that the tenant has given. Nor can what agents did with budgets by themselves.

mod choose;
pub mod retention;
mod taking;

use crate::fair_semaphore::BUSY_RETRY_AFTER;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, TenantCaller};
use crate::records::times::first_since;
use axum::Extension;
use axum::extract::State;
use axum::http::header;
use choose::Choice;
use model::{AgentId, Name, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use taking::{Reached, Taking};

/// Entries that are read at once.
const PAGE: u32 = 256;
/// Bodies that one commit erases: it takes some milliseconds, and everybody else waits for those.
const BATCH_MAX: usize = 256;
/// How long a request goes on before it says how far it has come.
const TIME_MAX: Duration = Duration::from_secs(5);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// What to erase: one of the first four. None of them is ever `null`: beside another one it would say less than was meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erase {
    /// This entry.
    #[serde(default, deserialize_with = "canon::sent")]
    seq: Option<NonZeroU64>,
    /// What this agent has done.
    #[serde(default, deserialize_with = "canon::sent")]
    agent: Option<AgentId>,
    /// What was done for this user.
    #[serde(default, deserialize_with = "canon::sent")]
    user: Option<Name>,
    /// What was recorded before so many days of 24 hours.
    #[serde(default, deserialize_with = "canon::sent")]
    older_than_days: Option<NonZeroU32>,
    /// Goes on at this entry, where an earlier call has stopped.
    from_seq: Option<NonZeroU64>,
}

/// How far it has come.
#[derive(Debug, Serialize)]
pub struct Progress {
    /// How many bodies this call has erased.
    erased: u64,
    /// How many it has left because people are still asked about them or something is held for them.
    waiting: u64,
    /// Whether everything was looked at.
    done: bool,
    /// Where to go on, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_seq: Option<u64>,
}

/// Erases bodies, for one caller of a tenant at a time.
pub async fn erase(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Json(wanted): Json<Erase>,
) -> Result<Json<Progress>, Refusal> {
    let begun = gateway.erasures_of.begin(caller.tenant()).ok_or_else(busy)?;
    // A caller that goes away leaves no blocks of the search index held, and begins nothing else before this is over.
    let work = tokio::spawn(async move {
        let _begun = begun;
        run(&gateway, &caller, wanted).await
    });
    work.await
        .unwrap_or_else(|error| {
            let detail = "erasing broke off; what was erased is in the ledger";
            Err(Refusal::broken_off(&error, "erasing broke off", detail))
        })
        .map(Json)
}

fn busy() -> Refusal {
    let detail = "this tenant erases already; try again when that is done";
    Refusal::new(Code::Overloaded, detail).with_header(header::RETRY_AFTER, BUSY_RETRY_AFTER)
}

/// Erases what is wanted, and says what came of it to whoever may still be told anything.
async fn run(gateway: &Gateway, caller: &TenantCaller, wanted: Erase) -> Result<Progress, Refusal> {
    let progress = erase_wanted(gateway, caller, wanted).await;
    if progress.as_ref().map_or(0, |progress| progress.erased) == 0 {
        // It may have taken long, and nothing was committed that would have looked whether the credential still works,
        // as far as is known. What is known to be erased is told all the same.
        caller.check(gateway)?;
    }
    progress
}

async fn erase_wanted(gateway: &Gateway, caller: &TenantCaller, wanted: Erase) -> Result<Progress, Refusal> {
    // No agent has ever done anything in it. A tenant that was deleted has a ledger all the same, which may have to be erased.
    if caller.tenant() == TenantId::SYSTEM {
        return Err(Refusal::not_found("tenant", &caller.tenant().to_string()));
    }
    let (choice, seqs) = wanted.resolve(gateway, caller).await?;
    let mut taking = Taking::new(gateway, caller.tenant(), caller.holder().by(), &choice);
    let began = Instant::now();
    let is_enough = |_: &Taking<'_>| began.elapsed() >= TIME_MAX;
    let taken = take(gateway, &mut taking, &choice, seqs.clone(), is_enough).await;
    let reached = match (taken, taking.reached) {
        (Ok(next), _) => Reached {
            next,
            waiting: taking.waiting,
        },
        // What is gone is gone, so this is no refusal. Whoever goes on is told of what is in the way if it still is.
        (Err(refusal), Some(reached)) => {
            let (tenant, code) = (caller.tenant(), refusal.code().as_str());
            tracing::warn!(%tenant, code, "erasing in the ledger of {tenant} stopped early");
            reached
        }
        (Err(refusal), None) => return Err(refusal),
    };
    let done = reached.next > *seqs.end();
    Ok(Progress {
        erased: taking.erased,
        waiting: reached.waiting,
        done,
        next_seq: (!done).then_some(reached.next),
    })
}

/// Erases what is chosen among these entries, a page of them at least, until there are no more or it is enough. Returns
/// the entry to go on with.
async fn take(
    gateway: &Gateway,
    taking: &mut Taking<'_>,
    choice: &Choice,
    seqs: RangeInclusive<u64>,
    is_enough: impl Fn(&Taking<'_>) -> bool,
) -> Result<u64, Refusal> {
    let tenant = taking.tenant;
    let mut next = *seqs.start();
    while next <= *seqs.end() {
        let permit = gateway.ledger_chunks.acquire_for_part(taking.turn()).await;
        let page = gateway.store.entries(tenant, next, PAGE).await?;
        let Some(last) = page.last() else { break };
        next = last.seq + 1;
        let page = page.into_iter().filter(|entry| entry.seq <= *seqs.end());
        for entry in page {
            if choice.takes(&*gateway.store, tenant, &entry).await? {
                taking.add(entry).await?;
            }
        }
        drop(permit);
        if taking.len() >= BATCH_MAX {
            taking.commit(next).await?;
        }
        if is_enough(taking) {
            break;
        }
    }
    taking.commit(next).await?;
    Ok(next)
}

/// When it was so many days of 24 hours ago.
fn days_ago(now: Timestamp, days: NonZeroU32) -> Timestamp {
    now.plus_millis(-DAY_MS * i64::from(days.get()))
}

impl Erase {
    /// What is chosen, and among which entries.
    async fn resolve(
        self,
        gateway: &Gateway,
        caller: &TenantCaller,
    ) -> Result<(Choice, RangeInclusive<u64>), Refusal> {
        let store = &*gateway.store;
        let head = store.head(caller.tenant()).await?.seq;
        let first = self.from_seq.map_or(1, NonZeroU64::get);
        match (self.seq, self.agent, self.user, self.older_than_days) {
            (Some(seq), None, None, None) => {
                let seq = seq.get();
                let entry = store.entries(caller.tenant(), seq, 1).await?;
                let entry = entry.into_iter().find(|entry| entry.seq == seq);
                let entry = entry.ok_or_else(|| Refusal::not_found("entry", &seq.to_string()))?;
                choose::check_kind(&entry.kind)?;
                Ok((Choice::Entry, seq..=seq))
            }
            (None, Some(agent), None, None) => Ok((Choice::Agent(agent), first..=head)),
            (None, None, Some(user), None) => Ok((Choice::User(user), first..=head)),
            (None, None, None, Some(days)) => {
                let before = days_ago(gateway.clock.now(), days);
                let end = first_since(store, caller.tenant(), head, before).await?;
                Ok((Choice::OlderThan(days.get()), first..=end - 1))
            }
            _ => Err(Refusal::new(
                Code::InvalidField,
                "say what to erase with one of `seq`, `agent`, `user` and `older_than_days`",
            )),
        }
    }
}
