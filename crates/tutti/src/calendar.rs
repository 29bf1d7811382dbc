//! What time of the week it is for people: by the machine's time zone, or by that of a trace.

use anyhow::anyhow;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tutti_core::{ClusterTime, Nanos};

pub(crate) use tutti_core::parse_week;

/// Clocks that are put forward or back so often are enough for any trace: twice a year.
const CHANGES_MAX: usize = 100;

/// How much of the week has passed here and now.
pub(crate) fn local_week() -> Nanos {
    week_of(&Zoned::now())
}

/// How much of the week had passed in a time zone so many seconds after 1970, and each time that
/// clocks were put forward or back there afterwards, counted from that moment.
///
/// # Errors
/// If the time zone is not known here.
pub(crate) fn of_zone(start_s: u64, zone: &str) -> anyhow::Result<Vec<(ClusterTime, Nanos)>> {
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
    use super::{of_zone, parse_week};
    use tutti_core::Nanos;

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
    fn a_time_zone_that_nobody_knows_is_told() {
        let error = of_zone(0, "Middle/Earth").unwrap_err().to_string();
        assert!(error.contains("--begins"), "{error}");
    }
}
