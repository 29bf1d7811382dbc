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
#[ignore = "takes long: `tests/long e2e` runs it"]
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
    // Each of the three between two turns of the others, and not only as one takes the place of
    // another.
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

/// Makes what looks like a program of Open MPI: one that needs its libraries, by itself (`direct`)
/// or by a library of its own (`indirect`). It says its rank, and stays a while if told to.
pub(crate) fn like_open_mpi(instance: &Instance) {
    let main = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint MPI_Init(void);\n\
        int main(int n, char **a) { MPI_Init(); puts(getenv(\"TUTTI_RANK\")); fflush(stdout); \
        if (n > 1) sleep(atoi(a[1])); return 0; }\n";
    for (name, text) in [
        ("pal.c", "int opal(void) { return 0; }\n"),
        ("mpi.c", "int opal(void); int MPI_Init(void) { return opal(); }\n"),
        ("own.c", "int MPI_Init(void); int own(void) { return MPI_Init(); }\n"),
        ("direct.c", main),
        ("indirect.c", &main.replace("MPI_Init", "own")),
    ] {
        std::fs::write(instance.work.join(name), text).unwrap();
    }
    let link = "-L. -Wl,-rpath,'$ORIGIN' -Wl,--no-as-needed";
    let line = format!(
        "set -e; cc -shared -fPIC -Wl,-soname,libopen-pal.so.40 -o libopen-pal.so.40 pal.c; \
         cc -shared -fPIC -Wl,-soname,libmpi.so.40 -o libmpi.so.40 mpi.c {link} -l:libopen-pal.so.40; \
         cc -shared -fPIC -o libown.so own.c {link} -l:libmpi.so.40; \
         cc -o direct direct.c {link} -l:libmpi.so.40; cc -o indirect indirect.c {link} -lown"
    );
    instance.shell(&line).expect(0);
}

/// A library that is not there.
const NONE: &str = "TUTTI_LIBPMIX=/no/such";

#[test]
fn several_tasks_of_an_open_mpi_program_are_rejected_without_a_pmix_library() {
    let instance = Instance::new();
    like_open_mpi(&instance);
    for program in ["./direct", "./indirect"] {
        for (verb, code) in [("run", 125), ("submit", 1)] {
            let line = format!("{NONE} tutti {verb} -n 2 {program}");
            let done = instance.shell(&line).expect(code).says("uses Open MPI, and");
            assert_eq!(done.says("[T007]").text(), "");
        }
    }
    assert!(!instance.dir.exists(), "no instance is started for what is rejected");
    let run = |line: &str| instance.shell(&format!("{NONE} {line}")).expect(0).text();
    assert_eq!(run("tutti run ./direct"), "0\n");
    assert_eq!(run("TUTTI_SINGLETONS=1 tutti run -n 2 ./direct").len(), "0\n1\n".len());
}

#[test]
fn open_mpi_that_shows_only_at_run_time_ends_the_job() {
    let instance = Instance::new().up();
    like_open_mpi(&instance);
    let line = "tutti run -n 2 sh -c 'env ./direct 1000; true'";
    let done = instance.shell(line).says("TUTTI_PMIX=1").says("is ended");
    assert_ne!(done.code, 0, "{}", done.err);
    // What an mpirun has started in a task knows its place.
    let line = "tutti run -n 2 sh -c 'OMPI_COMM_WORLD_SIZE=1 env ./direct 5; true'";
    let done = instance.shell(line).expect(0);
    assert!(!done.err.contains("Open MPI"), "{}", done.err);
}
