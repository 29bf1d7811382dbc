//! Whether a file system is full. The question goes to wherever users have their files, and one
//! whose server is gone does not answer: so it is put beside the loop, and not waited for long.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long an answer is waited for. It takes microseconds where it comes at all.
const PATIENCE: Duration = Duration::from_millis(100);

/// Questions without answers, above which no more are put.
const ASKING_MAX: usize = 4;

static ASKING: AtomicUsize = AtomicUsize::new(0);

/// The first of these files that lies where no byte is left, as far as that is known at once.
pub(super) fn first_full(paths: Vec<PathBuf>) -> Option<PathBuf> {
    ask(&ASKING, move || paths.into_iter().find(is_on_full_disk))?
}

fn is_on_full_disk(path: &PathBuf) -> bool {
    nix::sys::statvfs::statvfs(path)
        .is_ok_and(|found| found.blocks() > 0 && found.blocks_available() == 0)
}

fn ask<T: Send + 'static>(
    asking: &'static AtomicUsize,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if asking.fetch_add(1, Ordering::SeqCst) >= ASKING_MAX {
        asking.fetch_sub(1, Ordering::SeqCst);
        return None;
    }
    let (answer, wait) = sync_channel(1);
    let put = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let found = question();
        asking.fetch_sub(1, Ordering::SeqCst);
        // No caller may wait any more.
        let _ = answer.send(found);
    });
    if put.is_err() {
        asking.fetch_sub(1, Ordering::SeqCst);
    }
    wait.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn who_does_not_answer_is_waited_for_a_little_and_then_not_asked() {
        static ASKING: AtomicUsize = AtomicUsize::new(0);
        assert_eq!(ask(&ASKING, || 7), Some(7));
        let (silent, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let began = Instant::now();
        for _ in 0..20 {
            let wait = std::sync::Arc::clone(&wait);
            let question = move || wait.lock().unwrap().recv().is_ok();
            assert_eq!(ask(&ASKING, question), None);
        }
        assert!(began.elapsed() < PATIENCE * 8, "{:?}", began.elapsed());
        drop(silent);
        while ASKING.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(ask(&ASKING, || 8), Some(8));
        assert_eq!(first_full(vec![PathBuf::from("/no/such/file")]), None);
    }
}
