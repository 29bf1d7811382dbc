//! How answers are shown: as a table for people or as JSON for programs, from the same structs.

mod table;

pub(crate) use table::{Align, Table};

use serde::Serialize;
use std::io::Write;

/// Prints a value as indented JSON.
///
/// # Errors
/// If standard output can't be written.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
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
