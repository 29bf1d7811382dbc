//! PVM: programs of its library, under the daemon and the examples of Debian.
//!
//! Only Debian 12 has PVM. Without it these tests do nothing.

use crate::harness::{
    Instance, PATIENCE, Running, command_line, compile_with, eventually, group_of, needs_root,
    processes, within,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Examples of Debian's package, and what each prints.
pub(crate) const EXAMPLES: [(&[&str], &str); 5] = [
    (&["hello.pvm"], ": hello, world from "),
    (&["master1"], "I got 300.000000 from 2; (expecting 300.000000)"),
    (&["spmd"], "token ring done"),
    (&["gexamp", "3"], "gexamp 0: sync"),
    (&["ge", "3"], "done"),
];

/// A master and a worker, where PVM is installed.
pub(crate) fn programs() -> Option<&'static (String, String)> {
    static BUILT: OnceLock<Option<(String, String)>> = OnceLock::new();
    let is_there = || Path::new("/usr/include/pvm3.h").exists();
    BUILT.get_or_init(|| is_there().then(|| (built("master"), built("worker")))).as_ref()
}

/// One of the programs here.
pub(crate) fn built(name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pvm");
    let source = source.join(format!("{name}.c"));
    let options = ["-Wl,--no-as-needed", "-lpvm3"];
    compile_with(&options, "cc", &source, &format!("pvm-{name}")).display().to_string()
}

/// The daemons of virtual machines that a process has started, which are known by its directory.
fn daemons(instance: &Instance) -> Vec<i32> {
    let directory = format!("TUTTI_DIR={}", instance.dir.display());
    let is_ours = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == directory.as_bytes())
    };
    let is_daemon = |pid: i32| command_line(pid).first().is_some_and(|it| it.ends_with("/pvmd"));
    processes().into_iter().filter(|&pid| is_daemon(pid) && is_ours(pid)).collect()
}

/// Waits until nothing of a virtual machine is left.
fn expect_nothing_left(instance: &Instance, directory: Option<&Path>) {
    eventually("no daemon is left", || daemons(instance).is_empty().then_some(()));
    eventually("no job is left", || {
        (instance.tutti(&["ps", "--json"]).expect(0).text().trim() == "[]").then_some(())
    });
    if let Some(directory) = directory {
        eventually("no directory is left", || (!directory.exists()).then_some(()));
    }
}

/// The directory of a virtual machine, from what a task printed of its environment.
fn directory_in(text: &str) -> PathBuf {
    let line = text.lines().find_map(|line| line.strip_prefix("PVM_TMP=")).unwrap();
    PathBuf::from(line)
}

#[test]
fn spawned_tasks_are_a_step_of_the_job_and_their_ends_are_told() {
    let Some((master, worker)) = programs() else { return };
    let instance = Instance::new().up();
    let says = "echo in $TUTTI_JOB.$TUTTI_STEP, rank $TUTTI_RANK of $TUTTI_SIZE";
    let run = ["pvm", "-n", "4", master, worker, "3", says];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    let lines = done.sorted();
    let expected = [
        "hosts 1 sum 5 ends 3",
        "in 1.2, rank 0 of 3",
        "in 1.2, rank 1 of 3",
        "in 1.2, rank 2 of 3",
    ];
    assert_eq!(lines, expected, "{}", done.err);
    // The program has a slot, so there is no room for four.
    let run = ["pvm", "-n", "4", master, worker, "4"];
    let done = instance.start(&run).wait_within(PATIENCE).expect(4);
    assert_eq!(done.text(), "spawned 3 of 4: -27\n");
    // A task that fails or dies ends alone.
    for end in ["exit 3", "kill -9 $PPID"] {
        let run = ["pvm", "-n", "3", master, worker, "2", end];
        let done = instance.start(&run).wait_within(PATIENCE).expect(0);
        assert_eq!(done.text(), "hosts 1 sum 1 ends 2\n", "{end}");
    }
    let run = ["pvm", "-n", "2", master, "no-such-worker", "1"];
    let done = instance.start(&run).wait_within(PATIENCE).expect(4);
    assert_eq!(done.text(), "spawned 0 of 1: -7\n");
    expect_nothing_left(&instance, None);
}

#[test]
fn daemons_run_beside_jobs_that_take_turns_and_tasks_within() {
    let Some((master, worker)) = programs() else { return };
    let instance = Instance::new().up();
    let spins = "cat /proc/self/cgroup; i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done";
    // Each has both processors, so they take turns.
    let run = ["pvm", "-n", "2", "-c", "1", master, worker, "1", spins];
    let both = [instance.start(&run), instance.start(&run)];
    eventually("both have a daemon", || (daemons(&instance).len() == 2).then_some(()));
    let of_daemons: Vec<String> = daemons(&instance).into_iter().map(group_of).collect();
    both.iter().for_each(|run| run.wait_for("0::"));
    for run in both {
        let done = run.wait_within(PATIENCE).expect(0);
        let line = done.text().lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
        let group = line.unwrap();
        assert!(of_daemons.iter().all(|it| !it.starts_with(&group) && *it != group), "{group}");
        assert!(group.contains("job"), "{group}");
        assert!(done.text().contains("hosts 1 sum 0 ends 1"), "{}", done.text());
    }
    let switches = instance.switches();
    let is_turn = |from: u64, to: u64| {
        switches.iter().any(|switch| switch.left.contains(&from) && switch.came.contains(&to))
    };
    assert!(is_turn(1, 2) && is_turn(2, 1), "both took turns");
    expect_nothing_left(&instance, None);
}

#[test]
fn what_ends_early_takes_the_virtual_machine_with_it() {
    let Some((master, worker)) = programs() else { return };
    let instance = Instance::new().up();
    // The program fails while its tasks run.
    let mut command = instance.command(&["pvm", "-n", "3", master, worker, "2", "sleep $NAP"]);
    command.env("MASTER_EXIT", "9");
    Running::start(command).wait_within(PATIENCE).expect(9);
    expect_nothing_left(&instance, None);
    instance.expect_no_nappers();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let shell = "env | grep ^PVM_TMP=; exec sleep $NAP";
        let running = instance.start(&["pvm", "-n", "2", "sh", "-c", shell]);
        running.wait_for("PVM_TMP=");
        let directory = directory_in(&running.out());
        assert!(directory.exists());
        running.signal(signal);
        within(PATIENCE, "its program ends", || instance.nappers().is_empty().then_some(()));
        expect_nothing_left(&instance, Some(&directory));
    }
    // The daemon fails: the program's library gives errors, and what it has spawned ends.
    let running = instance.start(&["pvm", "-n", "2", master, worker, "1", "sleep $NAP"]);
    within(PATIENCE, "the worker sleeps", || (!instance.nappers().is_empty()).then_some(()));
    kill(Pid::from_raw(daemons(&instance)[0]), Signal::SIGKILL).unwrap();
    running.wait_within(PATIENCE).expect(0).says("the virtual machine has ended");
    expect_nothing_left(&instance, None);
    instance.expect_no_nappers();
}

#[test]
fn examples_of_pvm_run_as_they_are_and_groups_have_their_server() {
    if programs().is_none() || !Path::new("/usr/bin/gexamp").exists() {
        return;
    }
    let instance = Instance::new().up();
    for (words, said) in EXAMPLES {
        let run = [&["pvm", "-n", "4"], words].concat();
        let done = instance.start(&run).wait_within(PATIENCE);
        let all = done.text() + &done.err;
        assert!(all.contains(said), "{words:?}: {all}");
    }
    // The server of groups has no slot, and its end is no news.
    let run = ["pvm", "-n", "3", "gexamp", "3"];
    let done = instance.start(&run).wait_within(PATIENCE).expect(0);
    assert!(!done.err.contains("ended"), "{}", done.err);
    expect_nothing_left(&instance, None);
}

#[test]
fn without_pvm_the_verb_and_doctor_say_what_to_install() {
    needs_root("it hides programs from a process");
    let instance = Instance::new().up();
    let hide = |words: &str| {
        let program = instance.program.display();
        let line = format!(
            "unshare -m sh -c 'mkdir -p /usr/lib/pvm3/lib; mount -t tmpfs none /usr/lib/pvm3/lib && \
             PATH=/none exec {program} {words}'"
        );
        instance.shell(&line)
    };
    hide("pvm -n 2 true").expect(125).says("PVM is not installed").says("apt-get install pvm");
    if programs().is_some() {
        let shown = instance.tutti(&["doctor", "-v"]).text();
        assert!(shown.contains("PVM programs start under `tutti pvm`"), "{shown}");
    }
    let shown = hide("doctor -v").text();
    assert!(shown.contains("PVM is not installed"), "{shown}");
}

#[test]
fn a_spawn_with_arguments_that_no_task_can_have_gets_an_error() {
    if programs().is_none() {
        return;
    }
    let long = built("long");
    let instance = Instance::new().up();
    let spawn = |bytes: &str, count: &str| {
        let run = ["pvm", "-n", "2", &long, bytes, count];
        instance.start(&run).wait_within(PATIENCE).expect(0)
    };
    assert_eq!(spawn("100000", "1").text(), "spawned 1 got 100000\n");
    assert_eq!(spawn("1000", "200").text(), "spawned 1 got 200000\n");
    // One that is too long, too many together, and a message that is longer than any may be.
    for (bytes, count, code, says) in [
        ("140000", "1", -2, "an argument or variable has 140000 bytes"),
        ("1000", "300", -2, "the arguments take "),
        ("100000", "60", -12, ""),
    ] {
        let done = spawn(bytes, count);
        assert_eq!(done.text(), format!("spawned {code} got 0\n"), "{bytes} {count}");
        assert!(done.err.contains(says), "{}", done.err);
    }
}

#[test]
fn output_of_spawned_tasks_is_collected_by_the_task_that_asks_for_it() {
    if programs().is_none() {
        return;
    }
    let collect = built("collect");
    let instance = Instance::new().up();
    let done = instance.start(&["pvm", "-n", "3", &collect]).wait_within(PATIENCE).expect(0);
    let text = done.text();
    for line in ["hello", "world again", "not well", "EOF"] {
        let count = text.lines().filter(|it| it.ends_with(&format!("] {line}"))).count();
        assert_eq!(count, 2, "{line}: {text}");
    }
    assert_eq!(text.lines().last(), Some("all"), "{text}");
}
