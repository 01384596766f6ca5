//! The `geminga` command line: a demonstration, an embedded broker, and tools to produce, consume, read and measure.
//!
//! No protocol here: everything that Pulsar decides is in the core, everything that a socket does in `geminga`.

#![expect(clippy::print_stdout, reason = "a command line talks on stdout")]

mod args;
mod broker;
mod connect;
mod consume;
mod demo;
mod exit;
mod interrupt;
mod output;
mod pauses;
mod perf;
mod produce;
mod progress;
mod read;
mod stats;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Arguments, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = start_logs(arguments.verbose).and_then(|()| run(arguments));
    let exit = match outcome {
        Ok(exit) => exit,
        Err(error) => {
            let exit = Exit::of(&error);
            if exit != Exit::Done {
                eprintln!("error: {error:#}");
            }
            exit
        }
    };
    ExitCode::from(exit as u8)
}

/// One thread: the least CPU time per message, and all that one connection can use.
fn run(arguments: Arguments) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let quiet = arguments.quiet;
    let exit = runtime.block_on(async {
        match arguments.command {
            Command::Demo(args) => demo::run(args, quiet).await,
            Command::Broker(args) => broker::run(args, quiet).await,
            Command::Produce(args) => produce::run(args, quiet).await,
            Command::Consume(args) => consume::run(args, quiet).await,
            Command::Read(args) => read::run(args, quiet).await,
            Command::Perf(args) => perf::run(args, quiet).await,
            Command::PerfPeer(args) => perf::run_peer(args).await,
        }
    });
    // A read of stdin cannot be cancelled; waiting for it would keep an interrupted command alive.
    runtime.shutdown_background();
    exit
}

/// Logs go to stderr, and only those that the user asks for: errors and pauses are told without them.
fn start_logs(verbose: u8) -> Result<()> {
    let level = ["error", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = match std::env::var("RUST_LOG") {
        Ok(rules) if !rules.is_empty() => {
            EnvFilter::try_new(&rules).with_context(|| format!("RUST_LOG is {rules:?}"))?
        }
        _ => EnvFilter::new(level),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
