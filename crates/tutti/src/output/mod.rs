//! How answers are shown: as a table for people or as JSON for programs, from the same structs.

mod table;

pub(crate) use table::{Align, Table};

use serde::Serialize;
use std::fmt::Arguments;
use std::io::Write;

/// Says a line on standard error. Nobody may be there to read it, or the log's file system be full:
/// that is no reason to end, so unlike the standard library's macro this one never panics.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::say_line(format_args!($($text)*)) };
}
pub(crate) use say;

/// See [`say`].
pub(crate) fn say_line(text: Arguments<'_>) {
    // In one piece, so that lines of several processes do not mix.
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

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
