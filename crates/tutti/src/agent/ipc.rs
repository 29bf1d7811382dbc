//! Shared memory (System V) that a job has left behind where it had no namespace of its own
//! ([`tutti_linux::ipc_namespace`]).
//!
//! Removed is what is provably the job's: made by a process of it, while that lived, as its user, and
//! attached by nobody now that all of them have ended. Of message queues and semaphores the kernel does
//! not say who made them; they stay.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use tutti_linux::sysvipc::{self, Segment};
use tutti_linux::track::Life;
use tutti_linux::track::events::boot_ns;

/// The kernel has the making in whole seconds, and clocks may be set by a little.
const TOLERANCE_S: u64 = 2;

/// Removes what processes of user `uid` have left that lived then.
pub(super) fn remove_left(lives: &BTreeMap<i32, Life>, uid: u32) {
    if lives.is_empty() {
        return;
    }
    let booted_s = booted_s();
    for segment in sysvipc::segments().iter().filter(|it| is_left(it, lives, uid, booted_s)) {
        if let Err(error) = sysvipc::remove(segment)
            && !error.is_gone()
        {
            say!([System] "tutti agent: cannot remove shared memory {}: {error}", segment.id);
        }
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
}
