//! Classes: named sets of rules for jobs.

use crate::ids::ClassName;
use crate::job::ControlMethod;
use crate::limits::{CLASSES_MAX, SHARE_WHOLE};
use crate::timetable::IfAbsent;
use alloc::collections::BTreeMap;
use core::fmt;
use serde::{Deserialize, Serialize};

/// All classes, by name.
pub type Classes = BTreeMap<ClassName, ClassSpec>;

/// The rules of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClassSpec {
    /// The least part of each frame that the class gets while it has jobs to run, in
    /// ten-thousandths (SP-2 paper, table 1: fraction). Zero: whatever the others leave, split
    /// evenly among rows; if they leave nothing, only the idle processors of their slots.
    pub share: u32,
    /// What becomes of its time while it has no job (SP-2 paper, table 1: empty cycles).
    pub empty: IfAbsent,
    /// How its jobs are suspended and resumed.
    pub control: ControlMethod,
}

/// Why the rules of a class can't be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// The shares of all classes together exceed the whole.
    #[error(
        "the other classes have {} of the time, so this one can have at most {}; lower another first",
        Percent(SHARE_WHOLE - left), Percent(*left)
    )]
    SharesExceedWhole {
        /// What the others leave, in ten-thousandths.
        left: u32,
    },
    /// As many classes as there may be.
    #[error("there are {limit} classes already, the most that may be")]
    TooMany {
        /// The most.
        limit: usize,
    },
}

impl ClassSpec {
    /// Whether these rules may become those of class `name` beside the others.
    ///
    /// # Errors
    /// If the shares would exceed the whole, or there are too many classes.
    pub fn check(&self, name: &ClassName, classes: &Classes) -> Result<(), ClassError> {
        if !classes.contains_key(name) && classes.len() >= CLASSES_MAX {
            return Err(ClassError::TooMany { limit: CLASSES_MAX });
        }
        let others = classes.iter().filter(|&(other, _)| other != name);
        let sum = others.fold(0u32, |sum, (_, spec)| sum.saturating_add(spec.share));
        let left = SHARE_WHOLE.saturating_sub(sum);
        if self.share > left {
            return Err(ClassError::SharesExceedWhole { left });
        }
        Ok(())
    }
}

/// Ten-thousandths, as people write them: `25%`, `12.5%`.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

/// The classes that exist from the start; none has a share, so all rows get the same.
#[must_use]
pub fn default_classes() -> Classes {
    ["interactive", "production", "benchmark", "standby"]
        .into_iter()
        .map(|name| (ClassName::new(name), ClassSpec::default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ClassError, ClassSpec, default_classes};
    use crate::ids::ClassName;
    use crate::limits::CLASSES_MAX;

    #[test]
    fn shares_may_add_up_to_the_whole_and_no_more() {
        let mut classes = default_classes();
        let half = ClassSpec { share: 5000, ..ClassSpec::default() };
        let name = ClassName::new("production");
        assert_eq!(half.check(&name, &classes), Ok(()));
        classes.insert(name.clone(), half);
        let most = ClassSpec { share: 5001, ..half };
        assert_eq!(most.check(&name, &classes), Ok(()), "a class does not compete with itself");
        assert_eq!(
            most.check(&ClassName::new("interactive"), &classes),
            Err(ClassError::SharesExceedWhole { left: 5000 })
        );
        let third = ClassSpec { share: 3350, ..half };
        classes.insert(ClassName::new("benchmark"), third);
        assert_eq!(
            half.check(&ClassName::new("interactive"), &classes).unwrap_err().to_string(),
            "the other classes have 83.5% of the time, so this one can have at most 16.5%; lower \
             another first"
        );
    }

    #[test]
    fn there_may_only_be_so_many_classes() {
        let mut classes = default_classes();
        for i in classes.len()..CLASSES_MAX {
            classes.insert(ClassName::new(&format!("c{i}")), ClassSpec::default());
        }
        let spec = ClassSpec::default();
        assert!(spec.check(&ClassName::new("c5"), &classes).is_ok());
        assert!(spec.check(&ClassName::new("new"), &classes).is_err());
    }
}
