//! Programs of Open MPI 5, from PyPI: one world, spawn, and its own `mpirun`.

use crate::cluster::Bed;
use crate::harness::{Instance, PATIENCE, compile_with};
use crate::spawn::of_pypi;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn open_mpi_5() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| of_pypi("--openmpi5", "open-mpi-5"))
}

pub(crate) fn program(name: &str) -> String {
    let mpicc = open_mpi_5().join("bin/mpicc").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi").join(name);
    let of_test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    compile_with(&[], &mpicc, &source, &format!("{name}-{of_test}")).display().to_string()
}

#[test]
fn ranks_of_a_node_and_of_two_are_one_world() {
    let ring = program("ring.c");
    let instance = Instance::new().up();
    let bed = Bed::up(2, &[]);
    for job in [
        instance.start(&["run", "-n", "4", &ring]),
        bed.start(1, &["run", "-N", "2", "-n", "4", &ring]),
    ] {
        let done = job.wait_within(PATIENCE * 3).expect(0);
        assert!(done.text().contains("ring: 4 ranks"), "{}", done.text());
    }
}

/// What all of them do together is divided by node: all must see the same tasks on each.
#[test]
fn parents_and_children_meet() {
    let spawn = program("spawn.c");
    let instance = Instance::new().up();
    for (tasks, args, code, said) in [
        ("1", &["two", "4"][..], 0, "spawn: 5 together"),
        ("2", &["two", "4"], 0, "spawn: 6 together"),
        ("2", &["several"], 0, "spawn: 5 together"),
        ("2", &["many", "9"], 0, "many: an MPI error"),
        ("1", &["missing"], 0, "missing: an MPI error"),
    ] {
        let run = [&["run", "-n", tasks, "--max-tasks", "6", "--grace", "300ms", &spawn], args];
        let done = instance.start(&run.concat()).wait_within(PATIENCE * 3).expect(code);
        assert!(done.text().contains(said), "{tasks} {args:?}: {}", done.text());
    }
}

#[test]
fn its_mpirun_works_inside_a_job_and_reaches_its_other_nodes() {
    let mpirun = open_mpi_5().join("bin/mpirun").display().to_string();
    let ring = program("ring.c");
    let text = format!(
        "#!/bin/sh\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
         {mpirun} -n 4 {ring}\n{mpirun} -n 2 --map-by node hostname\necho over\n"
    );
    let instance = Instance::new().up();
    instance.script("job.sh", &text);
    let done = instance.start(&["run", "-n", "1", "-c", "2", "./job.sh"]);
    let done = done.wait_within(PATIENCE * 4).expect(0);
    assert!(done.text().contains("ring: 4 ranks"), "{} {}", done.text(), done.err);
    let bed = Bed::up(2, &[]);
    bed.audit.script("job.sh", &text);
    let job = ["batch", "-N", "2", "-n", "4", "-o", "out", "--wait", "job.sh"];
    bed.start(1, &job).wait_within(PATIENCE * 4).expect(0);
    let said = std::fs::read_to_string(bed.audit.work.join("out")).unwrap();
    for line in ["ring: 4 ranks, 100 rounds, ok", "n1", "n2", "over"] {
        assert_eq!(said.lines().filter(|it| *it == line).count(), 1, "{line}: {said}");
    }
}

#[test]
fn groups_have_numbers_also_over_nodes() {
    let groups = program("groups.c");
    let instance = Instance::new().up();
    let bed = Bed::up(2, &[]);
    for job in [
        instance.start(&["run", "-n", "4", &groups]),
        bed.start(1, &["run", "-N", "2", "-n", "4", &groups]),
    ] {
        let done = job.wait_within(PATIENCE * 3).expect(0);
        let said = done.text();
        assert!(said.contains("groups: 4, and 4 of two halves"), "{said} {}", done.err);
    }
}

#[test]
fn ranks_go_on_without_one_that_dies() {
    let survive = program("survive.c");
    let run = ["run", "-n", "4", "--on-rank-failure", "notify"];
    let instance = Instance::new().up();
    let bed = Bed::up(2, &[]);
    for job in [
        instance.start(&[&run[..], &[&survive, "1"]].concat()),
        bed.start(1, &[&run[..], &["-N", "2", &survive, "3"]].concat()),
    ] {
        // Without a word of its end the others would wait for ever.
        let done = job.wait_within(PATIENCE * 3).expect(137);
        assert!(done.text().contains("survive: 3 of 4 went on"), "{}", done.text());
        assert!(done.err.contains("was ended by SIGKILL"), "{}", done.err);
    }
    // The choices exclude each other, and a wrong one is named with those that there are.
    instance.tutti(&["run", "--on-rank-failure", "kill", "--keep-going", "true"]).expect(2);
    let wrong = instance.tutti(&["run", "--on-rank-failure", "maybe", "true"]).expect(2);
    assert!(wrong.err.contains("kill, continue, notify"), "{}", wrong.err);
}
