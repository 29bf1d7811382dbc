//! Processes that no signal reaches: they wait for a file system that does not answer (`stuck.c`;
//! as root, with `/dev/fuse`).

use crate::harness::{Instance, command_line, compile, eventually, player, processes, status_of};
use crate::switch::{overlap, stretches};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

/// The file system, until this is dropped; a process that waited for it goes on then.
struct Silent {
    at: PathBuf,
    server: Child,
}

impl Silent {
    fn mount(instance: &Instance) -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let program = BUILT.get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/stuck.c");
            compile("cc", &source, "stuck")
        });
        let at = instance.work.join("silent");
        fs::create_dir(&at).unwrap();
        let server = Command::new(program).arg(&at).spawn().unwrap();
        let mut silent = Self { at, server };
        eventually("the file system", || {
            let ended = silent.server.try_wait().unwrap();
            assert!(ended.is_none(), "it can't be mounted, {ended:?}: is there no /dev/fuse?");
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.contains(silent.at.to_str().unwrap()).then_some(())
        });
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = fs::remove_dir(&self.at);
    }
}

/// The process that looks for a file there.
fn waiting(silent: &Silent) -> i32 {
    let file = silent.at.join("file").display().to_string();
    eventually("a process that waits", || {
        processes().into_iter().find(|&pid| command_line(pid) == ["cat", &file])
    })
}

/// The root itself, or a child that the root leaves behind.
#[test]
fn what_no_signal_ends_keeps_its_processors_and_is_named() {
    for line in ["exec cat SILENT/file", "cat SILENT/file & sleep 0.3"] {
        let instance = Instance::new().up();
        let silent = Silent::mount(&instance);
        instance.tutti(&["params", "rows=1"]).expect(0);
        let line = line.replace("SILENT", silent.at.to_str().unwrap());
        let processors = std::thread::available_parallelism().unwrap().get().to_string();
        let hangs = instance.submit(&["-c", &processors, "-o", "/dev/null", "sh", "-c", &line]);
        let pid = waiting(&silent);
        eventually("it waits", || status_of(pid, "State").filter(|it| !it.starts_with('R')));
        let next = instance.submit(&["-n", &processors, "-o", "/dev/null", "true"]);
        instance.tutti(&["cancel", "--now", &hangs.to_string()]);
        let said = eventually("T072 in the log", || {
            let log = instance.log();
            log.lines().find(|line| line.ends_with("[T072]")).map(str::to_owned)
        });
        assert!(said.contains(&format!("{pid}")), "{said}");
        assert!(status_of(pid, "State").unwrap().starts_with('D'));
        assert_eq!(instance.job(next)["state"], "queued", "its processors are free too early");
        drop(silent);
        instance.tutti(&["wait", &next.to_string()]).expect(0);
        assert_ne!(instance.tutti(&["wait", &hangs.to_string()]).code, 0);
        instance.tutti(&["down"]).expect(0);
    }
}

/// It uses no processor, so the other job has its turns.
#[test]
fn what_does_not_stop_since_it_waits_costs_the_others_no_turn() {
    let instance = Instance::new().up();
    let silent = Silent::mount(&instance);
    instance.tutti(&["params", "quantum=50ms", "freeze_deadline=5ms"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().get();
    let file = silent.at.join("file");
    let line = format!("cat {} & while :; do :; done", file.display());
    let hangs = instance.submit(&["-n", "2", "-o", "/dev/null", "sh", "-c", &line]);
    let pid = waiting(&silent);
    let spins = instance.submit_spinner(u32::try_from(processors).unwrap());
    eventually("turns of both", || {
        let switches = instance.switches();
        let came = |job| switches.iter().filter(|it| it.came.contains(&job)).count();
        let waits = switches.iter().any(|it| it.running == [hangs] && it.stragglers == 1);
        (waits && came(hangs) > 3 && came(spins) > 3).then_some(())
    });
    assert!(status_of(pid, "State").unwrap().starts_with('D'));
    drop(silent);
    instance.tutti(&["cancel", "--now", &hangs.to_string(), &spins.to_string()]).expect(0);
}

/// Its other processes stand still in the turns of others, although the job as a whole never stops
/// in time.
#[test]
fn by_signals_what_stops_of_a_job_stays_stopped_beside_a_process_that_waits() {
    let instance = Instance::alone().up();
    let silent = Silent::mount(&instance);
    instance.tutti(&["params", "quantum=100ms", "freeze_deadline=5ms"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=signal"]).expect(0);
    let player = player().display().to_string();
    let file = silent.at.join("file");
    let line = format!("cat {} & exec {player} ticks 800", file.display());
    let hangs = instance.submit(&["-n", "2", "-o", "t-%j-%r", "sh", "-c", &line]);
    let pid = waiting(&silent);
    let other = instance.submit(&["-n", "2", "-o", "t-%j-%r", &player, "ticks", "800"]);
    instance.tutti(&["wait", &other.to_string()]).expect(0);
    assert!(status_of(pid, "State").unwrap().starts_with('D'));
    let switches = instance.switches();
    let left = switches.iter().filter(|it| it.left.contains(&hangs));
    assert!(
        left.clone().count() > 2 && left.clone().all(|it| it.running == [hangs]),
        "{switches:?}"
    );
    drop(silent);
    instance.tutti(&["wait", &hangs.to_string()]).expect(0);
    let common = overlap(&stretches(&instance, hangs, 2), &stretches(&instance, other, 2));
    // Without the freezer a task runs from its birth until it is first stopped.
    assert!(common < 20_000_000, "they ran at the same time for {common} ns");
}

#[test]
fn by_signals_all_jobs_that_leave_share_one_deadline() {
    let instance = Instance::new().up();
    let silent = Silent::mount(&instance);
    instance.tutti(&["params", "quantum=100ms", "freeze_deadline=2s"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=signal"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().get();
    let line = format!("exec cat {}", silent.at.join("file").display());
    let hang = || instance.submit(&["-o", "/dev/null", "sh", "-c", &line]);
    let jobs: Vec<u64> = (0..processors).map(|_| hang()).collect();
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    waiting(&silent);
    let spins = instance.submit_spinner(u32::try_from(processors).unwrap());
    let switch = eventually("a switch that all leave", || {
        instance.switches().into_iter().find(|it| it.running == jobs)
    });
    let took_ms = (switch.stopped - switch.began) / 1_000_000;
    assert!((2_000..4_000).contains(&took_ms), "{switch:?}");
    drop(silent);
    let all: Vec<String> = jobs.iter().chain([&spins]).map(u64::to_string).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    instance.tutti(&[&["cancel", "--now"], &all[..]].concat()).expect(0);
}

/// Whether a process was told to stop, by a signal or with its cgroup.
fn is_asked_to_stop(pid: i32) -> bool {
    let pending = status_of(pid, "ShdPnd").unwrap_or_default();
    let stop = 1 << (nix::libc::SIGSTOP - 1);
    let by_signal = u64::from_str_radix(&pending, 16).is_ok_and(|pending| pending & stop != 0);
    let group = crate::harness::group_of(pid);
    let tops = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let files = tops.map(|top| format!("{top}{group}/cgroup.freeze"));
    by_signal || files.iter().any(|file| fs::read_to_string(file).is_ok_and(|it| it == "1\n"))
}

/// A user's order about a part of a job waits for a process that does not stop; the node's agent
/// does not.
#[test]
fn while_a_part_does_not_stop_other_jobs_start_and_end() {
    for control in ["freeze", "signal"] {
        let instance = Instance::new().up();
        let silent = Silent::mount(&instance);
        instance.tutti(&["params", "freeze_deadline=60s"]).expect(0);
        let control = format!("control={control}");
        instance.tutti(&["params", "--class", "production", &control]).expect(0);
        let line = format!("exec cat {}", silent.at.join("file").display());
        let hangs = instance.submit(&["-n", "1", "-o", "/dev/null", "sh", "-c", &line]);
        let pid = waiting(&silent);
        eventually("it waits", || status_of(pid, "State").filter(|it| !it.starts_with('R')));
        let part = format!("{hangs}.0");
        let order = instance.start(&["suspend", &part]);
        eventually("it is asked to stop", || is_asked_to_stop(pid).then_some(()));
        instance.tutti(&["run", "-n", "1", "true"]).expect(0);
        assert!(is_asked_to_stop(pid), "{control}: the order has been given up already");
        // Another order about the job comes after the first.
        let next = instance.start(&["resume", &part]);
        drop(silent);
        order.wait().expect(0);
        next.wait().expect(0);
        eventually("it has ended", || (instance.job(hangs)["state"] == "ended").then_some(()));
    }
}
