//! Processors of ended tasks, which other jobs get: matrices worked out by hand.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::{matrix, why};
use tutti_core::Event;
use tutti_types::constraints::NodeWish;
use tutti_types::{ClusterTime, EndReason, JobId, JobSpec, NodeId, OnNodeLoss, Rank, TaskStatus};

const ENDED: TaskStatus = TaskStatus::Exited(0);

/// One row on nodes of these widths, and jobs of so many tasks, numbered from 1.
fn cluster(widths: &[u32], rows: u64, tasks: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    cluster.event(Event::SetParams { params: params(&[("rows", rows)]) });
    for &tasks in tasks {
        cluster.submit(job(tasks));
    }
    cluster
}

fn placed(c: &Cluster, job: u64) -> String {
    let view = c.core.job(JobId(job), ClusterTime(c.now)).unwrap();
    let parts = view.placements.iter().map(|it| format!("{}/{} ", it.node, it.processors));
    parts.collect()
}

fn waits(c: &Cluster, job: u64) -> bool {
    why(c, JobId(job)).is_some()
}

#[test]
fn a_job_in_line_gets_what_an_ended_task_leaves() {
    let mut c = cluster(&[4], 1, &[4, 1, 1]);
    c.end_task(JobId(1), 1, ENDED);
    assert!(waits(&c, 2), "the others may end in a moment, too");
    c.advance_ms(100);
    assert_eq!((waits(&c, 2), waits(&c, 3)), (false, true));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0,2-3 2@0/1\n");
    assert_eq!(placed(&c, 1), "0/0,2-3 ");
    c.end_task(JobId(1), 3, ENDED);
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0,2 2@0/1 3@0/3\n");
    c.finish(JobId(1));
    assert_eq!(c.outcomes[&JobId(1)].reason, EndReason::Completed);
}

#[test]
fn a_job_of_another_row_runs_all_the_time_on_what_an_ended_task_leaves() {
    let mut c = cluster(&[2], 4, &[2, 2]);
    c.end_task(JobId(1), 1, ENDED);
    c.end_task(JobId(2), 0, ENDED);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0-1\n");
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 2@0/1\n", "they need different processors");
}

#[test]
fn a_gang_of_two_nodes_takes_turns_on_what_is_left_on_both() {
    let mut c = cluster(&[2, 2], 4, &[4, 3]);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 1@1/0-1\n2 100ms: 2@0/0-1 2@1/0\n");
    // Ranks 0 and 1 of the second are on the first node.
    c.end_task(JobId(1), 1, ENDED);
    c.end_task(JobId(1), 2, ENDED);
    c.end_task(JobId(2), 0, ENDED);
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 1@1/1 2@0/1 2@1/0\n");
}

#[test]
fn a_node_where_all_tasks_have_ended_is_free() {
    let mut c = cluster(&[2, 2], 1, &[4, 2]);
    c.end_task(JobId(1), 2, ENDED);
    c.end_task(JobId(1), 3, ENDED);
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 2@1/0-1\n");
    // The first has no place there any more, and loses what its node has not reported yet.
    c.lose(1);
    c.deliver_kills();
    for job in [1, 2] {
        let reason = c.outcomes[&JobId(job)].reason;
        assert_eq!(reason, EndReason::NodeLost(NodeId(1)), "job {job}");
    }
}

#[test]
fn a_job_that_ends_as_a_whole_gives_nothing_away_before() {
    let mut c = cluster(&[4], 1, &[4, 1]);
    let versions = |c: &Cluster| c.core.timetable(NodeId(0)).unwrap().version;
    let before = versions(&c);
    (0..3).for_each(|rank| c.end_task(JobId(1), rank, ENDED));
    c.advance_ms(99);
    assert_eq!(versions(&c), before);
    c.finish(JobId(1));
    assert!(!waits(&c, 2));
}

#[test]
fn a_job_with_steps_keeps_what_it_has_until_they_have_ended() {
    let mut c = cluster(&[4], 1, &[4, 1]);
    c.end_task(JobId(1), 3, ENDED);
    c.start_step(JobId(1), (1, 1), false);
    c.advance_ms(1_000);
    assert!(waits(&c, 2), "the step has the processor");
    c.end_step(0, ENDED);
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-2 2@0/3\n");
    // A later step waits for what is left, or is refused.
    c.start_step(JobId(1), (3, 1), false);
    c.end_task(JobId(1), 0, ENDED);
    c.advance_ms(1_000);
    assert_eq!(placed(&c, 1), "0/0-2 ", "the step waits for it");
    c.finish(JobId(1));
}

#[test]
fn a_job_that_has_nodes_to_itself_or_whose_tasks_share_gives_nothing_away() {
    let nodes = NodeWish { exclusive: true, ..NodeWish::default() };
    for spec in [JobSpec { nodes, ..job(4) }, JobSpec { processors_per_task: None, ..job(8) }] {
        let mut c = cluster(&[4], 1, &[]);
        c.submit(spec);
        c.submit(job(1));
        c.end_task(JobId(1), 3, ENDED);
        c.advance_ms(1_000);
        assert!(waits(&c, 2));
    }
}

#[test]
fn a_job_that_is_queued_again_has_all_its_processors_anew() {
    let mut c = cluster(&[2, 2], 1, &[]);
    c.submit(JobSpec { on_node_loss: OnNodeLoss::Requeue, ..job(4) });
    c.end_task(JobId(1), 1, ENDED);
    c.advance_ms(100);
    assert_eq!(placed(&c, 1), "0/0 1/0-1 ");
    c.lose(1);
    c.deliver_kills();
    c.join(1, 2);
    assert_eq!(placed(&c, 1), "0/0-1 1/0-1 ");
    c.end_task(JobId(1), 0, ENDED);
    c.advance_ms(100);
    assert_eq!(placed(&c, 1), "0/1 1/0-1 ");
    assert!(c.core.parts(JobId(1))[0].has(Rank(0)));
}
