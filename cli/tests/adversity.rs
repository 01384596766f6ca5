//! The commands when something around them is not as it should be: the environment, the input, the reader of their
//! output, the broker, or their user's patience.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use support::{Broker, code, geminga, run, succeed, text};

#[test]
fn what_the_environment_says_yields_to_flags_and_is_no_wrong_usage() {
    let nowhere = "http://127.0.0.1:1";
    let alone = geminga(&["demo", "-n", "100"]).env("GEMINGA_ADMIN_URL", nowhere).output().unwrap();
    succeed(&alone);
    let alone = run(&["demo", "-n", "100", "--admin-url", nowhere], "");
    assert_eq!(code(&alone), 2, "{}", text(&alone.stderr));

    let broker = Broker::start(&["--token", "secret"]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"secret\n").unwrap();
    let args = ["produce", "t", "a", "--token-file", file.path().to_str().unwrap()];
    let produced =
        geminga(&args).env("GEMINGA_TOKEN", "wrong").env("GEMINGA_URL", &broker.url).output().unwrap();
    succeed(&produced);
    let args = ["produce", "t", "a", "--token", "secret", "--url", &broker.url];
    let produced = geminga(&args).env("GEMINGA_TOKEN", "").env("GEMINGA_URL", "").output().unwrap();
    succeed(&produced);
}

#[test]
fn an_empty_token_is_wrong_usage_rather_than_a_broker_for_everybody() {
    for args in [&["broker", "--token", ""][..], &["produce", "t", "a", "--token", ""]] {
        assert_eq!(code(&run(args, "")), 2, "{args:?}");
    }
}

#[test]
fn an_admin_api_that_does_not_answer_is_not_reachable() {
    let broker = Broker::start(&[]);
    let output = run(&["demo", "--url", &broker.url, "--admin-url", "http://127.0.0.1:1"], "");
    assert_eq!(code(&output), 3, "{}", text(&output.stderr));
}

#[test]
fn the_last_batch_does_not_wait_for_its_time() {
    let broker = Broker::start(&[]);
    let weeks = u32::MAX.to_string();
    succeed(&run(&["produce", "--url", &broker.url, "t", "a", "b", "--batch-delay-ms", &weeks], ""));
    assert_eq!(text(&run(&["read", "--url", &broker.url, "t"], "").stdout), "a\nb\n");
}

#[test]
fn a_line_that_is_no_message_is_counted_and_those_around_it_are_stored() {
    let broker = Broker::start(&[]);
    let args = ["produce", "--url", &broker.url, "t", "--key-separator", ":"];
    let produced = run(&args, "k:1\nno key\nk:2\n");
    assert_eq!(code(&produced), 1);
    let stderr = text(&produced.stderr);
    assert!(stderr.contains("error: line 1: there is no text key before \":\""), "{stderr}");
    assert!(stderr.contains("2 stored, 1 failed"), "{stderr}");
}

#[test]
fn messages_are_stored_although_nobody_reads_their_ids() {
    let broker = Broker::start(&[]);
    let mut command = geminga(&["produce", "--url", &broker.url, "t", "--json"]);
    let mut producer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(producer.stdout.take());
    let lines: String = (0..5000).map(|n| format!("{n}\n")).collect();
    producer.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(producer.wait().unwrap().success());
    assert_eq!(text(&run(&["read", "--url", &broker.url, "t"], "").stdout), lines);
}

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
}

#[cfg(unix)]
#[test]
fn one_interrupt_ends_a_command_that_waits_for_its_broker() {
    // It takes the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", silent.local_addr().unwrap());
    for command in [&["produce", "t", "a"][..], &["consume", "t"], &["read", "t"], &["demo"]] {
        let args = [command, &["-vv", "--url", &url, "--operation-timeout", "100000"]].concat();
        let mut child = geminga(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("connecting"), "{line}");
        interrupt(&child);
        stderr.read_to_string(&mut line).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{command:?}: {line}");
        assert!(line.contains("error: interrupted"), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn a_producer_without_a_broker_ends_when_it_is_interrupted_and_tells_what_is_unknown() {
    let broker = Broker::start(&[]);
    let mut command = geminga(&["produce", "--url", &broker.url, "t", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut producer = command.spawn().unwrap();
    let mut stdin = producer.stdin.take().unwrap();
    writeln!(stdin, "a").unwrap();
    let mut stdout = BufReader::new(producer.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(broker);
    writeln!(stdin, "b").unwrap();
    drop(stdin);
    let mut stderr = BufReader::new(producer.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("reconnecting"), "{said}");
    interrupt(&producer);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(producer.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("1 stored"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_command_whose_output_nobody_reads_can_be_ended() {
    let broker = Broker::start(&[]);
    let lines = format!("{}\n", "x".repeat(1000)).repeat(4000);
    succeed(&run(&["produce", "--url", &broker.url, "t"], &lines));
    let mut child =
        geminga(&["read", "--follow", "--url", &broker.url, "t"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    while child.try_wait().unwrap().is_none() {
        interrupt(&child);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(stdout);
}
