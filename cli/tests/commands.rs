//! The commands as a user runs them: the built program against the embedded broker that it brings.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use support::{Broker, code, geminga, objects, run, succeed, text};

#[test]
fn what_is_produced_is_consumed_with_everything_that_went_with_it() {
    let broker = Broker::start(&[]);
    let args = ["--url", &broker.url, "t", "--json", "--key", "k", "-p", "a=b", "--event-time", "1234"];
    let produced = run(&[&["produce"][..], &args].concat(), "one\ntwo\n\nlast without an end");
    succeed(&produced);
    let stored = objects(&produced);
    assert_eq!(stored.iter().map(|o| o["line"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);

    let args = ["consume", "--url", &broker.url, "t", "--from", "earliest", "-n", "4", "--json"];
    let consumed = run(&args, "");
    succeed(&consumed);
    let messages = objects(&consumed);
    let payloads: Vec<&str> = messages.iter().map(|o| o["payload"].as_str().unwrap()).collect();
    assert_eq!(payloads, ["one", "two", "", "last without an end"]);
    for (message, stored) in messages.iter().zip(&stored) {
        assert_eq!(message["topic"], "persistent://public/default/t");
        assert_eq!(message["key"], "k");
        assert_eq!(message["properties"]["a"], "b");
        assert_eq!(message["event_time"], 1234);
        assert_eq!(message["redelivery_count"], 0);
        assert_eq!(message["message_id"], stored["message_id"]);
        assert!(message["publish_time"].as_u64().unwrap() > 1_600_000_000_000);
    }
}

#[test]
fn an_acknowledged_message_is_gone_and_another_is_not() {
    let broker = Broker::start(&[]);
    succeed(&run(&["produce", "--url", &broker.url, "t", "a", "b", "c", "--no-batching"], ""));
    let consume = |more: &[&str]| {
        let args = ["consume", "t", "--url", &broker.url, "--from", "earliest", "--timeout", "0.5", "-q"];
        let output = run(&[&args[..], more].concat(), "");
        succeed(&output);
        text(&output.stdout)
    };
    assert_eq!(consume(&["--no-ack", "-n", "2"]), "a\nb\n");
    assert_eq!(consume(&["-n", "1"]), "a\n");
    assert_eq!(consume(&["--format", "hex"]), "62\n63\n");
    assert_eq!(consume(&[]), "");
}

#[test]
fn a_reader_starts_where_it_is_told_and_ends_at_the_end() {
    let broker = Broker::start(&[]);
    let produced = run(&["produce", "--url", &broker.url, "t", "a", "b", "c", "--json", "--no-batching"], "");
    succeed(&produced);
    let id = objects(&produced)[1]["message_id"].as_str().unwrap().to_owned();
    let read = |more: &[&str]| {
        let output = run(&[&["read", "t", "--url", &broker.url, "-q"][..], more].concat(), "");
        succeed(&output);
        text(&output.stdout)
    };
    assert_eq!(read(&[]), "a\nb\nc\n");
    assert_eq!(read(&["-n", "1"]), "a\n");
    assert_eq!(read(&["--from", "latest"]), "");
    assert_eq!(read(&["--from", &id]), "c\n");
    assert_eq!(read(&["--from", &id, "--inclusive"]), "b\nc\n");
}

#[test]
fn a_key_in_the_line_decides_the_partition() {
    let broker = Broker::start(&["--partitions", "3"]);
    let args = ["produce", "--url", &broker.url, "t", "--key-separator", ":"];
    succeed(&run(&args, "x:1\ny:2\nx:3\n"));
    let args = ["consume", "--url", &broker.url, "t", "--from", "earliest", "-n", "3", "--json"];
    let consumed = run(&args, "");
    succeed(&consumed);
    let messages = objects(&consumed);
    let x: Vec<_> = messages.iter().filter(|m| m["key"] == "x").collect();
    assert_eq!(x.iter().map(|m| m["payload"].as_str().unwrap()).collect::<Vec<_>>(), ["1", "3"]);
    assert_eq!(x[0]["topic"], x[1]["topic"]);
    assert!(x[0]["topic"].as_str().unwrap().contains("-partition-"));
}

#[test]
fn one_bad_message_among_good_ones_is_reported_and_counted() {
    let broker = Broker::start(&[]);
    let huge = "x".repeat(6 << 20);
    let produced = run(&["produce", "--url", &broker.url, "t", "--json"], &format!("a\n{huge}\nb\n"));
    assert_eq!(code(&produced), 4, "{}", text(&produced.stderr));
    let lines: Vec<u64> = objects(&produced).iter().map(|o| o["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [0, 2]);
    let stderr = text(&produced.stderr);
    assert!(stderr.contains("error: line 1: "), "{stderr}");
    assert!(stderr.contains("2 stored, 1 failed"), "{stderr}");
}

#[test]
fn an_address_where_nobody_listens_is_not_reachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", free.local_addr().unwrap());
    drop(free);
    for command in
        [&["produce", "t", "a"][..], &["consume", "t"], &["read", "t"], &["perf", "produce"], &["demo"]]
    {
        let output = run(&[command, &["--url", &url, "--operation-timeout", "0.3"]].concat(), "");
        assert_eq!(code(&output), 3, "{command:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn wrong_usage_has_its_own_code() {
    let wrong: [&[&str]; 9] = [
        &[],
        &["fly"],
        &["produce"],
        &["produce", "t", "a", "--property", "no-equals-sign"],
        &["produce", "t", "a", "--file", "f"],
        &["consume", "t", "--operation-timeout", "0"],
        &["read", "t", "--from", "yesterday"],
        &["produce", "t", "a", "--url", "http://127.0.0.1:8080"],
        &["perf", "produce", "--tls-cert", "only-half"],
    ];
    for args in wrong {
        let output = run(args, "");
        assert_eq!(code(&output), 2, "{args:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn what_the_broker_refuses_is_refused() {
    let broker = Broker::start(&["--token", "secret"]);
    let refused = run(&["produce", "--url", &broker.url, "t", "a", "--token", "wrong"], "");
    assert_eq!(code(&refused), 4, "{}", text(&refused.stderr));
    assert!(!text(&refused.stderr).contains("wrong"), "{}", text(&refused.stderr));
    succeed(&run(&["produce", "--url", &broker.url, "t", "a", "--token", "secret"], ""));
}

#[test]
fn a_second_consumer_of_an_exclusive_subscription_is_refused_at_once() {
    let broker = Broker::start(&[]);
    let args = ["consume", "--url", &broker.url, "t", "--from", "earliest"];
    let mut first = geminga(&args).stdout(Stdio::piped()).spawn().unwrap();
    succeed(&run(&["produce", "--url", &broker.url, "t", "a"], ""));
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "a\n");
    let second = run(&args, "");
    assert_eq!(code(&second), 4, "{}", text(&second.stderr));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[cfg(unix)]
#[test]
fn an_interrupted_consumer_has_acknowledged_what_it_wrote() {
    let broker = Broker::start(&[]);
    let args = ["consume", "--url", &broker.url, "t", "--from", "earliest"];
    let mut consumer = geminga(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(consumer.stdout.take().unwrap()).lines();
    succeed(&run(&["produce", "--url", &broker.url, "t", "a", "b", "c"], ""));
    for expected in ["a", "b", "c"] {
        assert_eq!(lines.next().unwrap().unwrap(), expected);
    }
    let pid = nix::unistd::Pid::from_raw(consumer.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = consumer.wait_with_output().unwrap();
    succeed(&output);
    assert!(text(&output.stderr).contains("3 received and acknowledged"), "{}", text(&output.stderr));
    let rest = run(&[&args[..], &["--timeout", "0.5"]].concat(), "");
    succeed(&rest);
    assert_eq!(text(&rest.stdout), "");
}

#[test]
fn lines_are_sent_while_more_are_still_to_come() {
    let broker = Broker::start(&[]);
    let mut command = geminga(&["produce", "--url", &broker.url, "t", "--json"]);
    let mut producer =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, mut out) =
        (producer.stdin.take().unwrap(), BufReader::new(producer.stdout.take().unwrap()));
    for line in 0..3 {
        writeln!(stdin, "message {line}").unwrap();
        let mut stored = String::new();
        out.read_line(&mut stored).unwrap();
        assert!(stored.contains(&format!("\"line\":{line}")), "{stored}");
    }
    drop(stdin);
    assert!(producer.wait().unwrap().success());
}

#[test]
fn every_setting_of_a_topic_s_messages_survives_each_codec() {
    let broker = Broker::start(&[]);
    for codec in ["none", "lz4", "zlib", "zstd", "snappy"] {
        let input: String = (0..500).map(|i| format!("line {i}\n")).collect();
        let args = ["produce", "--url", &broker.url, codec, "--compression", codec, "--batch-messages", "50"];
        succeed(&run(&args, &input));
        let read = run(&["read", "--url", &broker.url, codec], "");
        succeed(&read);
        assert_eq!(text(&read.stdout), input, "{codec}");
    }
}
