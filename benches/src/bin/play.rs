//! `play`: the tool calls of a public agent benchmark, played as their agents would, and what the gateway says.
//!
//! Starts a gateway of its own on a temporary SQLite file, or takes a running one. Exit code 1 means that a promise
//! of the base policies is broken or that a ledger does not verify.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use benches::play::play;
use benches::target::TargetOptions;
use clap::Parser;

/// Play AgentDojo's tool calls through a gateway.
#[derive(Debug, Parser)]
struct Options {
    /// The folder with `tools/` and `calls/`.
    #[arg(long, default_value = "../shared/data/agentdojo")]
    data: PathBuf,
    #[command(flatten)]
    target: TargetOptions,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let target = options.target.reach().await?;
    let mut broken = Vec::new();
    for report in play(target.address, &target.operator_key, &options.data).await? {
        println!("{report}\n");
        broken.extend(report.broken);
    }
    for promise in &broken {
        eprintln!("play: {promise}");
    }
    Ok(if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
