//! `countersign rotate-key`: adds a key to the file of signing keys. The gateways that use the file sign with it from their next
//! start on, and publish when the one before has ended.

use crate::config::RotateKey;
use crate::signing;
use anyhow::ensure;
use model::SystemEntropy;
use std::io::Write;

/// Adds the key, and prints its public half.
pub fn run(options: &RotateKey) -> anyhow::Result<()> {
    ensure!(
        options.signing.key.is_none(),
        "the key comes from `--signing-key` or COUNTERSIGN_SIGNING_KEY: write it into a file of mode 0600, run this without it and with `--signing-key-file` and that file, then put the last line of the file in its place, and restart"
    );
    let made = signing::add_key(&options.signing, &options.database.url, &SystemEntropy)?;
    writeln!(
        std::io::stdout(),
        "added {made}; it signs when the gateways that use the file are restarted"
    )?;
    Ok(())
}
