//! The Python package as its users get it: a wheel, installed into an environment that has nothing else of ours.
//!
//! Knows where the wheel and the environment are; what is tested is in `python/tests`.

use crate::machine;
use crate::repo::Workspace;
use crate::shell::Shell;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Builds the wheel, without optimisations, since its tests ask for no speed; installs it and runs its tests. `environment` names
/// a real broker, or is empty for the embedded one.
pub(crate) fn test(environment: &[(String, String)]) -> Result<()> {
    let place = Workspace::read()?.target_directory().join("python-package");
    let wheel = build(&place.join("wheels"))?;
    let python = install(&place.join("venv"), &wheel)?;
    let tests = ["-m", "pytest", "-q", "-c", "python/pyproject.toml", "python/tests"];
    Shell::new(python).args(tests).envs(environment).run()
}

fn build(wheels: &Path) -> Result<PathBuf> {
    if wheels.exists() {
        // An older version's wheel would be found beside the new one.
        std::fs::remove_dir_all(wheels).context("cannot remove the last wheel")?;
    }
    let maturin = Shell::new(machine::venv("maturin"));
    maturin.args(["build", "--manifest-path", "python/Cargo.toml", "--out"]).args([wheels]).run()?;
    let built = std::fs::read_dir(wheels)?.next().context("maturin built no wheel")??;
    Ok(built.path())
}

/// Returns the environment's Python.
fn install(venv: &Path, wheel: &Path) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    if !python.exists() {
        Shell::new("python3").args(["-m", "venv"]).args([venv]).run()?;
        Shell::new(&python).args(pip).args(["pytest"]).run()?;
    }
    Shell::new(&python).args(pip).args(["--force-reinstall", "--no-deps"]).args([wheel]).run()?;
    Ok(python)
}
