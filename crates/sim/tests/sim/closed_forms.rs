//! Queues whose means are known exactly.
//!
//! Each mean is measured in independent runs (batches) from seeds of their own, and must lie within
//! three and a half standard errors of the exact value. A run's first jobs, which find the machine
//! empty, don't count.

use crate::scenario::{S, ends, gang, job, jobs, settings, simulate};
use tutti_sim::{Finished, Settings};
use tutti_trace::model::{Estimates, Poisson, PoissonModel, Service, Sizes};
use tutti_types::Nanos;

const BATCHES: u64 = 20;
const JOBS: usize = 2_000;
/// Jobs at the beginning of each batch that don't count.
const WARM_UP: usize = 200;
const MEAN_S: f64 = 10.0;

/// Jobs of the same size.
fn model(machine: u32, size: u32, service: Service, load: f64) -> PoissonModel {
    let model = PoissonModel {
        machine_processors: machine,
        arrival_mean_s: 1.0,
        service,
        sizes: Sizes::Fixed(size),
        estimates: Estimates::Exact,
    };
    model.with_load(load)
}

/// A mean, with its standard error.
type Mean = (f64, f64);

/// The mean of `of` over all batches.
fn measure(settings: &Settings, model: &PoissonModel, of: fn(&Finished) -> f64) -> Mean {
    let [mean] = measure_all(settings, model, [of]);
    mean
}

fn measure_all<const N: usize>(
    settings: &Settings,
    model: &PoissonModel,
    of: [fn(&Finished) -> f64; N],
) -> [Mean; N] {
    let batches: Vec<Vec<Finished>> = (1..=BATCHES)
        .map(|seed| {
            let records = Poisson::new(model.clone(), seed).unwrap().take(JOBS);
            simulate(settings, jobs(records)).0
        })
        .collect();
    of.map(|of| {
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let batch = |jobs: &Vec<Finished>| mean(jobs[WARM_UP..].iter().map(of).collect());
        let means: Vec<f64> = batches.iter().map(batch).collect();
        let center = mean(means.clone());
        let variance: f64 = means.iter().map(|it| (it - center).powi(2)).sum();
        let count = BATCHES as f64;
        (center, (variance / (count - 1.0) / count).sqrt())
    })
}

#[track_caller]
fn assert_mean((mean, error): Mean, exact: f64) {
    let allowed = 3.5 * error;
    assert!((mean - exact).abs() <= allowed, "{mean} +- {error}, exactly {exact}");
    // A test that allows everything tests nothing.
    assert!(error < 0.05 * exact, "{mean} +- {error} is too rough");
}

fn response_s(job: &Finished) -> f64 {
    job.response().0 as f64 / 1e9
}

/// A mean wait near zero is measured roughly; beside a mean run time it need not be finer.
fn wait_s_and_mean(job: &Finished) -> f64 {
    job.wait().0 as f64 / 1e9 + MEAN_S
}

/// Of jobs that are not far longer than a quantum, the turn that they are missed by counts too
/// much.
fn slowdown(job: &Finished) -> f64 {
    const EXPECTED: f64 = 1.0 / (1.0 - 0.6);
    let is_long = job.job.run.0 > 100 * SHORT_QUANTUM;
    if is_long { job.response().0 as f64 / job.job.run.0 as f64 } else { EXPECTED }
}

const EXPONENTIAL: Service = Service::Exponential { mean_s: MEAN_S };
const HYPER: Service = Service::HyperExponential { mean_s: MEAN_S, scv: 4.0 };
/// The shortest there is.
const SHORT_QUANTUM: u64 = 2_000_000;

#[test]
fn small_turns_are_processor_sharing_whatever_the_distribution() {
    let load = 0.6;
    let settings = gang(4, 1_024, SHORT_QUANTUM);
    for service in [EXPONENTIAL, HYPER] {
        let model = model(4, 4, service, load);
        let [response, slowdown] = measure_all(&settings, &model, [response_s, slowdown]);
        assert_mean(response, MEAN_S / (1.0 - load));
        assert_mean(slowdown, 1.0 / (1.0 - load));
    }
}

#[test]
fn the_limit_on_slots_does_not_matter_for_exponential_service() {
    let load = 0.6;
    let model = model(4, 4, EXPONENTIAL, load);
    for rows in [1, 2, 5] {
        assert_mean(measure(&gang(4, rows, S / 10), &model, response_s), MEAN_S / (1.0 - load));
    }
}

#[test]
fn more_slots_help_when_run_times_vary() {
    let model = model(4, 4, HYPER, 0.6);
    let response = |rows| measure(&gang(4, rows, S / 10), &model, response_s);
    // M/G/1 first come first served: Pollaczek and Khinchine.
    let wait_s = 0.6 / 0.4 * MEAN_S * (1.0 + 4.0) / 2.0;
    let [one, two, five] = [1, 2, 5].map(response);
    assert_mean(one, MEAN_S + wait_s);
    assert!(one.0 > two.0 + two.1 && two.0 > five.0 + five.1, "{one:?} {two:?} {five:?}");
}

/// Switches cost a part `lost` of every turn, but not of a job that is alone. So the number of jobs
/// is a birth and death process: one job is served at the whole rate, more at the rest of it. With
/// `a` the load at the whole rate and `b` at the rest, P(n) = P(0) a b^(n-1).
#[test]
fn switches_that_cost_time_act_as_load() {
    let (quantum, cost) = (S / 10, S / 50);
    let lost = cost as f64 / quantum as f64;
    let load = 0.6;
    let settings = Settings { switch_cost: Nanos(cost), ..gang(4, 1_024, quantum) };
    let (a, b) = (load, load / (1.0 - lost));
    let nobody = 1.0 / (1.0 + a / (1.0 - b));
    let jobs_mean = nobody * a / (1.0 - b).powi(2);
    let exact = jobs_mean * MEAN_S / load;
    assert_mean(measure(&settings, &model(4, 4, EXPONENTIAL, load), response_s), exact);
    // As seen from afar: load x (useful + cost) / useful, but for the times when a job is alone.
    let as_load = MEAN_S / (1.0 - lost) / (1.0 - b);
    assert!(exact < as_load && exact > 0.9 * as_load, "{exact} {as_load}");
}

/// Erlang's C: how likely it is that an arrival finds all processors busy.
fn erlang_c(processors: u32, load: f64) -> f64 {
    let offered = load * f64::from(processors);
    let mut blocked = 1.0;
    for n in 1..=processors {
        blocked = offered * blocked / (f64::from(n) + offered * blocked);
    }
    blocked / (1.0 - load * (1.0 - blocked))
}

#[test]
fn one_processor_jobs_wait_as_erlang_says() {
    for (processors, load) in [(1, 0.6), (4, 0.7), (16, 0.8)] {
        let busy = erlang_c(processors, load);
        let exact = busy * MEAN_S / (f64::from(processors) * (1.0 - load));
        let model = model(processors, 1, EXPONENTIAL, load);
        let settings = settings(processors, "space:fcfs");
        assert_mean(measure(&settings, &model, wait_s_and_mean), MEAN_S + exact);
    }
}

#[test]
fn equal_jobs_end_one_quantum_after_another() {
    let (run, quantum) = (12 * S, S);
    for count in 1..=6u64 {
        let jobs: Vec<_> = (0..count).map(|_| job(0, run, 4)).collect();
        let expected: Vec<u64> = (1..=count).map(|i| count * run - (count - i) * quantum).collect();
        assert_eq!(ends(&gang(4, count, quantum), &jobs), expected, "{count} jobs");
    }
}

#[test]
fn two_halves_and_a_whole() {
    let run = 12 * S;
    let jobs = [job(0, run, 2), job(0, run, 2), job(0, run, 4)];
    assert_eq!(ends(&settings(4, "space:fcfs"), &jobs), [run, run, 2 * run]);
    let turns = ends(&gang(4, 2, S), &jobs);
    assert_eq!(turns, [2 * run - S, 2 * run - S, 2 * run]);
}
