//! `play`: the tool calls of a public agent benchmark, played as their agents would, and what the gateway says.
//!
//! Starts a gateway of its own on a temporary SQLite file, or takes a running one. Exit code 1 means that a promise
//! of the base policies is broken or that a ledger does not verify.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use benches::play::play;
use benches::play::rules::{HEADING, compare};
use benches::target::TargetOptions;
use clap::Parser;

/// Play AgentDojo's tool calls through a gateway.
#[derive(Debug, Parser)]
struct Options {
    /// The folder with `tools/` and `calls/`.
    #[arg(long, default_value = "../shared/data/agentdojo")]
    data: PathBuf,
    /// Hold three rules about the source of an ask side by side instead: this folder has the policies about parameters.
    #[arg(long, value_name = "POLICIES", num_args = 0..=1, default_missing_value = "docs/policies")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    target: TargetOptions,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let target = options.target.reach().await?;
    if let Some(policies) = &options.rules {
        println!("{HEADING}");
        for outcome in compare(&target.address, &target.operator_key, &options.data, policies).await? {
            println!("{outcome}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut broken = Vec::new();
    for report in play(&target.address, &target.operator_key, &options.data).await? {
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
