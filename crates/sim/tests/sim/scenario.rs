//! Machines and jobs in a few words, and what became of them.

use std::convert::Infallible;
use tutti_sim::{
    Estimates, Finished, InOrder, Job, Machine, Settings, Summary, Workload, run, set_policy,
};
use tutti_trace::{Header, Job as Record};
use tutti_types::{ClassName, ClusterTime, Nanos, Params, default_classes};

/// One second.
pub(crate) const S: u64 = 1_000_000_000;

/// A machine of one node under a policy.
pub(crate) fn settings(processors: u32, policy: &str) -> Settings {
    let mut params = Params::default();
    set_policy(&mut params, policy).unwrap();
    // Published schedules are by arrival.
    params.choose("order", "arrival").unwrap();
    Settings::new(Machine::new(1, processors).unwrap(), params)
}

/// The same with a number of rows and a quantum in ns.
pub(crate) fn gang(processors: u32, rows: u64, quantum_ns: u64) -> Settings {
    let mut settings = settings(processors, "gang");
    settings.params.set("rows", rows).unwrap();
    settings.params.set("quantum", quantum_ns).unwrap();
    settings
}

/// A job by submit time, run time and processors, in ns.
pub(crate) fn job(submit_ns: u64, run_ns: u64, processors: u32) -> Job {
    let run = Nanos(run_ns);
    let submit = ClusterTime(submit_ns);
    Job {
        number: 0,
        line: 0,
        submit,
        run,
        estimate: run,
        deadline: None,
        processors,
        class: 0,
        user: 0,
        group: 0,
        queue: None,
        memory: None,
        follows: None,
    }
}

/// Jobs of a model, as they would come of a trace.
pub(crate) fn jobs(records: impl Iterator<Item = Record>) -> impl Iterator<Item = Job> {
    let classes: Vec<ClassName> = default_classes().into_keys().collect();
    let workload = Workload::new(&Header::default(), Estimates::Trace, &classes);
    records.map(move |record| workload.job(&record, 0).unwrap())
}

/// All jobs, in the order of submission, and the figures.
pub(crate) fn simulate(
    settings: &Settings,
    jobs: impl IntoIterator<Item = Job>,
) -> (Vec<Finished>, Summary) {
    let mut finished = Vec::new();
    let mut summary = Summary::new(settings.machine.processors(), None);
    let mut in_order = InOrder::new(|job: &Finished| {
        finished.push(*job);
        Ok(())
    });
    let jobs = jobs.into_iter().map(Ok::<_, Infallible>);
    run(settings, jobs, &mut (&mut summary, &mut in_order)).unwrap();
    in_order.finish().unwrap();
    (finished, summary)
}

/// When jobs end, in ns.
pub(crate) fn ends(settings: &Settings, jobs: &[Job]) -> Vec<u64> {
    simulate(settings, jobs.iter().copied()).0.iter().map(|job| job.end.0).collect()
}
