//! Jobs that make way instead of being stopped.

use crate::harness::{Instance, eventually, own_processors, within};
use crate::switch::{check_record, end_all, wait_for_switches};
use std::fs;
use std::time::{Duration, Instant};

/// Processor time that a job has used, in microseconds, as its cgroups count it.
fn used_us(instance: &Instance, job: u64) -> u64 {
    let jobs = instance.tutti(&["ps", "-l", "--all", "--json"]).expect(0).json();
    let jobs = jobs.as_array().unwrap();
    let usage = &jobs.iter().find(|it| it["job"] == job).unwrap()["usage"];
    usage["cpu_user_us"].as_u64().unwrap() + usage["cpu_system_us"].as_u64().unwrap()
}

/// Until a job has used so much more; gives how much another has used meanwhile.
fn while_it_uses(instance: &Instance, (job, ms): (u64, u64), other: u64) -> u64 {
    let (begin, before) = (used_us(instance, job), used_us(instance, other));
    within(Duration::from_secs(60), "the job to run", || {
        (used_us(instance, job) > begin + ms * 1000).then_some(())
    });
    used_us(instance, other) - before
}

/// Processor time that the test's processors were idle so far, in microseconds.
fn idle_us() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks = own_processors().into_iter().map(|number| -> u64 {
        let name = format!("cpu{number} ");
        let line = text.lines().find(|line| line.starts_with(&name)).unwrap();
        line.split_whitespace().nth(4).unwrap().parse().unwrap()
    });
    ticks.sum::<u64>() * 10_000
}

/// Until a job whose turn it is not has used what is idle; or until it can be seen that nothing is,
/// since others than the instance want all there is: then it has no right to more.
fn while_it_fills(instance: &Instance, job: u64) {
    let (begin, idle, used) = (Instant::now(), idle_us(), used_us(instance, job));
    let processors = own_processors().len() as u64;
    within(Duration::from_secs(60), "the job to fill what is idle", || {
        // Verbs one after the other would themselves want much of it.
        std::thread::sleep(Duration::from_millis(50));
        let passed_us = u64::try_from(begin.elapsed().as_micros()).unwrap() * processors;
        let nothing_is_idle =
            passed_us > 10_000_000 * processors && (idle_us() - idle) * 10 < passed_us;
        (used_us(instance, job) > used + 300_000 || nothing_is_idle).then_some(())
    });
}

#[test]
fn a_job_fills_what_those_whose_turn_it_is_leave_idle() {
    let instance = Instance::alone().up();
    // No turn ends while the test lasts.
    instance.tutti(&["params", "quantum=1h"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=priority"]).expect(0);
    let wide = |line: &str| instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", line]);
    let gate = instance.work.join("gate");
    let first =
        wide(&format!("until [ -e {} ]; do sleep 0.05; done; while :; do :; done", gate.display()));
    instance.wait_for_state(first, "running");
    let filler = wide("while :; do :; done");
    instance.wait_for_state(filler, "running");
    while_it_fills(&instance, filler);

    fs::write(&gate, "").unwrap();
    while_it_uses(&instance, (first, 200), filler);
    let filled = while_it_uses(&instance, (first, 1500), filler);
    assert!(filled < 300_000, "who makes way has used {filled} us while the other used 1.5 s");
    let switches = instance.switches();
    assert!(switches.iter().all(|s| s.left.is_empty()), "somebody was switched: {switches:?}");

    // With the first out of the way it has the processors to itself, and not when it is suspended.
    instance.tutti(&["suspend", &first.to_string()]).expect(0);
    while_it_fills(&instance, filler);
    instance.tutti(&["resume", &first.to_string()]).expect(0);
    instance.tutti(&["suspend", &filler.to_string()]).expect(0);
    // The node does it when it hears of it.
    eventually("it stands still", || {
        let tasks =
            instance.tutti(&["ps", "--tree", "--json", &filler.to_string()]).expect(0).json();
        let mut tasks = tasks.as_array().unwrap().iter();
        let stands = |task: &serde_json::Value| {
            task["processes"].as_array().unwrap().iter().all(|it| it["state"] == "frozen")
        };
        tasks.all(stands).then_some(())
    });
    let stood = while_it_uses(&instance, (first, 300), filler);
    assert_eq!(stood, 0, "a suspended job runs");
    end_all(&instance);
}

#[test]
fn processor_time_follows_the_turns() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=50ms"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=priority", "share=75%"]).expect(0);
    instance.tutti(&["params", "--class", "standby", "control=priority", "share=25%"]).expect(0);
    let spin = "while :; do :; done";
    let submit = |class: &str| {
        instance.submit(&["-n", "2", "--class", class, "-o", "/dev/null", "sh", "-c", spin])
    };
    let (large, small) = (submit("production"), submit("standby"));
    instance.wait_for_state(small, "running");
    let switches = wait_for_switches(&instance, 20);
    check_record(&switches);
    assert!(switches.iter().all(|s| s.left == s.yields), "somebody was stopped: {switches:?}");
    let other = while_it_uses(&instance, (large, 3000), small);
    assert!((500_000..2_000_000).contains(&other), "a quarter is {other} us beside 3 s");
    // Their processors are of the job that has its turn, also of an agent that comes later.
    let agent = instance.daemon("agent");
    let pid = nix::unistd::Pid::from_raw(agent);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("another agent", || {
        let is_there = instance.daemon_now("agent").is_some_and(|pid| pid != agent);
        (is_there && instance.tutti(&["switches"]).code == 0).then_some(())
    });
    wait_for_switches(&instance, 20);
    let other = while_it_uses(&instance, (large, 3000), small);
    assert!((500_000..2_000_000).contains(&other), "then a quarter is {other} us beside 3 s");
    end_all(&instance);
}
