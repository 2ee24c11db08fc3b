//! `countersign check-config`: whether `serve` would start with these settings and find what they name, without serving.
//!
//! It opens the database as `serve` does, which brings its schema up to date, and compiles every tenant's policies.
//! What is odd about them, which `serve` says in its log, goes to standard error. It does not listen, because a
//! gateway may be serving at the same place meanwhile, and makes no signing key.

use super::{clock, operator_key};
use crate::compiling;
use crate::config::Serve;
use crate::directory::issuers;
use crate::signing::{self, Keyring};
use crate::start;
use crate::stores;
use anyhow::{Context, anyhow};
use engine::Snapshot;
use model::{Clock, SystemClock, SystemEntropy};
use policy::Compiler;
use std::io::Write;
use std::sync::Arc;

/// Checks, and says what was found.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    clock::check(SystemClock.now())?;
    let base = super::serve::base_policies(options.policies.as_deref())?;
    policy::probe(&base)?;
    if let Some(key) = &options.operator_key {
        operator_key::check(key)?;
    }
    super::serve::witnesses(&options)?;
    if let Some(folder) = &options.issuer_keys {
        issuers::check_folder(folder)
            .with_context(|| format!("`--issuer-keys` cannot be `{}`", folder.display()))?;
    }
    // As in `serve`: no earlier version takes a database that was brought up to date.
    signing::check_place(&options.signing)?;
    let keys = Keyring::find(&options.signing, &options.database.url)?;
    let store = stores::open(&options.database.url).await?;
    if keys.is_none() {
        let known_name = signing::known_names(&*store).await?.into_iter().next();
        Keyring::check_new(
            &options.signing,
            &options.database.url,
            known_name,
            &SystemEntropy,
        )?;
    }
    let loaded = start::load_snapshot(&*store, Arc::new(Compiler::new(base))).await;
    store.close().await;
    let snapshot = loaded?.snapshot;
    if let Some(keys) = keys {
        let unended = keys.check_unended(&snapshot, SystemClock.now());
        unended.map_err(|refusal| anyhow!(refusal.detail().to_owned()))?;
    }
    tell_oddities(&snapshot)?;
    let tenants = snapshot.tenants().count() - 1;
    let tenants = match tenants {
        1 => "1 tenant".to_owned(),
        more => format!("{more} tenants"),
    };
    writeln!(
        std::io::stdout(),
        "the configuration is good: policies hold, the database can be used, {tenants}"
    )?;
    Ok(())
}

/// Says what is odd about policies that are good for a start.
fn tell_oddities(snapshot: &Snapshot) -> std::io::Result<()> {
    let mut err = std::io::stderr().lock();
    let of_tenants = snapshot
        .tenants()
        .flat_map(|(_, tenant)| compiling::oddities(tenant));
    for oddity in of_tenants.chain(compiling::base_oddities(snapshot)) {
        match oddity.more() {
            0 => writeln!(err, "{oddity}")?,
            more => writeln!(err, "{oddity} ({more} more like it)")?,
        }
    }
    Ok(())
}
