//! `cargo xtask sim`: how many seeds, or which one, the simulation runs.

use crate::shell::Shell;
use anyhow::Result;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many seeds to run, from 0 on
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Run only this seed and print what happens in it
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let command = Shell::cargo(["test", "--release", "-p", "geminga-tests", "--test", "sim"])
        .env("GEMINGA_SIM_SEEDS", options.seeds.to_string())
        .within(Duration::from_secs(4 * 60 * 60));
    match options.seed {
        Some(seed) => command.env("GEMINGA_SIM_SEED", seed.to_string()).args(["--", "--nocapture"]).run(),
        None => command.run(),
    }
}
