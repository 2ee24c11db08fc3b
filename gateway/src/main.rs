//! The program `countersign`: reads the command line and runs the command.

use anyhow::Context;
use clap::Parser;
use gateway::causes::with_causes;
use gateway::cli;
use gateway::cli::json_lines::WithSources;
use gateway::config::{self, BudgetsCommand, Command, CommandLine, DemoCommand, Logging, PolicyCommand};
use gateway::runtimes;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// SIGXFSZ, on Linux and on macOS: a file would become larger than the process may make it (`ulimit -f`, `LimitFSIZE=`).
const FILE_TOO_LARGE: i32 = 25;

/// An ask is many small allocations, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Serve(options) => {
            start_logging(&options.logging);
            report(block_on(cli::serve::run(options)))
        }
        Command::CheckConfig(options) => report(block_on(cli::check_config::run(options))),
        Command::Migrate(database) => report(block_on(cli::migrate::run(database))),
        Command::Demo(DemoCommand::Runaway) => report(block_on(cli::demo::runaway::run())),
        Command::Budgets(BudgetsCommand::Verify(database)) => report(block_on(cli::budgets::run(database))),
        Command::Copy(options) => report(block_on(cli::copy::run(options))),
        Command::Policy(PolicyCommand::Test(options)) => report(cli::policy_test::run(&options)),
        // In the runtime for its signal handler only: it writes a file.
        Command::RotateKey(options) => report(block_on(async { cli::rotate_key::run(&options) })),
        Command::Verify(options) => cli::verify::run(&options),
        Command::Witness(options) => {
            start_logging(&options.logging);
            report(block_on(cli::witness::run(options)))
        }
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = runtimes::build(&mut Builder::new_multi_thread(), config::workers()?);
    let runtime = runtime.context("the runtime of the program could not be started")?;
    let done = runtime.block_on(async {
        // SIGXFSZ ends a process by default. Tokio's handler stays installed when this is dropped, so the write that is
        // too long fails instead, as on a full disk.
        drop(signal(SignalKind::from_raw(FILE_TOO_LARGE))?);
        command.await
    });
    // Nobody waits for what is still done on threads, such as a question to a witness: what had to end has ended, and
    // the rest may be cut at any time.
    runtime.shutdown_background();
    done
}

fn report(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may not be running, so this goes to the terminal directly. If nobody can read it, the exit code says it.
            let _ = writeln!(std::io::stderr(), "countersign: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn start_logging(options: &Logging) {
    // Colours are for people: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(options.filter.to_env_filter())
        // A line that cannot be written, on a full disk say, is lost. Telling of it in the same place would end whoever
        // has logged it.
        .log_internal_errors(false)
        .with_ansi(colours)
        .with_writer(std::io::stderr);
    if options.json {
        lines.json().map_event_format(WithSources).init();
    } else {
        lines.init();
    }
}
