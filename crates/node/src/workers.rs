//! Threads beside the loop of a daemon, for work that may take long or never end.
//!
//! How long a look at `/proc`, a walk over a tree of processes or the removal of a directory takes
//! is in the hands of the job's user. So such work is done by threads, a bounded number
//! for each user and in all; more work waits in a queue of its user. The work of one user never
//! waits for that of another, unless very many users have all their threads busy.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stack of a worker thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// A piece of work.
pub type Work = Box<dyn FnOnce() + Send>;

/// How many threads there are at most.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// For the work of one user.
    pub of_user: usize,
    /// In all.
    pub all: usize,
}

/// The work that waits and the threads at work, each by user.
struct Queue {
    bounds: Bounds,
    waiting: BTreeMap<u32, VecDeque<Work>>,
    at_work: BTreeMap<u32, usize>,
}

impl Queue {
    const fn new(bounds: Bounds) -> Self {
        Self { bounds, waiting: BTreeMap::new(), at_work: BTreeMap::new() }
    }

    fn threads(&self) -> usize {
        self.at_work.values().sum()
    }

    fn of(&self, user: u32) -> usize {
        self.at_work.get(&user).copied().unwrap_or(0)
    }

    fn take(&mut self, user: u32) -> Option<Work> {
        let waiting = self.waiting.get_mut(&user)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&user);
        }
        work
    }

    /// The next piece of work of a user that may have one more thread: of `user`, if there is any.
    fn next(&mut self, user: u32) -> Option<(u32, Work)> {
        let may = |user: &u32| self.of(*user) < self.bounds.of_user;
        let others = self.waiting.keys().copied().find(may);
        let user =
            Some(user).filter(|user| may(user) && self.waiting.contains_key(user)).or(others)?;
        let work = self.take(user)?;
        *self.at_work.entry(user).or_default() += 1;
        Some((user, work))
    }

    fn done(&mut self, user: u32) {
        if let Some(count) = self.at_work.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.at_work.remove(&user);
            }
        }
    }
}

/// A pool of threads. All copies are the same pool.
#[derive(Clone)]
pub struct Workers {
    queue: Arc<Mutex<Queue>>,
}

impl Workers {
    /// A pool without a thread yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { queue: Arc::new(Mutex::new(Queue::new(bounds))) }
    }

    /// Has a thread do it. Without a thread for it the work waits for one of its user's, or for the
    /// next call.
    pub fn start(&self, user: u32, work: Work) {
        self.lock().waiting.entry(user).or_default().push_back(work);
        self.begin(user);
    }

    /// As [`Workers::start`]; where no thread can be made, and none of this user is at work, the
    /// caller does it.
    pub fn start_for_sure(&self, user: u32, work: Work) {
        self.start(user, work);
        let left = |queue: &mut Queue| match queue.of(user) {
            0 if queue.threads() < queue.bounds.all => queue.take(user),
            _ => None,
        };
        loop {
            let work = left(&mut self.lock());
            let Some(work) = work else { return };
            work();
        }
    }

    /// As [`Workers::start`]; where no thread can be made, and none of this user is at work, the
    /// work is dropped. Whether it is, or will be, done.
    #[must_use]
    pub fn start_or_drop(&self, user: u32, work: Work) -> bool {
        self.start(user, work);
        let mut queue = self.lock();
        let is_left = queue.of(user) == 0 && queue.threads() < queue.bounds.all;
        !is_left || queue.waiting.remove(&user).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, if this user may have one more.
    fn begin(&self, user: u32) {
        {
            let mut queue = self.lock();
            if queue.threads() >= queue.bounds.all || queue.of(user) >= queue.bounds.of_user {
                return;
            }
            *queue.at_work.entry(user).or_default() += 1;
        }
        let workers = self.clone();
        let run = move || workers.run(user);
        let begun = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        if begun.is_err() {
            self.lock().done(user);
        }
    }

    /// The life of a thread, which is counted for `user` at first.
    fn run(&self, mut user: u32) {
        let mut next = {
            let mut queue = self.lock();
            queue.done(user);
            queue.next(user)
        };
        while let Some((of, work)) = next.take() {
            user = of;
            // A thread that failed would be counted for good.
            let _ = catch_unwind(AssertUnwindSafe(work));
            let mut queue = self.lock();
            queue.done(user);
            next = queue.next(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    const BOUNDS: Bounds = Bounds { of_user: 2, all: 32 };

    /// Work that says that it began, and ends when `held` does.
    fn held_work(began: &Sender<()>, held: &Arc<Mutex<()>>) -> Work {
        let (began, held) = (began.clone(), Arc::clone(held));
        Box::new(move || {
            let _ = began.send(());
            drop(held.lock().unwrap());
        })
    }

    #[test]
    fn a_user_has_a_bounded_number_of_threads_and_others_do_not_wait_for_them() {
        let workers = Workers::new(BOUNDS);
        let held = Arc::new(Mutex::new(()));
        let hold = held.lock().unwrap();
        let (began, begun) = channel();
        for _ in 0..20 {
            workers.start(1001, held_work(&began, &held));
        }
        for _ in 0..BOUNDS.of_user {
            begun.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        // Work of another user is done meanwhile, and no more of the first user's has begun.
        let (done, wait) = channel();
        workers.start(1002, Box::new(move || done.send(()).unwrap()));
        wait.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!((workers.lock().of(1001), begun.try_recv().is_err()), (BOUNDS.of_user, true));
        drop(hold);
        for _ in BOUNDS.of_user..20 {
            begun.recv_timeout(Duration::from_secs(30)).unwrap();
        }
    }

    #[test]
    fn work_that_gets_no_thread_is_dropped_and_that_is_said() {
        let workers = Workers::new(Bounds { of_user: 0, all: 32 });
        assert!(!workers.start_or_drop(1001, Box::new(|| panic!("it is dropped"))));
        assert!(workers.lock().waiting.is_empty());
        let workers = Workers::new(BOUNDS);
        let (done, wait) = channel();
        assert!(workers.start_or_drop(1001, Box::new(move || done.send(()).unwrap())));
        wait.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn threads_are_bounded_however_many_users_there_are() {
        let mut queue = Queue::new(BOUNDS);
        for user in 0..100 {
            let work = |_| -> Work { Box::new(|| ()) };
            queue.waiting.insert(user, (0..5).map(work).collect());
        }
        let mut users = Vec::new();
        while queue.threads() < queue.bounds.all {
            users.push(queue.next(7).unwrap().0);
        }
        assert_eq!(users.iter().filter(|user| **user == 7).count(), BOUNDS.of_user);
        // A user without further work makes room for the next user.
        users.drain(..).for_each(|user| queue.done(user));
        assert_eq!((queue.threads(), queue.at_work.len()), (0, 0));
    }
}
