//! Suspending, resuming and ending trees by signals.

use crate::support::{
    Forked, Launch, Process, QUIET, as_nobody, busy_tree, eventually, state, ticks, walk,
};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tutti_linux::proc::{ProcessStat, descendants};
use tutti_linux::signal::{
    Root, Traversal, Walk, WalkError, kill_forest, kill_tree, resume_forest, resume_tree,
    signal_forest, signal_tree, suspend_forest, suspend_tree,
};
use tutti_linux::spawn::Report;

const EVERY: [Traversal; 4] =
    [Traversal::DepthFirst, Traversal::BreadthFirst, Traversal::Hybrid, Traversal::AllAtOnce];

/// The tree of a process, itself first, once it has `count` members.
fn tree(process: &Process, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    eventually("the tree has grown", || {
        found = vec![process.pid()];
        found.extend(descendants(process.pid()).unwrap());
        found.len() == count
    });
    found
}

fn all_stopped(pids: &[i32]) -> bool {
    pids.iter().all(|&pid| state(pid) == 'T')
}

fn none_stopped(pids: &[i32]) -> bool {
    pids.iter().all(|&pid| state(pid) != 'T')
}

#[test]
fn fifteen_busy_processes_stop_and_continue_in_every_order() {
    let root = Launch::sh(&busy_tree(4)).start(None);
    let pids = tree(&root, 15);
    for traversal in EVERY {
        let report = suspend_tree(root.pid(), &walk(traversal)).unwrap();
        assert_eq!((report.processes, report.signals), (15, 15), "{traversal:?}: none twice");
        assert!(all_stopped(&pids));
        let before = ticks(&pids);
        std::thread::sleep(QUIET);
        assert_eq!(ticks(&pids), before, "{traversal:?}");

        let report = resume_tree(root.pid(), &walk(traversal)).unwrap();
        assert_eq!((report.processes, report.signals), (15, 15), "{traversal:?}");
        assert!(none_stopped(&pids));
        eventually("they run", || ticks(&pids) > before + 3);
    }
}

/// Watches a tree, given by pairs of parent and child, while `act` runs. The order in which the
/// two states are read is such that a pair seen stopped and not stopped proves a wrong order.
fn watch(pairs: &[(i32, i32)], parent_first: bool, act: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let rounds = AtomicU32::new(0);
    let look = || {
        while !done.load(Ordering::Acquire) {
            for &(parent, child) in pairs {
                let (above, below) = if parent_first {
                    let above = state(parent);
                    (above, state(child))
                } else {
                    let below = state(child);
                    (state(parent), below)
                };
                if above != 'T' && below == 'T' {
                    return Err(format!("{parent} ({above}) saw its child {child} stopped"));
                }
            }
            rounds.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    };
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(look);
        eventually("it is watched", || rounds.load(Ordering::Acquire) > 0 || watcher.is_finished());
        act();
        done.store(true, Ordering::Release);
        watcher.join().unwrap()
    });
    assert_eq!(seen, Ok(()));
}

#[test]
fn no_parent_sees_a_stopped_child() {
    let root = Launch::sh(&busy_tree(3)).start(None);
    let pids = tree(&root, 7);
    let pairs: Vec<(i32, i32)> = pids
        .iter()
        .map(|&pid| (tutti_linux::proc::ProcessStat::read(pid).unwrap().ppid, pid))
        .filter(|(parent, _)| pids.contains(parent))
        .collect();
    assert_eq!(pairs.len(), 6);
    for traversal in [Traversal::DepthFirst, Traversal::BreadthFirst, Traversal::Hybrid] {
        // By its root, or with all that are in it named.
        for whom in [&pids[..1], &pids].into_iter().cycle().take(10) {
            watch(&pairs, false, || {
                suspend_forest(whom, &walk(traversal)).unwrap();
            });
            assert!(all_stopped(&pids));
            watch(&pairs, true, || {
                resume_forest(whom, &walk(traversal)).unwrap();
            });
        }
    }
}

#[test]
fn a_suspension_past_its_deadline_is_undone_and_names_the_culprit() {
    let busy = Launch::sh(&busy_tree(2)).start(None);
    let pids = tree(&busy, 3);
    let stuck = Forked::stuck();
    for traversal in EVERY {
        let limits = Walk { deadline: Duration::from_secs(2), ..walk(traversal) };
        let roots = [busy.pid(), stuck.0];
        let error = suspend_forest(&roots, &limits).unwrap_err();
        let WalkError::Timeout { waited, stuck: named } = error else { panic!("{error}") };
        assert!(waited >= limits.deadline);
        assert!(named.iter().any(|process| process.pid == stuck.0), "{traversal:?}: {named:?}");
        assert!(none_stopped(&pids), "{traversal:?}");
    }
}

/// Each waits for a processor before it stops, for so many turns of the others that one after the
/// other would take far longer than the deadline.
#[test]
fn what_is_too_slow_in_its_order_is_stopped_at_once() {
    let root = Launch::sh(&format!("taskset -pc 0 $$ > /dev/null; {}", busy_tree(6))).start(None);
    let pids = tree(&root, 63);
    let limits = Walk { deadline: Duration::from_secs(2), ..walk(Traversal::DepthFirst) };
    let report = suspend_tree(root.pid(), &limits).unwrap();
    assert_eq!((report.processes, report.signals), (63, 63), "none twice");
    assert!(all_stopped(&pids));
}

#[test]
fn what_may_not_be_signalled_fails_the_whole() {
    let root = Launch::sh("sleep 1000").start(None);
    let pid = root.pid();
    let error = as_nobody(|| suspend_tree(pid, &walk(Traversal::AllAtOnce))).unwrap_err();
    assert!(matches!(error, WalkError::NotPermitted { pid: named, .. } if named == pid), "{error}");
    let error = as_nobody(|| kill_tree(pid)).unwrap_err();
    assert!(matches!(error, WalkError::NotPermitted { pid: named, .. } if named == pid), "{error}");
    let error = as_nobody(|| signal_tree(pid, libc::SIGTERM)).unwrap_err();
    assert!(matches!(error, WalkError::NotPermitted { .. }), "{error}");
    assert_ne!(state(pid), 'T');
}

#[test]
fn a_kill_passes_over_what_it_may_not_signal() {
    let root = Launch::sh("sleep 1000; true").start(None);
    let pids = tree(&root, 2);
    let other = Launch::sh("sleep 1000").nobody().start(None);
    assert_eq!(other.report(), Report::Running, "as nobody");
    let error = as_nobody(|| kill_forest(&[root.pid(), other.pid()])).unwrap_err();
    assert!(matches!(error, WalkError::NotPermitted { .. }), "{error}");
    assert_eq!(state(other.pid()), 'Z', "its own is ended");
    assert!(pids.iter().all(|&pid| !matches!(state(pid), 'T' | 'Z' | '-')));
}

#[test]
fn a_number_that_is_anothers_by_now_is_passed_over() {
    let other = Launch::sh("sleep 1000; true").start(None);
    tree(&other, 2);
    let pid = other.pid();
    let began = ProcessStat::read(pid).unwrap().start_time;
    let was = (pid, began - 1);
    assert_eq!(signal_forest(&[was], libc::SIGKILL).unwrap().processes, 0);
    assert_eq!(kill_forest(&[was]).unwrap().processes, 0);
    assert_eq!(suspend_forest(&[was], &walk(Traversal::AllAtOnce)).unwrap().signals, 0);
    assert!(!matches!(state(pid), 'T' | 'Z' | '-'));
    assert_eq!(kill_forest(&[(pid, began)]).unwrap().processes, 2);
}

#[test]
fn several_trees_at_once() {
    let roots: Vec<Process> = (0..3).map(|_| Launch::sh(&busy_tree(2)).start(None)).collect();
    let pids: Vec<i32> = roots.iter().flat_map(|root| tree(root, 3)).collect();
    let tops: Vec<i32> = roots.iter().map(Process::pid).collect();
    assert_eq!(suspend_forest(&tops, &walk(Traversal::AllAtOnce)).unwrap().processes, 9);
    assert!(all_stopped(&pids));
    assert_eq!(resume_forest(&tops, &walk(Traversal::AllAtOnce)).unwrap().signals, 9);
    assert!(none_stopped(&pids));
    kill_forest(&tops).unwrap();
    assert!(pids.iter().all(|&pid| matches!(state(pid), 'Z' | '-')));
}

/// As when a part of a job is suspended: its members are named one by one, since orphans are among
/// them.
#[test]
fn who_is_named_beside_his_parent_is_walked_once() {
    let root = Launch::sh(&busy_tree(4)).start(None);
    let pids = tree(&root, 15);
    for traversal in EVERY {
        let report = suspend_forest(&pids, &walk(traversal)).unwrap();
        assert_eq!((report.processes, report.signals), (15, 15), "{traversal:?}");
        assert!(all_stopped(&pids));
        let report = resume_forest(&pids, &walk(traversal)).unwrap();
        assert_eq!((report.processes, report.signals), (15, 15), "{traversal:?}");
        assert!(none_stopped(&pids));
    }
    assert_eq!(signal_forest(&pids, libc::SIGCONT).unwrap().processes, 15);
    kill_forest(&pids).unwrap();
    assert!(pids.iter().all(|&pid| matches!(state(pid), 'Z' | '-')));
}

#[test]
fn nobody_is_no_tree() {
    let mut ended = Launch::sh("true").start(None);
    ended.wait();
    let pid = ended.pid();
    for root in [pid, -1, 0, i32::MAX] {
        assert_eq!(suspend_tree(root, &walk(Traversal::AllAtOnce)).unwrap().signals, 0);
        assert_eq!(resume_tree(root, &walk(Traversal::DepthFirst)).unwrap().signals, 0);
        assert_eq!(kill_tree(root).unwrap().signals, 0);
        assert_eq!(signal_tree(root, libc::SIGTERM).unwrap().signals, 0);
    }
}

#[test]
fn a_signal_reaches_all() {
    let mut root = Launch::sh("sleep 1000; true").start(None);
    let pids = tree(&root, 2);
    assert_eq!(signal_tree(root.pid(), libc::SIGTERM).unwrap().signals, 2);
    let ended = WaitStatus::Signaled(Pid::from_raw(root.pid()), Signal::SIGTERM, false);
    assert_eq!(root.wait(), ended);
    eventually("the child ends too", || matches!(state(pids[1]), '-' | 'Z'));
}

#[test]
fn only_what_is_below() {
    let root = Launch::sh(&busy_tree(2)).start(None);
    let pids = tree(&root, 3);
    let below = Root::below(root.pid());
    assert_eq!(suspend_tree(below, &walk(Traversal::DepthFirst)).unwrap().processes, 2);
    assert_ne!(state(root.pid()), 'T');
    assert!(all_stopped(&pids[1..]));
    kill_tree(below).unwrap();
    // Not by its state: one that collects its children seems to sleep.
    let before = ticks(&pids[..1]);
    eventually("it runs on", || ticks(&pids[..1]) > before + 3);
}

#[test]
fn the_parent_of_a_vfork_does_not_hold_it_up() {
    let parent = Forked::new(|| {
        // SAFETY: without CLONE_VM the child has memory of its own; it only waits.
        unsafe {
            let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
            libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize);
            libc::pause();
        }
    });
    eventually("it waits for its child", || state(parent.0) == 'D');
    suspend_tree(parent.0, &walk(Traversal::AllAtOnce)).unwrap();
    let child = descendants(parent.0).unwrap()[0];
    assert_eq!((state(parent.0), state(child)), ('D', 'T'));
    resume_tree(parent.0, &walk(Traversal::AllAtOnce)).unwrap();
    eventually("the child waits again", || state(child) == 'S');
}
