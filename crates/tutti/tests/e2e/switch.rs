//! Jobs that take turns: the record of switches, what the tasks themselves see, and shares.

use crate::harness::{Instance, Switch, eventually, player, within};
use std::fs;
use std::time::Duration;

/// The stretches in which the ranks of a job ran, as `player ticks` wrote them.
pub(crate) fn stretches(instance: &Instance, job: u64, ranks: u32) -> Vec<(u64, u64)> {
    (0..ranks).flat_map(|rank| stretches_of(instance, job, rank)).collect()
}

/// Those of one rank.
pub(crate) fn stretches_of(instance: &Instance, job: u64, rank: u32) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(instance.work.join(format!("t-{job}-{rank}"))).unwrap();
    let stretch = |line: &str| {
        let (from, to) = line.split_once(' ').unwrap();
        (from.parse().unwrap(), to.parse().unwrap())
    };
    text.lines().map(stretch).collect()
}

/// How long both ran at the same time, in nanoseconds.
pub(crate) fn overlap(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    let common = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
    one.iter().flat_map(|a| other.iter().map(move |b| common(a, b))).sum()
}

pub(crate) fn check_record(switches: &[Switch]) {
    for switch in switches {
        assert!(
            switch.due <= switch.began
                && switch.began <= switch.stopped
                && switch.stopped <= switch.resumed,
            "the moments of a switch are not in order: {switch:?}"
        );
    }
    for pair in switches.windows(2) {
        assert!(pair[0].resumed <= pair[1].began, "switches overlap: {pair:?}");
    }
}

/// The lengths of the turns of a job between these switches, in nanoseconds: from when they were
/// due, which is what the controller promises; how late they were made is the machine's.
fn turns(switches: &[Switch], job: u64) -> Vec<u64> {
    let mut came = None;
    let mut turns = Vec::new();
    for switch in switches {
        if switch.came.contains(&job) {
            came = Some(switch.due);
        } else if switch.left.contains(&job)
            && let Some(came) = came.take()
        {
            turns.push(switch.due - came);
        }
    }
    turns
}

fn median(mut values: Vec<u64>) -> u64 {
    assert!(!values.is_empty());
    values.sort_unstable();
    values[values.len() / 2]
}

fn spinners(instance: &Instance, count: u32) -> Vec<u64> {
    let jobs: Vec<u64> = (0..count).map(|_| instance.submit_spinner(2)).collect();
    for &job in &jobs {
        instance.wait_for_state(job, "running");
    }
    jobs
}

pub(crate) fn end_all(instance: &Instance) {
    for job in instance.jobs() {
        if job["state"] != "ended" {
            let job = job["job"].to_string();
            instance.tutti(&["cancel", "--now", &job]);
            instance.tutti(&["wait", &job]);
        }
    }
}

pub(crate) fn wait_for_switches(instance: &Instance, more: usize) -> Vec<Switch> {
    let before = instance.switches().len();
    within(Duration::from_secs(60), &format!("{more} more switches"), || {
        let switches = instance.switches();
        (switches.len() >= before + more).then(|| switches[before..].to_vec())
    })
}

#[test]
fn two_jobs_that_want_all_processors_run_in_turns_and_never_at_once() {
    let instance = Instance::alone().up();
    // Strangers on the machine must not make a switch give up waiting.
    instance.tutti(&["params", "quantum=20ms", "freeze_deadline=10s"]).expect(0);
    let player = player().display().to_string();
    let submit = || instance.submit(&["-n", "2", "-o", "t-%j-%r", &player, "ticks", "1000"]);
    let (one, other) = (submit(), submit());
    for (job, row) in [(one, 1), (other, 2)] {
        let job = instance.wait_for_state(job, "running");
        assert_eq!((&job["row"], &job["rows"]), (&row.into(), &2.into()), "{job}");
        assert_eq!(job["share_percent"], 50, "{job}");
    }
    let table = instance.tutti(&["ps"]).expect(0).text();
    assert!(table.contains("row 1/2, 50 %") && table.contains("row 2/2, 50 %"), "{table}");
    for job in [one, other] {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let switches = instance.switches();
    check_record(&switches);
    assert_eq!(switches.iter().map(|s| s.stragglers).sum::<u64>(), 0);
    let (first, second) = (stretches(&instance, one, 2), stretches(&instance, other, 2));
    let common = overlap(&first, &second);
    assert_eq!(common, 0, "they ran at the same time");
    // In turns, and not one after the other: each ran while the other had not ended.
    let span = |s: &[(u64, u64)]| {
        (s.iter().map(|s| s.0).min().unwrap(), s.iter().map(|s| s.1).max().unwrap())
    };
    let (first, second) = (span(&first), span(&second));
    let together = first.1.min(second.1).saturating_sub(first.0.max(second.0));
    assert!(together > 1_000_000_000, "one after the other: {first:?} {second:?}");
    // Between leaving and coming back the kernel lets nothing of it run.
    let turn = median(turns(&switches, one));
    assert_eq!(turn, 20_000_000);
}

#[test]
fn the_quantum_changes_while_jobs_run() {
    let instance = Instance::alone().up();
    let jobs = spinners(&instance, 2);
    for (quantum, ms) in [("20ms", 20), ("5ms", 5), ("60ms", 60)] {
        instance.tutti(&["params", &format!("quantum={quantum}")]).expect(0);
        let switches = wait_for_switches(&instance, 16);
        check_record(&switches);
        // The first ones may still be of the time before.
        let turn = median(turns(&switches[4..], jobs[0]));
        assert_eq!(turn, ms * 1_000_000, "quantum {quantum}");
    }
    let refused = instance.tutti(&["params", "quantum=1ms"]).expect(1);
    refused.says("quantum can't be 1ms; it may be 2ms to 1d");
    end_all(&instance);
}

#[test]
fn two_milliseconds_are_long_enough_for_a_turn() {
    let instance = Instance::alone().up();
    spinners(&instance, 2);
    instance.tutti(&["params", "quantum=2ms"]).expect(0);
    let switches = wait_for_switches(&instance, 400);
    check_record(&switches);
    let turn = median(turns(&switches, 1));
    assert_eq!(turn, 2_000_000);
    end_all(&instance);
}

#[test]
fn a_job_alone_is_never_switched() {
    let instance = Instance::alone().up();
    let player = player().display().to_string();
    instance.tutti(&["run", "-n", "2", &player, "ticks", "300"]).expect(0);
    let switches = instance.switches();
    assert!(switches.iter().all(|s| s.left.is_empty()), "{switches:?}");
}

#[test]
fn jobs_that_fit_run_beside_each_other() {
    let instance = Instance::alone().up();
    let small = || instance.submit_spinner(1);
    let (one, other) = (small(), small());
    let one = instance.wait_for_state(one, "running");
    let other = instance.wait_for_state(other, "running");
    assert_eq!((&one["row"], &one["rows"]), (&1.into(), &1.into()), "{one}");
    assert_eq!(other["row"], 1, "{other}");
    assert_ne!(one["placement"], other["placement"]);
    assert!(instance.tutti(&["ps"]).text().contains("always"));
    end_all(&instance);
}

#[test]
fn a_small_job_fills_a_processor_that_a_row_leaves_idle() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let small = instance.submit_spinner(1);
    instance.wait_for_state(small, "running");
    let wide = instance.submit_spinner(2);
    instance.wait_for_state(wide, "running");
    let other = instance.submit_spinner(1);
    let other = instance.wait_for_state(other, "running");
    assert_eq!(other["rows"], 2, "it fits beside the first: {other}");
    assert_eq!(other["row"], instance.job(small)["row"]);
    let switches = wait_for_switches(&instance, 10);
    check_record(&switches);
    assert!(
        switches.iter().any(|s| s.came.len() == 2) && switches.iter().any(|s| s.left.len() == 2),
        "the small ones are not switched together: {switches:?}"
    );
    end_all(&instance);
}

#[test]
fn when_a_job_ends_the_other_has_the_machine_to_itself() {
    let instance = Instance::alone().up();
    let jobs = spinners(&instance, 3);
    assert_eq!(instance.job(jobs[0])["rows"], 3);
    instance.tutti(&["cancel", "--now", &jobs[1].to_string(), &jobs[2].to_string()]).expect(0);
    eventually("a single row", || (instance.job(jobs[0])["rows"] == 1).then_some(()));
    let before = instance.switches().len();
    let service = || instance.job(jobs[0])["service_ms"].as_u64().unwrap();
    let begin = service();
    eventually("half a second of service", || (service() > begin + 500).then_some(()));
    let after = instance.switches();
    assert!(after.len() <= before + 1, "it is still switched: {:?}", &after[before..]);
    end_all(&instance);
}

#[test]
fn classes_get_their_shares() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    instance.tutti(&["params", "--class", "production", "share=75%"]).expect(0);
    instance.tutti(&["params", "--class", "standby", "share=25%"]).expect(0);
    let spin = "while :; do :; done";
    let submit = |class: &str| {
        instance.submit(&["-n", "2", "--class", class, "-o", "/dev/null", "sh", "-c", spin])
    };
    let (large, small) = (submit("production"), submit("standby"));
    assert_eq!(instance.wait_for_state(small, "running")["share_percent"], 25);
    let first = instance.wait_for_state(large, "running");
    assert_eq!(first["share_percent"], 75);
    let switches = wait_for_switches(&instance, 100);
    check_record(&switches);
    let percent = |of: u64, other: u64| of * 100 / (of + other);
    // What the switches were: on a busy machine some are late, at the cost of jobs that wait.
    let sum = |job| turns(&switches[2..], job).iter().sum::<u64>();
    let switched = percent(sum(large), sum(small));
    assert!((65..=85).contains(&switched), "three quarters are {switched} % by the switches");
    // What they were promised, which is exact.
    let jobs = instance.jobs();
    let service =
        |id: u64| jobs.iter().find(|job| job["job"] == id).unwrap()["service_ms"].as_u64().unwrap();
    // The first had the machine to itself until the second came.
    let before = first["service_ms"].as_u64().unwrap();
    let served = percent(service(large) - before, service(small));
    assert!((72..=78).contains(&served), "three quarters are {served} % by the accounts");
    let refused = instance.tutti(&["params", "--class", "benchmark", "share=1%"]).expect(1);
    assert!(refused.err.contains("at most 0%"), "{}", refused.err);
    end_all(&instance);
}

#[test]
fn the_time_of_an_absent_class_is_held_or_handed_down() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    instance.tutti(&["params", "--class", "standby", "share=50%", "empty=hold"]).expect(0);
    let job = instance.submit_spinner(2);
    instance.wait_for_state(job, "running");
    let switches = wait_for_switches(&instance, 10);
    let alone = |s: &Switch| s.left.contains(&job) && s.came.is_empty();
    assert!(switches.iter().any(alone), "the time of the absent class is not kept: {switches:?}");
    instance.tutti(&["params", "--class", "standby", "empty=down"]).expect(0);
    let service = || instance.job(job)["service_ms"].as_u64().unwrap();
    let (begin, before) = (service(), instance.switches().len());
    eventually("half a second of service", || (service() > begin + 500).then_some(()));
    let more = instance.switches().len() - before;
    assert!(more <= 2, "{more} switches though nobody else wants the time");
    end_all(&instance);
}

#[test]
fn the_signal_method_switches_as_well() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=50ms", "freeze_deadline=10s"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=signal"]).expect(0);
    let player = player().display().to_string();
    let submit = || instance.submit(&["-n", "2", "-o", "t-%j-%r", &player, "ticks", "600"]);
    let (one, other) = (submit(), submit());
    for job in [one, other] {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let switches = instance.switches();
    check_record(&switches);
    assert_eq!(switches.iter().map(|s| s.stragglers).sum::<u64>(), 0);
    let common = overlap(&stretches(&instance, one, 2), &stretches(&instance, other, 2));
    // Without the freezer a task runs from its birth until it is first stopped.
    assert!(common < 20_000_000, "they ran at the same time for {common} ns");
}

#[test]
fn the_signal_method_stops_whole_trees_in_the_order_that_is_set() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=100ms", "freeze_deadline=10s"]).expect(0);
    instance.tutti(&["params", "--class", "production", "control=signal"]).expect(0);
    let spin =
        "t() { if [ $1 -gt 1 ]; then t $(($1-1)) & t $(($1-1)) & fi; while :; do :; done; }; t 3";
    let submit = || instance.submit(&["-c", "2", "-o", "/dev/null", "sh", "-c", spin]);
    let jobs = [submit(), submit()];
    for job in jobs {
        instance.wait_for_state(job, "running");
    }
    for traversal in ["depth-first", "breadth-first", "hybrid", "all-at-once"] {
        instance.tutti(&["params", &format!("traversal={traversal}")]).expect(0);
        let switches = wait_for_switches(&instance, 8);
        check_record(&switches);
        assert_eq!(switches.iter().map(|s| s.stragglers).sum::<u64>(), 0, "{traversal}");
    }
    let refused = instance.tutti(&["params", "traversal=sideways"]).expect(1);
    refused.says("it may be depth-first, breadth-first, hybrid or all-at-once");
    end_all(&instance);
}

#[test]
fn thousands_of_processes_are_suspended_resumed_and_killed() {
    let instance = Instance::alone().up();
    let player = player().display().to_string();
    let running = instance.start(&["run", "--grace", "100ms", &player, "many", "2000"]);
    running.wait_for("ready");
    let pid = crate::harness::processes().into_iter().find(|&pid| {
        crate::harness::command_line(pid).get(1..) == Some(&["many".into(), "2000".into()])
    });
    let group = fs::read_to_string(format!("/proc/{}/cgroup", pid.unwrap())).unwrap();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let group = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .map(|mount| std::path::Path::new(mount).join(group.trim_start_matches('/')))
        .find(|path| path.join("cgroup.events").exists())
        .unwrap();
    let frozen = |wanted: &str| {
        let job = group.parent().unwrap();
        fs::read_to_string(job.join("cgroup.events")).unwrap().contains(wanted).then_some(())
    };
    instance.tutti(&["suspend", "1"]).expect(0);
    eventually("all frozen", || frozen("frozen 1"));
    assert_eq!(instance.wait_for_state(1, "suspended")["state"], "suspended");
    instance.tutti(&["resume", "1"]).expect(0);
    eventually("none frozen", || frozen("frozen 0"));
    let count = fs::read_to_string(group.join("cgroup.procs")).unwrap().lines().count();
    assert_eq!(count, 2001);
    instance.tutti(&["cancel", "1"]).expect(0);
    running.wait().expect(143);
    assert!(!group.exists());
}

/// A real-time task never gives up its processor to a thread of the same priority or of a lower
/// one.
#[test]
fn real_time_tasks_have_their_turns_and_no_more() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=100ms", "freeze_deadline=10s"]).expect(0);
    let player = player().display().to_string();
    // Ends by itself, whatever becomes of this test.
    let real_time = ["chrt", "--fifo", "98", "timeout", "20", &player, "ticks", "1500"];
    // Real-time tasks leave daemons little time: both jobs are there before one has any.
    let begin = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exec \"$@\"", "sh"];
    let submit = |program: &[&str]| {
        instance.submit(&[&["-n", "2", "-o", "t-%j-%r"], &begin[..], program].concat())
    };
    let one = submit(&real_time);
    let other = submit(&real_time[5..]);
    for job in [one, other] {
        instance.wait_for_state(job, "running");
    }
    std::fs::write(instance.work.join("go"), "").unwrap();
    for job in [one, other] {
        instance.tutti(&["wait", &job.to_string()]).expect(0);
    }
    let switches = instance.switches();
    check_record(&switches);
    assert!(switches.iter().all(|it| it.running.is_empty()), "{switches:?}");
    let turns = turns(&switches, one);
    assert!(turns.len() > 2 && median(turns) == 100_000_000, "{switches:?}");
    let common = overlap(&stretches(&instance, one, 2), &stretches(&instance, other, 2));
    assert_eq!(common, 0, "they ran at the same time");
}
