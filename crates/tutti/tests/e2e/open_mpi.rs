//! Programs built with Open MPI, started without its own starter: a PMIx server of the job serves
//! them.
//!
//! These have the machine to themselves: Open MPI's shared memory would be another test's leftover.

use crate::cluster::Bed;
use crate::harness::{
    Instance, NOBODY, PATIENCE, Running, command_line, compile, eventually, processes, status_of,
};
use std::path::{Path, PathBuf};

/// Compiles one of the programs of `tests/mpi` for Open MPI.
fn program(name: &str) -> String {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi").join(format!("{name}.c"));
    of_source(&source, name)
}

pub(crate) fn of_source(source: &Path, name: &str) -> String {
    let of_test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    let built: PathBuf = compile("mpicc.openmpi", source, &format!("{name}-{of_test}"));
    built.display().to_string()
}

/// Compiles a program that is given as text.
pub(crate) fn of_text(instance: &Instance, name: &str, text: &str) -> String {
    let source = instance.work.join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    of_source(&source, name)
}

/// The second word of a PMIx server's command line.
pub(crate) const SERVER: &str = "pmix-server";

/// The PMIx servers that this keeper has started.
pub(crate) fn servers_below(keeper: i32) -> Vec<i32> {
    let is_server = |pid: &i32| command_line(*pid).get(1).is_some_and(|word| word == SERVER);
    let is_its = |pid: &i32| status_of(*pid, "PPid").is_some_and(|it| it == keeper.to_string());
    processes().into_iter().filter(is_server).filter(is_its).collect()
}

pub(crate) fn servers_of(instance: &Instance) -> Vec<i32> {
    servers_below(instance.daemon("keeper"))
}

/// Says its rank after `MPI_Init`, and stays until it is ended.
pub(crate) const STAYS: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    int main(int n, char **a) { int r; MPI_Init(&n, &a); MPI_Comm_rank(MPI_COMM_WORLD, &r); \
    printf(\"%d is up\\n\", r); fflush(stdout); sleep(1000); return 0; }\n";

/// Rank 1 ends before `MPI_Finalize`, with a status.
const LEAVES: &str = "#include <mpi.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    int main(int n, char **a) { int r; MPI_Init(&n, &a); MPI_Comm_rank(MPI_COMM_WORLD, &r); \
    if (r == 1) _exit(atoi(a[1])); MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); return 0; }\n";

#[test]
fn four_ranks_are_one_world() {
    let instance = Instance::alone().up();
    let ring = program("ring");
    let done = instance.start(&["run", "-n", "4", &ring, "50"]).wait_within(PATIENCE * 3);
    assert!(done.expect(0).text().contains("ring: 4 ranks, 50 rounds, ok"));
    assert!(servers_of(&instance).is_empty(), "a PMIx server outlives its job");
    // What its processes have made goes with it.
    let own = instance.tutti(&["run", "sh", "-c", "echo $TMPDIR"]).expect(0).text();
    let (own, _) = own.rsplit_once("-job-").unwrap();
    let left = std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
    let left: Vec<_> = left.filter(|path| path.join("tutti-pmix").exists()).collect();
    assert!(!left.iter().any(|path| path.display().to_string().contains(own)), "{left:?}");
}

#[test]
fn a_submitted_job_and_one_that_an_interpreter_starts_are_served() {
    let instance = Instance::alone().up();
    let ring = program("ring");
    let job = instance.submit(&["-n", "2", "-o", "out", &ring, "20"]).to_string();
    instance.tutti(&["wait", &job]).expect(0);
    let said = std::fs::read_to_string(instance.work.join("out")).unwrap();
    assert!(said.contains("ring: 2 ranks, 20 rounds, ok"), "{said}");
    // Scripts and interpreters say what they start; of others a variable says it.
    instance.script("each.sh", &format!("#!/bin/sh\n{ring} 20\ntrue\n"));
    for line in [
        format!("tutti run -n 2 sh -c '{ring} 20; true'"),
        "tutti run -n 2 ./each.sh".into(),
        "tutti submit -n 2 -o each ./each.sh; tutti wait last; cat each".into(),
        format!("TUTTI_PMIX=1 tutti run -n 2 /usr/bin/env {ring} 20"),
    ] {
        let done = instance.shell(&line).expect(0);
        assert!(done.text().contains("ring: 2 ranks, 20 rounds, ok"), "{line}: {}", done.text());
    }
}

#[test]
fn an_abort_ends_the_job_with_its_status_and_names_the_rank() {
    let instance = Instance::alone().up();
    let abort = program("abort");
    let done = instance.tutti(&["run", "-n", "4", "--grace", "300ms", &abort]).expect(7);
    assert!(done.err.contains("rank 1"), "it does not say which: {}", done.err);
}

#[test]
fn a_rank_that_ends_before_it_finalizes_ends_the_job() {
    let instance = Instance::alone().up();
    let leaves = of_text(&instance, "leaves", LEAVES);
    for (status, code) in [("0", 1), ("3", 3)] {
        let job = ["run", "-n", "3", "--grace", "300ms", &leaves, status];
        let words = format!("rank 1 ended with exit status {status} before MPI_Finalize");
        instance.tutti(&job).expect(code).says(&words).says("[T049]");
    }
    // One that has not even begun: the library of the others says nothing of what they wait for.
    let ring = program("ring");
    for ends_after in ["0", "2"] {
        let line =
            format!("[ $TUTTI_RANK = 1 ] && {{ sleep {ends_after}; exit 3; }}; exec {ring} 20");
        let line = format!("TUTTI_PMIX=1 tutti run -n 3 sh -c '{line}'");
        let words = "rank 1 ended with exit code 3 before MPI_Init";
        instance.shell(&line).expect(3).says(words).says("[T049]");
    }
}

#[test]
fn a_killed_pmix_server_ends_its_job_with_the_reason_and_no_other() {
    let instance = Instance::alone().up();
    let stays = of_text(&instance, "stays", STAYS);
    let first = instance.start(&["run", "-n", "2", &stays]);
    first.wait_for("1 is up");
    let [server] = servers_of(&instance)[..] else { panic!("one job has one server") };
    let other = instance.start(&["run", "-n", "2", "sh", "-c", "sleep 3; echo done"]);
    instance.shell(&format!("kill -KILL {server}")).expect(0);
    let done = first.wait_within(PATIENCE * 2);
    assert_ne!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("the PMIx server was ended by signal 9"), "{}", done.err);
    assert_eq!(other.wait().expect(0).sorted(), ["done", "done"]);
}

#[test]
fn two_jobs_take_turns_while_each_has_its_server() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let solver = program("solver");
    let runs = [(); 2].map(|()| instance.start(&["run", "-n", "2", &solver, "300", "20000"]));
    let mut said: Vec<String> =
        runs.into_iter().map(|run| run.wait_within(PATIENCE * 3).expect(0).text()).collect();
    said.dedup();
    assert_eq!(said.len(), 1, "they differ: {said:?}");
    assert!(said[0].contains("2 ranks, 300 iterations") && said[0].contains("ok"), "{}", said[0]);
}

#[test]
fn ranks_of_two_nodes_are_one_world() {
    let bed = Bed::up(2, &[]);
    let ring = program("ring");
    let job = ["run", "-N", "2", "-n", "4", &ring, "50"];
    let done = bed.start(1, &job).wait_within(PATIENCE * 3).expect(0);
    assert!(done.text().contains("ring: 4 ranks, 50 rounds, ok"), "{}", done.text());
}

#[test]
fn a_library_that_is_none_is_refused_with_what_to_do() {
    let instance = Instance::alone();
    let ring = program("ring");
    let line = format!("TUTTI_LIBPMIX=/no/such tutti run -n 2 {ring}");
    instance.shell(&line).expect(125).says("is no path of a library").says("[T007]");
    // One that can be loaded and is another library is found out where it is loaded.
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    if Path::new(libc).exists() {
        // The next one is taken then.
        let line = format!("TUTTI_LIBPMIX={libc} tutti run -n 2 {ring} 5");
        assert!(instance.shell(&line).expect(0).text().contains("2 ranks, 5 rounds, ok"));
    }
}

#[test]
fn a_pmix_server_can_start_no_process_for_its_user() {
    let instance = Instance::alone().up();
    // What stands for the library makes a process as soon as it is loaded.
    let text = "#include <stdio.h>\n#include <unistd.h>\n\
        const char *PMIx_Get_version(void) { return \"OpenPMIx 4.2.2\"; }\n\
        __attribute__((constructor)) static void begin(void) { pid_t pid = fork(); \
        if (pid == 0) { execl(\"/bin/sleep\", \"sleep\", getenv_nap(), NULL); _exit(1); } \
        FILE *file = fopen(WHERE, \"w\"); fprintf(file, \"%d\", pid < 0); fclose(file); }\n";
    let text = text.replace("getenv_nap()", "\"1000\"");
    std::fs::write(instance.work.join("bad.c"), text).unwrap();
    let line = "cc -shared -fPIC -DWHERE=\"\\\"$PWD/said\\\"\" -o libbad.so bad.c";
    instance.shell(line).expect(0);
    let line = "TUTTI_PMIX=1 TUTTI_LIBPMIX=$PWD/libbad.so tutti run -n 2 true";
    instance.shell(line).expect(0);
    let said = eventually("a word of the library", || {
        std::fs::read_to_string(instance.work.join("said")).ok().filter(|said| !said.is_empty())
    });
    assert_eq!(said, "1", "a process was made outside of the job");
}

#[test]
fn a_job_whose_pmix_server_ends_before_it_is_ready_ends_with_the_reason() {
    let instance = Instance::alone().up();
    let text = "#include <unistd.h>\n\
        __attribute__((constructor)) static void begin(void) { _exit(3); }\n";
    std::fs::write(instance.work.join("dead.c"), text).unwrap();
    instance.shell("cc -shared -fPIC -o libdead.so dead.c").expect(0);
    let mut run = instance.command(&["run", "-n", "2", "true"]);
    run.env("TUTTI_PMIX", "1").env("TUTTI_LIBPMIX", instance.work.join("libdead.so"));
    let done = Running::start(run).wait_within(PATIENCE);
    assert!(done.err.contains("the PMIx server ended with status 3"), "{}", done.err);
}

#[test]
fn other_users_of_the_systems_instance_are_served_as_themselves() {
    let instance = Instance::of_the_system_alone().up();
    let ring = program("ring");
    let run = instance.command_as(Some(NOBODY), &["run", "-n", "2", &ring, "20"]);
    let done = Running::start(run).wait_within(PATIENCE * 3).expect(0);
    assert!(done.text().contains("ring: 2 ranks, 20 rounds, ok"), "{}", done.text());
    // The library's files are the user's, or it could not begin; so is the process.
    let mut run = instance.command_as(Some(NOBODY), &["run", "-n", "2", "sh", "-c", "sleep 1000"]);
    let _run = Running::start({
        run.env("TUTTI_PMIX", "1");
        run
    });
    let keeper = instance.daemon("keeper");
    let server = eventually("a server", || servers_below(keeper).first().copied());
    // Before, it is root's: its user could trace it, and make a process outside of the job.
    eventually("a server of its user", || {
        let uid = status_of(server, "Uid")?;
        (uid.split('\t').next() == Some("65534")).then_some(())
    });
    assert_eq!(status_of(server, "Seccomp").as_deref(), Some("2"), "it had confined itself before");
}

#[test]
fn users_without_cgroups_are_served_too() {
    let instance = Instance::of_nobody().up();
    let ring = program("ring");
    let done = instance.start(&["run", "-n", "2", &ring, "20"]).wait_within(PATIENCE * 3);
    assert!(done.expect(0).text().contains("ring: 2 ranks, 20 rounds, ok"));
    let leaves = of_text(&instance, "leaves", LEAVES);
    let job = ["run", "-n", "2", "--grace", "300ms", &leaves, "3"];
    instance.tutti(&job).expect(3).says("before MPI_Finalize");
}

/// Says that it is up, waits for a file, and goes on.
const WAITS: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    int main(int n, char **a) { int r; MPI_Init(&n, &a); MPI_Comm_rank(MPI_COMM_WORLD, &r); \
    printf(\"%d is up\\n\", r); fflush(stdout); while (access(\"go\", F_OK)) usleep(10000); \
    MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); printf(\"done\\n\"); return 0; }\n";

#[test]
fn a_job_and_its_server_survive_an_upgrade_and_end_with_the_keeper() {
    let instance = Instance::alone().up();
    let waits = of_text(&instance, "waits", WAITS);
    let first = instance.start(&["run", "-n", "2", &waits]);
    first.wait_for("0 is up");
    first.wait_for("1 is up");
    let copy = instance.work.join("release");
    std::fs::copy(&instance.program, &copy).unwrap();
    instance.tutti(&["upgrade", copy.to_str().unwrap()]).expect(0);
    std::fs::write(instance.work.join("go"), "").unwrap();
    let done = first.wait_within(PATIENCE * 2).expect(0);
    assert_eq!(done.text().matches("done").count(), 2, "{}", done.text());
    // No MPI program: what it shares as a file is not removed when its keeper is killed.
    let mut run = instance.command(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep 1000"]);
    run.env("TUTTI_PMIX", "1");
    let second = Running::start(run);
    second.wait_for("up");
    let keeper = instance.daemon("keeper");
    let [server] = servers_below(keeper)[..] else { panic!("one job has one server") };
    instance.shell(&format!("kill -KILL {keeper}")).expect(0);
    eventually("the end of the server", || {
        (!command_line(server).contains(&SERVER.into())).then_some(())
    });
    assert_ne!(second.wait_within(PATIENCE * 2).code, 0);
}

/// Prints its rank and the size of its world.
const HELLO: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(int n, char **a) { int r, s; MPI_Init(&n, &a); MPI_Comm_rank(MPI_COMM_WORLD, &r); \
    MPI_Comm_size(MPI_COMM_WORLD, &s); printf(\"%d of %d\\n\", r, s); MPI_Finalize(); return 0; }\n";

/// Two ranks of one world.
const TWO: [&str; 2] = ["0 of 2", "1 of 2"];

#[test]
fn mpirun_of_both_families_works_inside_a_job_without_a_flag() {
    let instance = Instance::alone().up();
    let open = of_text(&instance, "hello", HELLO);
    let mpich = compile("mpicc.mpich", &instance.work.join("hello.c"), "hello-mpich");
    let mpich = mpich.display();
    let root = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; ";
    // In a job of one task, and in a task of a job that is served by PMIx itself.
    for job in ["tutti run -n 1", "TUTTI_PMIX=1 tutti run -n 2"] {
        for starter in [format!("mpirun.openmpi -n 2 {open}"), format!("mpirun.mpich -n 2 {mpich}")]
        {
            let line = format!("{root}{job} sh -c '[ $TUTTI_RANK = 1 ] || {starter}'");
            let run = Running::start(instance.shell_command(&line));
            assert_eq!(run.wait_within(PATIENCE * 3).expect(0).sorted(), TWO, "{line}");
        }
    }
}

#[test]
fn steps_of_a_script_that_runs_once_are_served_each_by_itself() {
    let instance = Instance::alone().up();
    let hello = of_text(&instance, "hello", HELLO);
    let program = instance.program.display();
    let text = format!(
        "#!/bin/sh\nln -sf {program} srun\n{program} run -n 2 {hello}\n./srun -n 2 {hello}\n\
         for i in 1 2; do {program} run -n 2 sh -c 'echo space $PMIX_NAMESPACE'; done\n"
    );
    instance.script("job.sh", &text);
    // What the user asks for holds for the steps of the script.
    let mut batch = instance.command(&["batch", "-n", "2", "-o", "out", "job.sh"]);
    batch.current_dir(&instance.work).env("TUTTI_PMIX", "1");
    Running::start(batch).wait().expect(0);
    instance.tutti(&["wait", "1"]).expect(0);
    let said = std::fs::read_to_string(instance.work.join("out")).unwrap();
    for line in TWO {
        assert_eq!(said.lines().filter(|it| *it == line).count(), 2, "{said}");
    }
    let mut spaces: Vec<&str> = said.lines().filter_map(|it| it.strip_prefix("space ")).collect();
    assert!(spaces.len() == 4 && spaces.iter().all(|it| !it.is_empty()), "{said}");
    spaces.sort_unstable();
    spaces.dedup();
    assert_eq!(spaces.len(), 2, "two steps have one name space: {said}");
}

#[test]
fn a_step_does_not_find_the_directory_of_its_jobs_pmix_server() {
    let instance = Instance::alone().up();
    let inner = "[ $TUTTI_RANK = 1 ] || tutti run sh -c \"echo at \\$TMPDIR\"";
    let mut line = instance.shell_command(&format!("tutti run -n 2 sh -c '{inner}'"));
    line.env("TMPDIR", &instance.work).env("TUTTI_PMIX", "1");
    let done = Running::start(line).wait_within(PATIENCE * 2).expect(0);
    assert_eq!(done.text().trim(), format!("at {}", instance.work.display()));
}

#[test]
fn a_script_of_each_task_is_served_if_asked_for() {
    let instance = Instance::alone().up();
    let hello = of_text(&instance, "hello", HELLO);
    instance.script("each.sh", &format!("#!/bin/sh\nexec {hello}\n"));
    let mut submit = instance.command(&["submit", "-n", "2", "-o", "out", "each.sh"]);
    submit.current_dir(&instance.work).env("TUTTI_PMIX", "1");
    Running::start(submit).wait().expect(0);
    instance.tutti(&["wait", "1"]).expect(0);
    let said = std::fs::read_to_string(instance.work.join("out")).unwrap();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, TWO);
}

/// Spawns two more processes; an error is returned, or ends the job.
const SPAWNS: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(int n, char **a) { MPI_Comm other; int e[2], rc; MPI_Init(&n, &a); \
    if (n > 1) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); \
    rc = MPI_Comm_spawn(a[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, e); \
    puts(rc ? \"refused\" : \"spawned\"); MPI_Finalize(); return 0; }\n";

#[test]
fn a_spawn_is_refused_at_once_by_both_families() {
    let instance = Instance::alone().up();
    // Of Open MPI 4 only the root returns from a spawn that fails: the others wait for it.
    let open = of_text(&instance, "spawns", SPAWNS);
    let done = instance.start(&["run", "-n", "2", "--grace", "300ms", &open]);
    let done = done.wait_within(PATIENCE);
    assert!(done.code != 0 && !done.text().contains("spawned"), "{}", done.err);
    assert!(done.err.contains("MPI_Comm_spawn") || done.err.contains("MPI_ERR"), "{}", done.err);
    let mpich = compile("mpicc.mpich", &instance.work.join("spawns.c"), "spawns-mpich");
    let job = ["run", "-n", "2", &mpich.display().to_string(), "return"];
    let done = instance.start(&job).wait_within(PATIENCE);
    assert_eq!(done.expect(0).sorted(), ["refused", "refused"]);
}

#[test]
fn slurms_variables_leave_ranks_in_one_world() {
    let instance = Instance::alone().up();
    let hello = of_text(&instance, "hello", HELLO);
    let run = instance.start(&["run", "--slurm", "-n", "2", &hello]);
    assert_eq!(run.wait_within(PATIENCE * 3).expect(0).sorted(), TWO);
}

#[test]
fn mpirun_of_both_families_reaches_all_nodes_of_a_job_by_steps() {
    let bed = Bed::up(2, &[]);
    let open = of_text(&bed.audit, "hello", HELLO);
    let mpich = compile("mpicc.mpich", &bed.audit.work.join("hello.c"), "hello-mpich");
    let text = format!(
        "#!/bin/sh\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
         mpirun.openmpi -n 2 hostname\nmpirun.openmpi -n 2 {open}\n\
         mpirun.mpich -n 2 hostname\nmpirun.mpich -n 2 {}\necho over\n",
        mpich.display()
    );
    bed.audit.script("job.sh", &text);
    for (number, options) in [("1", &[][..]), ("2", &["--slurm"])] {
        let job = [&["batch", "-N", "2", "-n", "2", "-o", "out-%j"], options, &["job.sh"]].concat();
        bed.tutti(1, &job).expect(0);
        bed.start(1, &["wait", number]).wait_within(PATIENCE * 4).expect(0);
        let said = std::fs::read_to_string(bed.audit.work.join(format!("out-{number}"))).unwrap();
        for line in ["n1", "n2", "0 of 2", "1 of 2"] {
            assert_eq!(said.lines().filter(|it| *it == line).count(), 2, "{line}: {said}");
        }
    }
    let jobs = bed.tutti(1, &["ps", "--json"]).expect(0).json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(0), "what mpirun starts is no job: {jobs}");
}
