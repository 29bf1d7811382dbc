//! What the processes of tasks have read and written, by the kernel's reports of threads that have
//! ended.
//!
//! A report names a process. It belongs to a task as soon as the process is known to, which may be
//! later: process events are taken in with a delay. So reports wait for the end of their process.

use super::TaskId;
use std::collections::{BTreeMap, HashMap};
use tutti_linux::track::IoReport;

/// Processes of which reports wait. More have threads that end at a time on no machine.
const WAITING_MAX: usize = 1 << 16;

/// Bytes read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Bytes {
    pub(super) fn add(&mut self, other: Self) {
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }
}

/// The sums of reports.
#[derive(Default)]
pub(super) struct Io {
    waiting: HashMap<i32, Bytes>,
    of_tasks: BTreeMap<TaskId, Bytes>,
}

impl Io {
    /// `false` if there is no room: what is not known is lost then.
    #[must_use]
    pub(super) fn take_in(&mut self, reports: &[IoReport]) -> bool {
        for report in reports.iter().filter(|it| it.read_bytes > 0 || it.written_bytes > 0) {
            let bytes = Bytes { read: report.read_bytes, written: report.written_bytes };
            self.waiting.entry(report.process).or_default().add(bytes);
        }
        let has_room = self.waiting.len() <= WAITING_MAX;
        if !has_room {
            self.waiting.clear();
        }
        has_room
    }

    /// A process has ended: of this task, or of none.
    pub(super) fn ended(&mut self, process: i32, task: Option<TaskId>) {
        if let Some(bytes) = self.waiting.remove(&process)
            && let Some(task) = task
        {
            self.of_tasks.entry(task).or_default().add(bytes);
        }
    }

    /// Drops reports of processes that are no task's.
    pub(super) fn keep(&mut self, is_known: impl Fn(i32) -> bool) {
        self.waiting.retain(|&process, _| is_known(process));
    }

    /// What processes of a task have used that have ended.
    pub(super) fn of_task(&self, task: TaskId) -> Bytes {
        self.of_tasks.get(&task).copied().unwrap_or_default()
    }

    /// A task has ended, which had these processes: what it used.
    pub(super) fn end(&mut self, task: TaskId, processes: impl Iterator<Item = i32>) -> Bytes {
        // Threads may outlive the first one of their process, with which it has ended for the
        // kernel's events.
        processes.for_each(|process| self.ended(process, Some(task)));
        self.of_tasks.remove(&task).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::{JobId, Rank, StepKey};

    const TASK: TaskId = (StepKey::first(JobId(7)), Rank(0));

    fn report(process: i32, written_bytes: u64) -> IoReport {
        IoReport { process, read_bytes: 0, written_bytes }
    }

    #[test]
    fn reports_of_all_threads_count_for_the_task_of_their_process() {
        let mut io = Io::default();
        assert!(io.take_in(&[
            report(5, 1),
            report(5, 2),
            report(6, 4),
            report(8, 8),
            report(9, 16)
        ]));
        io.ended(5, Some(TASK));
        io.ended(8, None);
        assert_eq!(io.of_task(TASK), Bytes { read: 0, written: 3 });
        assert!(io.take_in(&[report(5, 32)]), "a thread has lived longer");
        io.keep(|process| process != 9);
        assert_eq!(io.end(TASK, [5, 6, 8, 9].into_iter()), Bytes { read: 0, written: 39 });
        assert_eq!(io.of_task(TASK), Bytes::default());
        assert!(io.waiting.is_empty());
    }

    #[test]
    fn too_many_processes_are_told() {
        let mut io = Io::default();
        let most = i32::try_from(WAITING_MAX).unwrap();
        let reports: Vec<IoReport> = (0..=most).map(|process| report(process, 1)).collect();
        assert!(io.take_in(&reports[1..]));
        assert!(!io.take_in(&reports[..1]));
        assert!(io.take_in(&reports[..1]) && io.waiting.len() == 1);
    }
}
