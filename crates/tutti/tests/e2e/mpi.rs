//! Programs built with MPICH, started without its own starter.

use crate::harness::{Instance, PATIENCE, Running, compile};
use std::path::{Path, PathBuf};

/// Compiles one of the programs of `tests/mpi`.
fn program(name: &str) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi").join(format!("{name}.c"));
    // Tests run at the same time, so each builds a file of its own.
    let of_test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    compile("mpicc.mpich", &source, &format!("{name}-{of_test}"))
}

#[test]
fn ring_alltoall_and_solver_are_right_alone() {
    let instance = Instance::new().up();
    for (name, args, says) in [
        ("ring", &["50"][..], "ring: 4 ranks, 50 rounds, ok"),
        ("alltoall", &["1000", "5"], "ok"),
        ("solver", &["60", "4000"], "ok"),
    ] {
        let program = program(name).display().to_string();
        let args = [&["run", "-n", "4", &program], args].concat();
        let done = instance.start(&args).wait_within(PATIENCE * 3).expect(0);
        assert!(done.text().contains(says), "{name}: {}", done.text());
    }
}

#[test]
fn three_solvers_at_once_take_turns_and_agree() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=10ms"]).expect(0);
    let solver = program("solver").display().to_string();
    let runs: Vec<Running> =
        (0..3).map(|_| instance.start(&["run", "-n", "4", &solver, "300", "20000"])).collect();
    let mut said: Vec<String> =
        runs.into_iter().map(|run| run.wait_within(PATIENCE * 3).expect(0).text()).collect();
    said.dedup();
    assert_eq!(said.len(), 1, "they differ: {said:?}");
    assert!(said[0].contains("4 ranks, 300 iterations") && said[0].contains("ok"), "{}", said[0]);
    // Each of the three between two turns of the others, and not only as one takes the place of another.
    let came: Vec<u64> = instance.switches().into_iter().flat_map(|switch| switch.came).collect();
    let in_turns = |three: &&[u64]| (1..=3).all(|job| three.contains(&job));
    let rounds = came.windows(3).filter(in_turns).count();
    assert!(rounds > 10, "all three {rounds} times in {} turns", came.len());
}

#[test]
fn an_abort_ends_the_whole_job_with_its_status() {
    let instance = Instance::new().up();
    let abort = program("abort").display().to_string();
    let done = instance.tutti(&["run", "-n", "4", "--grace", "300ms", &abort]).expect(7);
    assert!(done.err.contains("rank 1"), "it does not say who: {}", done.err);
}

#[test]
fn names_that_one_job_publishes_are_found_by_another() {
    let instance = Instance::new().up();
    let publish = program("publish").display().to_string();
    let done = instance.tutti(&["run", &publish, "self", "of-mine"]).expect(0);
    assert_eq!(done.text(), "publish: ok\n");
    let mut offer = instance.start_typing(&["run", &publish, "offer", "a-name", "a-port#7$"]);
    offer.wait_for("offered");
    let found = instance.tutti(&["run", &publish, "find", "a-name"]).expect(0);
    assert_eq!(found.text(), "found a-port#7$\n");
    offer.close_input();
    offer.wait().expect(0);
}

#[test]
fn a_killed_rank_takes_the_job_along() {
    let instance = Instance::new().up();
    let ring = program("ring").display().to_string();
    let line = format!("[ $TUTTI_RANK = 2 ] && kill -SEGV $$; exec {ring} 100000000");
    instance
        .tutti(&["run", "-n", "4", "--grace", "300ms", "sh", "-c", &line])
        .expect(139)
        .says("rank 2");
}
