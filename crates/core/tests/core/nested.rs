//! Whether a job can start beside one that waits for it.

use crate::cluster::{Cluster, job, params};
use std::collections::BTreeSet;
use tutti_core::Event;
use tutti_types::{
    ClassName, ClusterTime, JobId, JobSpec, Nanos, NodeId, ProcessorSet, TaskStatus,
};

fn under(policy: &str, widths: &[u32]) -> Cluster {
    let mut params = params(&[]);
    params.choose("policy", policy).unwrap();
    let mut cluster = Cluster::new(params);
    for (node, &width) in (0..).zip(widths) {
        cluster.join(node, width);
    }
    cluster
}

/// Asks, and checks that nothing changes by that.
fn can_start(cluster: &Cluster, spec: &JobSpec, stay: &[JobId]) -> bool {
    let before = cluster.core.digest();
    let stay: BTreeSet<JobId> = stay.iter().copied().collect();
    let answer = cluster.core.can_start_beside(ClusterTime(cluster.now), spec, &stay);
    assert_eq!(cluster.core.digest(), before);
    answer
}

#[test]
fn a_job_that_needs_the_processors_of_one_that_stays_can_not_start_under_space() {
    let mut cluster = under("space", &[2, 2]);
    let outer = cluster.submit(job(3));
    assert!(can_start(&cluster, &job(1), &[outer]));
    assert!(!can_start(&cluster, &job(2), &[outer]));
    // More than there is: that is declined, with a reason of its own.
    assert!(can_start(&cluster, &JobSpec { processors_per_task: Some(3), ..job(1) }, &[outer]));
    // Two that stay, each in the other.
    let inner = cluster.submit(job(1));
    assert!(can_start(&cluster, &job(1), &[outer]), "the inner job ends");
    assert!(!can_start(&cluster, &job(1), &[outer, inner]));
    cluster.end_job(outer, TaskStatus::Exited(0));
    assert!(can_start(&cluster, &job(2), &[outer, inner]));
}

#[test]
fn a_job_that_can_have_turns_starts_beside_one_that_stays() {
    let mut cluster = under("gang", &[2]);
    let outer = cluster.submit(job(2));
    assert!(can_start(&cluster, &job(2), &[outer]));
    let limit = cluster.core.params().rows();
    for _ in 1..limit {
        cluster.submit(job(2));
    }
    assert!(can_start(&cluster, &job(2), &[outer]), "all but one of the others end");
    let all: Vec<JobId> = (1..=u64::from(limit)).map(JobId).collect();
    assert!(!can_start(&cluster, &job(2), &all));
}

#[test]
fn a_job_behind_one_that_waits_for_the_same_can_not_start() {
    let mut cluster = under("space", &[2]);
    let outer = cluster.submit(job(1));
    let _first = cluster.submit(job(2));
    assert!(!can_start(&cluster, &job(1), &[outer]), "first come, first served");
    let mut values = cluster.core.params().clone();
    values.choose("discipline", "easy").unwrap();
    cluster.event(Event::SetParams { params: values });
    assert!(!can_start(&cluster, &job(1), &[outer]), "it would delay the first in line");
    let outer_ends = JobSpec { time_limit: Some(Nanos::from_secs(60)), ..job(1) };
    let mut cluster = under("space", &[2]);
    let mut values = cluster.core.params().clone();
    values.choose("discipline", "easy").unwrap();
    cluster.event(Event::SetParams { params: values });
    let outer = cluster.submit(outer_ends);
    let _first = cluster.submit(job(2));
    let short = JobSpec { time_limit: Some(Nanos::from_secs(10)), ..job(1) };
    assert!(can_start(&cluster, &short, &[outer]), "it is done before the outer job is");
    assert!(!can_start(&cluster, &job(1), &[outer]));
}

#[test]
fn nodes_that_take_no_jobs_now_are_counted_on() {
    let mut cluster = under("space", &[2, 2]);
    let outer = cluster.submit(job(2));
    let reason = Some(String::new());
    cluster.event(Event::SetDrained { node: NodeId(1), reason });
    assert!(can_start(&cluster, &job(2), &[outer]));
    cluster.lose(1);
    assert!(can_start(&cluster, &job(2), &[outer]));
    assert!(!can_start(&cluster, &job(3), &[outer]));
}

#[test]
fn a_job_that_has_others_preempted_starts_beside_one_that_stays() {
    let mut cluster = under("classes", &[2]);
    let of = |class: &str| JobSpec { class: ClassName::new(class), ..job(2) };
    let outer = cluster.submit(of("production"));
    let processors: ProcessorSet = (0..2).collect();
    cluster.event(Event::Foreign { node: NodeId(0), processors });
    cluster.advance_ms(1000 * 3600);
    assert!(can_start(&cluster, &of("interactive"), &[outer]));
}
