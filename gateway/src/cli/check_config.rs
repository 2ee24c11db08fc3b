//! `countersign check-config`: whether `serve` would start with these settings, without serving.
//!
//! It opens the database as `serve` does, which brings its schema up to date, and compiles every tenant's policies.

use crate::config::Serve;
use crate::signing::{self, Keyring};
use crate::start;
use crate::stores;
use model::{Secret, SystemEntropy};
use policy::Compiler;
use std::io::Write;
use std::sync::Arc;

/// Checks, and says what was found.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    let base = super::serve::base_policies(options.policies.as_deref())?;
    policy::probe(&base)?;
    if let Some(key) = &options.operator_key {
        Secret::parse(key)?;
    }
    super::serve::witnesses(&options)?;
    let store = stores::open(&options.database.url).await?;
    let known_name = signing::known_name(&*store).await?;
    Keyring::load(
        &options.signing,
        &options.database.url,
        known_name,
        &SystemEntropy,
    )?;
    let snapshot = start::load_snapshot(&*store, Arc::new(Compiler::new(base))).await;
    store.close().await;
    let tenants = snapshot?.tenants().count() - 1;
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
