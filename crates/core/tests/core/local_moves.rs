//! Jobs of one task that go on on another processor of their node.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::matrix;
use tutti_core::{Event, Place};
use tutti_types::{ClusterTime, JobId, JobSpec, NodeId, ProcessorSet, TaskStatus};

/// A node of two processors: a job of one task on each, and a third that takes turns with one.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("migration", 2)]));
    c.join(0, 2);
    (0..3).for_each(|_| assert!(c.try_submit(job(1)).is_some()));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 2@0/1\n2 100ms: 3@0/0 (2@0/1)\n");
    c.advance_ms(1500);
    c
}

fn place(c: &Cluster, job: u64) -> Place {
    c.core.job(JobId(job), ClusterTime(c.now)).unwrap().place
}

#[test]
fn a_job_goes_to_the_processor_that_another_has_left() {
    let mut c = cluster();
    c.finish(JobId(2));
    assert_eq!(place(&c, 3), Place::Home, "another job may come");
    c.advance_ms(100);
    assert_eq!(place(&c, 3), Place::Leaving);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0\n2 -: 3@0/0\n");
    c.arrive();
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 3@0/1\n");
    c.finish(JobId(1));
    c.drain();
}

#[test]
fn a_driver_that_begins_is_asked_again_for_what_an_earlier_one_did_not_do() {
    let mut c = cluster();
    c.finish(JobId(2));
    c.advance_ms(100);
    assert_eq!((place(&c, 3), c.moves.len()), (Place::Leaving, 1));
    c.moves.clear();
    c.event(Event::Began);
    assert_eq!(c.moves.len(), 1);
    c.arrive();
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 3@0/1\n");
}

#[test]
fn a_job_that_was_submitted_meanwhile_has_it() {
    let mut c = cluster();
    c.finish(JobId(2));
    c.submit(job(1));
    c.advance_ms(1000);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 4@0/1\n2 100ms: 3@0/0 (4@0/1)\n");
}

#[test]
fn a_job_moves_once_it_has_settled() {
    let mut c = Cluster::new(params(&[("migration", 2)]));
    c.join(0, 2);
    (0..3).for_each(|_| assert!(c.try_submit(job(1)).is_some()));
    c.finish(JobId(2));
    c.advance_ms(900);
    assert_eq!(place(&c, 3), Place::Home);
    c.advance_ms(200);
    c.arrive();
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 3@0/1\n");
}

#[test]
fn of_many_as_many_move_as_find_a_processor_and_one_stays() {
    let mut c = Cluster::new(params(&[("migration", 2), ("rows", 8)]));
    c.join(0, 4);
    c.submit(job(4));
    c.submit(job(3));
    for _ in 0..3 {
        c.submit(job(1));
    }
    let first = "1 66.666666ms: 1@0/0-3\n";
    assert!(matrix(&c).starts_with("1 "), "{first} {}", matrix(&c));
    c.advance_ms(1500);
    c.finish(JobId(2));
    c.finish(JobId(1));
    c.advance_ms(200);
    c.arrive();
    let rows = matrix(&c);
    assert_eq!(rows.lines().count(), 1, "{rows}");
}

#[test]
fn none_moves_that_could_not_go_on_as_before() {
    let stays = |spec: JobSpec, migration: u64| {
        let mut c = Cluster::new(params(&[("migration", migration)]));
        c.join(0, 2);
        c.submit(job(1));
        c.submit(job(1));
        c.submit(spec);
        c.advance_ms(1500);
        c.finish(JobId(2));
        c.advance_ms(2000);
        c.arrive();
        c.core.rows().count() == 2
    };
    assert!(!stays(job(1), 2));
    assert!(!stays(JobSpec { memory_per_task_bytes: Some(100), ..job(1) }, 2));
    assert!(stays(job(1), 0), "migration is off");
    // Of these, the first one moves in its place.
    let wide = JobSpec { processors_per_task: Some(2), ..job(1) };
    assert!(stays(wide, 2));
}

#[test]
fn none_moves_to_external_load_or_on_a_drained_node() {
    let mut c = cluster();
    let processors = [1].into_iter().collect::<ProcessorSet>();
    c.event(Event::Foreign { node: NodeId(0), processors });
    c.finish(JobId(2));
    c.advance_ms(2000);
    assert_eq!(place(&c, 3), Place::Home);
    assert_eq!(c.core.rows().count(), 2);
    let mut c = cluster();
    c.event(Event::SetDrained { node: NodeId(0), reason: Some(String::new()) });
    c.finish(JobId(2));
    c.advance_ms(2000);
    assert_eq!(c.core.rows().count(), 2);
    assert_eq!(place(&c, 3), Place::Home);
    c.event(Event::SetDrained { node: NodeId(0), reason: None });
    c.advance_ms(100);
    assert_eq!(place(&c, 3), Place::Leaving, "it takes jobs again");
}

#[test]
fn a_node_that_was_out_of_reach_is_looked_at_when_it_is_back() {
    let mut c = cluster();
    c.event(Event::NodeOutOfReach { node: NodeId(0) });
    c.finish(JobId(2));
    c.advance_ms(2000);
    assert_eq!(place(&c, 3), Place::Home);
    c.join(0, 2);
    c.advance_ms(100);
    assert_eq!(place(&c, 3), Place::Leaving);
}

#[test]
fn a_job_that_ends_or_loses_its_node_on_the_way_leaves_no_hold() {
    let mut c = cluster();
    c.finish(JobId(2));
    c.advance_ms(100);
    assert_eq!(place(&c, 3), Place::Leaving);
    c.end_job(JobId(3), TaskStatus::Exited(0));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0\n");
    let mut c = cluster();
    c.finish(JobId(2));
    c.advance_ms(100);
    c.lose(0);
    c.arrive();
    c.deliver_kills();
    assert_eq!(c.core.rows().count(), 0);
}
