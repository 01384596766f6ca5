//! What became of each part: the table and the closing line.

use std::time::Duration;

/// How a part ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether everything that had to pass did: a skip is a failure where all was required.
    pub(crate) fn is_success(&self, require_all: bool) -> bool {
        self.rows.iter().all(|row| match row.verdict {
            Verdict::Passed => true,
            Verdict::Failed(_) => false,
            Verdict::Skipped(_) => !require_all,
        })
    }

    /// The table, then one plain line that other programs may read.
    pub(crate) fn render(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for row in &self.rows {
            let (word, why) = match &row.verdict {
                Verdict::Passed => (&mut passed, ("passed", "")),
                Verdict::Failed(why) => (&mut failed, ("FAILED", why.lines().next().unwrap_or(""))),
                Verdict::Skipped(why) => (&mut skipped, ("skipped", why.as_str())),
            }
            .count();
            let seconds = row.took.as_secs_f64();
            text += format!("{:width$}  {word:7}  {seconds:7.1} s  {why}", row.name).trim_end();
            text.push('\n');
        }
        text + &format!("\n{passed} passed, {failed} failed, {skipped} skipped\n")
    }
}

/// Counts a verdict while naming it, so that the two cannot disagree.
trait Count<T> {
    fn count(self) -> T;
}

impl<T> Count<T> for (&mut u32, T) {
    fn count(self) -> T {
        *self.0 += 1;
        self.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let row =
            |name: &str, verdict| Row { name: name.to_owned(), verdict, took: Duration::from_millis(1500) };
        let mut report = Report::default();
        report.add(row("fmt", Verdict::Passed));
        report.add(row("real-lab", Verdict::Skipped("no Maven".to_owned())));
        report
    }

    #[test]
    fn the_closing_line_counts_parts() {
        let text = report().render();
        assert!(text.ends_with("\n1 passed, 0 failed, 1 skipped\n"), "{text}");
        assert!(text.contains("real-lab  skipped      1.5 s  no Maven\n"), "{text}");
    }

    #[test]
    fn a_skip_fails_only_where_all_was_required() {
        assert!(report().is_success(false));
        assert!(!report().is_success(true));
    }
}
