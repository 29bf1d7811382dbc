//! The thread that brings a journal to disk, for as many at once as wait for it.

use crate::store::{Number, Sync as BringToDisk};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How far the others are.
#[derive(Debug, Default)]
struct State {
    /// The last entry that a caller wants on disk; it is stored already.
    wanted: Number,
    /// The last that is there.
    reached: Number,
    /// What the disk said when it was asked last.
    failure: Option<String>,
    /// Whether a caller wants it to be asked again.
    again: bool,
    ending: bool,
}

impl State {
    /// Whether there is nothing to do for a thread that has tried up to this.
    fn is_idle(&self, tried: Number) -> bool {
        self.wanted <= self.reached.max(tried) && !self.again
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No thread panics while holding it; if one did, the numbers are still numbers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// In place of the thread, where a simulation says when the disk has come on.
    by_hand: Option<(Box<dyn BringToDisk>, Number, UnixStream)>,
}

impl Disk {
    /// Starts the thread. Nothing is known to be on disk: what an earlier controller has stored may
    /// not be.
    pub(crate) fn start(sync: Box<dyn BringToDisk>) -> std::io::Result<Self> {
        let (mut disk, waker) = Self::new()?;
        let shared = Arc::clone(&disk.shared);
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || run(&shared, sync, &waker))?;
        disk.thread = Some(thread);
        Ok(disk)
    }

    /// Without a thread: brought to disk is what is wanted when [`Self::bring`] is called.
    pub(crate) fn by_hand(sync: Box<dyn BringToDisk>) -> std::io::Result<Self> {
        let (mut disk, waker) = Self::new()?;
        disk.by_hand = Some((sync, 0, waker));
        Ok(disk)
    }

    fn new() -> std::io::Result<(Self, UnixStream)> {
        let shared = Arc::<Shared>::default();
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        // One byte that is not read is as good as many.
        waker.set_nonblocking(true)?;
        Ok((Self { shared, wake, thread: None, by_hand: None }, waker))
    }

    /// Does once what the thread does over and over, where there is none; whether there was
    /// anything to do.
    pub(crate) fn bring(&mut self) -> bool {
        let Some((sync, tried, waker)) = &mut self.by_hand else { return false };
        let state = self.shared.lock();
        let (wanted, is_idle) = (state.wanted, state.is_idle(*tried));
        drop(state);
        if is_idle {
            return false;
        }
        *tried = wanted;
        bring_once(&self.shared, sync.as_mut(), wanted, waker);
        true
    }

    /// Asks for all entries up to this one, which must be stored.
    pub(crate) fn want(&self, number: Number) {
        let mut state = self.shared.lock();
        let again = state.failure.is_some() && number > state.reached;
        if number > state.wanted || again {
            state.wanted = number.max(state.wanted);
            state.again |= again;
            self.shared.changed.notify_one();
        }
    }

    /// The last entry on disk; the reason why it is not the last one wanted, if the disk gave one.
    pub(crate) fn reached(&self) -> (Number, Option<String>) {
        let state = self.shared.lock();
        (state.reached, state.failure.clone())
    }

    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn woken(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
    }

    /// Returns when what is wanted is on disk, or can't be brought there.
    pub(crate) fn finish(&mut self) {
        self.shared.lock().ending = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.finish();
    }
}

fn run(shared: &Shared, mut sync: Box<dyn BringToDisk>, waker: &UnixStream) {
    let mut tried = 0;
    loop {
        let wanted = {
            let mut state = shared.lock();
            // What the disk refused is tried again when a caller wants it, not over and over.
            while state.is_idle(tried) && !state.ending {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_idle(tried) {
                return;
            }
            state.wanted
        };
        tried = wanted;
        bring_once(shared, sync.as_mut(), wanted, waker);
    }
}

fn bring_once(shared: &Shared, sync: &mut dyn BringToDisk, wanted: Number, mut waker: &UnixStream) {
    let synced = sync.sync();
    let mut state = shared.lock();
    state.again = false;
    match synced {
        Ok(()) => {
            state.reached = wanted;
            state.failure = None;
        }
        Err(error) => state.failure = Some(error.to_string()),
    }
    drop(state);
    let _ = waker.write(&[0]);
}
