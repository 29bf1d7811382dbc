//! Changes that happen by themselves at times that an administrator names (General Resource Manager
//! paper, section 4: the time-based controller).
//!
//! A time is one of the week, such as `mon-fri 08:00`, or one of a day, such as `2026-12-24 18:00`.
//! It is a time of people's clocks: which moment that is, only the driver knows.

use crate::class::RULES;
use crate::ids::{ClassName, JobId, NodeId, NodeSetName, QueueName};
use crate::param::{Param, Shown};
use crate::params::TABLE;
use crate::period::{EVERY_DAY, parse_days, parse_minute, write_days};
use crate::settings::Overrides;
use crate::time::Nanos;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

const DAY_MINUTES: u16 = 24 * 60;

/// When a change happens, by people's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum When {
    /// On some days of each week.
    Weekly {
        /// A bit for each day, Monday lowest.
        days: u8,
        /// Minutes after midnight: less than a day.
        minute: u16,
    },
    /// On one day.
    Once {
        /// The year, 1970 to 9999.
        year: u16,
        /// The month, 1 to 12.
        month: u8,
        /// The day of the month, from 1 on.
        day: u8,
        /// Minutes after midnight: less than a day.
        minute: u16,
    },
}

/// What is no time of a change, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no time: {wrong}; write it like \"mon-fri 08:00\", \"22:00\" (every day) or \
     \"2026-12-24 18:00\""
)]
pub struct WhenError {
    text: String,
    wrong: &'static str,
}

impl FromStr for When {
    type Err = WhenError;

    fn from_str(text: &str) -> Result<Self, WhenError> {
        let fail = |wrong| WhenError { text: text.chars().take(80).collect(), wrong };
        let (mut days, mut date, mut minute) = (None, None, None);
        for word in text.split([' ', '\t', 'T']).filter(|word| !word.is_empty()) {
            let is_again = if word.contains(':') {
                minute.replace(parse_minute(word, HOURS).map_err(fail)?).is_some()
            } else if word.starts_with(|first: char| first.is_ascii_digit()) {
                date.replace(parse_date(word).map_err(fail)?).is_some()
            } else {
                days.replace(parse_days(word).map_err(fail)?).is_some()
            };
            if is_again {
                return Err(fail("days and hours may be named once each, days without spaces"));
            }
        }
        let minute = minute.ok_or_else(|| fail("it has no hour"))?;
        if minute >= DAY_MINUTES {
            return Err(fail("24:00 is 00:00 of the next day"));
        }
        match (days, date) {
            (Some(_), Some(_)) => Err(fail("it names days of the week and a date")),
            (None, Some((year, month, day))) => Ok(Self::Once { year, month, day, minute }),
            (days, None) => Ok(Self::Weekly { days: days.unwrap_or(EVERY_DAY), minute }),
        }
    }
}

/// How hours are written in it.
const HOURS: &str = "hours are written like 08:00, up to 23:59";

fn parse_date(word: &str) -> Result<(u16, u8, u8), &'static str> {
    const WRONG: &str = "dates are written like 2026-12-24";
    let fields: Vec<&str> = word.split('-').collect();
    let [year, month, day] = fields[..] else { return Err(WRONG) };
    let number = |digits: &str, length: usize| -> Result<u16, &'static str> {
        let is_plain = digits.len() == length && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| is_plain).ok_or(WRONG)
    };
    let (year, month, day) = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return Err(WRONG),
    };
    if year < 1970 || !(1..=last).contains(&day) {
        return Err("there is no such day");
    }
    let byte = |number: u16| u8::try_from(number).map_err(|_| WRONG);
    Ok((year, byte(month)?, byte(day)?))
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minute = match *self {
            Self::Weekly { days: EVERY_DAY, minute } => minute,
            Self::Weekly { days, minute } => {
                write_days(days, f)?;
                f.write_str(" ")?;
                minute
            }
            Self::Once { year, month, day, minute } => {
                write!(f, "{year:04}-{month:02}-{day:02} ")?;
                minute
            }
        };
        write!(f, "{:02}:{:02}", minute / 60, minute % 60)
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        when.to_string()
    }
}

impl TryFrom<String> for When {
    type Error = WhenError;
    fn try_from(text: String) -> Result<Self, WhenError> {
        text.parse()
    }
}

/// Nodes and sets of nodes, as they were named. A set has the nodes that are in it at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedNodes {
    /// The list, as it was written.
    pub list: String,
    /// The nodes that it names.
    pub nodes: BTreeSet<NodeId>,
    /// The sets that it names.
    pub sets: BTreeSet<NodeSetName>,
}

/// Jobs by number, queue or class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedJobs {
    /// Jobs and arrays.
    pub jobs: BTreeSet<JobId>,
    /// All jobs of these queues.
    pub queues: BTreeSet<QueueName>,
    /// All jobs of these classes.
    pub classes: BTreeSet<ClassName>,
}

/// What happens at a time. Written as a user types it behind the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimedChange {
    /// Parameters, and rules of classes, have other values from then on.
    Set(Overrides),
    /// Nodes take no new jobs from then on. Before, no job starts there that may last longer.
    Out {
        /// Which.
        nodes: NamedNodes,
        /// How long before it is looked at how long jobs last; `None`: always.
        ahead: Option<Nanos>,
    },
    /// Nodes take jobs again that such a change had take none.
    In {
        /// Which.
        nodes: NamedNodes,
    },
    /// Held jobs come into line.
    Release(NamedJobs),
}

impl fmt::Display for TimedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(overrides) => {
                f.write_str("params")?;
                let params = overrides.params.iter();
                params.into_iter().try_for_each(|it| write_value(f, None, TABLE, it))?;
                for (class, rules) in &overrides.classes {
                    rules.iter().try_for_each(|it| write_value(f, Some(class), RULES, it))?;
                }
                Ok(())
            }
            Self::Out { nodes, ahead } => {
                write!(f, "nodes {} out", nodes.list)?;
                ahead.map_or(Ok(()), |ahead| write!(f, " ahead={ahead}"))
            }
            Self::In { nodes } => write!(f, "nodes {} in", nodes.list),
            Self::Release(NamedJobs { jobs, queues, classes }) => {
                let jobs = jobs.iter().map(ToString::to_string);
                let queues = queues.iter().map(|queue| format!("queue:{queue}"));
                let classes = classes.iter().map(|class| format!("class:{class}"));
                let all: Vec<String> = jobs.chain(queues).chain(classes).collect();
                write!(f, "release {}", all.join(","))
            }
        }
    }
}

fn write_value(
    f: &mut fmt::Formatter<'_>,
    class: Option<&ClassName>,
    table: &'static [Param],
    (name, &value): (&String, &u64),
) -> fmt::Result {
    f.write_str(" ")?;
    class.map_or(Ok(()), |class| write!(f, "{class}."))?;
    match table.iter().find(|param| param.name == name) {
        Some(param) => write!(f, "{name}={}", Shown(param, value)),
        None => write!(f, "{name}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::When;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_and_written_alike() {
        for text in
            ["mon-fri 08:00", "sat,sun 23:59", "00:00", "2026-12-24 18:00", "2028-02-29 07:05"]
        {
            assert_eq!(text.parse::<When>().unwrap().to_string(), text);
        }
        for (text, meant) in [
            ("Mon  8:00", "mon 08:00"),
            ("2026-12-24T18:00", "2026-12-24 18:00"),
            ("mon-sun 1:02", "01:02"),
        ] {
            assert_eq!(text.parse::<When>().unwrap().to_string(), meant);
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "no hour"),
            ("mon", "no hour"),
            ("24:00", "next day"),
            ("25:00", "up to 23:59"),
            ("2026-02-29 08:00", "no such day"),
            ("2026-13-01 08:00", "dates are written"),
            ("26-1-1 08:00", "dates are written"),
            ("mon 2026-12-24 08:00", "a date"),
            ("mon 08:00 09:00", "once each"),
            ("foo 08:00", "days are"),
            ("8", "dates are written"),
        ] {
            let error = text.parse::<When>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(when) = text.parse::<When>() {
                prop_assert_eq!(when.to_string().parse::<When>(), Ok(when));
            }
        }
    }
}
