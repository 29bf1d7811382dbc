//! PVM on several nodes: each node of the job is a host, with a daemon that no switch stops.

use crate::cluster::Bed;
use crate::harness::{
    NOBODY, PATIENCE, Running, command_line, eventually, group_of, processes, stands, status_of,
    within,
};
use crate::partition::LONG;
use crate::pvm::{EXAMPLES, built, programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tutti_testbed::Node;

/// The program that removes hosts and adds them.
fn hosts_program() -> String {
    built("hosts")
}

fn network(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// The daemons of virtual machines on a node.
fn daemons(node: &Node) -> Vec<i32> {
    let own = network(node.daemon("agent").unwrap());
    let is_daemon = |pid: i32| command_line(pid).first().is_some_and(|it| it.ends_with("pvmd"));
    processes().into_iter().filter(|&pid| is_daemon(pid) && network(pid) == own).collect()
}

/// Waits until no node has a daemon, a job or a directory of a virtual machine.
fn expect_nothing_left(bed: &Bed) {
    for node in bed.bed().nodes() {
        within(PATIENCE, "no daemon is left", || daemons(node).is_empty().then_some(()));
    }
    within(PATIENCE, "no job is left", || {
        (bed.tutti(1, &["ps", "--json"]).expect(0).text().trim() == "[]").then_some(())
    });
}

#[test]
fn each_node_of_a_job_is_a_host_and_spawned_tasks_go_to_all_of_them() {
    let Some((master, worker)) = programs() else { return };
    let bed = Bed::up(4, &[0]);
    let says = "echo on $(hostname), step $TUTTI_STEP";
    for number in [1, 3] {
        let run = ["pvm", "-n", "8", "-N", "4", master, worker, "7", says];
        let done = bed.start(number, &run).wait_within(LONG).expect(0);
        let text = done.text();
        assert!(text.contains("hosts 4 sum 91 ends 7\n"), "{text}{}", done.err);
        let on: BTreeSet<&str> =
            text.lines().filter_map(|it| it.strip_prefix("on ")?.split(',').next()).collect();
        assert_eq!(on.into_iter().collect::<Vec<_>>(), ["n1", "n2", "n3", "n4"]);
        // There are no more slots than these.
        let run = ["pvm", "-n", "8", "-N", "4", master, worker, "8"];
        let done = bed.start(number, &run).wait_within(LONG).expect(4);
        assert_eq!(done.text(), "spawned 7 of 8: -27\n");
    }
    // All of its processors may be on one other node, and its user need not be root.
    let run = ["pvm", "-n", "2", "-w", "n3", master, worker, "1", says];
    let done = bed.start(1, &run).wait_within(LONG).expect(0);
    assert!(done.text().contains("on n3,") && !done.text().contains("on n1"), "{}", done.text());
    for number in 1..=4 {
        let node = bed.node(number);
        set_permissions(node.directory(), Permissions::from_mode(0o755)).unwrap();
        for socket in ["controller.sock", "keeper.sock", "gate.sock"] {
            let socket = node.directory().join(socket);
            if socket.exists() {
                set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
            }
        }
    }
    for where_to in ["n3", "n[1,3]"] {
        let mut command = bed.node(1).command("setpriv");
        let user = NOBODY.to_string();
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.arg("--clear-groups").arg(&bed.audit.program).args(["pvm", "-n", "2", "-w"]);
        command.arg(where_to).args([master, worker, "1", says]).current_dir("/tmp");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let done = Running::start(command).wait_within(LONG).expect(0);
        assert!(done.text().contains("ends 1"), "{}{}", done.text(), done.err);
    }
    // The node where it is started may be none of the job.
    let run = ["pvm", "-n", "4", "-w", "n[2-3]", master, worker, "3", says];
    let done = bed.start(1, &run).wait_within(LONG).expect(0);
    assert!(done.text().contains("hosts 3 sum 5 ends 3"), "{}{}", done.text(), done.err);
    assert!(!done.text().contains("on n1"), "{}", done.text());
    expect_nothing_left(&bed);
}

#[test]
fn daemons_on_all_nodes_run_while_the_tasks_of_their_jobs_take_turns() {
    let Some((master, worker)) = programs() else { return };
    let bed = Bed::up_with_processors(4, 1);
    let sleeps = "sleep $NAP";
    let run = ["pvm", "-n", "4", "-N", "4", master, worker, "3", sleeps];
    let both = [bed.start(1, &run), bed.start(1, &run)];
    let node = bed.node(3);
    let nappers = || bed.audit.nappers();
    within(LONG, "all tasks of both sleep", || (nappers().len() == 6).then_some(()));
    let of_node = |pid: &i32| network(*pid) == network(node.daemon("agent").unwrap());
    let here: Vec<i32> = nappers().into_iter().filter(of_node).collect();
    assert_eq!((here.len(), daemons(node).len()), (2, 2), "a task and a daemon of each");
    for &napper in &here {
        eventually("its turn ends", || stands(napper).then_some(()));
        eventually("its turn comes", || (!stands(napper)).then_some(()));
    }
    for &daemon in &daemons(node) {
        let group = group_of(daemon);
        assert!(group.contains("/server-"), "{group}");
        assert!(here.iter().all(|&napper| !group_of(napper).starts_with(&group)), "{group}");
        for _ in 0..50 {
            assert!(!stands(daemon), "a daemon is stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It is its user's, not the agent's.
        let own = status_of(std::process::id().cast_signed(), "Uid");
        assert_eq!(status_of(daemon, "Uid"), own);
    }
    for run in both {
        run.signal(Signal::SIGTERM);
        run.wait_within(LONG);
    }
    expect_nothing_left(&bed);
    bed.audit.expect_no_nappers();
}

#[test]
fn programs_remove_and_add_hosts_that_are_nodes_of_their_job() {
    if programs().is_none() {
        return;
    }
    let (bed, program) = (Bed::up(3, &[0]), hosts_program());
    let done = bed.start(1, &["pvm", "-n", "6", "-N", "3", &program, "n2"]).wait_within(LONG);
    let expected = "deleted 1 code 0\ntask 1 host 1\nhosts 3 then 2\nadded 1 as a host\nnew 1 same \
                    1 hosts 3\nstrange -8\ntask there 1\n";
    assert_eq!(done.text(), expected, "{}", done.err);
    expect_nothing_left(&bed);
}

#[test]
fn a_lost_node_is_a_lost_host_and_the_others_go_on() {
    if programs().is_none() {
        return;
    }
    let (bed, program) = (Bed::up(3, &[0]), hosts_program());
    let run = ["pvm", "-n", "6", "-N", "3", "--on-node-loss", "notify", &program, "n3", "wait"];
    let running = bed.start(1, &run);
    running.wait_for("waiting");
    bed.bed().kill(bed.node(3)).unwrap();
    let done = running.wait_within(LONG).expect(0);
    let expected = "waiting\ntask 1 host 1\nhosts 3 then 2\n";
    assert_eq!(done.text(), expected, "{}", done.err);
}

#[test]
fn a_daemon_that_dies_is_a_lost_host_at_once() {
    if programs().is_none() {
        return;
    }
    let (bed, program) = (Bed::up(3, &[0]), hosts_program());
    // Each time another one: the daemon, also as it is asked to end, and the process beside it.
    for (signal, is_beside) in
        [(Signal::SIGKILL, false), (Signal::SIGTERM, false), (Signal::SIGKILL, true)]
    {
        let run = ["pvm", "-n", "6", "-N", "3", &program, "n3", "wait"];
        let running = bed.start(1, &run);
        running.wait_for("waiting");
        let daemon = daemons(bed.node(3))[0];
        let beside = status_of(daemon, "PPid").and_then(|it| it.parse().ok()).unwrap();
        let begun = Instant::now();
        kill(Pid::from_raw(if is_beside { beside } else { daemon }), signal).unwrap();
        running.wait_for("hosts 3 then 2");
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1500), "{signal}: noticed after {took:?}");
        running.wait_within(LONG).expect(0);
    }
    expect_nothing_left(&bed);
}

#[test]
fn examples_of_pvm_run_on_four_nodes() {
    if programs().is_none() || !Path::new("/usr/bin/gexamp").exists() {
        return;
    }
    let bed = Bed::up(4, &[0]);
    for (words, said) in EXAMPLES {
        // One of them spawns three tasks for each host.
        let run = [&["pvm", "-n", "16", "-N", "4"], words].concat();
        // Two at once, in turns.
        let both = [bed.start(1, &run), bed.start(2, &run)];
        for running in both {
            let done = running.wait_within(LONG);
            let all = done.text() + &done.err;
            assert!(all.contains(said), "{words:?}: {all}");
        }
    }
    expect_nothing_left(&bed);
}
