//! What was told before its task was known.
//!
//! Between the making of a task's root and the keeper's word of it, the root may have made others,
//! and these may have ended. Mostly that is a millisecond; but a keeper that is held up, or starts
//! many tasks, speaks late. So while tasks are expected, events of unknown processes are kept.

use super::TaskId;
use std::collections::{BTreeSet, VecDeque};
use tutti_linux::track::ProcessEvent;
use tutti_types::StepKey;

/// Events that are kept; more than a machine makes while a keeper starts its tasks.
const EVENTS_MAX: usize = 1 << 16;

/// Events of unknown processes, oldest first, while there are tasks that may turn out to be meant.
#[derive(Default)]
pub(super) struct Early {
    expected: BTreeSet<TaskId>,
    events: VecDeque<ProcessEvent>,
}

impl Early {
    /// These tasks will be started.
    pub(super) fn expect(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.expected.extend(tasks);
    }

    /// A task has begun: gives what was kept, oldest first. What still belongs to no task is to be
    /// kept again.
    pub(super) fn begin(&mut self, task: TaskId) -> VecDeque<ProcessEvent> {
        let events = std::mem::take(&mut self.events);
        self.has_begun(task);
        events
    }

    /// A task is expected no more.
    pub(super) fn has_begun(&mut self, task: TaskId) {
        self.expected.remove(&task);
        self.let_go();
    }

    /// No task of a job is expected any more.
    pub(super) fn forget(&mut self, job: StepKey) {
        self.expected.retain(|(of, _)| *of != job);
        self.let_go();
    }

    fn let_go(&mut self) {
        if self.expected.is_empty() {
            self.events = VecDeque::new();
        }
    }

    /// Keeps an event, if a task is expected; `false` if that costs the oldest one.
    pub(super) fn keep(&mut self, event: ProcessEvent) -> bool {
        if self.expected.is_empty() {
            return true;
        }
        let has_room = self.events.len() < EVENTS_MAX;
        if !has_room {
            self.events.pop_front();
        }
        self.events.push_back(event);
        has_room
    }

    /// Whether events of unknown processes are kept.
    pub(super) fn is_kept(&self) -> bool {
        !self.expected.is_empty()
    }

    /// The jobs whose tasks are expected.
    pub(super) fn expected(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.expected.iter().map(|(job, _)| *job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::{JobId, Rank};

    fn born(child: i32) -> ProcessEvent {
        ProcessEvent::Forked { parent: 1, child, at_ns: 0 }
    }

    #[test]
    fn events_are_kept_while_a_task_is_expected() {
        let mut early = Early::default();
        assert!(early.keep(born(2)));
        assert!(early.events.is_empty());
        let task = |rank| (StepKey::first(JobId(7)), Rank(rank));
        early.expect([task(0), task(1)].into_iter());
        assert!(early.keep(born(3)));
        assert_eq!(early.begin(task(0)).len(), 1);
        assert!(early.keep(born(4)) && early.events.len() == 1);
        early.forget(StepKey::first(JobId(7)));
        assert!(early.events.is_empty() && early.expected().next().is_none());
    }

    #[test]
    fn too_many_cost_the_oldest() {
        let mut early = Early::default();
        early.expect([(StepKey::first(JobId(7)), Rank(0))].into_iter());
        for _ in 0..EVENTS_MAX {
            assert!(early.keep(born(2)));
        }
        assert!(!early.keep(born(3)));
        assert_eq!(early.events.len(), EVENTS_MAX);
    }
}
