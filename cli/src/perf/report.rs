//! The result of one measurement: a line of JSON for programs, a table with a histogram for people.

use std::io;

use serde::Serialize;

use super::Mode;
use super::meter::{Cost, max_rss_mib};
use crate::progress::group;
use crate::stats::{Latencies, time_or_dash};

/// One measurement. Field names and order are those of the bench's line; others are never added without a `--json` need.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    peer: &'static str,
    mode: Mode,
    n: u64,
    size: usize,
    wall_s: f64,
    cpu_user_s: f64,
    cpu_sys_s: f64,
    msgs_per_s: f64,
    cpu_us_per_msg: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_rss_mb: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_p99_us: Option<f64>,
}

impl Report {
    /// Sums up `n` messages of `size` bytes. `receipts` is given where the latency of receipts is told apart.
    pub(crate) fn new(
        mode: Mode,
        n: u64,
        size: usize,
        cost: Cost,
        latencies: &mut Latencies,
        receipts: Option<&mut Latencies>,
    ) -> io::Result<Self> {
        let (receipt_p50_us, receipt_p99_us) = match receipts {
            Some(receipts) => (receipts.percentile_us(0.5), receipts.percentile_us(0.99)),
            None => (None, None),
        };
        Ok(Report {
            peer: "geminga",
            mode,
            n,
            size,
            wall_s: round(cost.wall, 4),
            cpu_user_s: round(cost.user, 4),
            cpu_sys_s: round(cost.system, 4),
            msgs_per_s: round(n as f64 / cost.wall, 0),
            cpu_us_per_msg: round((cost.user + cost.system) * 1e6 / n as f64, 4),
            p50_us: latencies.percentile_us(0.5),
            p99_us: latencies.percentile_us(0.99),
            max_rss_mb: round(max_rss_mib()?, 1),
            receipt_p50_us,
            receipt_p99_us,
        })
    }

    /// The lines for people.
    pub(crate) fn lines(&self, latencies: &mut Latencies) -> Vec<String> {
        let bytes = self.msgs_per_s * self.size as f64 / (1024.0 * 1024.0);
        let mut lines = vec![
            format!(
                "{} messages of {} bytes in {:.2} s",
                group(self.n),
                group(self.size as u64),
                self.wall_s
            ),
            format!("  rate       {:>9} msg/s  ({bytes:.1} MiB/s)", group(self.msgs_per_s as u64)),
            format!(
                "  client CPU {:>9.2} µs/msg  ({:.2} s user, {:.2} s system)",
                self.cpu_us_per_msg, self.cpu_user_s, self.cpu_sys_s
            ),
            format!("  memory     {:>9.1} MiB at most", self.max_rss_mb),
        ];
        if latencies.len() > 0 {
            let shares = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
            let percentiles: Vec<String> =
                shares.map(|(p, name)| format!("{name} {}", time_or_dash(latencies.percentile(p)))).into();
            lines.push(format!("  latency    {}", percentiles.join("  ")));
            lines.extend(latencies.histogram());
        }
        if let (Some(p50), Some(p99)) = (self.receipt_p50_us, self.receipt_p99_us) {
            lines.push(format!("  receipt    p50 {p50:.1} µs  p99 {p99:.1} µs"));
        }
        lines
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COST: Cost = Cost { wall: 2.0, user: 0.5, system: 0.25 };

    #[test]
    fn the_line_has_the_fields_of_the_bench_in_its_order() {
        let report = Report::new(Mode::ConsumeCum, 1000, 100, COST, &mut Latencies::default(), None).unwrap();
        let line = serde_json::to_string(&report).unwrap();
        let start = r#"{"peer":"geminga","mode":"consume_cum","n":1000,"size":100,"wall_s":2.0,"cpu_user_s":0.5,"cpu_sys_s":0.25,"msgs_per_s":500.0,"cpu_us_per_msg":750.0,"p50_us":null,"p99_us":null,"max_rss_mb":"#;
        assert!(line.starts_with(start), "{line}");
        assert!(!line.contains("receipt"));
    }

    #[test]
    fn the_latency_mode_also_tells_receipts() {
        let mut latencies = Latencies::with_capacity(1);
        latencies.push(Duration::from_micros(80));
        let mut receipts = Latencies::with_capacity(1);
        receipts.push(Duration::from_micros(50));
        let report = Report::new(Mode::Latency, 1, 100, COST, &mut latencies, Some(&mut receipts)).unwrap();
        let line = serde_json::to_string(&report).unwrap();
        assert!(line.contains(r#""p50_us":80.0"#), "{line}");
        assert!(line.ends_with(r#""receipt_p50_us":50.0,"receipt_p99_us":50.0}"#), "{line}");
        assert!(report.lines(&mut latencies).iter().any(|l| l.contains("p99 80.0 µs")));
    }
}
