//! Where things are in the repository, and which test programs it has.

use crate::shell::Shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ is a folder of the repository")
        .to_path_buf()
}

/// A path inside the repository.
pub(crate) fn path(relative: &str) -> PathBuf {
    root().join(relative)
}

/// What cargo knows about the workspace.
pub(crate) struct Workspace {
    metadata: Value,
}

impl Workspace {
    pub(crate) fn read() -> Result<Self> {
        let text = Shell::cargo(["metadata", "--format-version", "1", "--no-deps"]).output()?;
        Ok(Self { metadata: serde_json::from_str(&text).context("cargo metadata is not JSON")? })
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_directory(&self) -> PathBuf {
        PathBuf::from(self.metadata["target_directory"].as_str().unwrap_or("target"))
    }

    /// Names of the test programs of `geminga-tests`, sorted.
    pub(crate) fn test_targets(&self) -> Vec<String> {
        let packages = self.metadata["packages"].as_array().into_iter().flatten();
        let mut names: Vec<String> = packages
            .filter(|package| package["name"] == "geminga-tests")
            .flat_map(|package| package["targets"].as_array().into_iter().flatten())
            .filter(|target| target["kind"][0] == "test")
            .filter_map(|target| target["name"].as_str().map(str::to_owned))
            .collect();
        names.sort();
        names
    }
}
