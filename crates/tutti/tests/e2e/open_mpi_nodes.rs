//! Steps of a job that meet over nodes: `MPI_Comm_spawn` and connections of Open MPI 4 and 5.
//!
//! These have the machine to themselves, as those of `open_mpi.rs`.

use crate::cluster::Bed;
use crate::harness::{Instance, PATIENCE, Running, eventually};
use nix::sys::signal::Signal;

/// The program of `tests/mpi` for Open MPI 4, and for Open MPI 5.
fn programs(name: &str) -> [String; 2] {
    [crate::open_mpi_spawn::program(name), crate::open_mpi_5::program(&format!("{name}.c"))]
}

fn start(bed: &Bed, tasks: &str, slots: &str, words: &[&str]) -> Running {
    let run = ["run", "-N", "2", "-n", tasks, "--max-tasks", slots, "--grace", "300ms"];
    bed.start(1, &[&run, words].concat())
}

#[test]
fn parents_and_children_on_several_nodes_meet() {
    let _alone = Instance::alone();
    let bed = Bed::up(2, &[]);
    for spawn in programs("spawn") {
        for (tasks, slots, args, said) in [
            ("1", "2", &["two", "1"][..], "spawn: 2 together"),
            ("2", "4", &["two", "2"], "spawn: 4 together"),
            ("1", "4", &["several"], "spawn: 4 together"),
            ("2", "4", &["again", "3"], "spawn: 3 together"),
            ("1", "4", &["outlive"], "child 1 is done"),
            ("1", "4", &["many", "9"], "many: an MPI error"),
            ("1", "4", &["missing"], "missing: an MPI error"),
        ] {
            let words = [&[&*spawn], args].concat();
            let done = start(&bed, tasks, slots, &words).wait_within(PATIENCE * 3).expect(0);
            assert!(done.text().contains(said), "{words:?}: {} {}", done.text(), done.err);
        }
        let done = start(&bed, "1", "4", &[&spawn, "die", "3"]).wait_within(PATIENCE * 3);
        // The parent may see the loss at its connections, and abort, before the job is ended.
        assert!([139, 14].contains(&done.code), "{} {}", done.text(), done.err);
    }
}

#[test]
fn children_on_another_node_that_are_no_mpi_programs_leave_no_parent_waiting() {
    let _alone = Instance::alone();
    let bed = Bed::up(2, &[]);
    let text = crate::open_mpi_spawn::SPAWNS;
    let spawns = crate::open_mpi::of_text(&bed.audit, "spawns", text);
    let done = start(&bed, "1", "2", &[&spawns, "sh", "-c", "exit 5"]);
    let done = done.wait_within(PATIENCE * 2).expect(5);
    assert!(done.err.contains("without a call of MPI_Init"), "{}", done.err);
}

#[test]
fn steps_on_several_nodes_meet_by_a_published_name() {
    let _alone = Instance::alone();
    let bed = Bed::up(2, &[]);
    for (number, meet) in (1..).zip(programs("meet")) {
        let tutti = bed.audit.program.display().to_string();
        let text = format!(
            "#!/bin/sh\n{tutti} run -N 2 -n 2 {meet} serve ocean > serve &\n\
             while ! grep -qs published serve; do sleep 0.1; done\n\
             {tutti} run --overlap -N 2 -n 2 {meet} find ocean\n\
             {tutti} run --overlap -N 2 -n 2 {meet} join ocean\nwait\ncat serve\n\
             {tutti} run --overlap -N 2 -n 2 {meet} find ocean\n"
        );
        bed.audit.script("job.sh", &text);
        let _ = std::fs::remove_file(bed.audit.work.join("serve"));
        let out = format!("out-{number}");
        bed.tutti(1, &["batch", "-N", "2", "-n", "4", "-o", &out, "job.sh"]).expect(0);
        bed.start(1, &["wait", &number.to_string()]).wait_within(PATIENCE * 4).expect(0);
        let said = std::fs::read_to_string(bed.audit.work.join(out)).unwrap();
        let lines: Vec<&str> = said.lines().filter(|it| !it.contains("PMIX")).collect();
        let [there, join, published, serve, gone] = lines[..] else { panic!("{said}") };
        assert_eq!((there, gone, published), ("there", "not there", "published"), "{said}");
        assert_eq!(join, "join: 2 of us, 4 together");
        assert_eq!(serve, "serve: 2 of us, 4 together");
    }
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn spawns_over_nodes_go_on_when_agents_and_the_controller_are_killed() {
    let _alone = Instance::alone();
    let bed = Bed::up(2, &[]);
    for spawn in programs("spawn") {
        let running = start(&bed, "2", "4", &[&spawn, "again", "30"]);
        running.wait_for("child 0 of 1");
        for (node, role) in [(2, "agent"), (1, "controller"), (1, "agent"), (2, "agent")] {
            let node = bed.node(node);
            let daemon = node.daemon(role).unwrap();
            node.signal(role, Signal::SIGKILL).unwrap();
            eventually("another one", || node.daemon(role).filter(|&new| new != daemon));
        }
        let done = running.wait_within(PATIENCE * 6).expect(0);
        assert!(done.text().contains("spawn: 30 together"), "{} {}", done.text(), done.err);
    }
}

#[test]
fn a_job_ends_with_a_reason_when_its_hub_or_the_node_of_its_children_is_lost() {
    let _alone = Instance::alone();
    let bed = Bed::up(3, &[]);
    for spawn in programs("spawn") {
        let job = ["run", "-w", "n2,n3", "-n", "2", "--max-tasks", "4", "--grace", "300ms"];
        for keeper_of in [2, 3] {
            let running = bed.start(1, &[&job[..], &[&spawn, "rest"]].concat());
            running.wait_for("all rest");
            bed.node(keeper_of).signal("keeper", Signal::SIGKILL).unwrap();
            let done = running.wait_within(PATIENCE * 3);
            assert_ne!(done.code, 0, "{}", done.err);
            let name = format!("n{keeper_of}");
            assert!(done.err.contains(&name), "{}", done.err);
            eventually("its node takes jobs", || (bed.states().get(&name)? == "up").then_some(()));
        }
    }
}
