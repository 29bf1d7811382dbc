//! Removing what jobs have left in their directories, beside the loop.
//!
//! A user may leave a great deal, or put a file system there that never answers: so it is done by threads, a few
//! for each user, and what is more waits for these. Nobody has others wait for his by that, unless there are very many
//! like him.
//!
//! It is done with the rights of the user whose job it was: what he may not remove, as another's directory that he has
//! moved there, stays, and is put out of the way under a name that says so ([`LEFT`]).

use super::scratch::{self, JOB, LEFT};
use std::collections::{BTreeMap, VecDeque};
use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tutti_linux::random::random_u32;
use tutti_linux::remove_tree::remove_tree_of;

/// Threads at once, for what belongs to one user and in all.
const OF_USER_MAX: usize = 2;
const THREADS_MAX: usize = 32;

/// A directory, and whose it must be; without that, as [`remove_tree_of`] says.
pub(super) type Owned = (PathBuf, Option<u32>);

/// What is to be removed, and who waits for it.
type Work = (Owned, SyncSender<()>);

/// What waits, and how many threads are at work, by the user to whom it belongs.
#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u32, VecDeque<Work>>,
    at_work: BTreeMap<u32, usize>,
}

impl Queue {
    fn threads(&self) -> usize {
        self.at_work.values().sum()
    }

    fn of(&self, user: u32) -> usize {
        self.at_work.get(&user).copied().unwrap_or(0)
    }

    /// The next thing to do of somebody who may have another thread: of this user, if there is any.
    fn next(&mut self, user: u32) -> Option<(u32, Work)> {
        let may = |user: &u32| self.of(*user) < OF_USER_MAX;
        let others = self.waiting.keys().copied().find(may);
        let user =
            Some(user).filter(|user| may(user) && self.waiting.contains_key(user)).or(others)?;
        let waiting = self.waiting.get_mut(&user)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&user);
        }
        let work = work?;
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

/// Who removes.
#[derive(Clone, Default)]
pub(super) struct Remover {
    queue: Arc<Mutex<Queue>>,
}

/// To wait for the end of a removal.
pub(super) struct Removal(Receiver<()>);

impl Removal {
    /// Waits until all of it is gone or given up, at most so long; whether that is so.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError;
        // Nothing is sent: each piece that is done has a sender less.
        self.0.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Remover {
    /// Has these removed, with all that is in them.
    pub(super) fn remove(&self, paths: Vec<Owned>) -> Removal {
        self.each(paths, |(path, owner)| {
            if let Err(error) = remove_tree_of(&path, owner) {
                let left = put_aside(&path).unwrap_or_else(|| path.clone());
                let (path, left) = (path.display(), left.display());
                say!([System] "tutti keeper: cannot remove {path}: {error}; what is left is in {left}");
            }
        })
    }

    fn each(&self, paths: Vec<Owned>, act: impl Fn(Owned) + Clone + Send + 'static) -> Removal {
        let (done, wait) = sync_channel(1);
        for (path, owner) in paths {
            let user = symlink_metadata(&path).map_or(u32::MAX, |found| found.uid());
            self.lock().waiting.entry(user).or_default().push_back(((path, owner), done.clone()));
            self.begin(user, act.clone());
        }
        Removal(wait)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a thread, if there may be another for this user.
    fn begin(&self, user: u32, act: impl Fn(Owned) + Send + 'static) {
        let mut queue = self.lock();
        if queue.threads() >= THREADS_MAX || queue.of(user) >= OF_USER_MAX {
            return;
        }
        let Some((user, work)) = queue.next(user) else { return };
        drop(queue);
        let remover = self.clone();
        let begun = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let mut mine = Some((user, work));
            while let Some((user, (owned, done))) = mine.take() {
                act(owned);
                drop(done);
                let mut queue = remover.lock();
                queue.done(user);
                mine = queue.next(user);
            }
        });
        if begun.is_err() {
            // The next job's end tries again; what is left then, the next keeper removes.
            self.lock().done(user);
        }
    }
}

/// Gives what could not be removed a name that tells so; nothing if it has one, or gets none.
fn put_aside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let (prefix, job) = name.split_once(JOB)?;
    let left = path.with_file_name(format!("{prefix}{LEFT}{job}.{:08x}", random_u32().ok()?));
    scratch::rename(path, &left).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::lchown;
    use std::sync::Condvar;

    /// Work that is held up until it is let go on, and counts.
    #[derive(Default)]
    struct Held {
        state: Mutex<(usize, usize, bool)>,
        changed: Condvar,
    }

    impl Held {
        fn act(&self) {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.2).unwrap());
            self.state.lock().unwrap().1 += 1;
        }

        fn wait_for(&self, begun: usize) {
            let state = self.state.lock().unwrap();
            drop(self.changed.wait_while(state, |state| state.0 < begun).unwrap());
        }
    }

    #[test]
    fn nobody_has_more_than_his_threads_and_others_do_not_wait_for_his() {
        let base = std::env::temp_dir().join(format!("tutti-removal-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let place = |name: String, user: u32| {
            let path = base.join(name);
            std::fs::write(&path, "").unwrap();
            lchown(&path, Some(user), None).unwrap();
            (path, None)
        };
        let (remover, held) = (Remover::default(), Arc::new(Held::default()));
        let mine: Vec<Owned> = (0..20).map(|number| place(format!("m{number}"), 1001)).collect();
        let at_work = Arc::clone(&held);
        let slow = remover.each(mine, move |_| at_work.act());
        held.wait_for(OF_USER_MAX);
        // Another's is removed meanwhile, and no more of the first one's is begun.
        let theirs = place("theirs".into(), 1002);
        assert!(remover.remove(vec![theirs.clone()]).wait(Duration::from_secs(30)));
        assert!(!theirs.0.exists());
        assert_eq!(held.state.lock().unwrap().0, OF_USER_MAX);
        assert!(!slow.wait(Duration::ZERO));
        held.state.lock().unwrap().2 = true;
        held.changed.notify_all();
        assert!(slow.wait(Duration::from_secs(30)));
        assert_eq!(held.state.lock().unwrap().1, 20);
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn threads_are_bounded_however_many_users_there_are() {
        let mut queue = Queue::default();
        let (sender, _wait) = sync_channel(1);
        for user in 0..100 {
            let work = || ((PathBuf::from("x"), None), sender.clone());
            queue.waiting.insert(user, (0..5).map(|_| work()).collect());
        }
        let mut users = Vec::new();
        while queue.threads() < THREADS_MAX {
            users.push(queue.next(7).unwrap().0);
        }
        assert_eq!(users.iter().filter(|user| **user == 7).count(), OF_USER_MAX);
        // Who has had his turn makes room for the next user.
        users.drain(..).for_each(|user| queue.done(user));
        assert_eq!((queue.threads(), queue.at_work.len()), (0, 0));
    }
}
