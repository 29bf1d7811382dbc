//! Jobs that are rolled out before the machine goes down, and in again: `tutti down --roll-out`,
//! and the end of the unit.

use crate::checkpoint::counter;
use crate::harness::{Instance, eventually};
use crate::reboot::lose_power;
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_default()
}

fn counts(instance: &Instance) {
    eventually("it counts", || (read(instance, "now").len() > 1).then_some(()));
    // What has only just begun has nothing to save.
    let number = |job: &serde_json::Value| job["service_ms"].as_u64().unwrap() > 1200;
    eventually("it has run for a while", || number(&instance.job(1)).then_some(()));
}

/// A job of which each run writes a line. It may start again from the beginning.
fn restarts(instance: &Instance) -> u64 {
    let line = "echo run $TUTTI_RESTARTS >> runs; sleep $NAP";
    instance.submit(&["--on-node-loss", "requeue", "-o", "/dev/null", "sh", "-c", line])
}

#[test]
fn each_job_is_rolled_out_as_it_can_be_and_comes_back() {
    let instance = Instance::of_the_system_alone().up();
    counter(&instance);
    instance.tutti(&["batch", "count.sh"]).expect(0);
    let again = restarts(&instance);
    let nap = instance.nap.clone();
    let lost = instance.submit(&["-o", "/dev/null", "sleep", &nap]);
    let waits = instance.submit(&["-n", "2", "--hold", "-o", "/dev/null", "sleep", &nap]);
    counts(&instance);
    eventually("the others run", || (read(&instance, "runs") == "run 0\n").then_some(()));
    instance.wait_for_state(lost, "running");
    let done = instance.tutti(&["down", "--roll-out", "--grace", "3s"]).expect(0);
    let (said, printed) = (done.err.clone(), done.text());
    assert!(said.contains("3 running jobs are rolled out, within 3.0s"), "{said}");
    assert!(printed.contains("2 jobs rolled out, 1 job ended"), "{printed}");
    instance.expect_no_nappers();
    let saved = read(&instance, "saved").trim().to_owned();
    instance.tutti(&["up"]).expect(0);
    let resumed = format!("from {saved} restarts 1 resumes 1\n");
    eventually("it resumes", || read(&instance, "out").ends_with(&resumed).then_some(()));
    let both = "run 0\nrun 1\n";
    eventually("it starts again", || (read(&instance, "runs") == both).then_some(()));
    let ended = instance.tutti(&["history", "--json", &lost.to_string()]).expect(0).json();
    assert_eq!(ended["ending"], "shut-down", "{ended}");
    assert_eq!(instance.job(waits)["wait"], "held");
    for job in [1, again, waits] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn a_controller_that_is_killed_meanwhile_is_followed_by_one_that_goes_on() {
    let instance = Instance::of_the_system_alone().up();
    counter(&instance);
    fs::write(instance.work.join("deaf"), "").unwrap();
    instance.tutti(&["batch", "--checkpoint-grace", "4s", "count.sh"]).expect(0);
    let again = restarts(&instance);
    counts(&instance);
    let down = instance.start(&["down", "--roll-out", "--grace", "60s"]);
    instance.wait_for_state(1, "checkpointing");
    instance.wait_for_state(again, "queued");
    kill_daemon(&instance, "controller");
    // What is out stays out, and nothing is accepted.
    eventually("it answers", || (instance.tutti(&["ps"]).code == 0).then_some(()));
    let declined = instance.tutti(&["submit", "true"]);
    assert_ne!(declined.code, 0);
    down.wait().expect(0);
    assert_eq!(read(&instance, "runs"), "run 0\n");
    instance.tutti(&["up"]).expect(0);
    let forced = "restarts 1 resumes 1\n";
    eventually("it runs again", || read(&instance, "out").ends_with(forced).then_some(()));
    eventually("both", || (read(&instance, "runs") == "run 0\nrun 1\n").then_some(()));
    for job in [1, again] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn a_machine_that_fails_half_way_loses_no_job_that_can_come_back() {
    let instance = Instance::of_the_system_alone().up();
    counter(&instance);
    fs::write(instance.work.join("deaf"), "").unwrap();
    fs::write(instance.work.join("saved"), "41\n").unwrap();
    instance.tutti(&["batch", "count.sh"]).expect(0);
    let again = restarts(&instance);
    counts(&instance);
    let down = instance.start(&["down", "--roll-out", "--grace", "60s"]);
    instance.wait_for_state(1, "checkpointing");
    instance.wait_for_state(again, "queued");
    // The verb is gone with the machine: it would ask the next instance.
    down.signal(Signal::SIGKILL);
    down.wait();
    lose_power(&instance);
    instance.tutti(&["up"]).expect(0);
    let resumed = "from 41 restarts 1 resumes 1\n";
    eventually("it runs again", || read(&instance, "out").ends_with(resumed).then_some(()));
    eventually("both", || (read(&instance, "runs") == "run 0\nrun 1\n").then_some(()));
    for job in [1, again] {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn the_end_of_the_unit_rolls_jobs_out_if_the_environment_says_so() {
    let instance = Instance::of_the_system_alone();
    let mut up = instance.command(&["up"]);
    up.env("TUTTI_ROLL_OUT", "20s");
    crate::harness::Running::start(up).wait().expect(0);
    counter(&instance);
    instance.tutti(&["batch", "count.sh"]).expect(0);
    counts(&instance);
    let lock = fs::read_to_string(instance.dir.join("lock")).unwrap();
    kill(Pid::from_raw(lock.trim().parse().unwrap()), Signal::SIGTERM).unwrap();
    let is_down = || (!instance.dir.join("lock").exists()).then_some(());
    eventually("its end", is_down);
    instance.tutti(&["up"]).expect(0);
    let resumed = "restarts 1 resumes 1\n";
    eventually("it resumes", || read(&instance, "out").ends_with(resumed).then_some(()));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}

#[test]
fn what_keeps_no_journal_rolls_nothing_out() {
    let instance = Instance::new().up();
    let refused = instance.tutti(&["down", "--roll-out"]);
    assert_ne!(refused.code, 0);
    refused.says("this instance keeps no journal when it ends");
    instance.tutti(&["down", "--grace", "3s"]).expect(2).says("--roll-out");
    instance.tutti(&["down", "--roll-out", "--grace", "soon"]).expect(2);
    let job = instance.submit(&["-o", "/dev/null", "true"]);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
}
