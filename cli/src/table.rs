//! Plain tables for people: columns as wide as their widest cell, numbers to the right.

/// Rows of cells under a header.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this header.
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Table { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// The lines: header, rule, rows. The first column is aligned to the left, all others to the right.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
        let width = |at: usize| self.rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut text = String::from("  ");
            for (at, width) in widths.iter().enumerate() {
                match at {
                    0 => text += &format!("{:<width$}", cell(row, at)),
                    _ => text += &format!("  {:>width$}", cell(row, at)),
                }
            }
            text.trim_end().to_owned()
        };
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        let rule = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        lines.insert(1, format!("  {}", "─".repeat(rule)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["consumer", "messages"]);
        table.row(["one".to_owned(), "7".to_owned()]);
        table.row(["µs".to_owned(), "12,345".to_owned()]);
        let expected =
            ["  consumer  messages", "  ──────────────────", "  one              7", "  µs          12,345"];
        assert_eq!(table.lines(), expected);
    }
}
