//! What the tests of the command line share: the program, and an embedded broker run by it.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The program with these arguments, free of the developer's own settings.
pub(crate) fn geminga(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_geminga"));
    for name in
        ["GEMINGA_URL", "GEMINGA_ADMIN_URL", "GEMINGA_TOKEN", "GEMINGA_BROKER_TOKEN", "RUST_LOG", "BENCH_SUB"]
    {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Runs the program to its end, with `input` on stdin.
pub(crate) fn run(args: &[&str], input: &str) -> Output {
    let mut command = geminga(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built for this test");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that does not read its stdin may be gone already; what it says is in its output.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    child.wait_with_output().expect("it was started")
}

/// The exit code, which a program that was not killed has.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("nobody killed it")
}

/// Fails with what the program said unless it succeeded.
#[track_caller]
pub(crate) fn succeed(output: &Output) {
    assert_eq!(code(output), 0, "{}\n{}", text(&output.stdout), text(&output.stderr));
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON objects on stdout, one a line.
#[track_caller]
pub(crate) fn objects(output: &Output) -> Vec<Value> {
    let text = text(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// `geminga broker` on free ports, ended with its owner.
pub(crate) struct Broker {
    child: Child,
    pub(crate) url: String,
    pub(crate) admin_url: String,
}

impl Broker {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = geminga(&["--quiet", "broker", "--port", "0", "--admin-port", "0"]);
        let mut child =
            command.args(args).stdout(Stdio::piped()).spawn().expect("the program was built for this test");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut value = |name: &str| {
            let line = lines.next().expect("the broker says where it listens").expect("in UTF-8");
            line.strip_prefix(name)
                .unwrap_or_else(|| panic!("{line:?} should begin with {name:?}"))
                .to_owned()
        };
        let (url, admin_url) = (value("service_url="), value("admin_url="));
        Broker { child, url, admin_url }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}
