//! Groups that are suspended by signals: the group lists their members, not descent.

use crate::support::{
    LATE, Launch, NOBODY, QUIET, Subtree, busy_tree, eventually, need_root, state, walk,
};
use std::collections::BTreeSet;
use tutti_linux::cgroup::Cgroup;
use tutti_linux::proc::ProcessStat;
use tutti_linux::signal::{Traversal, halt_group, resume_group_except};

const EVERY: [Traversal; 4] =
    [Traversal::DepthFirst, Traversal::BreadthFirst, Traversal::Hybrid, Traversal::AllAtOnce];

fn members(group: &Cgroup) -> Vec<i32> {
    let mut pids = group.processes().unwrap();
    pids.retain(|&pid| !matches!(state(pid), 'Z' | '-'));
    pids.sort_unstable();
    pids
}

/// All are stopped, or are parents of a vfork (D), which wait for a stopped child.
fn assert_held(pids: &[i32], what: &str) {
    let states: String = pids.iter().map(|&pid| state(pid)).collect();
    assert!(states.chars().all(|state| "TD".contains(state)), "{what}: {states}");
}

/// Suspends and resumes a changing group in every order; `running` must hold before and after.
fn suspend_in_every_order(group: &Cgroup, running: impl Fn() -> bool) {
    for traversal in EVERY {
        eventually("it runs", &running);
        let report = halt_group(group, &walk(traversal)).outcome.unwrap();
        let stopped = members(group);
        assert_held(&stopped, &format!("{traversal:?}"));
        std::thread::sleep(QUIET);
        assert_eq!(members(group), stopped, "{traversal:?}: no process comes or goes");
        assert!(report.processes >= stopped.len(), "{traversal:?}: {report:?}");
        resume_group_except(group, &BTreeSet::new(), &walk(traversal)).unwrap();
    }
    eventually("it runs", &running);
}

#[test]
fn orphans_that_fork_all_the_time_are_suspended_whole() {
    let subtree = Subtree::new("hops");
    let group = subtree.group("g");
    // Each child forks again and exits: its own children fall to a process outside of the group.
    let script = "hop() { sleep 0.002; hop & exit; }; for i in 1 2 3 4; do hop & done; exit";
    let _root = Launch::sh(script).start(Some(&group));
    eventually("it hops", || members(&group).len() >= 4);
    suspend_in_every_order(&group, || {
        let before = members(&group);
        std::thread::sleep(QUIET);
        members(&group).iter().any(|pid| !before.contains(pid))
    });
    group.kill().unwrap();
    eventually("all have ended", || !group.is_populated().unwrap());
}

#[test]
fn of_a_bounded_fork_bomb_nobody_is_lost() {
    need_root();
    let subtree = Subtree::new("bomb");
    let group = subtree.group("g");
    // Many end soon, whose children others adopt; where the limit is reached, a fork fails.
    let script =
        "$SIG{CHLD} = 'IGNORE'; while (1) { my $pid = fork; exit if $pid and rand() < 0.5 }";
    let mut bomb = Launch::program(&["perl", "-e", script]).nobody();
    bomb.rlimits = vec![(libc::RLIMIT_NPROC.cast_signed(), 40, 40)];
    bomb.identity = Some(tutti_linux::spawn::Identity {
        // Of its own, since the limit counts all processes of a user.
        uid: NOBODY - 2,
        gid: NOBODY,
        groups: vec![],
    });
    let _root = bomb.start(Some(&group));
    suspend_in_every_order(&group, || members(&group).len() >= 20);
    group.freeze(LATE).unwrap();
    group.kill().unwrap();
    eventually("all have ended", || !group.is_populated().unwrap());
}

#[test]
fn each_process_is_signalled_once_and_who_is_spared_stays_stopped() {
    let subtree = Subtree::new("spared");
    let group = subtree.group("g");
    let _root = Launch::sh(&busy_tree(3)).start(Some(&group));
    eventually("seven processes", || members(&group).len() == 7);
    let all = members(&group);
    for traversal in EVERY {
        let report = halt_group(&group, &walk(traversal)).outcome.unwrap();
        assert_eq!((report.processes, report.signals), (7, 7), "{traversal:?}: none twice");
        let spared = all[3];
        let name = (spared, ProcessStat::read(spared).unwrap().start_time);
        let report = resume_group_except(&group, &[name].into(), &walk(traversal)).unwrap();
        assert_eq!(report.signals, 6, "{traversal:?}");
        let stopped: Vec<i32> = all.iter().copied().filter(|&pid| state(pid) == 'T').collect();
        assert_eq!(stopped, [spared], "{traversal:?}");
        let report = halt_group(&group, &walk(traversal)).outcome.unwrap();
        assert_eq!(report.processes, 7, "{traversal:?}");
        resume_group_except(&group, &BTreeSet::new(), &walk(traversal)).unwrap();
    }
}
