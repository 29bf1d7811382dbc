//! Kernels that lack what this one has, and filters of containers that forbid it: each fall-back is
//! forced, by a library that is loaded into the daemons (`old_kernel.c`).

use crate::harness::{
    Instance, Running, command_line, compile_with, eventually, processes, status_of,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What kernels before 5.14 lack, or before 5.7, as far as a fall-back takes its place.
const OF_NEWER_KERNELS: &str = "clone3,close_range,cgroup.kill,memory.peak,cpu.idle,xattr";

/// The library that makes the kernel seem older.
pub(crate) fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/old_kernel.c");
            compile_with(&["-shared", "-fPIC"], "cc", &source, "old_kernel.so")
        })
        .clone()
}

/// A verb for which the kernel lacks these.
fn without(instance: &Instance, lacking: &str, args: &[&str]) -> Command {
    let mut command = instance.command(args);
    let library = instance.share(&library());
    command.env("LD_PRELOAD", library).env("OLD_KERNEL", lacking);
    command
}

pub(crate) fn up_without(instance: Instance, lacking: &str) -> Instance {
    Running::start(without(&instance, lacking, &["up"])).wait().expect(0);
    instance
}

/// Each task of a job is in a group of its own, also what it starts.
fn are_in_their_groups(instance: &Instance) {
    let told = instance.tutti(&["run", "-n", "3", "sh", "-c", "grep ^0:: /proc/self/cgroup"]);
    let groups = told.expect(0).sorted();
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert!(groups.iter().all(|group| group.contains("/tutti-")), "{groups:?}");
    assert!(groups[0] != groups[1] && groups[1] != groups[2], "{groups:?}");
}

/// A job that has all processors, and one that is made while that has its turn, which is long.
fn ends_before_its_first_turn(instance: &Instance) {
    let all = std::thread::available_parallelism().unwrap().to_string();
    instance.tutti(&["params", "quantum=1h"]).expect(0);
    let holder = instance.submit(&["-n", &all, "-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(holder, "running");
    let line = "echo ran > born; sleep $NAP";
    let waiting = instance.submit(&["-n", &all, "-o", "/dev/null", "sh", "-c", line]);
    eventually("tasks that are made and wait for their turn", || {
        let keeper = Some(instance.daemon("keeper").to_string());
        let is_unborn = |&pid: &i32| {
            status_of(pid, "PPid") == keeper && command_line(pid).iter().any(|it| it == "keeper")
        };
        (processes().into_iter().filter(is_unborn).count().to_string() == all).then_some(())
    });
    assert!(!instance.work.join("born").exists(), "it ran before its turn");
    instance.tutti(&["cancel", "--now", &waiting.to_string()]).expect(0);
    instance.wait_for_state(waiting, "ended");
    assert!(!instance.work.join("born").exists(), "it ran before its turn");
    instance.tutti(&["cancel", "--now", &holder.to_string()]).expect(0);
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
}

/// Two jobs take turns, and what they have started ends with them.
fn take_turns_and_end_whole(instance: &Instance) {
    let all = std::thread::available_parallelism().unwrap().to_string();
    let line = "sleep $NAP & (setsid sleep $NAP &) & while :; do :; done";
    let job = || instance.submit(&["-n", &all, "-o", "/dev/null", "sh", "-c", line]);
    let jobs = [job(), job()];
    eventually("turns of both", || {
        let had = |&job: &u64| instance.job(job)["service_ms"].as_u64().is_some_and(|ms| ms > 50);
        jobs.iter().all(had).then_some(())
    });
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
    instance.expect_no_nappers();
}

#[test]
fn where_clone3_is_forbidden_tasks_move_into_their_groups_before_they_run() {
    let instance = up_without(Instance::alone(), "clone3");
    let doctor = instance.tutti(&["doctor", "-v"]).expect(0).text();
    assert!(doctor.starts_with("all is well"), "{doctor}");
    assert!(doctor.contains("tasks move into their cgroups before they run"), "{doctor}");
    are_in_their_groups(&instance);
    ends_before_its_first_turn(&instance);
    take_turns_and_end_whole(&instance);
}

#[test]
fn before_linux_5_14_groups_are_frozen_and_their_processes_killed_one_by_one() {
    let instance = up_without(Instance::alone(), OF_NEWER_KERNELS);
    let doctor = instance.tutti(&["doctor", "-v"]).expect(0).text();
    assert!(doctor.contains("cgroups are killed by signals"), "{doctor}");
    are_in_their_groups(&instance);
    ends_before_its_first_turn(&instance);
    take_turns_and_end_whole(&instance);
    // Its memory limit holds all the same.
    let line = "head -c 200M /dev/zero | tail -c 200M > /dev/null";
    instance.tutti(&["run", "-m", "50M", "sh", "-c", line]).expect(123).says("out of memory");
}

#[test]
fn the_same_holds_for_a_user_with_a_subtree() {
    let instance = up_without(Instance::of_nobody_with_groups(), OF_NEWER_KERNELS);
    let doctor = instance.tutti(&["doctor", "-v"]).expect(0).text();
    assert!(doctor.contains("tasks move into their cgroups before they run"), "{doctor}");
    are_in_their_groups(&instance);
    take_turns_and_end_whole(&instance);
}

#[test]
fn a_kernel_without_pidfds_is_refused_with_the_least_release() {
    let instance = Instance::new();
    for verb in [&["up"][..], &["run", "true"]] {
        let done = Running::start(without(&instance, "pidfd_open", verb)).wait();
        assert_ne!(done.code, 0);
        let done = done.says("Linux 5.3 or later").says("pidfd_open");
        assert!(done.err.trim_end().ends_with("[T074]"), "{}", done.err);
    }
    assert!(!instance.dir.exists(), "nothing is left of the attempt");
}
