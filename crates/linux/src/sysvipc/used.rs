//! Message queues and sets of semaphores (System V).
//!
//! The kernel does not say which process made one; only which user, when, and which processes used
//! it last.

use super::{Line, gone, parse};
use crate::procfile::read_text;
use crate::{Error, Result};
use std::path::Path;

const QUEUES: &str = "/proc/sysvipc/msg";
const SETS: &str = "/proc/sysvipc/sem";

/// A command of `semctl`: the process that used a semaphore last.
const GETPID: libc::c_int = 11;

/// Which of them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Messages from process to process.
    Queue,
    /// A set of semaphores.
    Semaphores,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// What it is.
    pub kind: Kind,
    /// Names it among its kind.
    pub id: i32,
    /// Messages in it, or how many semaphores it has.
    pub count: u64,
    /// The user that made it.
    pub uid: u32,
    /// When it was made, or its owner was changed: seconds since 1970.
    pub made_s: u64,
    /// When it was used last, likewise; 0 if it never was.
    pub used_s: u64,
    /// The processes that used it last: the sender and the receiver, or those that changed each
    /// semaphore. None if none has; 0 for one in another PID namespace.
    pub users: Vec<i32>,
}

/// All that there are; none where the kernel has none.
#[must_use]
pub fn all() -> Vec<Used> {
    those(|_| true)
}

/// All that are wanted. The users of each semaphore are asked of the kernel one by one, and anybody
/// may have made a great many: so only those of sets that are wanted are. [`Used::users`] of a set
/// is empty when `wanted` is asked.
#[must_use]
pub fn those(wanted: impl Fn(&Used) -> bool) -> Vec<Used> {
    let read = |table| read_text(Path::new(table)).unwrap_or_default();
    let mut found = parse(&read(QUEUES), queue);
    found.retain(&wanted);
    let sets = parse(&read(SETS), set).into_iter().filter(&wanted);
    found.extend(sets.map(with_users));
    found
}

fn queue(line: &Line) -> Option<Used> {
    let (sent_s, received_s): (u64, u64) = (line.value("stime")?, line.value("rtime")?);
    let sender = (sent_s > 0).then_some(line.value("lspid")?);
    let receiver = (received_s > 0).then_some(line.value("lrpid")?);
    Some(Used {
        kind: Kind::Queue,
        id: line.value("msqid")?,
        count: line.value("qnum")?,
        uid: line.value("cuid")?,
        made_s: line.value("ctime")?,
        used_s: sent_s.max(received_s),
        users: sorted(sender.into_iter().chain(receiver).collect()),
    })
}

/// Without its users, which the table does not have.
fn set(line: &Line) -> Option<Used> {
    Some(Used {
        kind: Kind::Semaphores,
        id: line.value("semid")?,
        count: line.value("nsems")?,
        uid: line.value("cuid")?,
        made_s: line.value("ctime")?,
        used_s: line.value("otime")?,
        users: Vec::new(),
    })
}

fn with_users(set: Used) -> Used {
    let numbers = 0..i32::try_from(set.count).unwrap_or(0);
    // SAFETY: this command takes no further argument.
    let users = numbers.map(|number| unsafe { libc::semctl(set.id, number, GETPID) });
    // One that no process has used is 0, one that may not be asked about -1.
    let users = sorted(users.filter(|&pid| pid > 0).collect());
    Used { users, ..set }
}

fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Removes one, unless a process has used it since it was looked at.
///
/// # Errors
/// What `msgctl` or `semctl(IPC_RMID)` says: it is gone, or another user's.
pub fn remove(one: &Used) -> Result<()> {
    // The number may be another's by now.
    if !those(|it| (it.kind, it.id) == (one.kind, one.id)).contains(one) {
        return Err(gone(if one.kind == Kind::Queue { QUEUES } else { SETS }));
    }
    let (call, done) = if one.kind == Kind::Queue {
        // SAFETY: nothing is read or written through the pointer for this command.
        ("msgctl(IPC_RMID)", unsafe { libc::msgctl(one.id, libc::IPC_RMID, std::ptr::null_mut()) })
    } else {
        // SAFETY: this command takes no further argument.
        ("semctl(IPC_RMID)", unsafe { libc::semctl(one.id, 0, libc::IPC_RMID) })
    };
    if done == 0 { Ok(()) } else { Err(Error::last(call)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read() {
        let text = "key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime\n\
                    0 7 600 5 1 12 0 1000 1000 1001 1000 1700000005 0 1700000000\nx\n";
        let expected = Used {
            kind: Kind::Queue,
            id: 7,
            count: 1,
            uid: 1001,
            made_s: 1_700_000_000,
            used_s: 1_700_000_005,
            users: vec![12],
        };
        assert_eq!(parse(text, queue), [expected]);
        let text = "key semid perms nsems uid gid cuid cgid otime ctime\n\
                    0 9 600 3 1000 1000 1001 1000 0 1700000000\n";
        let found = parse(text, set);
        assert_eq!((found[0].id, found[0].count, found[0].used_s), (9, 3, 0));
    }

    #[test]
    fn who_used_a_set_is_told_and_it_is_removed_once() {
        // SAFETY: takes no pointer.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) };
        assert!(id >= 0);
        let find = || all().into_iter().find(|it| it.kind == Kind::Semaphores && it.id == id);
        assert_eq!(find().unwrap().users, []);
        // SAFETY: SETVAL takes an integer.
        assert_eq!(unsafe { libc::semctl(id, 1, libc::SETVAL, 5) }, 0);
        let set = find().unwrap();
        assert_eq!((set.count, &set.users), (2, &vec![std::process::id().cast_signed()]));
        remove(&set).unwrap();
        assert!(find().is_none());
        assert!(remove(&set).unwrap_err().is_gone());
    }

    #[test]
    fn who_used_a_queue_is_told_and_what_was_used_since_stays() {
        // SAFETY: takes no pointer.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
        assert!(id >= 0);
        let find = || all().into_iter().find(|it| it.kind == Kind::Queue && it.id == id).unwrap();
        let before = find();
        assert_eq!((before.users.len(), before.used_s), (0, 0));
        let message = [1i64, 0];
        // SAFETY: a type, which is not 0, and eight bytes are there to be read.
        assert_eq!(unsafe { libc::msgsnd(id, message.as_ptr().cast(), 8, 0) }, 0);
        assert!(remove(&before).unwrap_err().is_gone());
        let queue = find();
        assert_eq!((queue.count, &queue.users), (1, &vec![std::process::id().cast_signed()]));
        remove(&queue).unwrap();
    }
}
