//! Pulsar's own Java client, run as a program (`tests/java/Interop.java`): what it sent, what it received.

use crate::lab::{fetch, jars, repository};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiled program.
#[derive(Debug)]
pub struct Java {
    classes: PathBuf,
}

/// A message as the Java client sent or received it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JavaMessage {
    /// Bytes, as lower-case hex; empty for a null value.
    pub payload: String,
    /// Whether it has no value at all, as opposed to an empty one.
    pub null_value: bool,
    /// Bytes of the key, as lower-case hex: UTF-8 unless `key_is_bytes`.
    pub key: Option<String>,
    /// Whether the key was given as bytes (and travels in base64).
    pub key_is_bytes: bool,
    /// Bytes, as lower-case hex.
    pub ordering_key: Option<String>,
    /// Properties by name.
    pub properties: BTreeMap<String, String>,
    /// Milliseconds since 1970; 0 where none was set.
    pub event_time: u64,
    /// The producer's number of the message.
    pub sequence_id: i64,
    /// Milliseconds since 1970; `None` for a message sent, whose time the client does not tell.
    #[serde(default)]
    pub publish_time: Option<u64>,
    /// How often it was delivered before.
    pub redelivery_count: u32,
    /// The producer's name.
    pub producer_name: String,
    /// The topic or partition it came from; `None` for a message sent.
    #[serde(default)]
    pub topic: Option<String>,
    /// Where it is stored.
    pub message_id: JavaMessageId,
}

impl JavaMessage {
    /// The same without what only one side of a transfer knows, for comparing what was sent with what came.
    #[must_use]
    pub fn content(&self) -> Self {
        let id = JavaMessageId { batch_size: 0, ..self.message_id };
        Self { publish_time: None, topic: None, message_id: id, ..self.clone() }
    }
}

/// A message id as the Java client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JavaMessageId {
    /// Ledger.
    pub ledger_id: i64,
    /// Entry in the ledger.
    pub entry_id: i64,
    /// Partition of the topic; -1 for a topic without.
    pub partition: i32,
    /// Place in the batch; -1 outside one.
    pub batch_index: i32,
    /// Messages in the batch; 0 outside one.
    pub batch_size: i32,
}

impl Java {
    /// Compiles the program with the jars of the lab, unless that was done.
    ///
    /// Errors: no JDK, no Maven, or they fail.
    pub fn compile() -> Result<Self> {
        fetch()?;
        let source = repository().join("tests/java/Interop.java");
        let text = std::fs::read(&source).with_context(|| source.display().to_string())?;
        let classes = repository().join(".lab/java");
        let stamp = classes.join("Interop.java");
        if std::fs::read(&stamp).is_ok_and(|found| found == text) {
            return Ok(Self { classes });
        }
        std::fs::create_dir_all(&classes)?;
        let status = Command::new("javac")
            .args(["-encoding", "UTF-8", "-cp", &class_path(None), "-d"])
            .args([&classes, &source])
            .status()
            .context("cannot start javac")?;
        ensure!(status.success(), "javac failed: {status}");
        std::fs::write(&stamp, &text)?;
        Ok(Self { classes })
    }

    /// Sends `count` messages and returns them as they were sent. Options: see `Interop.produce`.
    ///
    /// Errors: the Java client's, with its log.
    pub fn produce(
        &self,
        url: &str,
        topic: &str,
        count: usize,
        options: &[&str],
    ) -> Result<Vec<JavaMessage>> {
        self.run(&[[&["produce", url, topic, &count.to_string()], options].concat()], "")
    }

    /// Receives and acknowledges `count` messages, from the earliest on. Options: see `Interop.consume`.
    ///
    /// Errors: a message did not come within 20 s; the Java client's, with its log.
    pub fn consume(
        &self,
        url: &str,
        topic: &str,
        subscription: &str,
        count: usize,
        options: &[&str],
    ) -> Result<Vec<JavaMessage>> {
        self.run(&[[&["consume", url, topic, subscription, &count.to_string()], options].concat()], "")
    }

    /// [`Java::produce`] for several topics, each with its options, in one process: the JVM takes seconds to start.
    ///
    /// Errors: as [`Java::produce`], for the first that fails.
    pub fn produce_each(
        &self,
        url: &str,
        count: usize,
        topics: &[(&str, &[&str])],
    ) -> Result<Vec<Vec<JavaMessage>>> {
        let number = count.to_string();
        let commands: Vec<Vec<&str>> = topics
            .iter()
            .map(|&(topic, options)| [&["produce", url, topic, &number], options].concat())
            .collect();
        let sent = self.run(&commands, "")?;
        split(sent, count, topics.len())
    }

    /// [`Java::consume`] of several topics in one process.
    ///
    /// Errors: as [`Java::consume`], for the first that fails.
    pub fn consume_each(
        &self,
        url: &str,
        subscription: &str,
        count: usize,
        topics: &[&str],
    ) -> Result<Vec<Vec<JavaMessage>>> {
        let number = count.to_string();
        let commands: Vec<Vec<&str>> =
            topics.iter().map(|&topic| vec!["consume", url, topic, subscription, &number]).collect();
        let received = self.run(&commands, "")?;
        split(received, count, topics.len())
    }

    /// The partition to which each key goes, by the hash named `JavaStringHash` or `Murmur3_32Hash`.
    ///
    /// Errors: the Java client's, with its log.
    pub fn partitions<S: AsRef<str>>(
        &self,
        url: &str,
        topic: &str,
        hash: &str,
        keys: &[S],
    ) -> Result<Vec<i32>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Sent {
            message_id: JavaMessageId,
        }
        let mut input = String::new();
        for key in keys {
            input += &serde_json::to_string(key.as_ref())?;
            input.push('\n');
        }
        let sent: Vec<Sent> = self.run(&[vec!["partitions", url, topic, "--hash", hash]], &input)?;
        ensure!(sent.len() == keys.len(), "{} partitions for {} keys", sent.len(), keys.len());
        Ok(sent.into_iter().map(|sent| sent.message_id.partition).collect())
    }

    fn run<T: for<'a> Deserialize<'a>>(&self, commands: &[Vec<&str>], input: &str) -> Result<Vec<T>> {
        let arguments = commands.join(&"--then");
        let mut child = Command::new("java")
            .args(["-Xmx256m", "-cp", &class_path(Some(&self.classes))])
            .args([
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "-Dio.netty.tryReflectionSetAccessible=true",
                "Interop",
            ])
            .args(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start java")?;
        let mut stdin = child.stdin.take().context("java has no stdin")?;
        // It reads everything before it prints anything that could fill the other pipe.
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!("the Java client's {} failed: {}\n{stdout}{stderr}", arguments.join(" "), output.status);
        }
        let lines = stdout.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }
}

/// What `topics` commands printed, `count` messages each.
fn split(messages: Vec<JavaMessage>, count: usize, topics: usize) -> Result<Vec<Vec<JavaMessage>>> {
    ensure!(messages.len() == count * topics, "{} messages of {topics} times {count}", messages.len());
    Ok(messages.chunks(count.max(1)).map(<[_]>::to_vec).collect())
}

fn class_path(classes: Option<&Path>) -> String {
    let jars = format!("{}/*", jars().display());
    classes.map_or(jars.clone(), |classes| format!("{}:{jars}", classes.display()))
}
