//! What this machine has, what a part of the tests needs of it, and how the gap is closed.
//!
//! Inside the repository everything is set up without asking: `.venv`, `.lab/lib`, the wasm32 target. System packages
//! are installed only where that was asked for; otherwise the one command line to run is printed.

use crate::{held_lab, pythons, repo, shell::Shell};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// What `.venv` holds: Apache Pulsar's Python client, which must work against the embedded broker, and checkers.
const PYTHON_PACKAGES: &str = "pulsar-client==3.13.0 pytest typos maturin>=1.9,<2";

/// Something a part needs beyond Rust itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    /// A JDK (17 or later), Maven, and the jars of a real Pulsar in `.lab/lib`.
    Java,
    /// Python 3 with `venv`, and `.venv` with the test requirements.
    Python,
    /// A CPython that our package is for: 3.10 or later. Each further version found is tested too.
    RecentPython,
    /// The `wasm32-unknown-unknown` target.
    Wasm,
}

impl Need {
    /// Why it is not met on this machine before anything is set up inside the repository, if it is not.
    fn missing(self) -> Option<&'static str> {
        match self {
            Self::Java if !java_is_recent() => Some("no JDK 17 or later"),
            Self::Java if !Shell::new("mvn").args(["-version"]).succeeds() => Some("no Maven"),
            Self::Python if !Shell::new("python3").args(["-c", "import venv, ensurepip"]).succeeds() => {
                Some("no Python 3 with venv")
            }
            Self::RecentPython if pythons::find().0.is_empty() => Some("no CPython 3.10 or later with venv"),
            Self::Java | Self::Python | Self::RecentPython | Self::Wasm => None,
        }
    }

    fn system_packages(self) -> Vec<String> {
        match self {
            Self::Java => {
                // Distributions have one or the other; Pulsar runs on both.
                let newer = "openjdk-21-jdk-headless";
                let found = Shell::new("apt-cache").args(["show", newer]).succeeds();
                let java = if found { newer } else { "openjdk-17-jdk-headless" };
                vec![java.to_owned(), "maven".to_owned()]
            }
            Self::Python | Self::RecentPython => vec!["python3".to_owned(), "python3-venv".to_owned()],
            Self::Wasm => Vec::new(),
        }
    }

    /// Sets it up inside the repository. Errors: what failed, such as a download.
    fn set_up(self) -> Result<()> {
        match self {
            Self::Java => held_lab::command(["fetch"]).run().context("the jars of Apache Pulsar"),
            Self::Python => python_environment().context(".venv"),
            Self::RecentPython => Ok(()),
            Self::Wasm => wasm_target().context("the wasm32 target"),
        }
    }
}

/// A program of the repository's own virtual environment.
pub(crate) fn venv(program: &str) -> PathBuf {
    repo::path(".venv/bin").join(program)
}

/// A program written in Rust, for this repository alone, built on first use. Returns its path.
pub(crate) fn cargo_tool(name: &str) -> Result<PathBuf> {
    let tools = repo::path(".lab/tools");
    let program = tools.join("bin").join(name);
    if !program.exists() {
        Shell::cargo(["install", "--quiet", "--locked", name, "--root"]).args([&tools]).run()?;
    }
    Ok(program)
}

/// What the selected parts need and this machine still lacks after everything possible was set up.
#[derive(Default)]
pub(crate) struct Lacking(Vec<(Need, String)>);

impl Lacking {
    /// Closes the gap between the machine and `needs`.
    pub(crate) fn after_setting_up(needs: &[Need], install_system: bool) -> Self {
        let absent: Vec<Need> = needs.iter().copied().filter(|need| need.missing().is_some()).collect();
        if !absent.is_empty() {
            install(&absent, install_system);
        }
        let mut lacking = Self::default();
        for need in needs {
            if let Some(reason) = need.missing() {
                lacking.0.push((*need, reason.to_owned()));
            } else if let Err(error) = need.set_up() {
                lacking.0.push((*need, format!("cannot set up {error:#}")));
            }
        }
        lacking
    }

    /// Why a part with these needs cannot run here.
    pub(crate) fn reason(&self, needs: &[Need]) -> Option<String> {
        self.0.iter().find(|(need, _)| needs.contains(need)).map(|(_, reason)| reason.clone())
    }
}

fn install(absent: &[Need], allowed: bool) {
    let packages: Vec<String> = absent.iter().flat_map(|need| need.system_packages()).collect();
    let words = ["install", "-y", "--no-install-recommends"].map(str::to_owned);
    let arguments: Vec<String> = words.into_iter().chain(packages).collect();
    if !allowed {
        println!(
            "Some parts need system packages. On Debian or Ubuntu:\n\n    sudo apt-get {}\n",
            arguments.join(" ")
        );
        return;
    }
    let apt =
        |arguments: &[String]| Shell::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let outcome = apt(&["update".to_owned()]).run().and_then(|()| apt(&arguments).run());
    if let Err(error) = outcome {
        // The parts that needed them say so in the table.
        println!("system packages: {error:#}");
    }
}

fn java_is_recent() -> bool {
    let version = Shell::new("javac").args(["-version"]).output().unwrap_or_default();
    let major = version.trim().strip_prefix("javac ").and_then(|text| text.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= 17)
}

fn wasm_target() -> Result<()> {
    let installed = Shell::new("rustup").args(["target", "list", "--installed"]).output()?;
    if installed.lines().any(|line| line == "wasm32-unknown-unknown") {
        return Ok(());
    }
    Shell::new("rustup").args(["target", "add", "wasm32-unknown-unknown"]).run()
}

fn python_environment() -> Result<()> {
    // A stamp names what is inside, so that a changed requirement is noticed and an unchanged one costs nothing.
    let stamp = repo::path(".venv/geminga-requirements");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == PYTHON_PACKAGES) {
        return Ok(());
    }
    Shell::new("python3").args(["-m", "venv", ".venv"]).run()?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    Shell::new(venv("python")).args(pip).args(PYTHON_PACKAGES.split(' ')).run()?;
    std::fs::write(&stamp, PYTHON_PACKAGES).context("cannot note what .venv holds")
}
