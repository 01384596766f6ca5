//! `cargo xtask bench`: our client beside the others on one real broker.
//!
//! The others are built by hand, as tests/bench/README.md says; `BENCH_BUILD` names the folder they are in.

use crate::held_lab::{self, HeldLab};
use crate::repo::Workspace;
use crate::shell::Shell;
use anyhow::Result;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments of tests/bench/run_all.py, such as --rounds 5 --cases "produce 100 B" --peers new,cpp
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    Shell::cargo(["build", "--release", "-p", "geminga-cli"]).run()?;
    let geminga = Workspace::read()?.target_directory().join("release/geminga");
    let lab = HeldLab::start(&["standalone"])?;
    let broker = lab.environment();
    Shell::new("python3")
        .args(["tests/bench/run_all.py"])
        .args(&options.arguments)
        .env("BENCH_NEW_PEER", format!("{} perf-peer", geminga.display()))
        .env("BENCH_URL", held_lab::variable(broker, "GEMINGA_BROKER_URL")?)
        .env("BENCH_ADMIN", held_lab::variable(broker, "GEMINGA_ADMIN_URL")?)
        .env("BENCH_BROKER_PID", held_lab::variable(broker, "GEMINGA_BROKER_PID")?)
        .within(Duration::from_secs(6 * 60 * 60))
        .run()
}
