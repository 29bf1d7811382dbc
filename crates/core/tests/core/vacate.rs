//! Changes that take a turn from a job which is asked to vacate.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, SubmitOptions};
use tutti_types::{JobId, Nanos, NodeId};

const MS: u64 = 1_000_000;

/// Two rows of slots of 10 ms on two processors.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 2), ("quantum", 10 * MS)]));
    c.join(0, 2);
    c
}

fn submit(c: &mut Cluster, lead: u64) -> JobId {
    let options = SubmitOptions { vacate: Some(Nanos(lead)), ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, job(2), options)).unwrap()
}

/// How long after now the latest timetable takes effect.
fn put_off(c: &Cluster) -> u64 {
    c.core.timetable(NodeId(0)).unwrap().activates.0.saturating_sub(c.now)
}

#[test]
fn a_job_that_is_asked_knows_of_changes_before_they_take_effect() {
    for (lead, expected) in [(2 * MS, 2 * MS), (3600 * 1000 * MS, 5 * MS)] {
        let mut c = cluster();
        let asked = submit(&mut c, lead);
        assert_eq!(put_off(&c), 0, "it starts at once");
        c.advance(100 * MS);
        let other = c.submit(job(2));
        assert_eq!(put_off(&c), expected, "another job comes");
        c.advance(100 * MS);
        c.event(Event::Suspend { job: asked });
        assert_eq!(put_off(&c), expected, "it is suspended");
        c.advance(100 * MS);
        c.event(Event::Resume { job: asked });
        assert_eq!(put_off(&c), 0, "it has turns again");
        c.advance(100 * MS);
        c.finish(asked);
        c.advance(100 * MS);
        c.event(Event::Suspend { job: other });
        assert_eq!(put_off(&c), 0, "it is gone");
    }
}

#[test]
fn a_change_is_not_put_off_for_jobs_that_are_not_asked() {
    let mut c = cluster();
    let first = c.submit(job(2));
    c.advance(100 * MS);
    submit(&mut c, 2 * MS);
    assert_eq!(put_off(&c), 0);
    c.event(Event::Suspend { job: first });
    // It has turns since it was submitted.
    assert_eq!(put_off(&c), 2 * MS);
}

#[test]
fn promised_times_are_not_put_off() {
    let mut c = Cluster::new(params(&[("policy", 3), ("rows", 2), ("quantum", 10 * MS)]));
    c.join(0, 2);
    submit(&mut c, 2 * MS);
    c.advance(100 * MS);
    let spec = tutti_types::JobSpec {
        time_limit: Some(Nanos::from_secs(1)),
        deadline: Some(Nanos::from_secs(60)),
        ..job(2)
    };
    c.submit(spec);
    c.advance(100 * MS);
    c.submit(job(2));
    assert_eq!(put_off(&c), 0);
}
