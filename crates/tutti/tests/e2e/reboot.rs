//! Cluster time when the machine's own clock begins anew, as it does with the machine.
//!
//! A test can't restart the machine: the instance is begun in a time namespace whose clock is ten
//! hours ahead, killed whole, and begun again outside of it.

use crate::harness::{Instance, Running, command_line, eventually, needs_root, processes};
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Command, Stdio};

const AHEAD_S: u64 = 36_000;

/// Starts the instance where the machine's clock is ahead.
fn up_ahead(instance: &Instance) {
    needs_root("a time namespace");
    let verb = instance.command(&["up"]);
    let mut command = Command::new("unshare");
    let ahead = AHEAD_S.to_string();
    command.args(["--time", "--fork", "--monotonic", &ahead, "--boottime", &ahead]);
    command.arg(verb.get_program()).args(verb.get_args()).stdin(Stdio::null());
    for (name, value) in verb.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Running::start(command).wait().expect(0);
}

/// Ends all that runs of it, as a loss of power would.
pub(crate) fn lose_power(instance: &Instance) {
    let lock = std::fs::read_to_string(instance.dir.join("lock")).unwrap();
    let daemons = ["controller", "agent", "keeper"].map(|role| instance.daemon(role));
    for pid in [lock.trim().parse().unwrap()].into_iter().chain(daemons) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let dir = instance.dir.to_str().unwrap();
    let is_of_it = |pid: &i32| command_line(*pid).iter().any(|word| word == dir);
    eventually("their end", || (!processes().iter().any(is_of_it)).then_some(()));
}

/// The times of the journal's entries, in seconds.
fn times(instance: &Instance) -> Vec<u64> {
    let list = instance.tutti(&["replay", "--list"]).expect(0).text();
    let entries = list.lines().filter_map(|line| line.split_once(" at ")?.1.split_once(": "));
    entries
        .filter_map(|(at, _)| tutti_wire::units::parse_duration(at).ok())
        .map(|it| it.0 / 1_000_000_000)
        .collect()
}

#[test]
fn time_goes_on_and_jobs_keep_what_they_have_waited_when_the_machines_clock_begins_anew() {
    let instance = Instance::of_the_system_alone();
    up_ahead(&instance);
    instance.tutti(&["params", "policy=space:fcfs"]).expect(0);
    let all = std::thread::available_parallelism().unwrap().to_string();
    let running = instance.submit_spinner(all.parse().unwrap());
    instance.wait_for_state(running, "running");
    let queued = instance.submit(&["-n", &all, "-o", "ran", "sh", "-c", "echo $TUTTI_RANK"]);
    let waited = |job: u64| instance.job(job)["waited_ms"].as_u64().unwrap();
    let before = eventually("a while", || Some(waited(queued)).filter(|&waited| waited > 13_000));
    lose_power(&instance);
    instance.tutti(&["up"]).expect(0);
    // Its tasks went with the machine, the one in line had none.
    instance.tutti(&["wait", &running.to_string()]).expect(121);
    instance.tutti(&["wait", &queued.to_string()]).expect(0);
    let ran = std::fs::read_to_string(instance.work.join("ran")).unwrap();
    assert_eq!(ran.lines().count().to_string(), all, "it ran once");
    let after = waited(queued);
    // All but what came after the last entry, which is never older than ten seconds.
    let range = before - 10_500..before + 600_000;
    assert!(range.contains(&after), "waited {before} ms, then {after} ms");
    let times = times(&instance);
    assert!(times.len() > 5 && times.is_sorted(), "time went back: {times:?}");
    assert!(times[times.len() - 1] - times[0] < 600, "time has jumped: {times:?}");
    assert!(times[0] >= AHEAD_S, "not begun ahead: {times:?}");
    assert_eq!(instance.tutti(&["replay", "--json"]).expect(0).json()["agrees"], true);
    // Nor does it go back for the controller after this one, though nothing was entered for a
    // while.
    let sleeps = instance.submit(&["-o", "/dev/null", "sh", "-c", "exec sleep $NAP"]);
    instance.wait_for_state(sleeps, "running");
    let age = |job: u64| instance.job(job)["age_s"].as_u64().unwrap();
    let before = eventually("a while", || Some(age(sleeps)).filter(|&age| age >= 4));
    kill_daemon(&instance, "controller");
    let after = eventually("the next", || {
        let listed = instance.tutti(&["ps", "--all", "--json"]);
        let jobs = (listed.code == 0).then(|| listed.json())?;
        jobs.as_array()?.iter().find(|job| job["job"] == sleeps)?["age_s"].as_u64()
    });
    assert!(after >= before && after < before + 600, "its age was {before} s, then {after} s");
    instance.tutti(&["cancel", "--now", &sleeps.to_string()]).expect(0);
    instance.tutti(&["wait", &sleeps.to_string()]).expect(137);
}
