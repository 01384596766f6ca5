//! `cargo xtask fuzz`: every fuzz target in turn, for a number of seconds each.

use crate::machine;
use crate::repo;
use crate::shell::Shell;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these targets [default: all in fuzz/fuzz_targets]
    targets: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let known = targets()?;
    let unknown = options.targets.iter().find(|name| !known.contains(name));
    ensure!(
        unknown.is_none(),
        "no fuzz target is named {}; there are {}",
        unknown.map_or("", String::as_str),
        known.join(", ")
    );
    let cargo_fuzz = machine::cargo_tool("cargo-fuzz")?;
    for target in known.iter().filter(|name| options.targets.is_empty() || options.targets.contains(name)) {
        // What libFuzzer finds goes into the first folder; the committed corpus is only read.
        let found = repo::path(".lab/fuzz").join(target);
        std::fs::create_dir_all(&found)?;
        // The code under test has no unsafe blocks: sanitizers would find nothing and need a nightly compiler.
        Shell::new(&cargo_fuzz)
            .args(["run", "--sanitizer", "none", target])
            .args([found, repo::path("fuzz/corpus").join(target)])
            .args([
                "--",
                "-timeout=10",
                "-print_final_stats=1",
                &format!("-max_total_time={}", options.seconds),
            ])
            .within(Duration::from_secs(options.seconds + 30 * 60))
            .run()?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let entries = std::fs::read_dir(repo::path("fuzz/fuzz_targets")).context("fuzz/fuzz_targets")?;
    let files = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let mut names: Vec<String> =
        files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}
