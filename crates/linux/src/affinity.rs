//! Binding processes that run already to processors.

use crate::pidfd::Held;
use crate::proc::ProcessStat;
use crate::spawn::mask_of;
use crate::{Error, Result, proc};

/// Binds all threads of a process to these processors, also those that it makes meanwhile. What has
/// ended is bound.
///
/// # Errors
/// What `sched_setaffinity` says otherwise: none of the processors may be used, or the process is
/// another user's.
pub fn bind(pid: i32, processors: &[u32]) -> Result<()> {
    let words = mask_of(processors);
    let mut bound = Vec::new();
    loop {
        // A new thread has the binding of the one that made it, so it ends.
        let new: Vec<i32> =
            proc::threads(pid).into_iter().filter(|thread| !bound.contains(thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            bind_thread_of(pid, thread, &words)?;
            bound.push(thread);
        }
    }
}

/// A look at where threads of a process may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How many threads were looked at.
    pub threads: usize,
    /// Whether one of them may run elsewhere than it should.
    pub strays: bool,
}

/// Looks whether threads of a process may run on other processors than these, which are in
/// ascending order: at `most` of them.
#[must_use]
pub fn look(pid: i32, processors: &[u32], most: usize) -> Look {
    let mut look = Look::default();
    for thread in proc::threads(pid).into_iter().take(most) {
        look.threads += 1;
        let mask = proc::processors_of(thread);
        look.strays |= mask.is_some_and(|mask| !is_within(&mask, processors));
    }
    look
}

/// Brings threads of a process that may run elsewhere back to these processors, in ascending order:
/// one that is bound to some of them, among others, stays there. Threads with exactly one of the
/// masks in `stale` get all of `processors`: they were bound so for processors that the process had
/// before. `false` if it has ended.
///
/// # Errors
/// As [`bind`].
pub fn confine(process: &Held, processors: &[u32], stale: &[Vec<u32>]) -> Result<bool> {
    for thread in proc::threads(process.pid()) {
        let Some(mask) = proc::processors_of(thread) else { continue };
        let common: Vec<u32> =
            mask.iter().copied().filter(|it| processors.binary_search(it).is_ok()).collect();
        let is_stale = stale.contains(&mask) || common.is_empty();
        let wanted = if is_stale { processors } else { common.as_slice() };
        if mask != wanted {
            bind_thread_of(process.pid(), thread, &mask_of(wanted))?;
        }
    }
    if process.has_ended() { give_back(process).map(|()| false) } else { Ok(true) }
}

fn is_within(mask: &[u32], processors: &[u32]) -> bool {
    mask.iter().all(|processor| processors.binary_search(processor).is_ok())
}

/// Binds a thread of a process, unless it has ended. Where another process has its number by then,
/// that goes back to the processors that it would have.
fn bind_thread_of(pid: i32, thread: i32, words: &[u64]) -> Result<()> {
    if !proc::is_thread_of(pid, thread) {
        return Ok(());
    }
    match bind_thread(thread, words) {
        Err(error) if error.is_gone() => Ok(()),
        Ok(()) if thread != pid && !proc::is_thread_of(pid, thread) => give_back_thread(thread),
        result => result,
    }
}

/// Has a thread that was bound by mistake run where the process that it belongs to may, or where
/// the parent of that may.
fn give_back_thread(thread: i32) -> Result<()> {
    let Some(process) = proc::process_of(thread) else { return Ok(()) };
    let above = match process == thread {
        true => ProcessStat::read(process).map_or(0, |stat| stat.ppid),
        false => process,
    };
    match proc::processors_of(above).filter(|_| above > 0) {
        Some(processors) => match bind_thread(thread, &mask_of(&processors)) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

fn bind_thread(thread: i32, words: &[u64]) -> Result<()> {
    // SAFETY: the mask is as long as said.
    let result =
        unsafe { libc::sched_setaffinity(thread, size_of_val(words), words.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(Error::last("sched_setaffinity")) }
}

/// As [`bind`], for a process that is held. `false` if it has ended: the process that reuses its
/// PID then may use the processors of its own parent.
///
/// # Errors
/// As [`bind`].
pub fn bind_held(process: &Held, processors: &[u32]) -> Result<bool> {
    let bound = bind(process.pid(), processors);
    if !process.has_ended() {
        return bound.map(|()| true);
    }
    give_back(process).map(|()| false)
}

/// Has whatever has the number of a process that has ended run where its parent may.
fn give_back(process: &Held) -> Result<()> {
    // Not reaped yet, the number is its own.
    if let Ok(other) = ProcessStat::read(process.pid())
        && !other.has_ended()
        && let Some(processors) = proc::processors_of(other.ppid)
    {
        bind(other.pid, &processors)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd::tests::with_number_used_again;

    #[test]
    fn a_process_is_bound_with_its_threads() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let result = bind(pid, &[0]);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let none = bind(pid, &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        result.unwrap();
        assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
        assert_eq!(none.unwrap_err().errno(), Some(libc::EINVAL));
        bind(pid, &[0]).unwrap();
    }

    #[test]
    fn threads_that_stray_come_back_and_those_bound_within_stay() {
        assert!(proc::online_processors().len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let held = Held::whoever_is(pid).unwrap();
        let mask = || proc::processors_of(pid).unwrap();
        bind(pid, &[0, 1]).unwrap();
        assert_eq!(look(pid, &[0], 9), Look { threads: 1, strays: true });
        assert!(confine(&held, &[0], &[]).unwrap());
        assert_eq!((mask(), look(pid, &[0], 9).strays), (vec![0], false));
        // The program's own choice within its processors stays; what others chose for it does not.
        assert!(confine(&held, &[0, 1], &[]).unwrap());
        assert_eq!(mask(), [0]);
        assert!(confine(&held, &[0, 1], &[vec![0]]).unwrap());
        assert_eq!(mask(), [0, 1]);
        bind(pid, &[1]).unwrap();
        assert!(confine(&held, &[0], &[]).unwrap());
        assert_eq!(mask(), [0], "it had none of them");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!confine(&held, &[0], &[]).unwrap());
    }

    #[test]
    fn a_thread_of_another_process_is_not_bound_and_goes_back() {
        let own = proc::online_processors();
        assert!(own.len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        // As if it had been a thread of this process, and ended.
        bind_thread_of(std::process::id().cast_signed(), pid, &mask_of(&own[..1])).unwrap();
        let before = proc::processors_of(pid).unwrap();
        bind_thread(pid, &mask_of(&own[..1])).unwrap();
        give_back_thread(pid).unwrap();
        let after = proc::processors_of(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((before, after), (own.clone(), own));
        give_back_thread(i32::MAX).unwrap();
    }

    #[test]
    fn who_has_the_number_of_one_that_has_ended_keeps_its_processors() {
        let own = proc::online_processors();
        assert!(own.len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
        with_number_used_again(|ended, stranger| {
            assert!(!bind_held(ended, &own[..1]).unwrap());
            assert_eq!(proc::processors_of(stranger).unwrap(), own);
        });
        assert_eq!(proc::processors_of(i32::MAX), None);
    }
}
