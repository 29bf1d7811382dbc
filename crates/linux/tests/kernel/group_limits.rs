//! Limits on memory and processes, in v2 or in companion groups of v1.

use crate::support::{Launch, Subtree, companions, eventually};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tutti_linux::cgroup::{Cgroup, LimitBy, Others};
use tutti_linux::proc::online_processors;
use tutti_linux::spawn::{Report, StdioFd, Step};

#[test]
fn a_fork_bomb_is_bounded_and_killed() {
    let subtree = Subtree::new("bomb");
    let job = subtree.group("job");
    let by = job.set_process_limit(64).unwrap();
    assert_eq!(by, subtree.0.limits().processes);
    let task = job.create_child("task").unwrap();
    let mut bomb = Launch::program(&["perl", "-e", "fork while 1"]).nobody();
    bomb.companions = companions(&task);
    let _bomb = bomb.start(Some(&task));
    eventually("it has grown", || task.processes().unwrap().len() >= 50);
    eventually("its limit is reached", || job.has_reached_process_limit());
    for _ in 0..50 {
        assert!(task.processes().unwrap().len() <= 64);
    }
    task.kill().unwrap();
    eventually("all have ended", || !task.is_populated().unwrap());
    assert!(job.remove().unwrap());
}

#[test]
fn memory_is_bounded_and_the_kill_counted() {
    let subtree = Subtree::new("memory");
    let job = subtree.group("job");
    let limit = 64 << 20;
    let by = job.set_memory_limit(limit).unwrap();
    assert_eq!(by, subtree.0.limits().memory);
    let task = job.create_child("task").unwrap();
    // One that holds all of its input, since there is no line in it.
    let mut hog = Launch::sh("head -c 300m /dev/zero | tail -n 1 > /dev/null");
    hog.companions = companions(&task);
    hog.output(Some(&task));
    assert!(job.oom_kills() >= 1, "the kernel ended it");
    let peak = job.memory_peak().expect("it is counted");
    assert!(peak > limit / 2 && peak <= limit, "{peak}");
}

#[test]
fn companions_follow_the_limits() {
    let subtree = Subtree::new("companions");
    let job = subtree.group("job");
    let task = job.create_child("task").unwrap();
    let other = subtree.group("other");
    assert_eq!(task.companions(), Vec::<std::path::PathBuf>::new());

    if job.set_process_limit(100).unwrap() == LimitBy::V2 {
        assert!(task.companions().is_empty() && job.path().join("pids.max").exists());
        return;
    }
    let found = task.companions();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(other.companions().is_empty());
    // One that takes over finds the same, by the subtree and by the bare path.
    assert_eq!(Cgroup::open(task.path()).unwrap().companions(), found);

    let mut child = Launch::program(&["cat", "/proc/self/cgroup"]);
    child.companions = companions(&task);
    let text = child.output(Some(&task));
    let path = |line: &str| line.rsplit(':').next().unwrap_or_default().to_owned();
    let pids = text.lines().find(|line| line.contains(":pids:")).map(path).unwrap();
    assert!(found[0].parent().unwrap().ends_with(pids.trim_start_matches('/')), "{text}");
    let unified = text.lines().find(|line| line.starts_with("0::")).map(path).unwrap();
    assert!(task.path().ends_with(unified.trim_start_matches('/')), "{text}");

    assert!(job.remove().unwrap());
    assert!(!found[0].exists(), "the companion goes with the group");
}

#[test]
fn a_limit_on_a_task_holds_within_that_of_its_job() {
    let subtree = Subtree::new("inner");
    let job = subtree.group("job");
    let task = job.create_child("task").unwrap();
    task.set_process_limit(5).unwrap();
    job.set_process_limit(1).unwrap();
    let mut child = Launch::sh("true & true && echo two");
    child.companions = companions(&task);
    let mut child = child.start(Some(&task));
    assert_eq!(child.read_all(), "", "one process is all that the job may have");
    child.wait();
    assert!(!task.has_reached_process_limit(), "that was the limit of its job");
}

#[test]
fn no_companion_is_left() {
    let subtree = Subtree::new("left");
    subtree.group("job").set_memory_limit(1 << 30).unwrap();
    let name = subtree.0.path().file_name().unwrap().to_str().unwrap().to_owned();
    drop(subtree);
    let mut stack = vec![Path::new("/sys/fs/cgroup").to_path_buf()];
    while let Some(path) = stack.pop() {
        assert_ne!(path.file_name().unwrap().to_str(), Some(&*name), "{}", path.display());
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        stack.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
}

/// The line of `/proc/PID/status` that says where a process may run.
fn allowed(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn processors_are_held_whatever_a_process_asks_for() {
    assert!(online_processors().len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
    let root_balance = || fs::read_to_string("/sys/fs/cgroup/cpuset/cpuset.sched_load_balance");
    let balance = root_balance().ok();
    let subtree = Subtree::new("processors");
    let job = subtree.group("job");
    assert_eq!(job.processors(), None);
    let by = job.set_processors(&[0, 1]).unwrap();
    assert_eq!(by, subtree.0.limits().processors);
    let step = job.create_child("step").unwrap();
    let task = step.create_child("task").unwrap();
    task.set_processors(&[1]).unwrap();
    assert_eq!((job.processors(), task.processors()), (Some(vec![0, 1]), Some(vec![1])));
    // One that takes over finds the same.
    assert_eq!(Cgroup::open(task.path()).unwrap().processors(), Some(vec![1]));

    let script = "taskset -pc 0 $$ >/dev/null 2>&1; (taskset -c 0 true 2>/dev/null && echo away); \
        taskset -pc 1 $$ >/dev/null; echo $$; read go";
    let mut child = Launch::sh(script);
    child.companions = companions(&task);
    child.processors = Some(vec![1]);
    child.stdin = StdioFd::Null;
    let text = child.output(Some(&task));
    assert_eq!(text.lines().count(), 1, "it has left its processors: {text}");

    let mut child = Launch::sh("sleep 100 & echo $!; wait");
    child.companions = companions(&task);
    child.processors = Some(vec![1]);
    let mut child = child.start(Some(&task));
    let pid = child.read_line();
    assert_eq!(allowed(pid.trim()), "1");
    // Also while it stands still, and what it asked for itself then counts no more.
    task.freeze(Duration::from_secs(10)).unwrap();
    task.set_processors(&[0]).unwrap();
    assert_eq!(allowed(pid.trim()), "0");
    task.kill().unwrap();
    child.wait();
    assert_eq!(root_balance().ok(), balance, "the machine's load is balanced as before");
    eventually("all have ended", || !task.is_populated().unwrap());
    assert!(job.remove().unwrap());
}

#[test]
fn a_process_that_comes_late_runs_where_its_group_holds_it_by_then() {
    assert!(online_processors().len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
    let subtree = Subtree::new("late");
    let job = subtree.group("job");
    job.set_processors(&[0]).unwrap();
    let mut child = Launch::sh("grep Cpus_allowed_list: /proc/self/status");
    child.companions = companions(&job);
    child.processors = Some(vec![1]);
    let mut refused = child.start(Some(&job));
    let failed = Report::Failed { step: Step::Processors, errno: nix::libc::EINVAL };
    assert_eq!(refused.report(), failed);
    refused.wait();
    child.held_by_group = true;
    let text = child.output(Some(&job));
    assert_eq!(text.split_whitespace().last(), Some("0"), "{text}");
    eventually("all have ended", || !job.is_populated().unwrap());
    assert!(job.remove().unwrap());
}

#[test]
fn sets_that_a_killed_maker_left_half_made_are_completed() {
    let subtree = Subtree::new("half");
    let job = subtree.group("job");
    if job.set_processors(&[0]).unwrap() == LimitBy::V2 {
        // The kernel makes them whole there.
        return;
    }
    let set = job.companions()[0].parent().unwrap().to_owned();
    let top = set.parent().unwrap().to_owned();
    assert!(job.remove().unwrap());
    // The set around all jobs, and that of a job.
    fs::remove_dir(&top).unwrap();
    for half in [top, set] {
        fs::create_dir(&half).unwrap();
        let job = subtree.group("job");
        job.set_processors(&[0]).unwrap();
        let mut child = Launch::sh("echo it runs");
        child.companions = companions(&job);
        assert_eq!(child.output(Some(&job)), "it runs\n");
        eventually("it has ended", || !job.is_populated().unwrap());
        assert!(job.remove().unwrap());
    }
}

#[test]
fn processors_that_are_not_there_leave_no_set() {
    let subtree = Subtree::new("absent");
    let job = subtree.group("job");
    job.set_processors(&[60_000]).unwrap_err();
    assert_eq!((job.processors(), job.companions().len()), (None, 0));
    assert!(job.remove().unwrap());
}

#[test]
fn processors_that_jobs_of_other_instances_hold_are_seen() {
    let (own, other) = (Subtree::new("others-own"), Subtree::new("others-other"));
    let mut others = own.0.others().unwrap();
    others.find();
    let is_readable = |others: &Others| {
        let mut fds = [PollFd::new(others.changes().unwrap(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    };
    let settle = || {
        others.take_changes();
        !is_readable(&others)
    };
    // Groups of other tests come and go beside these.
    eventually("all changes are taken", settle);
    let held = |others: &Others| others.held(|name| name.ends_with("-held"));
    let before = held(&others);
    let job = other.group("job-held");
    assert!(is_readable(&others), "a group has appeared");
    job.set_processors(&[1]).unwrap();
    let mut sleeper = Launch::program(&["sleep", "1000"]);
    sleeper.companions = companions(&job);
    let _sleeper = sleeper.start(Some(&job));
    assert_eq!(held(&others), [1].into(), "before: {before:?}");
    // Where no set holds a job, its processes' masks tell.
    let unheld = other.group("job-unheld");
    let mut bound = Launch::sh("taskset -p -c 0 $$ > /dev/null; echo; exec sleep 1000");
    bound.companions = companions(&unheld);
    let _bound = bound.start(Some(&unheld));
    let by_name = || others.held(|name| name == "job-unheld");
    eventually("the mask is seen", || by_name() == [0].into());
    job.kill().unwrap();
    eventually("its processes have ended", || held(&others).is_empty());
    // The own jobs are none of others.
    let mine = own.group("mine-held");
    let mut sleeper = Launch::program(&["sleep", "1000"]);
    sleeper.companions = companions(&mine);
    let _mine = sleeper.start(Some(&mine));
    others.find();
    assert!(held(&others).is_empty());
}
