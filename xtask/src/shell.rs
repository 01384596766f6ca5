//! One external command: built, shown, run with a deadline. It decides nothing about what the command means.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long one command may take before it is taken for hung. Units: wall time.
const DEADLINE: Duration = Duration::from_secs(20 * 60);

/// One external command, run from the root of the repository.
pub(crate) struct Shell {
    program: OsString,
    arguments: Vec<OsString>,
    command: Command,
    deadline: Duration,
}

impl Shell {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_os_string();
        let mut command = Command::new(&program);
        command.current_dir(crate::repo::root());
        Self { program, arguments: Vec::new(), command, deadline: DEADLINE }
    }

    /// The cargo that runs this program, as if it had been called by hand: what `cargo run` tells its program of its own
    /// package would make build scripts of dependencies run again, and all that uses them compile again.
    pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let mut shell =
            Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments);
        for (name, _) in std::env::vars_os() {
            let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];
            if of_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                shell.command.env_remove(name);
            }
        }
        shell
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        for argument in arguments {
            self.arguments.push(argument.as_ref().to_os_string());
            self.command.arg(argument);
        }
        self
    }

    pub(crate) fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub(crate) fn envs(mut self, pairs: &[(String, String)]) -> Self {
        self.command.envs(pairs.iter().map(|(key, value)| (key, value)));
        self
    }

    /// Replaces the deadline of 20 minutes. Units: wall time.
    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it with this program's output. Errors: cannot be started, a failing exit code, or past its deadline.
    pub(crate) fn run(mut self) -> Result<()> {
        eprintln!("$ {}", self.line());
        let mut child = self
            .command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.line()))?;
        let status = wait(&mut child, self.deadline).with_context(|| self.line())?;
        if !status.success() {
            bail!("`{}` failed: {status}", self.line());
        }
        Ok(())
    }

    /// Runs it and returns what it prints. Errors: as [`Shell::run`], with what it printed.
    pub(crate) fn output(mut self) -> Result<String> {
        let output = self
            .command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.line()))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{}` failed: {}\n{stdout}{stderr}", self.line(), output.status);
        }
        Ok(stdout)
    }

    /// Starts it with pipes on its stdin and stdout; the caller ends it. Errors: it cannot be started.
    pub(crate) fn converse(mut self) -> Result<Child> {
        eprintln!("$ {}", self.line());
        let child = self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        child.with_context(|| format!("cannot start {}", self.line()))
    }

    /// Whether it can be started and succeeds; what it prints is not shown.
    pub(crate) fn succeeds(self) -> bool {
        self.output().is_ok()
    }

    fn line(&self) -> String {
        let program = Path::new(&self.program).file_name().unwrap_or(&self.program);
        let words = std::iter::once(program).chain(self.arguments.iter().map(OsString::as_os_str));
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

fn wait(child: &mut Child, deadline: Duration) -> Result<std::process::ExitStatus> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            kill_with_descendants(child);
            bail!("still running after {} s, killed", deadline.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A hung `cargo test` has children of its own, which would go on holding ports and locks.
fn kill_with_descendants(child: &mut Child) {
    let mut doomed = vec![child.id()];
    let mut next = 0;
    while let Some(parent) = doomed.get(next).copied() {
        next += 1;
        doomed.extend(children_of(parent));
    }
    let pids = doomed.iter().map(u32::to_string);
    if let Err(error) = Command::new("kill").arg("-KILL").args(pids).status() {
        eprintln!("cannot kill the processes of a hung command: {error}");
    }
    if let Err(error) = child.wait() {
        eprintln!("a hung command did not end: {error}");
    }
}

/// Linux only; elsewhere the list is empty and only the command itself is killed.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold spaces; after it come the state and the parent.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    })
    .collect()
}
