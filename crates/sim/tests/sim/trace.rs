//! A real log, or a cut of it.

use crate::reference::assert_first_come_first_served;
use crate::scenario::{settings, simulate};
use std::path::{Path, PathBuf};
use tutti_core::ClassName;
use tutti_sim::{Estimates, Job, Machine, Settings, Workload};
use tutti_trace::{Clean, ReadOptions, open};

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

fn fcfs(machine: Machine) -> Settings {
    Settings { machine, ..settings(1, "space:fcfs") }
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
