//! Messages on standard error: a verb's to its user, a daemon's to its log.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
#[doc(hidden)]
pub use tutti_wire::code::Code;
use tutti_wire::launch::cut;

/// Says a line on standard error. Nobody may be there to read it, or the log's file system be full:
/// that is no reason to end, so unlike the standard library's macro this one never panics.
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

/// As `say!([Code] ...)`, for what strangers and ordinary users can give cause to say as often as they like: it has
/// an allowance of its own, so that in a log it keeps nothing else out.
#[macro_export]
macro_rules! say_provoked {
    ([$code:ident] $($text:tt)*) => {
        $crate::say::provoked(format_args!(
            "{}",
            $crate::say::Code::$code.mark(&format!($($text)*))
        ))
    };
}

/// See [`say_provoked`].
pub fn provoked(text: Arguments<'_>) {
    match with_allowance(&PROVOKED, |allowance| allowance.take(Instant::now())) {
        None => {}
        Some(0) => line(text),
        Some(left_out) => line(format_args!("{text} ({left_out} more of this kind left out)")),
    }
}

/// How many lines were left out before one that may be said; nothing if it may not.
fn with_allowance(
    of: &Mutex<Option<Allowance>>,
    take: impl FnOnce(&mut Allowance) -> Option<u64>,
) -> Option<u64> {
    of.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map_or(Some(0), take)
}

/// See [`say`].
pub fn line(text: Arguments<'_>) {
    #[cfg(feature = "simulation")]
    if crate::simulated::has_said(text) {
        return;
    }
    // In one piece, so that lines of several processes do not mix.
    let mut lines = cut(harmless(&text.to_string()), LINE_BYTES_MAX);
    lines.push('\n');
    match with_allowance(&ALLOWANCE, |allowance| allowance.take(Instant::now())) {
        None => return,
        Some(0) => {}
        Some(left_out) => lines.insert_str(0, &format!("tutti: {left_out} lines left out\n")),
    }
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// A text that may name what another user has named, as he likes: it gives a terminal no orders, and what is a line
/// of its own cannot be taken for somebody else's.
fn harmless(text: &str) -> String {
    let is_log = ALLOWANCE.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' if is_log => harmless.push_str("\n  "),
            '\n' => harmless.push('\n'),
            _ => harmless.push(if is_order(c) { '?' } else { c }),
        }
    }
    harmless
}

/// Whether a character is an order to a terminal: a control character, the end of a line or a paragraph, or one that
/// changes the direction of what follows.
pub fn is_order(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// From now on what is said is limited: it goes to a log that must not fill its file system, however
/// often somebody gives cause to say something.
pub fn limit_lines() {
    for (which, at_once, every) in
        [(&ALLOWANCE, LINES_AT_ONCE, LINE_EVERY), (&PROVOKED, PROVOKED_AT_ONCE, PROVOKED_EVERY)]
    {
        *which.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Allowance::new(at_once, every));
    }
}

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines that can be said at once, and how long it takes to be allowed another one.
const LINES_AT_ONCE: u32 = 200;
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The same of what can be provoked: some 200 KiB a day.
const PROVOKED_AT_ONCE: u32 = 20;
const PROVOKED_EVERY: Duration = Duration::from_secs(60);

static ALLOWANCE: Mutex<Option<Allowance>> = Mutex::new(None);
static PROVOKED: Mutex<Option<Allowance>> = Mutex::new(None);

/// How much may be said.
struct Allowance {
    at_once: u32,
    every: Duration,
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Allowance {
    fn new(at_once: u32, every: Duration) -> Self {
        Self { at_once, every, left: at_once, since: Instant::now(), left_out: 0 }
    }

    /// Takes one line: how many were left out before it, or nothing if it is left out itself.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = now.duration_since(self.since).as_nanos() / self.every.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX).min(self.at_once);
        if earned > 0 {
            self.left = (self.left + earned).min(self.at_once);
            self.since = now;
        }
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_grows_slowly_however_much_there_is_to_say() {
        let began = Instant::now();
        let mut allowance = Allowance { since: began, ..Allowance::new(LINES_AT_ONCE, LINE_EVERY) };
        let said = (0..1000).filter(|_| allowance.take(began).is_some()).count();
        assert_eq!(said, 200);
        let later = began + Duration::from_secs(3);
        let said: Vec<_> = (0..9).filter_map(|_| allowance.take(later)).collect();
        assert_eq!(said, [800, 0, 0], "and it says how much is missing");
        // What is provoked has far less, and what else there is to say does not wait for it.
        let mut provoked = Allowance::new(PROVOKED_AT_ONCE, PROVOKED_EVERY);
        let day = (0..24 * 3600).map(|second| provoked.since + Duration::from_secs(second));
        let day: Vec<Instant> = day.collect();
        let said = day.iter().filter(|now| provoked.take(**now).is_some()).count();
        assert!((1400..1500).contains(&said), "{said} lines a day");
    }
}
