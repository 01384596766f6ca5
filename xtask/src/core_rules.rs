//! What must hold of the core: no clock, random source, thread, socket or runtime, and it builds for the browser.
//!
//! Checked from three sides: its dependencies, its lints (by code that breaks each rule), and another target.

use crate::repo;
use crate::shell::Shell;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// Crates that would give the core a socket, a clock, a thread pool, a random source or a runtime of its own.
const FORBIDDEN: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam-utils",
    "fastrand",
    "getrandom",
    "hyper",
    "instant",
    "jiff",
    "mio",
    "native-tls",
    "num_cpus",
    "openssl",
    "parking_lot",
    "polling",
    "quanta",
    "rand",
    "rand_core",
    "rayon",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-rustls",
    "web-time",
];

/// A line of code for each rule of `core/clippy.toml` that matters most; each must be refused.
const BREACHES: &[&str] = &[
    "pub fn clock() -> u64 { std::time::Instant::now().elapsed().as_secs() }",
    "pub fn calendar() -> bool { std::time::SystemTime::now() > std::time::UNIX_EPOCH }",
    "pub fn order(map: &std::collections::HashMap<u8, u8>) -> usize { map.iter().count() }",
    "pub fn entropy() -> std::collections::hash_map::RandomState { std::collections::hash_map::RandomState::new() }",
    "pub fn thread() { std::thread::spawn(|| ()); }",
    "pub fn socket() -> bool { std::net::TcpStream::connect(\"localhost:1\").is_ok() }",
];

pub(crate) fn check() -> Result<()> {
    dependencies()?;
    lints()?;
    // zstd is C code; everything else must build for the browser.
    let features = ["--no-default-features", "--features", "lz4,zlib,snappy"];
    let build = ["check", "-p", "geminga-core", "--target", "wasm32-unknown-unknown"];
    Shell::cargo(build).args(features).run()
}

fn dependencies() -> Result<()> {
    let tree =
        ["tree", "-p", "geminga-core", "-e", "normal", "--prefix", "none", "--all-features", "-f", "{p}"];
    let tree = Shell::cargo(tree).output()?;
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let guilty: Vec<&str> = names.filter(|name| FORBIDDEN.contains(name)).collect();
    ensure!(guilty.is_empty(), "geminga-core depends on {}", guilty.join(", "));
    Ok(())
}

/// Runs clippy, with the settings of the core, over a crate that breaks the rules.
fn lints() -> Result<()> {
    let probe = probe()?;
    let manifest = probe.join("Cargo.toml");
    let clippy = ["clippy", "--quiet", "--message-format", "short", "--manifest-path"];
    let clippy = Shell::cargo(clippy).args([&manifest]).env("CARGO_TARGET_DIR", probe.join("target"));
    let Err(refusal) = clippy.output() else { bail!("the core's lints refuse nothing") };
    let refusal = refusal.to_string();
    for (index, breach) in BREACHES.iter().enumerate() {
        let place = format!("lib.rs:{}:", index + 1);
        let refused = refusal.lines().any(|line| line.contains(&place) && line.contains("disallowed"));
        ensure!(refused, "the core's lints let this pass: {breach}\n{refusal}");
    }
    Ok(())
}

/// A crate with the workspace's lint table, the core's clippy.toml, and a breach a line.
fn probe() -> Result<PathBuf> {
    let folder = repo::path("target/core-rules-probe");
    std::fs::create_dir_all(folder.join("src"))?;
    let core = std::fs::read_to_string(repo::path("core/Cargo.toml"))?;
    ensure!(core.contains("[lints]\nworkspace = true"), "core/Cargo.toml does not use the workspace's lints");
    let workspace = std::fs::read_to_string(repo::path("Cargo.toml"))?;
    let lints = workspace.find("[workspace.lints").context("Cargo.toml has no lint table")?;
    let profile = workspace.find("[profile").unwrap_or(workspace.len());
    let table = workspace.get(lints..profile).context("the lint table is not before the profiles")?;
    let package = "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    let manifest = format!("{package}\n[lints]\nworkspace = true\n\n[workspace]\n\n{table}");
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    std::fs::write(folder.join("src/lib.rs"), BREACHES.join("\n"))?;
    std::fs::copy(repo::path("core/clippy.toml"), folder.join("clippy.toml"))?;
    Ok(folder)
}
