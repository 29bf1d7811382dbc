//! Messages on standard error: a verb's to its user, a daemon's to its log.

use std::fmt::Arguments;
use std::io::Write;

/// Says a line on standard error. Nobody may be there to read it, or the log's file system be full:
/// that is no reason to end, so unlike the standard library's macro this one never panics.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// See [`say`].
pub(crate) fn line(text: Arguments<'_>) {
    // In one piece, so that lines of several processes do not mix.
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
