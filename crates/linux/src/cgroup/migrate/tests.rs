//! A process that is moved by PID reuse goes back.

use super::*;
use crate::cgroup::Hierarchy;
use crate::pidfd::tests::{hold, with_number_used_again};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A group with a limit, so that it has a companion where v1 does that; removed with the test.
struct Fixture {
    hierarchy: Hierarchy,
    group: Cgroup,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let name = format!("tutti-test-{}-{name}", std::process::id());
        let hierarchy = Hierarchy::find(&name).expect("the tests need root and cgroup2");
        let group = hierarchy.create("job-1").unwrap();
        group.set_process_limit(1000).unwrap();
        Self { hierarchy, group }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.hierarchy.remove();
    }
}

fn groups_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

fn own_groups() -> String {
    groups_of(std::process::id().cast_signed())
}

#[test]
fn who_has_the_number_of_one_that_has_ended_stays_where_it_was() {
    let fixture = Fixture::new("number");
    with_number_used_again(|ended, stranger| {
        assert!(!fixture.group.take_in(ended).unwrap());
        assert_eq!(fixture.group.processes().unwrap(), [0; 0]);
        assert_eq!(groups_of(stranger), own_groups());
    });
}

#[test]
fn who_still_is_there_is_taken_in() {
    let fixture = Fixture::new("living");
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let held = hold(child.id().cast_signed());
    assert!(fixture.group.take_in(&held).unwrap());
    assert_eq!(fixture.group.processes().unwrap(), [held.pid()]);
    child.kill().unwrap();
    // Not reaped: no other process has the number.
    let end = Instant::now() + Duration::from_secs(20);
    while !held.has_ended() {
        assert!(Instant::now() < end, "it was killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!fixture.group.take_in(&held).unwrap());
    child.wait().unwrap();
    assert!(!fixture.group.take_in(&held).unwrap());
}

#[test]
fn what_was_born_here_to_one_that_goes_back_goes_with_it_and_what_belongs_here_stays() {
    let fixture = Fixture::new("child");
    let mut command = Command::new("sh");
    command.args(["-c", "read x; sleep 1000 & wait"]).stdin(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    let pid = parent.id().cast_signed();
    fixture.group.move_in(pid).unwrap();
    parent.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let child = loop {
        if let [child] = descendants(pid).unwrap()[..] {
            break child;
        }
        assert!(Instant::now() < end, "it has a child");
        std::thread::sleep(Duration::from_millis(1));
    };
    let inside = groups_of(pid);
    fixture.group.put_back(child).unwrap();
    assert_eq!(groups_of(child), inside, "its parent is here");
    fixture.group.put_back(pid).unwrap();
    let outside = [pid, child].map(groups_of);
    fixture.group.move_in(child).unwrap();
    fixture.group.kill().unwrap();
    parent.wait().unwrap();
    assert_ne!(inside, own_groups());
    assert_eq!(outside, [own_groups(), own_groups()]);
}
