//! `countersign serve`: opens the store, starts the gateway, and serves until it is told to stop.

use crate::app::App;
use crate::base::{self, BaseFileError, Reloaded};
use crate::changes::By;
use crate::cli::operator_key::OperatorKeyError;
use crate::cli::stopping::{GRACE, Stops, out_of_patience};
use crate::cli::{clock, demo, operator_key};
use crate::config::{Serve, Several};
use crate::cosigning::{Witness, WitnessOptions};
use crate::gateway::{Gateway, Options};
use crate::http::arrivals::Arrivals;
use crate::http::{Code, Refusal};
use crate::listeners::{Address, BoundListener, ReservedAddress};
use crate::sequencer::Ended;
use crate::signing::{self, Keyring};
use crate::start::{self, Ingredients};
use crate::stores::{self, Claimant};
use anyhow::{Context, anyhow, ensure};
use futures_util::future::join_all;
use model::{Clock, SystemClock, SystemEntropy};
use policy::BasePolicies;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::Store;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the end of the process waits for the database to be closed: what is in a write-ahead log that was deleted
/// is moved by that, and by nothing else.
const CLOSING_MAX: Duration = Duration::from_mins(1);

/// How long a start that is given up may take to end.
const GIVING_UP_MAX: Duration = Duration::from_millis(500);

/// How long the gateway waits at its start for witnesses to say what they have seen. Then it serves, and goes on asking.
const WITNESSES_WITHIN: Duration = Duration::from_secs(10);

/// Serves until SIGINT or SIGTERM; what was accepted by then is still answered. SIGHUP reloads the base policies.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    // From here on none of these ends the process.
    let hangups = signal(SignalKind::hangup())?;
    let mut stops = Stops::listen()?;
    let Some(opened) = open_unless_stopped(options, hangups, &mut stops).await? else {
        tracing::info!("stopped before it listened");
        return Ok(());
    };
    let addresses = opened.listeners.iter().map(BoundListener::address);
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    tokio::select! {
        let_in = opened.let_in(&addresses) => let_in?,
        () = stops.recv() => {
            tracing::info!("stopped before it let anybody in");
            return Ok(());
        }
    }
    for address in addresses {
        tracing::info!(%address, "listening on {address}");
    }
    let Opened {
        listeners,
        gateway,
        sequencer,
        store,
        ..
    } = opened;
    serve(listeners, gateway, sequencer, stops).await?;
    if timeout(CLOSING_MAX, store.close()).await.is_err() {
        tracing::warn!("the database was not closed within {CLOSING_MAX:?}, and is left as by a crash");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Opens, unless told to stop before that is done: then what was begun is left as it would be by a crash, which the
/// next start takes up.
///
/// It is done on a thread of its own and on none of the runtime's, which bring the signals: it may wait there for a key
/// from a pipe, or for thousands of policies.
async fn open_unless_stopped(
    options: Serve,
    hangups: Signal,
    stops: &mut Stops,
) -> anyhow::Result<Option<Opened>> {
    let (go_on, given_up) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let mut opening = spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                opened = open(options, hangups) => opened.map(Some),
                _ = given_up => Ok(None),
            }
        })
    });
    tokio::select! {
        opened = &mut opening => opened.context("the start ended in a panic")?,
        () = stops.recv() => {
            drop(go_on);
            // Where it waits for something else than its thread it ends at once, and removes its sockets.
            drop(timeout(GIVING_UP_MAX, opening).await);
            Ok(None)
        }
    }
}

/// A gateway with its listeners bound, before anybody has been shown a key to it.
struct Opened {
    listeners: Vec<BoundListener>,
    gateway: Arc<Gateway>,
    sequencer: Ended,
    store: Arc<dyn Store>,
    operator_key: Option<String>,
    demo: bool,
    database_url: String,
}

impl Opened {
    /// Lets somebody in: with the operator key, and the demo's. A ledger that a witness has found to have forked takes
    /// none, and the gateway says so to whoever asks.
    async fn let_in(&self, addresses: &[Address]) -> anyhow::Result<()> {
        let is_whole = || self.gateway.cosigning.check().is_ok();
        if !is_whole() {
            return Ok(());
        }
        match self.install_keys(addresses).await {
            // It was found meanwhile.
            Err(_) if !is_whole() => Ok(()),
            installed => installed,
        }
    }

    async fn install_keys(&self, addresses: &[Address]) -> anyhow::Result<()> {
        let show_key = |key: &str| show(&format!("operator key (shown once, keep it safe): {key}"));
        let ensured = operator_key::ensure(&self.gateway, self.operator_key.as_deref(), show_key).await;
        ensured.map_err(|error| match error {
            OperatorKeyError::NotRecorded(refusal) => {
                told(&refusal, &self.database_url).context("the operator key could not be recorded")
            }
            error => error.into(),
        })?;
        if let Some(address) = addresses.first().filter(|_| self.demo) {
            let instructions = demo::set_up(&self.gateway, address).await;
            show(&instructions.map_err(|refusal| told(&refusal, &self.database_url))?)?;
        }
        Ok(())
    }
}

/// What a start needs of this machine.
struct Gathered {
    reserved: Vec<ReservedAddress>,
    witnesses: WitnessOptions,
    base_policies: BasePolicies,
    /// Those that are there already.
    keys: Option<Keyring>,
}

/// Finds out what can go wrong on this machine, before anything is changed that others go by: no earlier version takes
/// a database that was brought up to date, and a signing key that has ended stays so.
fn gather(options: &Serve) -> anyhow::Result<Gathered> {
    clock::check(SystemClock.now())?;
    let witnesses = witnesses(options)?;
    if let Some(key) = &options.operator_key {
        operator_key::check(key)?;
    }
    let base_policies = base_policies(options.policies.as_deref())?;
    signing::check_place(&options.signing)?;
    let keys = Keyring::find(&options.signing, &options.database.url)?;
    let reserved = ReservedAddress::take_all(&Several::flatten(options.listen.clone()))?;
    Ok(Gathered {
        reserved,
        witnesses,
        base_policies,
        keys,
    })
}

/// Everything up to the listeners. It may be dropped halfway.
async fn open(options: Serve, hangups: Signal) -> anyhow::Result<Opened> {
    let gathered = gather(&options)?;
    let store = stores::open(&options.database.url).await?;
    // Before anything is said of what is there, or made in it. A copy that goes on may have put all of it there, and
    // find out that it has to be removed.
    let claim = stores::claim(&options.database.url, Claimant::Gateway).await?;
    let keys = keyring(&*store, gathered.keys, &options).await?;
    let ingredients = Ingredients {
        store: Arc::clone(&store),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        signing_key: Arc::clone(&keys.signing),
        base_policies: gathered.base_policies,
        base_file: options.policies,
        options: Options {
            body_bytes_max: options.body_bytes_max,
            arrivals: Arrivals::new(options.body_bytes_max),
            directory_bytes_max: options.directory_bytes_max,
            replies_kept: Duration::from_hours(options.replies_kept_hours.into()),
            cvc5: options.cvc5,
            issuer_keys: options.issuer_keys,
            public_url: options.public_url,
            witnesses: gathered.witnesses,
            ..Options::default()
        },
    };
    let (gateway, sequencer) = start::start(ingredients).await?;
    let told = |refusal: Refusal| told(&refusal, &options.database.url);
    gateway.record_base().await.map_err(told)?;
    gateway.publish_keys(&keys).await.map_err(told)?;
    // The system tenant has its first entries, so from here on nobody copies into this.
    if let Some(claim) = claim {
        claim.give_back().await;
    }
    // INVARIANT: whatever a key signs of the ledger that tells of keys has the entry that tells of it. So no checkpoint
    // is handed out or shown to a witness before.
    gateway.cosigning.start();
    // Whoever puts an old copy of the database back is told so before the first answer, if a witness can be reached.
    if timeout(WITNESSES_WITHIN, gateway.cosigning.ask_all())
        .await
        .is_err()
    {
        tracing::warn!("witnesses have not seen all ledgers within {WITNESSES_WITHIN:?}; they are asked on");
    }
    tokio::spawn(reload_at(hangups, Arc::downgrade(&gateway)));
    let listeners = gathered.reserved.into_iter();
    let listeners = listeners.map(|reserved| reserved.listen(options.socket_mode));
    Ok(Opened {
        listeners: listeners.collect::<Result<_, _>>()?,
        gateway,
        sequencer,
        store,
        operator_key: options.operator_key,
        demo: options.demo,
        database_url: options.database.url,
    })
}

/// What is said of a start that is refused something which it has to record or to look up. Where the database cannot be
/// used, the log has the cause.
fn told(refusal: &Refusal, database_url: &str) -> anyhow::Error {
    let error = anyhow!(refusal.detail().to_owned());
    if refusal.code() != Code::LedgerUnavailable {
        return error;
    }
    let database = stores::called(database_url);
    error.context(format!(
        "{database} cannot be used, and the log says why; if it is damaged (on SQLite `PRAGMA integrity_check` finds out), put a backup in its place"
    ))
}

/// The keys to sign with: those that were found, or a new one. Tells of what whoever keeps them may not have meant.
async fn keyring(store: &dyn Store, found: Option<Keyring>, options: &Serve) -> anyhow::Result<Keyring> {
    let known_names = signing::known_names(store).await?;
    start::check_whole(store).await?;
    let old_key = old_key(store, options).await?;
    let keys = match found {
        Some(keys) => keys,
        None => Keyring::make(
            &options.signing,
            &options.database.url,
            known_names.first().cloned(),
            &SystemEntropy,
        )?,
    };
    tell_of_keys(old_key.as_deref(), options);
    tell_of_name(keys.signing.verifier().name(), &known_names);
    Ok(keys)
}

/// The file with the key that an empty database is to be signed with, if it was there before the database.
async fn old_key(store: &dyn Store, options: &Serve) -> anyhow::Result<Option<PathBuf>> {
    let Some(file) = signing::kept_in(&options.signing, &options.database.url)? else {
        return Ok(None);
    };
    Ok(store.revisions().await?.is_empty().then_some(file))
}

/// Says so of a key that was there before the database, whose file may be gone, and of a file that is named and not used.
fn tell_of_keys(old_key: Option<&Path>, options: &Serve) {
    if let Some(file) = old_key {
        let file = file.display();
        tracing::warn!(
            %file,
            "the database is empty, but there is a signing key in `{file}` already: if it has signed a ledger before, that ledger begins anew under its name, which is a fork; stop the gateway, and put the database back or move the key away"
        );
    }
    if let (Some(file), Some(_)) = (&options.signing.key_file, &options.signing.key) {
        let file = file.display();
        tracing::warn!(
            %file,
            "`{file}` is not used as the file of signing keys: the key of `--signing-key` or COUNTERSIGN_SIGNING_KEY takes the place of `--signing-key-file`; leave the file out if that key is the one to sign with (without the key, the ledger is signed with another one)"
        );
    }
}

/// Says so of a key whose name is none that the ledgers are signed under: a witness has seen nothing of them under the
/// new one, and would cosign whatever it is shown first.
fn tell_of_name(name: &str, known_names: &[String]) {
    let is_known = known_names.iter().any(|known| known == name);
    if let Some(known) = known_names.first().filter(|_| !is_known) {
        tracing::warn!(
            name,
            known,
            "the signing key is of the log `{name}`, and the ledgers are signed under `{known}` so far: to witnesses they are new logs now, of which nothing was seen before; unless that is meant, make a key of the same name with `countersign rotate-key`, and start with that one"
        );
    }
}

/// Whom the options name as witnesses.
pub(super) fn witnesses(options: &Serve) -> anyhow::Result<WitnessOptions> {
    // One with two keys, while it replaces one by the other, is one.
    let witnesses = Several::flatten(options.witnesses.clone());
    let distinct: BTreeSet<&str> = witnesses.iter().map(Witness::name).collect();
    let (named, quorum) = (distinct.len(), options.witness_quorum.get());
    ensure!(
        quorum <= named.max(1),
        "the quorum of witnesses is {quorum}, but {named} are named"
    );
    Ok(WitnessOptions {
        witnesses,
        quorum,
        every: Duration::from_secs(options.witness_seconds.get()),
        ..WitnessOptions::default()
    })
}

async fn serve(
    listeners: Vec<BoundListener>,
    gateway: Arc<Gateway>,
    sequencer: Ended,
    mut stops: Stops,
) -> anyhow::Result<()> {
    let app = App::new(&gateway);
    let (live, background) = (Arc::clone(&gateway.live), Arc::clone(&gateway.background));
    let waiters = gateway.approval_waiters.clone();
    drop(gateway);
    let (stopping, told) = watch::channel(false);
    let stop = |mut told: watch::Receiver<bool>| async move {
        // An error means that nobody can say it any more, which is a reason to stop as well.
        let _ = told.wait_for(|stop| *stop).await;
    };
    let serving = listeners
        .into_iter()
        .map(|listener| listener.serve(app.clone(), stop(told.clone())));
    let serving = join_all(serving.collect::<Vec<_>>());
    drop(app);
    tokio::spawn(async move {
        stops.recv().await;
        // A stream has no end of its own, and the server waits for the end of every request.
        live.close();
        // Nor is anybody to wait for people while the others wait for the end.
        waiters.close();
        // The gateway ends with its last handle, and what is done there has one.
        background.stop();
        // Nobody listens only if the server has ended already.
        let _ = stopping.send(true);
    });
    tokio::select! {
        ended = all_ended(serving, sequencer) => ended?,
        () = out_of_patience(told) => tracing::warn!("some requests or jobs did not finish within {GRACE:?}: requests get no answer, and jobs go on after the next start"),
    }
    Ok(())
}

/// Until all listeners have ended and, behind them, the sequencer: it ends with the last handle, which goes with the
/// application or with the job that has one, and records what waits before.
///
/// Where it panics before, this ends at once: no ask can be answered any more, and whoever watches the process starts it anew.
async fn all_ended(serving: impl Future, sequencer: Ended) -> anyhow::Result<()> {
    let serving = async {
        serving.await;
        Ok(())
    };
    let sequencer = async { sequencer.await.context("the sequencer ended in a panic") };
    tokio::try_join!(serving, sequencer)?;
    Ok(())
}

/// The base policies from a file, or those in the program.
pub(super) fn base_policies(file: Option<&Path>) -> Result<BasePolicies, BaseFileError> {
    file.map_or_else(|| Ok(BasePolicies::shipped()), base::read)
}

/// Reloads the base policies at every SIGHUP, as long as there is a gateway. Nobody waits for the outcome: it is logged.
async fn reload_at(mut hangups: Signal, gateway: Weak<Gateway>) {
    while hangups.recv().await.is_some() {
        let Some(gateway) = gateway.upgrade() else { return };
        let turn = gateway.turn_to_reload().await;
        match gateway.reload_base(turn, By::Signal("SIGHUP")).await {
            Ok(Reloaded { before, after }) if before == after => {
                tracing::info!(policies = %after, "the base policies were read again and are the same");
            }
            Ok(Reloaded { before, after }) => {
                tracing::info!(%before, %after, "the base policies were reloaded");
            }
            Err(refusal) => {
                let problem = refusal.to_problem("SIGHUP");
                let (detail, first) = (refusal.detail(), refusal.first_finding());
                let first = first.map_or_else(String::new, |finding| format!(": {finding}"));
                tracing::error!(problem, "the base policies were not reloaded: {detail}{first}");
            }
        }
    }
}

/// Tells the person at the terminal what is told only once.
fn show(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::pending;
    use std::pin::pin;

    #[tokio::test]
    async fn a_sequencer_that_panics_does_not_leave_a_process_that_answers_nobody() {
        let (panicked, sequencer) = oneshot::channel();
        drop(panicked);
        let ended = all_ended(pending::<()>(), sequencer).await;
        assert_eq!(ended.unwrap_err().to_string(), "the sequencer ended in a panic");
    }

    #[tokio::test]
    async fn a_sequencer_that_ends_first_does_not_cut_off_what_is_being_served() {
        let (sequencer_ended, sequencer) = oneshot::channel();
        sequencer_ended.send(()).unwrap();
        let (served, serving) = oneshot::channel();
        let mut ended = pin!(all_ended(serving, sequencer));
        assert!(ended.as_mut().now_or_never().is_none());
        served.send(()).unwrap();
        ended.await.unwrap();
    }
}
