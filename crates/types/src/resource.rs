//! Counted resources: what a cluster has several of, and admits jobs to by number.
//!
//! The numbers of a resource are 0 to its count less one. A job asks for one of them, for several,
//! or for a particular one, and has them from its start on. Licences, barrier circuits and shared
//! devices are all resources.

use crate::limits::{RESOURCE_COUNT_MAX, RESOURCE_NAME_BYTES_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The name of a resource, such as `licence`: lower-case letters, digits, `-`, `_` and `.`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName {
    /// The bytes of the name, and zeros behind them.
    bytes: [u8; RESOURCE_NAME_BYTES_MAX],
}

/// Why a text names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The name is empty, too long, or has other characters.
    #[error(
        "invalid name of a resource {0:?}: use 1 to {RESOURCE_NAME_BYTES_MAX} lower-case letters, \
         digits, '-', '_' or '.', and begin with a letter"
    )]
    Name(String),
    /// What follows the name is neither `:COUNT`, with `/node` or `/task`, nor `@NUMBER`.
    #[error(
        "invalid resource {0:?}: write NAME, NAME:COUNT or NAME@NUMBER, such as licence:2; of what \
         nodes have, also NAME:COUNT/node or NAME:COUNT/task"
    )]
    Amount(String),
    /// A wish for devices that has another form than these.
    #[error(
        "invalid devices {0:?}: write NAME, NAME:COUNT, NAME:COUNT/node or NAME:COUNT/task with a \
         count of 1 to {RESOURCE_COUNT_MAX}, such as gpu:2"
    )]
    Devices(String),
}

impl ResourceName {
    /// The name in a text.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(text: &str) -> Result<Self, ResourceError> {
        let may = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
        };
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || text.len() > RESOURCE_NAME_BYTES_MAX || !text.bytes().all(may) {
            let shown = text.chars().take(2 * RESOURCE_NAME_BYTES_MAX).collect();
            return Err(ResourceError::Name(shown));
        }
        let mut bytes = [0; RESOURCE_NAME_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(self.bytes.len());
        core::str::from_utf8(&self.bytes[..length]).unwrap_or_default()
    }

    /// The variable in which a task finds the numbers that its job has.
    #[must_use]
    pub fn variable(&self) -> String {
        let letter = |byte: char| match byte {
            '-' | '.' => '_',
            other => other.to_ascii_uppercase(),
        };
        "TUTTI_RESOURCE_".chars().chain(self.as_str().chars().map(letter)).collect()
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl TryFrom<String> for ResourceName {
    type Error = ResourceError;

    fn try_from(text: String) -> Result<Self, ResourceError> {
        Self::new(&text)
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> Self {
        name.as_str().into()
    }
}

/// How much of a resource a job asks for.
///
/// The first two variants are stored as the `Option<u32>` of earlier journals: none, or a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Amount {
    /// Any one number.
    #[default]
    One,
    /// This number.
    Number(u32),
    /// So many numbers, whichever they are.
    Count(u32),
    /// So many devices of the nodes that the job gets. A device is a number of a resource that
    /// belongs to one node.
    OnNodes {
        /// How many.
        count: u32,
        /// For what.
        per: Per,
        /// Whether the job gives them up before it loses a turn (`--vacate`). Set by the core.
        #[serde(default)]
        vacates: bool,
    },
}

/// What a count of devices is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Per {
    /// The whole job: each of its nodes gives devices in proportion to its tasks, rounded up.
    #[default]
    Job,
    /// Each node of the job.
    Node,
    /// Each task.
    Task,
}

/// The devices of one name that a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceWish {
    /// The name, such as `gpu`.
    pub name: ResourceName,
    /// How many.
    pub count: u32,
    /// For what.
    pub per: Per,
    /// Whether the job gives them up before it loses a turn.
    pub vacates: bool,
}

impl DeviceWish {
    /// How many devices of a node so many tasks of a job need, of `all` that the job has.
    #[must_use]
    pub fn needed(self, tasks: u32, all: u32) -> u32 {
        let count = u64::from(self.count);
        let needed = match self.per {
            Per::Node => count,
            Per::Task => count * u64::from(tasks),
            Per::Job => (count * u64::from(tasks)).div_ceil(u64::from(all.max(1))),
        };
        u32::try_from(needed).unwrap_or(u32::MAX)
    }

    /// How many tasks of a job of `all` tasks so many devices of a node suffice for.
    #[must_use]
    pub fn tasks(self, devices: u32, all: u32) -> u32 {
        let (devices, count) = (u64::from(devices), u64::from(self.count.max(1)));
        let tasks = match self.per {
            Per::Node | Per::Job if devices >= count => u64::MAX,
            Per::Node => 0,
            Per::Task => devices / count,
            Per::Job => devices * u64::from(all) / count,
        };
        u32::try_from(tasks).unwrap_or(u32::MAX)
    }
}

impl Amount {
    /// How many numbers that is.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::One | Self::Number(_) => 1,
            Self::Count(count) | Self::OnNodes { count, .. } => count,
        }
    }
}

/// A resource that a job asks for: `licence`, `licence:2` or `licence@3`; of what nodes have of
/// their own, also `scratch:1/node` or `scratch:1/task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceWish {
    /// The resource.
    pub name: ResourceName,
    /// How much of it.
    pub amount: Amount,
}

impl ResourceWish {
    /// The same, as a wish for what nodes have of their own. One for a particular number stays as
    /// it is: which a job gets depends on its node.
    #[must_use]
    pub const fn of_nodes(self) -> Self {
        let amount = match self.amount {
            Amount::One => Amount::OnNodes { count: 1, per: Per::Job, vacates: false },
            Amount::Count(count) => Amount::OnNodes { count, per: Per::Job, vacates: false },
            Amount::Number(_) | Amount::OnNodes { .. } => self.amount,
        };
        Self { amount, ..self }
    }

    /// The devices that it asks for; `None` if it is about a resource of the cluster.
    #[must_use]
    pub const fn devices(self) -> Option<DeviceWish> {
        match self.amount {
            Amount::One | Amount::Number(_) | Amount::Count(_) => None,
            Amount::OnNodes { count, per, vacates } => {
                Some(DeviceWish { name: self.name, count, per, vacates })
            }
        }
    }

    /// A wish for devices: `gpu`, `gpu:2`, `gpu:2/node` or `gpu:1/task`.
    ///
    /// # Errors
    /// If the text is none.
    pub fn parse_devices(text: &str) -> Result<Self, ResourceError> {
        let wrong = || ResourceError::Devices(text.chars().take(64).collect());
        let (rest, per) = match text.split_once('/') {
            None => (text, Per::Job),
            Some((rest, "job")) => (rest, Per::Job),
            Some((rest, "node")) => (rest, Per::Node),
            Some((rest, "task")) => (rest, Per::Task),
            Some(_) => return Err(wrong()),
        };
        let (name, count) = match rest.split_once(':') {
            None => (rest, 1),
            Some((name, digits)) => (name, digits.parse().map_err(|_| wrong())?),
        };
        if count == 0 || count > RESOURCE_COUNT_MAX {
            return Err(wrong());
        }
        Ok(Self {
            name: ResourceName::new(name)?,
            amount: Amount::OnNodes { count, per, vacates: false },
        })
    }
}

impl core::str::FromStr for ResourceWish {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let amount = || ResourceError::Amount(text.chars().take(64).collect());
        if text.contains('/') {
            // Only nodes have so much each.
            return Self::parse_devices(text).map_err(|error| match error {
                ResourceError::Name(_) if !text.contains('@') => error,
                ResourceError::Name(_) | ResourceError::Devices(_) | ResourceError::Amount(_) => {
                    amount()
                }
            });
        }
        let at = text.find([':', '@']);
        let (name, rest) = at.map_or((text, ""), |at| text.split_at(at));
        let number = || rest.get(1..).and_then(|digits| digits.parse().ok()).ok_or_else(amount);
        let amount = match rest.bytes().next() {
            None => Amount::One,
            Some(b'@') => Amount::Number(number()?),
            Some(_) => match number()? {
                0 => return Err(amount()),
                1 => Amount::One,
                count => Amount::Count(count),
            },
        };
        Ok(Self { name: ResourceName::new(name)?, amount })
    }
}

impl fmt::Display for ResourceWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::One => self.name.fmt(f),
            Amount::Number(number) => write!(f, "{}@{number}", self.name),
            Amount::Count(count) | Amount::OnNodes { count, per: Per::Job, .. } => {
                write!(f, "{}:{count}", self.name)
            }
            Amount::OnNodes { count, per: Per::Node, .. } => {
                write!(f, "{}:{count}/node", self.name)
            }
            Amount::OnNodes { count, per: Per::Task, .. } => {
                write!(f, "{}:{count}/task", self.name)
            }
        }
    }
}

/// How many of a resource there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceSpec {
    /// How many numbers.
    pub count: u32,
    /// How many jobs may have each of them at a time.
    pub jobs_each: u32,
    /// Whether a job that `policy=classes` preempts gives its numbers back, and gets others with
    /// its processors. Otherwise it has them until it ends.
    pub lent: bool,
}

/// The numbers of a resource that a job has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The resource.
    pub name: ResourceName,
    /// The numbers, ascending.
    pub numbers: Vec<u32>,
}

/// `licence=0,3`.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, number) in self.numbers.iter().enumerate() {
            match place {
                0 => write!(f, "{}={number}", self.name)?,
                _ => write!(f, ",{number}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, DeviceWish, Per, ResourceName, ResourceWish};
    use alloc::string::ToString;

    #[test]
    fn a_wish_is_a_name_with_a_count_or_a_number() {
        for (text, amount) in [
            ("licence", Amount::One),
            ("licence@0", Amount::Number(0)),
            ("licence:20", Amount::Count(20)),
        ] {
            let wish: ResourceWish = text.parse().unwrap();
            assert_eq!((wish.name.as_str(), wish.amount), ("licence", amount));
            assert_eq!(wish.to_string(), text);
        }
        assert_eq!("a:1".parse::<ResourceWish>().unwrap().amount, Amount::One);
        let each: ResourceWish = "scratch:2/task".parse().unwrap();
        assert_eq!(each.amount, Amount::OnNodes { count: 2, per: Per::Task, vacates: false });
        assert_eq!(
            "a@1/node".parse::<ResourceWish>().unwrap_err().to_string().get(..24),
            Some("invalid resource \"a@1/no")
        );
        for text in ["", ":2", "a:", "a:0", "a:-1", "a@", "a@x", "a:1@2", "Licence", "9a", "a b"] {
            assert!(text.parse::<ResourceWish>().is_err(), "{text:?}");
        }
        assert!(ResourceName::new(&"x".repeat(32)).is_err());
    }

    #[test]
    fn a_wish_for_devices_says_for_what_they_are() {
        for (text, count, per) in
            [("gpu:1", 1, Per::Job), ("gpu:2/node", 2, Per::Node), ("gpu:3/task", 3, Per::Task)]
        {
            let wish = ResourceWish::parse_devices(text).unwrap();
            assert_eq!(wish.amount, Amount::OnNodes { count, per, vacates: false });
            assert_eq!(wish.to_string(), text);
        }
        assert_eq!(ResourceWish::parse_devices("gpu").unwrap().to_string(), "gpu:1");
        for text in ["", "gpu:", "gpu:0", "gpu:2000", "gpu:1/", "gpu:1/core", "GPU:1", "gpu@1"] {
            assert!(ResourceWish::parse_devices(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn devices_suffice_for_the_tasks_that_need_them() {
        let name = ResourceName::new("gpu").unwrap();
        for per in [Per::Job, Per::Node, Per::Task] {
            for (count, all, free) in [(1, 4, 1), (4, 1, 3), (3, 7, 2), (8, 8, 8), (5, 3, 5)] {
                let wish = DeviceWish { name, count, per, vacates: false };
                let most = wish.tasks(free, all).min(all);
                assert!(most == 0 || wish.needed(most, all) <= free, "{wish:?} of {all}");
                assert!(most == all || wish.needed(most + 1, all) > free, "{wish:?} of {all}");
            }
        }
    }

    #[test]
    fn a_variable_has_capital_letters() {
        let name = ResourceName::new("barrier-wire.2").unwrap();
        assert_eq!(name.variable(), "TUTTI_RESOURCE_BARRIER_WIRE_2");
    }
}
