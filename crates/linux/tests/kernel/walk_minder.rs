//! Processes that detach, without a group: the minder keeps them.

use crate::support::{Launch, NOBODY, Process, QUIET, eventually, need_root, state, walk};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use tutti_linux::proc::{ProcessStat, descendants};
use tutti_linux::signal::{Root, Traversal, kill_tree, resume_tree, suspend_tree};
use tutti_linux::spawn::Report;

/// Without those that wait to be reaped.
fn living(process: &Process) -> Vec<i32> {
    let mut pids = below(process);
    pids.retain(|&pid| !matches!(state(pid), 'Z' | '-'));
    pids.sort_unstable();
    pids
}

/// All are stopped, or are parents of a vfork (D), which wait for a stopped child.
fn assert_held(pids: &[i32]) {
    let states: String = pids.iter().map(|&pid| state(pid)).collect();
    assert!(states.contains('T') && states.chars().all(|state| "TD".contains(state)), "{states}");
}

const DAEMON: &str = "setsid sh -c 'trap \"\" HUP TERM; (sleep 1000 &) ; sleep 1000' & exit 3";

fn ended_well(process: &mut Process) {
    let expected = WaitStatus::Exited(Pid::from_raw(process.pid()), 0);
    assert_eq!(process.wait(), expected, "the minder ends when nothing is left");
}

fn below(process: &Process) -> Vec<i32> {
    descendants(process.pid()).unwrap()
}

#[test]
fn a_daemon_stays_below_the_minder() {
    let mut minder = Launch::sh(DAEMON).minded().start(None);
    assert_eq!(minder.report(), Report::Running);
    let root = minder.number().expect("the pid comes first");
    assert_ne!(root, minder.pid());
    assert_eq!(minder.number(), Some(3 << 8), "the root has ended, with its own status");
    eventually("the daemon is adopted", || {
        let pids = below(&minder);
        pids.len() >= 3 && !pids.contains(&root)
    });
    let stat = ProcessStat::read(minder.pid()).unwrap();
    assert_eq!((&*stat.comm, stat.session), ("minder", minder.pid()));

    suspend_tree(Root::below(minder.pid()), &walk(Traversal::AllAtOnce)).unwrap();
    assert_held(&living(&minder));
    assert_ne!(state(minder.pid()), 'T', "the minder itself is left alone");
    kill_tree(Root::below(minder.pid())).unwrap();
    assert_eq!(minder.number(), None);
    ended_well(&mut minder);
}

#[test]
fn the_status_tells_a_signal_too() {
    let mut minder = Launch::sh("kill -USR1 $$").minded().start(None);
    assert!(minder.number().is_some());
    assert_eq!(minder.number(), Some(libc::SIGUSR1));
    ended_well(&mut minder);
}

#[test]
fn the_minder_holds_no_stream_open() {
    let script = "echo out; exec >&-; exec sleep 1000";
    let mut minder = Launch::sh(script).minded().start(None);
    assert_eq!(minder.read_all(), "out\n", "the end is seen while the task lives");
    kill_tree(Root::below(minder.pid())).unwrap();
    ended_well(&mut minder);
}

#[test]
fn the_minder_does_not_heed_signals() {
    let mut minder = Launch::sh("exec sleep 1000").minded().start(None);
    let pid = Pid::from_raw(minder.pid());
    assert!(minder.number().is_some());
    for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGHUP, nix::sys::signal::SIGINT] {
        nix::sys::signal::kill(pid, signal).unwrap();
    }
    std::thread::sleep(QUIET);
    assert_eq!(below(&minder).len(), 1);
    assert!(matches!(state(minder.pid()), 'S' | 'R'));
    kill_tree(Root::below(minder.pid())).unwrap();
    ended_well(&mut minder);
}

#[test]
fn what_forks_all_the_time_is_suspended_whole() {
    // Each child forks again and exits, so that the tree is new all the time.
    let script = "hop() { sleep 0.002; hop & exit; }; for i in 1 2 3 4; do hop & done; exit";
    let mut minder = Launch::sh(script).minded().start(None);
    eventually("it hops", || below(&minder).len() >= 4);
    for traversal in
        [Traversal::AllAtOnce, Traversal::DepthFirst, Traversal::BreadthFirst, Traversal::Hybrid]
    {
        let root = Root::below(minder.pid());
        let report = suspend_tree(root, &walk(traversal)).unwrap();
        assert!(report.processes > 0);
        let stopped = living(&minder);
        assert_held(&stopped);
        std::thread::sleep(QUIET);
        assert_eq!(living(&minder), stopped, "{traversal:?}: no process comes or goes");
        resume_tree(root, &walk(traversal)).unwrap();
        eventually("it hops on", || living(&minder).iter().all(|pid| !stopped.contains(pid)));
    }
    kill_tree(Root::below(minder.pid())).unwrap();
    ended_well(&mut minder);
}

#[test]
fn a_fork_bomb_is_ended() {
    need_root();
    let mut bomb = Launch::program(&["perl", "-e", "fork while 1"]).nobody().minded();
    // Root is not bound by this limit; an ordinary user is.
    bomb.rlimits = vec![(libc::RLIMIT_NPROC.cast_signed(), 150, 150)];
    bomb.identity = Some(tutti_linux::spawn::Identity {
        // Of its own, since the limit counts all processes of a user.
        uid: NOBODY - 1,
        gid: NOBODY,
        groups: vec![],
    });
    let mut minder = bomb.start(None);
    eventually("it has grown", || below(&minder).len() >= 100);
    kill_tree(Root::below(minder.pid())).unwrap();
    ended_well(&mut minder);
}
