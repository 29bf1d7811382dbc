//! Which nodes a job gets under the placements of the General Resource Manager.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use tutti_core::{Event, WaitReason};
use tutti_types::{
    ClusterTime, Figures, JobId, JobSpec, LoadAverages, NetworkFigures, NodeId, Refusal, Weights,
};

const ROUND_ROBIN: u64 = 1;
const SPARE_CYCLES: u64 = 2;
const LOW_LOAD: u64 = 3;
const HIGH_LOAD: u64 = 4;

/// A node by its width, its speed in any kind of work, and how many processes want to run there in
/// thousandths.
type Node = (u32, u32, u32);

fn cluster(placement: u64, nodes: &[Node]) -> Cluster {
    let widths: Vec<u32> = nodes.iter().map(|&(width, ..)| width).collect();
    let mut c = Cluster::with_nodes(&widths);
    c.event(Event::SetParams { params: params(&[("placement", placement), ("rows", 2)]) });
    for (node, &(_, speed, load)) in (0..).map(NodeId).zip(nodes) {
        let figures = Figures { int: speed, float: speed, double: speed, memory: speed };
        c.event(Event::NodeMeasured { node, figures });
        set_load(&mut c, node.0, load);
    }
    c
}

fn set_load(c: &mut Cluster, node: u32, load: u32) {
    let averages = LoadAverages { now: load, five_minutes: load, fifteen_minutes: load };
    c.event(Event::NodeLoad { node: NodeId(node), averages });
}

/// How many tasks of a job each node got, as `node:tasks`, with `*` where they share processors.
fn placed(c: &Cluster, job: JobId) -> String {
    let parts = c.core.parts(job).iter().map(|part| {
        let shared = part.tasks > part.processors.count();
        format!("{}:{}{}", part.node, part.tasks, if shared { "*" } else { "" })
    });
    parts.collect::<Vec<String>>().join(" ")
}

/// Submits jobs of so many tasks, and says where each got its tasks.
fn submit(c: &mut Cluster, tasks: &[u32]) -> Vec<String> {
    let submit = |&tasks: &u32| {
        let job = c.submit(JobSpec { processors_per_task: None, ..job(tasks) });
        placed(c, job)
    };
    tasks.iter().map(submit).collect()
}

#[test]
fn nodes_take_turns() {
    let mut c = cluster(ROUND_ROBIN, &[(2, 1, 0), (1, 9, 0), (2, 1, 0)]);
    // The fifth task, and the second of the second job, come round to nodes that are full in row 1.
    assert_eq!(submit(&mut c, &[2, 1, 2]), ["0:1 1:1", "2:1", "0:1 2:1"]);
    // In a new row, from node 0 on: it is its turn after node 2.
    assert_eq!(submit(&mut c, &[4, 1]), ["0:2 1:1 2:1", "2:1"]);
}

#[test]
fn spare_cycles_are_where_the_load_is_least() {
    let mut c = cluster(SPARE_CYCLES, &[(1, 9, 400), (1, 1, 100), (4, 1, 1000), (1, 1, 300)]);
    // Node 2 has a load of a quarter for each of its processors, and half after a task.
    assert_eq!(submit(&mut c, &[3]), ["1:1 2:1 3:1"]);
    set_load(&mut c, 2, 0);
    assert_eq!(submit(&mut c, &[2]), ["2:2"], "a quarter after one task");
}

#[test]
fn a_job_of_low_load_has_each_node_to_itself() {
    let mut c = cluster(LOW_LOAD, &[(1, 100, 0), (1, 300, 1000), (2, 200, 0), (2, 400, 4200)]);
    // Estimates are as 100, 150, 200, and 129.
    assert_eq!(submit(&mut c, &[2]), ["1:1 2:1"]);
    assert_eq!(submit(&mut c, &[1]), ["3:1"]);
    assert_eq!(submit(&mut c, &[2]), ["1:1 2:1"], "node 2 is not free, so a new row");
    assert_eq!(submit(&mut c, &[2]), ["0:1 3:1"], "in that row");
    let last = &c.core.parts(JobId(4))[1];
    assert_eq!(last.processors.to_string(), "0", "so that it is no guest beside the second job");
    let last = c.submit(job(2));
    assert_eq!(why(&c, last), Some(WaitReason::IdleNodes { nodes: 2 }));
    assert_eq!(c.try_submit(job(5)), None);
    assert_eq!(c.refusals, [Refusal::TooFewNodes { asked: 5, available: 4 }]);
}

#[test]
fn several_tasks_share_a_node_that_is_fast_enough() {
    let nodes = [(1, 100, 0), (1, 400, 0), (1, 300, 1000), (1, 200, 2000)];
    let mut c = cluster(HIGH_LOAD, &nodes);
    // Node 1 is worth 400 to its first task, 200 to the second, 133 to the third; node 2 is worth
    // 150.
    assert_eq!(submit(&mut c, &[3]), ["1:2* 2:1"]);
    let mut c = cluster(HIGH_LOAD, &nodes);
    assert_eq!(submit(&mut c, &[5]), ["0:1 1:3* 2:1"]);
    let mut c = cluster(HIGH_LOAD, &nodes);
    set(&mut c, HIGH_LOAD, 2);
    assert_eq!(submit(&mut c, &[6]), ["0:1 1:2* 2:2* 3:1"]);
    // With a processor for each task, no two can share one.
    let mut c = cluster(HIGH_LOAD, &nodes);
    let own = c.submit(job(3));
    assert_eq!(placed(&c, own), "0:1 1:1 2:1");
    assert_eq!(c.try_submit(job(5)), None);
}

fn set(c: &mut Cluster, placement: u64, tasks_per_node: u64) {
    let values = [("placement", placement), ("rows", 2), ("tasks_per_node", tasks_per_node)];
    c.event(Event::SetParams { params: params(&values) });
}

#[test]
fn more_tasks_than_may_share_nodes_share_all() {
    let mut c = cluster(HIGH_LOAD, &[(1, 100, 0), (2, 100, 0)]);
    set(&mut c, HIGH_LOAD, 2);
    assert_eq!(submit(&mut c, &[4]), ["0:2* 1:2"]);
    assert_eq!(submit(&mut c, &[9]), ["0:3* 1:6*"], "in proportion to the processors");
}

#[test]
fn a_job_says_what_it_needs_most() {
    let mut c = cluster(LOW_LOAD, &[(1, 100, 0), (1, 100, 0)]);
    let whole = Figures { int: 900, float: 100, double: 100, memory: 100 };
    c.event(Event::NodeMeasured { node: NodeId(0), figures: whole });
    let double = Figures { int: 100, float: 100, double: 300, memory: 100 };
    c.event(Event::NodeMeasured { node: NodeId(1), figures: double });
    assert_eq!(submit(&mut c, &[1]), ["0:1"], "1.8 and 0.5 against 0.2 and 1.5");
    let weights = Some(Weights { int: 1, double: 3, ..Weights::NONE });
    let job = c.submit(JobSpec { weights, ..job(1) });
    assert_eq!(placed(&c, job), "1:1");
}

#[test]
fn a_job_gets_the_nodes_with_the_network_that_it_needs() {
    let mut c = cluster(LOW_LOAD, &[(1, 100, 0), (1, 300, 0), (1, 100, 0)]);
    let mut measure = |node, bandwidth_mb_s, latency_us| {
        let figures = NetworkFigures { bandwidth_mb_s, latency_us };
        c.event(Event::NetworkMeasured { node: NodeId(node), peer: NodeId(node), figures });
    };
    measure(0, 1000, 90);
    measure(1, 10, 90);
    measure(2, 100, 10);
    assert_eq!(submit(&mut c, &[1]), ["1:1"], "the network counts nothing unless it is asked for");
    let network = Weights { network: 2, ..Weights::NONE };
    let latency = Weights { latency: 1, ..Weights::NONE };
    let mixed = Weights { int: 1, network: 2, ..Weights::NONE };
    for (weights, best) in [(network, "0:1"), (latency, "2:1"), (mixed, "0:1")] {
        let own = c.submit(JobSpec { weights: Some(weights), ..job(1) });
        assert_eq!(placed(&c, own), best, "{weights:?}");
        c.finish(own);
    }
    let values = [("placement", LOW_LOAD), ("rows", 2), ("weight_network", 9)];
    c.event(Event::SetParams { params: params(&values) });
    let own = c.submit(job(1));
    assert_eq!(placed(&c, own), "0:1", "by the parameter");
    c.finish(own);
    // Nothing is left of a node that was removed, nor of links to it.
    c.remove(0);
    assert_eq!(c.core.network().of(NodeId(0)), None);
    assert!(c.core.network().of(NodeId(2)).is_some());
}

#[test]
fn weights_are_stored_as_before_the_network_was_measured() {
    let stored = |weights| postcard::to_allocvec(&JobSpec { weights, ..job(1) }).unwrap();
    let former = postcard::to_allocvec(&Some([71_u32, 72, 73, 74])).unwrap();
    let of_processors = Weights { int: 71, float: 72, double: 73, memory: 74, ..Weights::NONE };
    let bytes = stored(Some(of_processors));
    assert!(bytes.windows(former.len()).any(|it| it == former), "{bytes:?}");
    for weights in [None, Some(of_processors), Some(Weights { latency: 5, ..of_processors })] {
        let read: JobSpec = postcard::from_bytes(&stored(weights)).unwrap();
        assert_eq!(read.weights, weights);
    }
}

#[test]
fn memory_keeps_tasks_off_a_node_however_fast() {
    let mut c = cluster(HIGH_LOAD, &[(1, 900, 0), (1, 100, 0)]);
    let spec = JobSpec { processors_per_task: None, ..job(3) };
    let job = c.submit(JobSpec { memory_per_task_bytes: Some(500), ..spec.clone() });
    assert_eq!(placed(&c, job), "0:2* 1:1");
    let job = c.submit(JobSpec { memory_per_task_bytes: Some(400), ..spec.clone() });
    assert_eq!(why(&c, job), Some(WaitReason::Memory));
    assert_eq!(c.try_submit(JobSpec { memory_per_task_bytes: Some(501), ..spec }), None);
}

#[test]
fn who_found_too_few_nodes_fits_when_the_placement_changes() {
    let mut c = cluster(HIGH_LOAD, &[(1, 1, 0), (2, 1, 0)]);
    let all = c.submit(job(3));
    let waits = c.submit(job(3));
    c.submit(job(3));
    set(&mut c, LOW_LOAD, 4);
    c.finish(all);
    let parked = c.core.jobs(ClusterTime(c.now)).last().unwrap().id;
    assert_eq!(why(&c, parked), Some(WaitReason::Nodes), "three tasks, and two nodes");
    set(&mut c, SPARE_CYCLES, 4);
    assert_eq!(why(&c, parked), None);
    assert_eq!(placed(&c, waits), "0:1 1:2");
}
