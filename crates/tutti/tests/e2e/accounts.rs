//! What is known of jobs that have ended: `tutti history`, `run --summary`, `ps -l`.

use crate::cluster::Bed;
use crate::harness::{Instance, NOBODY, Running, eventually, needs_root};
use crate::recovery::kill_daemon;
use serde_json::Value;

/// Burns some hundredths of a second of processor time.
const BURN: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

fn history(instance: &Instance, job: u64) -> Value {
    instance.tutti(&["history", "--json", &job.to_string()]).expect(0).json()
}

fn cpu_us(usage: &Value) -> u64 {
    usage["cpu_user_us"].as_u64().unwrap() + usage["cpu_system_us"].as_u64().unwrap()
}

/// The shell's own group's processor time, as its last words.
const TELL_CPU: &str = "g=$(sed -n s/^0:://p /proc/self/cgroup); \
    for m in /sys/fs/cgroup/unified /sys/fs/cgroup; do \
    if [ -e $m$g/cpu.stat ]; then sed -n 's/^usage_usec //p' $m$g/cpu.stat; fi; done";

#[test]
fn short_lived_processes_and_strays_are_accounted_for() {
    let instance = Instance::alone().up();
    // Children that are not waited for one by one, and strays whose parents have ended.
    let line = format!(
        "for n in 1 2 3 4 5 6 7 8; do sh -c '{BURN}'; \
         sh -c \"setsid sh -c '{BURN}; echo x >> marks' & true\"; done; \
         until [ \"$(wc -l < marks)\" = 8 ]; do sleep 0.05; done; sleep 0.1; {TELL_CPU}"
    );
    let done = instance.tutti(&["run", "--summary", "sh", "-c", &line]).expect(0);
    let told: u64 = done.text().trim().parse().unwrap();
    let usage = history(&instance, 1)["job"]["usage"].clone();
    assert_eq!(usage["cpu_whole"], true);
    let found = cpu_us(&usage);
    assert!(told > 100_000, "the job has hardly used anything: {told} us");
    // What it used after its last words is little.
    assert!(found >= told && found - told < told / 50 + 10_000, "{found} us of {told} us");
    let summary = done.err.lines().last().unwrap().to_owned();
    assert!(summary.starts_with("tutti: job 1: ") && summary.contains(" processes"), "{summary}");
    let tasks = history(&instance, 1)["tasks"].clone();
    assert_eq!(cpu_us(&tasks[0]["usage"]), found);
}

#[test]
fn no_process_is_missed_however_short_it_lives() {
    needs_root("process events of the kernel, before Linux 6.6");
    let instance = Instance::new().up();
    let line = "i=0; while [ $i -lt 3000 ]; do (:); i=$((i+1)); done";
    instance.tutti(&["run", "-n", "2", "sh", "-c", line]).expect(0);
    let history = history(&instance, 1);
    assert_eq!(history["job"]["usage"]["processes"], 6002, "{history}");
    for task in history["tasks"].as_array().unwrap() {
        assert_eq!(task["usage"]["processes"], 3001, "{history}");
        // The kernel tells the end of one when its parent may have made the next already.
        let peak = task["usage"]["processes_peak"].as_u64().unwrap();
        assert!((2..=3).contains(&peak), "{history}");
    }
}

#[test]
fn what_a_task_makes_before_its_keeper_has_said_who_it_is_counts_too() {
    needs_root("process events of the kernel, before Linux 6.6");
    let instance = Instance::new().up();
    instance.tutti(&["params", "placement=high-load", "tasks_per_node=32"]).expect(0);
    // The first task stops the keeper while that still makes the others, and lets it go on when all
    // that it made itself is long told.
    let line = "if [ $TUTTI_RANK = 0 ]; then kill -STOP $PPID; \
        i=0; while [ $i -lt 200 ]; do (:); i=$((i+1)); done; sleep 0.1; kill -CONT $PPID; fi";
    for job in 1..=10 {
        instance.tutti(&["run", "-n", "32", "sh", "-c", line]).expect(0);
        let history = history(&instance, job);
        let tasks = history["tasks"].as_array().unwrap();
        assert_eq!(tasks[0]["usage"]["processes"], 202, "job {job}: {history}");
        assert!(tasks[1..].iter().all(|task| task["usage"]["processes"] == 1), "{history}");
    }
}

#[test]
fn without_cgroups_processes_are_counted_too() {
    let instance = Instance::of_nobody().up();
    let line = format!("i=0; while [ $i -lt 500 ]; do (:); i=$((i+1)); done; {BURN}");
    instance.tutti(&["run", "sh", "-c", &line]).expect(0);
    let usage = history(&instance, 1)["job"]["usage"].clone();
    assert_eq!(usage["processes"], 501, "{usage}");
    assert!(usage["cpu_whole"] == false && cpu_us(&usage) > 10_000, "{usage}");
    let shown = instance.tutti(&["history", "1"]).expect(0).text();
    assert!(shown.contains(">="), "{shown}");
}

#[test]
fn time_is_told_apart_by_waiting_running_and_suspended() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    let first = instance.submit(&["-c", &processors, "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(first, "running");
    let second = instance.submit(&["-c", &processors, "-o", "/dev/null", "true"]);
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("a second of suspension", || {
        let job = instance.job(1);
        (job["suspended_ms"].as_u64().unwrap() >= 1000).then_some(())
    });
    instance.tutti(&["resume", "1"]).expect(0);
    eventually("some usage, while it runs", || {
        let jobs = instance.tutti(&["ps", "-l", "--json", "1"]).expect(0).json();
        let usage = &jobs[0]["usage"];
        (usage["processes"] == 1 && usage["switches"] == 2 && cpu_us(usage) > 0).then_some(())
    });
    let shown = instance.tutti(&["ps", "-l"]).expect(0).text();
    assert!(shown.contains("SUSPENDED") && shown.lines().count() == 3, "{shown}");
    instance.tutti(&["history", "1"]).expect(1).says("has not ended");
    instance.tutti(&["cancel", "1"]).expect(0);
    instance.tutti(&["wait", &second.to_string()]).expect(0);
    let (one, two) =
        (history(&instance, 1)["job"].clone(), history(&instance, second)["job"].clone());
    let [suspended_ms, waited_ms] =
        ["suspended_ms", "waited_ms"].map(|time| one[time].as_u64().unwrap());
    assert!(suspended_ms >= 1000 && waited_ms < 1000, "{one}");
    assert!(two["waited_ms"].as_u64().unwrap() >= 1000, "{two}");
    let all = instance.tutti(&["history"]).expect(0).text();
    assert!(all.contains("cancelled") && all.contains("completed"), "{all}");
    assert_eq!(history(&instance, 1)["ending"], "cancelled");
    let one = instance.tutti(&["history", "1"]).expect(0).text();
    assert!(one.lines().any(|line| line.contains("  cancelled  ")), "{one}");
    instance.tutti(&["history", "99"]).expect(1).says("there is no job 99");
}

/// The numbers of the jobs that `tutti history` with these words lists.
fn listed(instance: &Instance, words: &[&str]) -> Vec<u64> {
    let words: Vec<&str> = ["history", "--json"].iter().chain(words).copied().collect();
    let listed = instance.tutti(&words).expect(0).json();
    listed.as_array().unwrap().iter().map(|job| job["job"].as_u64().unwrap()).collect()
}

#[test]
fn history_is_asked_by_user_time_and_ending_and_outlives_the_controller() {
    let instance = Instance::of_the_system().up();
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["run", "sh", "-c", "exit 3"]).expect(3);
    let theirs = Running::start(instance.command_as(Some(NOBODY), &["run", "true"]));
    theirs.wait().expect(0);
    let limited = ["run", "--time", "100ms", "--grace", "0s", "sleep", &instance.nap];
    instance.tutti(&limited).expect(124);
    let cancelled = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(cancelled, "running");
    instance.tutti(&["cancel", &cancelled.to_string()]).expect(0);
    instance.tutti(&["wait", &cancelled.to_string()]).expect(143);
    let check = || {
        assert_eq!(listed(&instance, &[]), [1, 2, 3, 4, 5]);
        assert_eq!(listed(&instance, &["--user", "nobody"]), [3]);
        assert_eq!(listed(&instance, &["--user", "0", "--state", "failed,timed-out"]), [2, 4]);
        assert_eq!(listed(&instance, &["--state", "cancelled"]), [5]);
        assert_eq!(listed(&instance, &["--since", "10m", "-n", "2"]), [4, 5]);
        assert!(listed(&instance, &["--until", "10m"]).is_empty());
    };
    check();
    kill_daemon(&instance, "controller");
    eventually("the next controller", || (instance.tutti(&["history"]).code == 0).then_some(()));
    check();
    instance.tutti(&["history", "--state", "fine"]).expect(2).says("they end as completed");
    instance.tutti(&["history", "--since", "noon"]).expect(2).says("is no time");
    instance.tutti(&["history", "--user", "nemo"]).expect(1).says("there is no user nemo");
    // What is written can be simulated, also of jobs whose tasks have shared processors.
    let processors = std::thread::available_parallelism().unwrap().get();
    let shared = (2 * processors + 1).to_string();
    instance.tutti(&["run", "-n", &shared, "true"]).expect(0);
    assert_eq!(history(&instance, 6)["job"]["processors"], processors);
    instance.tutti(&["history", "--swf", "past.swf"]).expect(0).says("wrote 6 jobs");
    let simulated = instance.tutti(&["sim", "past.swf", "--json"]).expect(0).json();
    assert_eq!(simulated[0]["jobs"], 6, "{simulated}");
    let trace = std::fs::read_to_string(instance.work.join("past.swf")).unwrap();
    assert!(trace.contains("; Queue: 0 interactive"), "{trace}");
}

#[test]
fn history_is_kept_as_long_as_it_is_said() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["params", "keep_history=1s"]).expect(0);
    eventually("the end of its time", || listed(&instance, &[]).is_empty().then_some(()));
    instance.tutti(&["history", "1"]).expect(1).says("there is no job 1");
    instance.tutti(&["params", "keep_history=always"]).expect(0);
    instance.tutti(&["run", "true"]).expect(0);
    assert_eq!(listed(&instance, &[]), [2]);
}

#[test]
fn jobs_of_several_nodes_are_accounted_for() {
    let bed = Bed::up(2, &[0]);
    let line = format!("{BURN}; sleep 0.1");
    bed.tutti(1, &["run", "-N", "2", "sh", "-c", &line]).expect(0);
    let history = bed.tutti(1, &["history", "--json", "1"]).expect(0).json();
    let of_tasks = history["tasks"].as_array().unwrap();
    let usage = &history["job"]["usage"];
    assert_eq!(of_tasks.len(), 2);
    let sum: u64 = of_tasks.iter().map(|task| cpu_us(&task["usage"])).sum();
    assert!(usage["cpu_whole"] == true && cpu_us(usage) >= sum && sum > 20_000, "{history}");
    // The kernel tells of births in the first network only, which no node of a test bed is in; what
    // was seen is known all the same.
    assert!(usage["processes"].as_u64() >= Some(2), "{history}");
    let shown = bed.tutti(2, &["history"]).expect(0).text();
    assert!(shown.matches('?').count() <= 1, "more than its memory is not known: {shown}");
}

#[test]
fn memory_and_what_goes_to_a_disk_are_as_the_kernel_counted_them() {
    let instance = Instance::new().up();
    let player = crate::harness::player().display().to_string();
    // By its process; and by its group, which it has if it is limited.
    for (job, limit) in [(1, &[][..]), (2, &["-m", "500M"])] {
        instance.tutti(&[&["run"], limit, &[&player, "hog", "64"]].concat()).expect(0);
        let usage = history(&instance, job)["job"]["usage"].clone();
        let mib = usage["memory_peak_bytes"].as_u64().unwrap() >> 20;
        assert!((64..80).contains(&mib), "{usage}");
    }
    // Not that of the keeper, of which each task is made.
    instance.tutti(&["run", "true"]).expect(0);
    let usage = history(&instance, 3)["job"]["usage"].clone();
    assert!(usage["memory_peak_bytes"].as_u64() < Some(4 << 20), "{usage}");
    // Past the page cache, or the owner of the bytes would be unknown. A shell's account has those
    // of its children that have ended; on a file system that is memory it is 0.
    let line = "dd if=/dev/zero of=written bs=1M count=16 oflag=direct 2> dd.log; \
        sed -n 's/^write_bytes: //p' /proc/$$/io";
    let told = instance.tutti(&["run", "sh", "-c", line]).expect(0).text();
    let told: u64 = told.trim().parse().unwrap();
    let usage = history(&instance, 4)["job"]["usage"].clone();
    let written = usage["written_bytes"].as_u64().unwrap();
    assert!((told..told + (1 << 20)).contains(&written), "{told}: {usage}");
}

#[test]
fn memory_is_counted_over_all_processes_of_a_task_also_without_a_limit() {
    let instance = Instance::new().up();
    // Two processes have 40 MB each at the same time.
    let line = "for n in 1 2; do \
        (head -c 40M /dev/zero; echo >> ready-$TUTTI_RANK; \
         until [ \"$(wc -l < ready-$TUTTI_RANK)\" = 2 ]; do sleep 0.05; done) | tail -n 1 > /dev/null & \
        done; wait";
    for (job, tasks) in [(1, "1"), (2, "2")] {
        instance.tutti(&["run", "-n", tasks, "sh", "-c", line]).expect(0);
        let history = history(&instance, job);
        let of_tasks = history["tasks"].as_array().unwrap();
        for usage in of_tasks.iter().map(|task| &task["usage"]).chain([&history["job"]["usage"]]) {
            let mib = usage["memory_peak_bytes"].as_u64().unwrap() >> 20;
            assert!(usage["memory_whole"] == true && (80..160).contains(&mib), "{history}");
        }
        instance.shell("rm ready-*").expect(0);
    }
    // While it runs, too.
    let job = instance.submit(&["sleep", "1000"]);
    instance.wait_for_state(job, "running");
    let jobs = instance.tutti(&["ps", "-l", "--json"]).expect(0).json();
    assert_eq!(jobs[0]["usage"]["memory_whole"], true, "{jobs}");
}

#[test]
fn what_strays_read_and_write_is_counted() {
    let instance = Instance::new().up();
    // Two writers: one that the shell waits for, and so finds in its own account, and one that it
    // does not wait for.
    let write = "dd if=/dev/zero bs=1M count=8 oflag=direct 2> /dev/null";
    let line = format!(
        "{write} of=waited; sed -n 's/^write_bytes: //p' /proc/$$/io; \
         sh -c \"setsid sh -c '{write} of=stray; echo > done' & true\"; \
         until [ -e done ]; do sleep 0.05; done"
    );
    let told = instance.tutti(&["run", "sh", "-c", &line]).expect(0).text();
    let told: u64 = told.trim().parse().unwrap();
    // What the first one wrote may have some pages of the file system beside its 8 MiB.
    let each = 8 << 20;
    assert!(told >= each, "{told}");
    let history = history(&instance, 1);
    for usage in [&history["job"]["usage"], &history["tasks"][0]["usage"]] {
        let written = usage["written_bytes"].as_u64().unwrap();
        assert!(usage["io_whole"] == true && written >= told + each, "{told}: {history}");
    }
}

#[test]
fn doctor_says_what_of_the_accounts_is_a_lower_bound() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "true"]).expect(0);
    let usage = instance.job(1)["usage"].clone();
    let findings = instance.tutti(&["doctor", "--json"]).json();
    let findings = findings["findings"].as_array().unwrap();
    let accounts = findings.iter().find(|finding| finding["topic"] == "accounts").unwrap();
    let text = accounts["text"].as_str().unwrap();
    for (whole, what) in [("memory_whole", "the memory of jobs"), ("io_whole", "read and write")] {
        assert_eq!(usage[whole] == true, !text.contains(what), "{usage} {text}");
    }
}
