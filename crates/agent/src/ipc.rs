//! IPC of the node that a job has left behind where it had no namespace of its own
//! ([`tutti_linux::ipc_namespace`]).
//!
//! Removed is shared memory that is provably the job's: made by a process of it, while that lived,
//! as its user, and attached by no process now that all of them have ended. Of message queues and
//! semaphores the kernel does not say which process made them. They go if the job's user made them
//! (or set them) in the job's time, if all processes that the kernel names as their last users were
//! the job's, and if the user has no other process here that could want them. What no process has
//! used yet stays, and what other jobs of the user, or a shell of theirs, may have made:
//! `tutti doctor --leftovers` lists it.
//!
//! Of POSIX queues it does not even name the users, nor when they were made. So they go if they
//! were not there yet when the job began ([`IpcBefore`]), no process has them open, none has used
//! them since, and the user had no other process here, neither when the job began nor now. So it is
//! with POSIX shared memory and semaphores, which are files (what a job that is ended by force has
//! mapped, the keeper knows besides).

use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::warn;
use tutti_linux::posix_queues::{self, PosixQueue};
use tutti_linux::proc::{self, ProcessStat};
use tutti_linux::shm::{self, SharedFile};
use tutti_linux::sysvipc::used::{self, Used};
use tutti_linux::sysvipc::{self, Segment};
use tutti_linux::track::Life;
use tutti_linux::track::events::boot_ns;
use tutti_node::executable::RUNNING;
use tutti_wire::code::Code;
use tutti_wire::launch::Launch;

/// The kernel has the making in whole seconds, and clocks may be set by a little.
const TOLERANCE_S: u64 = 2;

/// How much processor time the look at all processes before a job may take: the agent does nothing
/// else meanwhile. What can't be told in time stays.
const LOOK_BEFORE_MAX: Duration = Duration::from_millis(100);

/// How long that look may take in all, on a machine whose processors are busy.
const LOOK_BEFORE_WALL_MAX: Duration = Duration::from_secs(1);

/// How long a thread beside the loop may look at processes and remove what a job has left.
const LOOK_AFTER_MAX: Duration = Duration::from_secs(10);

/// The POSIX queues, shared memory and semaphores that were there when a job began whose user had
/// no other process here. Where one of them can't be seen, there is nothing of it.
pub(super) struct IpcBefore {
    queues: Option<BTreeSet<u64>>,
    files: Option<BTreeSet<u64>>,
}

impl IpcBefore {
    /// Called before the first process of a job; nothing if what it leaves can't be told.
    pub(super) fn look(launch: &Launch) -> Option<Self> {
        if tutti_node::platform::processes::are_simulated() {
            return None;
        }
        // An instance of the user's own is started from a session of theirs: another process, as a
        // rule.
        let is_of_the_node = nix::unistd::geteuid().is_root() && !launch.own_ipc;
        let is_new = launch.spec.adopt.is_empty();
        // Also where there is nothing yet: another process may make one, and be gone when the job
        // ends.
        if !is_of_the_node || !is_new {
            return None;
        }
        let (until, began) = (Instant::now() + LOOK_BEFORE_WALL_MAX, processor_time());
        let is_time =
            || Instant::now() < until && processor_time().saturating_sub(began) < LOOK_BEFORE_MAX;
        if has_other_processes(launch.credentials.uid, is_time) {
            return None;
        }
        Some(Self { queues: posix_queues::inodes(), files: shm::inodes() })
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Whether anything may be left for [`remove_left`]: a short look at tables, not at processes.
pub(super) fn may_be_left(
    lives: &BTreeMap<i32, Life>,
    uid: u32,
    before: Option<&IpcBefore>,
) -> bool {
    if lives.is_empty() {
        return false;
    }
    let booted_s = booted_s();
    let is_new = |before: Option<&BTreeSet<u64>>, now: fn() -> Option<BTreeSet<u64>>| {
        before.is_some_and(|before| now().is_some_and(|now| !now.is_subset(before)))
    };
    sysvipc::segments().iter().any(|it| is_left(it, lives, uid, booted_s))
        || used::those(|it| it.uid == uid).iter().any(|it| is_left_used(it, lives, uid, booted_s))
        || is_new(before.and_then(|it| it.queues.as_ref()), posix_queues::inodes)
        || is_new(before.and_then(|it| it.files.as_ref()), shm::inodes)
}

/// Removes what processes of user `uid` have left that lived then. It takes a while: a thread beside
/// the loop does it.
pub(super) fn remove_left(lives: &BTreeMap<i32, Life>, uid: u32, before: Option<&IpcBefore>) {
    let (booted_s, until) = (booted_s(), Instant::now() + LOOK_AFTER_MAX);
    let is_time = || Instant::now() < until;
    let segments = sysvipc::segments();
    let left = segments.iter().filter(|it| is_left(it, lives, uid, booted_s));
    for segment in left.take_while(|_| is_time()) {
        tell("shared memory", segment.id, sysvipc::remove(segment));
    }
    let mut used = used::those(|it| it.uid == uid);
    used.retain(|it| is_left_used(it, lives, uid, booted_s));
    let time = time_of(lives, booted_s);
    let queues = left_queues(before, uid, &time);
    let files = left_files(before, uid, &time, until);
    let is_any = !used.is_empty() || !queues.is_empty() || !files.is_empty();
    if is_any && !has_other_processes(uid, is_time) {
        for one in used.into_iter().take_while(|_| is_time()) {
            let what = match one.kind {
                used::Kind::Queue => "message queue",
                used::Kind::Semaphores => "semaphores",
            };
            tell(what, one.id, used::remove(&one));
        }
        for (queue, removed) in queues.iter().zip(posix_queues::remove(&queues)) {
            tell("message queue", queue.name.display(), removed);
        }
        for file in files {
            tell("shared memory", file.path.display(), shm::remove_unused(&file, until));
        }
    }
}

fn left_queues(
    before: Option<&IpcBefore>,
    uid: u32,
    time: &RangeInclusive<u64>,
) -> Vec<PosixQueue> {
    let Some(before) = before.and_then(|before| before.queues.as_ref()) else { return Vec::new() };
    let is_left = |it: &PosixQueue| is_left_queue(it, before, uid, time);
    let found = posix_queues::those(is_left);
    // Again, now that it is known which processes have them open.
    found.into_iter().filter(is_left).collect()
}

fn left_files(
    before: Option<&IpcBefore>,
    uid: u32,
    time: &RangeInclusive<u64>,
    until: Instant,
) -> Vec<SharedFile> {
    let Some(before) = before.and_then(|before| before.files.as_ref()) else { return Vec::new() };
    shm::unused(|it| is_left_file(it, before, uid, time), Some(until))
}

/// Whether one may be theirs; that no process uses it is known otherwise.
fn is_left_file(
    file: &SharedFile,
    before: &BTreeSet<u64>,
    uid: u32,
    time: &RangeInclusive<u64>,
) -> bool {
    file.uid == uid && !before.contains(&file.inode) && time.contains(&file.made_s)
}

fn tell(what: &str, id: impl Display, removed: tutti_linux::Result<()>) {
    if let Err(error) = removed
        && !error.is_gone()
    {
        warn!(code = %Code::System, "cannot remove {what} {id}: {error}");
    }
}

fn is_left(segment: &Segment, lives: &BTreeMap<i32, Life>, uid: u32, booted_s: u64) -> bool {
    let seconds = |ns: u64| booted_s + ns / 1_000_000_000;
    let is_time = |life: &Life| {
        let (from, to) = (seconds(life.born_ns), seconds(life.ended_ns) + TOLERANCE_S);
        (from.saturating_sub(TOLERANCE_S)..=to).contains(&segment.made_s)
    };
    segment.attached == 0 && segment.uid == uid && lives.get(&segment.maker).is_some_and(is_time)
}

/// The seconds since 1970 in which any of them lived.
fn time_of(lives: &BTreeMap<i32, Life>, booted_s: u64) -> RangeInclusive<u64> {
    let seconds = |ns: u64| booted_s + ns / 1_000_000_000;
    let from = lives.values().map(|life| seconds(life.born_ns)).min().unwrap_or(u64::MAX);
    let to = lives.values().map(|life| seconds(life.ended_ns)).max().unwrap_or(0);
    from.saturating_sub(TOLERANCE_S)..=to + TOLERANCE_S
}

/// Whether a queue may be theirs and no process uses it.
fn is_left_queue(
    queue: &PosixQueue,
    before: &BTreeSet<u64>,
    uid: u32,
    time: &RangeInclusive<u64>,
) -> bool {
    let used_s = u64::try_from(queue.used_s).unwrap_or(0);
    queue.uid == uid && !queue.open && !before.contains(&queue.inode) && time.contains(&used_s)
}

/// Whether a queue or semaphores may be theirs and no other process is known to have used them.
fn is_left_used(one: &Used, lives: &BTreeMap<i32, Life>, uid: u32, booted_s: u64) -> bool {
    let time = time_of(lives, booted_s);
    let is_time = |at_s| time.contains(&at_s);
    one.uid == uid
        && is_time(one.made_s)
        && (one.used_s == 0 || is_time(one.used_s))
        && !one.users.is_empty()
        && one.users.iter().all(|user| lives.contains_key(user))
}

/// Whether a user has processes here that are not of this very program, as far as it can be told in
/// time.
fn has_other_processes(uid: u32, is_time: impl Fn() -> bool) -> bool {
    let file = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = file(RUNNING);
    let is_other = |&pid: &i32| {
        proc::user_ids(pid).is_ok_and(|ids| ids.contains(&uid))
            && ProcessStat::read(pid).is_ok_and(|stat| !stat.has_ended())
            && file(&format!("/proc/{pid}/exe")) != own
    };
    proc::all().iter().any(|pid| !is_time() || is_other(pid))
}

/// When the machine was started, seconds since 1970.
fn booted_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    now.saturating_sub(boot_ns() / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_process_of_the_job_made_while_it_lived_is_its_own() {
        const S: u64 = 1_000_000_000;
        let lives = BTreeMap::from([(7, Life { born_ns: 100 * S, ended_ns: 110 * S })]);
        let segment =
            Segment { id: 1, bytes: 1, maker: 7, attached: 0, uid: 1000, made_s: 1_000_105 };
        let check = |segment| is_left(&segment, &lives, 1000, 1_000_000);
        assert!(check(segment));
        assert!(!check(Segment { maker: 8, ..segment }), "another's");
        assert!(!check(Segment { attached: 1, ..segment }), "used");
        assert!(!check(Segment { uid: 0, ..segment }), "another user's");
        for made_s in [1_000_097, 1_000_113] {
            assert!(!check(Segment { made_s, ..segment }), "of another with that number");
        }
    }

    #[test]
    fn what_only_the_job_is_known_to_have_used_is_its_own() {
        const S: u64 = 1_000_000_000;
        let lives = BTreeMap::from([
            (7, Life { born_ns: 100 * S, ended_ns: 110 * S }),
            (8, Life { born_ns: 104 * S, ended_ns: 120 * S }),
        ]);
        let queue = Used {
            kind: used::Kind::Queue,
            id: 1,
            count: 0,
            uid: 1000,
            made_s: 1_000_105,
            used_s: 1_000_115,
            users: vec![7, 8],
        };
        let check = |one: &Used| is_left_used(one, &lives, 1000, 1_000_000);
        assert!(check(&queue) && check(&Used { used_s: 0, ..queue.clone() }));
        assert!(!check(&Used { users: vec![7, 9], ..queue }), "another has used it");
        assert!(!check(&Used { users: Vec::new(), ..queue }), "nobody has");
        assert!(!check(&Used { uid: 0, ..queue.clone() }), "another user's");
        assert!(!check(&Used { made_s: 1_000_097, ..queue.clone() }), "made before");
        assert!(!check(&Used { used_s: 1_000_123, ..queue }), "used since");
    }

    #[test]
    fn a_posix_queue_is_left_that_came_with_the_job_and_that_nobody_has_used_since() {
        const S: u64 = 1_000_000_000;
        let lives = BTreeMap::from([(7, Life { born_ns: 100 * S, ended_ns: 110 * S })]);
        let (before, time) = (BTreeSet::from([3]), time_of(&lives, 1_000_000));
        let queue =
            PosixQueue { name: "q".into(), inode: 4, uid: 1000, used_s: 1_000_105, open: false };
        let check = |queue: &PosixQueue| is_left_queue(queue, &before, 1000, &time);
        assert!(check(&queue));
        assert!(!check(&PosixQueue { inode: 3, ..queue.clone() }), "made before");
        assert!(!check(&PosixQueue { uid: 0, ..queue.clone() }), "another user's");
        assert!(!check(&PosixQueue { open: true, ..queue.clone() }), "open");
        for used_s in [-1, 1_000_097, 1_000_113] {
            assert!(!check(&PosixQueue { used_s, ..queue.clone() }), "of another time");
        }
    }

    #[test]
    fn a_file_of_shared_memory_is_left_that_came_with_the_job() {
        let (before, time) = (BTreeSet::from([3]), 1_000_098..=1_000_112);
        let (path, made_s) = ("/dev/shm/a".into(), 1_000_105);
        let file = SharedFile { path, inode: 4, device: 1, uid: 1000, bytes: 1, made_s };
        let check = |file: &SharedFile| is_left_file(file, &before, 1000, &time);
        assert!(check(&file));
        assert!(!check(&SharedFile { inode: 3, ..file.clone() }), "made before");
        assert!(!check(&SharedFile { uid: 0, ..file.clone() }), "another user's");
        assert!(!check(&SharedFile { made_s: 1_000_097, ..file.clone() }), "of another time");
        assert!(!check(&SharedFile { made_s: 1_000_113, ..file }), "of another time");
    }

    #[test]
    fn this_program_is_no_other_process() {
        assert!(has_other_processes(0, || true), "the machine has init");
        assert!(!has_other_processes(4_000_000_000, || true));
        assert!(has_other_processes(4_000_000_000, || false), "nothing can be told in no time");
    }

    #[test]
    fn only_what_came_with_the_job_may_be_left() {
        const NO_USER: u32 = 4_000_000_000;
        let lives = BTreeMap::from([(7, Life { born_ns: 0, ended_ns: 0 })]);
        let path = format!("/dev/shm/tutti-test-left-{}", std::process::id());
        fs::write(&path, "").unwrap();
        let without = IpcBefore { queues: None, files: Some(BTreeSet::new()) };
        assert!(may_be_left(&lives, NO_USER, Some(&without)));
        assert!(!may_be_left(&BTreeMap::new(), NO_USER, Some(&without)), "without a process");
        assert!(!may_be_left(&lives, NO_USER, None), "before was not seen");
        fs::remove_file(&path).unwrap();
    }
}
