//! How answers are shown: as a table for people or as JSON for programs, from the same structs.

pub(crate) mod account;
pub(crate) mod ended;
mod table;

pub(crate) use table::{Align, Table, fold, plain};

use serde::Serialize;
use std::io::Write;
use tutti_core::Counted;

/// Prints a value as indented JSON.
///
/// # Errors
/// If standard output can't be written.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Prints a table, fitted to the terminal if that is where it goes, else to what `COLUMNS` says (as `watch` has it
/// say), else whole.
///
/// # Errors
/// If standard output can't be written.
pub(crate) fn print_table(table: &Table) -> anyhow::Result<()> {
    match terminal_width().or_else(said_width) {
        Some(width) => print(&table.render_within(width)),
        None => print(&table.render()),
    }
}

/// How many characters fit in a line of the terminal that standard output is; `None` if it is none.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size().map(|(width, _)| width)
}

/// Its columns and lines.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some((width.0.into(), height.0.into()))
}

/// How many characters are to be in a line elsewhere, if somebody has said so.
pub(crate) fn said_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|&width| width > 0)
}

/// A number of things: `1 job`, `2 jobs`.
pub(crate) fn counted(number: impl Into<u64>, what: &str) -> String {
    Counted(number.into(), what).to_string()
}

/// Prints text to standard output.
///
/// # Errors
/// If standard output can't be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
