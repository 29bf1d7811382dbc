//! What the kernel ends first when memory runs out.

use crate::harness::{Instance, eventually, needs_root, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Command, Stdio};

fn score(pid: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    text.trim().parse().unwrap()
}

/// Whether the scores of the daemons and of tasks become these.
#[track_caller]
fn check(instance: &Instance, of_daemons: i32, of_tasks: i32) {
    let line = "cat /proc/self/oom_score_adj";
    let told = instance.tutti(&["run", "-n", "2", "sh", "-c", line]).expect(0).sorted();
    assert_eq!(told, vec![of_tasks.to_string(); 2]);
    let supervisor = status_of(instance.daemon("controller"), "PPid").unwrap().parse().unwrap();
    let daemons = ["controller", "agent", "keeper"].map(|role| instance.daemon(role));
    for pid in daemons.into_iter().chain([supervisor]) {
        eventually("the daemon's own score", || (score(pid) == of_daemons).then_some(()));
    }
}

/// The scores of daemons of root and of their tasks. In many containers root may only raise a
/// score.
fn of_root() -> (i32, i32) {
    let lower = "echo -900 2> /dev/null > /proc/self/oom_score_adj";
    let own = score(std::process::id().cast_signed());
    match Command::new("sh").args(["-c", lower]).stderr(Stdio::null()).status().unwrap().success() {
        true => (-900, 0),
        false => (own, (own + 100).clamp(0, 1000)),
    }
}

#[test]
fn tasks_of_root_end_before_its_daemons() {
    needs_root("a score below that of others");
    let (of_daemons, of_tasks) = of_root();
    let instance = Instance::new().up();
    check(&instance, of_daemons, of_tasks);
    // Also those of a keeper that has begun later.
    let keeper = instance.daemon("keeper");
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    eventually("another keeper", || instance.daemon_now("keeper").filter(|&it| it != keeper));
    // A job that began before the loss was noticed goes with it.
    eventually("the next keeper takes jobs", || {
        Some(instance.tutti(&["run", "true"])).filter(|done| done.code == 0)
    });
    check(&instance, of_daemons, of_tasks);
}

#[test]
fn tasks_of_an_ordinary_user_end_before_the_users_daemons() {
    let instance = Instance::of_nobody().up();
    let own = score(std::process::id().cast_signed());
    check(&instance, own, (own + 100).clamp(0, 1000));
}
