//! The log of a daemon: a line for each event of `tracing`, on standard error.
//!
//! ```text
//! 2026-11-25T13:40:01.123456Z WARN agent::tree::above: cannot reach the cluster: timed out [T062]
//! 2026-11-25T13:40:01.130007Z WARN keeper::start: cannot watch a new process: Too many open files job=7 [T070]
//! ```
//!
//! Time (UTC), level, module, text, fields; the field `code` is an error code and comes last, as in
//! messages. Where systemd's journal reads standard error, it adds the time itself and takes the
//! level from `<4>` in front of a line.
//!
//! A log must not fill its file system, however often a peer or a user causes a line. So lines are
//! limited: all of them, and more narrowly those with the target [`PROVOKED`], so that these keep
//! no other line out.

use crate::say::harmless;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tutti_wire::launch::cut;

/// The target of events that ordinary users and other machines can cause as often as they like.
pub const PROVOKED: &str = "provoked";

/// A longer line is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines that may come at once, and how long it takes to be allowed another one.
const LINES_AT_ONCE: u32 = 200;
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The same for provoked ones: some 200 KiB a day.
const PROVOKED_AT_ONCE: u32 = 20;
const PROVOKED_EVERY: Duration = Duration::from_secs(60);

/// From now on events of this process are lines of its log. Those of level DEBUG and below are not.
pub fn begin() {
    let log = Log {
        of_journal: is_read_by_journal(),
        all: Mutex::new(Allowance::new(LINES_AT_ONCE, LINE_EVERY)),
        provoked: Mutex::new(Allowance::new(PROVOKED_AT_ONCE, PROVOKED_EVERY)),
    };
    // Only the first has an effect: a process has one log.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log));
    HAS_BEGUN.store(true, Ordering::Relaxed);
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether this process has a log.
pub(crate) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// Whether standard error is a stream of systemd's journal (`man systemd.exec`, JOURNAL_STREAM).
fn is_read_by_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = std::io::stderr();
    nix::sys::stat::fstat(stderr.as_fd())
        .is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Writes lines, as many as are allowed.
struct Log {
    of_journal: bool,
    all: Mutex<Allowance>,
    provoked: Mutex<Allowance>,
}

impl<S: Subscriber> Layer<S> for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let take = |from: &Mutex<Allowance>| {
            from.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
        };
        let is_provoked = event.metadata().target() == PROVOKED;
        let more = if is_provoked { take(&self.provoked) } else { Some(0) };
        let Some((more, left_out)) = more.zip(take(&self.all)) else { return };
        let mut lines = String::new();
        if left_out > 0 {
            self.begin_line(&mut lines, Level::WARN, "log");
            let _ = writeln!(lines, "{left_out} lines left out");
        }
        self.begin_line(&mut lines, *event.metadata().level(), module(event.metadata()));
        let mut parts = Parts::default();
        event.record(&mut parts);
        lines.push_str(&cut(harmless(&parts.line(more), "\n  "), LINE_BYTES_MAX));
        lines.push('\n');
        // In one piece, so that lines of several processes do not mix. It may be that no one reads
        // them, or that the file system is full: no reason to end.
        let _ = std::io::stderr().lock().write_all(lines.as_bytes());
    }
}

impl Log {
    fn begin_line(&self, lines: &mut String, level: Level, module: &str) {
        let _ = match self.of_journal {
            true => write!(lines, "<{}>{module}: ", priority(level)),
            false => write!(lines, "{:.6} {level} {module}: ", jiff::Timestamp::now()),
        };
    }
}

/// As `man syslog` has it.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// The text of a line of a log, without what is in front of it.
#[must_use]
pub fn text_of(line: &str) -> &str {
    let mut words = line.splitn(4, ' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(time), Some("ERROR" | "WARN" | "INFO"), Some(module), Some(text))
            if time.ends_with('Z') && module.ends_with(':') =>
        {
            text
        }
        _ => line,
    }
}

/// Where an event comes from: its target, which is its module unless it has another, without our
/// name in front.
fn module(metadata: &tracing::Metadata<'static>) -> &'static str {
    let path = match metadata.target() {
        PROVOKED => metadata.module_path().unwrap_or(PROVOKED),
        target => target,
    };
    path.strip_prefix("tutti_").unwrap_or(path)
}

/// What an event has.
#[derive(Default)]
struct Parts {
    text: String,
    fields: String,
    code: String,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            "code" => write!(self.code, " [{value:?}]"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Parts {
    /// The line, after so many like it were left out.
    fn line(&self, left_out: u64) -> String {
        let Self { text, fields, code } = self;
        // A text of several lines, as an end's reason may be, has fields and code behind the first.
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        // The text of an error has its code already.
        let code = if first.ends_with(code.as_str()) { "" } else { code };
        let mut line = format!("{first}{fields}{code}");
        if left_out > 0 {
            let _ = write!(line, " ({left_out} more of this kind left out)");
        }
        if !rest.is_empty() {
            line.push('\n');
            line.push_str(rest);
        }
        line
    }
}

/// How much may be logged.
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

    #[test]
    fn a_line_has_text_fields_and_the_code_once() {
        let parts = |text: &str, code: &str| Parts {
            text: text.into(),
            fields: " job=7".into(),
            code: code.into(),
        };
        assert_eq!(parts("cannot run", " [T005]").line(0), "cannot run job=7 [T005]");
        assert_eq!(parts("cannot run [T005]", " [T005]").line(0), "cannot run [T005] job=7");
        let line = "2026-11-25T13:40:01.123456Z WARN keeper::scratch: cannot run job=7 [T005]";
        assert_eq!(text_of(line), "cannot run job=7 [T005]");
        assert_eq!(text_of("thread panicked at x"), "thread panicked at x");
        let two = parts("cannot run\nits last words", "").line(3);
        assert_eq!(two, "cannot run job=7 (3 more of this kind left out)\nits last words");
    }
}
