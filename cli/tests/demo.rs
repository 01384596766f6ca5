//! `geminga demo`: the newcomer's first command.

mod support;

use support::{Broker, run, succeed, text};

#[track_caller]
fn expect_success(stdout: &str) {
    for part in ["4 partitions", "exact for each of 500 keys", "redelivery count 1", "lost      0", "✓"] {
        assert!(stdout.contains(part), "{part} is missing in\n{stdout}");
    }
}

#[test]
fn it_runs_on_the_broker_that_it_brings() {
    let output = run(&["demo", "--messages", "3000"], "");
    succeed(&output);
    expect_success(&text(&output.stdout));
}

#[test]
fn it_runs_on_a_cluster_with_an_admin_api_again_and_again() {
    let broker = Broker::start(&[]);
    for _ in 0..2 {
        let output = run(&["demo", "-n", "2000", "--url", &broker.url, "--admin-url", &broker.admin_url], "");
        succeed(&output);
        expect_success(&text(&output.stdout));
    }
}

#[test]
fn without_an_admin_api_it_takes_the_topic_as_it_is() {
    let broker = Broker::start(&[]);
    let output = run(&["demo", "-n", "1000", "--url", &broker.url], "");
    succeed(&output);
    assert!(text(&output.stdout).contains("(not partitioned)"), "{}", text(&output.stdout));
}
