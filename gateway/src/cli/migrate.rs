//! `countersign migrate`: brings the schema of a database up to date, for those who let gateways run as a role that may not.

use crate::config::Database;
use crate::stores;
use std::io::Write;

/// Migrates, and says so.
pub async fn run(database: Database) -> anyhow::Result<()> {
    stores::migrate(&database.url).await?;
    writeln!(std::io::stdout(), "the schema is up to date")?;
    Ok(())
}
