//! Open MPI's tasks beyond their own step: `MPI_Comm_spawn`, published names, connections between
//! steps of a job.
//!
//! These have the machine to themselves, as those of `open_mpi.rs`.

use crate::harness::{Instance, NOBODY, PATIENCE, Running, copy_program};
use crate::open_mpi::{of_source, of_text, servers_of};
use std::path::Path;

pub(crate) fn program(name: &str) -> String {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi").join(format!("{name}.c"));
    of_source(&source, name)
}

#[test]
fn parents_and_children_of_open_mpi_meet() {
    let instance = Instance::alone().up();
    let spawn = program("spawn");
    for (tasks, args, code, said) in [
        ("2", &["two", "1"][..], 0, "spawn: 3 together"),
        ("2", &["two", "2"], 0, "spawn: 4 together"),
        ("1", &["two", "2"], 0, "spawn: 3 together"),
        ("1", &["several"], 0, "spawn: 4 together"),
        ("2", &["again", "2"], 0, "spawn: 2 together"),
        ("1", &["outlive"], 0, "child 1 is done"),
        ("1", &["many", "9"], 0, "many: an MPI error"),
        ("1", &["missing"], 0, "missing: an MPI error"),
        ("1", &["die"], 139, "child 0 of 2"),
    ] {
        let run = [&["run", "-n", tasks, "--max-tasks", "6", "--grace", "300ms", &spawn], args];
        let done = instance.start(&run.concat()).wait_within(PATIENCE * 3).expect(code);
        assert!(done.text().contains(said), "{args:?}: {} {}", done.text(), done.err);
    }
    assert!(servers_of(&instance).is_empty(), "a PMIx server outlives its job");
}

#[test]
fn spawned_programs_have_their_arguments_numbers_and_directory() {
    let instance = Instance::alone().up();
    let spawn = program("spawn");
    let run = ["run", "-n", "1", "--max-tasks", "4", &spawn, "several"];
    let done = instance.start(&run).wait_within(PATIENCE * 3).expect(0);
    let mut children: Vec<String> =
        done.text().lines().filter(|it| it.starts_with("child")).map(Into::into).collect();
    children.sort();
    let child = |rank, number, argument| {
        format!("child {rank} of 3, program {number}, argument {argument}, of 1 parents")
    };
    assert_eq!(children, [child(0, 0, "a=1"), child(1, 0, "a=1"), child(2, 1, "b c")]);
}

#[test]
fn a_spawn_of_open_mpi_without_a_free_slot_says_why() {
    let instance = Instance::alone().up();
    let spawn = program("spawn");
    let run = ["run", "-n", "1", "--max-tasks", "2", &spawn, "many", "2"];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    assert!(done.text().contains("many: an MPI error"), "{}", done.text());
    assert!(done.err.contains("has 1 free slot"), "{}", done.err);
}

/// Spawns its first argument, and waits for it as MPI does.
pub(crate) const SPAWNS: &str = "#include <mpi.h>\n\
    int main(int n, char **a) { MPI_Comm other; MPI_Init(&n, &a); \
    MPI_Comm_spawn(a[1], a + 2, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, \
    MPI_ERRCODES_IGNORE); MPI_Finalize(); return 0; }\n";

#[test]
fn children_that_are_no_mpi_programs_leave_no_parent_waiting() {
    let instance = Instance::alone().up();
    let spawns = of_text(&instance, "spawns", SPAWNS);
    let run = ["run", "-n", "2", "--max-tasks", "3", "--grace", "300ms", &spawns, "true"];
    let done = instance.start(&run).wait_within(PATIENCE);
    assert_ne!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("without a call of MPI_Init"), "{}", done.err);
    let run =
        ["run", "-n", "1", "--max-tasks", "2", "--grace", "300ms", &spawns, "sh", "-c", "exit 5"];
    instance.start(&run).wait_within(PATIENCE).expect(5);
}

#[test]
fn steps_of_a_job_meet_by_a_published_name_and_no_other_job_finds_it() {
    let instance = Instance::alone().up();
    let (meet, program_of) = (program("meet"), instance.program.display().to_string());
    let text = format!(
        "#!/bin/sh\n{program_of} run -n 2 {meet} serve ocean > serve &\n\
         while ! grep -qs published serve; do sleep 0.1; done\n\
         while [ ! -e go ]; do sleep 0.05; done\n\
         {program_of} run --overlap -n 1 {meet} find ocean\n\
         {program_of} run --overlap -n 1 {meet} join ocean\nwait\ncat serve\n\
         {program_of} run --overlap -n 1 {meet} find ocean\n"
    );
    instance.script("job.sh", &text);
    instance.tutti(&["batch", "-n", "3", "-o", "out", "job.sh"]).expect(0);
    let serve = instance.work.join("serve");
    crate::harness::within(PATIENCE * 3, "a published name", || {
        std::fs::read_to_string(&serve).ok()?.contains("published").then_some(())
    });
    let find = ["run", "-n", "2", &meet, "find", "ocean"];
    let found = instance.start(&find).wait_within(PATIENCE * 3).expect(0);
    assert_eq!(found.text().trim(), "not there");
    std::fs::write(instance.work.join("go"), "").unwrap();
    instance.start(&["wait", "1"]).wait_within(PATIENCE * 3).expect(0);
    let said = std::fs::read_to_string(instance.work.join("out")).unwrap();
    let lines: Vec<&str> = said.lines().filter(|it| !it.contains("PMIX")).collect();
    let [there, join, published, serve, gone] = lines[..] else { panic!("{said}") };
    assert_eq!((there, gone, published), ("there", "not there", "published"), "{said}");
    assert_eq!(join, "join: 1 of us, 3 together");
    assert_eq!(serve, "serve: 2 of us, 3 together");
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn users_of_the_systems_instance_spawn_too_also_after_an_upgrade() {
    let instance = Instance::of_the_system_alone().up();
    let spawn = program("spawn");
    let run = ["run", "-n", "2", "--max-tasks", "3", &spawn, "again", "20"];
    let running = Running::start(instance.command_as(Some(NOBODY), &run));
    running.wait_for("child 0 of 1");
    let other = instance.work.join("other");
    copy_program(&instance.program, &other);
    instance.tutti(&["upgrade", &other.display().to_string()]).expect(0);
    let done = running.wait_within(PATIENCE * 3).expect(0);
    assert!(done.text().contains("spawn: 20 together"), "{} {}", done.text(), done.err);
}
