//! Hours of the week: when a set of parameters holds (LLNL paper: parameters by hour and day).

use crate::time::{ClusterTime, Nanos};
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

const MINUTE: u64 = 60_000_000_000;
const DAY_MINUTES: u16 = 24 * 60;
const DAY: u64 = DAY_MINUTES as u64 * MINUTE;
/// A week, in nanoseconds.
pub const WEEK: u64 = 7 * DAY;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
pub(crate) const EVERY_DAY: u8 = 0x7f;

/// Reads a time of the week, such as `mon 08:00`.
///
/// # Errors
/// If it is none.
pub fn parse_week(text: &str) -> Result<Nanos, PeriodError> {
    let fail = |wrong| PeriodError { text: text.into(), wrong };
    let mut words = text.split_whitespace();
    let (Some(day), Some(hour), None) = (words.next(), words.next(), words.next()) else {
        return Err(fail("a time of the week is a day and an hour, like \"mon 08:00\""));
    };
    let day = DAYS.iter().position(|known| day.eq_ignore_ascii_case(known));
    let day = day.ok_or_else(|| fail("days are mon, tue, wed, thu, fri, sat and sun"))? as u64;
    let minute = parse_minute(hour, HOURS).map_err(fail)?;
    Ok(Nanos((day * DAY + u64::from(minute) * MINUTE) % WEEK))
}

/// What people's clocks say, as far as the core needs it: how far the week was at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Calendar {
    /// What to add to a moment to get the time since some Monday 00:00, in nanoseconds.
    offset: u64,
}

impl Calendar {
    /// At `now`, so much of the week had passed, counted from Monday 00:00 local time.
    #[must_use]
    pub const fn new(now: ClusterTime, week: Nanos) -> Self {
        Self { offset: (week.0 % WEEK + WEEK - now.0 % WEEK) % WEEK }
    }

    /// How much of the week has passed at a moment.
    #[must_use]
    pub const fn week(self, at: ClusterTime) -> Nanos {
        Nanos((at.0 % WEEK + self.offset) % WEEK)
    }
}

/// A part of each day of some days of the week, such as `mon-fri 08:00-18:00`. One that ends at an
/// earlier hour than it begins ends on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Period {
    /// A bit for each day on which it begins, Monday lowest.
    days: u8,
    /// Minutes after midnight.
    from: u16,
    /// Minutes after that midnight: more than `from`, and at most a day more.
    to: u16,
}

/// What is no period, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no period: {wrong}; write it like \"mon-fri 08:00-18:00\", \"sat,sun\" or \"22:00-06:00\""
)]
pub struct PeriodError {
    text: String,
    wrong: &'static str,
}

impl Period {
    /// Whether it holds at that time of the week.
    #[must_use]
    pub fn holds(self, week: Nanos) -> bool {
        self.spells().any(|(from, to)| {
            let after = (week.0 % WEEK + WEEK - from) % WEEK;
            after < to - from
        })
    }

    /// How long it takes from that time of the week until it begins or ends next; `None` if it
    /// holds all week.
    #[must_use]
    pub fn changes_in(self, week: Nanos) -> Option<Nanos> {
        let edges = self.spells().flat_map(|(from, to)| [from % WEEK, to % WEEK]);
        let waits = edges.map(|edge| match (edge + WEEK - week.0 % WEEK) % WEEK {
            0 => WEEK,
            wait => wait,
        });
        // An edge where one day's part meets the next changes nothing, but nothing is lost by a
        // look.
        waits.min().filter(|_| !self.is_always()).map(Nanos)
    }

    const fn is_always(self) -> bool {
        self.days == EVERY_DAY && self.to - self.from == DAY_MINUTES
    }

    /// Each time of the week when it begins, and when it ends then.
    fn spells(self) -> impl Iterator<Item = (u64, u64)> {
        let days = (0..7).filter(move |day| self.days >> day & 1 == 1);
        days.map(move |day| {
            (day * DAY + u64::from(self.from) * MINUTE, day * DAY + u64::from(self.to) * MINUTE)
        })
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let fail = |wrong| PeriodError { text: text.into(), wrong };
        let (mut days, mut hours) = (None, None);
        for word in text.split_whitespace() {
            let is_hours = word.starts_with(|first: char| first.is_ascii_digit());
            let before = match is_hours {
                true => hours.replace(parse_hours(word).map_err(fail)?).is_some(),
                false => days.replace(parse_days(word).map_err(fail)?).is_some(),
            };
            if before {
                return Err(fail("days and hours may be named once each, days without spaces"));
            }
        }
        if days.is_none() && hours.is_none() {
            return Err(fail("it names neither days nor hours"));
        }
        let (from, to) = hours.unwrap_or((0, DAY_MINUTES));
        Ok(Self { days: days.unwrap_or(EVERY_DAY), from, to })
    }
}

pub(crate) fn parse_days(word: &str) -> Result<u8, &'static str> {
    let day = |name: &str| {
        let known = DAYS.iter().position(|day| name.eq_ignore_ascii_case(day));
        known.ok_or("days are mon, tue, wed, thu, fri, sat and sun")
    };
    word.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7 + 1;
        Ok((0..count).fold(days, |days, step| days | 1 << ((first + step) % 7)))
    })
}

fn parse_hours(word: &str) -> Result<(u16, u16), &'static str> {
    let (from, to) = word.split_once('-').ok_or("hours have a beginning and an end")?;
    let (from, to) = (parse_minute(from, HOURS)?, parse_minute(to, HOURS)?);
    if from >= DAY_MINUTES {
        return Err("no day begins an hour at 24:00");
    }
    match to {
        to if to > from => Ok((from, to)),
        to if to == from => Err("it ends when it begins"),
        to => Ok((from, to + DAY_MINUTES)),
    }
}

/// How hours are written in a [`Period`].
const HOURS: &str = "hours are written like 08:00, up to 24:00";

/// The minute of a day, or `wrong`.
pub(crate) fn parse_minute(word: &str, wrong: &'static str) -> Result<u16, &'static str> {
    let (hour, minute) = word.split_once(':').ok_or(wrong)?;
    let number = |digits: &str| -> Result<u16, &'static str> {
        let short = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| short).ok_or(wrong)
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let total = hour * 60 + minute;
    (minute < 60 && total <= DAY_MINUTES).then_some(total).ok_or(wrong)
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_day = self.from == 0 && self.to == DAY_MINUTES;
        if self.days != EVERY_DAY || whole_day {
            write_days(self.days, f)?;
        }
        if whole_day {
            return Ok(());
        }
        if self.days != EVERY_DAY {
            f.write_str(" ")?;
        }
        // What ends at midnight ends at 24:00; what goes on ends at an hour of the next day.
        let to = if self.to > DAY_MINUTES { self.to - DAY_MINUTES } else { self.to };
        write!(f, "{:02}:{:02}-{:02}:{:02}", self.from / 60, self.from % 60, to / 60, to % 60)
    }
}

/// Days in a row as `mon-fri`, others one by one.
pub(crate) fn write_days(days: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let has = |day: usize| days >> day & 1 == 1;
    let mut day = 0;
    let mut between = "";
    while day < 7 {
        if !has(day) {
            day += 1;
            continue;
        }
        let last = (day..7).take_while(|&day| has(day)).last().unwrap_or(day);
        write!(f, "{between}{}", DAYS[day])?;
        if last > day {
            write!(f, "{}{}", if last > day + 1 { "-" } else { "," }, DAYS[last])?;
        }
        between = ",";
        day = last + 1;
    }
    Ok(())
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        alloc::format!("{period}")
    }
}

impl TryFrom<String> for Period {
    type Error = PeriodError;
    fn try_from(text: String) -> Result<Self, PeriodError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::{Calendar, DAY, MINUTE, Period, WEEK};
    use crate::time::{ClusterTime, Nanos};
    use proptest::prelude::*;

    fn at(day: u64, hour: u64, minute: u64) -> Nanos {
        Nanos(day * DAY + (hour * 60 + minute) * MINUTE)
    }

    fn period(text: &str) -> Period {
        text.parse().expect(text)
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in [
            "mon-fri 08:00-18:00",
            "sat,sun",
            "22:00-06:00",
            "mon-sun",
            "mon,wed,fri 00:00-12:30",
            "mon-wed,sat,sun 18:00-24:00",
        ] {
            assert_eq!(period(text).to_string(), text);
        }
        assert_eq!(period("Fri-Mon").to_string(), "mon,fri-sun");
        assert_eq!(period("08:00-18:00 mon-fri"), period("mon-fri 8:00-18:00"));
    }

    #[test]
    fn what_is_no_period_is_told_why() {
        for (text, why) in [
            ("", "neither days nor hours"),
            ("mon-fry", "days are"),
            ("mon tue", "once each"),
            ("08:00", "a beginning and an end"),
            ("8-18", "written like 08:00"),
            ("08:00-08:00", "ends when it begins"),
            ("24:00-08:00", "24:00"),
            ("08:00-24:01", "up to 24:00"),
            ("08:60-09:00", "up to 24:00"),
            ("99999:00-09:00", "up to 24:00"),
        ] {
            let error = text.parse::<Period>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_night_belongs_to_the_day_on_which_it_begins() {
        let nights = period("mon-fri 18:00-08:00");
        assert!(nights.holds(at(0, 18, 0)) && !nights.holds(at(0, 17, 59)));
        assert!(nights.holds(at(1, 7, 59)) && !nights.holds(at(1, 8, 0)));
        assert!(!nights.holds(at(0, 3, 0)), "that is Sunday's night");
        assert!(nights.holds(at(5, 3, 0)), "and this Friday's");
        let sunday = period("sun 22:00-06:00");
        assert!(sunday.holds(at(0, 5, 0)), "a week ends in the middle of it");
        assert_eq!(sunday.changes_in(at(0, 5, 0)), Some(Nanos(60 * MINUTE)));
        assert_eq!(period("mon-sun").changes_in(at(0, 5, 0)), None);
    }

    #[test]
    fn a_calendar_tells_the_time_of_the_week() {
        let calendar = Calendar::new(ClusterTime(3 * WEEK + 5), at(2, 12, 0));
        assert_eq!(calendar.week(ClusterTime(3 * WEEK + 5)), at(2, 12, 0));
        assert_eq!(calendar.week(ClusterTime(4 * WEEK + 6)), Nanos(at(2, 12, 0).0 + 1));
        assert_eq!(calendar.week(ClusterTime(3 * WEEK + 5 + 5 * DAY)), at(0, 12, 0));
    }

    proptest! {
        /// Nothing changes before the moment that is named, and text says all.
        #[test]
        fn it_holds_until_it_changes(
            days in 1u8..0x80, from in 0u16..1440, length in 1u16..=1440, now in 0..WEEK, part in 0.0..1.0f64,
        ) {
            let period = Period { days, from, to: from + length };
            let now = Nanos(now);
            if let Some(wait) = period.changes_in(now) {
                #[expect(clippy::float_arithmetic, reason = "a test picks a moment")]
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "any moment will do")]
                let before = Nanos((now.0 + (wait.0 as f64 * part) as u64).min(now.0 + wait.0 - 1) % WEEK);
                prop_assert_eq!(period.holds(now), period.holds(before));
            }
            // A whole day from another hour than midnight can't be told from none, so is not made.
            prop_assume!(length < 1440 || from == 0);
            prop_assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
