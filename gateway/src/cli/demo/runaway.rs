//! `countersign demo runaway`: an agent that calls a paid model over and over, first unguarded and then stopped by a
//! budget, a rate limit, a quota and a policy.
//!
//! - `scene`: a tenant with an agent, spoken to as callers do;
//! - [`guards`]: what stops the agent, and how many calls that has to be.
//!
//! Gateway, store and ledger are real: a SQLite file of its own, gone afterwards. What is printed of budgets is what
//! their balances say, and in the end every ledger is verified and every balance counted again. Only the model that is
//! called is none: a call takes its time, and that is all.

pub mod guards;
mod scene;

use crate::app::App;
use crate::cli::budgets;
use crate::cli::operator_key;
use crate::config::Signing;
use crate::gateway::{Gateway, Options};
use crate::signing::Keyring;
use crate::start::{self, Ingredients};
use crate::stores;
use anyhow::{Context, bail, ensure};
use guards::{GUARDS, Guard};
use model::{Secret, SecretKind, SystemClock, SystemEntropy};
use policy::BasePolicies;
use scene::{Answer, Scene};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// What a call costs, in microcents: one cent.
pub const CALL_MICROCENTS: i64 = 1_000_000;
/// How long a call takes.
pub const CALL_TAKES: Duration = Duration::from_millis(50);
/// How long the agent goes on when nothing stops it, in milliseconds.
pub const PATIENCE_MS: i64 = 30_000;

/// What became of the agent under a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// What stood in its way.
    pub guard: &'static str,
    /// How many calls it made.
    pub calls: i64,
    /// What they cost, in microcents: by the balances where there is a budget.
    pub spent: i64,
    /// How long it went on, in milliseconds.
    pub took_ms: i64,
    /// The reason code that stopped it; none if nothing did.
    pub stopped_by: Option<String>,
}

/// Plays every act, prints a table, and fails if an agent was not stopped where it has to be.
pub async fn run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("there is no folder for temporary files")?;
    let url = format!("sqlite:{}", folder.path().join("demo.db").display());
    let store = stores::open(&url).await?;
    let signing = Signing {
        key_file: None,
        key: None,
        log_name: None,
    };
    let ingredients = Ingredients {
        store: Arc::clone(&store),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        signing_key: Keyring::make(&signing, &url, None, &SystemEntropy)?.signing,
        base_policies: BasePolicies::shipped(),
        base_file: None,
        options: Options::default(),
    };
    let (gateway, _) = start::start(ingredients).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "An agent loops over calls of $0.01 that take {} ms each, for {} s.\n",
        CALL_TAKES.as_millis(),
        PATIENCE_MS / 1_000
    )?;
    writeln!(
        out,
        "{:<34} {:>5} {:>9} {:>9}  stopped by",
        "guard", "calls", "spent", "after"
    )?;
    let acts = play(
        &gateway,
        async || tokio::time::sleep(CALL_TAKES).await,
        |act| writeln!(out, "{act}").context("the table cannot be printed"),
    );
    let acts = acts.await?;
    let found = budgets::verify(&*store).await?;
    ensure!(found.mismatches.is_empty(), "{}", found.mismatches.join("; "));
    writeln!(
        out,
        "\nThe ledgers of all {} tenants verify, and {} budgets are what they come to.",
        acts.len(),
        found.budgets
    )?;
    Ok(())
}

/// Plays every act on this gateway. `work` is what the agent does when it is allowed to, and `tell` is told of each act.
pub async fn play(
    gateway: &Arc<Gateway>,
    work: impl AsyncFn(),
    mut tell: impl FnMut(&Act) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Act>> {
    let operator = Secret::mint(SecretKind::ApiKey, &*gateway.entropy);
    operator_key::install(gateway, operator.digest(), "demo runaway").await?;
    let app = App::new(gateway);
    let mut acts = Vec::with_capacity(GUARDS.len());
    for guard in &GUARDS {
        let scene = Scene::set(&app, operator.reveal(), guard).await?;
        let act = run_away(gateway, &scene, guard, &work).await?;
        scene.verify().await?;
        tell(&act)?;
        guard.check(&act)?;
        acts.push(act);
    }
    Ok(acts)
}

/// Lets the agent go until something stops it, or its patience is over.
async fn run_away(
    gateway: &Gateway,
    scene: &Scene<'_>,
    guard: &Guard,
    work: &impl AsyncFn(),
) -> anyhow::Result<Act> {
    let began = gateway.clock.now().millis();
    let elapsed = || gateway.clock.now().millis() - began;
    let mut calls = 0;
    let mut stopped_by = None;
    while stopped_by.is_none() && elapsed() < PATIENCE_MS {
        match scene.ask(calls).await? {
            Answer::Allowed { decision, action } => {
                work().await;
                scene.report(&decision, &action).await?;
                calls += 1;
            }
            Answer::Stopped(why) => stopped_by = Some(why),
        }
    }
    let took_ms = elapsed();
    let spent = match scene.balance().await? {
        Some(balance) if balance.spent + balance.remaining != balance.allocated => {
            bail!("the balance does not add up: {balance:?}")
        }
        Some(balance) => balance.spent,
        None => calls * CALL_MICROCENTS,
    };
    Ok(Act {
        guard: guard.name,
        calls,
        spent,
        took_ms,
        stopped_by,
    })
}

/// A row of the table.
impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dollars = format!(
            "${}.{:04}",
            self.spent / 100_000_000,
            self.spent % 100_000_000 / 10_000
        );
        let seconds = format!("{}.{:02} s", self.took_ms / 1_000, self.took_ms % 1_000 / 10);
        let stopped_by = self.stopped_by.as_deref().unwrap_or("nothing");
        let Self { guard, calls, .. } = self;
        write!(
            f,
            "{guard:<34} {calls:>5} {dollars:>9} {seconds:>9}  {stopped_by}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_dollars_to_the_hundredth_of_a_cent() {
        let act = Act {
            guard: "a guard",
            calls: 100,
            spent: 100_000_000,
            took_ms: 5_049,
            stopped_by: None,
        };
        assert_eq!(
            act.to_string(),
            "a guard                              100   $1.0000    5.04 s  nothing"
        );
    }
}
