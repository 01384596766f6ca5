//! The CPythons of this machine. Decides where they are looked for and which versions matter; installs none.

use crate::shell::Shell;
use std::path::{Path, PathBuf};

/// Minor versions of CPython 3 that the package is for.
const SUPPORTED: std::ops::RangeInclusive<u32> = 10..=14;

/// One CPython with `venv` and the interpreter lock.
#[derive(Clone)]
pub(crate) struct Python {
    /// 11 for CPython 3.11.
    pub(crate) minor: u32,
    pub(crate) program: PathBuf,
}

/// The supported CPythons found on `PATH`, under pyenv and under uv: the one called `python3` first, if it is among them, then
/// from old to new. Beside them, the minor versions that are not here.
pub(crate) fn find() -> (Vec<Python>, Vec<u32>) {
    let places = places();
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for minor in SUPPORTED {
        let mut programs = places.iter().map(|place| place.join(format!("python3.{minor}")));
        match programs.find(|program| program.exists() && version(program) == Some(minor)) {
            Some(program) => found.push(Python { minor, program }),
            None => absent.push(minor),
        }
    }
    let default = version(Path::new("python3"));
    // Stable, so the others keep their order.
    found.sort_by_key(|python| Some(python.minor) != default);
    (found, absent)
}

/// How a missing version can be had.
pub(crate) fn advice(minor: u32) -> String {
    format!(
        "no python3.{minor} with venv on PATH, in ~/.pyenv or of uv; `pyenv install 3.{minor}` or `uv python install 3.{minor}`"
    )
}

/// The minor version, if it can run what the package is for. A pyenv shim of a version that isn't chosen can't.
fn version(program: &Path) -> Option<u32> {
    let ask = "import sys, sysconfig, venv, ensurepip; assert sys.implementation.name == 'cpython'; \
               assert sys.version_info[0] == 3 and not sysconfig.get_config_var('Py_GIL_DISABLED'); \
               print(sys.version_info[1])";
    Shell::new(program).args(["-c", ask]).output().ok()?.trim().parse().ok()
}

fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let home = std::env::home_dir().unwrap_or_default();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    for versions in [pyenv.join("versions"), home.join(".local/share/uv/python")] {
        let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join("bin")).collect();
        // Any order would do, as long as it is the same at each run.
        found.sort();
        places.extend(found);
    }
    places
}
