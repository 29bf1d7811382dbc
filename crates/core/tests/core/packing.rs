//! Which row a job joins, and where: matrices worked out by hand.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::{matrix, why};
use tutti_core::{Event, WaitReason};
use tutti_types::{JobId, JobSpec};

const FIRST_FIT: u64 = 0;
const BEST_FIT: u64 = 1;
const BUDDY: u64 = 2;

/// Nodes of these widths, and so many rows.
fn cluster(packing: u64, rows: u64, widths: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    let params = params(&[("packing", packing), ("rows", rows), ("quantum", 100_000_000)]);
    cluster.event(Event::SetParams { params });
    cluster
}

/// Jobs of one processor a task, numbered from 1.
fn submit(cluster: &mut Cluster, tasks: &[u32]) {
    for &tasks in tasks {
        cluster.submit(job(tasks));
    }
}

#[test]
fn the_best_fit_leaves_room_for_who_needs_more() {
    let mut c = cluster(FIRST_FIT, 3, &[8]);
    submit(&mut c, &[5, 8, 6, 2, 3]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-4 4@0/5-6\n2 100ms: 2@0/0-7\n3 100ms: 3@0/0-2,5-7\n");
    assert_eq!(why(&c, JobId(5)), Some(WaitReason::Rows { limit: 3 }));
    let mut c = cluster(BEST_FIT, 3, &[8]);
    submit(&mut c, &[5, 8, 6, 2, 3]);
    assert_eq!(
        matrix(&c),
        "1 100ms: 1@0/0-4 5@0/5-7\n2 100ms: 2@0/0-7\n3 100ms: 3@0/0-2,5-7 4@0/3-4\n"
    );
}

#[test]
fn a_home_moves_to_the_row_that_it_would_join_now() {
    let mut c = cluster(BEST_FIT, 3, &[8]);
    submit(&mut c, &[5, 8, 6, 2, 3]);
    c.finish(JobId(2));
    c.finish(JobId(1));
    // Without job 4, row 3 has six processors taken; row 1 has three.
    assert_eq!(matrix(&c), "1 100ms: 5@0/5-7 (4@0/3-4)\n3 100ms: 3@0/0-2,5-7 4@0/3-4\n");
    c.finish(JobId(3));
    assert_eq!(matrix(&c), "1 100ms: 4@0/3-4 5@0/5-7\n", "without it, row 3 would be empty");
}

#[test]
fn packing_may_change_while_jobs_run() {
    let mut c = cluster(BEST_FIT, 3, &[8]);
    submit(&mut c, &[5, 8, 6, 2, 3]);
    c.finish(JobId(2));
    c.finish(JobId(1));
    let params = params(&[("packing", FIRST_FIT), ("rows", 3)]);
    c.event(Event::SetParams { params });
    assert_eq!(matrix(&c), "1 100ms: 4@0/3-4 5@0/5-7\n3 100ms: 3@0/0-2,5-7 (4@0/3-4)\n");
}

#[test]
fn a_job_gets_the_smallest_block_that_is_free() {
    let mut c = cluster(BUDDY, 2, &[4, 4]);
    submit(&mut c, &[3, 2, 1, 2]);
    // The third gets the single processor beside the first, and the fourth the other block of two.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@1/0-1 3@0/3 4@1/2-3\n");
    submit(&mut c, &[4, 2, 3]);
    // Of equal blocks, the one that row 1 uses less; all are used alike, so the first.
    assert_eq!(
        matrix(&c),
        "1 100ms: 1@0/0-2 2@1/0-1 3@0/3 4@1/2-3\n2 100ms: 5@0/0-3 6@1/0-1 (4@1/2-3)\n"
    );
    assert_eq!(why(&c, JobId(7)), Some(WaitReason::Block { size: 4 }));
}

#[test]
fn of_equal_blocks_the_least_used_is_taken() {
    let mut c = cluster(BUDDY, 2, &[4, 4]);
    submit(&mut c, &[4, 3, 4]);
    // Then the first would join the fuller row, so it moves there.
    assert_eq!(matrix(&c), "1 100ms: 2@1/0-2 (1@0/0-3)\n2 100ms: 1@0/0-3 3@1/0-3\n");
}

#[test]
fn blocks_are_free_as_a_whole_or_not_at_all() {
    let mut c = cluster(BUDDY, 1, &[2, 2]);
    submit(&mut c, &[1, 1, 1, 1]);
    c.finish(JobId(1));
    c.finish(JobId(3));
    submit(&mut c, &[2]);
    assert_eq!(why(&c, JobId(5)), Some(WaitReason::Block { size: 2 }), "0/0 and 1/0 are free");
    c.finish(JobId(4));
    assert_eq!(matrix(&c), "1 100ms: 2@0/1 5@1/0-1\n");
}

#[test]
fn blocks_go_across_nodes_of_odd_widths_and_end_with_the_machine() {
    let mut c = cluster(BUDDY, 3, &[2, 3, 2]);
    submit(&mut c, &[3, 3, 7]);
    assert_eq!(
        matrix(&c),
        "1 100ms: 1@0/0-1 1@1/0 2@1/2 2@2/0-1\n2 100ms: 3@0/0-1 3@1/0-2 3@2/0-1\n"
    );
}

#[test]
fn who_asks_for_more_than_processors_is_packed_by_best_fit() {
    let mut c = cluster(BUDDY, 3, &[8]);
    submit(&mut c, &[3]);
    c.submit(JobSpec { processors_per_task: Some(2), ..job(2) });
    c.submit(JobSpec { memory_per_task_bytes: Some(1), ..job(1) });
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/3-6 3@0/7\n");
    c.submit(JobSpec { processors_per_task: None, ..job(9) });
    assert_eq!(why(&c, JobId(4)), None, "nine tasks share eight processors");
}
