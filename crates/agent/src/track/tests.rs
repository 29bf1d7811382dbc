use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use tutti_types::JobId;

const TASK: TaskId = (StepKey::first(JobId(1)), Rank(0));

/// When it is told something, makes hundreds that end at once, then one that stays; ends when it is
/// told more.
const LINE: &str = "read x; i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done; sleep 1000 & echo $!; \
    read x; kill $!";

fn named(pid: i32) -> Name {
    (pid, proc::ProcessStat::read(pid).unwrap().start_time)
}

#[test]
fn a_process_that_has_the_number_of_a_minder_or_adopted_process_is_no_member() {
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 1000 & echo $!; read x; kill $!"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (pid, began) = named(shell.id().cast_signed());
    let count = |place: Place| place.seen(&[]).len();
    let found = [Place::Minder((pid, began)), Place::Trees(vec![(pid, began)])].map(count);
    let others = [Place::Minder((pid, began - 1)), Place::Trees(vec![(pid, began + 1)])].map(count);
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert_eq!((found, others), ([2, 2], [0, 0]));
}

#[test]
fn what_is_lost_when_events_overflow_is_found_by_a_look() {
    let mut tracker = Tracker::new();
    // Room for a few.
    let events = ProcessEvents::subscribe(4 << 10).unwrap();
    tracker.source = Source::Events(Subscription { events, reports: None });
    tracker.jobs.insert(TASK.0);
    let mut shell = Command::new("sh")
        .args(["-c", LINE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let root = shell.id().cast_signed();
    tracker.started(TASK, root, Place::Trees(vec![named(root)]), Begun::Now);
    // Nothing is read from here until all has happened.
    let mut stdin = shell.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    tracker.catch_up();
    let known: Vec<_> = tracker.forest.members(TASK).iter().map(|it| (it.pid, it.parent)).collect();
    let whole = tracker.count(TASK.0).whole;
    stdin.write_all(b"\n").unwrap();
    shell.wait().unwrap();
    assert!(!whole, "that something was lost is not known");
    let sleep = line.trim().parse().unwrap();
    assert_eq!(known, [(root, None), (sleep, Some(root))]);
}

#[test]
fn lost_reports_of_io_are_known() {
    for (room, is_whole) in [(4 << 10, false), (REPORTS_BUFFER_BYTES, true)] {
        let mut tracker = Tracker::new();
        let events = ProcessEvents::subscribe(BUFFER_BYTES).unwrap();
        let reports = Some(IoReports::subscribe(room).unwrap());
        tracker.source = Source::Events(Subscription { events, reports });
        tracker.jobs.insert(TASK.0);
        let line = "read x; i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done";
        let mut shell =
            Command::new("sh").args(["-c", line]).stdin(Stdio::piped()).spawn().unwrap();
        let root = shell.id().cast_signed();
        tracker.started(TASK, root, Place::Trees(vec![named(root)]), Begun::Now);
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        shell.wait().unwrap();
        let counted = tracker.end_task(TASK);
        assert!(counted.whole && counted.io_whole == is_whole, "with room for {room} bytes");
    }
}

#[test]
fn a_number_that_is_anothers_by_the_time_it_is_looked_at_is_no_members() {
    let own = std::process::id().cast_signed();
    let lists = std::cell::RefCell::new(vec![vec![own], vec![own]]);
    let next = || lists.borrow_mut().pop().unwrap_or_default();
    assert_eq!(seen_where_listed(next).len(), 1);
    // As when it has left the list, and another has its number.
    *lists.borrow_mut() = vec![Vec::new(), vec![own]];
    assert!(seen_where_listed(next).is_empty());
}
