//! Jobs that begin no earlier than at a moment.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Begin, Event, Forecast, HeldBy, JobState, SubmitOptions, WaitReason};
use tutti_types::{After, AfterJobs, AfterWhat, ClusterTime, JobId, JobSpec, Nanos, Refusal};

const SECOND: u64 = 1_000_000_000;

/// One row on four processors.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 1)]));
    c.join(0, 4);
    c
}

fn state(c: &Cluster, job: JobId) -> JobState {
    c.core.job(job, ClusterTime(c.now)).unwrap().state
}

fn runs(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Running { .. })
}

fn waits_for_begin(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Queued { why: WaitReason::Begin { unix_ms: 77 }, .. })
}

fn at(c: &Cluster, seconds: u64) -> Begin {
    Begin { at: ClusterTime(c.now) + Nanos::from_secs(seconds), unix_ms: 77 }
}

pub(crate) fn submit_with(c: &mut Cluster, spec: JobSpec, options: SubmitOptions) -> Option<JobId> {
    c.submits(|request| Event::submit(request, spec, options))
}

fn submit(c: &mut Cluster, spec: JobSpec, begin: Begin) -> JobId {
    let options = SubmitOptions { begin: Some(begin), ..SubmitOptions::default() };
    submit_with(c, spec, options).unwrap()
}

#[test]
fn a_job_begins_at_its_moment_and_the_core_asks_to_be_woken_then() {
    let mut c = cluster();
    let begin = at(&c, 3);
    let later = submit(&mut c, job(1), begin);
    let other = c.submit(job(4));
    assert!(waits_for_begin(&c, later) && runs(&c, other), "it is in the way of no other job");
    c.finish(other);
    assert_eq!(c.core.wake_at(), begin.at);
    c.advance(3 * SECOND - 1);
    assert!(!runs(&c, later));
    c.advance(1);
    assert!(runs(&c, later));
    assert_eq!(c.core.begins().count(), 0);
    c.drain();
}

#[test]
fn a_moment_in_the_past_is_now_and_its_place_is_by_arrival() {
    let mut c = cluster();
    let now = at(&c, 0);
    let first = submit(&mut c, job(4), now);
    assert!(runs(&c, first));
    let begin = at(&c, 2);
    let (second, third) = (submit(&mut c, job(4), begin), c.submit(job(4)));
    c.advance(2 * SECOND);
    c.finish(first);
    assert!(runs(&c, second) && !runs(&c, third));
    c.drain();
}

#[test]
fn a_moment_can_be_set_anew_and_is_forgotten_with_its_job() {
    let mut c = cluster();
    let begin = at(&c, 1000);
    let (sooner, cancelled) = (submit(&mut c, job(1), begin), submit(&mut c, job(1), begin));
    c.cancel(cancelled, false);
    assert_eq!(c.core.begins().map(|(job, _)| job).collect::<Vec<_>>(), [sooner]);
    let now = ClusterTime(c.now);
    c.event(Event::SetBegin { job: sooner, at: now + Nanos::from_secs(5) });
    assert!(waits_for_begin(&c, sooner));
    c.event(Event::SetBegin { job: sooner, at: now });
    assert!(runs(&c, sooner));
    // Of a job that runs there is no moment to set.
    c.event(Event::SetBegin { job: sooner, at: now + Nanos::from_secs(5) });
    assert!(runs(&c, sooner) && c.core.begins().count() == 0);
    c.drain();
}

#[test]
fn holds_suspensions_jobs_before_and_the_moment_all_have_to_be_over() {
    let mut c = cluster();
    let (before, by, begin) = (c.submit(job(1)), HeldBy::Owner, at(&c, 2));
    let jobs = vec![After { job: before, what: AfterWhat::Ok }];
    let after = Some(AfterJobs { jobs, ..AfterJobs::default() });
    let options = SubmitOptions { begin: Some(begin), after, ..SubmitOptions::default() };
    let waits = submit_with(&mut c, job(1), options).unwrap();
    c.event(Event::Hold { job: waits, by });
    c.event(Event::Suspend { job: waits });
    c.event(Event::Release { job: waits, by });
    c.event(Event::Resume { job: waits });
    c.event(Event::Hold { job: waits, by });
    c.finish(before);
    c.event(Event::Release { job: waits, by });
    assert!(waits_for_begin(&c, waits));
    c.event(Event::Hold { job: waits, by });
    c.advance(2 * SECOND);
    assert!(!runs(&c, waits));
    c.event(Event::Release { job: waits, by });
    assert!(runs(&c, waits));
    c.drain();
}

#[test]
fn a_forecast_knows_when_it_begins() {
    let mut c = cluster();
    let begin = at(&c, 20);
    let limited = JobSpec { time_limit: Some(Nanos::from_secs(5)), ..job(1) };
    let later = submit(&mut c, limited, begin);
    let mut forecast = Forecast::of_line(&c.core, ClusterTime(c.now));
    while forecast.step() {}
    let foreseen = forecast.jobs(later).next().unwrap().1.clone();
    assert_eq!(foreseen.starts, Some(begin.at));
    c.cancel(later, false);
    c.drain();
}

#[test]
fn no_deadline_is_promised_to_it() {
    let mut c = cluster();
    let hasty = JobSpec { deadline: Some(Nanos::from_secs(9)), ..job(1) };
    let options = SubmitOptions { begin: Some(at(&c, 1)), ..SubmitOptions::default() };
    assert_eq!(submit_with(&mut c, hasty, options), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::DeadlineWithBegin));
}
