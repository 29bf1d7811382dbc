//! What the one thread needs that must not be late: real-time priority, memory that stays.

use crate::cgroup::leave_cpu_group;
use crate::{Error, Result};
use std::ffi::CString;

/// The version of `capget` with 64 capabilities.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Bit of `CAP_IPC_LOCK` among them.
const CAP_IPC_LOCK: u64 = 1 << 14;
/// Bit of `CAP_SYS_NICE` there.
const CAP_SYS_NICE: u64 = 1 << 23;

/// Gives the calling thread `SCHED_FIFO` with `priority` (1 to 99).
///
/// What it forks falls back to the ordinary policy by itself. Real-time threads share at most 95 %
/// of a processor by default (`kernel.sched_rt_runtime_us`), so that a loop cannot take it whole.
/// Its nice value becomes the best there is, if it may: that counts while it gives way
/// ([`give_way`]).
///
/// # Errors
/// `EPERM` where neither a capability nor `RLIMIT_RTPRIO` allows it, `EINVAL` for a priority out
/// of range. In a group of the v1 `cpu` controller without real-time budget: `EPERM` for root too.
pub fn become_realtime(priority: i32) -> Result<()> {
    set_policy(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)?;
    let _ = set_nice(NICE_BEST);
    Ok(())
}

/// Highest real-time priority of the kernel.
const PRIORITY_MAX: u64 = 99;

/// Highest real-time priority that this process may give its threads; 0 if none.
///
/// Root may use all. Other users may use what `RLIMIT_RTPRIO` allows.
#[must_use]
pub fn priority_max() -> i32 {
    let limit = match has_capability(CAP_SYS_NICE) {
        true => PRIORITY_MAX,
        false => soft_limit(libc::RLIMIT_RTPRIO).min(PRIORITY_MAX),
    };
    i32::try_from(limit).unwrap_or(0)
}

/// Gives the calling thread the highest real-time priority that this process may use. Tasks must be
/// limited to less ([`task_priority_max`]): the kernel never takes a processor from a thread for
/// another one of the same priority.
///
/// The thread moves to the root group of the v1 `cpu` controller first. Any other group there has
/// no real-time budget unless an administrator gave it one.
///
/// # Errors
/// As [`become_realtime`].
pub fn become_highest() -> Result<()> {
    leave_cpu_group();
    become_realtime(priority_max().max(1))
}

/// Highest real-time priority that tasks may have, so that a thread of [`become_highest`] in a
/// process with the limits of this one takes their processor at once. A value for `RLIMIT_RTPRIO`.
#[must_use]
pub fn task_priority_max() -> u64 {
    u64::try_from(priority_max()).unwrap_or(0).saturating_sub(1)
}

/// The nice value that gets a thread of the ordinary policy on first.
const NICE_BEST: i32 = -20;

/// Priority of a thread that is hurried: the least that is before all ordinary ones.
const HURRIED: i32 = 1;

/// What a thread of real-time priority yields to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The threads that wait for the processor.
    Anybody,
    /// Only those that are hurried ([`hurry`]).
    Hurried,
}

/// Lets the threads run that wait for this processor, until `done` says so, `rounds` times at most;
/// gives what `done` said last.
///
/// A thread of real-time priority makes way only by sleeping, and waking costs some 20 us more than
/// it sleeps; of an idle processor, far more. So it is no better than those it gives way to for
/// these rounds, and yields: a thread that is about to leave the processor does so at once, and
/// this thread goes on. It has its priority back afterwards. Among ordinary threads it may be some
/// milliseconds before this one goes on, if another than those that leave wants the processor;
/// among hurried ones it waits for those that leave only.
///
/// Among hurried threads it stays on its processor. The kernel would move it to one where nothing
/// of real-time priority runs, which must wake up first if it is idle: some 0.1 ms, and on a
/// virtual machine whose host is slow to run it, milliseconds in which nothing runs at all.
pub fn give_way(to: Waiting, rounds: u32, mut done: impl FnMut() -> bool) -> bool {
    let (policy, priority) = (policy_of(0), priority_of(0));
    let realtime = matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
    if realtime {
        let reset = policy & libc::SCHED_RESET_ON_FORK;
        // If it is refused, no other thread runs: then naps help.
        let _ = match to {
            Waiting::Anybody => set_policy(0, libc::SCHED_OTHER | reset, 0),
            Waiting::Hurried => set_policy(0, libc::SCHED_FIFO | reset, HURRIED),
        };
    }
    let stay = (realtime && to == Waiting::Hurried).then(Stay::here);
    let mut is_done = false;
    for _ in 0..rounds {
        // SAFETY: takes no pointer.
        unsafe { libc::sched_yield() };
        is_done = done();
        if is_done {
            break;
        }
    }
    if realtime {
        // A thread that was allowed to have it is allowed to have it back.
        let _ = set_policy(0, policy, priority);
    }
    drop(stay);
    is_done
}

/// Words of a mask of processors: more than any kernel has.
const MASK_WORDS: usize = 128;

/// Keeps the calling thread on its processor while it lives, where that can be done.
struct Stay {
    /// The processors of the thread before, and how many bytes of the mask are in use; none if it
    /// stays by itself.
    before: [u64; MASK_WORDS],
    bytes: usize,
}

impl Stay {
    fn here() -> Self {
        let mut before = [0; MASK_WORDS];
        // SAFETY: the mask is as long as said; 0 is the calling thread.
        let bytes = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&before), before.as_mut_ptr())
        };
        let mut stay = Self { before, bytes: usize::try_from(bytes).unwrap_or(0) };
        // SAFETY: takes no pointer.
        let processor = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(usize::MAX);
        let mut here = [0_u64; MASK_WORDS];
        if let Some(word) = here.get_mut(processor / 64) {
            *word = 1 << (processor % 64);
        }
        // A mask without a processor is refused.
        let is_bound = set_mask(&here, stay.bytes);
        if !is_bound {
            stay.bytes = 0;
        }
        stay
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // Where it was allowed to run it is allowed to run again.
            let _ = set_mask(&self.before, self.bytes);
        }
    }
}

/// Binds the calling thread; gives whether it is bound.
fn set_mask(mask: &[u64; MASK_WORDS], bytes: usize) -> bool {
    // SAFETY: no more than the mask is read; 0 is the calling thread.
    let result =
        unsafe { libc::sched_setaffinity(0, bytes.min(size_of_val(mask)), mask.as_ptr().cast()) };
    result == 0
}

/// Has an ordinary thread run before all others that are ordinary, until [`calm`]; gives whether it
/// does. One with a policy of its own keeps that. What it forks meanwhile is ordinary. A timer
/// slack that it has set itself is the default one afterwards, from Linux 6.12 on.
///
/// Only where [`may_calm`] says so: else it would stay hurried.
///
/// # Errors
/// `EPERM` where the caller may not.
pub fn hurry(thread: i32) -> Result<bool> {
    if policy_of(thread) != libc::SCHED_OTHER {
        return Ok(false);
    }
    match set_policy(thread, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, HURRIED) {
        Ok(()) => Ok(true),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a thread that was hurried an ordinary one again, with the nice value that it had. Any
/// other stays as it is.
pub fn calm(thread: i32) {
    let hurried = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    if policy_of(thread) == hurried && priority_of(thread) == HURRIED {
        // Only one that has ended can't be.
        let _ = set_policy(thread, libc::SCHED_OTHER, 0);
    }
}

/// Whether the calling thread may make one that it hurries an ordinary one again.
///
/// To hurry, `RLIMIT_RTPRIO` will do; to calm takes a capability, since what is forked meanwhile
/// was to be ordinary (`SCHED_RESET_ON_FORK`). Tried with this thread itself, whose policy stays as
/// it is; if it has none of that, and may not, what it forks is ordinary from then on.
#[must_use]
pub fn may_calm() -> bool {
    let (policy, priority) = (policy_of(0), priority_of(0));
    let without = policy & !libc::SCHED_RESET_ON_FORK;
    let with = without | libc::SCHED_RESET_ON_FORK;
    let may = set_policy(0, with, priority).and_then(|()| set_policy(0, without, priority));
    let _ = set_policy(0, policy, priority);
    may.is_ok()
}

/// Negative if there is no such thread; 0 is the calling one.
fn policy_of(thread: i32) -> i32 {
    // SAFETY: takes no pointer.
    unsafe { libc::sched_getscheduler(thread) }
}

fn priority_of(thread: i32) -> i32 {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` can be written.
    unsafe { libc::sched_getparam(thread, &raw mut parameters) };
    parameters.sched_priority
}

fn set_policy(thread: i32, policy: i32, priority: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` outlives the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setscheduler")),
    }
}

/// Keeps all memory of this process, present and future, from being paged out.
///
/// Pages are locked as they are first touched (`MCL_ONFAULT`): locking whole reservations instead
/// makes thread stacks and the allocator's arenas resident, tens of megabytes that are never used.
///
/// # Errors
/// [`Error::LockLimit`] where a limit is in force: locking under it would make later allocations
/// fail, which is worse than a late page. Else what `mlockall` says.
pub fn lock_memory() -> Result<()> {
    if !has_capability(CAP_IPC_LOCK) {
        let limit_bytes = soft_limit(libc::RLIMIT_MEMLOCK);
        if limit_bytes != libc::RLIM_INFINITY {
            return Err(Error::LockLimit { limit_bytes });
        }
    }
    // SAFETY: takes no pointer.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(Error::last("mlockall")),
    }
}

/// The nice value of this thread, -20 to 19.
#[must_use]
pub fn nice() -> i32 {
    nice_of(0)
}

/// The nice value of a process, -20 to 19; 0 if there is none of that number.
#[must_use]
pub fn nice_of(pid: i32) -> i32 {
    // The kernel's own answer is 20 less the nice value, so that nothing it says is an error.
    // SAFETY: takes no pointer; 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, pid) };
    i32::try_from(answer).map_or(0, |answer| if answer > 0 { 20 - answer } else { 0 })
}

/// Gives this process `nice` (-20 to 19; lower is sooner), so that it gets through on a machine
/// full of busy processes. What it forks has it too, unless `spawn` resets it.
///
/// # Errors
/// `EACCES` where neither a capability nor `RLIMIT_NICE` allows it.
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: takes no pointer; 0 is the calling process.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(Error::last("setpriority")),
    }
}

/// Names the calling thread, as `ps -L` and `/proc` show it; cut to 15 bytes or at a NUL byte.
pub fn set_thread_name(name: &str) {
    let bytes: Vec<u8> = name.bytes().take(15).take_while(|&byte| byte != 0).collect();
    let name = CString::new(bytes).expect("cut before the first NUL byte");
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Lets the kernel delay the timers of the calling thread by at most `slack_ns` (1: not at all;
/// 0: back to the default, 50,000). Real-time threads have none in any case.
pub fn set_timer_slack(slack_ns: u64) {
    // SAFETY: takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

/// Whether the calling thread has a capability in effect.
fn has_capability(bit: u64) -> bool {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: both have the form that the kernel has for this version of the call.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    let effective = u64::from(sets[0].effective) | u64::from(sets[1].effective) << 32;
    done == 0 && effective & bit != 0
}

/// Soft limit of this process on a resource.
fn soft_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    // It fails for an unknown resource only, and leaves the limit 0 then.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::proc;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_long_name_is_cut() {
        let name = std::thread::spawn(|| {
            set_thread_name("a name that is far too long");
            std::fs::read_to_string("/proc/thread-self/comm").unwrap()
        });
        assert_eq!(name.join().unwrap(), "a name that is \n");
    }

    fn run_on(processors: &[u32]) -> bool {
        let mut mask = [0_u64; MASK_WORDS];
        let numbers = processors.iter().map(|&processor| processor as usize);
        numbers.for_each(|number| mask[number / 64] |= 1 << (number % 64));
        set_mask(&mask, size_of_val(&mask))
    }

    /// Where it ran while a hurried thread left the processor, and its mask afterwards.
    fn processors_while_it_gives_way() -> (Vec<i32>, Option<Vec<u32>>) {
        let all = proc::online_processors();
        assert!(all.len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
        let first = i32::try_from(all[0]).unwrap();
        become_realtime(2).expect("THIS TEST NEEDS ROOT");
        assert!(run_on(&all[..1]));
        let (hurried, ends) = (Barrier::new(2), AtomicBool::new(false));
        let leave = || {
            set_policy(0, libc::SCHED_FIFO, HURRIED).unwrap();
            hurried.wait();
            let end = monotonic_ns() + 300_000;
            while monotonic_ns() < end {}
            ends.store(true, Ordering::Release);
        };
        let mut ran = Vec::new();
        let mask = std::thread::scope(|scope| {
            scope.spawn(leave);
            hurried.wait();
            assert!(run_on(&all));
            give_way(Waiting::Hurried, 8, || {
                // SAFETY: takes no pointer.
                ran.push(unsafe { libc::sched_getcpu() } - first);
                ends.load(Ordering::Acquire)
            });
            proc::processors_of(0)
        });
        (ran, mask)
    }

    #[test]
    fn a_thread_that_gives_way_to_hurried_ones_stays_on_its_processor() {
        for _ in 0..20 {
            let all = proc::online_processors();
            let run = std::thread::spawn(processors_while_it_gives_way);
            let (ran, mask) = run.join().unwrap();
            assert!(!ran.is_empty() && ran.iter().all(|&processor| processor == 0), "{ran:?}");
            assert_eq!(mask, Some(all), "it may run where it could before");
        }
    }

    #[test]
    fn priority_out_of_range_is_refused() {
        let refused = std::thread::spawn(|| become_realtime(1000)).join().unwrap();
        assert_eq!(refused.unwrap_err().errno(), Some(libc::EINVAL));
    }
}
