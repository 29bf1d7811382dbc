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

#[cfg(test)]
mod tests {
    use super::*;

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
