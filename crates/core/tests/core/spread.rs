//! Jobs of one task that move to other processors of their node.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::matrix;
use tutti_core::Event;
use tutti_types::{ClusterTime, JobId, JobSpec, NodeId, ProcessorSet, TaskStatus};

const DONE: TaskStatus = TaskStatus::Exited(0);

fn service_ms(c: &Cluster, job: JobId) -> u64 {
    c.core.job(job, ClusterTime(c.now)).unwrap().service.0 / 1_000_000
}

/// Two processors: a job with both, of which a rank has ended, and in turn with it a job of one
/// task on the other's processor.
fn contended(settings: &[(&str, u64)], spec: JobSpec) -> (Cluster, [JobId; 2]) {
    let mut c = Cluster::new(params(settings));
    c.join(0, 2);
    let wide = c.submit(job(2));
    let small = c.submit(spec);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0\n");
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide), service_ms(&c, small)), (200, 200));
    (c, [wide, small])
}

#[test]
fn a_task_in_turns_moves_to_a_processor_that_an_ended_rank_left() {
    let (mut c, [wide, small]) = contended(&[("rows", 2)], job(1));
    c.end_task(wide, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 2@0/1\n");
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide), service_ms(&c, small)), (600, 600));
}

#[test]
fn a_task_moves_in_its_row_where_rows_are_packed_by_how_full_they_are() {
    let (mut c, [wide, small]) = contended(&[("rows", 2), ("packing", 1)], job(1));
    c.end_task(wide, 1, DONE);
    // The processor is lent: the task is a guest there.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 (2@0/1)\n2 100ms: 2@0/1 (1@0/0)\n");
    c.advance_ms(400);
    assert_eq!((service_ms(&c, wide), service_ms(&c, small)), (600, 600));
}

#[test]
fn a_task_moves_to_no_processor_with_external_load_until_that_is_gone() {
    let (mut c, [wide, _]) = contended(&[("rows", 2)], job(1));
    let processors: ProcessorSet = [1].into_iter().collect();
    c.event(Event::Foreign { node: NodeId(0), processors });
    c.end_task(wide, 1, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0\n2 100ms: 2@0/0\n");
    c.event(Event::Foreign { node: NodeId(0), processors: ProcessorSet::new() });
    assert_eq!(matrix(&c), "1 100ms: 1@0/0 2@0/1\n");
}

#[test]
fn jobs_of_several_tasks_stay() {
    let spec = JobSpec { processors_per_task: None, ..job(2) };
    let mut c = Cluster::new(params(&[("rows", 2)]));
    c.join(0, 3);
    let wide = c.submit(job(3));
    c.submit(spec);
    c.end_task(wide, 2, DONE);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0-1\n");
}
