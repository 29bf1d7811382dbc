//! The order in which threads run.

use crate::support::{Forked, LATE, Launch, Subtree, as_nobody, eventually, threads};
use std::time::Instant;
use tutti_linux::cgroup::{Haste, freeze_all};
use tutti_linux::proc::online_processors;
use tutti_linux::rt::{Waiting, become_realtime, calm, give_way, hurry, may_calm};

const ORDINARY: u32 = 0;
const FIFO: u32 = 1;

/// Policy and nice value of a thread, as the kernel tells them.
fn standing_of(thread: &str) -> (u32, i32) {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Counted from the state, which is the third field of all.
    (fields[41 - 3].parse().unwrap(), fields[19 - 3].parse().unwrap())
}

fn standing() -> (u32, i32) {
    standing_of("thread-self")
}

#[test]
fn who_gives_way_has_its_priority_back() {
    let thread = std::thread::spawn(|| {
        become_realtime(50).unwrap();
        assert_eq!(standing(), (FIFO, -20));
        let mut looks = 0;
        let done = give_way(Waiting::Anybody, 5, || {
            assert_eq!(standing(), (ORDINARY, -20));
            looks += 1;
            looks == 3
        });
        assert!(done && looks == 3);
        assert!(!give_way(Waiting::Anybody, 2, || false));
        assert_eq!(standing(), (FIFO, -20));
    });
    thread.join().unwrap();
    assert!(!give_way(Waiting::Anybody, 2, || false), "an ordinary thread just yields");
    assert_eq!(standing().0, ORDINARY);
}

/// An ordinary user may be allowed real-time priority, but not to take it back from a thread that
/// got it.
#[test]
fn only_who_can_undo_it_hurries_anybody() {
    let before = standing();
    assert!(may_calm());
    assert_eq!(standing(), before);
    let subtree = Subtree::new("undo");
    let group = subtree.group("g");
    let leaves = Forked::busy_as_nobody();
    leaves.move_to(&group);
    // Its files are open from now on.
    assert_eq!(freeze_all(&[&group], &mut Haste::default(), Instant::now() + LATE), []);
    group.request_thaw().unwrap();
    let processor = *online_processors().last().unwrap();
    leaves.confine(processor, 19);
    let other = Forked::busy();
    other.move_to(&subtree.group("other"));
    other.confine(processor, 0);
    let haste = as_nobody(|| {
        assert!(!may_calm());
        let mut haste = Haste::default();
        // On a busy machine the other one may be late too, and then there is no need to hurry.
        for _ in 0..100 {
            assert_eq!(freeze_all(&[&group], &mut haste, Instant::now() + LATE), []);
            group.request_thaw().unwrap();
            if haste == Haste::Never {
                break;
            }
        }
        haste
    });
    for thread in threads(leaves.0) {
        assert_eq!(standing_of(&thread.to_string()), (ORDINARY, 19));
    }
    assert_eq!(haste, Haste::Never);
}

#[test]
fn who_gives_way_to_those_that_are_hurried_is_before_all_others() {
    let thread = std::thread::spawn(|| {
        become_realtime(50).unwrap();
        assert!(give_way(Waiting::Hurried, 1, || standing() == (FIFO, -20)));
        assert_eq!(standing(), (FIFO, -20));
    });
    thread.join().unwrap();
}

#[test]
fn who_was_hurried_is_as_before_and_what_it_forked_is_ordinary() {
    let mut hurried = Launch::sh("echo up; sleep 0.5; sleep 1000 & echo $!; wait").start(None);
    let pid = hurried.pid();
    assert_eq!(hurried.read_line(), "up");
    // SAFETY: takes no pointer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as u32, 7) };
    assert!(hurry(pid).unwrap());
    assert!(!hurry(pid).unwrap(), "it is already");
    assert_eq!(standing_of(&pid.to_string()), (FIFO, 7));
    let child = hurried.read_line();
    assert_eq!(standing_of(&child).0, ORDINARY);
    calm(pid);
    assert_eq!(standing_of(&pid.to_string()), (ORDINARY, 7));
    assert!(!hurry(i32::MAX).unwrap(), "who is gone is not hurried");
}

#[test]
fn a_policy_of_its_own_stays() {
    // SAFETY: takes no pointer.
    let own = Forked::new(|| while become_realtime(3).is_ok() && unsafe { libc::pause() } < 0 {});
    let policy = || standing_of(&own.0.to_string()).0;
    eventually("a policy", || policy() == FIFO);
    assert!(!hurry(own.0).unwrap());
    calm(own.0);
    assert_eq!(policy(), FIFO);
}

/// Threads of the least weight there is stop at once, though others of the greatest want their
/// processor: by themselves they would have their turn after minutes.
#[test]
fn those_who_are_to_stop_where_others_run_are_hurried() {
    let subtree = Subtree::new("hurried");
    let group = subtree.group("g");
    let below = group.create_child("task").unwrap();
    let processor = *online_processors().last().unwrap();
    let leaves = Forked::busy();
    leaves.move_to(&below);
    leaves.confine(processor, 19);
    let others = [Forked::busy(), Forked::busy()];
    // Beside the group, not above it, so that it is the nice values that count.
    let beside = subtree.group("others");
    for other in &others {
        other.move_to(&beside);
        other.confine(processor, -20);
    }
    let mut haste = Haste::default();
    for _ in 0..3 {
        assert_eq!(freeze_all(&[&group], &mut haste, Instant::now() + LATE), []);
        assert!(matches!(haste, Haste::Hurry(_)), "{haste:?}");
        for thread in threads(leaves.0) {
            assert_eq!(standing_of(&thread.to_string()), (ORDINARY, 19));
        }
        group.request_thaw().unwrap();
    }
}

#[test]
fn whom_somebody_left_hurried_is_made_ordinary() {
    let subtree = Subtree::new("calm");
    let group = subtree.group("g");
    let left = Forked::busy();
    left.move_to(&group.create_child("task").unwrap());
    let standings = || threads(left.0).into_iter().map(|thread| standing_of(&thread.to_string()).0);
    group.request_freeze().unwrap();
    eventually("all to stop", || group.is_frozen().unwrap());
    threads(left.0).into_iter().for_each(|thread| assert!(hurry(thread).unwrap()));
    assert!(standings().all(|policy| policy == FIFO));
    group.calm();
    assert!(standings().all(|policy| policy == ORDINARY));
}
