//! Processors that ranks leave when they end before the others of their job.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::{matrix, why};
use tutti_core::WaitReason;
use tutti_types::{ClusterTime, JobId, JobSpec, Nanos, NodeId, NodeWish, TaskStatus};

const DONE: TaskStatus = TaskStatus::Exited(0);

/// A cluster with these settings and nodes.
fn cluster(settings: &[(&str, u64)], widths: &[u32]) -> Cluster {
    let mut c = Cluster::new(params(settings));
    for (node, &width) in (0..).zip(widths) {
        c.join(node, width);
    }
    c
}

fn service_ms(c: &Cluster, job: JobId) -> u64 {
    c.core.job(job, ClusterTime(c.now)).unwrap().service.0 / 1_000_000
}

/// What a job has, has given up, and lends, on its first node.
fn processors(c: &Cluster, job: JobId) -> [String; 3] {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    let placed = &view.placements[0];
    [&placed.processors, &placed.given_up, &placed.lent].map(ToString::to_string)
}

#[test]
fn a_job_in_line_starts_where_a_rank_has_ended() {
    let mut c = cluster(&[("rows", 1)], &[2]);
    let first = c.submit(job(2));
    let second = c.submit(job(1));
    assert_eq!(why(&c, second), Some(WaitReason::Rows { limit: 1 }));
    c.advance_ms(1_000);
    c.end_task(first, 0, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/1 2@0/0\n");
    assert_eq!(processors(&c, first), ["1", "0", ""]);
    c.advance_ms(1_000);
    assert_eq!((service_ms(&c, first), service_ms(&c, second)), (2_000, 1_000));
    c.finish(second);
    c.finish(first);
}

#[test]
fn jobs_in_turn_that_need_other_processors_wait_for_each_other_no_more() {
    let mut c = cluster(&[("rows", 2)], &[2]);
    let wide = c.submit(job(2));
    let other = c.submit(job(2));
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide), service_ms(&c, other)), (200, 200));
    c.end_task(wide, 0, DONE);
    c.end_task(other, 1, DONE);
    // The second one moves to the row of the first.
    assert_eq!(matrix(&c), "1 100ms: 1@0/1 2@0/0\n");
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide), service_ms(&c, other)), (600, 600));
}

#[test]
fn a_task_of_another_row_is_a_guest_where_a_rank_has_ended() {
    let mut c = cluster(&[("rows", 2)], &[2]);
    let wide = c.submit(job(2));
    let full = c.submit(job(2));
    c.advance_ms(200);
    c.end_task(full, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0\n");
    // The job has processor 1 in row 2, and runs there all the time once the first one's rank is
    // gone.
    let small = c.submit(job(1));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0 3@0/1\n");
    c.end_task(wide, 1, DONE);
    let before = service_ms(&c, small);
    c.advance_ms(400);
    assert_eq!(service_ms(&c, small) - before, 400);
}

#[test]
fn tasks_that_share_a_processor_leave_it_with_the_last_of_them() {
    let mut c = cluster(&[("rows", 1)], &[2]);
    // Ranks 0 and 2 are on one processor, 1 and 3 on the other.
    let shared = c.submit(JobSpec { processors_per_task: None, ..job(4) });
    c.submit(job(1));
    c.end_task(shared, 0, DONE);
    c.end_task(shared, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n");
    c.end_task(shared, 2, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/1 2@0/0\n");
    // Three tasks move over both processors.
    let mut c = cluster(&[("rows", 1)], &[2]);
    let moving = c.submit(JobSpec { processors_per_task: None, ..job(3) });
    c.submit(job(1));
    c.end_task(moving, 0, DONE);
    c.end_task(moving, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n");
}

#[test]
fn a_node_is_free_when_the_tasks_there_have_ended() {
    let mut c = cluster(&[("rows", 1)], &[2, 2]);
    let first = c.submit(job(4));
    let second = c.submit(job(2));
    c.end_task(first, 2, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 1@1/1\n", "one of two is free");
    assert!(why(&c, second).is_some());
    c.end_task(first, 3, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@1/0-1\n");
    assert_eq!(c.core.job(first, ClusterTime(c.now)).unwrap().placements[1].given_up.count(), 2);
}

#[test]
fn a_job_that_wants_nodes_to_itself_keeps_them_whole() {
    let mut c = cluster(&[("rows", 1)], &[2, 2]);
    let nodes = NodeWish { count: Some(2), exclusive: true, ..NodeWish::default() };
    let alone = c.submit(JobSpec { nodes, ..job(4) });
    c.submit(job(1));
    c.end_task(alone, 0, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 1@1/0-1\n");
    c.end_task(alone, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@1/0-1 2@0/0\n");
    assert!(c.core.job(alone, ClusterTime(c.now)).unwrap().placements[0].node == NodeId(0));
}

#[test]
fn rows_that_are_packed_by_how_full_they_are_lend_what_ranks_leave() {
    let mut c = cluster(&[("rows", 2), ("packing", 1)], &[2]);
    let wide = c.submit(job(2));
    let other = c.submit(job(2));
    let waits = c.submit(job(1));
    c.end_task(other, 0, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/1\n");
    assert_eq!(processors(&c, other), ["0-1", "", "0"]);
    assert!(why(&c, waits).is_some(), "it is lent, and not free");
    c.end_task(wide, 1, DONE);
    // Each is a guest where the other has a processor idle.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 (2@0/1)\n2 100ms: 2@0/1 (1@0/0)\n");
    c.advance_ms(200);
    let before = (service_ms(&c, wide), service_ms(&c, other));
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide) - before.0, service_ms(&c, other) - before.1), (400, 400));
}

#[test]
fn what_is_left_of_a_job_is_charged_for() {
    let mut c = cluster(&[("rows", 1)], &[4]);
    let account = tutti_types::account::BankAccount::User(job(1).owner);
    let allowance = Some(tutti_types::account::ProcessorTime(1 << 60));
    c.event(tutti_core::Event::SetBank { account, allowance });
    let id = c.submit(job(4));
    c.advance_ms(1_000);
    for rank in 0..3 {
        c.end_task(id, rank, DONE);
    }
    c.advance_ms(1_000);
    c.event(tutti_core::Event::Tick);
    let used = c.core.bank().next().unwrap().1.used.0;
    assert_eq!(used, 5_000_000_000, "a second of four processors, and one of one");
}

#[test]
fn a_promise_comes_sooner_when_ranks_end() {
    let mut c = cluster(&[("rows", 1), ("discipline", 1)], &[4]);
    let limited = |tasks, ms| JobSpec {
        time_limit: Some(Nanos::from_millis(ms)),
        grace: Nanos::ZERO,
        ..job(tasks)
    };
    let long = c.submit(limited(3, 60_000));
    c.submit(limited(1, 10_000));
    let head = c.submit(limited(3, 1_000));
    let in_s = |seconds| Some(WaitReason::Reserved { within: Nanos::from_secs(seconds) });
    assert_eq!(why(&c, head), in_s(60));
    c.end_task(long, 0, DONE);
    assert_eq!(why(&c, head), in_s(60), "one is free, and a second one in ten seconds");
    c.end_task(long, 1, DONE);
    assert_eq!(why(&c, head), in_s(10));
}
