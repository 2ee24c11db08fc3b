//! The program `countersign`: reads the command line and runs the command.

use clap::Parser;
use gateway::cli;
use gateway::config::{Command, CommandLine, Serve};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// An ask is many small allocations, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Serve(options) => serve(options),
        Command::Verify(options) => cli::verify::run(&options.file),
    }
}

fn serve(options: Serve) -> ExitCode {
    let outcome = start_logging(&options).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(cli::serve::run(options))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may not be running yet, so this goes to the terminal directly.
            eprintln!("countersign: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_logging(options: &Serve) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&options.log)?;
    // Colours are for people: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr);
    if options.log_json {
        lines.json().init();
    } else {
        lines.init();
    }
    Ok(())
}
