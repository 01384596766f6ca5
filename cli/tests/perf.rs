//! `geminga perf`: one line of JSON with the fields of the side-by-side bench, in every mode.

mod support;

use support::{Broker, code, geminga, objects, run, succeed, text};

const FIELDS: [&str; 12] = [
    "peer",
    "mode",
    "n",
    "size",
    "wall_s",
    "cpu_user_s",
    "cpu_sys_s",
    "msgs_per_s",
    "cpu_us_per_msg",
    "p50_us",
    "p99_us",
    "max_rss_mb",
];

#[test]
fn each_mode_prints_one_line_with_every_field() {
    let broker = Broker::start(&[]);
    for mode in ["produce", "produce_sync", "consume", "consume_cum", "latency"] {
        let args = ["perf", mode, "--url", &broker.url, "--topic", "t", "--count", "400", "--size", "100"];
        let output = run(&[&args[..], &["--warmup", "100", "--json"]].concat(), "");
        succeed(&output);
        let lines = objects(&output);
        assert_eq!(lines.len(), 1, "{}", text(&output.stdout));
        let line = lines[0].as_object().unwrap();
        for field in FIELDS {
            assert!(line.contains_key(field), "{mode} lacks {field}");
        }
        assert_eq!((line["peer"].as_str(), line["mode"].as_str()), (Some("geminga"), Some(mode)));
        assert_eq!((line["n"].as_u64(), line["size"].as_u64()), (Some(400), Some(100)));
        assert!(line["msgs_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(line.contains_key("receipt_p99_us"), mode == "latency");
        assert_eq!(line["p50_us"].is_null(), mode.starts_with("consume"));
    }
}

#[test]
fn the_bench_runs_it_with_its_own_command_line_and_environment() {
    let broker = Broker::start(&[]);
    let peer = |mode: &str| {
        let mut command =
            geminga(&["perf-peer", mode, &broker.url, "persistent://public/default/t", "300", "64"]);
        command.env("BENCH_WARMUP", "50").env("BENCH_SUB", "s").env("BENCH_BATCH_DELAY_MS", "2");
        command.output().unwrap()
    };
    for mode in ["produce", "consume"] {
        let output = peer(mode);
        succeed(&output);
        assert_eq!(objects(&output)[0]["mode"], mode);
    }
}

#[test]
fn without_json_it_prints_a_table_for_people() {
    let broker = Broker::start(&[]);
    let args = [
        "perf",
        "produce",
        "--url",
        &broker.url,
        "-n",
        "1000",
        "--size",
        "10",
        "--warmup",
        "0",
        "--keys",
        "7",
    ];
    let output = run(&args, "");
    succeed(&output);
    let text = text(&output.stdout);
    for part in ["1,000 messages of 10 bytes", "msg/s", "µs/msg", "p99", "▇"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_number_that_is_none_in_the_environment_is_wrong_usage() {
    let broker = Broker::start(&[]);
    let mut command = geminga(&["perf-peer", "produce", &broker.url, "t", "10", "10"]);
    let output = command.env("BENCH_WARMUP", "many").output().unwrap();
    assert_eq!(code(&output), 2, "{}", support::text(&output.stderr));
}
