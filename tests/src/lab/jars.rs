//! The jars of a real Pulsar, resolved by Maven once into `.lab/lib` of this repository.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of this repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the repository")
        .to_path_buf()
}

/// The folder with the jars; it is empty or absent before [`fetch`].
pub fn jars() -> PathBuf {
    repository().join(".lab/lib")
}

/// Resolves the jars that `tests/lab/pom.xml` names, unless that was done.
///
/// Errors: Maven is missing or cannot resolve them.
pub fn fetch() -> Result<()> {
    let pom = repository().join("tests/lab/pom.xml");
    let wanted = std::fs::read(&pom).with_context(|| pom.display().to_string())?;
    let stamp = jars().join("pom.xml");
    if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    // Another process may do the same at this moment: each fills its own folder, and one of them takes the place.
    let folder = repository().join(format!(".lab/lib-{}", std::process::id()));
    let status = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "--file"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", folder.display()))
        // Even when it is quiet it resets the terminal's colours; our own stdout is to be sourced.
        .stdout(std::io::stderr())
        .status()
        .context("cannot start mvn")?;
    ensure!(status.success(), "mvn could not resolve the jars of Apache Pulsar: {status}");
    std::fs::write(folder.join("pom.xml"), &wanted)?;
    if jars().exists() {
        std::fs::remove_dir_all(jars())?;
    }
    match std::fs::rename(&folder, jars()) {
        Err(_) if std::fs::read(&stamp).is_ok_and(|found| found == wanted) => {
            Ok(std::fs::remove_dir_all(&folder)?)
        }
        outcome => outcome.context("cannot move the jars into their place"),
    }
}
