//! The policy `dhc`: blocks, rounds and what they guarantee.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::{matrix, why};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_core::{Core, Event, WaitReason};
use tutti_types::class::default_classes;
use tutti_types::{ClassName, JobId, JobSpec, UserId};

const DHC: u64 = 5;

fn cluster(widths: &[u32], more: &[(&str, u64)]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    let mut values = vec![("policy", DHC), ("quantum", 10_000_000)];
    values.extend_from_slice(more);
    cluster.event(Event::SetParams { params: params(&values) });
    cluster
}

fn submit(cluster: &mut Cluster, tasks: &[u32]) -> Vec<JobId> {
    tasks.iter().map(|&tasks| cluster.submit(job(tasks))).collect()
}

/// The rows in the order of a round, each with its highest job by tasks.
fn round(core: &Core) -> Vec<u64> {
    let mut slots: Vec<_> = core.frame().slots.iter().collect();
    slots.sort_by_key(|slot| slot.place);
    slots.iter().map(|slot| slot.row.0).collect()
}

#[test]
fn jobs_go_to_the_least_loaded_block_of_their_level() {
    let mut c = cluster(&[1; 8], &[]);
    submit(&mut c, &[4, 2, 2, 1]);
    // The two of two go where the four are not, and the single one beside the two that are alone.
    assert_eq!(
        matrix(&c),
        "1 10ms: 1@0/0 1@1/0 1@2/0 1@3/0 (2@4/0) (2@5/0) (3@6/0) (3@7/0)\n\
         2 10ms: 2@4/0 2@5/0 3@6/0 3@7/0 (1@0/0) (1@1/0) (1@2/0) (1@3/0)\n\
         3 10ms: 4@0/0 (2@4/0) (2@5/0) (3@6/0) (3@7/0)\n"
    );
}

#[test]
fn a_round_goes_from_the_top_level_down() {
    let mut c = cluster(&[1; 8], &[]);
    let jobs = submit(&mut c, &[1, 8, 2, 8, 4]);
    // Rows by age: one, eight, two, eight again, four.
    assert_eq!(round(&c.core), [2, 4, 5, 3, 1]);
    assert_eq!(c.core.frame().slots[0].row.0, 1, "the turn goes on when a row comes");
    c.finish(jobs[1]);
    c.submit(job(8));
    // The place of the first row of the level is free again, and the new one has it.
    assert_eq!(round(&c.core), [6, 4, 5, 3, 1]);
}

#[test]
fn a_level_has_as_many_rows_as_may_be() {
    let mut c = cluster(&[4], &[("rows", 2)]);
    let jobs = submit(&mut c, &[4, 3, 4, 1]);
    let level = WaitReason::Level { size: 4, limit: 2 };
    assert_eq!(why(&c, jobs[2]), Some(level));
    assert_eq!(
        level.to_string(),
        "each block of 4 processors has as many jobs as may take turns in it: 2 (rows)"
    );
    assert_eq!(why(&c, jobs[3]), Some(WaitReason::Behind(jobs[2])), "no job passes");
    c.finish(jobs[0]);
    assert_eq!((why(&c, jobs[2]), why(&c, jobs[3])), (None, None));
}

#[test]
fn what_a_job_leaves_of_its_block_runs_others() {
    let mut c = cluster(&[8], &[]);
    let jobs = submit(&mut c, &[5, 1]);
    // The single one is mapped to a block of its own, which the five have; there is time for both.
    c.advance_ms(200);
    let service = |job: JobId| c.service[&job] / 1_000_000;
    assert_eq!(service(jobs[0]), 100);
    let mut c = cluster(&[8], &[]);
    let jobs = submit(&mut c, &[5, 2, 2, 2, 2]);
    c.advance_ms(200);
    // The last block of two is idle in the slot of the five: its job never stops.
    assert_eq!(c.service[&jobs[4]] / 1_000_000, 200);
}

#[test]
fn other_requests_are_placed_below_the_level_of_a_row() {
    let mut c = cluster(&[4, 4], &[]);
    submit(&mut c, &[8]);
    let wide = JobSpec { processors_per_task: Some(2), ..job(2) };
    c.submit(wide.clone());
    assert_eq!(matrix(&c).lines().count(), 2, "it opens a row");
    c.submit(wide);
    assert_eq!(matrix(&c).lines().count(), 2, "and another like it is beside it");
    c.submit(JobSpec { memory_per_task_bytes: Some(10), ..job(1) });
    assert_eq!(matrix(&c).lines().count(), 3);
}

#[test]
fn a_job_that_may_go_to_a_lighter_block_does() {
    let mut c = cluster(&[1; 4], &[("migration", 1)]);
    let specs = [2, 2, 2, 2].map(|tasks| JobSpec { movable: true, ..job(tasks) });
    let jobs: Vec<JobId> = specs.into_iter().map(|spec| c.submit(spec)).collect();
    assert_eq!(matrix(&c).lines().count(), 2);
    c.finish(jobs[1]);
    c.finish(jobs[3]);
    c.arrive();
    assert_eq!(
        matrix(&c),
        "1 10ms: 1@0/0 1@1/0 3@2/0 3@3/0\n",
        "the block of the two that ended has one of the others"
    );
}

#[test]
fn the_policy_may_change_while_jobs_run() {
    let mut c = Cluster::with_nodes(&[4]);
    let jobs = submit(&mut c, &[3, 2, 1, 4]);
    c.event(Event::SetParams { params: params(&[("policy", DHC)]) });
    c.advance_ms(500);
    submit(&mut c, &[4, 2, 1]);
    c.advance_ms(500);
    c.event(Event::SetParams { params: params(&[]) });
    c.finish(jobs[0]);
    c.advance_ms(500);
}

#[test]
fn each_class_has_its_share_of_each_round() {
    let mut c = cluster(&[1; 8], &[]);
    let set = |c: &mut Cluster, name: &str, share| {
        let class = ClassName::new(name);
        let spec = default_classes()[&class].with("share", share).unwrap();
        c.event(Event::SetClass { class, spec });
    };
    set(&mut c, "production", 6000);
    set(&mut c, "standby", 3000);
    let of = |class: &str, tasks| JobSpec { class: ClassName::new(class), ..job(tasks) };
    // All of these ask for the same processors at some level.
    let jobs = [("production", 8), ("production", 8), ("standby", 8)]
        .map(|(class, tasks)| c.submit(of(class, tasks)));
    c.advance_ms(9_000);
    let service: Vec<u64> = jobs.iter().map(|job| c.service[job] / 1_000_000).collect();
    assert_eq!(service, [3000, 3000, 3000], "two thirds to the two, and one to the other");
}

proptest! {
    /// Whichever jobs come and end, each gets at least the slot of its row in each round.
    #[test]
    fn each_job_has_its_slot_in_each_round(
        widths in prop::collection::vec(1u32..5, 1..9),
        rows in 1u64..4,
        asked in prop::collection::vec((1u32..9, 0u32..3, 0u64..40), 1..24),
    ) {
        let mut c = cluster(&widths, &[("rows", rows)]);
        let all: u32 = widths.iter().sum();
        let mut jobs = Vec::new();
        for (index, &(tasks, user, wait)) in asked.iter().enumerate() {
            jobs.push(c.submit(JobSpec { owner: UserId(user), ..job(tasks.min(all)) }));
            c.advance_ms(wait);
            if index % 3 == 2 {
                let there = |job: &&JobId| why(&c, **job).is_none() && c.held.contains_key(job);
                if let Some(&job) = jobs.iter().find(there) {
                    c.finish(job);
                    jobs.retain(|&other| other != job);
                }
            }
        }
        // From here on no job comes or ends: rounds are alike.
        let slots = c.core.frame().slots.clone();
        let cycle: u64 = slots.iter().map(|slot| slot.length.0).sum();
        let before: BTreeMap<JobId, u64> = c.service.clone();
        let rounds = 3;
        c.advance_ms((rounds * cycle).div_ceil(1_000_000));
        for job in jobs {
            let Some(seat) = c.core.job(job, tutti_types::ClusterTime(c.now)).unwrap().row else {
                continue;
            };
            let slot = slots.iter().find(|slot| slot.row == seat).unwrap();
            let served = c.service[&job] - before.get(&job).copied().unwrap_or(0);
            prop_assert!(served >= rounds * slot.length.0, "job {job}: {served} ns in {slots:?}");
        }
    }
}
