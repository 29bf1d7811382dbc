//! When a change at a time happens: which moments a time of people's clocks is, by this machine's
//! time zone.
//!
//! On a day on which clocks are put forward, a time that they leave out happens at the moment at
//! which they are put forward. On a day on which they are put back, a time that they show twice
//! happens when they show it first. So each time happens once on each of its days.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use tutti_types::When;

/// How many days back the latest moment of a time of the week is looked for: more than a week,
/// since a time may come a day late where a whole day is left out.
const DAYS_BACK: i64 = 9;

/// A moment of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// In milliseconds since 1970.
    pub unix_ms: u64,
    /// What clocks would show: orders times that fall on one moment as clocks are put forward.
    pub shown: DateTime,
}

/// The first moment after that one; both in milliseconds since 1970. `None`: there is none.
#[must_use]
pub fn next_moment(when: When, after_ms: u64) -> Option<Occurrence> {
    next_in(when, after_ms, &TimeZone::system())
}

/// The latest moment from the first on until the second, both included.
#[must_use]
pub fn latest_moment(when: When, from_ms: u64, until_ms: u64) -> Option<Occurrence> {
    latest_in(when, from_ms, until_ms, &TimeZone::system())
}

/// All moments after that one in a time zone, in milliseconds since 1970; `None`: the zone is not
/// known here.
#[must_use]
pub fn moments_in(
    when: When,
    after_ms: u64,
    zone: &str,
) -> Option<impl Iterator<Item = u64> + use<>> {
    let zone = TimeZone::get(zone).ok()?;
    let mut after_ms = after_ms;
    Some(std::iter::from_fn(move || {
        after_ms = next_in(when, after_ms, &zone)?.unix_ms;
        Some(after_ms)
    }))
}

fn next_in(when: When, after_ms: u64, zone: &TimeZone) -> Option<Occurrence> {
    let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
    let is_after = |it: &Occurrence| it.unix_ms > after_ms;
    match when {
        When::Once { .. } => occurrence(date_of(when)?, when, zone).filter(is_after),
        When::Weekly { days, .. } => {
            // A time that was left out comes a day late at the most.
            let first = after.to_zoned(zone.clone()).date().checked_sub(2.days()).ok()?;
            let dates = first.series(1.day()).take(12);
            let dates =
                dates.filter(|date| days >> date.weekday().to_monday_zero_offset() & 1 == 1);
            dates.filter_map(|date| occurrence(date, when, zone)).find(is_after)
        }
    }
}

fn latest_in(when: When, from_ms: u64, until_ms: u64, zone: &TimeZone) -> Option<Occurrence> {
    let back_ms = u64::try_from(DAYS_BACK).unwrap_or(0) * 86_400_000;
    let from_ms = match when {
        When::Once { .. } => from_ms,
        When::Weekly { .. } => from_ms.max(until_ms.saturating_sub(back_ms)),
    };
    let mut latest = None;
    let mut after_ms = from_ms.checked_sub(1)?;
    while let Some(found) = next_in(when, after_ms, zone).filter(|it| it.unix_ms <= until_ms) {
        after_ms = found.unix_ms;
        latest = Some(found);
    }
    latest
}

fn date_of(when: When) -> Option<Date> {
    let When::Once { year, month, day, .. } = when else { return None };
    let byte = |number: u8| i8::try_from(number).ok();
    Date::new(i16::try_from(year).ok()?, byte(month)?, byte(day)?).ok()
}

/// The moment of a time on a day.
fn occurrence(date: Date, when: When, zone: &TimeZone) -> Option<Occurrence> {
    let (When::Weekly { minute, .. } | When::Once { minute, .. }) = when;
    let number = |value: u16| i8::try_from(value).ok();
    let time = Time::new(number(minute / 60)?, number(minute % 60)?, 0, 0).ok()?;
    let shown = date.to_datetime(time);
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    let at = match ambiguous.offset() {
        AmbiguousOffset::Gap { before, .. } => {
            // As far behind the moment of the change as the time is behind the gap's beginning.
            let late = before.to_timestamp(shown).ok()?;
            let just_after = late.checked_add(1.nanosecond()).ok()?;
            zone.preceding(just_after).next()?.timestamp()
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
            ambiguous.earlier().ok()?
        }
    };
    Some(Occurrence { unix_ms: u64::try_from(at.as_millisecond()).ok()?, shown })
}

#[cfg(test)]
mod tests {
    use super::{Occurrence, latest_in, next_in};
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, Zoned};
    use proptest::prelude::*;
    use tutti_types::When;

    const ZONE: &str = "Europe/Stockholm";

    fn ms(text: &str) -> u64 {
        let at: Zoned = format!("{text}[{ZONE}]").parse().unwrap();
        u64::try_from(at.timestamp().as_millisecond()).unwrap()
    }

    fn when(text: &str) -> When {
        text.parse().unwrap()
    }

    fn zone() -> TimeZone {
        TimeZone::get(ZONE).unwrap()
    }

    /// The moments of a time in a zone, as clocks there show them.
    fn all(text: &str, from: &str, to: &str) -> Vec<String> {
        let (mut after, end) = (ms(from) - 1, ms(to));
        let mut found = Vec::new();
        while let Some(next) = next_in(when(text), after, &zone()).filter(|it| it.unix_ms <= end) {
            after = next.unix_ms;
            let at = Timestamp::from_millisecond(i64::try_from(after).unwrap()).unwrap();
            found.push(at.to_zoned(zone()).strftime("%a %d %H:%M").to_string());
        }
        found
    }

    #[test]
    fn a_time_of_the_week_comes_on_each_of_its_days() {
        let found = all("mon-fri 08:00", "2026-11-26T08:00", "2026-12-01T09:00");
        assert_eq!(found, ["Thu 26 08:00", "Fri 27 08:00", "Mon 30 08:00", "Tue 01 08:00"]);
        assert_eq!(
            all("2026-12-24 18:00", "2026-01-01T00:00", "2028-01-01T00:00"),
            ["Thu 24 18:00"]
        );
        assert!(all("2026-12-24 18:00", "2026-12-24T18:01", "2028-01-01T00:00").is_empty());
    }

    #[test]
    fn a_time_that_clocks_leave_out_comes_as_they_are_put_forward() {
        // On 2026-03-29, clocks go from 02:00 to 03:00.
        let found = all("02:30", "2026-03-28T00:00", "2026-03-30T12:00");
        assert_eq!(found, ["Sat 28 02:30", "Sun 29 03:00", "Mon 30 02:30"]);
        assert_eq!(
            all("2026-03-29 02:00", "2026-03-01T00:00", "2026-04-01T00:00"),
            ["Sun 29 03:00"]
        );
        // Two such times keep their order, also with the first one after them.
        let after = ms("2026-03-29T01:00");
        let of = |text: &str| next_in(when(text), after, &zone()).unwrap();
        let [first, second, third] = ["02:10", "02:50", "03:00"].map(of);
        assert!(first.unix_ms == third.unix_ms && first < second && second < third);
    }

    #[test]
    fn a_time_that_clocks_show_twice_comes_once() {
        // On 2026-10-25, clocks go from 03:00 back to 02:00.
        let found = all("02:30", "2026-10-24T00:00", "2026-10-26T12:00");
        assert_eq!(found, ["Sat 24 02:30", "Sun 25 02:30", "Mon 26 02:30"]);
        let first = next_in(when("02:30"), ms("2026-10-25T00:00"), &zone()).unwrap();
        assert_eq!(first.unix_ms - ms("2026-10-25T00:00"), 150 * 60_000);
    }

    #[test]
    fn of_several_that_were_missed_the_latest_counts() {
        let latest = |text: &str, from: &str, until: &str| {
            latest_in(when(text), ms(from), ms(until), &zone()).map(|it| it.unix_ms)
        };
        let far = latest("mon-fri 08:00", "2020-01-01T00:00", "2026-11-29T10:00");
        assert_eq!(far, Some(ms("2026-11-27T08:00")));
        let edges = latest("sun 10:00", "2026-11-29T10:00", "2026-11-29T10:00");
        assert_eq!(edges, Some(ms("2026-11-29T10:00")));
        assert_eq!(latest("sun 10:00", "2026-11-29T10:01", "2026-11-30T10:00"), None);
        let once = latest("2021-05-05 05:05", "2021-01-01T00:00", "2026-11-29T10:00");
        assert_eq!(once, Some(ms("2021-05-05T05:05")));
    }

    proptest! {
        /// In zones with changed clocks, on days that may have one: each time comes once on each of
        /// its days, in order, and never before clocks show it.
        #[test]
        fn each_time_comes_once_a_day(
            zone in prop::sample::select(vec![
                "Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
                "UTC",
            ]),
            days in 1u8..128,
            minute in 0u16..1440,
            start_s in 1_300_000_000u64..1_900_000_000,
        ) {
            let zone = TimeZone::get(zone).unwrap();
            let when = When::Weekly { days, minute };
            let mut after_ms = start_s * 1000;
            let mut before: Option<Occurrence> = None;
            for _ in 0..60 {
                let next = next_in(when, after_ms, &zone).unwrap();
                prop_assert!(next.unix_ms > after_ms);
                let at = Timestamp::from_millisecond(i64::try_from(next.unix_ms).unwrap()).unwrap();
                let clock = at.to_zoned(zone.clone()).datetime();
                prop_assert!(clock >= next.shown);
                prop_assert!(days >> next.shown.weekday().to_monday_zero_offset() & 1 == 1);
                if let Some(before) = before {
                    let gap = next.shown.duration_since(before.shown).as_hours();
                    let week_days = i64::from(days.count_ones());
                    prop_assert!((24..=24 * 7).contains(&gap), "{gap}");
                    prop_assert!(week_days < 7 || gap <= 48, "{gap}");
                }
                let latest = latest_in(when, after_ms + 1, next.unix_ms, &zone);
                prop_assert_eq!(latest, Some(next));
                before = Some(next);
                after_ms = next.unix_ms;
            }
        }
    }
}
