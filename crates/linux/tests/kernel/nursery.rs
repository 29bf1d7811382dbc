//! Children that use their parent's memory until their programs run.

use crate::support::{Launch, NOBODY, QUIET, Subtree, c_string, eventually};
use tutti_linux::oom_score;
use tutti_linux::own_processes::hide_memory;
use tutti_linux::spawn::{Nursery, Report};

/// A launch with much to say, of which the caller keeps nothing.
fn start_with_much(
    nursery: &mut Nursery,
    group: &tutti_linux::cgroup::Cgroup,
) -> crate::support::Process {
    let mut launch = Launch::sh("echo $N0 $N99 $(env | grep -c ^N)").nobody();
    for number in 0..100 {
        launch.env.push(c_string(&format!("N{number}={}", "x".repeat(100 + number))));
    }
    launch.start_from(nursery, Some(group))
}

fn of_much() -> String {
    format!("{} {} 100\n", "x".repeat(100), "x".repeat(199))
}

#[test]
fn what_a_child_uses_stays_until_its_program_runs() {
    hide_memory().unwrap();
    let subtree = Subtree::new("lent");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut nursery = Nursery::new();
    let mut children: Vec<_> = (0..40).map(|_| start_with_much(&mut nursery, &group)).collect();
    // What was freed is written over.
    let over: Vec<Vec<u8>> = (1..2000).map(|size| vec![b'y'; size]).collect();
    std::thread::sleep(QUIET);
    nursery.take_back();
    assert_eq!(nursery.lent(), children.len());
    drop(over);
    group.request_thaw().unwrap();
    for child in &mut children {
        assert_eq!(child.read_all(), of_much());
        assert_eq!(child.report(), Report::Running);
    }
    nursery.take_back();
    assert_eq!(nursery.lent(), 0);
}

#[test]
fn a_nursery_that_is_gone_leaves_to_its_children_what_they_use() {
    let subtree = Subtree::new("orphans");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut child = start_with_much(&mut Nursery::new(), &group);
    let over: Vec<Vec<u8>> = (1..2000).map(|size| vec![b'y'; size]).collect();
    group.request_thaw().unwrap();
    assert_eq!(child.read_all(), of_much());
    drop(over);
}

#[test]
fn a_daemon_has_the_oom_score_of_its_tasks_only_while_one_shares_its_memory() {
    let score = || oom_score::of(std::process::id()).unwrap();
    let own = score();
    let subtree = Subtree::new("scores");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut nursery = Nursery::of_daemon();
    let launch = Launch::sh("cat /proc/self/oom_score_adj");
    let mut child = launch.start_from(&mut nursery, Some(&group));
    let of_task = (own + 100).clamp(0, 1000);
    assert!(nursery.lent() == 1 && nursery.is_exposed(), "it has a memory of its own");
    assert!(!nursery.protect() && score() == of_task);
    group.request_thaw().unwrap();
    assert_eq!(child.read_all(), format!("{of_task}\n"));
    eventually("its own score", || nursery.protect());
    assert_eq!(score(), own);
}

#[test]
fn what_a_child_used_that_was_killed_comes_back() {
    hide_memory().unwrap();
    let subtree = Subtree::new("killed");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut nursery = Nursery::new();
    let mut child = start_with_much(&mut nursery, &group);
    assert_eq!(nursery.lent(), 1);
    group.kill().unwrap();
    child.wait();
    eventually("what was lent has come back", || {
        nursery.take_back();
        nursery.lent() == 0
    });
}

#[test]
fn who_may_be_killed_for_want_of_memory_has_a_copy_and_so_has_who_has_a_minder() {
    let subtree = Subtree::new("copies");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut nursery = Nursery::new();
    let mut limited = Launch::sh("echo ran");
    limited.limits_memory = true;
    let mut limited = limited.start_from(&mut nursery, Some(&group));
    let minded = Launch::sh("echo ran").minded().start_from(&mut nursery, Some(&group));
    assert_eq!(nursery.lent(), 0);
    let shared = Launch::sh("echo ran").start_from(&mut nursery, Some(&group));
    assert_eq!(nursery.lent(), 1);
    group.request_thaw().unwrap();
    for child in [&mut limited, &mut { minded }, &mut { shared }] {
        assert_eq!(child.read_all(), "ran\n");
    }
}

#[test]
fn memory_that_is_shared_is_not_shown_to_the_new_user() {
    hide_memory().unwrap();
    let subtree = Subtree::new("shown");
    let group = subtree.group("g");
    // It waits for its turn to open this as another user, with our memory.
    let mut launch = Launch::sh("true").nobody();
    let directory = crate::support::Directory::new("shown");
    let path = directory.0.join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    launch.stdin = crate::support::open(&c_string(path.to_str().unwrap()), libc::O_RDONLY);
    let mut nursery = Nursery::new();
    let mut child = launch.start_from(&mut nursery, Some(&group));
    assert_eq!(nursery.lent(), 1);
    let status = format!("/proc/{}/status", child.pid());
    eventually("it is the other user", || {
        std::fs::read_to_string(&status).unwrap().contains(&format!("Uid:\t{NOBODY}"))
    });
    let memory = format!("/proc/{}/mem", child.pid());
    let read = crate::support::as_nobody(|| std::fs::File::open(&memory).map(drop));
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    // Nor after something was done with the rights of that user meanwhile.
    tutti_linux::as_user::with_rights_of(NOBODY, NOBODY, &[], || Ok(())).unwrap();
    let read = crate::support::as_nobody(|| std::fs::File::open(&memory).map(drop));
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    child.wait();
}
