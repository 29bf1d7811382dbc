//! Devices that jobs have in turns: only the job that runs can open them.

use crate::devices::{ZERO, listed, node_of, stand_in};
use crate::harness::{Instance, Running, eventually, group_of};
use crate::recovery::kill_daemon;
use crate::vacate::with_library;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tutti_linux::cgroup::{Cgroup, mount_points};
use tutti_linux::device_control::Gate;

/// Opens a device again and again. Writes a line for each attempt: when it began and ended, by the
/// monotonic clock in nanoseconds, and whether the device opened.
const TRIES: &str = "\
import os, sys, time
now = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)
print('at', os.getpid(), flush=True)
with open('tries-' + sys.argv[2], 'w', buffering=1) as log:
    while True:
        began = now()
        try:
            os.close(os.open(sys.argv[1], os.O_RDONLY))
            opened = 1
        except PermissionError:
            opened = 0
        log.write(f'{began} {now()} {opened}\\n')
        time.sleep(0.001)
";

/// An instance of the system with one GPU, and its file.
fn with_one(settings: &[&str]) -> (Instance, String) {
    with_one_in(Instance::of_the_system().up(), settings)
}

pub(crate) fn with_one_in(instance: Instance, settings: &[&str]) -> (Instance, String) {
    instance.tutti(&[&["params"], settings].concat()).expect(0);
    let file = stand_in(&instance, "zero", ZERO).display().to_string();
    let setting = format!("gpu:0={file}");
    instance.tutti(&["nodes", "device", &node_of(&instance), &setting]).expect(0);
    (instance, file)
}

/// Two jobs that try to open the GPU, and the process of each.
pub(crate) fn two_that_try(instance: &Instance, file: &str) -> [(Running, i32); 2] {
    let program = instance.work.join("tries.py");
    fs::write(&program, TRIES).unwrap();
    ["1", "2"].map(|name| {
        let program = program.to_str().unwrap();
        let job = instance.start(&["run", "--gpus", "1", "python3", program, file, name]);
        job.wait_for("at ");
        let pid = job.out().split_whitespace().nth(1).unwrap().parse().unwrap();
        (job, pid)
    })
}

/// The attempts of a job: when each began and ended, and whether the device opened.
pub(crate) fn attempts(instance: &Instance, name: &str) -> Vec<(u64, u64, bool)> {
    let text = fs::read_to_string(instance.work.join(format!("tries-{name}"))).unwrap();
    // The last line may not be whole.
    let lines = text.lines().take(text.matches('\n').count());
    let numbers = lines.map(|line| line.split(' ').map(|it| it.parse::<u64>().unwrap()));
    numbers
        .map(|mut it| (it.next().unwrap(), it.next().unwrap(), it.next().unwrap() == 1))
        .collect()
}

/// How often the device was another job's than before, as its attempts have it.
pub(crate) fn handovers(instance: &Instance) -> usize {
    let opened = |name: &str| -> Vec<(u64, u64, u64)> {
        let number: u64 = name.parse().unwrap();
        let all = attempts(instance, name).into_iter().filter(|it| it.2);
        all.map(|(began, ended, _)| (began, ended, number)).collect()
    };
    let mut all = [opened("1"), opened("2")].concat();
    all.sort_unstable();
    all.windows(2).filter(|pair| pair[0].2 != pair[1].2).count()
}

/// The gate of the job that a process is of.
fn gate_of(pid: i32) -> Gate {
    let group = group_of(pid);
    let tops = mount_points();
    let groups = tops.iter().map(|top| top.join(group.trim_start_matches('/')));
    let above =
        groups.flat_map(|it| it.ancestors().map(Path::to_path_buf).collect::<Vec<PathBuf>>());
    let gate = |path: PathBuf| Cgroup::open(&path).ok()?.device_gate().ok()?;
    above.into_iter().find_map(gate).expect("the job has a gate")
}

/// Whether both gates are open at once. A switch between two looks does not count, unless they
/// take so long that there may have been several.
fn both_are_open(gates: &[Gate; 2]) -> bool {
    let began = Instant::now();
    let seen = [&gates[0], &gates[1], &gates[0]].map(Gate::is_open);
    seen == [true; 3] && began.elapsed() < Duration::from_millis(50)
}

pub(crate) fn end(jobs: [(Running, i32); 2]) {
    for (job, _) in jobs {
        job.signal(Signal::SIGTERM);
        job.wait();
    }
}

/// Programs that never register are said to keep what they have open, once, and only where others
/// may have it in turns.
#[test]
fn a_job_that_never_registers_is_named_once() {
    let (instance, _) = with_one(&[]);
    let submit = |words: &[&str]| instance.submit(&[words, &["sleep", "600"]].concat());
    let [first, second] = [0; 2].map(|_| submit(&["--gpus", "1", "--vacate", "1s"]));
    let beside = submit(&["-n", "2", "--vacate", "1s"]);
    let shown = |job: u64| instance.tutti(&["show", &job.to_string()]).expect(0).text();
    for job in [first, second] {
        eventually("a name", || shown(job).contains("T076").then_some(()));
        assert!(shown(job).contains("has registered to give up its devices"), "{}", shown(job));
    }
    assert_eq!(instance.log().matches("T076").count(), 2, "{}", instance.log());
    assert!(!shown(beside).contains("T076"), "{}", shown(beside));
}

#[test]
fn programs_of_mpi_open_a_device_in_their_own_turns() {
    let (instance, file) = with_one(&["quantum=300ms"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/opener.c");
    let opener = with_library("mpicc.mpich", &source, "opener");
    let args = ["run", "-n", "2", "--gpus", "1", "--vacate", "100ms", &opener, &file, "6"];
    let jobs = [instance.start(&args), instance.start(&args)];
    eventually("both have it", || (listed(&instance)[0]["jobs"] == json!([1, 2])).then_some(()));
    let shown = instance.tutti(&["show", "1"]).expect(0).text();
    assert!(shown.contains("devices in turns with job 2"), "{shown}");
    let shown = instance.tutti(&["show", "2", "--json"]).expect(0).json();
    assert_eq!(shown[0]["shares_devices_with"], json!([1]));
    for job in jobs {
        let said = job.wait().expect(0).text();
        assert!(said.contains("gave the device up"), "{said}");
    }
    let nodes = instance.tutti(&["switches", "--json"]).expect(0).json();
    let records = nodes[0][1].as_array().unwrap();
    let both = records.iter().filter(|it| it["left"] != json!([]) && it["came"] != json!([]));
    let costs: Vec<u64> = both.map(|it| it["devices_ns"].as_u64().unwrap()).collect();
    assert!(costs.len() >= 3 && costs.iter().all(|&ns| ns > 0), "{costs:?}");
}

#[test]
fn a_job_that_runs_on_out_of_its_turn_cannot_open_the_device() {
    let (instance, file) = with_one(&["quantum=100ms", "share_devices=all"]);
    instance.tutti(&["params", "--class", "interactive", "control=signal"]).expect(0);
    let jobs = two_that_try(&instance, &file);
    let gates = [gate_of(jobs[0].1), gate_of(jobs[1].1)];
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        for (_, pid) in &jobs {
            // Another process continues what the agent has stopped.
            kill(Pid::from_raw(*pid), Signal::SIGCONT).unwrap();
        }
        assert!(!both_are_open(&gates), "both are open");
        std::thread::sleep(Duration::from_millis(1));
    }
    let most = usize::try_from(began.elapsed().as_millis() / 100).unwrap() + 2;
    for name in ["1", "2"] {
        let (open, closed): (Vec<_>, Vec<_>) =
            attempts(&instance, name).into_iter().partition(|it| it.2);
        assert!(open.len() > 100 && closed.len() > 100, "{} {}", open.len(), closed.len());
    }
    let found = handovers(&instance);
    assert!((10..=most).contains(&found), "{found} of at most {most}");
    end(jobs);
}

#[test]
fn a_device_is_open_to_one_job_at_most_while_agents_are_killed() {
    let (instance, file) = with_one(&["quantum=100ms", "share_devices=all"]);
    let jobs = two_that_try(&instance, &file);
    let gates = [gate_of(jobs[0].1), gate_of(jobs[1].1)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(!both_are_open(&gates), "both are open");
            }
        });
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(370));
            kill_daemon(&instance, "agent");
            for gate in &gates {
                eventually("its next turn", || gate.is_open().then_some(()));
                eventually("the end of it", || (!gate.is_open()).then_some(()));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    for name in ["1", "2"] {
        assert!(attempts(&instance, name).iter().all(|it| it.2), "it never runs out of its turn");
    }
    end(jobs);
}
