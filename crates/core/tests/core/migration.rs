//! Jobs that go on on other processors: matrices worked out by hand.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::matrix;
use tutti_core::{Event, Place};
use tutti_types::{ClusterTime, JobId, JobSpec, NodeId, TaskStatus};

/// Nodes of these widths; jobs of so many tasks, numbered from 1, that may all move.
fn cluster(widths: &[u32], values: &[(&str, u64)], tasks: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    let params = params(&[&[("migration", 1), ("rows", 3)], values].concat());
    cluster.event(Event::SetParams { params });
    for &tasks in tasks {
        cluster.submit(JobSpec { movable: true, ..job(tasks) });
    }
    cluster
}

fn place(c: &Cluster, job: u64) -> Place {
    c.core.job(JobId(job), ClusterTime(c.now)).unwrap().place
}

#[test]
fn a_row_is_emptied_when_its_homes_fit_elsewhere_on_other_processors() {
    let mut c = cluster(&[4], &[], &[2, 2, 2]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@0/2-3\n2 100ms: 3@0/0-1 (2@0/2-3)\n");
    c.finish(JobId(2));
    // On its own processors, the third can't get into row 1.
    assert_eq!(place(&c, 3), Place::Leaving);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 -: 3@0/0-1\n");
    // The place is kept: the fourth does not get it.
    let fourth = c.submit(job(2));
    assert_eq!(c.core.job(fourth, ClusterTime(c.now)).unwrap().row.unwrap().0, 2);
    c.arrive();
    assert_eq!(place(&c, 3), Place::Home);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 3@0/2-3\n2 100ms: 4@0/2-3 (1@0/0-1)\n");
}

#[test]
fn nobody_goes_who_may_not_or_if_the_row_would_not_be_empty() {
    let mut c = cluster(&[4], &[("migration", 0)], &[2, 2, 2]);
    c.finish(JobId(2));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 3@0/0-1\n", "migration is off");
    let mut c = cluster(&[4], &[], &[]);
    (0..3).for_each(|_| assert!(c.try_submit(job(2)).is_some()));
    c.finish(JobId(2));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 3@0/0-1\n", "they are not movable");
    let mut c = cluster(&[4], &[], &[3, 1, 2, 2]);
    c.finish(JobId(2));
    // One processor is free in row 1, and each of the two others needs two.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2\n2 100ms: 3@0/0-1 4@0/2-3\n");
}

#[test]
fn two_jobs_that_can_run_beside_each_other_do_even_if_one_may_not_move() {
    let mut c = cluster(&[4], &[], &[2, 2]);
    c.submit(job(2));
    c.finish(JobId(2));
    assert_eq!(place(&c, 1), Place::Leaving, "the third can't go to row 1");
    c.arrive();
    assert_eq!(matrix(&c), "2 100ms: 1@0/2-3 3@0/0-1\n");
}

#[test]
fn a_job_goes_to_where_it_has_turns_as_a_guest() {
    let mut c = cluster(&[6], &[], &[3, 2, 1, 4]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/3-4 3@0/5\n2 100ms: 4@0/0-3 (3@0/5)\n");
    c.finish(JobId(3));
    // Job 2 overlaps with job 4, and with the processor that came free it could be its guest but
    // for one; so no job moves.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/3-4\n2 100ms: 4@0/0-3\n");
    let mut c = cluster(&[7], &[], &[3, 2, 2, 4]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/3-4 3@0/5-6\n2 100ms: 4@0/0-3 (3@0/5-6)\n");
    c.finish(JobId(3));
    assert_eq!(place(&c, 2), Place::Leaving);
    c.arrive();
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/5-6\n2 100ms: 4@0/0-3 (2@0/5-6)\n");
}

#[test]
fn whoever_finds_its_place_gone_stays_where_it_was() {
    let mut c = cluster(&[2, 2], &[], &[2, 2, 2]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@1/0-1\n2 100ms: 3@0/0-1 (2@1/0-1)\n");
    c.finish(JobId(2));
    c.lose(1);
    c.arrive();
    assert_eq!(place(&c, 3), Place::Home);
    assert_eq!(c.core.rows().count(), 2);
    let mut c = cluster(&[2, 2], &[], &[2, 2, 2]);
    c.finish(JobId(2));
    c.end_task(JobId(3), 0, TaskStatus::Exited(0));
    c.arrive();
    assert_eq!(c.core.parts(JobId(3))[0].node, NodeId(0), "a part of it has ended");
    let mut c = cluster(&[2, 2], &[], &[2, 2, 2]);
    c.finish(JobId(2));
    c.end_job(JobId(3), TaskStatus::Exited(0));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n");
}

#[test]
fn several_homes_go_together_or_not_at_all() {
    let mut c = cluster(&[8], &[], &[2, 6, 4, 4]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@0/2-7\n2 100ms: 3@0/0-3 4@0/4-7\n");
    c.finish(JobId(2));
    assert_eq!(c.moves.len(), 0, "six are free, and eight are needed");
    let mut c = cluster(&[8], &[("packing", 1)], &[2, 6, 3, 3]);
    c.finish(JobId(2));
    // By best fit, row 1 is emptied instead: it has the fewest taken.
    c.arrive();
    assert_eq!(matrix(&c), "2 100ms: 1@0/6-7 3@0/0-2 4@0/3-5\n");
}
