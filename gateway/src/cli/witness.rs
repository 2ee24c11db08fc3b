//! `countersign witness`: cosigns the checkpoints of the logs that it is told of, until it is told to stop.

use super::clock;
use super::stopping::{GRACE, Stops, out_of_patience};
use crate::config::{RunWitness, Several};
use crate::connections;
use crate::listeners;
use crate::signing;
use crate::witness::{Folder, Witness};
use anyhow::{Context, ensure};
use axum::Router;
use ledger::SignatureKind;
use model::{Clock, SystemClock, SystemEntropy};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves until SIGINT or SIGTERM; what has begun by then is still answered.
pub async fn run(options: RunWitness) -> anyhow::Result<()> {
    clock::check(SystemClock.now())?;
    let folder = Folder::open(&options.folder)?;
    let key_file = options.key_file.unwrap_or_else(|| options.folder.join("key"));
    let had_key = key_file.exists();
    let keys = signing::witness_keys(&key_file, options.name, &SystemEntropy)?;
    if had_key && !folder.has_cosigned() {
        tell_of_empty(&options.folder);
    }
    let logs = Several::flatten(options.logs);
    if let Some(log) = logs.iter().find(|log| log.kind() != SignatureKind::Note) {
        ensure!(
            false,
            "`{}` is the key of a witness; name the keys of logs",
            log.label()
        );
    }
    // What blocks comes before, such as a key from a pipe: until then a signal ends the process.
    let stops = Stops::listen()?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "witness key: {}", keys.signing.verifier())?;
    let witness = Witness::new(keys, logs, Arc::new(SystemClock), folder);
    tracing::info!(%address, "listening on {address}");
    serve(listener, Arc::new(witness).router(), stops).await;
    tracing::info!("stopped");
    Ok(())
}

/// Says so of a folder that may not be the one that the key was used with, as where its volume is not mounted. A key
/// that was made beforehand looks the same, so it is no reason to refuse.
fn tell_of_empty(folder: &Path) {
    let folder = folder.display();
    tracing::warn!(
        %folder,
        "the key of this witness was there already, and `{folder}` holds nothing that it has cosigned: if it has cosigned anything before, stop it and give it its folder back (its volume may not be mounted), because it would cosign any past of a ledger now; of a new witness this is to be expected"
    );
}

async fn serve(listener: TcpListener, router: Router, mut stops: Stops) {
    let (stopping, told) = watch::channel(false);
    let stop = async move {
        stops.recv().await;
        stopping.send_replace(true);
    };
    let serving = connections::serve_router(listeners::with_options(listener), router, stop);
    tokio::select! {
        () = serving => {}
        () = out_of_patience(told) => tracing::warn!("some requests did not finish within {GRACE:?} and get no answer"),
    }
}
