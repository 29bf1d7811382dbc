//! Processors with external load: under every policy but `classes` jobs get them last.

use crate::cluster::{Cluster, job, params};
use proptest::prelude::*;
use tutti_core::Event;
use tutti_core::policy::POLICIES;
use tutti_types::{ClusterTime, JobId, JobSpec, NodeId};

fn cluster(policy: usize, packing: u64, widths: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    let values = [("policy", policy as u64), ("packing", packing), ("rows", 3)];
    cluster.event(Event::SetParams { params: params(&values) });
    cluster
}

fn load(cluster: &mut Cluster, node: u32, processors: &[u32]) {
    let processors = processors.iter().copied().collect();
    cluster.event(Event::Foreign { node: NodeId(node), processors });
}

/// Where a job is, as `node:processors`.
fn place(cluster: &Cluster, job: JobId) -> String {
    let parts = cluster.core.parts(job).iter();
    parts.map(|part| format!("{}:{}", part.node, part.processors)).collect::<Vec<_>>().join(" ")
}

fn policies() -> impl Iterator<Item = usize> {
    (0..POLICIES.len()).filter(|&policy| POLICIES[policy].name != "classes")
}

#[test]
fn jobs_get_processors_with_external_load_last() {
    for policy in policies() {
        let mut c = cluster(policy, 0, &[4]);
        load(&mut c, 0, &[0, 2]);
        let [first, second] = [1, 2].map(|tasks| c.submit(job(tasks)));
        // Of two blocks, the one where fewer jobs are.
        let pair = if POLICIES[policy].name == "dhc" { "0:2-3" } else { "0:0,3" };
        assert_eq!([first, second].map(|job| place(&c, job)), ["0:1", pair], "{policy}");
    }
}

#[test]
fn a_gang_that_needs_all_processors_starts_beside_external_load() {
    for policy in policies() {
        let mut c = cluster(policy, 0, &[2]);
        load(&mut c, 0, &[0, 1]);
        let all = c.submit(job(2));
        assert_eq!(place(&c, all), "0:0-1", "{policy}");
    }
}

#[test]
fn a_node_without_external_load_is_preferred() {
    for policy in policies() {
        let mut c = cluster(policy, 0, &[2, 2]);
        load(&mut c, 0, &[1]);
        let [wide, narrow] = [2, 1].map(|tasks| c.submit(job(tasks)));
        assert_eq!([wide, narrow].map(|job| place(&c, job)), ["1:0-1", "0:0"], "{policy}");
    }
}

#[test]
fn blocks_without_external_load_are_preferred() {
    let mut c = cluster(0, 2, &[8]);
    load(&mut c, 0, &[1]);
    let pair = c.submit(job(2));
    assert_eq!(place(&c, pair), "0:2-3");
}

proptest! {
    /// External load decides which processors a job gets, never when it starts nor in which row.
    #[test]
    fn external_load_keeps_no_job_waiting(
        policy in prop::sample::select(policies().collect::<Vec<_>>()),
        widths in prop::collection::vec(1u32..5, 1..4),
        external in prop::collection::vec(prop::collection::vec(0u32..5, 0..5), 3),
        tasks in prop::collection::vec(1u32..6, 1..8),
    ) {
        let mut plain = cluster(policy, 0, &widths);
        let mut loaded = cluster(policy, 0, &widths);
        for (node, processors) in (0..).zip(&external[..widths.len()]) {
            let there: Vec<u32> =
                processors.iter().copied().filter(|&it| it < widths[node as usize]).collect();
            load(&mut loaded, node, &there);
        }
        let calm: u32 = (0..).zip(&widths).map(|(node, &width)| {
            let set = loaded.core.foreign_on(NodeId(node)).cloned().unwrap_or_default();
            width - set.count()
        }).sum();
        let one_node = widths.len() == 1;
        for (number, &tasks) in tasks.iter().enumerate() {
            let jobs = [&mut plain, &mut loaded].map(|c| c.try_submit(job(tasks)));
            prop_assert_eq!(jobs[0], jobs[1]);
            let Some(id) = jobs[0] else { continue };
            let row = |c: &Cluster| c.core.job(id, ClusterTime(c.now)).and_then(|view| view.row);
            prop_assert_eq!(row(&plain), row(&loaded), "job {} of {:?}", number, tasks);
            if one_node && number == 0 && policy < 2 {
                let set = loaded.core.foreign_on(NodeId(0)).cloned().unwrap_or_default();
                let got = loaded.core.parts(id)[0].processors.clone();
                let avoided = got.without(&set).count();
                prop_assert_eq!(avoided, tasks.min(calm), "{} beside {}", got, set);
            }
        }
    }
}

/// The third job needs two processors at once. Those of the first job are a block of its level,
/// which has no room; those beside external load are in a block of the level above.
#[test]
fn a_job_starts_when_other_processors_are_preferred_of_a_level_with_room() {
    let mut c = Cluster::with_nodes(&[3]);
    let policy = POLICIES.iter().position(|policy| policy.name == "dhc").unwrap() as u64;
    c.event(Event::SetParams { params: params(&[("policy", policy), ("rows", 1)]) });
    c.submit(job(2));
    c.submit(job(1));
    let third = c.submit(JobSpec { processors_per_task: Some(2), ..job(1) });
    assert_eq!(place(&c, third), "", "as many jobs of its level as may take turns");
    load(&mut c, 0, &[1]);
    assert_eq!(place(&c, third), "0:0,2");
}
