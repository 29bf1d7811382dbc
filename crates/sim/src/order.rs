//! Each job by itself, in the order in which jobs were submitted.

use crate::jobs::{Finished, Job};
use crate::observer::Observer;
use std::collections::VecDeque;
use std::io;
use tutti_types::JobId;

/// Hands jobs that have ended to `write`, in the order in which they were submitted. Those that end
/// before an older one wait for it; those that don't end at all hold up none once
/// [`finish`](InOrder::finish) is called.
pub struct InOrder<F> {
    write: F,
    /// Jobs from number `first` on; `None`: not ended yet.
    window: VecDeque<Option<Finished>>,
    first: u64,
}

impl<F: FnMut(&Finished) -> io::Result<()>> InOrder<F> {
    /// Hands jobs to `write`.
    pub const fn new(write: F) -> Self {
        Self { write, window: VecDeque::new(), first: 0 }
    }

    /// Hands on the rest, leaving out those that have not ended.
    ///
    /// # Errors
    /// If `write` fails.
    pub fn finish(&mut self) -> io::Result<()> {
        self.window.drain(..).flatten().try_for_each(|job| (self.write)(&job))
    }
}

impl<F: FnMut(&Finished) -> io::Result<()>> Observer for InOrder<F> {
    fn submitted(&mut self, sequence: u64, _: &Job) -> io::Result<()> {
        if self.window.is_empty() {
            self.first = sequence;
        }
        self.window.push_back(None);
        Ok(())
    }

    fn ended(&mut self, _: JobId, job: &Finished) -> io::Result<()> {
        let place = job.sequence.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(place) = place.and_then(|place| self.window.get_mut(place)) {
            *place = Some(*job);
        }
        while let Some(Some(job)) = self.window.front() {
            (self.write)(job)?;
            self.window.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}
