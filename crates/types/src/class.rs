//! Classes: named sets of rules for jobs.
//!
//! The rules are a table, as the parameters are; what each means is said there. `share`, `empty`,
//! `control`, `rows`, `memory` and those of slots hold under every policy, `priority` under those
//! with a line. The others hold under the policy `classes` (LLNL paper, job scheduling parameters).
//! The four classes that exist from the start have the paper's daytime values, but for numbers of
//! processors, since those are meant for one machine.

use crate::ids::ClassName;
use crate::job::ControlMethod;
use crate::limits::{
    CLASSES_MAX, JOBS_MAX, PRIORITY_MAX, PROCESSORS_MAX, QUANTUM_MIN, ROWS_KEPT_MAX, RULE_TIME_MAX,
    SHARE_WHOLE, SLOT_MIN_MAX, SLOTS_MAX,
};
use crate::param::{
    self, NodePart, Param, ParamError, ParamKind, Percent, Takes, UNBOUNDED, bounded,
};
use crate::time::Nanos;
use crate::timetable::IfAbsent;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// All classes, by name.
pub type Classes = BTreeMap<ClassName, ClassSpec>;

/// Where each rule stands in [`RULES`].
mod at {
    pub(super) const SHARE: usize = 0;
    pub(super) const EMPTY: usize = 1;
    pub(super) const CONTROL: usize = 2;
    pub(super) const PRIORITY: usize = 3;
    pub(super) const WAIT: usize = 4;
    pub(super) const DO_NOT_DISTURB: usize = 5;
    pub(super) const PROCESSORS: usize = 6;
    pub(super) const JOBS: usize = 7;
    pub(super) const JOBS_PER_USER: usize = 8;
    pub(super) const SLOTS: usize = 9;
    pub(super) const SLOT_MIN: usize = 10;
    pub(super) const REGULARITY: usize = 11;
    pub(super) const IPC: usize = 12;
    pub(super) const ROWS: usize = 13;
    pub(super) const OVERRUN: usize = 14;
    pub(super) const MEMORY: usize = 15;
    pub(super) const COUNT: usize = 16;
}

const SEC: u64 = 1_000_000_000;

/// All rules that a class has.
pub const RULES: &[Param; at::COUNT] = &[
    Param {
        name: "share",
        kind: ParamKind::Share,
        min: 0,
        max: SHARE_WHOLE as u64,
        default: 0,
        help: "The least part of the time that the class gets while it has jobs to run; 0%: together with all others of 0%, what the shares leave.",
        takes: Takes::Live,
    },
    Param {
        name: "empty",
        kind: ParamKind::Choice(&["hold", "down"]),
        min: 0,
        max: 1,
        default: 1,
        help: "What becomes of its time while it has no job: it stays idle, or goes down to the others.",
        takes: Takes::Live,
    },
    Param {
        name: "control",
        kind: ParamKind::Choice(&["freeze", "signal", "priority"]),
        min: 0,
        max: 2,
        default: 0,
        help: "How its jobs are suspended and resumed: by the freezer, by signals, or not at \
               all: they run on with what the jobs of the turn leave idle.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "priority",
        kind: ParamKind::Count,
        min: 0,
        max: PRIORITY_MAX,
        default: 2,
        help: "Jobs of a class with a higher priority come first in line (order=users). Under the policy \
               classes they are never preempted for those of a lower one.",
        takes: Takes::Live,
    },
    Param {
        name: "wait",
        kind: ParamKind::DurationOr("never"),
        min: 0,
        max: RULE_TIME_MAX.0,
        default: 1800 * SEC,
        help: "Under the policy classes, as the next four: time without processors after which a job may preempt others.",
        takes: Takes::Live,
    },
    Param {
        name: "do_not_disturb",
        kind: ParamKind::DurationOr("never"),
        min: 0,
        max: RULE_TIME_MAX.0,
        default: 10 * SEC,
        help: "Time, for each of its processors, in which a job is not preempted after it got them; never: it never is.",
        takes: Takes::Live,
    },
    Param {
        name: "processors",
        kind: ParamKind::CountOr("none"),
        min: 0,
        max: PROCESSORS_MAX,
        default: UNBOUNDED,
        help: "How many processors all jobs of the class together may have.",
        takes: Takes::Live,
    },
    Param {
        name: "jobs",
        kind: ParamKind::CountOr("none"),
        min: 0,
        max: JOBS_MAX as u64,
        default: UNBOUNDED,
        help: "How many jobs of the class may have processors at a time.",
        takes: Takes::Live,
    },
    Param {
        name: "jobs_per_user",
        kind: ParamKind::CountOr("none"),
        min: 0,
        max: JOBS_MAX as u64,
        default: UNBOUNDED,
        help: "How many of them one user may have.",
        takes: Takes::Live,
    },
    Param {
        name: "slots",
        kind: ParamKind::Count,
        min: 1,
        max: SLOTS_MAX,
        default: 1,
        help: "How many slots its rows have at least in each frame, under every policy but dhc, as the next two: more are shorter and come more often.",
        takes: Takes::Live,
    },
    Param {
        name: "slot_min",
        kind: ParamKind::Duration,
        min: QUANTUM_MIN.0,
        max: SLOT_MIN_MAX.0,
        default: QUANTUM_MIN.0,
        help: "How long each of its slots is at least: the frame is made as long as that takes.",
        takes: Takes::Live,
    },
    Param {
        name: "regularity",
        kind: ParamKind::Choice(&["even", "any"]),
        min: 0,
        max: 1,
        default: 0,
        help: "Whether its slots are spread evenly over the frame, or stand where the others leave room.",
        takes: Takes::Live,
    },
    Param {
        name: "ipc",
        kind: ParamKind::Choice(&["job", "node"]),
        min: 0,
        max: 1,
        default: 0,
        help: "Whether a job has System V IPC and POSIX message queues of its own on each node, or \
               those of the node. Its own end with it, and need an instance of root. Libraries may \
               want the node's for jobs that talk with each other.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "rows",
        kind: ParamKind::Count,
        min: 0,
        max: ROWS_KEPT_MAX,
        default: 0,
        help: "Where jobs take turns, but not under dhc: how many rows beyond the parameter rows only its jobs may open.",
        takes: Takes::Live,
    },
    Param {
        name: "overrun",
        kind: ParamKind::Choice(&["end", "standby"]),
        min: 0,
        max: 1,
        default: 0,
        help: "What becomes of its jobs at their time limit: they end, or go on as standby in what is \
               otherwise idle.",
        takes: Takes::Live,
    },
    Param {
        name: "memory",
        kind: ParamKind::NodePart,
        min: 0,
        max: NodePart::MAX,
        default: 0,
        help: "How much memory of each node is kept for its jobs: others with -m get none of it. \
               Bytes, or a part of what the node has.",
        takes: Takes::Live,
    },
];

/// The rules of one class. A value of this type is always within the ranges of [`RULES`].
///
/// It travels as a map from names to numbers, as [`Params`](crate::Params) do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BTreeMap<String, u64>", try_from = "BTreeMap<String, u64>")]
pub struct ClassSpec {
    values: [u64; at::COUNT],
}

/// What becomes of a job at its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Overrun {
    /// It is asked to end.
    End,
    /// It goes on as standby, in what is otherwise idle.
    Standby,
}

/// A rule by use: the class that a job gets once it has used so much processor time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AfterUse {
    /// So much processor time, in nanoseconds of one processor; more than none.
    pub used: Nanos,
    /// The class that the job gets.
    pub class: ClassName,
}

/// Why a rule by use can't be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AfterUseError {
    /// There is no class of that name.
    #[error("there is no class {0}; `tutti params` lists those that there are")]
    Unknown(ClassName),
    /// A job would come back to a class that it had.
    #[error("jobs would go round: {}; have one of them name no other class", Chain(.0))]
    Circle(Vec<ClassName>),
}

/// Classes that follow on each other.
struct Chain<'a>(&'a [ClassName]);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(place, class)| {
            let arrow = if place == 0 { "" } else { " -> " };
            write!(f, "{arrow}{class}")
        })
    }
}

/// Why the rules of a class can't be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// The shares of all classes together exceed the whole.
    #[error(
        "the other classes have {} of the time, so this one can have at most {}; lower another first",
        Percent(u64::from(SHARE_WHOLE - left)), Percent(u64::from(*left))
    )]
    SharesExceedWhole {
        /// What the others leave, in ten-thousandths.
        left: u32,
    },
    /// What all classes keep of the memory of each node exceeds it.
    #[error(
        "the other classes keep {} of the memory of each node, so this one can keep at most {}; lower \
         another first",
        Percent(u64::from(SHARE_WHOLE - left)), Percent(u64::from(*left))
    )]
    MemoryExceedsWhole {
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

impl Default for ClassSpec {
    fn default() -> Self {
        let mut values = [0; at::COUNT];
        for (value, rule) in values.iter_mut().zip(RULES) {
            *value = rule.default;
        }
        Self { values }
    }
}

impl ClassSpec {
    /// The value of the rule of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(rule, _)| rule.name == name).map(|(_, value)| value)
    }

    /// Sets one rule.
    ///
    /// # Errors
    /// If there is none of that name, or the value is out of its range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ParamError> {
        let index = param::find(RULES, name)?;
        RULES[index].check(value)?;
        self.values[index] = value;
        Ok(())
    }

    /// The same, for a builder.
    ///
    /// # Errors
    /// As [`ClassSpec::set`].
    pub fn with(mut self, name: &str, value: u64) -> Result<Self, ParamError> {
        self.set(name, value)?;
        Ok(self)
    }

    /// All rules with their values, in the order of [`RULES`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, u64)> + '_ {
        RULES.iter().zip(self.values)
    }

    /// The least part of each frame that the class gets while it has jobs to run, in
    /// ten-thousandths (SP-2 paper, table 1: fraction). Zero: together with all others of zero,
    /// what the shares leave; if they leave nothing, only the idle processors of their slots.
    #[must_use]
    pub fn share(&self) -> u32 {
        u32::try_from(self.values[at::SHARE]).unwrap_or(SHARE_WHOLE)
    }

    /// What becomes of its time while it has no job (SP-2 paper, table 1: empty cycles).
    #[must_use]
    pub const fn empty(&self) -> IfAbsent {
        match self.values[at::EMPTY] {
            0 => IfAbsent::Hold,
            _ => IfAbsent::Down,
        }
    }

    /// How its jobs are suspended and resumed.
    #[must_use]
    pub const fn control(&self) -> ControlMethod {
        match self.values[at::CONTROL] {
            0 => ControlMethod::Freeze,
            1 => ControlMethod::Signal,
            _ => ControlMethod::Priority,
        }
    }

    /// Its priority; the higher, the more important.
    #[must_use]
    pub const fn priority(&self) -> u64 {
        self.values[at::PRIORITY]
    }

    /// How long a job waits before others may be set aside for it; `None`: for ever.
    #[must_use]
    pub fn wait(&self) -> Option<Nanos> {
        bounded(self.values[at::WAIT]).map(Nanos)
    }

    /// For how long a job of so many processors keeps them; `None`: as long as it likes.
    #[must_use]
    pub fn do_not_disturb(&self, processors: u64) -> Option<Nanos> {
        bounded(self.values[at::DO_NOT_DISTURB]).map(|each| Nanos(each.saturating_mul(processors)))
    }

    /// How many processors all its jobs may have; `None`: any number.
    #[must_use]
    pub fn processors(&self) -> Option<u64> {
        bounded(self.values[at::PROCESSORS])
    }

    /// How many of its jobs may have processors; `None`: any number.
    #[must_use]
    pub fn jobs(&self) -> Option<u64> {
        bounded(self.values[at::JOBS])
    }

    /// How many of these one user may have; `None`: any number.
    #[must_use]
    pub fn jobs_per_user(&self) -> Option<u64> {
        bounded(self.values[at::JOBS_PER_USER])
    }

    /// How many slots its rows have in each frame (Gustafson, section 2.2.1: frequency).
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.values[at::SLOTS]).unwrap_or(1)
    }

    /// How long each of its slots is at least (length).
    #[must_use]
    pub const fn slot_min(&self) -> Nanos {
        Nanos(self.values[at::SLOT_MIN])
    }

    /// Whether its slots are spread evenly (regularity).
    #[must_use]
    pub const fn even(&self) -> bool {
        self.values[at::REGULARITY] == 0
    }

    /// Whether each of its jobs has System V IPC and POSIX message queues of its own.
    #[must_use]
    pub const fn own_ipc(&self) -> bool {
        self.values[at::IPC] == 0
    }

    /// How many rows beyond the parameter `rows` only its jobs may open.
    #[must_use]
    pub fn rows(&self) -> u32 {
        u32::try_from(self.values[at::ROWS]).unwrap_or(0)
    }

    /// How much memory of each node is kept for its jobs.
    #[must_use]
    pub const fn memory(&self) -> NodePart {
        NodePart::of(self.values[at::MEMORY])
    }

    /// That as a part of each node, in ten-thousandths; none if it is a number of bytes.
    fn memory_part(&self) -> u32 {
        match self.memory() {
            NodePart::Bytes(_) => 0,
            NodePart::Part(part) => u32::try_from(part).unwrap_or(SHARE_WHOLE),
        }
    }

    /// What becomes of its jobs at their time limit.
    #[must_use]
    pub const fn overrun(&self) -> Overrun {
        match self.values[at::OVERRUN] {
            0 => Overrun::End,
            _ => Overrun::Standby,
        }
    }

    /// Whether these rules may become those of class `name` beside the others.
    ///
    /// # Errors
    /// If the shares, or parts of memory, would exceed the whole, or there are too many classes.
    pub fn check(&self, name: &ClassName, classes: &Classes) -> Result<(), ClassError> {
        if !classes.contains_key(name) && classes.len() >= CLASSES_MAX {
            return Err(ClassError::TooMany { limit: CLASSES_MAX });
        }
        let left = |of: fn(&Self) -> u32| {
            let others = classes.iter().filter(|&(other, _)| other != name);
            let sum = others.fold(0u32, |sum, (_, spec)| sum.saturating_add(of(spec)));
            SHARE_WHOLE.saturating_sub(sum)
        };
        let (share, memory) = (left(Self::share), left(Self::memory_part));
        if self.share() > share {
            return Err(ClassError::SharesExceedWhole { left: share });
        }
        if self.memory_part() > memory {
            return Err(ClassError::MemoryExceedsWhole { left: memory });
        }
        Ok(())
    }
}

impl From<ClassSpec> for BTreeMap<String, u64> {
    fn from(spec: ClassSpec) -> Self {
        spec.iter().map(|(rule, value)| (rule.name.into(), value)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for ClassSpec {
    type Error = ParamError;
    fn try_from(values: BTreeMap<String, u64>) -> Result<Self, ParamError> {
        let mut spec = Self::default();
        for (name, value) in values {
            spec.set(&name, value)?;
        }
        Ok(spec)
    }
}

/// The classes that exist from the start. None has a share; `interactive` keeps two rows.
#[must_use]
pub fn default_classes() -> Classes {
    // Name, priority, wait, do not disturb.
    let daytime = [
        ("interactive", 4, 0, 10 * SEC),
        ("benchmark", 3, UNBOUNDED, UNBOUNDED),
        ("production", 2, 1800 * SEC, 10 * SEC),
        ("standby", 1, UNBOUNDED, 3 * SEC),
    ];
    let class = |(name, priority, wait, do_not_disturb)| {
        let mut spec = ClassSpec::default();
        spec.values[at::PRIORITY] = priority;
        spec.values[at::WAIT] = wait;
        spec.values[at::DO_NOT_DISTURB] = do_not_disturb;
        if name == "interactive" {
            spec.values[at::ROWS] = 2;
        }
        (ClassName::new(name), spec)
    };
    daytime.map(class).into()
}

#[cfg(test)]
mod tests {
    use super::{ClassError, ClassSpec, RULES, default_classes};
    use crate::ids::ClassName;
    use crate::job::ControlMethod;
    use crate::limits::CLASSES_MAX;
    use crate::param::{Shown, UNBOUNDED};
    use crate::time::Nanos;
    use crate::timetable::IfAbsent;

    #[test]
    fn shares_may_add_up_to_the_whole_and_no_more() {
        let mut classes = default_classes();
        let share = |share| ClassSpec::default().with("share", share).unwrap();
        let half = share(5000);
        let name = ClassName::new("production");
        assert_eq!(half.check(&name, &classes), Ok(()));
        classes.insert(name.clone(), half);
        let most = share(5001);
        assert_eq!(most.check(&name, &classes), Ok(()), "a class does not compete with itself");
        assert_eq!(
            most.check(&ClassName::new("interactive"), &classes),
            Err(ClassError::SharesExceedWhole { left: 5000 })
        );
        let third = share(3350);
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

    #[test]
    fn rules_are_within_their_ranges_and_the_accessors_agree_with_the_table() {
        let mut spec = ClassSpec::default();
        assert!(spec.iter().all(|(rule, value)| rule.check(value).is_ok()));
        for (index, name) in [
            "share",
            "empty",
            "control",
            "priority",
            "wait",
            "do_not_disturb",
            "processors",
            "jobs",
            "jobs_per_user",
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(RULES[index].name, name);
            spec.set(name, 1).unwrap();
        }
        assert_eq!((spec.jobs(), spec.jobs_per_user()), (Some(1), Some(1)));
        assert_eq!((spec.share(), spec.priority(), spec.processors()), (1, 1, Some(1)));
        assert_eq!((spec.empty(), spec.control()), (IfAbsent::Down, ControlMethod::Signal));
        assert_eq!((spec.wait(), spec.do_not_disturb(5)), (Some(Nanos(1)), Some(Nanos(5))));
        for name in ["wait", "do_not_disturb", "processors"] {
            spec.set(name, UNBOUNDED).unwrap();
        }
        assert_eq!((spec.wait(), spec.do_not_disturb(5), spec.processors()), (None, None, None));
    }

    #[test]
    fn what_is_wrong_with_a_rule_says_what_is_right() {
        let says = |name, value| ClassSpec::default().with(name, value).unwrap_err().to_string();
        assert_eq!(says("share", 10_001), "share can't be 100.01%; it may be 0% to 100%");
        assert_eq!(
            says("wait", UNBOUNDED - 1).split_once(';').unwrap().1,
            " it may be 0s to 365d, or never"
        );
        assert_eq!(says("priority", 1000), "priority can't be 1000; it may be 0 to 128");
        assert!(says("colour", 1).contains("there are share, empty, control, priority"));
        assert_eq!(says("prioritty", 1), "there is no parameter prioritty; did you mean priority?");
        assert_eq!(RULES[4].value_of("never"), Ok(UNBOUNDED));
        assert_eq!(
            RULES[1].value_of("up").unwrap_err().to_string(),
            "empty can't be \"up\"; it may be hold or down"
        );
    }

    #[test]
    fn classes_have_the_papers_daytime_values() {
        let classes = default_classes();
        let shown = |name| {
            let rules = classes[&ClassName::new(name)].iter().skip(3).take(6);
            rules.map(|(rule, value)| Shown(rule, value).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("interactive"), "4 0s 10s none none none");
        assert_eq!(shown("benchmark"), "3 never never none none none");
        assert_eq!(shown("production"), "2 30m 10s none none none");
        assert_eq!(shown("standby"), "1 never 3s none none none");
    }
}
