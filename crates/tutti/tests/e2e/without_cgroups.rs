//! The instance of a user that may write no cgroup: jobs are stopped by signals, and tracked by
//! descent.

use crate::harness::{Instance, eventually, player, status_of};
use crate::switch::{overlap, stretches};
use std::path::Path;

fn stopped(pid: i32) -> bool {
    status_of(pid, "State").is_some_and(|state| state.starts_with('T'))
}

#[test]
fn the_doctor_says_that_no_cgroup_can_be_written_and_what_helps() {
    let instance = Instance::of_nobody().up();
    let text = instance.tutti(&["doctor"]).expect(0).text();
    assert!(text.contains("no cgroup can be written"), "{text}");
    let first = "jobs run, but without cgroups, memory limits and process limits\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("sudo tutti up"), "{text}");
    if !Path::new("/run/systemd/system").is_dir() {
        assert!(text.contains("/of-65534 && chown -R 65534 /sys/fs/cgroup"), "{text}");
    }
    let whole = instance.tutti(&["doctor", "-v"]).expect(0).text();
    for limit in ["-m", "--max-processes"] {
        assert!(whole.contains(&format!("{limit} is not enforced")), "{whole}");
    }
}

#[test]
fn jobs_run_with_their_output_and_exit_codes() {
    let instance = Instance::of_nobody();
    let done = instance.tutti(&["run", "-n", "3", "-l", "sh", "-c", "id -u; exit $TUTTI_RANK"]);
    let done = done.expect(2).says("started a private instance");
    assert_eq!(done.sorted(), ["0: 65534", "1: 65534", "2: 65534"]);
    instance.tutti(&["run", "no-such-program"]).expect(127);
    instance.tutti(&["run", "sh", "-c", "kill -SEGV $$"]).expect(139);
    let endless = ["run", "-t", "200ms", "sh", "-c", "exec sleep $NAP"];
    instance.tutti(&endless).expect(124);
    instance.expect_no_nappers();
}

#[test]
fn a_limit_that_nothing_holds_tasks_to_is_said_once_to_whoever_asks_for_it() {
    let instance = Instance::of_nobody().up();
    let unheld = "nothing holds tasks to -m in this instance of your own";
    let done = instance.tutti(&["run", "-n", "2", "-m", "64M", "true"]).expect(0);
    assert_eq!(done.err.matches(unheld).count(), 1, "{}", done.err);
    let submit = ["submit", "-m", "64M", "--max-processes", "9", "-o", "/dev/null", "true"];
    let both = "nothing holds tasks to -m and --max-processes in";
    instance.tutti(&submit).expect(0).says(both);
    let done = instance.tutti(&["run", "true"]).expect(0);
    assert_eq!(done.err, "");
    instance.tutti(&["wait", "2"]).expect(0);
}

#[test]
fn two_jobs_take_turns_and_the_one_that_waits_is_stopped() {
    let instance = Instance::of_nobody().up();
    // Strangers on the machine must not make a switch give up waiting.
    instance.tutti(&["params", "quantum=50ms", "freeze_deadline=10s"]).expect(0);
    let player = instance.share(&player()).display().to_string();
    let submit = || instance.submit(&["-n", "2", "-o", "t-%j-%r", &player, "ticks", "500"]);
    let jobs = [submit(), submit()];
    for job in jobs {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let [one, other] = jobs.map(|job| stretches(&instance, job, 2));
    let common = overlap(&one, &other);
    assert!(common < 50_000_000, "they ran at the same time for {common} ns");
    let switches = instance.switches();
    assert!(switches.len() > 5, "{switches:?}");
}

#[test]
fn a_suspended_job_is_stopped_with_all_its_daemons() {
    let instance = Instance::of_nobody().up();
    let player = instance.share(&player()).display().to_string();
    let line = format!("{player} daemon $NAP; setsid sleep $NAP & echo up; exec sleep $NAP");
    let running = instance.start(&["run", "-n", "2", "sh", "-c", &line]);
    running.wait_for("up\nup\n");
    eventually("six sleeps", || (instance.nappers().len() == 6).then_some(()));
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("six stopped sleeps", || instance.nappers().into_iter().all(stopped).then_some(()));
    instance.tutti(&["resume", "1"]).expect(0);
    eventually("six sleeps that go on", || {
        (!instance.nappers().into_iter().any(stopped)).then_some(())
    });
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait().expect(143);
    instance.expect_no_nappers();
}

#[test]
fn daemonised_processes_are_found_and_killed() {
    let instance = Instance::of_nobody().up();
    let player = instance.share(&player()).display().to_string();
    for line in [
        format!("{player} daemon $NAP"),
        "setsid sleep $NAP & true".into(),
        "nohup sleep $NAP >/dev/null 2>&1 & true".into(),
        format!("setsid sh -c '{player} daemon $NAP & {player} daemon $NAP' & sleep 0.1"),
    ] {
        instance.tutti(&["run", "-n", "2", "sh", "-c", &line]).expect(0);
        assert!(instance.nappers().is_empty(), "left over by: {line}");
    }
}

#[test]
fn jobs_outlive_the_agent_here_too() {
    let instance = Instance::of_nobody().up();
    let mut running = instance.start_typing(&["run", "sh", "-c", "echo up; cat; exit 8"]);
    running.wait_for("up");
    let agent = instance.daemon("agent");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    eventually("another agent", || instance.daemon_now("agent").filter(|&new| new != agent));
    running.type_in(b"typed\n");
    assert_eq!(running.wait().expect(8).text(), "up\ntyped\n");
}

#[test]
fn the_tasks_of_a_killed_keeper_end_with_it() {
    let instance = Instance::of_nobody().up();
    let player = instance.share(&player()).display().to_string();
    let line = format!("{player} daemon $NAP; setsid sleep $NAP & sleep $NAP & echo up; wait");
    let running = instance.start(&["run", "-n", "2", "sh", "-c", &line]);
    running.wait_for("up\nup\n");
    eventually("six sleeps", || (instance.nappers().len() == 6).then_some(()));
    let keeper = instance.daemon("keeper");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(keeper), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    running.wait().expect(121);
    eventually("the end of all sleeps", || instance.nappers().is_empty().then_some(()));
    instance.tutti(&["run", "true"]).expect(0);
}
