//! Binding processes that run already to processors.

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

/// The processors that the calling thread may run on.
#[must_use]
pub fn own() -> Vec<u32> {
    let mut words = [0_u64; WORDS];
    let bytes = size_of_val(&words);
    // SAFETY: the mask is as long as said; 0 is this thread.
    if unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) } != 0 {
        return Vec::new();
    }
    (0_u32..)
        .zip(words)
        .flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * word + bit)
        })
        .collect()
}

/// Room for the mask of the calling thread: 8,192 processors, the most that Linux is built for.
const WORDS: usize = 128;

/// Moves the calling thread to a processor. It may leave that again: for good it is bound to no other
/// processors than these.
///
/// # Errors
/// What `sched_setaffinity` says: it may not run there.
pub fn go_to(processor: u32, bound_to: &[u32]) -> Result<()> {
    set_own(&[processor])?;
    set_own(bound_to)
}

fn set_own(processors: &[u32]) -> Result<()> {
    let words = mask_of(processors);
    // SAFETY: the mask is as long as said; 0 is this thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&*words), words.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setaffinity")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_to_a_processor_and_is_not_bound_to_it() {
        std::thread::spawn(|| {
            let all = own();
            for &processor in &all {
                go_to(processor, &all).unwrap();
                assert_eq!(own(), all);
            }
            assert_eq!(go_to(9_999, &all).unwrap_err().errno(), Some(libc::EINVAL));
        })
        .join()
        .unwrap();
    }

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
}
