//! Making ahead: while a workload is simulated, a thread of its own makes the jobs that come next:
//! unpacks the trace, reads it, filters it.
//!
//! The thread does nothing else, and what it hands on comes in its order, so a simulation is the
//! same as if it made each job itself when it needs it. It begins when the first one is asked for,
//! and is never further ahead than a few batches.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::vec;

/// So many are handed on together.
const BATCH: usize = 512;
/// So many batches may wait to be taken.
const BATCHES_MAX: usize = 4;

/// What an iterator gives, made by another thread.
pub(super) struct Ahead<I: Iterator> {
    /// Until the first one is asked for.
    items: Option<I>,
    thread: Option<Thread<I::Item>>,
    batch: vec::IntoIter<I::Item>,
}

/// What comes of a thread, and the thread.
type Thread<T> = (Receiver<Vec<T>>, JoinHandle<()>);

impl<I: Iterator> Ahead<I> {
    pub(super) fn new(items: I) -> Self {
        Self { items: Some(items), thread: None, batch: Vec::new().into_iter() }
    }
}

impl<I: Iterator<Item: Send> + Send + 'static> Iterator for Ahead<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.batch.next() {
            return Some(item);
        }
        if let Some(items) = self.items.take() {
            let (sender, batches) = sync_channel(BATCHES_MAX);
            self.thread = Some((batches, thread::spawn(move || make(items, &sender))));
        }
        if let Ok(batch) = self.thread.as_ref()?.0.recv() {
            self.batch = batch.into_iter();
            return self.batch.next();
        }
        // It is over, or it broke: then so does the thread that waits for it.
        let (_, thread) = self.thread.take()?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        None
    }
}

/// Makes all, or until nothing takes what is made.
fn make<I: Iterator>(mut items: I, batches: &SyncSender<Vec<I::Item>>) {
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        batch.extend(items.by_ref().take(BATCH));
        if batch.is_empty() || batches.send(batch).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, BATCH};

    #[test]
    fn everything_comes_in_its_order() {
        for count in [0, 1, BATCH, 20 * BATCH + 1] {
            let mut ahead = Ahead::new(0..count);
            assert!(ahead.by_ref().eq(0..count));
            assert_eq!(ahead.next(), None);
        }
        assert!(Ahead::new(0..).take(3 * BATCH).eq(0..3 * BATCH));
    }

    #[test]
    #[should_panic(expected = "it broke")]
    fn whoever_waits_for_what_broke_breaks() {
        Ahead::new((0..2000).inspect(|&item| assert!(item < 1000, "it broke"))).count();
    }
}
