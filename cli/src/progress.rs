//! How far long work has come: a bar with its rate on a terminal, a plain line now and then elsewhere. Always on
//! stderr, and only once the work has proved to be long.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Shorter work shows nothing.
const QUIET: Duration = Duration::from_millis(700);
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// Counts the items of one piece of work and shows them at most a few times a second.
pub(crate) struct Progress {
    label: String,
    total: Option<u64>,
    done: u64,
    started: Instant,
    next: Instant,
    view: View,
}

enum View {
    Nothing,
    Bar(Option<ProgressBar>),
    Lines,
}

impl Progress {
    /// Progress of work on `total` items, `None` when nobody knows how many there will be.
    pub(crate) fn new(label: &str, total: Option<u64>, quiet: bool) -> Self {
        let (view, first) = match (quiet, stderr().is_terminal()) {
            (true, _) => (View::Nothing, QUIET),
            (false, true) => (View::Bar(None), QUIET),
            (false, false) => (View::Lines, PLAIN_INTERVAL),
        };
        let started = Instant::now();
        Progress { label: label.to_owned(), total, done: 0, started, next: started + first, view }
    }

    /// `n` more items are done.
    pub(crate) fn add(&mut self, n: u64) {
        self.done += n;
        if matches!(self.view, View::Nothing) {
            return;
        }
        let now = Instant::now();
        if now >= self.next {
            self.show(now);
        }
    }

    /// Removes the bar; lines that were printed stay.
    pub(crate) fn finish(self) {
        if let View::Bar(Some(bar)) = self.view {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, now: Instant) {
        match &mut self.view {
            View::Nothing => {}
            View::Bar(bar) => {
                let bar = bar.get_or_insert_with(|| new_bar(&self.label, self.total, now - self.started));
                bar.set_position(self.done);
                self.next = now + BAR_INTERVAL;
            }
            View::Lines => {
                eprintln!("{}", plain_line(&self.label, self.done, self.total, now - self.started));
                self.next = now + PLAIN_INTERVAL;
            }
        }
    }
}

fn new_bar(label: &str, total: Option<u64>, elapsed: Duration) -> ProgressBar {
    let (bar, template) = match total {
        Some(n) => {
            (ProgressBar::new(n), "{msg} {wide_bar:.cyan/blue} {human_pos}/{human_len}  {rate}  {eta}")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos}  {rate}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template above is well formed").with_key(
        "rate",
        |state: &ProgressState, text: &mut dyn Write| {
            let rate = group(per_second(state.pos(), state.elapsed()).round() as u64);
            write!(text, "{rate}/s").expect("a bar's line takes everything");
        },
    );
    bar.with_style(style).with_message(label.to_owned()).with_elapsed(elapsed)
}

fn plain_line(label: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = group(per_second(done, elapsed).round() as u64);
    let done = group(done);
    match total {
        Some(n) => format!("{label} {done}/{} ({rate}/s)", group(n)),
        None => format!("{label} {done} ({rate}/s)"),
    }
}

/// `n` things in `elapsed`, as things per second; 0 for no time at all.
pub(crate) fn per_second(n: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

/// A number with a comma between thousands.
pub(crate) fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")];
        for (n, text) in cases {
            assert_eq!(group(n), text);
        }
    }

    #[test]
    fn a_plain_line_has_the_count_the_goal_and_the_rate() {
        let second = Duration::from_secs(2);
        assert_eq!(plain_line("sending", 5000, Some(20_000), second), "sending 5,000/20,000 (2,500/s)");
        assert_eq!(plain_line("reading", 10, None, Duration::ZERO), "reading 10 (0/s)");
    }
}
