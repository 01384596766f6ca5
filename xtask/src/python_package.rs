//! The Python package as its users get it: wheels, each installed into an environment that has nothing else of ours and finds no
//! Rust.
//!
//! Knows where wheels and environments are; what is tested is in `python/tests` and `python/compat/tests`.

use crate::machine;
use crate::pythons::{self, Python};
use crate::repo::Workspace;
use crate::shell::Shell;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The first CPython whose stable ABI the one wheel for all is built on; earlier ones have wheels of their own.
const ABI3: u32 = 11;

/// What an environment for tests holds besides our wheels; the first one also what checks types and builds the API reference.
const TEST_PACKAGES: &str = "pytest gunicorn";
const CHECK_PACKAGES: &str = "pytest gunicorn mypy pdoc";

const PIP: [&str; 5] = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];

/// Builds the wheels, without optimisations, since their tests ask for no speed, and tests them on each CPython of this machine.
/// With `variables` that name a real broker, only the first of them.
pub(crate) fn test(variables: &[(String, String)]) -> Result<()> {
    let (mut found, absent) = pythons::find();
    if !variables.is_empty() {
        found.truncate(1);
    }
    let package = Package::new()?;
    let compat = package.compat()?;
    let (mut abi3, mut tested) = (None, Vec::new());
    for python in &found {
        let wheel = match &abi3 {
            Some(wheel) if python.minor >= ABI3 => PathBuf::clone(wheel),
            _ => package.wheel(python)?,
        };
        if python.minor >= ABI3 {
            abi3 = Some(wheel.clone());
        }
        println!("-- on CPython 3.{}", python.minor);
        let packages = if tested.is_empty() { CHECK_PACKAGES } else { TEST_PACKAGES };
        let environment = package.environment(python, packages, &[&wheel, &compat])?;
        run_tests(&environment, variables)?;
        if tested.is_empty() && variables.is_empty() {
            let reference = package.place.join("reference");
            Shell::new(&environment).arg("docs/python/reference.py").arg(&reference).run()?;
            println!("-- the API reference is in {}", reference.display());
        }
        tested.push(format!("3.{}", python.minor));
    }
    println!("-- the wheels were tested on CPython {}", tested.join(", "));
    for minor in absent {
        println!("-- not tested on CPython 3.{minor}: {}", pythons::advice(minor));
    }
    Ok(())
}

/// Builds the source distribution, and from it, in an environment of its own, the package.
pub(crate) fn build_from_source() -> Result<()> {
    let package = Package::new()?;
    let place = package.empty("sdist")?;
    let maturin =
        Shell::new(machine::venv("maturin")).args(["sdist", "--manifest-path", "python/Cargo.toml"]);
    maturin.arg("--out").arg(&place).run()?;
    let (found, _) = pythons::find();
    let python = package.bare(found.first().context("no supported CPython")?, "venv-sdist")?;
    // pip would build with optimisations, in a folder of its own each time.
    let build = Shell::new(&python).args(PIP).args(["--force-reinstall"]).arg(only_file(&place)?);
    build
        .env("MATURIN_PEP517_ARGS", "--profile dev")
        .env("CARGO_TARGET_DIR", package.place.join("sdist-target"))
        .run()?;
    std::fs::remove_dir_all(package.place.join("sdist-target")).context("cannot remove what was built")?;
    Shell::new(&python).args(["-c", "import geminga; print(geminga.__version__)"]).run()
}

/// Where everything is built.
struct Package {
    place: PathBuf,
}

impl Package {
    fn new() -> Result<Self> {
        Ok(Self { place: Workspace::read()?.target_directory().join("python-package") })
    }

    /// An environment with these wheels. Returns its Python.
    fn environment(&self, python: &Python, packages: &str, wheels: &[&Path]) -> Result<PathBuf> {
        let environment = self.bare(python, &format!("venv-3.{}", python.minor))?;
        let stamp = environment.with_file_name("test-packages");
        if !std::fs::read_to_string(&stamp).is_ok_and(|held| held == packages) {
            Shell::new(&environment).args(PIP).args(packages.split(' ')).run()?;
            std::fs::write(&stamp, packages)?;
        }
        let install = Shell::new(&environment).args(PIP).args(["--force-reinstall", "--no-deps"]);
        install.args(wheels).env("PATH", path_without_rust()?).run()?;
        Ok(environment)
    }

    fn bare(&self, python: &Python, name: &str) -> Result<PathBuf> {
        let venv = self.place.join(name);
        let program = venv.join("bin/python");
        if !program.exists() {
            Shell::new(&python.program).args(["-m", "venv"]).arg(&venv).run()?;
        }
        Ok(program)
    }

    /// The wheel for a CPython: one for all from 3.11 on, or that version's own.
    fn wheel(&self, python: &Python) -> Result<PathBuf> {
        let maturin = |place: &Path| {
            let build =
                Shell::new(machine::venv("maturin")).args(["build", "--manifest-path", "python/Cargo.toml"]);
            build.arg("--interpreter").arg(&python.program).arg("--out").arg(place)
        };
        let name =
            if python.minor >= ABI3 { "wheel-abi3".to_owned() } else { format!("wheel-3.{}", python.minor) };
        let place = self.empty(&name)?;
        match python.minor >= ABI3 {
            true => maturin(&place).run()?,
            false => maturin(&place).args(["--no-default-features"]).run()?,
        }
        only_file(&place)
    }

    /// The wheel of the compat distribution.
    fn compat(&self) -> Result<PathBuf> {
        let place = self.empty("wheel-compat")?;
        let build =
            ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
        Shell::new(machine::venv("python")).args(build).arg(&place).args(["./python/compat"]).run()?;
        only_file(&place)
    }

    /// An empty folder: what an older version left there would be found beside the new one.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.place.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

fn run_tests(python: &Path, variables: &[(String, String)]) -> Result<()> {
    let path = path_without_rust()?;
    for project in ["python", "python/compat"] {
        let configuration = format!("{project}/pyproject.toml");
        let tests = ["-m", "pytest", "-q", "-c", &configuration, &format!("{project}/tests")];
        Shell::new(python).args(tests).envs(variables).env("PATH", &path).run()?;
    }
    Ok(())
}

/// `PATH` without the folders that have Rust or a protocol compiler in them: users of a wheel have neither.
fn path_without_rust() -> Result<OsString> {
    let tools = ["cargo", "rustc", "protoc"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let kept =
        std::env::split_paths(&path).filter(|folder| !tools.iter().any(|tool| folder.join(tool).exists()));
    Ok(std::env::join_paths(kept)?)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = std::fs::read_dir(folder)?;
    match (files.next().transpose()?, files.next()) {
        (Some(file), None) => Ok(file.path()),
        _ => bail!("{} should hold one file", folder.display()),
    }
}
