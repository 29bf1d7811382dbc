//! Formats of tables: `%.18i` and text between for `-o`, `name:width` for `-O`, `name%width` for
//! `sacct`; times and lengths of time.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::borrow::Cow;
use std::sync::LazyLock;

/// A piece of a format: a field with its width, or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece<F> {
    Text(String),
    Field {
        field: F,
        /// As many characters; nothing: as many as the value has.
        width: Option<usize>,
        to_the_right: bool,
    },
}

/// The most characters of a column: more is a slip, and memory for each row.
const WIDTH_MAX: usize = 4096;

/// Reads a format with letters, such as `%.18i %j`; `known` says what a letter stands for.
///
/// # Errors
/// A letter that stands for nothing.
pub(super) fn letters<F>(
    format: &str,
    known: impl Fn(char) -> Option<F>,
) -> Result<Vec<Piece<F>>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut chars = unescaped(format).chars().collect::<Vec<char>>().into_iter().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let to_the_right = chars.next_if_eq(&'.').is_some();
        let to_the_left = chars.next_if(|c| ['-', '#'].contains(c)).is_some();
        let mut width = None;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            let digit = usize::try_from(digit).unwrap_or(0);
            width = Some((width.unwrap_or(0) * 10 + digit).min(WIDTH_MAX));
            chars.next();
        }
        let Some(letter) = chars.next() else {
            return Err("the format ends in '%' without a letter".into());
        };
        let field = known(letter).ok_or_else(|| format!("Invalid field requested: {letter:?}"))?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        let to_the_right = to_the_right && !to_the_left;
        pieces.push(Piece::Field { field, width: width.filter(|width| *width > 0), to_the_right });
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// A format in which `\n`, `\t` and `\xNN` are written out.
fn unescaped(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('\\') {
        let (before, behind) = rest.split_at(at);
        text.push_str(before);
        let hex = behind.get(2..4).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let (c, length) = match (behind.as_bytes().get(1), hex) {
            (Some(b'n'), _) => ('\n', 2),
            (Some(b't'), _) => ('\t', 2),
            (Some(b'x'), Some(code)) if code.is_ascii() && code > 0 => (char::from(code), 4),
            _ => ('\\', 1),
        };
        text.push(c);
        rest = &behind[length..];
    }
    text.push_str(rest);
    text
}

/// The width of a column of `-O` that names none.
const LONG_WIDTH: usize = 20;

/// Reads a format with names, such as `JobID:12,State`.
///
/// # Errors
/// A name that stands for nothing.
pub(super) fn names<F>(
    format: &str,
    known: impl Fn(&str) -> Option<F>,
) -> Result<Vec<Piece<F>>, String> {
    let mut pieces = Vec::new();
    for item in format.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, size) = item.split_once(':').unwrap_or((item, ""));
        let (to_the_right, size) = match size.strip_prefix('.') {
            Some(size) => (true, size),
            None => (false, size.trim_start_matches('-')),
        };
        let digits = size.len() - size.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let width = size[..digits].parse().ok().filter(|width| *width > 0);
        let field =
            known(name).ok_or_else(|| format!("Invalid job format specification: {name}"))?;
        let width = Some(width.unwrap_or(LONG_WIDTH).min(WIDTH_MAX));
        pieces.push(Piece::Field { field, width, to_the_right });
        if !size[digits..].is_empty() {
            pieces.push(Piece::Text(size[digits..].to_owned()));
        }
    }
    Ok(pieces)
}

/// Fills in a format, behind what `table` has; `value` gives each field's text.
pub(super) fn fill<'a, F, T: Into<Cow<'a, str>>>(
    table: &mut String,
    pieces: &[Piece<F>],
    value: impl Fn(&F) -> T,
) {
    for piece in pieces {
        match piece {
            Piece::Text(text) => table.push_str(text),
            Piece::Field { field, width, to_the_right } => {
                let value = value(field).into();
                let text = plain(&value);
                match width {
                    Some(width) => push_fitted(table, &text, *width, *to_the_right),
                    None => table.push_str(&text),
                }
            }
        }
    }
}

/// A format, filled in; `value` gives each field's text.
pub(super) fn line<F>(pieces: &[Piece<F>], value: impl Fn(&F) -> String) -> String {
    let mut line = String::new();
    fill(&mut line, pieces, value);
    line
}

/// Names are anything that a user can type: no orders to a terminal, no line ends.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.into();
    }
    text.chars().map(|c| if tutti_node::say::is_order(c) || c == '\n' { '?' } else { c }).collect()
}

/// Adds a text in a column: cut, or filled up with blanks.
pub(super) fn push_fitted(line: &mut String, text: &str, width: usize, to_the_right: bool) {
    let (cut, blanks) = match text.is_ascii() {
        true => (&text[..width.min(text.len())], width.saturating_sub(text.len())),
        false => {
            let end = text.char_indices().nth(width).map_or(text.len(), |(at, _)| at);
            (&text[..end], width - text[..end].chars().count())
        }
    };
    if to_the_right {
        push_blanks(line, blanks);
        line.push_str(cut);
    } else {
        line.push_str(cut);
        push_blanks(line, blanks);
    }
}

fn push_blanks(line: &mut String, mut count: usize) {
    const BLANKS: &str = "                                ";
    while count > 0 {
        let some = count.min(BLANKS.len());
        line.push_str(&BLANKS[..some]);
        count -= some;
    }
}

/// A length of time: `M:SS`, `H:MM:SS` or `D-HH:MM:SS`, as squeue has it.
pub(super) fn duration_short(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// A length of time: `HH:MM:SS` or `D-HH:MM:SS`, as sacct has it.
pub(super) fn duration(seconds: u64) -> String {
    let days = match seconds / 86_400 {
        0 => String::new(),
        days => format!("{days}-"),
    };
    format!("{days}{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// A moment as `SLURM_TIME_FORMAT` has it, or as `2026-03-28T14:30:00`.
pub(super) fn moment(ms: u64) -> String {
    static SET: LazyLock<(String, TimeZone)> = LazyLock::new(|| {
        let format = std::env::var("SLURM_TIME_FORMAT").unwrap_or_default();
        (format, TimeZone::system())
    });
    moment_as(ms, &SET.0, SET.1.clone())
}

/// The line with the time above a list: `Sat Mar 28 14:30:00 2026`.
pub(super) fn date_line() -> String {
    let now = tutti_node::platform::time::wall_ms();
    format!("{}\n", moment_as(now, "%a %b %e %H:%M:%S %Y", TimeZone::system()))
}

fn moment_as(ms: u64, format: &str, zone: TimeZone) -> String {
    let format = match format {
        "" | "standard" | "relative" => "%Y-%m-%dT%H:%M:%S",
        other => other,
    };
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let text = at.map(|at| jiff::fmt::strtime::format(format, &at.to_zoned(zone)));
    text.and_then(Result::ok).unwrap_or_else(|| "Unknown".into())
}

#[cfg(test)]
mod tests {
    use super::{Piece, duration, duration_short, letters, line, moment_as, names};
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    fn filled(format: &str) -> String {
        let pieces = letters(format, |c| c.is_alphabetic().then_some(c)).unwrap();
        line(&pieces, |c| c.to_string().repeat(3))
    }

    #[test]
    fn letters_have_widths_sides_and_text_between() {
        for (format, expected) in [
            ("%.5i|%j", "  iii|jjj"),
            ("%5i%-5j|", "iii  jjj  |"),
            ("%.2i", "ii"),
            ("%i<><> %t", "iii<><> ttt"),
            (r"%i\x1f%t", "iii\u{1f}ttt"),
            (r"%i\n", "iii\n"),
            ("100%% %i", "100% iii"),
            ("%#i", "iii"),
        ] {
            assert_eq!(filled(format), expected, "{format}");
        }
        assert!(letters("%", |_| Some(())).is_err());
        assert!(letters("%i", |_| None::<()>).is_err());
    }

    #[test]
    fn names_have_twenty_columns_or_their_own() {
        let known = |name: &str| name.starts_with('J').then(|| name.to_owned());
        let shown = |format: &str| line(&names(format, known).unwrap(), Clone::clone);
        assert_eq!(shown("JobID"), format!("{:<20}", "JobID"));
        assert_eq!(shown("JobID:3,JobID:.7"), "Job  JobID");
        assert_eq!(shown("JobID:3|,JobID:2"), "Job|Jo");
        assert_eq!(names("x", known), Err("Invalid job format specification: x".into()));
        assert_eq!(names("", known), Ok(Vec::<Piece<String>>::new()));
    }

    #[test]
    fn lengths_of_time_are_as_in_slurm() {
        for (seconds, short, long) in [
            (0, "0:00", "00:00:00"),
            (65, "1:05", "00:01:05"),
            (3_600, "1:00:00", "01:00:00"),
            (90_061, "1-01:01:01", "1-01:01:01"),
        ] {
            assert_eq!((&*duration_short(seconds), &*duration(seconds)), (short, long));
        }
    }

    #[test]
    fn a_moment_has_the_format_that_is_set() {
        let at = |format: &str| moment_as(1_700_000_000_500, format, TimeZone::UTC);
        assert_eq!(at(""), "2023-11-14T22:13:20");
        assert_eq!(at("standard"), "2023-11-14T22:13:20");
        assert_eq!(at("%s"), "1700000000");
        assert_eq!(at("%H:%M"), "22:13");
        assert_eq!(at("%"), "Unknown");
    }

    proptest! {
        #[test]
        fn any_format_is_read_without_a_panic(format in ".{0,40}") {
            if let Ok(pieces) = letters(&format, |c| c.is_ascii_alphabetic().then_some(c)) {
                let _ = line(&pieces, |c| c.to_string());
            }
            let _ = names(&format, |name| Some(name.to_owned()));
        }
    }
}
