//! The lab of real brokers as another program: started, asked where its brokers are, and ended with this one.

use crate::repo::{self, Workspace};
use crate::shell::Shell;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// The lab's own command line; also behind `cargo xtask lab`.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Shell {
    Shell::cargo(["run", "--quiet", "-p", "geminga-tests", "--bin", "geminga-lab", "--"]).args(arguments)
}

/// The lab's executable, built, for tests that start brokers of their own. Errors: it does not compile.
pub(crate) fn executable() -> Result<String> {
    Shell::cargo(["build", "--quiet", "-p", "geminga-tests", "--bin", "geminga-lab"]).run()?;
    let path = Workspace::read()?.target_directory().join("debug/geminga-lab");
    Ok(path.display().to_string())
}

/// One of the lab's variables. Errors: it has none of that name.
pub(crate) fn variable<'a>(environment: &'a [(String, String)], name: &str) -> Result<&'a str> {
    let found = environment.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str()).with_context(|| format!("the lab named no {name}"))
}

/// Brokers that run as long as this value lives.
///
/// The lab stops them when its stdin ends, so they end with this program in whatever way it ends.
pub(crate) struct HeldLab {
    child: Child,
    environment: Vec<(String, String)>,
}

impl HeldLab {
    /// Starts these layouts and waits until they serve. Errors: the lab's own, which it printed.
    pub(crate) fn start(layouts: &[&str]) -> Result<Self> {
        let home = repo::path(".lab/run").join(format!("test-{}", layouts.join("-")));
        let mut child =
            command(["--home".as_ref(), home.as_os_str(), "serve".as_ref()]).args(layouts).converse()?;
        let stdout = child.stdout.take().context("the lab has no stdout")?;
        // From here on dropping the value ends the lab.
        let mut lab = Self { child, environment: Vec::new() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(Value::Object(variables)) = serde_json::from_str(&line) else {
            bail!("the lab of real brokers did not start");
        };
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        lab.environment = variables.into_iter().map(|(key, value)| (key, text(value))).collect();
        Ok(lab)
    }

    /// The variables by which tests find the brokers, such as `GEMINGA_BROKER_URL`.
    pub(crate) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }
}

impl Drop for HeldLab {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the lab did not end: {error}");
        }
    }
}
