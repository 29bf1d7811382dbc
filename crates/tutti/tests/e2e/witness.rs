//! A keeper ends with a job, a controller before it has heard of that, and then the only agent that
//! knew.

use crate::harness::{Instance, eventually, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::net::UnixStream;

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// How many sockets there are at a daemon's address: its own, and one for each connection.
fn sockets(instance: &Instance, role: &str) -> usize {
    // The kernel goes on telling the name with which it was made.
    let path = instance.dir.join(format!("{role}.new")).display().to_string();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().filter(|line| line.ends_with(&path)).count()
}

/// Waits until the agent has connected to another daemon of this kind, and has nothing more to do.
fn wait_for_connection(instance: &Instance, agent: i32, role: &str) {
    eventually("the agent's connection", || {
        let waits = status_of(agent, "State").is_some_and(|state| state.starts_with('S'));
        (sockets(instance, role) > 1 && waits).then_some(())
    });
}

/// Kills a daemon, and waits until another is in its place.
fn replace(instance: &Instance, role: &str, before: i32) -> i32 {
    send(before, Signal::SIGKILL);
    eventually("another daemon", || {
        let another = instance.daemon_now(role).filter(|&pid| pid != before);
        let socket = UnixStream::connect(instance.dir.join(format!("{role}.sock")));
        another.filter(|_| socket.is_ok())
    })
}

#[test]
fn a_job_that_went_with_its_keeper_is_not_begun_again() {
    let instance = Instance::new().up();
    let job = instance.submit(&["sh", "-c", "echo begun >> begun; sleep $NAP"]);
    let begun = || std::fs::read_to_string(instance.work.join("begun")).unwrap_or_default();
    eventually("its begin", || (begun() == "begun\n").then_some(()));
    let daemon = |role: &str| instance.daemon(role);
    let (agent, controller, keeper) = (daemon("agent"), daemon("controller"), daemon("keeper"));
    // The agent learns that the job is gone, and can't tell anybody.
    send(controller, Signal::SIGSTOP);
    replace(&instance, "keeper", keeper);
    wait_for_connection(&instance, agent, "keeper");
    // It says at joining that it still has it, with more to tell, and does not come to that.
    send(agent, Signal::SIGSTOP);
    let next = replace(&instance, "controller", controller);
    eventually("quiet", || (sockets(&instance, "controller") == 1).then_some(()));
    send(next, Signal::SIGSTOP);
    send(agent, Signal::SIGCONT);
    wait_for_connection(&instance, agent, "controller");
    send(agent, Signal::SIGKILL);
    send(next, Signal::SIGCONT);
    instance.tutti(&["wait", &job.to_string()]).expect(121).says("[T040]");
    assert_eq!(begun(), "begun\n");
    instance.expect_no_nappers();
}
