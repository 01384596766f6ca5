//! Every command of the project: `cargo xtask test` on a fresh clone sets up what it needs and runs everything.
//!
//! This crate depends on no other crate of the workspace, so it still runs (and can say why) when one of them does
//! not compile. What it needs from them, such as the lab of real brokers, it runs as a program.

#![expect(clippy::print_stdout, reason = "a command line talks on stdout")]

mod machine;
mod parts;
mod repo;
mod report;
mod shell;
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
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
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
