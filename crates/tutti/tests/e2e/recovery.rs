//! What goes on, and what ends in good order, when a part is killed or stands still.

use crate::harness::{Instance, eventually, player, status_of, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Kills a daemon and waits for the next.
fn kill_daemon(instance: &Instance, role: &str) {
    let old = instance.daemon(role);
    send(old, Signal::SIGKILL);
    eventually(&format!("another {role}"), || instance.daemon_now(role).filter(|&new| new != old));
}

#[test]
fn jobs_take_turns_and_end_right_though_the_agent_is_killed() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let player = player().display().to_string();
    let line =
        format!("while [ ! -e stop ]; do :; done; {player} lines 3000; exit $((TUTTI_RANK + 4))");
    let jobs: Vec<_> =
        (0..2).map(|_| instance.start(&["run", "-n", "2", "sh", "-c", &line])).collect();
    eventually("two rows", || instance.jobs().iter().any(|job| job["rows"] == 2).then_some(()));
    for _ in 0..3 {
        kill_daemon(&instance, "agent");
        // The new one switches.
        within(Duration::from_secs(20), "switches of the new agent", || {
            let done = instance.tutti(&["switches", "--json"]);
            (done.code == 0 && done.text().matches("due_ns").count() > 3).then_some(())
        });
    }
    std::fs::write(instance.work.join("stop"), "").unwrap();
    for job in jobs {
        let done = job.wait().expect(5);
        assert_eq!(done.text().lines().count(), 6000, "output is lost");
    }
    instance.tutti(&["run", "-n", "2", "true"]).expect(0);
}

#[test]
fn a_job_that_ends_while_there_is_no_agent_is_reported_by_the_next() {
    let instance = Instance::new().up();
    for round in 0..3 {
        let line = "echo up; cat; exit 6";
        let running = instance.start_typing(&["run", "-n", "2", "-i", "all", "sh", "-c", line]);
        running.wait_for("up\nup\n");
        send(instance.daemon("agent"), Signal::SIGKILL);
        let done = running.wait().expect(6);
        assert_eq!(done.text(), "up\nup\n", "round {round}");
    }
}

#[test]
fn a_job_that_is_launched_while_there_is_no_agent_runs_when_there_is_one() {
    let instance = Instance::new().up();
    for _ in 0..5 {
        send(instance.daemon("agent"), Signal::SIGKILL);
        let done = instance.tutti(&["run", "-n", "2", "echo", "there"]).expect(0);
        assert_eq!(done.text(), "there\nthere\n");
    }
}

#[test]
fn nothing_is_left_when_the_controller_is_killed_and_a_new_run_works() {
    let instance = Instance::new().up();
    let front = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; sleep $NAP"]);
    front.wait_for("up\nup\n");
    instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    eventually("both jobs", || (instance.nappers().len() >= 4).then_some(()));
    kill_daemon(&instance, "controller");
    front.wait().expect(125).says("controller went away");
    within(Duration::from_secs(20), "the end of jobs that nobody knows", || {
        instance.nappers().is_empty().then_some(())
    });
    within(Duration::from_secs(20), "a new controller with a node", || {
        let done = instance.tutti(&["nodes", "--json"]);
        (done.code == 0 && done.text().contains("\"up\"")).then_some(())
    });
    let done = instance.tutti(&["run", "-n", "2", "echo", "again"]).expect(0);
    assert_eq!(done.text(), "again\nagain\n");
}

#[test]
fn jobs_of_a_dead_controller_are_not_mistaken_for_those_of_the_next() {
    let instance = Instance::new().up();
    let old: Vec<u64> = (0..4)
        .map(|_| {
            instance.submit(&["-n", "2", "-o", "old-%j", "sh", "-c", "sleep $NAP & sleep $NAP"])
        })
        .collect();
    eventually("the old jobs", || (instance.nappers().len() == 4 * old.len()).then_some(()));
    kill_daemon(&instance, "controller");
    for _ in 0..6 {
        let done = instance.tutti(&["run", "-n", "2", "echo", "new"]).expect(0);
        assert_eq!(done.text(), "new\nnew\n");
    }
    eventually("the end of the old jobs", || instance.nappers().is_empty().then_some(()));
}

#[test]
fn a_run_that_meets_a_controller_just_killed_asks_the_next_one() {
    let instance = Instance::new().up();
    // The fourth failure in a row would be waited for.
    for _ in 0..3 {
        send(instance.daemon("controller"), Signal::SIGKILL);
        let done = instance.tutti(&["run", "echo", "there"]).expect(0);
        assert_eq!(done.text(), "there\n");
    }
    assert!(instance.daemon_now("keeper").is_some());
}

#[test]
fn jobs_of_a_killed_keeper_are_reported_lost_and_a_new_run_works() {
    let instance = Instance::new().up();
    let front = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; sleep $NAP"]);
    front.wait_for("up\nup\n");
    let other = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(other, "running");
    kill_daemon(&instance, "keeper");
    front.wait().expect(121).says("keeper");
    instance.tutti(&["wait", &other.to_string()]).expect(121);
    instance.expect_no_nappers();
    let done = instance.tutti(&["run", "-n", "2", "echo", "again"]).expect(0);
    assert_eq!(done.text(), "again\nagain\n");
}

#[test]
fn switches_go_on_while_the_controller_stands_still() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    for job in jobs {
        instance.wait_for_state(job, "running");
    }
    let controller = instance.daemon("controller");
    let last = eventually("a switch", || instance.switches().last().map(|s| s.resumed));
    send(controller, Signal::SIGSTOP);
    let mut looks = 0;
    within(Duration::from_secs(10), "two seconds", || {
        looks += 1;
        (looks > 600).then_some(())
    });
    send(controller, Signal::SIGCONT);
    let switches = instance.switches();
    let meanwhile = switches.iter().filter(|s| s.due > last && s.due < last + 1_800_000_000);
    let dues: Vec<u64> = meanwhile.map(|s| s.due).collect();
    assert!(dues.len() > 10, "{} switches in 1.8 s of turns of 20 ms", dues.len());
    let longest = dues.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < 300_000_000, "no switch for {longest} ns");
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}

#[test]
fn an_instance_whose_every_daemon_is_killed_at_once_recovers() {
    let instance = Instance::new().up();
    instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    eventually("a job", || (instance.nappers().len() >= 2).then_some(()));
    let daemons: Vec<i32> = ["agent", "keeper", "controller"].map(|r| instance.daemon(r)).to_vec();
    for daemon in daemons {
        send(daemon, Signal::SIGKILL);
    }
    within(Duration::from_secs(20), "the end of the job", || {
        instance.nappers().is_empty().then_some(())
    });
    within(Duration::from_secs(20), "a run that works", || {
        (instance.tutti(&["run", "-n", "2", "true"]).code == 0).then_some(())
    });
}

#[test]
fn an_instance_that_lost_its_supervisor_is_taken_over_or_refused_with_the_reason() {
    let instance = Instance::new().up();
    let keeper = instance.daemon("keeper");
    let supervisor = crate::harness::status_of(keeper, "PPid").unwrap().parse().unwrap();
    send(supervisor, Signal::SIGKILL);
    let done = instance.tutti(&["run", "echo", "works"]);
    assert_eq!((done.code, done.text().as_str()), (0, "works\n"), "{}", done.err);
    instance.tutti(&["down"]).expect(0);
    within(Duration::from_secs(10), "nothing left", || {
        instance.leftovers().is_empty().then_some(())
    });
}

#[test]
fn what_is_left_of_an_instance_without_supervisor_and_agent_ends() {
    what_is_left_ends_without("agent", ["controller", "keeper"]);
}

#[test]
fn what_is_left_of_an_instance_without_supervisor_and_keeper_ends() {
    what_is_left_ends_without("keeper", ["controller", "agent"]);
}

fn what_is_left_ends_without(killed: &str, left: [&str; 2]) {
    let instance = Instance::new().up();
    let daemons = left.map(|role| instance.daemon(role));
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep $NAP"]);
    running.wait_for("up\nup\n");
    let supervisor = status_of(daemons[0], "PPid").unwrap().parse().unwrap();
    send(supervisor, Signal::SIGKILL);
    eventually("the supervisor's end", || {
        (status_of(daemons[0], "PPid")? != supervisor.to_string()).then_some(())
    });
    send(instance.daemon(killed), Signal::SIGKILL);
    let waiting = instance.start(&["run", "true"]);
    running.wait().expect(121);
    let code = waiting.wait().code;
    assert!([121, 122, 120, 125].contains(&code), "{code}");
    eventually("the end of all that is left", || {
        let lives = |pid: &i32| status_of(*pid, "State").is_some_and(|s| !s.starts_with('Z'));
        (!daemons.iter().any(lives) && instance.nappers().is_empty()).then_some(())
    });
    // And another one is started by whoever needs it.
    instance.tutti(&["run", "echo", "new"]).expect(0).says("started a private instance");
}
