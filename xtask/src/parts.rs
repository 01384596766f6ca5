//! The parts of `cargo xtask test`: what each is called, what it needs, and what it runs.
//!
//! A part exists when what it tests exists: a new test program named `real_…` is a new part without a change here.

use crate::held_lab::{self, HeldLab};
use crate::machine::{self, Need};
use crate::repo::{self, Workspace};
use crate::shell::Shell;
use crate::{core_rules, proto, python_package};
use anyhow::{Context, Result};
use std::time::Duration;

type Action = Box<dyn Fn(&mut Stage) -> Result<()>>;

/// One part of the tests.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) needs: Vec<Need>,
    action: Action,
}

/// What several parts share once the first of them asked for it.
#[derive(Default)]
pub(crate) struct Stage {
    lab: Option<HeldLab>,
}

impl Stage {
    /// A real standalone broker, as the environment variables by which tests find it.
    fn real_broker(&mut self) -> Result<Vec<(String, String)>> {
        let lab = match self.lab.take() {
            Some(lab) => lab,
            None => HeldLab::start(&["standalone"])?,
        };
        Ok(self.lab.insert(lab).environment().to_vec())
    }
}

impl Part {
    fn new(
        name: &str,
        about: &str,
        needs: &[Need],
        action: impl Fn(&mut Stage) -> Result<()> + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            needs: needs.to_vec(),
            action: Box::new(action),
        }
    }

    fn command(name: &str, about: &str, needs: &[Need], command: impl Fn() -> Shell + 'static) -> Self {
        Self::new(name, about, needs, move |_| command().run())
    }

    pub(crate) fn run(&self, stage: &mut Stage) -> Result<()> {
        (self.action)(stage)
    }
}

/// Every part of `cargo xtask test` that this checkout has, cheapest first.
pub(crate) fn test(workspace: &Workspace) -> Vec<Part> {
    let targets = workspace.test_targets();
    let mut parts = vec![
        Part::command("fmt", "the source is formatted", &[], || Shell::cargo(["fmt", "--all", "--check"])),
        Part::command("typos", "words are spelt right", &[Need::Python], || {
            Shell::new(machine::venv("typos"))
        }),
        Part::new("generated", "generated files are what their sources generate", &[], |_| proto::run(true)),
        Part::new(
            "core-rules",
            "the core has no clock, socket or runtime and builds for wasm32",
            &[Need::Wasm],
            |_| core_rules::check(),
        ),
        Part::command("clippy", "no lint warns", &[], || {
            Shell::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
        }),
        Part::command("tests", "units, scenarios and doc tests of every crate", &[], || {
            Shell::cargo(["test", "--workspace", "--no-fail-fast"])
        }),
        Part::command("docs", "the documentation builds without a warning", &[], || {
            Shell::cargo(["doc", "--workspace", "--no-deps", "--lib"]).env("RUSTDOCFLAGS", "-D warnings")
        }),
    ];
    if repo::path("cli/src/demo").exists() {
        parts.push(Part::new("demo", "the newcomer's first command, on the embedded broker", &[], |_| {
            demo(&[])
        }));
        let about = "the same on a real broker and on a real cluster";
        parts.push(Part::new("demo-real", about, &[Need::Java], move |stage| {
            let on = |environment: &[(String, String)], url: &str, admin: &str| {
                let (url, admin) =
                    (held_lab::variable(environment, url)?, held_lab::variable(environment, admin)?);
                demo(&["--url", url, "--admin-url", admin])
            };
            on(&stage.real_broker()?, "GEMINGA_BROKER_URL", "GEMINGA_ADMIN_URL")?;
            let cluster = HeldLab::start(&["cluster"])?;
            on(cluster.environment(), "GEMINGA_CLUSTER_URL", "GEMINGA_CLUSTER_ADMIN_URL")
        }));
    }
    if repo::path("tests/python").is_dir() {
        let about = "Apache Pulsar's Python client against the embedded broker";
        parts.push(Part::command("python", about, &[Need::Python], pytest));
        let about = "the same on a real broker: what the tests expect is what Pulsar does";
        parts.push(Part::new("python-real", about, &[Need::Python, Need::Java], |stage| {
            pytest().envs(&stage.real_broker()?).run()
        }));
    }
    if repo::path("python/pyproject.toml").exists() {
        let needs = [Need::Python, Need::RecentPython];
        let about = "the Python package: wheels built, installed into clean environments and tested there";
        parts.push(Part::new("python-package", about, &needs, |_| python_package::test(&[])));
    }
    for target in targets.into_iter().filter(|name| name.starts_with("real_")) {
        let about = "tests against a real Apache Pulsar";
        parts.push(Part::new(&target.replace('_', "-"), about, &[Need::Java], move |stage| {
            let environment = stage.real_broker()?;
            Shell::cargo(["test", "-p", "geminga-tests", "--test", &target, "--", "--test-threads=1"])
                .env("GEMINGA_REAL", "1")
                .envs(&environment)
                .run()
        }));
    }
    parts
}

/// What `cargo xtask ci` runs beyond [`test`].
pub(crate) fn ci() -> Vec<Part> {
    vec![
        Part::new("deny", "licences and sources of the dependencies", &[], |_| {
            Shell::new(machine::cargo_tool("cargo-deny")?)
                .args(["check", "bans", "licenses", "sources"])
                .run()
        }),
        Part::new(
            "python-sdist",
            "the Python package, built from its source distribution",
            &[Need::Python, Need::RecentPython],
            |_| python_package::build_from_source(),
        ),
        Part::new("features", "the core compiles with each of its features alone", &[], |_| features()),
        Part::new("msrv", "the oldest supported compiler", &[], |_| msrv()),
        python_package_real(),
    ]
}

fn demo(arguments: &[&str]) -> Result<()> {
    let geminga = ["--release", "-p", "geminga-cli"];
    // Apart, since the deadline is for the demo and not for the compiler.
    Shell::cargo(["build"]).args(geminga).run()?;
    let run = Shell::cargo(["run"]).args(geminga).args(["--", "demo"]).args(arguments);
    run.within(Duration::from_secs(180)).run()
}

/// Not among the tests yet: the environment without Rust hides Java from the tests that restart a broker of their own.
fn python_package_real() -> Part {
    let needs = [Need::Python, Need::RecentPython, Need::Java];
    Part::new("python-package-real", "the tests of the Python package on a real broker", &needs, |stage| {
        let mut environment = stage.real_broker()?;
        // Some tests restart a broker, which has to be one of their own.
        environment.push(("GEMINGA_LAB".to_owned(), held_lab::executable()?));
        python_package::test(&environment)
    })
}

fn pytest() -> Shell {
    Shell::new(machine::venv("python")).args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python"])
}

fn features() -> Result<()> {
    for features in ["", "lz4", "zlib", "zstd", "snappy"] {
        let arguments = ["check", "-p", "geminga-core", "--no-default-features", "--features", features];
        Shell::cargo(arguments).env("RUSTFLAGS", "-D warnings").run()?;
    }
    Ok(())
}

fn msrv() -> Result<()> {
    let manifest = std::fs::read_to_string(repo::path("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let version = version.context("Cargo.toml names no rust-version")?;
    Shell::new("rustup").args(["toolchain", "install", version, "--profile", "minimal"]).run()?;
    let check = ["run", version, "cargo", "check", "--workspace"];
    // Apart from the other builds, which would be thrown away otherwise.
    Shell::new("rustup").args(check).env("CARGO_TARGET_DIR", repo::path("target/msrv")).run()
}
