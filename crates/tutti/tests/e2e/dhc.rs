//! The policy `dhc`: blocks, rounds, and what they guarantee, on eight nodes of one processor each;
//! what a node decides alone, on one.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually, within};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

/// Spins, and says by which process.
const SPIN: &str = "echo $$ > pid.$TUTTI_JOB.$TUTTI_NODE_RANK; while :; do :; done";

/// How far the part of a job in the processor time of a node may be from what its slots are of a
/// round. Nodes share the machine's processors, so what each gets of them varies.
const BOUND: f64 = 0.06;

/// How long is measured before and after the restart, in clock ticks of processor time on a node.
const TICKS: u64 = 200;

fn submit(bed: &Bed, tasks: usize) -> String {
    let tasks = tasks.to_string();
    let job = ["submit", "--parsable", "-n", &tasks, "-o", "/dev/null", "--", "sh", "-c", SPIN];
    bed.tutti(1, &job).expect(0).text().trim().to_owned()
}

/// The nodes of a job, once it runs.
fn nodes(bed: &Bed, job: &str) -> Vec<String> {
    eventually("it runs", || {
        let told = bed.tutti(1, &["ps", "--json", job]).expect(0).json();
        if told[0]["state"] != "running" {
            return None;
        }
        let places = told[0]["placement"].as_array()?.iter();
        Some(places.map(|it| it.as_str().unwrap().split(':').next().unwrap().to_owned()).collect())
    })
}

/// The processor time of a task so far, in clock ticks.
fn ticks(bed: &Bed, job: &str, rank: usize) -> Option<u64> {
    let file = bed.audit.work.join(format!("pid.{job}.{rank}"));
    let pid = std::fs::read_to_string(file).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
}

/// The parts that jobs had of the processor time of each node, from now on until each node has
/// given enough.
fn parts(bed: &Bed, jobs: &BTreeMap<String, Vec<String>>) -> BTreeMap<(String, String), f64> {
    let now = || {
        let tasks = jobs.iter().flat_map(|(job, nodes)| {
            nodes.iter().enumerate().map(move |(rank, node)| (job.clone(), rank, node.clone()))
        });
        let of = |(job, rank, node): (String, usize, String)| {
            Some(((node, job.clone()), ticks(bed, &job, rank)?))
        };
        tasks.map(of).collect::<Option<BTreeMap<(String, String), u64>>>()
    };
    let before = eventually("all tasks have begun", now);
    // As much as other tests leave over.
    within(Duration::from_secs(120), "each node has given its time", || {
        let passed: BTreeMap<(String, String), u64> =
            now()?.into_iter().map(|(key, ticks)| (key.clone(), ticks - before[&key])).collect();
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for ((node, _), ticks) in &passed {
            *sums.entry(node).or_default() += ticks;
        }
        if sums.values().any(|&sum| sum < TICKS) {
            std::thread::sleep(Duration::from_millis(200));
            return None;
        }
        let part = |((node, job), ticks): (&(String, String), &u64)| {
            ((node.clone(), job.clone()), *ticks as f64 / sums[node.as_str()] as f64)
        };
        Some(passed.iter().map(part).collect())
    })
}

/// Each job has its slot in each round: one of five. The one on all nodes has no more.
fn check(parts: &BTreeMap<(String, String), f64>, widest: &str) {
    // On the last node two jobs are never there, so the parts are of less than a round.
    for ((node, job), part) in parts.iter().filter(|((node, _), _)| node != "n8") {
        assert!(*part >= 0.2 - BOUND, "job {job} has {part} of {node}: {parts:?}");
        let is_exact = job != widest || *part <= 0.2 + BOUND;
        assert!(is_exact, "job {job} has {part} of {node}: {parts:?}");
    }
}

#[test]
fn each_job_has_its_part_of_each_round_over_a_restart_of_the_controller() {
    let _alone = Instance::alone();
    let bed = Bed::up_with_processors(8, 1);
    bed.tutti(1, &["params", "policy=dhc", "quantum=100ms"]).expect(0);
    let all: Vec<String> = [8, 4, 4, 4, 2, 1].map(|tasks| submit(&bed, tasks)).into();
    let jobs: BTreeMap<String, Vec<String>> =
        all.iter().map(|job| (job.clone(), nodes(&bed, job))).collect();
    let begins: Vec<&str> = all.iter().map(|job| jobs[job][0].as_str()).collect();
    // Blocks of four in turn; then what is free of others of its level, and of load.
    assert_eq!(begins, ["n1", "n1", "n5", "n1", "n5", "n7"], "{jobs:?}");
    check(&parts(&bed, &jobs), &all[0]);
    let controller = bed.node(1).daemon("controller").unwrap();
    bed.node(1).signal("controller", Signal::SIGKILL).unwrap();
    check(&parts(&bed, &jobs), &all[0]);
    eventually("there is another controller", || {
        bed.node(1).daemon("controller").filter(|&new| new != controller)
    });
    // It knows how loaded blocks are: two jobs take turns in the first block of four.
    let next = submit(&bed, 4);
    assert_eq!(nodes(&bed, &next)[0], "n5");
    let after: BTreeMap<String, Vec<String>> =
        all.iter().map(|job| (job.clone(), nodes(&bed, job))).collect();
    assert_eq!(after, jobs);
    let cancel: Vec<&str> = ["cancel", "--now"]
        .into_iter()
        .chain(all.iter().map(String::as_str))
        .chain([next.as_str()])
        .collect();
    bed.tutti(1, &cancel).expect(0);
}

/// The classes of a node's timetable: name, part in thousandths, and what it had. Nothing while the
/// node has no agent.
fn classes(bed: &Bed) -> Vec<(String, u64, u64)> {
    let asked = bed.tutti(1, &["nodes", "--timetable", "n1", "--json"]);
    if asked.code != 0 {
        return Vec::new();
    }
    let told = asked.json();
    let class = |it: &serde_json::Value| {
        let name = it["class"].as_str().unwrap_or("-").to_owned();
        (name, it["part_milli"].as_u64().unwrap(), it["had_ns"].as_u64().unwrap())
    };
    told["classes"].as_array().unwrap().iter().map(class).collect()
}

#[test]
fn a_node_alone_divides_what_a_job_leaves_by_the_shares_of_classes() {
    let _alone = Instance::alone();
    let bed = Bed::up_with_processors(1, 1);
    bed.tutti(1, &["params", "policy=dhc", "quantum=100ms"]).expect(0);
    let shares = [("interactive", "60%"), ("production", "30%"), ("standby", "10%")];
    let mut jobs = BTreeMap::new();
    for (class, share) in shares {
        bed.tutti(1, &["params", "--class", class, &format!("share={share}")]).expect(0);
        let job = ["submit", "--parsable", "--class", class, "-n", "1", "-o", "/dev/null"];
        let job = bed.tutti(1, &[&job[..], &["--", "sh", "-c", SPIN]].concat()).expect(0);
        let job = job.text().trim().to_owned();
        let places = nodes(&bed, &job);
        jobs.insert(job, places);
    }
    let names: Vec<String> = jobs.keys().cloned().collect();
    let [ended, second, third] = &names[..] else { panic!("{names:?}") };
    let got = parts(&bed, &jobs);
    let part = |got: &BTreeMap<(String, String), f64>, job: &str| got[&("n1".into(), job.into())];
    assert!((part(&got, ended) - 0.6).abs() < BOUND, "{got:?}");
    let told = classes(&bed);
    let named: Vec<(&str, u64)> = told.iter().map(|it| (it.0.as_str(), it.1)).collect();
    assert_eq!(named, [("interactive", 600), ("production", 300), ("standby", 100)]);
    assert!(told.iter().all(|it| it.2 > 0), "{told:?}");
    // The controller hears nothing of the end, so the slots stay as they are.
    bed.node(1).signal("controller", Signal::SIGSTOP).unwrap();
    let pid = std::fs::read_to_string(bed.audit.work.join(format!("pid.{ended}.0"))).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    jobs.remove(ended);
    eventually("it has ended", || ticks(&bed, ended, 0).is_none().then_some(()));
    let got = parts(&bed, &jobs);
    assert!((part(&got, second) - 0.75).abs() < BOUND, "{got:?}");
    assert!((part(&got, third) - 0.25).abs() < BOUND, "{got:?}");
    bed.node(1).signal("controller", Signal::SIGCONT).unwrap();
    // What a node keeps comes again with its timetable.
    let agent = bed.node(1).daemon("agent").unwrap();
    bed.node(1).signal("agent", Signal::SIGKILL).unwrap();
    eventually("there is another agent", || {
        bed.node(1).daemon("agent").filter(|&new| new != agent)
    });
    let told = eventually("it knows the classes", || {
        let told = classes(&bed);
        (told.len() == 2 && told.iter().all(|it| it.2 > 0)).then_some(told)
    });
    assert_eq!((told[0].1, told[1].1), (750, 250), "{told:?}");
    bed.tutti(1, &["cancel", "--now", second, third]).expect(0);
}
