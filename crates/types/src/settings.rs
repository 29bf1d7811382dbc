//! What an administrator has set: parameters and classes, and what of them is otherwise in some
//! hours of the week (LLNL paper, "Job Scheduling Parameters": several sets for different hours of
//! the day; General Resource Manager: the time-based controller).
//!
//! What holds at a moment is the standing values, with those of each period that holds put over
//! them in the order in which the periods were first named: of two that overlap, the later one
//! wins.

use crate::class::{ClassError, Classes};
use crate::ids::ClassName;
use crate::limits::PERIODS_MAX;
use crate::param::ParamError;
use crate::params::{Params, renamed};
use crate::period::Period;
use crate::time::Nanos;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize};

/// What is otherwise in a period: names and values as in [`Params`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Overrides {
    /// Of parameters.
    #[serde(deserialize_with = "present_names")]
    pub params: BTreeMap<String, u64>,
    /// Of classes that exist, by name.
    pub classes: BTreeMap<ClassName, BTreeMap<String, u64>>,
}

impl Overrides {
    /// Whether nothing is otherwise.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.params.is_empty() && self.classes.values().all(BTreeMap::is_empty)
    }
}

/// Values of parameters by their present names: an earlier journal has some by others.
fn present_names<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let values = BTreeMap::<String, u64>::deserialize(from)?;
    Ok(values.into_iter().map(|(name, value)| (renamed(&name).into(), value)).collect())
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// The parameters that hold when no period says otherwise.
    pub params: Params,
    /// The classes, likewise.
    pub classes: Classes,
    /// What is otherwise, and when.
    pub periods: Vec<(Period, Overrides)>,
}

/// Why settings can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A parameter, or a rule of a class, can't have its value in a period.
    #[error("{0}: {1}")]
    Param(Period, ParamError),
    /// There is no such class.
    #[error("{period}: there is no class {class}; define it before you say what is otherwise then")]
    NoClass {
        /// When it was to be otherwise.
        period: Period,
        /// The class.
        class: ClassName,
    },
    /// Classes can't be as they would be in a period.
    #[error("{0}: class {1}: {2}")]
    Class(Period, ClassName, ClassError),
    /// As many periods as there may be.
    #[error("there are {PERIODS_MAX} periods already, the most that may be")]
    TooMany,
}

impl Settings {
    /// Those that hold at all hours.
    #[must_use]
    pub const fn new(params: Params, classes: Classes) -> Self {
        Self { params, classes, periods: Vec::new() }
    }

    /// Puts other values in place for a period; empty ones end it.
    pub fn set_period(&mut self, period: Period, overrides: Overrides) {
        match self.periods.iter_mut().find(|(known, _)| *known == period) {
            Some((_, known)) => *known = overrides,
            None => self.periods.push((period, overrides)),
        }
        self.periods.retain(|(_, overrides)| !overrides.is_empty());
    }

    /// What is otherwise in a period.
    #[must_use]
    pub fn period(&self, period: Period) -> Option<&Overrides> {
        self.periods.iter().find(|(known, _)| *known == period).map(|(_, overrides)| overrides)
    }

    /// What holds at that time of the week; the standing values if the time is unknown.
    ///
    /// # Errors
    /// If it can't be. Never, for settings that passed [`Settings::check`].
    pub fn at(&self, week: Option<Nanos>) -> Result<(Params, Classes), SettingsError> {
        let (mut params, mut classes) = (self.params.clone(), self.classes.clone());
        let holds = |period: Period| week.is_some_and(|week| period.holds(week));
        for &(period, ref overrides) in self.periods.iter().filter(|&&(period, _)| holds(period)) {
            for (name, &value) in &overrides.params {
                params.set(name, value).map_err(|error| SettingsError::Param(period, error))?;
            }
            for (class, rules) in &overrides.classes {
                let spec = classes
                    .get_mut(class)
                    .ok_or_else(|| SettingsError::NoClass { period, class: class.clone() })?;
                for (name, &value) in rules {
                    spec.set(name, value).map_err(|error| SettingsError::Param(period, error))?;
                }
            }
        }
        Ok((params, classes))
    }

    /// How long it takes from that time of the week until something else may hold; `None`: never.
    #[must_use]
    pub fn changes_in(&self, week: Nanos) -> Option<Nanos> {
        self.periods.iter().filter_map(|(period, _)| period.changes_in(week)).min()
    }

    /// Whether all of this can be, at any time of the week.
    ///
    /// # Errors
    /// Names the period and what can't be then.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.periods.len() > PERIODS_MAX {
            return Err(SettingsError::TooMany);
        }
        for week in self.moments() {
            let (_, classes) = self.at(Some(week))?;
            let last = self.periods.iter().rev().find(|(period, _)| period.holds(week));
            if let Some(&(period, _)) = last {
                let check = |(name, spec): (&ClassName, &crate::class::ClassSpec)| {
                    spec.check(name, &classes)
                        .map_err(|error| SettingsError::Class(period, name.clone(), error))
                };
                classes.iter().try_for_each(check)?;
            }
        }
        Ok(())
    }

    /// The times of the week at which something else may begin to hold, from its beginning on.
    pub fn moments(&self) -> impl Iterator<Item = Nanos> {
        let next = |week: &Nanos| {
            let next = *week + self.changes_in(*week)?;
            (next.0 < crate::period::WEEK).then_some(next)
        };
        core::iter::successors(Some(Nanos::ZERO), next)
    }
}
