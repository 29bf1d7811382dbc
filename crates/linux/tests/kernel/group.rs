//! Freezing, killing, removing.

use crate::support::{
    Forked, LATE, Launch, QUIET, Subtree, as_nobody, busy_tree, eventually, state,
};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_linux::cgroup::{Cgroup, DAEMONS, FreezeError, Haste, Hierarchy, Unit, freeze_all};
use tutti_linux::spawn::{Report, read_report};

fn used(group: &Cgroup) -> u64 {
    let usage = group.cpu_usage().unwrap();
    usage.user_us + usage.system_us
}

/// Waits until the group has used the processor.
fn runs(group: &Cgroup) {
    let before = used(group);
    eventually("the group runs", || used(group) > before + 10_000);
}

fn stands_still(group: &Cgroup) {
    let before = used(group);
    std::thread::sleep(QUIET);
    // It is called frozen a few microseconds before it has left the processor.
    assert!(used(group) - before < 500, "a frozen group uses no processor time");
}

#[test]
fn fifteen_busy_processes_freeze_and_thaw() {
    let subtree = Subtree::new("busy");
    let group = subtree.group("g");
    let _tree = Launch::sh(&busy_tree(4)).start(Some(&group));
    eventually("15 processes", || group.processes().unwrap().len() == 15);
    for _ in 0..3 {
        runs(&group);
        assert!(!group.freeze_requested().unwrap());
        group.freeze(LATE).unwrap();
        assert!(group.is_frozen().unwrap() && group.freeze_requested().unwrap());
        assert_eq!(group.not_frozen(), []);
        stands_still(&group);
        group.request_thaw().unwrap();
        assert!(!group.is_frozen().unwrap());
    }
    runs(&group);
}

#[test]
fn freezing_a_group_freezes_those_below() {
    let subtree = Subtree::new("nested");
    let above = subtree.group("above");
    let below = above.create_child("below").unwrap();
    let _busy = Launch::sh("while :; do :; done").start(Some(&below));
    runs(&above);
    above.freeze(LATE).unwrap();
    assert!(below.is_frozen().unwrap() && !below.freeze_requested().unwrap());
    stands_still(&above);
    below.request_thaw().unwrap();
    stands_still(&above);
    above.request_thaw().unwrap();
    runs(&below);
    assert_eq!(above.processes().unwrap().len(), 1);
}

#[test]
fn a_child_born_frozen_runs_after_the_thaw_only() {
    let subtree = Subtree::new("born");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    assert!(group.is_frozen().unwrap(), "an empty group is frozen at once");
    let mut child = Launch::sh("echo ran").start(Some(&group));
    assert!(child.is_silent(QUIET), "it must not run");
    let undecided = read_report(child.child.report.as_fd()).unwrap_err();
    assert_eq!(undecided.kind(), io::ErrorKind::WouldBlock);
    assert!(group.is_populated().unwrap());
    group.request_thaw().unwrap();
    assert_eq!(child.read_line(), "ran");
    assert_eq!(child.report(), Report::Running);
}

#[test]
fn a_freeze_past_its_deadline_is_undone_and_names_the_culprit() {
    let subtree = Subtree::new("stuck");
    let group = subtree.group("g");
    let _busy = Launch::sh("while :; do :; done").start(Some(&group));
    let stuck = Forked::stuck();
    stuck.move_to(&group);

    let deadline = Duration::from_millis(300);
    let error = group.freeze(deadline).unwrap_err();
    let FreezeError::Timeout { waited, stuck: named, .. } = error else { panic!("{error}") };
    assert!(waited >= deadline);
    assert!(named.iter().any(|process| process.pid == stuck.0), "{named:?}");
    assert!(!group.freeze_requested().unwrap(), "or it would complete later");
    runs(&group);
}

#[test]
fn several_groups_freeze_at_once() {
    let subtree = Subtree::new("all");
    let groups: Vec<Cgroup> = ["a", "b", "c"].iter().map(|name| subtree.group(name)).collect();
    let busy = || Launch::sh("while :; do :; done");
    let _running: Vec<_> = groups.iter().map(|group| busy().start(Some(group))).collect();
    let gone = subtree.group("gone");
    assert!(gone.remove().unwrap());
    let all = [&groups[0], &gone, &groups[1], &groups[2]];
    assert_eq!(freeze_all(&all, &mut Haste::default(), Instant::now() + LATE), []);
    groups.iter().for_each(stands_still);

    groups.iter().for_each(|group| group.request_thaw().unwrap());
    let stuck = Forked::stuck();
    stuck.move_to(&groups[1]);
    // The others have the time that a machine full of tests takes.
    assert_eq!(
        freeze_all(&all, &mut Haste::default(), Instant::now() + Duration::from_secs(2)),
        [2]
    );
    assert!(groups[1].freeze_requested().unwrap(), "undoing is left to the caller");
    stands_still(&groups[2]);
}

#[test]
fn a_daemon_stays_and_is_killed() {
    let subtree = Subtree::new("daemon");
    let group = subtree.group("g");
    let script = "setsid sh -c 'trap \"\" HUP TERM; (sleep 1000 &) ; sleep 1000' & exit 0";
    let mut root = Launch::sh(script).start(Some(&group));
    root.wait();
    eventually("two sleepers", || group.processes().unwrap().len() >= 2);
    let processes = group.processes().unwrap();
    assert!(!group.remove().unwrap(), "a group with processes is not removed");
    group.kill().unwrap();
    eventually("all have ended", || !group.is_populated().unwrap());
    processes.iter().for_each(|&pid| eventually("reaped", || matches!(state(pid), '-' | 'Z')));
    assert!(group.remove().unwrap());
    assert!(group.remove().unwrap(), "what is gone is removed");
    assert!(group.is_frozen().unwrap_err().is_gone());
    group.kill().unwrap();
}

#[test]
fn a_frozen_group_is_killed_too() {
    let subtree = Subtree::new("frozenkill");
    let group = subtree.group("g");
    let _tree = Launch::sh(&busy_tree(3)).start(Some(&group));
    runs(&group);
    group.freeze(LATE).unwrap();
    group.kill().unwrap();
    eventually("all have ended", || !group.is_populated().unwrap());
}

#[test]
fn usage_counts_those_who_ended() {
    let subtree = Subtree::new("usage");
    let group = subtree.group("g");
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    Launch::sh(script).output(Some(&group));
    eventually("empty", || !group.is_populated().unwrap());
    assert!(group.cpu_usage().unwrap().user_us > 1000);
}

#[test]
fn a_subtree_is_found_again() {
    let subtree = Subtree::new("again");
    let group = subtree.group("one");
    group.create_child("inner").unwrap();
    subtree.group("two");
    let same = Hierarchy::open(subtree.0.path()).unwrap();
    let mut names = same.children().unwrap();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(same.limits(), subtree.0.limits());
    let name = subtree.0.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(Hierarchy::find(name).unwrap().path(), subtree.0.path());
    assert!(group.remove().unwrap(), "with the group in it");
}

#[test]
fn without_rights_the_reasons_are_told() {
    let name = format!("tutti-test-{}-nobody", std::process::id());
    let refusal = as_nobody(|| Hierarchy::find(&name)).unwrap_err();
    assert!(!refusal.tried.is_empty());
    for attempt in &refusal.tried {
        assert_eq!(attempt.reason.errno(), Some(libc::EACCES), "{refusal}");
    }
    assert!(refusal.to_string().contains("Permission denied"), "{refusal}");
}

#[test]
fn the_processes_of_a_unit_go_to_its_leaf_and_the_subtree_lies_beside() {
    let subtree = Subtree::new("unit");
    let scope = subtree.group("tutti-test.scope");
    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let pid = sleeper.id().cast_signed();
    assert_ne!(Unit::of(pid).map(|unit| unit.group().to_owned()).as_deref(), Some(scope.path()));
    fs::write(scope.path().join("cgroup.procs"), pid.to_string()).unwrap();
    let unit = Unit::of(pid).expect("its name says that it is ours");
    assert_eq!((unit.group(), unit.name()), (scope.path(), "tutti-test.scope"));
    unit.settle().unwrap();
    assert_eq!(fs::read_to_string(scope.path().join("cgroup.procs")).unwrap(), "");
    let leaf = fs::read_to_string(scope.path().join(DAEMONS).join("cgroup.procs")).unwrap();
    assert_eq!(leaf.trim(), pid.to_string());
    assert_eq!(Unit::of(pid), Some(unit), "who is in the leaf is in the unit");
    // What is no daemon's place is in no daemon's unit.
    let other = scope.create_child("other").unwrap();
    fs::write(other.path().join("cgroup.procs"), pid.to_string()).unwrap();
    assert_eq!(Unit::of(pid), None);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}
