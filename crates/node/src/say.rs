//! Messages of a verb to its user, on standard error. Daemons have a log instead ([`crate::log`]).

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
#[doc(hidden)]
pub use tutti_wire::code::Code;
use tutti_wire::launch::cut;

/// Prints a line on standard error. The reader may be gone, or the file system be full: no reason
/// to end, so unlike the standard library's macro this one never panics.
///
/// `say!([NodeLost] "...")` for what a reader may act on: the line ends with the code.
#[macro_export]
macro_rules! say {
    ([$code:ident] $($text:tt)*) => {
        $crate::say::line(format_args!(
            "{}",
            $crate::say::Code::$code.mark(&format!($($text)*))
        ))
    };
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// Whether the terminal is in raw mode: a line ends with a carriage return, too.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// From now on the terminal is in raw mode, or not any more.
pub fn set_raw(is_raw: bool) {
    IS_RAW.store(is_raw, Ordering::Relaxed);
}

/// Whether the terminal is in raw mode.
pub fn is_raw() -> bool {
    IS_RAW.load(Ordering::Relaxed)
}

/// Whether failures begin in red.
static IS_RED: AtomicBool = AtomicBool::new(false);

/// From now on the first word of failures is red, or not any more.
pub fn set_red(is_red: bool) {
    IS_RED.store(is_red, Ordering::Relaxed);
}

/// Prints a line on standard error, as `line` does, that tells of a failure: what stands before
/// its first colon is red on a terminal.
pub fn failure(text: Arguments<'_>) {
    line_with(text, IS_RED.load(Ordering::Relaxed));
}

/// Messages that wait while the terminal is a screen, the latest of them, and how many came.
#[derive(Default)]
struct Held {
    lines: VecDeque<String>,
    count: u64,
}

static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// More messages are not held: the oldest is dropped.
const HELD_MAX: usize = 200;

/// From now on messages are held: the terminal is a screen that is painted.
pub fn hold() {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// Prints the messages that were held, and holds no more.
pub fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    for line in held.into_iter().flat_map(|held| held.lines) {
        print(line);
    }
}

/// How many messages came since [`hold`], and the last of them; `None` if none did.
pub fn held() -> Option<(u64, String)> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.as_ref()?;
    Some((held.count, held.lines.back()?.trim_end().to_owned()))
}

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// See [`say`]. In a daemon: an event of its log, of level ERROR.
pub fn line(text: Arguments<'_>) {
    line_with(text, false);
}

fn line_with(text: Arguments<'_>, is_red: bool) {
    if crate::log::has_begun() {
        let text = text.to_string();
        return tracing::error!(target: "tutti", "{}", text.trim_start_matches("tutti: "));
    }
    // In one piece, so that lines of several processes do not mix.
    let mut lines = cut(harmless(&text.to_string(), "\n"), LINE_BYTES_MAX);
    lines.push('\n');
    if let Some(held) = &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        if held.lines.len() >= HELD_MAX {
            held.lines.pop_front();
        }
        held.lines.push_back(lines);
        held.count += 1;
        return;
    }
    if let (true, Some(end)) = (is_red, lines.find(": ")) {
        lines.insert_str(end + 1, "\x1b[0m");
        lines.insert_str(0, "\x1b[31m");
    }
    print(lines);
}

fn print(mut lines: String) {
    if is_raw() && std::io::stderr().is_terminal() {
        lines = lines.replace('\n', "\r\n");
    }
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// A text that may contain names which another user chose: it gives a terminal no orders. With a
/// line end that indents, none of its lines can pass for a line of the log.
pub(crate) fn harmless(text: &str, line_end: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => harmless.push_str(line_end),
            _ => harmless.push(if is_order(c) { '?' } else { c }),
        }
    }
    harmless
}

/// Whether a character is an order to a terminal: a control character, the end of a line or a
/// paragraph, or one that changes the direction of what follows.
pub fn is_order(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}
