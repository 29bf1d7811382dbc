//! A keeper that is killed while tasks of a job wait, frozen, for their first turn: until their
//! programs run they have all the sockets that it had, and would answer for it if anybody went by
//! those.

use crate::harness::{Instance, Running, command_line, eventually, processes, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// An instance with a job that runs on all processors, and one that has still an hour to wait for
/// its turn.
fn with_unborn() -> (Instance, i32, [Running; 2]) {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=1h"]).expect(0);
    let all = std::thread::available_parallelism().unwrap().to_string();
    let keeper = instance.daemon("keeper");
    let running = instance.start(&["run", "-n", &all, "sh", "-c", "echo up; sleep $NAP"]);
    running.wait_for("up");
    let waiting = instance.start(&["run", "-n", &all, "true"]);
    eventually("tasks that wait for their turn", || {
        let born = processes().into_iter().filter(|&pid| {
            status_of(pid, "PPid") == Some(keeper.to_string())
                && command_line(pid).iter().any(|word| word == "keeper")
        });
        (born.count() == all.parse::<usize>().unwrap()).then_some(())
    });
    (instance, keeper, [running, waiting])
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The jobs are lost and reported, and the instance goes on.
fn expect_another_keeper(instance: &Instance, runs: [Running; 2]) {
    for run in runs {
        run.wait().expect(121).says("[T040]");
    }
    instance.expect_no_nappers();
    instance.tutti(&["run", "echo", "works"]).expect(0);
}

#[test]
fn another_keeper_takes_its_place() {
    let (instance, keeper, runs) = with_unborn();
    send(keeper, Signal::SIGKILL);
    expect_another_keeper(&instance, runs);
}

#[test]
fn an_upgrade_does_not_wait_for_its_answer() {
    let (instance, keeper, runs) = with_unborn();
    // It is told, and ends before it hears of it.
    send(keeper, Signal::SIGSTOP);
    let upgrading = instance.start(&["upgrade", instance.program.to_str().unwrap()]);
    // The kernel goes on telling the name with which it was made.
    let path = instance.dir.join("keeper.new");
    eventually("the order", || {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        let connected = |line: &&str| line.contains(path.to_str().unwrap());
        // The listener, the agent, two front ends, and clients that are not accepted yet.
        (sockets.lines().filter(connected).count() > 4).then_some(())
    });
    send(keeper, Signal::SIGKILL);
    upgrading.wait().expect(1).says("the keeper ended during its upgrade").says("[T015]");
    expect_another_keeper(&instance, runs);
}

/// With nothing to start another keeper the instance ends whole.
#[test]
fn without_a_supervisor_the_instance_ends() {
    let (instance, keeper, runs) = with_unborn();
    let supervisor = std::fs::read_to_string(instance.dir.join("lock")).unwrap();
    send(supervisor.trim().parse().unwrap(), Signal::SIGKILL);
    send(keeper, Signal::SIGKILL);
    for run in runs {
        let done = run.wait();
        assert_ne!(done.code, 0, "{done:?}");
    }
    for role in ["agent", "controller"] {
        eventually("the end of the daemons", || instance.daemon_now(role).is_none().then_some(()));
    }
    instance.expect_no_nappers();
    instance.tutti(&["run", "echo", "works"]).expect(0);
}
