//! Plain tables, aligned, without frames: easy on the eye, and easy to cut.

use super::colours::{Mark, Paint};
use std::collections::BTreeMap;
use tutti_node::say::is_order;

/// Where a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table of text.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// What is said of rows, by the number of the last line of each.
    notes: BTreeMap<usize, String>,
    spare: &'static [&'static str],
    is_folded: bool,
    paints: &'static [(&'static str, Painter)],
}

/// The colour of a cell.
type Painter = fn(&str) -> Option<Paint>;

/// A line of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableLine {
    /// Its text, without the end of the line.
    pub text: String,
    /// What of it has a colour.
    pub marks: Vec<Mark>,
}

/// The lines as text, each ended.
pub(super) fn text_of(lines: &[TableLine]) -> String {
    lines.iter().flat_map(|line| [&line.text, "\n"]).collect()
}

/// A cell that is longer is cut where the table has too little room (a name may be of any length),
/// and to how much where it still has.
const CELL_MAX: usize = 24;
const CELL_SHORT: usize = 15;

/// How notes below rows are set off, and how wide they are where it is unknown how much room there
/// is.
const NOTE_INDENT: &str = "    ";
const NOTE_WIDTH: usize = 100;
const NOTE_WIDTH_MIN: usize = 20;

/// The last column is folded only if so much of it fits in a line.
const FOLDED_MIN: usize = 12;

impl Table {
    /// A table with these columns and no rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|&(name, align)| (name.to_owned(), align)).collect();
        let (rows, notes) = (Vec::new(), BTreeMap::new());
        Self { columns, rows, notes, spare: &[], is_folded: true, paints: &[] }
    }

    /// Which columns go, the first one first, where there is too little room for all.
    pub const fn can_spare(mut self, columns: &'static [&'static str]) -> Self {
        self.spare = columns;
        self
    }

    /// Which columns have colours on a terminal, and what decides on the colour of a cell.
    pub const fn painted(mut self, paints: &'static [(&'static str, Painter)]) -> Self {
        self.paints = paints;
        self
    }

    /// Has each row in one line: what is too long of the last column is cut.
    pub const fn in_single_lines(mut self) -> Self {
        self.is_folded = false;
        self
    }

    /// Adds a row; control characters in it (a job may be named anything) are shown as `?`.
    pub fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// Says something of the latest row, below it.
    pub fn note(&mut self, text: &str) {
        if let Some(last) = self.rows.len().checked_sub(1) {
            self.notes.insert(last, plain(text));
        }
    }

    /// The table as text, each line ended.
    pub fn render(&self) -> String {
        text_of(&self.lines_with(NOTE_WIDTH))
    }

    fn lines_with(&self, note_width: usize) -> Vec<TableLine> {
        let widths = self.widths();
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let painter = |column: usize| {
            let name = self.columns.get(column).map(|column| &column.0)?;
            self.paints.iter().find(|(painted, _)| painted == name).map(|(_, painter)| painter)
        };
        let painters: Vec<Option<&Painter>> = (0..self.columns.len()).map(painter).collect();
        let mut lines = Vec::new();
        for (number, row) in std::iter::once(&header).chain(&self.rows).enumerate() {
            let (mut line, mut marks, mut from) = (String::new(), Vec::new(), 0);
            for (i, cell) in row.iter().enumerate() {
                let width = widths.get(i).copied().unwrap_or(0);
                let (count, mut before) = (cell.chars().count(), 0);
                match self.columns.get(i).map(|column| column.1) {
                    Some(Align::Right) => {
                        before = width.saturating_sub(count);
                        line.push_str(&format!("{cell:>width$}  "));
                    }
                    _ => line.push_str(&format!("{cell:<width$}  ")),
                }
                let painter = painters.get(i).copied().flatten().filter(|_| number > 0);
                if let Some(paint) = painter.and_then(|painter| painter(cell)) {
                    marks.push(Mark { from: from + before, count, paint });
                }
                from += width.max(count) + 2;
            }
            line.truncate(line.trim_end().len());
            lines.push(TableLine { text: line, marks });
            let note = number.checked_sub(1).and_then(|row| self.notes.get(&row));
            for line in note.iter().flat_map(|note| fold(note, note_width - NOTE_INDENT.len())) {
                lines.push(TableLine { text: format!("{NOTE_INDENT}{line}"), marks: Vec::new() });
            }
        }
        lines
    }

    /// The table as text in lines of at most `width` characters, as far as possible: long cells are
    /// cut, then columns that can be spared go, then the last column is folded, or cut.
    pub fn render_within(&self, width: usize) -> String {
        text_of(&self.lines_within(Some(width)))
    }

    /// The lines of [`Table::render_within`], or of [`Table::render`] without a width.
    pub fn lines_within(&self, width: Option<usize>) -> Vec<TableLine> {
        let Some(width) = width else { return self.lines_with(NOTE_WIDTH) };
        let mut table = self.clone();
        let last = table.columns.len().saturating_sub(1);
        if table.width() > width {
            table.cut_cells(last, CELL_MAX);
        }
        for name in self.spare {
            // What is left of the last column is folded: only a scrap of it would be a loss.
            if table.width_before_last() + table.last_width().min(2 * FOLDED_MIN) <= width {
                break;
            }
            table.drop_column(name);
        }
        if table.width_before_last() + table.last_width().min(FOLDED_MIN) > width {
            table.cut_cells(table.columns.len().saturating_sub(1), CELL_SHORT);
        }
        let before = table.width_before_last();
        if table.width() > width && before + FOLDED_MIN <= width {
            if table.is_folded {
                table.fold_last(width - before);
            } else {
                table.rows.iter_mut().filter_map(|row| row.last_mut()).for_each(|cell| {
                    cut(cell, width - before);
                });
            }
        }
        table.lines_with(width.clamp(NOTE_WIDTH_MIN, NOTE_WIDTH))
    }

    fn widths(&self) -> Vec<usize> {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(i));
            cells.chain([&self.columns[i].0]).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }

    fn width(&self) -> usize {
        self.width_before_last() + self.last_width()
    }

    fn width_before_last(&self) -> usize {
        let widths = self.widths();
        widths.iter().rev().skip(1).map(|width| width + 2).sum()
    }

    fn last_width(&self) -> usize {
        self.widths().last().copied().unwrap_or(0)
    }

    fn cut_cells(&mut self, last: usize, longest: usize) {
        for cell in self.rows.iter_mut().flat_map(|row| row.iter_mut().take(last)) {
            cut(cell, longest);
        }
    }

    fn drop_column(&mut self, name: &str) {
        if let Some(index) = self.columns.iter().position(|(column, _)| column == name) {
            self.columns.remove(index);
            for row in self.rows.iter_mut().filter(|row| row.len() > index) {
                row.remove(index);
            }
        }
    }

    fn fold_last(&mut self, width: usize) {
        let (mut folded, mut notes) = (Vec::new(), std::mem::take(&mut self.notes));
        let columns = self.columns.len();
        for (number, mut row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            let Some(last) = row.pop() else { continue };
            for (index, line) in fold(&last, width).into_iter().enumerate() {
                let mut line_row = if index == 0 { row.clone() } else { Vec::new() };
                line_row.resize(columns - 1, String::new());
                line_row.push(line);
                folded.push(line_row);
            }
            if let Some(note) = notes.remove(&number) {
                self.notes.insert(folded.len() - 1, note);
            }
        }
        self.rows = folded;
    }
}

fn cut(cell: &mut String, longest: usize) {
    if cell.chars().count() > longest {
        *cell = cell.chars().take(longest.saturating_sub(3)).chain("...".chars()).collect();
    }
}

/// Breaks a text into lines of at most `width` characters, at spaces where there are some.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is always one");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.extend([' '].iter().take(gap).chain(&word));
                break;
            }
            if used == 0 {
                line.extend(word.drain(..width.max(1)));
            }
            lines.push(String::new());
        }
    }
    lines
}

/// A text in one line, which moves no cursor, colours and turns round nothing: what would is shown
/// as `?`.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_order(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::colours::{Mark, Paint, of_state, painted};
    use super::{Align, Table, fold};

    #[test]
    fn a_row_can_have_a_single_line() {
        let mut table = Table::new(&[("JOB", Align::Right), ("WHERE", Align::Left)]);
        table.row(["7".into(), "a reason that takes two lines where it is folded".into()]);
        assert_eq!(table.render_within(30).lines().count(), 3);
        let text = table.in_single_lines().render_within(30);
        assert_eq!(text, "JOB  WHERE\n  7  a reason that takes tw...\n");
    }

    #[test]
    fn a_text_is_folded_at_spaces_and_long_words_are_cut() {
        assert_eq!(fold("", 5), [""]);
        assert_eq!(fold("one two three", 7), ["one two", "three"]);
        assert_eq!(fold("/a/long/path x", 5), ["/a/lo", "ng/pa", "th x"]);
        assert_eq!(fold("abc", 0), ["a", "b", "c", ""]);
    }

    #[test]
    fn a_table_fits_itself_to_its_room() {
        let columns = [("JOB", Align::Right), ("NAME", Align::Left), ("WHERE", Align::Left)];
        let mut table = Table::new(&columns).can_spare(&["NAME"]);
        table.row(["7".into(), "n".repeat(40), "exit 1: a task failed: no such program".into()]);
        assert_eq!(table.render_within(200), table.render());
        assert_eq!(
            table.render_within(62),
            format!(
                "JOB  NAME{0}WHERE\n  7  {1}...  exit 1: a task failed: no such\n{2}program\n",
                " ".repeat(22),
                "n".repeat(21),
                " ".repeat(31)
            )
        );
        assert_eq!(
            table.render_within(32),
            "JOB  WHERE\n  7  exit 1: a task failed: no\n     such program\n"
        );
        let lines = table.render_within(1);
        assert_eq!(lines.lines().count(), 2, "too narrow for anything: {lines}");
    }

    #[test]
    fn what_is_said_of_a_row_stands_below_it() {
        let mut table = Table::new(&[("NAME", Align::Left), ("RANGE", Align::Left)]);
        table.row(["rows".into(), "one, two or three".into()]);
        table.note("How many rows take turns.");
        table.row(["lead".into(), "any".into()]);
        let expected =
            "NAME  RANGE\nrows  one, two or three\n    How many rows take turns.\nlead  any\n";
        assert_eq!(table.render(), expected);
        let expected = "NAME  RANGE\nrows  one, two or\n      three\n    How many rows take\n    turns.\n\
                        lead  any\n";
        assert_eq!(table.render_within(22), expected);
    }

    #[test]
    fn colours_change_no_width_and_follow_a_column_that_moves() {
        let columns = [("JOB", Align::Right), ("NAME", Align::Left), ("STATE", Align::Right)];
        let mut table = Table::new(&columns).can_spare(&["NAME"]).painted(&[("STATE", of_state)]);
        table.row(["7".into(), "naïve".into(), "running".into()]);
        table.row(["8".into(), "b".into(), "failed".into()]);
        let lines = table.lines_within(None);
        let mark = |from, count, paint| vec![Mark { from, count, paint }];
        assert_eq!(lines[1].marks, mark(12, 7, Paint::Good));
        assert_eq!(lines[2].marks, mark(13, 6, Paint::Bad));
        let line = painted(&lines[2].text, &lines[2].marks);
        assert_eq!(line, "  8  b       \u{1b}[31mfailed\u{1b}[0m");
        assert!(!table.render().contains('\u{1b}') && lines[0].marks.is_empty());
        assert_eq!(table.lines_within(Some(13))[1].marks, mark(5, 7, Paint::Good));
    }

    #[test]
    fn columns_align_and_lines_have_no_tail() {
        let mut table = Table::new(&[("JOB", Align::Right), ("NAME", Align::Left)]);
        table.row(["7".into(), "a\x1b[2Jb\u{9b}\u{202e}".into()]);
        table.row(["1234".into(), "solver".into()]);
        assert_eq!(table.render(), " JOB  NAME\n   7  a?[2Jb??\n1234  solver\n");
    }
}
