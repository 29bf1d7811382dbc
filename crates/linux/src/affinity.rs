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
            let bytes = size_of_val(words.as_slice());
            // SAFETY: the mask is as long as said.
            let result = unsafe { libc::sched_setaffinity(thread, bytes, words.as_ptr().cast()) };
            if result != 0 {
                let error = Error::last("sched_setaffinity");
                if !error.is_gone() {
                    return Err(error);
                }
            }
            bound.push(thread);
        }
    }
}

/// As [`bind`], for a process that is held. `false` if it has ended: who has its number then may use the
/// processors of its own parent.
///
/// # Errors
/// As [`bind`].
pub fn bind_held(process: &Held, processors: &[u32]) -> Result<bool> {
    let bound = bind(process.pid(), processors);
    if !process.has_ended() {
        return bound.map(|()| true);
    }
    // Not reaped yet, the number is its own.
    if let Ok(other) = ProcessStat::read(process.pid())
        && !other.has_ended()
        && let Some(processors) = proc::processors_of(other.ppid)
    {
        bind(other.pid, &processors)?;
    }
    Ok(false)
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
