//! Lengths of time, sizes and counts as users write and read them.
//!
//! Everything is integer arithmetic: a length is a number of nanoseconds, a size a number of bytes,
//! and what does not fit is an error, never a wrapped or rounded value. What a user writes finer
//! than one nanosecond or one byte is cut off.
//!
//! `K`, `M`, `G`, `T` and `P` are powers of 1024, with or without `B` or `iB` behind them: it is
//! memory that is meant, and `512M` must be the same amount here, in a script for Slurm and in the
//! kernel's files.

use alloc::format;
use alloc::string::String;
use tutti_types::Nanos;

/// Why a text is no length, size or count. The message shows what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is no length of time.
    #[error(
        "'{text}' is no length of time; accepted are 90s, 100ms, 1.5h, 1h30m, 2d, HH:MM:SS \
         and D-HH:MM:SS (units: ns, us, ms, s, m, h, d)"
    )]
    NotADuration {
        /// What was given.
        text: String,
    },
    /// It is no limit of time of a `#SBATCH` line.
    #[error(
        "'{text}' is no time limit; sbatch accepts minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S"
    )]
    NotASlurmTime {
        /// What was given.
        text: String,
    },
    /// It is a length of time without a unit.
    #[error("'{text}' has no unit; write {text}s for seconds or {text}m for minutes")]
    NoUnit {
        /// What was given.
        text: String,
    },
    /// It is no size.
    #[error(
        "'{text}' is no size; accepted are a number of bytes, 512M, 4G, 1.5GiB (K, M, G, T and P \
         are powers of 1024)"
    )]
    NotASize {
        /// What was given.
        text: String,
    },
    /// It is no count.
    #[error("'{text}' is no count; accepted is a whole number such as 4")]
    NotACount {
        /// What was given.
        text: String,
    },
    /// It is more than can be counted.
    #[error("'{text}' is too much; the most is {most}")]
    TooLarge {
        /// What was given.
        text: String,
        /// The most that is possible.
        most: &'static str,
    },
}

const NS_PER_SECOND: u64 = 1_000_000_000;
const DURATION_UNITS: [(&str, u64); 8] = [
    ("d", 86_400 * NS_PER_SECOND),
    ("h", 3_600 * NS_PER_SECOND),
    ("min", 60 * NS_PER_SECOND),
    ("m", 60 * NS_PER_SECOND),
    ("s", NS_PER_SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const SIZE_LETTERS: [(u8, &str); 5] =
    [(b'k', "K"), (b'm', "M"), (b'g', "G"), (b't', "T"), (b'p', "P")];

/// More digits than any number that fits has; longer ones can't overflow what they are kept in.
const DIGITS_MAX: usize = 20;
/// A digit further behind the point is worth less than a nanosecond of a day or a byte of 1P.
const FRACTION_DIGITS_MAX: usize = 18;

/// Reads a length of time: `90s`, `100ms`, `2s`, `1.5h`, `1h30m`, `HH:MM:SS`,
/// `D-HH:MM:SS`, and Slurm's shorter forms `MM:SS`, `D-HH`, `D-HH:MM`.
///
/// A number alone is rejected, except zero: `-t 30` means minutes elsewhere.
///
/// # Errors
/// If it is none of these, or more than 584 years.
pub fn parse_duration(text: &str) -> Result<Nanos, UnitError> {
    let trimmed = text.trim();
    if let Some((number, "")) = Number::split(trimmed)
        && number.times(NS_PER_SECOND) > 0
    {
        return Err(UnitError::NoUnit { text: shown(trimmed) });
    }
    let total_ns = if trimmed.contains([':', '-']) { clock_ns(trimmed) } else { units_ns(trimmed) };
    match total_ns {
        None => Err(UnitError::NotADuration { text: shown(text) }),
        Some(ns) => u64::try_from(ns)
            .map(Nanos)
            .map_err(|_| UnitError::TooLarge { text: shown(text), most: "584 years" }),
    }
}

/// Reads a size in bytes: a plain number, or one with `K`, `M`, `G`, `T` or `P` (powers of 1024;
/// `KB` and `KiB` mean the same), in upper or lower case.
///
/// # Errors
/// If it is none of these, or does not fit into 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let not_a_size = || UnitError::NotASize { text: shown(text) };
    let (number, suffix) = Number::split(text.trim()).ok_or_else(not_a_size)?;
    let unit = size_unit(suffix.trim_start()).ok_or_else(not_a_size)?;
    u64::try_from(number.times(unit))
        .map_err(|_| UnitError::TooLarge { text: shown(text), most: "16383P" })
}

/// Reads a count of things, such as tasks or processors.
///
/// # Errors
/// If it is no whole number, or does not fit into 32 bits.
pub fn parse_count(text: &str) -> Result<u32, UnitError> {
    let trimmed = text.trim();
    if trimmed.is_empty() || !trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitError::NotACount { text: shown(text) });
    }
    trimmed.parse().map_err(|_| UnitError::TooLarge { text: shown(text), most: "4294967295" })
}

/// A size for a table, in at most five characters or so: `0`, `512`, `1.5K`, `12M`, `4.0G`. Cut
/// off, not rounded: a limit that is nearly reached never looks reached.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let mut unit = 1u64;
    let mut name = "";
    for (_, letter) in SIZE_LETTERS {
        match unit.checked_mul(1024) {
            Some(next) if next <= bytes => (unit, name) = (next, letter),
            _ => break,
        }
    }
    if unit == 1 { format!("{bytes}") } else { with_tenths(bytes, unit, name) }
}

/// A length of time for a table, in the two largest units that say something: `850us`, `1.2ms`,
/// `12s`, `3m04s`, `2h13m`, `5d07h`. Cut off, not rounded.
#[must_use]
pub fn format_duration_short(length: Nanos) -> String {
    let ns = length.0;
    let seconds = ns / NS_PER_SECOND;
    match ns {
        0 => "0s".into(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => with_tenths(ns, 1_000, "us"),
        1_000_000..NS_PER_SECOND => with_tenths(ns, 1_000_000, "ms"),
        _ if seconds < 60 => with_tenths(ns, NS_PER_SECOND, "s"),
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// As [`format_duration_short`], for what is known to the second only: `3s`, `3m04s`.
#[must_use]
pub fn format_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        _ => format_duration_short(Nanos::from_secs(seconds)),
    }
}

/// One digit behind the point below ten, none above.
fn with_tenths(amount: u64, unit: u64, name: &str) -> String {
    let whole = amount / unit;
    if whole >= 10 {
        return format!("{whole}{name}");
    }
    // The remainder is below a unit, and every unit is far below a tenth of 64 bits.
    format!("{whole}.{}{name}", amount % unit * 10 / unit)
}

/// A number that is not negative: a whole part and a fraction of `fraction / 10^digits`.
struct Number {
    whole: u64,
    fraction: u64,
    digits: u32,
}

impl Number {
    /// The number that a text begins with, and the rest. None if it begins with none, or with one
    /// of too many digits.
    fn split(text: &str) -> Option<(Self, &str)> {
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(behind) => split_digits(behind),
            None => ("", rest),
        };
        let plain_point = fraction.is_empty() && rest.len() + whole.len() != text.len();
        if (whole.is_empty() && fraction.is_empty()) || plain_point || whole.len() > DIGITS_MAX {
            return None;
        }
        let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
        let number = Self {
            whole: if whole.is_empty() { 0 } else { whole.parse().ok()? },
            fraction: if fraction.is_empty() { 0 } else { fraction.parse().ok()? },
            digits: u32::try_from(fraction.len()).ok()?,
        };
        Some((number, rest))
    }

    /// The number times a unit, cut off below one.
    fn times(&self, unit: u64) -> u128 {
        let unit = u128::from(unit);
        u128::from(self.whole) * unit + u128::from(self.fraction) * unit / 10u128.pow(self.digits)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `90`, `1.5h`, `1h30m`: each unit smaller than the one before, so that `1m1h` is seen as the slip
/// that it is.
fn units_ns(text: &str) -> Option<u128> {
    let mut total: u128 = 0;
    let mut rest = text;
    let mut below = u64::MAX;
    loop {
        let (number, behind) = Number::split(rest)?;
        let behind = behind.trim_start();
        if behind.is_empty() && below == u64::MAX {
            return Some(number.times(NS_PER_SECOND));
        }
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(end);
        let (_, unit) = *DURATION_UNITS.iter().find(|(known, _)| *known == name)?;
        if unit >= below {
            return None;
        }
        below = unit;
        total = total.checked_add(number.times(unit))?;
        rest = behind.trim_start();
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`. Only the first number may exceed its
/// range: `90:00` is an hour and a half, `0:90` a slip.
fn clock_ns(text: &str) -> Option<u128> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(clock_number(days)?), clock),
        None => (None, text),
    };
    let mut parts = [0u64; 3];
    let mut count = 0;
    for part in clock.split(':') {
        *parts.get_mut(count)? = clock_number(part)?;
        count += 1;
    }
    let (hours, minutes, seconds) = match (days, count) {
        (Some(_), _) | (None, 3) => (parts[0], parts[1], parts[2]),
        (None, 2) => (0, parts[0], parts[1]),
        (None, _) => return None,
    };
    let minutes_first = days.is_none() && count == 2;
    if (days.is_some() && hours >= 24) || (minutes >= 60 && !minutes_first) || seconds >= 60 {
        return None;
    }
    let days = u128::from(days.unwrap_or(0));
    let total_minutes = (days * 24 + u128::from(hours)) * 60 + u128::from(minutes);
    Some((total_minutes * 60 + u128::from(seconds)) * u128::from(NS_PER_SECOND))
}

fn clock_number(text: &str) -> Option<u64> {
    let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only { text.parse().ok() } else { None }
}

fn size_unit(suffix: &str) -> Option<u64> {
    let (first, behind) = match suffix.as_bytes() {
        [] => return Some(1),
        [first, behind @ ..] => (first.to_ascii_lowercase(), behind),
    };
    if first == b'b' && behind.is_empty() {
        return Some(1);
    }
    if !behind.is_empty()
        && !behind.eq_ignore_ascii_case(b"b")
        && !behind.eq_ignore_ascii_case(b"ib")
    {
        return None;
    }
    let power = SIZE_LETTERS.iter().position(|(letter, _)| *letter == first)?;
    (0..=power).try_fold(1u64, |unit, _| unit.checked_mul(1024))
}

/// What a user wrote, as it may stand in a message: short and on one line.
#[must_use]
pub fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = NS_PER_SECOND;

    #[test]
    fn lengths_of_time() {
        for (text, ns) in [
            ("0", 0),
            ("0.0", 0),
            ("90s", 90 * S),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("100ms", 100_000_000),
            ("2s", 2 * S),
            ("2 s", 2 * S),
            ("7us", 7_000),
            ("7ns", 7),
            ("1.5h", 5_400 * S),
            ("0.1h", 360 * S),
            ("1h30m", 5_400 * S),
            ("1h 30min 2s", 5_402 * S),
            ("2d", 172_800 * S),
            ("1d12h", 129_600 * S),
            ("10:00", 600 * S),
            ("90:00", 5_400 * S),
            ("1:30:00", 5_400 * S),
            ("100:00:00", 360_000 * S),
            ("1-0", 86_400 * S),
            ("1-12:30", 131_400 * S),
            ("1-00:00:01", 86_401 * S),
            ("0.0000000019s", 1),
        ] {
            assert_eq!(parse_duration(text), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_of_time() {
        for text in [
            "", " ", "s", "-1", "1x", "1m1h", "1h1h", "1h30", "1..5s", "1.", "1.s", "1e3", "0x10",
            "+1", "1:2:3:4", "0:60", "1:60:00", "1-24", "1-", "-", ":", "1:", "1:-2", "1,5", "٣s",
            "1 2",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(matches!(error, UnitError::NotADuration { .. }), "{text}: {error}");
        }
        for text in ["90", " 1.5 ", "18446744074"] {
            let error = parse_duration(text).unwrap_err();
            assert!(matches!(error, UnitError::NoUnit { .. }), "{text}: {error}");
        }
        assert_eq!(
            parse_duration("30").unwrap_err().to_string(),
            "'30' has no unit; write 30s for seconds or 30m for minutes"
        );
        for text in ["1000000000000s", "18446744073709551615d", "18446744074s", "300000-00"] {
            let error = parse_duration(text).unwrap_err();
            assert!(matches!(error, UnitError::TooLarge { .. }), "{text}: {error}");
        }
        assert_eq!(
            parse_duration("soon").unwrap_err().to_string(),
            "'soon' is no length of time; accepted are 90s, 100ms, 1.5h, 1h30m, 2d, HH:MM:SS \
             and D-HH:MM:SS (units: ns, us, ms, s, m, h, d)"
        );
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10B", 10),
            ("1k", 1 << 10),
            ("100KB", 100 << 10),
            ("512M", 512 << 20),
            ("512 MiB", 512 << 20),
            ("4G", 4 << 30),
            ("1.5GiB", 3 << 29),
            ("2t", 2 << 40),
            ("1P", 1 << 50),
            ("0.3K", 307),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "G", "4X", "4GG", "4iB", "-1", "1.", "4 G B", "1e9", "999999999999999999999"]
        {
            let error = parse_bytes(text).unwrap_err();
            assert!(matches!(error, UnitError::NotASize { .. }), "{text}: {error}");
        }
        for text in ["16384P", "99999999999T"] {
            let error = parse_bytes(text).unwrap_err();
            assert!(matches!(error, UnitError::TooLarge { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count("4"), Ok(4));
        assert_eq!(parse_count(" 0 "), Ok(0));
        for text in ["", "-1", "+1", "4.0", "four", "0x4"] {
            assert!(matches!(parse_count(text), Err(UnitError::NotACount { .. })), "{text}");
        }
        assert!(matches!(parse_count("4294967296"), Err(UnitError::TooLarge { .. })));
    }

    #[test]
    fn tables_show_few_characters() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (12 << 20, "12M"),
            ((1 << 30) - 1, "1023M"),
            (4 << 30, "4.0G"),
            (u64::MAX, "16383P"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_234, "1.2us"),
            (12_345, "12us"),
            (2_000_000, "2.0ms"),
            (1_250_000_000, "1.2s"),
            (59_999_999_999, "59s"),
            (184 * S, "3m04s"),
            (7_999 * S, "2h13m"),
            (5 * 86_400 * S + 7 * 3_600 * S, "5d07h"),
        ] {
            assert_eq!(format_duration_short(Nanos(ns)), text);
        }
        for (seconds, text) in [(0, "0s"), (3, "3s"), (184, "3m04s")] {
            assert_eq!(format_seconds(seconds), text);
        }
    }

    #[test]
    fn a_message_shows_no_more_than_a_line_of_what_was_written() {
        let long = "\u{1b}[2J\n".repeat(1_000);
        let message = parse_bytes(&long).unwrap_err().to_string();
        assert!(message.len() < 250 && !message.contains(|c: char| c.is_control()), "{message}");
    }

    #[test]
    fn lengths_of_time_are_shown_in_as_many_units_as_they_need() {
        let shown = |ns| Nanos(ns).to_string();
        assert_eq!(shown(720 * 3_600 * NS_PER_SECOND), "30d");
        assert_eq!(shown(100 * 3_600 * NS_PER_SECOND), "4d4h");
        assert_eq!(shown(7_201 * NS_PER_SECOND), "2h1s");
        assert_eq!(shown(100_000_000), "100ms");
        assert_eq!(shown(1_500_000), "1500us");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}", near in "[0-9.:smhduKMGiB -]{0,24}") {
            for text in [&text, &near] {
                let _ = parse_duration(text);
                let _ = parse_bytes(text);
                let _ = parse_count(text);
            }
        }

        #[test]
        fn what_is_printed_is_read_back(ns in any::<u64>(), bytes in any::<u64>()) {
            let whole = Nanos(ns / NS_PER_SECOND * NS_PER_SECOND);
            prop_assert_eq!(parse_duration(&whole.to_string()), Ok(whole));
            prop_assert_eq!(parse_duration(&Nanos(ns).to_string()), Ok(Nanos(ns)));
            prop_assert!(parse_duration(&format_duration_short(Nanos(ns))).unwrap() <= Nanos(ns));
            prop_assert!(parse_bytes(&format_bytes(bytes)).unwrap() <= bytes);
        }
    }
}
