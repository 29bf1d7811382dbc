//! Jobs that start after others.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, HeldBy, JobState, SubmitOptions, WaitReason};
use tutti_types::{
    After, AfterJobs, AfterWhat, ClusterTime, EndReason, JobId, JobSpec, Nanos, Refusal, TaskStatus,
};

/// One row on four processors.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 1)]));
    c.join(0, 4);
    c
}

fn why(c: &Cluster, job: JobId) -> Option<WaitReason> {
    match c.core.job(job, ClusterTime(c.now))?.state {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

fn runs(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, ClusterTime(c.now));
    view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
}

fn after(jobs: &[(JobId, AfterWhat)]) -> AfterJobs {
    let jobs = jobs.iter().map(|&(job, what)| After { job, what }).collect();
    AfterJobs { jobs, ..AfterJobs::default() }
}

fn submit(c: &mut Cluster, spec: JobSpec, after: AfterJobs) -> Option<JobId> {
    let options = SubmitOptions { after: Some(after), ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options))
}

/// A job of one task that starts after one.
fn one(c: &mut Cluster, before: JobId, what: AfterWhat) -> JobId {
    submit(c, job(1), after(&[(before, what)])).unwrap()
}

fn fail(c: &mut Cluster, job: JobId) {
    c.end_tasks(job, TaskStatus::Exited(3));
    c.deliver_kills();
    c.clear(job);
}

#[test]
fn a_job_starts_when_the_one_before_has_become_what_it_asks() {
    use AfterWhat::{Any, NotOk, Ok, Start};
    for ok in [true, false] {
        let mut c = cluster();
        let before = c.submit(job(1));
        let [well, badly, ended, started] =
            [Ok, NotOk, Any, Start].map(|it| one(&mut c, before, it));
        assert!(runs(&c, started), "the job before runs");
        let what = After { job: before, what: Ok };
        assert_eq!(why(&c, well), Some(WaitReason::After { after: what, more: 0, one: false }));
        if ok {
            c.finish(before);
        } else {
            fail(&mut c, before);
        }
        assert!(runs(&c, ended));
        let (starts, never) = if ok { (well, badly) } else { (badly, well) };
        assert!(runs(&c, starts));
        assert_eq!(c.outcomes[&never].reason, EndReason::NeverAfter(before));
        assert_eq!(c.outcomes[&never].exit_code, 120);
        c.drain();
    }
}

#[test]
fn all_jobs_are_needed_or_one_of_them() {
    let mut c = cluster();
    let [a, b] = [0; 2].map(|_| c.submit(job(1)));
    let jobs = after(&[(a, AfterWhat::Ok), (b, AfterWhat::Ok)]);
    let both = submit(&mut c, job(1), jobs.clone()).unwrap();
    let either = submit(&mut c, job(1), AfterJobs { one: true, ..jobs }).unwrap();
    c.finish(a);
    assert!(runs(&c, either) && !runs(&c, both));
    c.finish(b);
    assert!(runs(&c, both));
    // One of two fails: the other may still be so.
    let [a, b] = [0; 2].map(|_| c.submit(job(1)));
    let jobs = after(&[(a, AfterWhat::Ok), (b, AfterWhat::Ok)]);
    let both = submit(&mut c, job(1), jobs.clone()).unwrap();
    let either = submit(&mut c, job(1), AfterJobs { one: true, ..jobs }).unwrap();
    fail(&mut c, a);
    assert_eq!(c.outcomes[&both].reason, EndReason::NeverAfter(a));
    assert!(why(&c, either).is_some());
    fail(&mut c, b);
    assert_eq!(c.outcomes[&either].reason, EndReason::NeverAfter(b));
    c.drain();
}

#[test]
fn a_chain_ends_to_its_last_job_when_the_first_fails() {
    let mut c = cluster();
    let first = c.submit(job(1));
    let mut last = first;
    for _ in 0..300 {
        last = one(&mut c, last, AfterWhat::Ok);
    }
    let clean_up = one(&mut c, last, AfterWhat::Any);
    fail(&mut c, first);
    assert_eq!(c.outcomes[&last].reason, EndReason::NeverAfter(JobId(last.0 - 1)));
    assert!(runs(&c, clean_up));
    c.drain();
}

#[test]
fn a_job_that_is_to_stay_waits_until_it_is_cancelled() {
    let mut c = cluster();
    let before = c.submit(job(1));
    let jobs = AfterJobs { stays: true, ..after(&[(before, AfterWhat::Ok)]) };
    let stays = submit(&mut c, job(1), jobs).unwrap();
    fail(&mut c, before);
    assert_eq!(why(&c, stays), Some(WaitReason::NeverAfter { job: before }));
    // Its own end is one, too.
    let next = one(&mut c, stays, AfterWhat::Any);
    c.cancel(stays, false);
    assert!(runs(&c, next));
    c.drain();
}

#[test]
fn a_job_that_waits_is_out_of_line_beside_holds_and_suspensions() {
    let mut c = cluster();
    let before = c.submit(job(4));
    let waits = one(&mut c, before, AfterWhat::Ok);
    let by = HeldBy::Owner;
    c.event(Event::Hold { job: waits, by });
    c.event(Event::Release { job: waits, by });
    c.event(Event::Suspend { job: waits });
    c.event(Event::Resume { job: waits });
    assert!(matches!(why(&c, waits), Some(WaitReason::After { .. })));
    c.event(Event::Hold { job: waits, by });
    c.finish(before);
    assert_eq!(why(&c, waits), Some(WaitReason::Held { by }));
    c.event(Event::Release { job: waits, by });
    assert!(runs(&c, waits));
    c.drain();
}

#[test]
fn its_place_in_line_is_by_arrival() {
    let mut c = cluster();
    let before = c.submit(job(4));
    let waits = submit(&mut c, job(4), after(&[(before, AfterWhat::Any)])).unwrap();
    let later = c.submit(job(4));
    c.finish(before);
    assert!(runs(&c, waits) && !runs(&c, later));
    c.drain();
}

#[test]
fn what_can_not_be_asked_is_refused() {
    let mut c = cluster();
    let before = c.submit(job(1));
    assert_eq!(submit(&mut c, job(1), after(&[(JobId(99), AfterWhat::Ok)])), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::AfterNone { job: JobId(99) }));
    let hasty = JobSpec { deadline: Some(Nanos::from_secs(9)), ..job(1) };
    assert_eq!(submit(&mut c, hasty, after(&[(before, AfterWhat::Ok)])), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::DeadlineAfterJobs));
    let many: Vec<_> = (0..300).map(|_| (before, AfterWhat::Ok)).collect();
    assert_eq!(submit(&mut c, job(1), after(&many)), None);
    c.drain();
}

#[test]
fn a_job_starts_so_long_after_another_has_started() {
    const DELAY: Nanos = Nanos::from_secs(300);
    let later = AfterWhat::StartPlus(DELAY);
    let mut c = cluster();
    let before = c.submit(job(1));
    let [next, last] = [0; 2].map(|_| one(&mut c, before, later));
    let what = After { job: before, what: later };
    assert_eq!(why(&c, next), Some(WaitReason::After { after: what, more: 0, one: false }));
    // What becomes of the job before changes nothing.
    c.advance(DELAY.0 / 2);
    fail(&mut c, before);
    assert!(!runs(&c, next));
    c.cancel(last, false);
    c.advance(DELAY.0 / 2 + 1);
    assert!(runs(&c, next) && c.outcomes.contains_key(&last));
    // One that ends without a start counts from its end.
    let options = SubmitOptions { hold: Some(HeldBy::Owner), ..SubmitOptions::default() };
    let held = c.submits(|request| Event::submit(request, job(1), options)).unwrap();
    let next = one(&mut c, held, later);
    c.advance(DELAY.0);
    assert!(!runs(&c, next));
    c.cancel(held, false);
    c.advance(DELAY.0 + 1);
    assert!(runs(&c, next));
    // Both are needed.
    let [a, b] = [0; 2].map(|_| c.submit(job(1)));
    let both = after(&[(a, later), (b, AfterWhat::Ok)]);
    let both = submit(&mut c, job(1), both).unwrap();
    c.finish(b);
    assert!(!runs(&c, both));
    c.advance(DELAY.0 + 1);
    assert!(runs(&c, both));
    c.drain();
}
