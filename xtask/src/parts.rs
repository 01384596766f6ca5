//! The parts of `cargo xtask test`: what each is called, what it needs, and what it runs.
//!
//! A part exists when what it tests exists: a new test program named `real_…` is a new part without a change here.

use crate::machine::{self, Need};
use crate::repo::{self, Workspace};
use crate::shell::Shell;
use anyhow::{Result, bail};

/// Crates that would give the core a socket, a clock, a thread pool, a random source or a runtime of its own.
const FORBIDDEN_IN_CORE: &[&str] = &[
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

/// How many seeds of the simulation the test command runs; the nightly command runs many more.
const SIMULATION_SEEDS: &str = "500";

type Action = Box<dyn Fn() -> Result<()>>;

/// One part of the tests.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) needs: Vec<Need>,
    action: Action,
}

impl Part {
    fn new(name: &str, about: &str, needs: &[Need], action: impl Fn() -> Result<()> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            needs: needs.to_vec(),
            action: Box::new(action),
        }
    }

    pub(crate) fn run(&self) -> Result<()> {
        (self.action)()
    }
}

/// Every part that this checkout has, cheapest first.
pub(crate) fn all(workspace: &Workspace) -> Vec<Part> {
    let mut parts = vec![
        Part::new("fmt", "the source is formatted", &[], || Shell::cargo(["fmt", "--all", "--check"]).run()),
        Part::new(
            "core-rules",
            "the core has no clock, socket or runtime and builds for wasm32",
            &[Need::Wasm],
            core,
        ),
        Part::new("clippy", "no lint warns", &[], || {
            Shell::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()
        }),
        Part::new("tests", "units, scenarios and doc tests of every crate", &[], || {
            Shell::cargo(["test", "--workspace"]).run()
        }),
        Part::new("docs", "the documentation builds without a warning", &[], || {
            Shell::cargo(["doc", "--workspace", "--no-deps", "--lib"])
                .env("RUSTDOCFLAGS", "-D warnings")
                .run()
        }),
    ];
    let targets = workspace.test_targets();
    if targets.iter().any(|name| name == "sim") {
        parts.push(Part::new("simulation", "seeded faults against the client core", &[], || {
            Shell::cargo(["test", "--release", "-p", "geminga-tests", "--test", "sim"])
                .env("GEMINGA_SEEDS", SIMULATION_SEEDS)
                .run()
        }));
    }
    if repo::path("cli/src/demo.rs").exists() {
        parts.push(Part::new("demo", "the newcomer's first command", &[], || {
            Shell::cargo(["run", "--release", "-p", "geminga-cli", "--", "demo"]).run()
        }));
    }
    if repo::path("tests/python").is_dir() {
        let geminga = workspace.target_directory().join("debug/geminga");
        let about = "Apache Pulsar's Python client against the embedded broker";
        parts.push(Part::new("python", about, &[Need::Python], move || {
            Shell::cargo(["build", "-p", "geminga-cli"]).run()?;
            Shell::new(machine::python())
                .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python"])
                .env("GEMINGA_CLI", &geminga)
                .run()
        }));
    }
    parts
}

fn core() -> Result<()> {
    let tree =
        ["tree", "-p", "geminga-core", "-e", "normal", "--prefix", "none", "--all-features", "-f", "{p}"];
    let tree = Shell::cargo(tree).output()?;
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let guilty: Vec<&str> = names.filter(|name| FORBIDDEN_IN_CORE.contains(name)).collect();
    if !guilty.is_empty() {
        bail!("geminga-core depends on {}", guilty.join(", "));
    }
    // zstd is C code; everything else must build for the browser.
    let features = ["--no-default-features", "--features", "lz4,zlib,snappy"];
    let build = ["check", "-p", "geminga-core", "--target", "wasm32-unknown-unknown"];
    Shell::cargo(build).args(features).run()
}
