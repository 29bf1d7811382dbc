//! What time of the week it is for people: by the machine's time zone, or by that of a trace.

use anyhow::anyhow;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tutti_types::{BankPeriod, ClusterTime, Nanos};

pub use tutti_types::parse_week;

/// Clocks that are put forward or back so often are enough for any trace: twice a year.
const CHANGES_MAX: usize = 100;

/// How much of the week has passed here and now.
pub fn local_week() -> Nanos {
    week_of(&Zoned::now())
}

/// How long it takes until clocks here are put forward or back; `None`: no rule says when.
pub fn clocks_change_in() -> Option<Nanos> {
    change_after(&Zoned::now())
}

fn change_after(now: &Zoned) -> Option<Nanos> {
    let next = now.time_zone().following(now.timestamp()).next()?.timestamp();
    let wait = next.duration_since(now.timestamp()).as_nanos();
    u64::try_from(wait).ok().map(Nanos)
}

/// How much of the week had passed in a time zone so many seconds after 1970, and each time that
/// clocks were put forward or back there afterwards, counted from that moment.
///
/// # Errors
/// If the time zone is not known here.
pub fn of_zone(start_s: u64, zone: &str) -> anyhow::Result<Vec<(ClusterTime, Nanos)>> {
    let known = TimeZone::get(zone).map_err(|_| {
        anyhow!(
            "the trace's time zone {zone} is not known on this machine (the package tzdata knows \
             all); say what time it was when it began, such as --begins \"mon 00:00\""
        )
    })?;
    let start = Timestamp::from_second(i64::try_from(start_s)?)?;
    let changes = known.following(start).map(|change| change.timestamp()).take(CHANGES_MAX);
    let moments = std::iter::once(start).chain(changes);
    let told = |at: Timestamp| -> anyhow::Result<_> {
        let passed_s = u64::try_from(at.as_second() - start.as_second())?;
        let week = week_of(&at.to_zoned(known.clone()));
        Ok((ClusterTime(0) + Nanos::from_secs(passed_s), week))
    };
    moments.map(told).collect()
}

/// A moment that people name, in milliseconds since 1970: so long ago (`90m`), a time of today
/// (`14:30`), a day (`2026-03-28`, `yesterday`), or both (`2026-03-28T14:30`), by this machine's
/// time zone.
///
/// # Errors
/// If it is none of these.
pub fn moment_ms(text: &str) -> Result<u64, String> {
    moment(text, &Zoned::now()).map(|at| u64::try_from(at.as_millisecond()).unwrap_or(0))
}

fn moment(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let of_day = |date: Date| date.to_zoned(now.time_zone().clone()).ok();
    let of_both = |at: DateTime| at.to_zoned(now.time_zone().clone()).ok();
    let found = match text {
        "now" => Some(now.clone()),
        "today" => of_day(now.date()),
        "yesterday" => now.date().yesterday().ok().and_then(of_day),
        _ => None,
    };
    let found = found
        .or_else(|| ago(text, now))
        .or_else(|| text.parse::<DateTime>().ok().and_then(of_both))
        .or_else(|| text.parse::<Date>().ok().and_then(of_day))
        // Of a day and a time it would take the time alone.
        .or_else(|| of_both(now.date().to_datetime(text.parse::<Time>().ok()?)));
    found.map(|at| at.timestamp()).ok_or_else(|| {
        format!(
            "{text:?} is no time; write how long ago it was (90m, 2d), a time of today (14:30), a day \
             (2026-03-28) or both (2026-03-28T14:30)"
        )
    })
}

fn ago(text: &str, now: &Zoned) -> Option<Zoned> {
    // A bare number could be anything.
    text.ends_with(|end: char| end.is_ascii_alphabetic()).then_some(())?;
    let length = tutti_wire::units::parse_duration(text).ok()?;
    now.checked_sub(std::time::Duration::from_nanos(length.0)).ok()
}

/// A moment of milliseconds since 1970, for a table.
pub fn local_time(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or("-".into(), |at| {
        at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
    })
}

/// A moment of milliseconds since 1970, to the second, for a message.
pub fn local_moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or("-".into(), |at| {
        at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    })
}

/// When the period began that a moment is in, by this machine's time zone; both in milliseconds
/// since 1970.
pub fn period_began_ms(period: BankPeriod, now_ms: u64) -> u64 {
    period_began(period, now_ms, TimeZone::system()).unwrap_or(now_ms)
}

fn period_began(period: BankPeriod, now_ms: u64, zone: TimeZone) -> Option<u64> {
    let at = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    let today = at.to_zoned(zone.clone()).date();
    let days = i64::from(today.weekday().to_monday_zero_offset());
    let date = match period {
        BankPeriod::Day => today,
        BankPeriod::Week => today.checked_sub(jiff::Span::new().days(days)).ok()?,
        BankPeriod::Month => today.first_of_month(),
    };
    u64::try_from(date.to_zoned(zone).ok()?.timestamp().as_millisecond()).ok()
}

/// When the hour began that a moment is in, by this machine's time zone; both in milliseconds since
/// 1970.
pub fn hour_began_ms(now_ms: u64) -> u64 {
    let began = || {
        let at = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
        let into = u64::try_from(at.to_zoned(TimeZone::system()).minute()).ok()? * 60_000;
        let minute_ms = now_ms - now_ms % 60_000;
        minute_ms.checked_sub(into)
    };
    began().unwrap_or(now_ms)
}

/// The time of day here, to the second.
pub fn local_clock(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or("-".into(), |at| at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string())
}

fn week_of(at: &Zoned) -> Nanos {
    let days = u64::try_from(at.weekday().to_monday_zero_offset()).unwrap_or(0);
    let time = at.time();
    let number = |value: i8| u64::try_from(value).unwrap_or(0);
    let minutes = (days * 24 + number(time.hour())) * 60 + number(time.minute());
    let within = u64::try_from(time.subsec_nanosecond()).unwrap_or(0);
    Nanos((minutes * 60 + number(time.second())) * 1_000_000_000 + within)
}

#[cfg(test)]
mod tests {
    use super::{change_after, moment, of_zone, parse_week, period_began};
    use jiff::Timestamp;
    use jiff::Zoned;
    use jiff::tz::TimeZone;
    use tutti_types::BankPeriod;
    use tutti_types::Nanos;

    #[test]
    fn periods_begin_at_midnight_of_people_also_where_a_clock_changed() {
        // Thursday, 2026-10-29; clocks had gone back on Sunday, the 25th.
        let ms = |text: &str| {
            u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
        };
        let zone = TimeZone::get("Europe/Stockholm").unwrap();
        let began = |period| period_began(period, ms("2026-10-29T12:00:00Z"), zone.clone());
        assert_eq!(began(BankPeriod::Day), Some(ms("2026-10-28T23:00:00Z")));
        assert_eq!(began(BankPeriod::Week), Some(ms("2026-10-25T23:00:00Z")));
        assert_eq!(began(BankPeriod::Month), Some(ms("2026-09-30T22:00:00Z")));
    }

    #[test]
    fn a_log_from_stockholm_begins_on_a_monday_and_sees_summer_end() {
        // 1996-09-23 00:00:31 CEST, a Monday; clocks went back on Sunday, October 27th, at 3.
        let calendar = of_zone(843_429_631, "Europe/Stockholm").unwrap();
        assert_eq!(calendar[0].1, Nanos::from_secs(31));
        let (at, week) = calendar[1];
        let days = at.0 / 1_000_000_000 / 86_400;
        assert_eq!(days, 34);
        assert_eq!(week, parse_week("sun 02:00").unwrap());
    }

    #[test]
    fn it_is_known_when_clocks_are_put_forward_or_back() {
        let hours = |text: &str| {
            let now: Zoned = text.parse().unwrap();
            change_after(&now).map(|wait| wait.0 / 3_600_000_000_000)
        };
        assert_eq!(hours("2026-03-28T15:00:00[Europe/Stockholm]"), Some(11));
        assert_eq!(hours("2026-10-24T15:00:00[Europe/Stockholm]"), Some(12));
        assert_eq!(hours("2026-10-24T15:00:00[UTC]"), None);
    }

    #[test]
    fn a_time_zone_that_nobody_knows_is_told() {
        let error = of_zone(0, "Middle/Earth").unwrap_err().to_string();
        assert!(error.contains("--begins"), "{error}");
    }

    #[test]
    fn people_name_moments_in_several_ways() {
        let now: Zoned = "2026-03-28T15:00:10[Europe/Stockholm]".parse().unwrap();
        for (text, meant) in [
            ("90m", "2026-03-28T13:30:10[Europe/Stockholm]"),
            ("2d", "2026-03-26T15:00:10[Europe/Stockholm]"),
            ("14:30", "2026-03-28T14:30:00[Europe/Stockholm]"),
            ("2026-03-01", "2026-03-01T00:00:00[Europe/Stockholm]"),
            ("2026-03-01T14:30", "2026-03-01T14:30:00[Europe/Stockholm]"),
            ("2026-03-01 14:30", "2026-03-01T14:30:00[Europe/Stockholm]"),
            ("yesterday", "2026-03-27T00:00:00[Europe/Stockholm]"),
        ] {
            let meant: Zoned = meant.parse().unwrap();
            assert_eq!(moment(text, &now), Ok(meant.timestamp()), "{text}");
        }
        for text in ["", "7", "noon", "2026-13-01", "-3m"] {
            assert!(moment(text, &now).is_err(), "{text}: {:?}", moment(text, &now));
        }
    }
}
