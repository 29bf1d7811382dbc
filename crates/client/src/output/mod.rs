//! How answers are shown: as a table for people or as JSON for programs, from the same structs.

pub mod account;
pub mod colours;
pub mod ended;
mod table;

pub use table::{Align, Table, TableLine, fold, plain};

use serde::Serialize;
use std::io::Write;
use tutti_node::say::is_order;
use tutti_types::{Counted, JobId, Rank};

/// Prints a value as indented JSON.
///
/// # Errors
/// If standard output can't be written.
pub fn print_json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    let mut text = without_orders(&serde_json::to_string_pretty(value)?);
    text.push('\n');
    print(&text)
}

/// A list that is printed as [`print_json`] prints it, some items at a time: none is kept.
#[derive(Default)]
pub struct JsonList {
    has_items: bool,
}

impl JsonList {
    /// Prints the next items.
    ///
    /// # Errors
    /// If standard output can't be written.
    pub fn items<T: Serialize>(&mut self, items: &[T]) -> anyhow::Result<()> {
        print(&self.text_of(items)?)
    }

    fn text_of<T: Serialize>(&mut self, items: &[T]) -> anyhow::Result<String> {
        let mut text = String::new();
        for item in items {
            text.push_str(if self.has_items { ",\n  " } else { "[\n  " });
            self.has_items = true;
            // A line's end within a string is written as `\n`.
            let item = without_orders(&serde_json::to_string_pretty(item)?);
            text.push_str(&item.replace('\n', "\n  "));
        }
        Ok(text)
    }

    /// Prints the end of the list.
    ///
    /// # Errors
    /// If standard output can't be written.
    pub fn end(self) -> anyhow::Result<()> {
        print(self.last_text())
    }

    const fn last_text(&self) -> &'static str {
        if self.has_items { "\n]\n" } else { "[]\n" }
    }
}

/// The same JSON, with what is an order to a terminal and yet allowed within its strings written as
/// numbers.
pub fn without_orders(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_order(c) && c != '\n' {
            // All of them are below 0x10000.
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text
}

/// A line that a task has written, for programs: `#/$defs/logs` of
/// `docs/reference/verbs.schema.json`.
#[derive(Clone, Debug, Serialize)]
pub struct OutputLine {
    job: JobId,
    /// The lowest rank that may have written it.
    rank: Rank,
    /// How many ranks, from that one on, may have written it.
    ranks: u32,
    /// Whether it is of standard error.
    error: bool,
    line: String,
}

impl OutputLine {
    /// What the lines of this rank have in common.
    #[must_use]
    pub const fn of(job: JobId, rank: Rank, is_error: bool) -> Self {
        Self { job, rank, ranks: 1, error: is_error, line: String::new() }
    }

    /// The same of a file into which several ranks write, from this one on.
    #[must_use]
    pub fn of_ranks(self, ranks: u32) -> Self {
        Self { ranks, ..self }
    }

    /// A line of theirs as a line of JSON. What is no UTF-8 in it is replaced.
    #[must_use]
    pub fn with(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = String::from_utf8_lossy(line).into_owned();
        let json = serde_json::to_string(&Self { line, ..self.clone() });
        without_orders(&json.unwrap_or_default()) + "\n"
    }
}

/// Prints a table, fitted to the terminal if that is where it goes, else to what `COLUMNS` says (as
/// `watch` has it say), else whole.
///
/// # Errors
/// If standard output can't be written.
pub fn print_table(table: &Table) -> anyhow::Result<()> {
    let lines = table.lines_within(terminal_width().or_else(said_width));
    let text = match colours::on_stdout() {
        true => lines.iter().map(|line| colours::painted(&line.text, &line.marks) + "\n").collect(),
        false => table::text_of(&lines),
    };
    print(&text)
}

/// How many characters fit in a line of the terminal that standard output is; `None` if it is none.
pub fn terminal_width() -> Option<usize> {
    terminal_size().map(|(width, _)| width)
}

/// Its columns and lines.
pub fn terminal_size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some((width.0.into(), height.0.into()))
}

/// How many characters are to be in a line elsewhere, if set.
pub fn said_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|&width| width > 0)
}

/// A number of things: `1 job`, `2 jobs`.
pub fn counted(number: impl Into<u64>, what: &str) -> String {
    Counted(number.into(), what).to_string()
}

/// Prints text to standard output.
///
/// # Errors
/// If standard output can't be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes to standard output.
///
/// # Errors
/// If standard output can't be written.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{JsonList, without_orders};

    #[test]
    fn a_list_in_pieces_is_the_same_json() {
        let all = [("a\nb", vec![1, 2]), ("", vec![]), ("\u{202e}", vec![3])];
        for pages in [&[][..], &[&all[..]], &[&all[..1], &[], &all[1..]]] {
            let mut list = JsonList::default();
            let mut text = String::new();
            pages.iter().for_each(|page| text.push_str(&list.text_of(page).unwrap()));
            text.push_str(list.last_text());
            let whole: Vec<_> = pages.concat();
            assert_eq!(text, without_orders(&serde_json::to_string_pretty(&whole).unwrap()) + "\n");
        }
    }

    #[test]
    fn json_orders_nothing_of_a_terminal_and_means_the_same() {
        let name = "a\x1b[2J\u{7f}\u{9b}b\u{202e}\nc";
        let json = without_orders(&serde_json::to_string(name).unwrap());
        assert!(json.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
