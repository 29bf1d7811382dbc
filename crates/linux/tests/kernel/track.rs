//! Process events of the real kernel.

use crate::support::{eventually, need_root};
use std::process::{Command, Stdio};
use tutti_linux::proc::descendants;
use tutti_linux::track::events::Drained;
use tutti_linux::track::{Forest, Origin, ProcessEvent, ProcessEvents, seen};

/// Far more than these tests need.
const ROOM: i32 = 8 << 20;

/// Drains into a forest; says whether nothing was lost.
fn follow(events: &mut ProcessEvents, forest: &mut Forest<()>) -> bool {
    let mut told = Vec::new();
    let drained = events.drain(1 << 20, &mut told);
    for event in told {
        match event {
            ProcessEvent::Forked { parent, child, at_ns } => forest.forked(parent, child, at_ns),
            ProcessEvent::Exited(exit) => forest.exited(exit.pid, exit.at_ns),
        }
    }
    drained == Drained::All
}

/// A shell that does so, below which everything is followed from its beginning.
fn followed(line: &str, buffer: i32) -> (ProcessEvents, Forest<()>, std::process::Child) {
    need_root();
    let events =
        ProcessEvents::subscribe(buffer).expect("root may listen, in the first namespaces");
    let mut forest = Forest::default();
    forest.add_task((), Origin::OneRoot);
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let root = seen(&[child.id().cast_signed()])[0];
    forest.began((), root.pid, root.born_ns);
    (events, forest, child)
}

#[test]
fn every_birth_and_end_is_told_with_the_status() {
    let line = "read go; i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done; exit 7";
    let (mut events, mut forest, mut shell) = followed(line, ROOM);
    drop(shell.stdin.take());
    let mut told = Vec::new();
    let root = shell.id().cast_signed();
    let is_end = |e: &ProcessEvent| matches!(e, ProcessEvent::Exited(exit) if exit.pid == root);
    eventually("the end of the shell", || {
        assert_eq!(events.drain(1 << 20, &mut told), Drained::All);
        told.iter().any(is_end)
    });
    shell.wait().unwrap();
    let end = told.iter().find(|event| is_end(event)).copied();
    assert!(matches!(end, Some(ProcessEvent::Exited(exit)) if exit.status == 7 << 8), "{end:?}");
    for event in told {
        match event {
            ProcessEvent::Forked { parent, child, at_ns } => forest.forked(parent, child, at_ns),
            ProcessEvent::Exited(exit) => forest.exited(exit.pid, exit.at_ns),
        }
    }
    let tally = forest.tally(());
    assert_eq!((tally.created, tally.living), (501, 0));
}

#[test]
fn an_orphan_is_below_its_nearest_living_ancestor() {
    // The inner shells end; the sleeper that they leave is init's child for the kernel.
    let line = "read go; sh -c 'sh -c \"sleep 1000 & echo\" >/dev/null & wait'; read end";
    let (mut events, mut forest, mut shell) = followed(line, ROOM);
    let mut input = shell.stdin.take().unwrap();
    let root = shell.id().cast_signed();
    std::io::Write::write_all(&mut input, b"\n").unwrap();
    let mut sleeper = 0;
    eventually("a sleeper alone with the shell", || {
        assert!(follow(&mut events, &mut forest));
        let members = forest.members(());
        sleeper = members.last().map_or(0, |member| member.pid);
        let is_sleep = std::fs::read_to_string(format!("/proc/{sleeper}/comm"));
        members.len() == 2 && is_sleep.is_ok_and(|comm| comm == "sleep\n")
    });
    assert!(!descendants(root).unwrap().contains(&sleeper), "the kernel still knows");
    assert_eq!(forest.members(())[1].parent, Some(root));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleeper), nix::sys::signal::SIGKILL).unwrap();
    drop(input);
    shell.wait().unwrap();
    eventually("an empty forest", || {
        assert!(follow(&mut events, &mut forest));
        forest.members(()).is_empty()
    });
}

#[test]
fn threads_are_no_processes_and_an_overflow_is_told() {
    let (mut events, mut forest, mut shell) = followed("read go", 64 << 10);
    let threads: Vec<_> = (0..20).map(|_| std::thread::spawn(|| ())).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut told = Vec::new();
    assert_eq!(events.drain(1 << 20, &mut told), Drained::All);
    let own = std::process::id().cast_signed();
    let of_own =
        |e: &&ProcessEvent| matches!(e, ProcessEvent::Forked { child, .. } if *child == own);
    assert_eq!(told.iter().filter(of_own).count(), 0);
    // More than the buffer holds.
    let line = "i=0; while [ $i -lt 400 ]; do (:); i=$((i+1)); done";
    assert!(Command::new("sh").args(["-c", line]).status().unwrap().success());
    assert!(!follow(&mut events, &mut forest), "it was not told of");
    assert!(follow(&mut events, &mut forest), "it is told again");
    drop(shell.stdin.take());
    shell.wait().unwrap();
}
