//! The moment at which a job is to begin, as users name it.
//!
//! All forms of Slurm's `--begin` are read: a time of day, a date, both, and `now` with a length of
//! time behind it.

use jiff::civil::{Date, DateTime, Time};
use jiff::{Timestamp, Zoned};
use std::time::Duration;
use tutti_wire::units::{parse_count, parse_duration};

/// The longest time from now, in days: ten years.
const DAYS_MAX: u64 = 3653;

/// The moment at which a job is to begin, in milliseconds since 1970, by this machine's time zone:
/// `16:00` (today or tomorrow), `2026-12-24T20:00`, `2026-12-24`, `tomorrow`, `+30m`, `now+2hours`.
///
/// # Errors
/// If it is none of these, or more than ten years ahead.
pub fn begin_ms(text: &str) -> Result<u64, String> {
    let now = Zoned::now();
    let at = begin(text, &now)?;
    let ms = |at: Timestamp| u64::try_from(at.as_millisecond()).unwrap_or(0);
    match ms(at).saturating_sub(ms(now.timestamp())) > DAYS_MAX * 86_400_000 {
        true => Err(format!("{text:?} is more than ten years ahead")),
        false => Ok(ms(at)),
    }
}

fn begin(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let lower = text.trim().to_ascii_lowercase();
    let found = from_now(&lower, now)
        .or_else(|| next_time(&lower, now))
        .or_else(|| day_and_time(&lower, now));
    found.map(|at| at.timestamp()).ok_or_else(|| {
        format!(
            "{text:?} is no time to begin; write a time of day (16:00), a day (2026-12-24, \
             tomorrow), both (2026-12-24T20:00), or a time from now (+30m, now+1hour)"
        )
    })
}

/// `now`, `+30m`, `now+1hour`, `now + 90`: a number alone counts seconds.
fn from_now(text: &str, now: &Zoned) -> Option<Zoned> {
    if text == "now" {
        return Some(now.clone());
    }
    let length = text.strip_prefix("now").unwrap_or(text).trim_start().strip_prefix('+')?.trim();
    let digits = length.find(|c: char| !c.is_ascii_digit()).unwrap_or(length.len());
    let (count, unit) = length.split_at(digits);
    let seconds = match unit_seconds(unit.trim()) {
        Some(each) => u64::from(parse_count(count).ok()?).checked_mul(each)?,
        None => parse_duration(length).ok()?.0 / 1_000_000_000,
    };
    now.checked_add(Duration::from_secs(seconds)).ok()
}

fn unit_seconds(unit: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] =
        [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400), ("weeks", 604_800)];
    let found = UNITS.iter().find(|(name, _)| name.starts_with(unit));
    found.map(|(_, seconds)| *seconds)
}

/// The next time that clocks say so.
fn next_time(text: &str, now: &Zoned) -> Option<Zoned> {
    let time = time_of_day(text)?;
    let of = |date: Date| date.to_datetime(time).to_zoned(now.time_zone().clone()).ok();
    match of(now.date())? {
        today if today >= *now => Some(today),
        _ => of(now.date().tomorrow().ok()?),
    }
}

fn time_of_day(text: &str) -> Option<Time> {
    match text {
        "midnight" => return Some(Time::midnight()),
        "noon" => return Time::new(12, 0, 0, 0).ok(),
        "fika" => return Time::new(15, 0, 0, 0).ok(),
        "teatime" => return Time::new(16, 0, 0, 0).ok(),
        _ => {}
    }
    let half = ["am", "pm"].into_iter().find(|half| text.ends_with(half));
    let clock = text.trim_end_matches(['a', 'p', 'm']).trim();
    let mut fields = clock.split(':');
    let number = |field: Option<&str>| -> Option<i8> {
        let field = field?;
        let is_plain = (1..=2).contains(&field.len()) && field.bytes().all(|b| b.is_ascii_digit());
        if is_plain { field.parse().ok() } else { None }
    };
    let hour = number(fields.next())?;
    let minute = match (fields.next(), half) {
        (None, Some(_)) => 0,
        (field, _) => number(field)?,
    };
    let second = match fields.next() {
        None => 0,
        field => number(field)?,
    };
    let hour = match half {
        _ if fields.next().is_some() => return None,
        None if clock.len() != text.len() => return None,
        None => hour,
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some("am") => hour % 12,
        Some(_) => hour % 12 + 12,
    };
    Time::new(hour, minute, second, 0).ok()
}

/// A day, and perhaps a time of it.
fn day_and_time(text: &str, now: &Zoned) -> Option<Zoned> {
    let of = |at: DateTime| at.to_zoned(now.time_zone().clone()).ok();
    match text {
        "today" => return of(now.date().at(0, 0, 0, 0)),
        "tomorrow" => return of(now.date().tomorrow().ok()?.at(0, 0, 0, 0)),
        _ => {}
    }
    if let Ok(date) = text.parse::<Date>()
        && text.len() == 10
    {
        return of(date.at(0, 0, 0, 0));
    }
    if text.len() > 10 && text.as_bytes()[4..].first() == Some(&b'-') {
        return of(text.to_ascii_uppercase().parse().ok()?);
    }
    let (day, time) = match text.split_once('-') {
        Some((day, time)) => (day, time_of_day(time)?),
        None => (text, Time::midnight()),
    };
    of(american(day, now)?.to_datetime(time))
}

/// `MMDD`, `MMDDYY`, `MM/DD` and `MM/DD/YY`, as Slurm reads them.
fn american(text: &str, now: &Zoned) -> Option<Date> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fields: Vec<&str> = match (is_plain, text.len()) {
        (true, 4) => vec![&text[..2], &text[2..]],
        (true, 6) => vec![&text[..2], &text[2..4], &text[4..]],
        (true, _) => return None,
        (false, _) => text.split('/').collect(),
    };
    let number = |field: &str| if field.len() <= 2 { field.parse::<i8>().ok() } else { None };
    match fields[..] {
        [month, day] => {
            let of = |year| Date::new(year, number(month)?, number(day)?).ok();
            let date = of(now.year())?;
            if date < now.date() { of(now.year() + 1) } else { Some(date) }
        }
        [month, day, year] => {
            Date::new(2000 + i16::from(number(year)?), number(month)?, number(day)?).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{begin, begin_ms};
    use jiff::Zoned;

    #[test]
    fn all_forms_of_slurm_are_read() {
        let now: Zoned = "2026-03-28T15:00:10[Europe/Stockholm]".parse().unwrap();
        for (text, meant) in [
            ("now", "2026-03-28T15:00:10"),
            ("now+1hour", "2026-03-28T16:00:10"),
            ("now + 2 minutes", "2026-03-28T15:02:10"),
            ("now+90", "2026-03-28T15:01:40"),
            ("+30m", "2026-03-28T15:30:10"),
            ("+1:30:00", "2026-03-28T16:30:10"),
            // An hour less, since clocks go forward.
            ("now+1days", "2026-03-29T16:00:10"),
            ("16:00", "2026-03-28T16:00:00"),
            ("14:30:20", "2026-03-29T14:30:20"),
            ("4:30PM", "2026-03-28T16:30:00"),
            ("12 am", "2026-03-29T00:00:00"),
            ("noon", "2026-03-29T12:00:00"),
            ("teatime", "2026-03-28T16:00:00"),
            ("midnight", "2026-03-29T00:00:00"),
            ("tomorrow", "2026-03-29T00:00:00"),
            ("today", "2026-03-28T00:00:00"),
            ("2026-12-24", "2026-12-24T00:00:00"),
            ("2026-12-24T20:00", "2026-12-24T20:00:00"),
            ("2026-12-24T20:00:30", "2026-12-24T20:00:30"),
            ("12/24", "2026-12-24T00:00:00"),
            ("0102", "2027-01-02T00:00:00"),
            ("12/24/27-20:00", "2027-12-24T20:00:00"),
            ("122427", "2027-12-24T00:00:00"),
        ] {
            let meant: Zoned = format!("{meant}[Europe/Stockholm]").parse().unwrap();
            assert_eq!(begin(text, &now), Ok(meant.timestamp()), "{text}");
        }
        for text in [
            "",
            "7",
            "soon",
            "25:00",
            "16:61",
            "2026-13-01",
            "+",
            "now-1h",
            "+1fortnight",
            "13/01",
            "1:2:3:4",
            "16:00x",
            "2026-12-24T",
            "99999999999",
            "12/24/2027/3",
            "\u{e9}\u{e9}:00",
            "13pm",
            "m",
            "-",
            "24.12.2026",
            "2026-12-24T20:00+",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert!(begin(text, &now).is_err(), "{text}: {:?}", begin(text, &now));
        }
    }

    #[test]
    fn a_moment_is_at_most_ten_years_ahead() {
        assert!(begin_ms("now+1day").is_ok());
        assert!(begin_ms("+4294967295weeks").is_err());
        assert!(begin_ms("2999-01-01").unwrap_err().contains("ten years"));
    }
}
