//! Deletion of classes: a slip of the pen makes one, and it should not stay for ever.

use crate::apply::Core;
use crate::state::record::Record;
use tutti_types::class::default_classes;
use tutti_types::counted::Counted;
use tutti_types::ids::{ClassName, QueueName};
use tutti_types::period::Period;
use tutti_types::time::ClusterTime;

/// Why a class stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassStays {
    /// There is none of that name.
    #[error("there is no class {0}; `tutti params` lists those that there are")]
    Unknown(ClassName),
    /// One that exists from the start, by which jobs go that name none.
    #[error("the class {0} is there from the start, and stays; its rules can be changed")]
    FromTheStart(ClassName),
    /// Jobs are of the class.
    #[error("the class {class} has {}; it can go when nothing of it is left", Counted(*jobs as u64, "job"))]
    HasJobs {
        /// The class.
        class: ClassName,
        /// How many.
        jobs: usize,
    },
    /// It is the class of jobs of a queue that name none.
    #[error(
        "the class {class} is the default of queue {queue}; `tutti queue {queue} default_class=none` first"
    )]
    HasQueue {
        /// The class.
        class: ClassName,
        /// The queue.
        queue: QueueName,
    },
    /// Jobs of another class get it by their use.
    #[error(
        "jobs of class {of} become of class {class} by their use; `tutti params --class {of} after=none` first"
    )]
    FollowsUse {
        /// The class.
        class: ClassName,
        /// The other one.
        of: ClassName,
    },
    /// Its rules are otherwise in some hours.
    #[error(
        "rules of the class {class} are otherwise {period}; `tutti params --during \"{period}\" --forget` first"
    )]
    HasPeriod {
        /// The class.
        class: ClassName,
        /// Which hours.
        period: Period,
    },
}

impl Core {
    /// Why a class can't be forgotten now; `None`: it can.
    #[must_use]
    pub fn why_class_stays(&self, class: &ClassName) -> Option<ClassStays> {
        let name = || class.clone();
        if default_classes().contains_key(class) {
            return Some(ClassStays::FromTheStart(name()));
        }
        if !self.settings.classes.contains_key(class) {
            return Some(ClassStays::Unknown(name()));
        }
        let is_of_it =
            |job: &Record| job.spec.class == *class || job.former.as_ref() == Some(class);
        let jobs = self.jobs.iter().filter(|(_, job)| is_of_it(job)).count();
        let jobs = jobs + self.arrays.of_class(class);
        if jobs > 0 {
            return Some(ClassStays::HasJobs { class: name(), jobs });
        }
        let mut queues = self.queues().iter();
        if let Some((queue, _)) = queues.find(|(_, spec)| spec.class.as_ref() == Some(class)) {
            return Some(ClassStays::HasQueue { class: name(), queue: queue.clone() });
        }
        if let Some(of) = self.rule_that_names(class) {
            return Some(ClassStays::FollowsUse { class: name(), of: of.clone() });
        }
        let mut periods = self.settings.periods.iter();
        let period = periods.find(|(_, overrides)| overrides.classes.contains_key(class))?.0;
        Some(ClassStays::HasPeriod { class: name(), period })
    }

    pub(crate) fn on_forget_class(&mut self, now: ClusterTime, class: &ClassName) {
        if self.why_class_stays(class).is_none() {
            self.settings.classes.remove(class);
            self.queues.forget_class(class);
            self.by_use.remove(class);
            self.take_settings(now);
        }
    }
}
