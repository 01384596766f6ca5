//! Every command of the project: `cargo xtask test` on a fresh clone sets up what it needs and runs everything.
//!
//! This crate depends on no other crate of the workspace, so it still runs (and can say why) when one of them does
//! not compile. What it needs from them, such as the lab of real brokers, it runs as a program.

#![expect(clippy::print_stdout, reason = "a command line talks on stdout")]

mod bench;
mod core_rules;
mod fuzz;
mod held_lab;
mod machine;
mod parts;
mod proto;
mod python_package;
mod pythons;
mod repo;
mod report;
mod shell;
mod simulation;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every command of the project", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up what the tests need inside the repository, then run all of them in parts
    Test(test::Options),
    /// Everything of `test`, nothing skipped, and the slower checks that only matter before a merge
    Ci,
    /// Write core/src/wire/proto.rs from proto/pulsar.proto
    Proto {
        /// Only compare the two
        #[arg(long)]
        check: bool,
    },
    /// A real Apache Pulsar on this machine (`cargo xtask lab help`)
    #[command(disable_help_flag = true)]
    Lab {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the simulation: seeded faults against the client core
    Sim(simulation::Options),
    /// Fuzz the decoders and the input sequences, each target in turn
    Fuzz(fuzz::Options),
    /// Compare with other Pulsar clients, side by side on a real broker
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Ci => test::run(&test::Options::everything()),
        Command::Proto { check } => done(proto::run(check)),
        Command::Lab { arguments } => done(held_lab::command(&arguments).run()),
        Command::Sim(options) => done(simulation::run(&options)),
        Command::Fuzz(options) => done(fuzz::run(&options)),
        Command::Bench(options) => done(bench::run(&options)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A command that either works or says why not.
fn done(outcome: anyhow::Result<()>) -> anyhow::Result<bool> {
    outcome.map(|()| true)
}
