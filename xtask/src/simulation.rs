//! `cargo xtask sim`: how many seeds, or which one, the simulation runs.

use crate::shell::Shell;
use anyhow::Result;
use std::time::{Duration, Instant};

const TEST: &str = "every_seed_converges_and_nothing_is_lost";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many seeds to run, beside those of tests/sim/seeds.txt; all cores share them
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// How many lines of its history a failure shows [default: 300]
    #[arg(long)]
    trace: Option<u32>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let test = ["test", "--profile", "sim", "-p", "geminga-tests", "--test", "sim"];
    // Apart, since the time that the last line tells is the simulation's and not the compiler's.
    Shell::cargo(test).args(["--no-run"]).run()?;
    let mut command = Shell::cargo(test)
        .args(["--quiet", "--", "--nocapture", "--exact", TEST])
        .env("GEMINGA_SIM_SEEDS", options.seeds.to_string())
        .env("GEMINGA_SIM_FIRST", options.first.to_string())
        .within(Duration::from_secs(4 * 60 * 60));
    if let Some(seed) = options.seed {
        command = command.env("GEMINGA_SIM_SEED", seed.to_string());
    }
    if let Some(lines) = options.trace {
        command = command.env("GEMINGA_SIM_TRACE", lines.to_string());
    }
    let start = Instant::now();
    command.run()?;
    let seeds = options.seed.map_or(options.seeds, |_| 1);
    println!("{seeds} seeds green in {} s", start.elapsed().as_secs());
    Ok(())
}
