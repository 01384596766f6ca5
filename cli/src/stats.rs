//! Latencies: percentiles and a histogram of them. Decides how times are summed up and written for people.

use std::time::Duration;

/// Samples of one latency. Units: nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    nanos: Vec<u64>,
    sorted: bool,
}

impl Latencies {
    /// Room for `n` samples, so that taking one allocates nothing.
    pub(crate) fn with_capacity(n: usize) -> Self {
        Latencies { nanos: Vec::with_capacity(n), sorted: true }
    }

    /// Adds a sample.
    pub(crate) fn push(&mut self, sample: Duration) {
        self.nanos.push(u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX));
        self.sorted = false;
    }

    /// How many samples there are.
    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// The sample below which a share `p` (0 to 1) of all lie; `None` without samples.
    pub(crate) fn percentile(&mut self, p: f64) -> Option<Duration> {
        self.sort();
        let at = ((self.nanos.len() as f64 * p) as usize).min(self.nanos.len().checked_sub(1)?);
        Some(Duration::from_nanos(self.nanos[at]))
    }

    /// The same in microseconds, for the bench line.
    pub(crate) fn percentile_us(&mut self, p: f64) -> Option<f64> {
        self.percentile(p).map(|d| (d.as_nanos() as f64 / 100.0).round() / 10.0)
    }

    /// The histogram: one line for each doubling of the latency, with its share of the samples as a bar.
    pub(crate) fn histogram(&mut self) -> Vec<String> {
        const WIDTH: usize = 40;
        self.sort();
        let mut buckets: Vec<(u64, usize)> = Vec::new();
        for &sample in &self.nanos {
            let limit = upper_limit(sample);
            match buckets.last_mut() {
                Some((last, count)) if *last == limit => *count += 1,
                _ => buckets.push((limit, 1)),
            }
        }
        let largest = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1);
        let total = self.nanos.len();
        buckets
            .into_iter()
            .map(|(limit, count)| {
                let bar = "▇".repeat((count * WIDTH).div_ceil(largest));
                let share = 100.0 * count as f64 / total as f64;
                format!("  ≤ {:>8}  {share:5.1} %  {bar}", time(Duration::from_nanos(limit)))
            })
            .collect()
    }

    fn sort(&mut self) {
        if !self.sorted {
            self.nanos.sort_unstable();
            self.sorted = true;
        }
    }
}

/// The end of the sample's bucket: 1, 2 or 5 times a power of ten.
fn upper_limit(nanos: u64) -> u64 {
    let mut decade = 1000;
    loop {
        for step in [1, 2, 5] {
            if nanos <= decade * step {
                return decade * step;
            }
        }
        match decade.checked_mul(10) {
            Some(next) if next <= u64::MAX / 10 => decade = next,
            _ => return u64::MAX,
        }
    }
}

/// A time with the unit that suits it and three digits: `18.4 µs`, `2.50 ms`, `12.0 s`.
pub(crate) fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// [`time`], or a dash when there was nothing to measure.
pub(crate) fn time_or_dash(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        micros.into_iter().for_each(|us| latencies.push(Duration::from_micros(us)));
        latencies
    }

    #[test]
    fn percentiles_are_samples_and_an_empty_set_has_none() {
        let mut latencies = of((1..=100).rev());
        assert_eq!(latencies.percentile(0.5), Some(Duration::from_micros(51)));
        assert_eq!(latencies.percentile(0.99), Some(Duration::from_micros(100)));
        assert_eq!(latencies.percentile(1.0), Some(Duration::from_micros(100)));
        assert_eq!(of([]).percentile(0.5), None);
        assert_eq!(of([7]).percentile_us(0.99), Some(7.0));
    }

    #[test]
    fn the_histogram_covers_every_sample_once() {
        let lines = of([1, 1, 1, 3, 800, 1_500_000]).histogram();
        let shares: Vec<&str> = lines.iter().map(|l| l.split('%').next().unwrap().trim()).collect();
        let expected = ["≤  1.00 µs   50.0", "≤  5.00 µs   16.7", "≤  1.00 ms   16.7", "≤   2.00 s   16.7"];
        assert_eq!(shares, expected);
        assert!(lines[0].ends_with(&"▇".repeat(40)));
        assert!(of([]).histogram().is_empty());
        assert_eq!(upper_limit(u64::MAX), u64::MAX);
    }

    #[test]
    fn times_have_three_digits_and_a_fitting_unit() {
        let cases = [(1, "0.00 µs"), (18_400, "18.4 µs"), (2_500_000, "2.50 ms"), (999_600, "1.00 ms")];
        for (nanos, text) in cases {
            assert_eq!(time(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(time(Duration::from_secs(12)), "12.0 s");
    }
}
