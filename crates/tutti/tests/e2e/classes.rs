//! The policy `classes`: jobs are set aside for others, and come back.

use crate::harness::{Instance, Running, eventually, own_name};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Command;
use std::time::Duration;

/// Writes more and more for as long as it has processors.
const WRITER: &str = "while :; do echo >> lines.$TUTTI_RANK; done";

/// How much that is.
fn written(instance: &Instance) -> u64 {
    let path = instance.work.join("lines.0");
    eventually("the file", || Some(std::fs::metadata(&path).ok()?.len()))
}

#[test]
fn who_is_important_has_others_set_aside_and_they_come_back() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "policy=classes", "foreign=0%"]).expect(0);
    let standby = ["-n", "2", "--class", "standby", "-o", "/dev/null", "sh", "-c", WRITER];
    let idle = instance.submit(&standby);
    instance.wait_for_state(idle, "running");
    written(&instance);
    // No job is disturbed before its time.
    let quick = ["-n", "2", "--class", "interactive", "-o", "/dev/null", "sleep", &instance.nap];
    let quick = instance.submit(&quick);
    let waits = instance.job(quick);
    assert_eq!(waits["state"], "queued");
    assert!(waits["reason"].as_str().unwrap().starts_with("starts within"), "{waits}");
    instance.tutti(&["params", "--class", "standby", "do_not_disturb=0"]).expect(0);
    instance.wait_for_state(quick, "running");
    let aside = instance.wait_for_state(idle, "preempted");
    assert_eq!(aside["reason"], "too few processors are free");
    assert_eq!(aside["placement"].as_array().unwrap().len(), 1, "its tasks are where they were");
    let before = (written(&instance), instance.job(idle)["service_ms"].clone());
    std::thread::sleep(Duration::from_millis(200));
    let after = (written(&instance), instance.job(idle)["service_ms"].clone());
    assert_eq!(before, after, "it goes on running");
    // It can be signalled and killed where it is; here it comes back.
    instance.tutti(&["cancel", "--now", &quick.to_string()]).expect(0);
    instance.wait_for_state(idle, "running");
    eventually("more lines", || (written(&instance) > before.0).then_some(()));
    // Suspended, it makes room; cancelled meanwhile, nothing of it stays.
    instance.tutti(&["suspend", &idle.to_string()]).expect(0);
    let next = instance.submit(&["-n", "2", "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(next, "running");
    assert_eq!(instance.job(idle)["state"], "suspended");
    for job in [idle, next] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
}

#[test]
fn the_policy_may_change_while_somebody_is_aside() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "policy=classes", "foreign=0%"]).expect(0);
    instance.tutti(&["params", "--class", "standby", "do_not_disturb=0"]).expect(0);
    let spin = |class| {
        let words = ["-n", "2", "--class", class, "-o", "/dev/null", "sh", "-c"];
        instance.submit(&[&words[..], &["while :; do :; done"]].concat())
    };
    let (idle, quick) = (spin("standby"), spin("interactive"));
    instance.wait_for_state(idle, "preempted");
    instance.tutti(&["params", "policy=gang", "quantum=20ms"]).expect(0);
    for job in [idle, quick] {
        assert_eq!(instance.wait_for_state(job, "running")["share_percent"], 50);
    }
    for job in [idle, quick] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
}

#[test]
fn whose_allowance_is_spent_counts_as_standby() {
    let instance = Instance::new().up();
    let bank = |words: &[&str]| instance.tutti(&[&["bank"], words].concat());
    assert_eq!(bank(&["--json"]).expect(0).json(), serde_json::json!([]));
    let own = own_name();
    bank(&[&format!("{own}=1s"), "@0=100h"]).expect(0);
    let job = instance.submit_spinner(2);
    let spent = || {
        let job = instance.job(job);
        (job["class"] == "standby").then(|| job["former_class"].clone())
    };
    assert_eq!(eventually("the class standby", spent), "production");
    let accounts = bank(&["--json"]).expect(0).json();
    assert_eq!(accounts[0]["account"], own);
    assert_eq!((&accounts[0]["allowance_s"], &accounts[0]["left_s"]), (&1.into(), &0.into()));
    assert!(instance.tutti(&["ps"]).expect(0).text().contains("standby, was production"));
    bank(&[&format!("{own}=+1h")]).expect(0);
    assert_eq!(instance.job(job)["class"], "production");
    bank(&[&format!("{own}=1s")]).expect(0);
    assert_eq!(instance.job(job)["class"], "standby");
    bank(&[&format!("{own}=none")]).expect(0);
    assert_eq!(instance.job(job)["former_class"], serde_json::Value::Null);
    bank(&["nobody-at-all=1h"]).expect(1).says("there is no user nobody-at-all");
    bank(&[&format!("{own}=+1h")]).expect(1).says("set one first");
    bank(&[&own]).expect(1).says("ACCOUNT=TIME");
    bank(&[&format!("{own}=much")]).expect(1);
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
}

/// What others use is left to them: a job for which the rest is too little waits, and is told why.
#[test]
fn processors_that_others_use_are_left_to_them() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "policy=classes"]).expect(0);
    // Before all others of this machine: it is to have its processor, whatever else runs.
    let mut spin = Command::new("nice");
    spin.args(["-n", "-10", "sh", "-c", "while :; do :; done"]);
    let _spins = Running::start(spin);
    let node = || instance.tutti(&["nodes", "--json"]).expect(0).json()[0].clone();
    let left = || node()["external_load"].as_array().is_some_and(|left| !left.is_empty());
    eventually("one is left to others", || left().then_some(()));
    let table = instance.tutti(&["nodes"]).expect(0).text();
    assert!(table.lines().nth(1).is_some_and(|line| line.contains('(')), "{table}");
    let all = node()["processors"].to_string();
    let wide = instance.submit(&["-n", &all, "-o", "/dev/null", "sleep", &instance.nap]);
    let reason = instance.job(wide)["reason"].to_string();
    assert!(reason.contains("no job of the cluster keeps"), "{reason}");
    // Known to a controller that begins anew, and not for ever.
    let before = instance.daemon("controller");
    kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
    eventually("another controller", || {
        instance.daemon_now("controller").filter(|it| *it != before)
    });
    assert_eq!(instance.job(wide)["state"], "queued");
    instance.tutti(&["params", "foreign=0%"]).expect(0);
    instance.wait_for_state(wide, "running");
    eventually("nothing is left to others", || (!left()).then_some(()));
    instance.tutti(&["cancel", "--now", &wide.to_string()]).expect(0);
}
