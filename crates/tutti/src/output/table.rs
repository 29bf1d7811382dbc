//! Plain tables, aligned, without frames: easy on the eye, and easy to cut.

/// Where a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table of text.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|&(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; control characters in it (a job may be named anything) are shown as `?`.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        let clean = |cell: String| {
            if cell.chars().any(char::is_control) {
                cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
            } else {
                cell
            }
        };
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The table as text, each line ended.
    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().filter_map(|row| row.get(i));
                cells
                    .chain([&self.columns[i].0])
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let width = widths.get(i).copied().unwrap_or(0);
                match self.columns.get(i).map(|column| column.1) {
                    Some(Align::Right) => line.push_str(&format!("{cell:>width$}  ")),
                    _ => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, Table};

    #[test]
    fn columns_align_and_lines_have_no_tail() {
        let mut table = Table::new(&[("JOB", Align::Right), ("NAME", Align::Left)]);
        table.row(["7".into(), "a\x1b[2Jb".into()]);
        table.row(["1234".into(), "solver".into()]);
        assert_eq!(table.render(), " JOB  NAME\n   7  a?[2Jb\n1234  solver\n");
    }
}
