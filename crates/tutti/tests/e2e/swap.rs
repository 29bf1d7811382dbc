//! `--swap`: the memory of suspended jobs leaves, counts as free, and comes back.
//!
//! Memory of programs leaves only where there is swap space. The tests make some in a zram device
//! of their own. Where the machine permits none they say so, and see only pages of files leave.

use crate::audit::cgroup_name;
use crate::harness::{Instance, Running, eventually, within};
use crate::recovery::kill_daemon;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tutti_linux::cgroup::mount_points;

const MIB: u64 = 1 << 20;
const LIMIT: &str = "memory.limit_in_bytes";
const PATIENCE: Duration = Duration::from_secs(60);

/// Swap space in memory that is compressed; gone when this is dropped.
struct Zram {
    number: u32,
}

impl Zram {
    /// `None` where the machine permits none.
    fn new(bytes: u64) -> Option<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Self { number: number.trim().parse().ok()? };
        let path = zram.path();
        if !path.exists() {
            let number = fs::read_to_string(zram.attribute("dev")).ok()?;
            let (major, minor) = number.trim().split_once(':')?;
            let device = makedev(major.parse().ok()?, minor.parse().ok()?);
            mknod(&path, SFlag::S_IFBLK, Mode::from_bits_truncate(0o600), device).ok()?;
        }
        fs::write(zram.attribute("disksize"), bytes.to_string()).ok()?;
        let run = |program: &str| Command::new(program).arg(&path).output().ok();
        let is_done = |program| run(program).is_some_and(|output| output.status.success());
        (is_done("mkswap") && is_done("swapon")).then_some(zram)
    }

    /// As [`Zram::new`]; says so where there is none.
    fn or_say(bytes: u64) -> Option<Self> {
        let zram = Self::new(bytes);
        if zram.is_none() {
            eprintln!("NO ZRAM HERE: only pages of files leave in this test");
        }
        zram
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn attribute(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.path()).output();
        let _ = fs::write(self.attribute("reset"), "1");
        let _ = fs::write("/sys/class/zram-control/hot_remove", self.number.to_string());
        if !self.attribute("dev").exists() {
            let _ = fs::remove_file(self.path());
        }
    }
}

/// Has memory that can't be compressed and pages of a file, and looks at all of it again and again.
const HOLDER: &str = "\
import hashlib, mmap, os, sys, time
size, name = int(sys.argv[1]) << 20, sys.argv[2]
with open(name + '.data', 'wb') as file:
    file.write(os.urandom(16 << 20))
file = open(name + '.data', 'rb')
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
memory = bytearray(size)
for at in range(0, size, 1 << 20):
    memory[at:at + (1 << 20)] = os.urandom(1 << 20)
look = lambda: hashlib.sha256(memory[::4096] + pages[::4096]).hexdigest()
first = look()
print('ready', flush=True)
while not os.path.exists(name + '.stop'):
    if look() != first:
        sys.exit(9)
    with open(name + '.looks', 'a') as looks:
        looks.write('x')
    time.sleep(0.05)
";

/// An instance that has the machine to itself, and then swap space of so many bytes, if that can be
/// had: limits on memory that other tests set would not hold beside it.
fn with_swap(bytes: u64) -> (Instance, Option<Zram>) {
    let instance = Instance::alone();
    let zram = Zram::or_say(bytes);
    (instance.up(), zram)
}

/// A job that has so much memory, in MiB, of more that is allocated to it.
fn holder(instance: &Instance, mib: u64, allocated: &str) -> Running {
    start(instance, "a", mib, &["-m", allocated, "--swap"])
}

fn start(instance: &Instance, name: &str, mib: u64, options: &[&str]) -> Running {
    fs::write(instance.work.join("holder.py"), HOLDER).unwrap();
    let mib = mib.to_string();
    let program = ["python3", "holder.py", &mib, name];
    let job = instance.start(&[&["run"], options, &program].concat());
    job.wait_for("ready");
    job
}

fn looks(instance: &Instance, name: &str) -> u64 {
    fs::metadata(instance.work.join(format!("{name}.looks"))).map_or(0, |it| it.len())
}

/// The job looks at its memory, finds it as it was, and ends well.
fn goes_on_and_ends(instance: &Instance, job: Running, name: &str) {
    let before = looks(instance, name);
    within(PATIENCE, "looks", || (looks(instance, name) > before + 2).then_some(()));
    fs::write(instance.work.join(format!("{name}.stop")), "").unwrap();
    job.wait_within(PATIENCE).expect(0);
}

fn node(instance: &Instance) -> Value {
    instance.tutti(&["nodes", "--json"]).expect(0).json()[0].clone()
}

fn allocated(instance: &Instance) -> u64 {
    node(instance)["memory_allocated_bytes"].as_u64().unwrap()
}

/// The files of that name in the groups of the first job.
fn of_groups(instance: &Instance, name: &str) -> Vec<PathBuf> {
    let own = cgroup_name(&instance.dir, instance.user.unwrap_or(0));
    let mut found = Vec::new();
    for top in mount_points() {
        collect(&top, &own, name, 0, &mut found);
    }
    found
}

fn collect(group: &Path, instance: &str, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(group) else { return };
    let text = group.display().to_string();
    if text.contains(instance) && text.contains("job-1") && group.join(name).exists() {
        found.push(group.join(name));
    }
    for entry in entries.flatten().filter(|it| it.path().is_dir() && depth < 6) {
        collect(&entry.path(), instance, name, depth + 1, found);
    }
}

/// The limits of v1 on the memory of the first job.
fn limits(instance: &Instance) -> Vec<u64> {
    read_all(&of_groups(instance, LIMIT))
}

fn read_all(files: &[PathBuf]) -> Vec<u64> {
    files.iter().filter_map(|it| fs::read_to_string(it).ok()?.trim().parse().ok()).collect()
}

fn wait_for_state(instance: &Instance, state: &str) -> Value {
    within(PATIENCE, state, || {
        let job = instance.job(1);
        (job["state"] == state).then_some(job)
    })
}

#[test]
fn memory_of_a_suspended_job_leaves_and_is_whole_when_it_goes_on() {
    let (instance, zram) = with_swap(1 << 30);
    let job = holder(&instance, 192, "300M");
    let (before, limited) = (allocated(&instance), limits(&instance));
    assert_eq!(before, 300 * MIB);
    instance.tutti(&["suspend", "1"]).expect(0);
    let shown = wait_for_state(&instance, "swapped");
    let left = shown["swapped_bytes"].as_u64().unwrap();
    let least = if zram.is_some() { 150 * MIB } else { 8 * MIB };
    assert!(left > least, "{left} bytes left");
    assert!(shown["reason"].as_str().unwrap().contains("swapped out"), "{shown}");
    let counted = allocated(&instance);
    assert!(zram.is_none() || counted < 100 * MIB, "{counted} bytes are counted");
    assert_eq!(limits(&instance), limited, "limits are as before");
    let shown = instance.tutti(&["show", "1"]).expect(0).text();
    assert!(shown.contains("swapped"), "{shown}");
    instance.tutti(&["resume", "1"]).expect(0);
    wait_for_state(&instance, "running");
    assert_eq!(allocated(&instance), before);
    goes_on_and_ends(&instance, job, "a");
}

/// Whether the machine has swap space beside that of the test.
fn has_other_swap() -> bool {
    let has = fs::read_to_string("/proc/swaps").unwrap().lines().count() > 2;
    if has {
        eprintln!("OTHER SWAP SPACE HERE: it does not run full, and this test sees nothing");
    }
    has
}

#[test]
fn swap_space_that_runs_full_takes_what_fits_and_jobs_stay_whole() {
    let (instance, Some(_zram)) = with_swap(96 << 20) else { return };
    if has_other_swap() {
        return;
    }
    let first = start(&instance, "a", 192, &["-m", "300M", "--swap"]);
    let second = start(&instance, "b", 32, &["-m", "100M", "--swap"]);
    let limited = limits(&instance);
    instance.tutti(&["suspend", "1"]).expect(0);
    let shown = wait_for_state(&instance, "swapped");
    let left = shown["swapped_bytes"].as_u64().unwrap();
    if has_other_swap() {
        return;
    }
    assert!((60 * MIB..150 * MIB).contains(&left), "{left} bytes left");
    assert!(limits(&instance) == limited, "limits are as before");
    let counted = allocated(&instance);
    let stayed = 192 * MIB - left.min(192 * MIB);
    assert!((100 * MIB + stayed..300 * MIB).contains(&counted), "{counted} bytes are counted");
    // Nothing is left for the next.
    instance.tutti(&["suspend", "2"]).expect(0);
    within(PATIENCE, "the answer", || {
        let reason = instance.job(2)["reason"].clone();
        (reason == "none of its memory could be swapped out").then_some(())
    });
    for id in ["1", "2"] {
        instance.tutti(&["resume", id]).expect(0);
    }
    goes_on_and_ends(&instance, second, "b");
    goes_on_and_ends(&instance, first, "a");
}

#[test]
fn another_job_gets_the_memory_and_the_first_waits_for_it() {
    let (instance, Some(_zram)) = with_swap(1 << 30) else { return };
    let all = node(&instance)["memory_bytes"].as_u64().unwrap();
    let most = (all / MIB * 2 / 3).to_string() + "M";
    let first = start(&instance, "a", 64, &["-m", &most, "--swap"]);
    let second =
        instance.submit(&["-m", &most, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    eventually("its reason", || (instance.job(second)["wait"] == "memory").then_some(()));
    instance.tutti(&["suspend", "1"]).expect(0);
    within(PATIENCE, "the second", || (instance.job(second)["state"] == "running").then_some(()));
    instance.tutti(&["resume", "1"]).expect(0);
    let waits = wait_for_state(&instance, "resuming");
    assert!(waits["reason"].as_str().unwrap().contains("too little is free"), "{waits}");
    let before = looks(&instance, "a");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(looks(&instance, "a"), before, "it runs without its memory");
    fs::write(instance.work.join("go"), "").unwrap();
    wait_for_state(&instance, "running");
    goes_on_and_ends(&instance, first, "a");
}

#[test]
fn a_limit_that_a_killed_agent_has_lowered_is_restored() {
    let (instance, Some(_zram)) = with_swap(2 << 30) else { return };
    let job = holder(&instance, 600, "800M");
    // To find the files takes longer than another agent needs.
    let files = of_groups(&instance, LIMIT);
    let limits = || read_all(&files);
    let limited = limits();
    if node(&instance)["swap"]["by"] != "memory.limit_in_bytes" {
        eprintln!("no limit is lowered here");
        return;
    }
    assert!(!limited.is_empty());
    instance.tutti(&["suspend", "1"]).expect(0);
    let agent = instance.daemon("agent");
    within(PATIENCE, "a lowered limit", || (limits() != limited).then_some(()));
    kill(Pid::from_raw(agent), Signal::SIGKILL).unwrap();
    let lowered = limits();
    assert_ne!(lowered, limited, "it was killed in between");
    eventually("another agent", || instance.daemon_now("agent").filter(|&it| it != agent));
    wait_for_state(&instance, "swapped");
    assert_eq!(limits(), limited);
    // Nothing is lost with an agent that has done its work, either.
    kill_daemon(&instance, "agent");
    instance.tutti(&["resume", "1"]).expect(0);
    wait_for_state(&instance, "running");
    assert_eq!(limits(), limited);
    goes_on_and_ends(&instance, job, "a");
}

#[test]
fn a_job_that_did_not_ask_stays_in_memory() {
    let instance = Instance::alone().up();
    let job = start(&instance, "a", 32, &["-m", "100M"]);
    instance.tutti(&["suspend", "1"]).expect(0);
    wait_for_state(&instance, "suspended");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(instance.job(1)["swapped_bytes"], Value::Null);
    assert_eq!(allocated(&instance), 100 * MIB);
    let doctor = instance.tutti(&["doctor", "-v"]);
    assert!(doctor.text().contains("swap"), "{}", doctor.text());
    instance.tutti(&["resume", "1"]).expect(0);
    goes_on_and_ends(&instance, job, "a");
}

#[test]
fn a_job_is_preempted_for_its_memory_and_comes_back_with_it() {
    // As much as is allocated to jobs: what of that they really have, only their nodes know.
    let (instance, Some(_zram)) = with_swap(64 << 30) else { return };
    instance.tutti(&["params", "policy=classes", "foreign=0%"]).expect(0);
    instance.tutti(&["params", "--class", "standby", "do_not_disturb=1s"]).expect(0);
    let all = node(&instance)["memory_bytes"].as_u64().unwrap();
    let most = (all / MIB * 2 / 3).to_string() + "M";
    let first = start(&instance, "a", 64, &["--class", "standby", "-m", &most, "--swap"]);
    let line = "while [ ! -e go ]; do sleep 0.05; done";
    let second = instance.submit(&["--class", "interactive", "-m", &most, "sh", "-c", line]);
    within(PATIENCE, "the second", || (instance.job(second)["state"] == "running").then_some(()));
    let shown = wait_for_state(&instance, "swapped");
    assert!(shown["swapped_bytes"].as_u64().unwrap() > 40 * MIB, "{shown}");
    fs::write(instance.work.join("go"), "").unwrap();
    wait_for_state(&instance, "running");
    goes_on_and_ends(&instance, first, "a");
}

#[test]
fn jobs_that_do_not_fit_beside_each_other_take_turns_in_memory() {
    let (instance, Some(_zram)) = with_swap(1 << 30) else { return };
    instance.tutti(&["params", "swap_cost=100%"]).expect(0);
    // All but this much is allocated to a job that never leaves.
    let rest = node(&instance)["memory_bytes"].as_u64().unwrap() / MIB - 150;
    let line = "while [ ! -e go ]; do sleep 0.05; done";
    instance.submit(&["-m", &(rest.to_string() + "M"), "sh", "-c", line]);
    let first = start(&instance, "a", 24, &["-m", "100M", "--swap"]);
    let second = start(&instance, "b", 24, &["-m", "100M", "--swap"]);
    assert_eq!(instance.job(2)["state"], "swapped", "the second has its memory");
    for name in ["a", "b", "a"] {
        let before = looks(&instance, name);
        within(PATIENCE, "its turn", || (looks(&instance, name) > before + 2).then_some(()));
        let states = [2, 3].map(|job| instance.job(job)["state"].clone());
        assert!(states.iter().any(|state| state != "running"), "{states:?}");
    }
    goes_on_and_ends(&instance, first, "a");
    goes_on_and_ends(&instance, second, "b");
}

/// A process that can have no more threads, by a group of v1; `None` where there is none.
struct WithoutThreads {
    pid: i32,
    before: PathBuf,
    group: PathBuf,
}

impl WithoutThreads {
    fn new(pid: i32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = groups.lines().find_map(|line| line.split_once(":pids:"))?.1;
        let before = Path::new("/sys/fs/cgroup/pids").join(own.trim_start_matches('/'));
        let group = before.join(format!("tutti-test-{pid}"));
        fs::create_dir(&group).ok()?;
        fs::write(group.join("pids.max"), "1").unwrap();
        fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
        Some(Self { pid, before, group })
    }
}

impl Drop for WithoutThreads {
    fn drop(&mut self) {
        let _ = fs::write(self.before.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn an_order_that_gets_no_thread_is_answered() {
    let instance = Instance::alone().up();
    let job = holder(&instance, 64, "200M");
    let agent = instance.daemon("agent");
    let Some(without) = WithoutThreads::new(agent) else {
        eprintln!("NO GROUPS OF V1 FOR PIDS HERE: this test sees nothing");
        return;
    };
    instance.tutti(&["suspend", "1"]).expect(0);
    within(PATIENCE, "the answer", || {
        let reason = instance.job(1)["reason"].clone();
        (reason == "none of its memory could be swapped out").then_some(())
    });
    assert_eq!(allocated(&instance), 200 * MIB);
    instance.tutti(&["resume", "1"]).expect(0);
    wait_for_state(&instance, "running");
    drop(without);
    assert_eq!(instance.daemon("agent"), agent, "it is the same agent");
    goes_on_and_ends(&instance, job, "a");
}
