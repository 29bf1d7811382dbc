//! `MPI_Comm_spawn`: tasks that start further tasks in free slots of their job.
//!
//! Most tests speak PMI by a shell script. MPICH 5 is tried where PyPI can be reached: MPICH 4 of
//! Debian can't spawn by itself (its UCX has no dynamic processes).

use crate::cluster::Bed;
use crate::harness::{Instance, NOBODY, PATIENCE, Running, compile, copy_program, within};
use crate::recovery::kill_daemon;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Sends what is to be spawned, prints the answer, and runs its first argument as a command.
const PARENT: &str = "#!/bin/sh
then=$1
shift
for part; do printf \"$part\\n\" >&3; done
read -r answer <&3
echo \"parent: $answer\"
eval \"$then\"
";

/// Says what it finds, and runs its second argument as a command.
const CHILD: &str = "#!/bin/sh
ask() { printf \"$1\\n\" >&3; read -r answer <&3; echo \"${answer#*rc=0 }\"; }
echo \"child $PMI_RANK of $PMI_SIZE: spawned=$PMI_SPAWNED $(ask cmd=get_appnum) \
$(ask 'cmd=get key=K') in $(pwd) with $1\"
eval \"$2\"
";

fn instance() -> Instance {
    let instance = Instance::new().up();
    instance.script("parent", PARENT);
    instance.script("child", CHILD);
    instance
}

/// A part of a spawn: the child with these arguments.
fn part(instance: &Instance, (tasks, number, parts): (u32, u32, u32), words: &[&str]) -> String {
    let child = instance.work.join("child");
    let mut text = format!("mcmd=spawn\\nnprocs={tasks}\\nexecname={}\\n", child.display());
    text.push_str(&format!("totspawns={parts}\\nspawnssofar={number}\\n"));
    for (index, word) in words.iter().enumerate() {
        text.push_str(&format!("arg{}={word}\\n", index + 1));
    }
    text.push_str(&format!(
        "argcnt={}\\npreput_num=1\\npreput_key_0=K\\npreput_val_0=v\\n",
        words.len()
    ));
    text + "info_num=2\\ninfo_key_0=wdir\\ninfo_val_0=/usr\\ninfo_key_1=other\\ninfo_val_1=x\\nendcmd"
}

/// The lines that children wrote, sorted.
fn of_children(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("child"));
    let mut lines: Vec<String> = lines.map(Into::into).collect();
    lines.sort();
    lines
}

const TUTTI: &str = env!("CARGO_BIN_EXE_tutti");

const STARTED: &str = "parent: cmd=spawn_result rc=0\n";

#[test]
fn spawned_tasks_have_ranks_and_a_key_space_of_their_own() {
    let instance = instance();
    let spawn = part(&instance, (2, 1, 1), &["a=1"]);
    let run = ["run", "-n", "1", "--max-tasks", "6", "./parent", "", &spawn];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    assert!(done.text().contains(STARTED), "{}", done.text());
    let child = |rank| format!("child {rank} of 2: spawned=1 appnum=0 value=v in /usr with a=1");
    assert_eq!(of_children(&done.text()), [child(0), child(1)]);
    assert_eq!(done.err, "");
    let shown = instance.tutti(&["show", "1"]).expect(0).text();
    assert!(shown.contains("child"), "the step is listed: {shown}");
}

#[test]
fn several_programs_are_spawned_at_once_each_with_its_arguments() {
    let instance = instance();
    let first = part(&instance, (2, 1, 2), &["one"]);
    let second = part(&instance, (1, 2, 2), &["two words"]);
    let run = ["run", "-n", "1", "--max-tasks", "4", "./parent", "", &first, &second];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    let child = |rank, number, word| {
        format!("child {rank} of 3: spawned=1 appnum={number} value=v in /usr with {word}")
    };
    let expected = [child(0, 0, "one"), child(1, 0, "one"), child(2, 1, "two words")];
    assert_eq!(of_children(&done.text()), expected);
}

#[test]
fn a_spawn_that_does_not_fit_or_find_its_program_is_refused_at_once() {
    let instance = instance();
    let three = part(&instance, (3, 1, 1), &[]);
    let one = part(&instance, (1, 1, 1), &[]);
    let missing = one.replace("/child", "/no-such-program");
    for (args, said) in [
        (&["--max-tasks", "3", "./parent", "", &three][..], "has 2 free slots"),
        (&["./parent", "", &one], "has no free slot, and a spawn asks for 1"),
        (&["--max-tasks", "4", "./parent", "", &missing], "no such program: "),
    ] {
        let run = [&["run", "-n", "1"], args].concat();
        let done = instance.start(&run).wait_within(PATIENCE).expect(0);
        assert!(done.text().contains("spawn_result rc=-1 msg="), "{}", done.text());
        assert!(done.err.contains(said), "{}", done.err);
    }
}

#[test]
fn slots_of_spawned_tasks_that_have_ended_are_free_again() {
    let instance = instance();
    let spawn = part(&instance, (1, 1, 1), &[]);
    let again =
        "for i in 1 2 3; do sleep 0.5; printf \"$1\\n\" >&3; read -r it <&3; echo \"$it\"; done";
    let run = ["run", "-n", "1", "--max-tasks", "2", "./parent", again, &spawn];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    assert_eq!(done.text().matches("spawn_result rc=0").count(), 4, "{}", done.text());
    assert_eq!(of_children(&done.text()).len(), 4);
}

#[test]
fn a_job_waits_for_spawned_tasks_that_outlive_its_own() {
    let instance = instance();
    let spawn = part(&instance, (1, 1, 1), &["x", "sleep 1; echo child is done"]);
    let run = ["run", "-n", "1", "--max-tasks", "2", "./parent", "echo bye", &spawn];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    let text = done.text();
    let (bye, last) = (text.find("bye"), text.find("child is done"));
    assert!(bye.is_some() && bye < last, "{text}");
}

#[test]
fn a_spawned_task_that_dies_takes_the_job_along_unless_it_is_to_go_on() {
    let instance = instance();
    let spawn = part(&instance, (1, 1, 1), &["x", "kill -SEGV $$"]);
    let run = ["run", "-n", "1", "--max-tasks", "2", "./parent", "sleep 100", &spawn];
    instance.start(&run).wait_within(PATIENCE).expect(139);
    let on = ["run", "--keep-going", "-n", "1", "--max-tasks", "2", "./parent", "sleep 1", &spawn];
    instance.start(&on).wait_within(PATIENCE).expect(0);
    // In a batch job it takes the step along.
    let line = format!("{TUTTI} run -n 1 ./parent 'sleep 100' '{spawn}'; echo step $?");
    instance.script("script", &format!("#!/bin/sh\n{line}\n"));
    instance.tutti(&["batch", "-n", "2", "-o", "out", "./script"]).expect(0);
    instance.start(&["wait", "3"]).wait_within(PATIENCE).expect(0);
    let text = std::fs::read_to_string(instance.work.join("out")).unwrap();
    assert!(text.contains(STARTED) && text.contains("step 139"), "{text}");
}

#[test]
fn a_cancelled_job_takes_spawned_tasks_and_their_spawners_along() {
    let instance = instance();
    let spawn = part(&instance, (2, 1, 1), &["x", "echo child rests; exec sleep 98765"]);
    let run =
        ["run", "-n", "1", "--max-tasks", "3", "--grace", "300ms", "./parent", "sleep 100", &spawn];
    let running = instance.start(&run);
    running.wait_for("child rests");
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait_within(PATIENCE);
    let keeper = instance.daemon("keeper");
    let line = format!("pgrep -f '[s]leep 98765'; pgrep -P {keeper} -f 'tutti spawner'; true");
    let left = || instance.shell(&line).text();
    within(PATIENCE, "nothing is left", || left().is_empty().then_some(()));
}

#[test]
fn spawned_tasks_take_turns_with_their_job() {
    let instance = instance();
    let spawn = part(&instance, (1, 1, 1), &["x", "echo child rests; exec sleep 98764"]);
    let run = ["run", "-n", "1", "--max-tasks", "2", "./parent", "sleep 100", &spawn];
    let running = instance.start(&run);
    running.wait_for("child rests");
    instance.tutti(&["suspend", "1"]).expect(0);
    let pid = instance.shell("pgrep -f '^sleep 98764'").text().trim().parse().unwrap();
    within(PATIENCE, "it is suspended", || crate::harness::stands(pid).then_some(()));
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait_within(PATIENCE);
}

#[test]
fn a_submitted_job_has_the_output_of_spawned_tasks_in_its_file() {
    let instance = instance();
    let spawn = part(&instance, (2, 1, 1), &["x"]);
    for tasks in ["1", "2"] {
        let file = format!("out-{tasks}");
        let job = instance.submit(&[
            "-n",
            tasks,
            "--max-tasks",
            "6",
            "-o",
            &file,
            "./parent",
            "",
            &spawn,
        ]);
        instance.start(&["wait", &job.to_string()]).wait_within(PATIENCE).expect(0);
        let text = std::fs::read_to_string(instance.work.join(file)).unwrap();
        let shown = instance.tutti(&["show", &job.to_string()]).expect(0).text();
        let expected = 2 * tasks.parse::<usize>().unwrap();
        assert_eq!(of_children(&text).len(), expected, "{text}\n{shown}");
    }
}

#[test]
fn a_task_that_floods_or_lies_costs_its_connection_alone() {
    let instance = instance();
    let one = part(&instance, (1, 1, 1), &[]);
    for (flood, said) in [
        (one.replace("argcnt=0", "argcnt=4000000000"), "parent: \n"),
        (one.replace("nprocs=1", "nprocs=99999999999"), "parent: \n"),
        (one.replace("nprocs=1", "nprocs=4000000000"), "rc=-1 msg="),
        (one.replace("nprocs=1", "nprocs=0"), "rc=-1 msg=there_is_no_such_number_of_tasks"),
    ] {
        std::fs::write(instance.work.join("flood"), flood).unwrap();
        let line = "printf \"$(cat flood)\\n\" >&3; read -r answer <&3; echo \"parent: $answer\"";
        let run = ["run", "-n", "1", "--max-tasks", "2", "sh", "-c", line];
        let done = instance.start(&run).wait_within(PATIENCE).expect(0);
        assert!(done.text().contains(said), "{said}: {}", done.text());
    }
    // More spawns than may run at a time: some are refused, and the job ends as it would.
    let rests = part(&instance, (1, 1, 1), &["x", "exec sleep 100"]);
    let many =
        "for i in $(seq 70); do printf \"$1\\n\" >&3; read -r it <&3; echo \"$it\"; done; exit 7";
    let run = ["run", "--keep-going", "-n", "1", "--max-tasks", "80", "./parent", many, &rests];
    let running = instance.start(&run);
    within(PATIENCE * 3, "some are refused", || {
        running.out().contains("at_most_64_spawns").then_some(())
    });
    instance.tutti(&["cancel", "--now", "5"]).expect(0);
    running.wait_within(PATIENCE);
}

#[test]
fn room_for_spawned_tasks_is_for_jobs_that_start_tasks() {
    let instance = Instance::new().up();
    instance.script("s.sh", "#!/bin/sh\n");
    instance.tutti(&["batch", "--max-tasks", "3", "s.sh"]).expect(1).says("is for run and submit");
    instance
        .tutti(&["run", "-n", "3", "--max-tasks", "2", "true"])
        .expect(125)
        .says("is less than");
    let inner = format!("{TUTTI} run -n 1 --max-tasks 2 true");
    instance.tutti(&["run", "sh", "-c", &inner]).expect(125).says("--max-tasks is for a job");
}

/// A program that starts tasks by `tutti spawn`, in a job with one more slot than it has tasks.
fn spawns(instance: &Instance, lines: &str) -> Running {
    instance.script("program", &format!("#!/bin/sh\nalias tutti={TUTTI}\n{lines}\n"));
    let run = ["run", "-n", "1", "--max-tasks", "3", "--grace", "300ms", "./program"];
    instance.start(&run)
}

#[test]
fn a_program_spawns_tasks_signals_them_and_hears_of_their_end() {
    let instance = Instance::new().up();
    instance.script("worker", "#!/bin/sh\ntrap 'exit 3' USR1\ntouch up.$TUTTI_RANK\necho worker $TUTTI_RANK of $TUTTI_SIZE\nwhile :; do sleep 0.05; done\n");
    let program = "
        step=$(tutti spawn -n 2 -o worker.out ./worker)
        echo step $step
        while [ ! -e up.0 ] || [ ! -e up.1 ]; do sleep 0.05; done
        tutti signal USR1 --step $step || echo no signal
        tutti wait --step $step; echo ended $?
        tutti wait --step 9 2>&1 | grep -o 'has no step 9'
        echo goes on";
    let done = spawns(&instance, program).wait_within(PATIENCE).expect(0);
    assert_eq!(done.text(), "step 1\nended 3\nhas no step 9\ngoes on\n", "{}", done.err);
    let out = std::fs::read_to_string(instance.work.join("worker.out")).unwrap();
    assert!(out.contains("worker 0 of 2") && out.contains("worker 1 of 2"), "{out}");
}

#[test]
fn what_a_program_spawns_has_its_errors_output_and_ends_on_request_or_with_it() {
    let instance = Instance::new().up();
    let program = "
        tutti spawn sh -c 'echo it begins; exec sleep 98762'
        step=$(tutti spawn sh -c 'exec sleep 98763')
        tutti cancel --now --step $step
        tutti wait --step $step 2>/dev/null; echo step $step ended $?
        tutti spawn -n 2 true; echo refused $?
        tutti spawn -n 2 -o worker.out true; echo refused $?
        tutti spawn ./no-such-program; tutti wait --step 3 2>/dev/null; echo missing $?
        echo bye";
    // Nothing waits for what is left of the first.
    let done = spawns(&instance, program).wait_within(PATIENCE).expect(0);
    let expected = "1\nstep 2 ended 137\nrefused 120\nrefused 120\n3\nmissing 127\nbye\n";
    assert_eq!(done.text(), expected, "{}", done.err);
    assert!(done.err.contains("it begins"), "{}", done.err);
    assert!(done.err.contains("job 1 step 2 ended: cancelled"), "{}", done.err);
    // Also where what the front end says goes to no file.
    let said = done.err.matches("1 free slot, and a spawn asks for 2").count();
    assert_eq!(said, 2, "{}", done.err);
    instance.tutti(&["spawn", "true"]).expect(125).says("this is no job");
}

#[test]
fn a_spawn_of_debians_mpich_is_an_error_of_its_own_and_does_not_hang() {
    let instance = Instance::new().up();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/spawn.c");
    let spawn = compile("mpicc.mpich", &source, "spawn-of-mpich-4").display().to_string();
    let run = ["run", "-n", "2", "--max-tasks", "3", &spawn, "many", "9"];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    assert!(done.text().contains("many: an MPI error"), "{}", done.text());
}

/// A directory with MPICH 5 of PyPI.
pub(crate) fn mpich_5() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| of_pypi("--mpich5", "mpich-5"))
}

/// A directory with an MPI library of PyPI.
pub(crate) fn of_pypi(option: &str, name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/install-deps");
    let done = Command::new(script).arg(option).arg(&place).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "tests/install-deps {option} failed: {said}");
    place
}

#[test]
fn parents_and_children_of_mpich_5_meet() {
    let mpich = mpich_5();
    let instance = Instance::new().up();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/spawn.c");
    let mpicc = mpich.join("bin/mpicc").display().to_string();
    let library = format!("-Wl,-rpath,{}", mpich.join("lib").display());
    let spawn = crate::harness::compile_with(&[&library], &mpicc, &source, "spawn-of-mpich-5");
    let spawn = spawn.display().to_string();
    for (tasks, args, code, said) in [
        ("2", &["two"][..], 0, "spawn: 4 together"),
        ("1", &["several"], 0, "spawn: 4 together"),
        ("2", &["again", "2"], 0, "spawn: 2 together"),
        ("1", &["outlive"], 0, "child 1 is done"),
        ("2", &["many", "9"], 0, "many: an MPI error"),
        ("2", &["missing"], 0, "missing: an MPI error"),
        ("1", &["die"], 139, "child 0 of 2"),
    ] {
        let run = [&["run", "-n", tasks, "--max-tasks", "6", "--grace", "300ms", &spawn], args];
        let done = instance.start(&run.concat()).wait_within(PATIENCE * 3).expect(code);
        assert!(done.text().contains(said), "{args:?}: {}", done.text());
    }
}

/// The files in shared memory that there are when it goes are looked for by the instance, too.
#[test]
fn an_abort_of_mpich_5_leaves_nothing_in_shared_memory() {
    let mpich = mpich_5();
    let before = crate::audit::shared_files();
    let instance = Instance::alone().up();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/abort.c");
    let mpicc = mpich.join("bin/mpicc").display().to_string();
    let library = format!("-Wl,-rpath,{}", mpich.join("lib").display());
    let abort = crate::harness::compile_with(&[&library], &mpicc, &source, "abort-of-mpich-5");
    let abort = abort.display().to_string();
    instance.start(&["run", "-n", "2", &abort]).wait_within(PATIENCE * 3).expect(7);
    let is_new = |path: &PathBuf| !before.contains(path);
    crate::harness::eventually("its files are gone", || {
        (!crate::audit::shared_files().iter().any(is_new)).then_some(())
    });
}

#[test]
fn spawned_tasks_run_on_another_node_of_the_job() {
    let bed = Bed::up(2, &[]);
    let work = &bed.audit;
    work.script("parent", PARENT);
    work.script("child", CHILD);
    let spawn = part(work, (1, 1, 1), &["x", "echo on $TUTTI_NODELIST"]);
    let run = ["run", "-n", "1", "-N", "2", "--max-tasks", "2", "./parent", "", &spawn];
    let done = bed.start(1, &run).wait_within(PATIENCE).expect(0);
    let child = "child 0 of 1: spawned=1 appnum=0 value=v in /usr with x";
    assert_eq!(of_children(&done.text()), [child]);
    assert!(done.text().contains("on n2"), "{}", done.text());
    // From the other node, back to the first, and too many.
    let two = part(work, (2, 1, 1), &["x"]);
    let line = format!("[ $TUTTI_RANK = 1 ] && exec ./parent '' '{two}'; sleep 2");
    let run = ["run", "-n", "2", "-N", "2", "--max-tasks", "3", "sh", "-c", &line];
    let done = bed.start(1, &run).wait_within(PATIENCE).expect(0);
    assert!(done.err.contains("has 1 free slot"), "{} {}", done.text(), done.err);
}

#[test]
fn spawned_tasks_are_their_users_and_outlive_daemons_and_an_upgrade() {
    let instance = Instance::of_the_system_alone().up();
    instance.script("parent", PARENT);
    instance.script("child", CHILD);
    let stop = instance.work.join("stop");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", stop.display());
    let spawn =
        part(&instance, (1, 1, 1), &["x", &format!("{wait}; echo child of $(id -u) is over")]);
    let run =
        ["run", "-n", "1", "--max-tasks", "2", "./parent", &format!("{wait}; echo over"), &spawn];
    let running = Running::start(instance.command_as(Some(NOBODY), &run));
    running.wait_for("with x");
    kill_daemon(&instance, "controller");
    kill_daemon(&instance, "agent");
    let other = instance.work.join("other");
    copy_program(&instance.program, &other);
    instance.tutti(&["upgrade", &other.display().to_string()]).expect(0);
    std::fs::write(stop, "").unwrap();
    let text = running.wait_within(PATIENCE).expect(0).text();
    assert!(text.contains(STARTED) && text.contains("\nover\n"), "{text}");
    assert!(text.contains(&format!("child of {NOBODY} is over")), "{text}");
}
