//! `cargo xtask bench`: our client beside the others on one real broker.

use crate::held_lab::HeldLab;
use crate::repo::Workspace;
use crate::shell::Shell;
use anyhow::{Context, Result};
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
    let variable = |name: &str| {
        let found = lab.environment().iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone()).with_context(|| format!("the lab named no {name}"))
    };
    Shell::new("python3")
        .args(["tests/bench/run_all.py"])
        .args(&options.arguments)
        .env("BENCH_GEMINGA", &geminga)
        .env("BENCH_URL", variable("GEMINGA_BROKER_URL")?)
        .env("BENCH_ADMIN", variable("GEMINGA_ADMIN_URL")?)
        .within(Duration::from_secs(6 * 60 * 60))
        .run()
}
