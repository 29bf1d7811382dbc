//! Suspending, resuming and ending a process with all that descends from it.

use crate::harness::{Instance, Running, eventually, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tutti_wire::limits::SUSPENDED_PARTS_MAX;

/// A shell (`inner`) that has made an orphan, below the root that has another sleep of its own.
const LINE: &str = "sleep $NAP & \
    sh -c 'echo inner $$; sh -c \"sleep $NAP & true\"; sleep $NAP; true'; wait";

/// Starts that as job 1 (or another) and names the processes: the inner shell, and the three
/// sleeps.
fn begin(instance: &Instance, args: &[&str]) -> (Running, i32, Vec<i32>) {
    // However slowly they are let stop: what counts is which do.
    instance.tutti(&["params", "freeze_deadline=10s"]).expect(0);
    let args = [&["run"], args, &["sh", "-c", LINE]].concat();
    let running = instance.start(&args);
    running.wait_for("inner ");
    let sleeps = eventually("three sleeps", || {
        let sleeps: Vec<i32> =
            instance.nappers().into_iter().filter(|&pid| is_sleep(pid)).collect();
        (sleeps.len() == 3).then_some(sleeps)
    });
    let inner = running.out().trim().strip_prefix("inner ").unwrap().parse().unwrap();
    (running, inner, sleeps)
}

fn is_sleep(pid: i32) -> bool {
    status_of(pid, "Name").is_some_and(|name| name == "sleep")
}

fn stopped(pids: &[i32]) -> usize {
    let is_stopped = |pid: &&i32| status_of(**pid, "State").is_some_and(|s| s.starts_with('T'));
    pids.iter().filter(is_stopped).count()
}

/// The states of a job's processes, as `ps --tree` shows them.
fn states(instance: &Instance) -> Vec<String> {
    let tasks = instance.tutti(&["ps", "--tree", "--json", "1"]).expect(0).json();
    let processes = tasks[0]["processes"].as_array().unwrap();
    let state = |it: &Value| it["state"].as_str().unwrap().to_owned();
    processes.iter().map(state).collect()
}

/// Has another job want the same processors, and waits until the first has come back to them often.
fn take_turns(instance: &Instance, processors: &str) {
    instance.tutti(&["params", "quantum=10ms"]).expect(0);
    let line = "while :; do :; done";
    let other = instance.submit(&["-n", processors, "-o", "/dev/null", "sh", "-c", line]);
    eventually("twenty turns", || {
        let came = instance.switches().iter().filter(|switch| switch.came.contains(&1)).count();
        (came > 20).then_some(())
    });
    instance.tutti(&["cancel", "--now", &other.to_string()]).expect(0);
    instance.tutti(&["wait", &other.to_string()]).expect(137);
}

fn processors() -> String {
    std::thread::available_parallelism().unwrap().to_string()
}

fn stays_suspended_through_switches(instance: &Instance, args: &[&str]) {
    let processors = processors();
    let args = [&["-c", &processors], args].concat();
    let (running, inner, sleeps) = begin(instance, &args);
    let part = format!("1.0/{inner}");
    instance.tutti(&["suspend", &part]).expect(0);
    // The shell, its sleep, and its orphan; not the root's own sleep.
    assert_eq!((stopped(&[inner]), stopped(&sleeps)), (1, 2));
    let suspended = |states: &[String]| states.iter().filter(|s| *s == "suspended").count();
    assert_eq!(suspended(&states(instance)), 3);
    assert_eq!(instance.job(1)["suspended"], serde_json::json!([part]));
    take_turns(instance, &processors);
    // If a switch had continued it, it would go on by now, or soon.
    eventually("the job to go on, without the part", || {
        ((stopped(&[inner]), stopped(&sleeps)) == (1, 2)).then_some(())
    });
    instance.tutti(&["resume", &part]).expect(0);
    eventually("sleeps that go on", || (stopped(&sleeps) == 0).then_some(()));
    assert_eq!(suspended(&states(instance)), 0);
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn a_subtree_stays_suspended_when_its_job_takes_turns_by_the_freezer() {
    stays_suspended_through_switches(&Instance::new().up(), &[]);
}

#[test]
fn and_by_signals() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "--class", "polite", "control=signal"]).expect(0);
    stays_suspended_through_switches(&instance, &["--class", "polite"]);
}

#[test]
fn and_without_cgroups() {
    let instance = Instance::of_nobody().up();
    stays_suspended_through_switches(&instance, &[]);
}

#[test]
fn a_subtree_of_a_job_that_stands_still_is_suspended_when_the_job_goes_on() {
    let instance = Instance::new().up();
    let (running, inner, sleeps) = begin(&instance, &[]);
    let part = format!("1.0/{inner}");
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("a frozen job", || states(&instance).iter().all(|s| s == "frozen").then_some(()));
    instance.tutti(&["suspend", &part]).expect(0);
    instance.tutti(&["resume", "1"]).expect(0);
    eventually("a stopped part", || (stopped(&[inner]) + stopped(&sleeps) == 3).then_some(()));
    instance.tutti(&["suspend", "1"]).expect(0);
    instance.tutti(&["resume", &part]).expect(0);
    instance.tutti(&["resume", "1"]).expect(0);
    eventually("a part that goes on", || (stopped(&sleeps) == 0).then_some(()));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn another_agent_knows_what_is_suspended() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "--class", "polite", "control=signal"]).expect(0);
    let processors = processors();
    let (running, inner, sleeps) = begin(&instance, &["--class", "polite", "-c", &processors]);
    instance.tutti(&["suspend", &format!("1.0/{inner}")]).expect(0);
    let agent = instance.daemon("agent");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    eventually("an agent that shows it", || {
        let done = instance.tutti(&["ps", "--tree", "1"]);
        (done.code == 0 && done.text().matches("suspended").count() == 3).then_some(())
    });
    take_turns(&instance, &processors);
    eventually("the job to go on, without the part", || {
        ((stopped(&[inner]), stopped(&sleeps)) == (1, 2)).then_some(())
    });
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
}

#[test]
fn a_subtree_can_be_ended_while_the_rest_goes_on() {
    let instance = Instance::new().up();
    let (running, inner, sleeps) = begin(&instance, &[]);
    let part = format!("1.0/{inner}");
    // What is suspended is let go on, to act upon SIGTERM.
    instance.tutti(&["suspend", &part]).expect(0);
    instance.tutti(&["cancel", &part]).expect(0);
    eventually("the end of the part", || (instance.nappers().len() < 3).then_some(()));
    eventually("one sleep", || {
        let left = sleeps.iter().filter(|&&pid| is_sleep(pid)).count();
        (left == 1 && status_of(inner, "Name").is_none()).then_some(())
    });
    assert_eq!(instance.job(1)["suspended"], serde_json::json!([]));
    instance.tutti(&["cancel", &part]).expect(1).says("does not belong to 1.0");
    instance.tutti(&["cancel", "1.7"]).expect(1).says("job 1 has no rank 7");
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait().expect(143);
}

#[test]
fn who_does_not_heed_the_end_is_killed_after_the_grace_or_at_once() {
    let instance = Instance::new().up();
    let line = "sh -c 'trap \"\" TERM; echo deaf $$; sleep $NAP; sleep $NAP'; \
        sh -c 'trap \"\" TERM; echo deaf $$; sleep $NAP; sleep $NAP'; echo over";
    let running = instance.start(&["run", "--grace", "300ms", "sh", "-c", line]);
    for (nth, how) in [(1, &["cancel"][..]), (2, &["cancel", "--now"])] {
        let deaf = eventually("a deaf shell", || {
            let out = running.out();
            out.lines().nth(nth - 1)?.strip_prefix("deaf ").map(str::to_owned)
        });
        eventually("its sleep", || (instance.nappers().iter().any(|&p| is_sleep(p))).then_some(()));
        instance.tutti(&[how, &[&format!("1.0/{deaf}")]].concat()).expect(0);
        eventually("its end", || status_of(deaf.parse().unwrap(), "Name").is_none().then_some(()));
    }
    running.wait_for("over");
    running.wait().expect(0);
}

/// Each is named wherever the job is shown, and kept until it is resumed.
#[test]
fn no_more_parts_are_suspended_than_can_be_told() {
    let instance = Instance::alone().up();
    let line = format!("for i in $(seq {}); do sleep $NAP & done; wait", SUSPENDED_PARTS_MAX + 1);
    let job = instance.submit(&["-o", "/dev/null", "sh", "-c", &line]);
    let sleeps = eventually("all sleeps", || {
        let all: Vec<i32> = instance.nappers().into_iter().filter(|&pid| is_sleep(pid)).collect();
        (all.len() > SUSPENDED_PARTS_MAX).then_some(all)
    });
    let parts: Vec<String> = sleeps.iter().map(|pid| format!("{job}.0/{pid}")).collect();
    let (last, others) = parts.split_last().unwrap();
    let suspend: Vec<&str> =
        ["suspend"].into_iter().chain(others.iter().map(String::as_str)).collect();
    instance.tutti(&suspend).expect(0);
    instance.tutti(&["suspend", last]).expect(1).says("resume some").says("[T025]");
    instance.tutti(&["suspend", &parts[0]]).expect(0);
    // Of these there are no more than the job has.
    for whole in [format!("{job}.0"), job.to_string()] {
        instance.tutti(&["suspend", &whole]).expect(0);
        instance.tutti(&["resume", &whole]).expect(0);
    }
    // One that has ended can be taken off the list, too.
    kill(Pid::from_raw(sleeps[0]), Signal::SIGKILL).unwrap();
    eventually("its end", || (!instance.nappers().contains(&sleeps[0])).then_some(()));
    instance.tutti(&["resume", &parts[0]]);
    instance.tutti(&["suspend", last]).expect(0);
    assert_eq!(instance.job(job)["suspended"].as_array().unwrap().len(), SUSPENDED_PARTS_MAX);
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.tutti(&["wait", &job.to_string()]).expect(137);
}
