//! Notice before the end of a turn (`--vacate`): the library for C, the module for Python, and what
//! no program should say.

use crate::harness::{Instance, NOBODY, Running, compile_with, eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slots are so long that half of one is enough on a busy machine.
const QUANTUM: &str = "quantum=400ms";
const LEAD: &str = "150ms";

fn root_of_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds an example of the library for C.
fn example(compiler: &str, name: &str, of_test: &str) -> String {
    let source = root_of_sources().join("c/examples").join(format!("{name}.c"));
    with_library(compiler, &source, &format!("{name}-{of_test}"))
}

/// Builds a program of C with the library.
pub(crate) fn with_library(compiler: &str, source: &Path, name: &str) -> String {
    let c = root_of_sources().join("c");
    let (include, library) = (c.display().to_string(), c.join("tutti-vacate.c"));
    let options = ["-pthread", "-I", &include, library.to_str().unwrap()];
    compile_with(&options, compiler, source, name).display().to_string()
}

/// A program of Python that speaks the protocol itself. Each line that arrives is written into the
/// file `heard`, as are those of `log`.
const CLIENT: &str = "\
import os, socket, sys, time
def log(*words):
    with open('heard', 'a') as file: print(*words, file=file)
def connect():
    it = socket.socket(socket.AF_UNIX); it.connect(os.environ['TUTTI_VACATE']); return it
def lines(it):
    rest = b''
    while True:
        got = it.recv(4096)
        if not got: return
        rest += got
        while b'\\n' in rest:
            line, rest = rest.split(b'\\n', 1)
            yield line.decode().split()
";

fn client(instance: &Instance, name: &str, body: &str) -> String {
    let path = instance.work.join(name);
    fs::write(&path, format!("{CLIENT}{body}")).unwrap();
    path.display().to_string()
}

fn heard(instance: &Instance) -> String {
    fs::read_to_string(instance.work.join("heard")).unwrap_or_default()
}

fn heard_times(instance: &Instance, word: &str) -> usize {
    heard(instance).lines().filter(|line| line.starts_with(word)).count()
}

/// A value of `tutti metrics`, summed up over its series.
fn metric(instance: &Instance, name: &str) -> u64 {
    let text = instance.tutti(&["metrics"]).expect(0).text();
    let values = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn missed(instance: &Instance) -> u64 {
    metric(instance, "tutti_vacate_missed_total")
}

fn up() -> Instance {
    let instance = Instance::new().up();
    instance.tutti(&["params", QUANTUM]).expect(0);
    instance
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Runs two jobs of these commands at once, each on both processors, which must both end well and
/// have given their device up.
fn take_turns(instance: &Instance, options: &[&str], command: &[&str]) {
    let args = [&["run"], options, command].concat();
    let both = [instance.start(&args), instance.start(&args)];
    for done in both.map(Running::wait) {
        let said = done.expect(0).text();
        let times = said.split("gave the device up ").nth(1).and_then(|it| it.split(' ').next());
        let times: u32 = times.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
        assert!(times >= 3, "{said}");
    }
    assert_eq!(missed(instance), 0);
}

#[test]
fn programs_of_c_hold_a_device_in_their_turns_only() {
    let instance = up();
    let device = example("cc", "device", "turns");
    take_turns(&instance, &["--vacate", LEAD, "-c", "2"], &[&device, "lock", "6"]);
    assert!(metric(&instance, "tutti_vacate_notices_total") >= 6);
    assert!(metric(&instance, "tutti_vacate_seconds_count") >= 6);
}

#[test]
fn programs_of_mpi_hold_a_device_in_their_turns_only() {
    let instance = up();
    let lockstep = example("mpicc.mpich", "lockstep", "turns");
    take_turns(&instance, &["--vacate", LEAD, "-n", "2"], &[&lockstep, "lock", "6"]);
}

#[test]
fn programs_of_python_hold_a_device_in_their_turns_only() {
    let instance = up();
    let python = root_of_sources().join("python");
    let line = format!(
        "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={0} python3 {0}/examples/vacate.py lock 6",
        python.display()
    );
    take_turns(&instance, &["--vacate", LEAD, "-c", "2"], &["sh", "-c", &line]);
}

/// A job that answers as `body` says, and one to take turns with.
fn beside(instance: &Instance, body: &str) -> (u64, u64) {
    let program = client(instance, "client.py", body);
    let job = instance.submit(&["-c", "2", "--vacate", LEAD, "-o", "out", "python3", &program]);
    eventually("a registration", || (heard_times(instance, "registered") > 0).then_some(()));
    (job, instance.submit_spinner(2))
}

const ANSWERS: &str = "\
it = connect(); it.send(b'register 1\\n')
for words in lines(it):
    log(*words)
    if words[0] == 'vacate': it.send(b'ready %d\\n' % int(words[1]))
";

#[test]
fn a_job_that_never_answers_is_suspended_on_time_and_named_once() {
    let instance = up();
    let silent = "it = connect(); it.send(b'register 1\\n')\nfor words in lines(it): log(*words)\n";
    let (job, _) = beside(&instance, silent);
    eventually("notices", || (missed(&instance) >= 4).then_some(()));
    let named = |text: &str| text.lines().filter(|line| line.contains("T076")).count();
    let shown = instance.tutti(&["show", &job.to_string()]).expect(0).text();
    assert_eq!((named(&shown), named(&instance.log())), (1, 1), "{shown}");
    assert!(shown.contains("was not ready when its turn ended"), "{shown}");
    assert!(heard_times(&instance, "resume") > 0, "{}", heard(&instance));
    // Its switches were made when they were due, by the record.
    for switch in instance.switches().iter().filter(|it| it.left.contains(&job)) {
        assert!(switch.began - switch.due < 150_000_000, "{switch:?}");
    }
}

#[test]
fn an_answer_that_is_late_or_of_another_notice_counts_for_nothing() {
    let instance = up();
    let late = "\
it = connect(); it.send(b'register 1\\n')
for words in lines(it):
    log(*words)
    if words[0] == 'vacate': it.send(b'ready 0\\nready %d\\n' % (int(words[1]) + 1))
    if words[0] == 'resume': it.send(b'ready %d\\n' % int(words[1]))
";
    beside(&instance, late);
    eventually("notices", || (missed(&instance) >= 3).then_some(()));
    assert_eq!(metric(&instance, "tutti_vacate_seconds_count"), 0);
    assert!(!heard(&instance).contains("error"), "{}", heard(&instance));
}

#[test]
fn a_process_that_ends_keeps_no_notice_open() {
    let instance = up();
    let child = "\
if os.fork() == 0:
    it = connect(); it.send(b'register 1\\n'); next(lines(it)); os._exit(0)
os.wait()
";
    let body = [child, ANSWERS].concat();
    beside(&instance, &body);
    let answered = || metric(&instance, "tutti_vacate_seconds_count") >= 3;
    eventually("answers", || answered().then_some(()));
    assert_eq!(missed(&instance), 0);
}

#[test]
fn programs_register_anew_after_the_end_of_an_agent() {
    let instance = up();
    let device = example("cc", "device", "agents");
    let args = ["run", "-c", "2", "--vacate", LEAD, &device, "lock", "12"];
    let both = [instance.start(&args), instance.start(&args)];
    let notices = || metric(&instance, "tutti_vacate_notices_total");
    eventually("notices", || (notices() >= 4).then_some(()));
    let agent = instance.daemon("agent");
    send(agent, Signal::SIGKILL);
    eventually("another agent", || instance.daemon_now("agent").filter(|it| *it != agent));
    // These are counted from the beginning.
    eventually("notices of the other agent", || (notices() >= 4).then_some(()));
    // A job may have been suspended by the timetable while no agent could give notice.
    both.into_iter().for_each(|it| drop(it.wait()));
}

#[test]
fn jobs_of_a_killed_keeper_are_gone_and_others_get_notice() {
    let instance = up();
    let (job, _) = beside(&instance, ANSWERS);
    send(instance.daemon("keeper"), Signal::SIGKILL);
    instance.tutti(&["wait", &job.to_string()]);
    fs::remove_file(instance.work.join("heard")).unwrap();
    beside(&instance, ANSWERS);
    eventually("a notice", || (heard_times(&instance, "vacate") >= 2).then_some(()));
}

#[test]
fn a_process_in_no_such_job_is_refused() {
    let instance = up();
    let body = "\
it = connect()
try: it.send(b'register 1\\n')
except OSError: pass
log(os.getuid(), *next(lines(it)))
";
    let program = client(&instance, "stranger.py", body);
    // The socket is there from the first such job on.
    instance.submit(&["--vacate", LEAD, "-o", "/dev/null", "sleep", "86400"]);
    let socket = instance.dir.join("vacate.sock");
    eventually("the socket", || socket.exists().then_some(()));
    let environment = format!("TUTTI_VACATE={}", socket.display());
    instance.tutti(&["run", "env", &environment, "python3", &program]).expect(0);
    instance.shell(&format!("{environment} python3 {program}")).expect(0);
    assert_eq!(
        heard_times(&instance, "0 error this process is in no job"),
        2,
        "{}",
        heard(&instance)
    );
    // Its own job is what the kernel says, whatever it claims.
    let claims = "it = connect(); it.send(b'register 1\\n')\n\
                  log(*next(lines(it)), os.environ['TUTTI_JOB'])\n";
    let claims = client(&instance, "claims.py", claims);
    instance.tutti(&["run", "--vacate", "1s", "env", "TUTTI_JOB=1", "python3", &claims]).expect(0);
    let said = heard(&instance);
    let words: Vec<&str> = said.lines().last().unwrap().split(' ').collect();
    assert_eq!((words[0], words[2], words[3]), ("registered", "1000000000", "1"), "{said}");
    assert_ne!(words[1], "1", "{said}");
}

#[test]
fn a_process_of_another_user_cannot_register_for_a_job() {
    let instance = Instance::of_the_system().up();
    fs::write(instance.work.join("heard"), "").unwrap();
    fs::set_permissions(instance.work.join("heard"), fs::Permissions::from_mode(0o666)).unwrap();
    let program = client(
        &instance,
        "stranger.py",
        "\
it = connect()
try: it.send(b'register 1\\n')
except OSError: pass
log(os.getuid(), *next(lines(it)))
",
    );
    let of_root = ["run", "--vacate", LEAD, "sh", "-c", "sleep 86400"];
    let _root = instance.start(&of_root);
    let socket = instance.dir.join("vacate.sock");
    eventually("the socket", || socket.exists().then_some(()));
    let user = |args: &[&str]| Running::start(instance.command_as(Some(NOBODY), args)).wait();
    let environment = format!("TUTTI_VACATE={}", socket.display());
    user(&["run", "env", &environment, "python3", &program]).expect(0);
    user(&["run", "--vacate", LEAD, "python3", &program]).expect(0);
    let said = heard(&instance);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("65534 error this process is in no job"), "{said}");
    assert!(lines[1].starts_with("65534 registered 3 "), "{said}");
}

#[test]
fn what_a_process_says_costs_it_alone() {
    let instance = up();
    let (asked, spinner) = beside(&instance, ANSWERS);
    let body = "\
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
refused = 0
for text in [b'hello\\n', b'x' * 1000, b'ready 1\\n', b'register 9\\n', b'\\xff\\0\\n',
             b'register 1\\n' * 50]:
    it = connect()
    try: it.sendall(text)
    except OSError: pass
    refused += any(words[0] == 'error' for words in lines(it))
many = []
for _ in range(1500):
    it = connect(); many.append(it)
    try: it.send(b'register 1\\n')
    except OSError: pass
time.sleep(2)
said = [it.recv(100).split()[0] for it in many]
log('hostile', refused, said.count(b'registered'), said.count(b'error'))
end = time.time() + 5
while time.time() < end:
    try: connect().send(b'garbage\\n')
    except OSError: pass
log('over')
time.sleep(86400)
";
    let program = client(&instance, "hostile.py", body);
    instance.tutti(&["cancel", &spinner.to_string()]).expect(0);
    instance.submit(&["-c", "2", "--vacate", LEAD, "-o", "out2", "python3", &program]);
    within(Duration::from_secs(60), "the end of the flood", || {
        heard(&instance).contains("over").then_some(())
    });
    // All that is no protocol is refused; a job has as many connections as it may.
    assert!(heard(&instance).contains("hostile 6 1024 476"), "{}", heard(&instance));
    let before = heard_times(&instance, "vacate");
    eventually("more notices", || (heard_times(&instance, "vacate") > before + 1).then_some(()));
    // The other job was ready in time all the while.
    let shown = instance.tutti(&["show", &asked.to_string()]).expect(0).text();
    assert!(!shown.contains("T076"), "{shown}");
}

#[test]
fn a_suspended_job_gets_notice_first() {
    let instance = up();
    let program = client(&instance, "client.py", ANSWERS);
    let job = instance.submit(&["--vacate", LEAD, "-o", "out", "python3", &program]).to_string();
    eventually("a registration", || (heard_times(&instance, "registered") > 0).then_some(()));
    for times in 1..=3 {
        instance.tutti(&["suspend", &job]).expect(0);
        eventually("a notice", || (heard_times(&instance, "vacate") == times).then_some(()));
        instance.tutti(&["resume", &job]).expect(0);
        eventually("the end of it", || (heard_times(&instance, "resume") == times).then_some(()));
    }
    assert_eq!(missed(&instance), 0);
}

#[test]
fn jobs_without_cgroups_get_notice_as_well() {
    let instance = Instance::of_nobody().up();
    instance.tutti(&["params", QUANTUM]).expect(0);
    beside(&instance, ANSWERS);
    eventually("notices", || (heard_times(&instance, "resume") >= 2).then_some(()));
    assert_eq!(missed(&instance), 0);
}

#[test]
fn steps_of_a_batch_job_register_for_it() {
    let instance = up();
    let program = client(&instance, "client.py", ANSWERS);
    let tutti = instance.program.display();
    let text = format!("#!/bin/sh\n{tutti} run -n 2 python3 {program}\n");
    instance.script("job.sh", &text);
    instance.tutti(&["batch", "-n", "2", "--vacate", LEAD, "-o", "out", "job.sh"]).expect(0);
    eventually("a registration", || (heard_times(&instance, "registered 1 ") > 0).then_some(()));
    instance.submit_spinner(2);
    eventually("notices", || (heard_times(&instance, "resume") >= 2).then_some(()));
}

#[test]
fn commands_run_for_a_program_that_does_not_know_of_notices() {
    let instance = up();
    let python = root_of_sources().join("python");
    // Without notices, before other jobs use the processors; and a program that is not there.
    for (words, code) in [("true", 0), ("sh -c 'kill -9 $$'", 137), ("./nosuch", 127)] {
        let line = format!("PYTHONPATH={} python3 -Bm tutti.vacate -- {words}", python.display());
        instance.shell(&line).expect(code);
    }
    let line = format!(
        "export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}; exec python3 -m tutti.vacate \
         --release 'echo vacate $PROGRAM_PID >> heard' --acquire 'echo resume >> heard' -- \
         sh -c 'echo $$ > program; sleep 4; exit 7'",
        python.display()
    );
    instance.submit_spinner(2);
    instance.tutti(&["run", "-c", "2", "--vacate", LEAD, "sh", "-c", &line]).expect(7);
    let program = fs::read_to_string(instance.work.join("program")).unwrap();
    let notice = format!("vacate {}", program.trim());
    assert!(heard_times(&instance, &notice) >= 2, "{}", heard(&instance));
    assert!(heard_times(&instance, "resume") >= 2, "{}", heard(&instance));
}

#[test]
fn a_bad_time_is_refused() {
    let instance = Instance::new();
    for bad in ["0", "soon", "2h", "-1s"] {
        let flag = format!("--vacate={bad}");
        instance.tutti(&["submit", &flag, "true"]).expect(2).says("--vacate");
    }
}
