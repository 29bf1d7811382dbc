//! A real log, or a cut of it.

use crate::easy::{ORDERS, assert_backfilled};
use crate::reference::assert_first_come_first_served;
use crate::scenario::{settings, simulate};
use std::path::{Path, PathBuf};
use tutti_sim::{Estimates, Job, Machine, Settings, Workload};
use tutti_trace::{Clean, ReadOptions, open};
use tutti_types::{ClassName, Nanos};

fn kth() -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    data.join("kth-sp2-1996-2-cut.swf")
}

/// The usable jobs of a trace, and its machine.
fn read(path: &Path) -> (Vec<Job>, Machine) {
    let reader = open(path, ReadOptions::default()).unwrap();
    let machine = Machine::of_header(reader.header()).unwrap().unwrap();
    let workload = Workload::new(reader.header(), Estimates::Trace, &[ClassName::new("all")]);
    let clean = Clean::new(reader, machine.processors());
    let jobs = clean.map(|job| workload.job(job.unwrap().record(), 0).unwrap());
    (jobs.collect(), machine)
}

fn under(policy: &str, machine: Machine) -> Settings {
    Settings { machine, ..settings(1, policy) }
}

fn fcfs(machine: Machine) -> Settings {
    under("space:fcfs", machine)
}

#[test]
fn a_log_is_served_first_come_first_served() {
    let (jobs, machine) = read(&kth());
    assert_eq!((jobs.len(), machine.processors()), (350, 100));
    assert_first_come_first_served(&fcfs(machine), &jobs);
}

/// `TUTTI_TRACES=DIR cargo test --release -p tutti-sim -- --ignored`: every log of a directory.
#[test]
#[ignore = "needs whole logs, which are not part of the repository"]
fn whole_logs_are_served_first_come_first_served() {
    let directory = std::env::var_os("TUTTI_TRACES").expect("TUTTI_TRACES names a directory");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gz" || extension == "swf") {
            let (jobs, machine) = read(&path);
            println!("{}: {} jobs", path.display(), jobs.len());
            assert_first_come_first_served(&fcfs(machine), &jobs);
        }
    }
}

#[test]
fn a_log_is_backfilled_job_by_job() {
    let (jobs, machine) = read(&kth());
    for order in ORDERS {
        assert_backfilled(&Settings { order, ..under("space:easy", machine) }, &jobs);
    }
}

/// As above.
#[test]
#[ignore = "needs whole logs, which are not part of the repository"]
fn whole_logs_are_backfilled_job_by_job() {
    let directory = std::env::var_os("TUTTI_TRACES").expect("TUTTI_TRACES names a directory");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gz" || extension == "swf") {
            let (jobs, machine) = read(&path);
            for order in ORDERS {
                println!("{}: {} jobs, {order:?}", path.display(), jobs.len());
                assert_backfilled(&Settings { order, ..under("space:easy", machine) }, &jobs);
            }
        }
    }
}

#[test]
fn turns_with_one_row_are_no_turns() {
    let (jobs, machine) = read(&kth());
    let mut means = Vec::new();
    for discipline in ["fcfs", "easy", "sjbf", "conservative"] {
        let space = under(&format!("space:{discipline}"), machine);
        let mut gang = under(&format!("gang:{discipline}"), machine);
        gang.params.set("rows", 1).unwrap();
        let (finished, summary) = simulate(&space, jobs.iter().copied());
        assert_eq!(finished, simulate(&gang, jobs.iter().copied()).0, "{discipline}");
        means.push(summary.results().response_s.mean);
    }
    assert!(means[0] > means[1] && means[1] > means[2], "each lets more pass: {means:?}");
}

/// Published by Gaussier, Glesser, Reis and Trystram (2015) for the filtered log: mean response in
/// seconds, mean bounded slowdown. Needs the log, as above.
#[test]
#[ignore = "needs a whole log, which is not part of the repository"]
fn backfilling_gives_the_published_means() {
    let directory = std::env::var_os("TUTTI_TRACES").expect("TUTTI_TRACES names a directory");
    let (jobs, machine) = read(&Path::new(&directory).join("KTH-SP2-1996-2.swf.gz"));
    let factor = |of: fn(&Job) -> u64| {
        jobs.iter().map(move |job| Job { estimate: Nanos(of(job)), ..*job }).collect::<Vec<Job>>()
    };
    let told = factor(|job| job.estimate.0);
    let exact = factor(|job| job.run.0.min(job.estimate.0));
    let doubled = factor(|job| 2 * job.estimate.0);
    for (policy, jobs, response, slowdown) in [
        ("space:easy", &told, "15696.798", "92.5765"),
        ("space:easy", &exact, "15187.608", "71.7224"),
        ("space:easy", &doubled, "14900.169", "79.9303"),
        ("space:sjbf", &told, "14764.003", "69.4054"),
        ("space:sjbf", &doubled, "14063.918", "58.9125"),
    ] {
        let results = simulate(&under(policy, machine), jobs.iter().copied()).1.results();
        let found =
            [format!("{:.3}", results.response_s.mean), format!("{:.4}", results.slowdown.mean)];
        assert_eq!(found, [response, slowdown], "{policy}");
    }
}

#[test]
fn utilisation_is_work_over_machine_time() {
    let (jobs, machine) = read(&kth());
    let (finished, summary) = simulate(&fcfs(machine), jobs.iter().copied());
    let work: f64 = jobs.iter().map(|it| it.need().0 as f64 * f64::from(it.processors)).sum();
    let span = finished.iter().map(|job| job.end.0).max().unwrap() - jobs[0].submit.0;
    let expected = work / (span as f64 * 100.0);
    assert!((summary.utilisation() - expected).abs() < 1e-12);
    assert_eq!(summary.makespan_s(), span as f64 / 1e9);
    assert_eq!((summary.left(), summary.switches(), summary.results().preemptions), (0, 0, 0));
}
