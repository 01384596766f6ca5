//! One Java process of the lab: how it is started, signalled, awaited and ended. It knows nothing about Pulsar.

use super::{Site, jars};
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Packages of the JDK that Netty, BookKeeper and Pulsar reach into.
const OPENED: &[&str] = &[
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
];

const LOGGING: &str = r#"<Configuration status="WARN">
  <Appenders><Console name="console"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1} %m%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"#;

/// The command line of a Java process: main class, arguments, environment, heap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Jvm {
    main: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    heap: String,
}

impl Jvm {
    pub(super) fn new(main: &str) -> Self {
        Self { main: main.to_owned(), arguments: Vec::new(), environment: Vec::new(), heap: "1g".to_owned() }
    }

    pub(super) fn args<S: AsRef<str>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(super) fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The most memory its objects may take, in Java's notation: `512m`.
    pub(super) fn heap(mut self, heap: &str) -> Self {
        heap.clone_into(&mut self.heap);
        self
    }

    /// Runs it to its end in `folder`. Errors: it fails, with the end of its log.
    pub(super) fn run_to_end(&self, folder: &Path) -> Result<()> {
        let status = self.command(folder)?.status().context("cannot start java")?;
        ensure!(status.success(), "{} failed: {status}\n{}", self.main, end_of_log(folder));
        Ok(())
    }

    fn command(&self, folder: &Path) -> Result<Command> {
        std::fs::create_dir_all(folder.join("conf"))?;
        std::fs::write(folder.join("conf/log4j2.xml"), LOGGING)?;
        let log = File::options().create(true).append(true).open(folder.join("log.txt"))?;
        let mut command = Command::new("java");
        command
            .arg(format!("-Xmx{}", self.heap))
            .args(["-cp", &format!("conf:{}/*", jars().display())])
            .args(OPENED.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED")))
            .args(["-Dio.netty.tryReflectionSetAccessible=true", &self.main])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }
}

/// A Java process that runs, or did and can be started again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Process {
    jvm: Jvm,
    /// 0 while it does not run.
    pub(super) pid: u32,
    pub(super) site: Site,
    /// Only where this very program started it.
    #[serde(skip)]
    child: Option<Child>,
}

impl Process {
    pub(super) fn new(jvm: Jvm, site: Site) -> Self {
        Self { jvm, pid: 0, site, child: None }
    }

    pub(super) fn start(&mut self, folder: &Path) -> Result<()> {
        // A process group of its own: a Ctrl-C in the terminal is for whoever started the lab, who then stops it.
        let child = self.jvm.command(folder)?.process_group(0).spawn().context("cannot start java")?;
        self.pid = child.id();
        self.child = Some(child);
        Ok(())
    }

    /// Whether the process with this id is (still) the one that was started.
    pub(super) fn is_running(&self) -> bool {
        let Some(pid) = self.pid() else { return false };
        match std::fs::read(format!("/proc/{}/cmdline", self.pid)) {
            Ok(line) => line.windows(self.jvm.main.len()).any(|window| window == self.jvm.main.as_bytes()),
            // No /proc on this system: go by the id alone.
            Err(_) => !Path::new("/proc/self").exists() && rustix::process::test_kill_process(pid).is_ok(),
        }
    }

    pub(super) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it and waits for its end. Nothing happens if it does not run.
    pub(super) fn kill(&mut self) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.signal(Signal::KILL)?;
        match self.child.take() {
            Some(mut child) => drop(child.wait()?),
            None => {
                while self.is_running() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        self.pid = 0;
        Ok(())
    }

    /// Waits until it is ready. Errors: it ends first, or takes too long; both with the end of its log.
    pub(super) fn wait(&mut self, deadline: Duration, folder: &Path, ready: impl Fn() -> bool) -> Result<()> {
        let end = Instant::now() + deadline;
        while !ready() {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!("it ended ({status}) before it was ready\n{}", end_of_log(folder));
            }
            ensure!(Instant::now() < end, "not ready after {} s\n{}", deadline.as_secs(), end_of_log(folder));
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid() else { bail!("{} does not run", self.jvm.main) };
        match kill_process(pid, signal) {
            // It ended by itself meanwhile; who cares learns it from what it no longer does.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

fn end_of_log(folder: &Path) -> String {
    let path = folder.join("log.txt");
    let bytes = std::fs::read(&path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    // A broker prints all its settings in one line.
    let shortened = lines.iter().map(|line| line.chars().take(300).collect::<String>());
    let tail = shortened.skip(lines.len().saturating_sub(30)).collect::<Vec<_>>().join("\n");
    format!("the end of {}:\n{tail}", path.display())
}
