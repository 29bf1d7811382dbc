//! Messages on standard error: a verb's to its user, a daemon's to its log.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tutti_wire::launch::cut;

/// Says a line on standard error. Nobody may be there to read it, or the log's file system be full:
/// that is no reason to end, so unlike the standard library's macro this one never panics.
///
/// `say!([NodeLost] "...")` for what a reader may act on: the line ends with the code.
macro_rules! say {
    ([$code:ident] $($text:tt)*) => {
        $crate::say::line(format_args!(
            "{}",
            ::tutti_wire::code::Code::$code.mark(&format!($($text)*))
        ))
    };
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// See [`say`].
pub(crate) fn line(text: Arguments<'_>) {
    #[cfg(test)]
    if crate::world::has_said(text) {
        return;
    }
    // In one piece, so that lines of several processes do not mix.
    let mut lines = cut(text.to_string(), LINE_BYTES_MAX);
    lines.push('\n');
    if let Some(allowance) = &mut *ALLOWANCE.lock().unwrap_or_else(PoisonError::into_inner) {
        match allowance.take(Instant::now()) {
            None => return,
            Some(0) => {}
            Some(left_out) => lines.insert_str(0, &format!("tutti: {left_out} lines left out\n")),
        }
    }
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// From now on what is said is limited: it goes to a log that must not fill its file system, however
/// often somebody gives cause to say something.
pub(crate) fn limit_lines() {
    *ALLOWANCE.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Allowance { left: LINES_AT_ONCE, since: Instant::now(), left_out: 0 });
}

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines that can be said at once, and how long it takes to be allowed another one.
const LINES_AT_ONCE: u32 = 200;
const LINE_EVERY: Duration = Duration::from_secs(1);

static ALLOWANCE: Mutex<Option<Allowance>> = Mutex::new(None);

/// How much may be said.
struct Allowance {
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Allowance {
    /// Takes one line: how many were left out before it, or nothing if it is left out itself.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = now.duration_since(self.since).as_nanos() / LINE_EVERY.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX).min(LINES_AT_ONCE);
        if earned > 0 {
            self.left = (self.left + earned).min(LINES_AT_ONCE);
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
        let mut allowance = Allowance { left: LINES_AT_ONCE, since: began, left_out: 0 };
        let said = (0..1000).filter(|_| allowance.take(began).is_some()).count();
        assert_eq!(said, 200);
        let later = began + Duration::from_secs(3);
        let said: Vec<_> = (0..9).filter_map(|_| allowance.take(later)).collect();
        assert_eq!(said, [800, 0, 0], "and it says how much is missing");
    }
}
