//! What jobs say of their nodes, and nodes that take no new jobs.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use tutti_core::{Event, WaitReason};
use tutti_types::{JobId, JobSpec, NodeId, NodeSetName, NodeWish, Refusal, TaskStatus};

/// A wish as one would type it: `-N 2`, `among 0,3`, `spread`, `exclusive`, one after the other.
fn wish(text: &str) -> NodeWish {
    let mut wish = NodeWish::default();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "-N" => wish.count = words.next().map(|count| count.parse().unwrap()),
            "among" => {
                let nodes = words.next().unwrap().split(',');
                wish.among = Some(nodes.map(|node| NodeId(node.parse().unwrap())).collect());
            }
            "spread" => wish.spread = true,
            "exclusive" => wish.exclusive = true,
            other => panic!("{other}"),
        }
    }
    wish
}

fn spec(tasks: u32, wished: &str) -> JobSpec {
    JobSpec { nodes: wish(wished), ..job(tasks) }
}

/// Where a job is, as `node:first rank-last rank`, with its processors where they are more than
/// tasks.
fn placed(c: &Cluster, job: JobId) -> String {
    let parts = c.core.parts(job).iter().map(|part| {
        let processors = part.processors.count();
        let all = if processors > part.tasks { format!(" of {processors}") } else { String::new() };
        let shared = if processors < part.tasks { "*" } else { "" };
        format!("{}:{}-{}{all}{shared}", part.node, part.first, part.first + part.tasks - 1)
    });
    parts.collect::<Vec<String>>().join(" ")
}

/// Where a job of so many tasks gets on an empty cluster of such nodes, or why it is declined.
#[track_caller]
fn check(widths: &[u32], tasks: u32, wished: &str, expected: &str) {
    let mut c = Cluster::with_nodes(widths);
    let found = match c.try_submit(spec(tasks, wished)) {
        Some(job) => placed(&c, job),
        None => c.refusals[0].to_string(),
    };
    assert_eq!(found, expected, "{tasks} tasks {wished} on {widths:?}");
}

#[test]
fn exactly_so_many_nodes_get_an_even_share() {
    check(&[4, 4, 4], 4, "", "0:0-3");
    check(&[4, 4, 4], 4, "-N 2", "0:0-1 1:2-3");
    check(&[4, 4, 4], 8, "-N 3", "0:0-2 1:3-5 2:6-7");
    check(&[2, 4, 4], 5, "-N 2", "0:0-1 1:2-4");
    check(&[1, 4, 4], 7, "-N 2", "1:0-3 2:4-6");
    check(&[4, 4, 4], 3, "-N 3", "0:0-0 1:1-1 2:2-2");
}

#[test]
fn what_cannot_be_had_is_declined_with_what_can() {
    let all = "12 nodes were asked for, and there are only 8 that take jobs; ask for -N 8";
    check(&[2; 8], 12, "-N 12", all);
    let one = "2 nodes were asked for, and there is only one that takes jobs; ask for -N 1";
    check(&[4], 2, "-N 2", one);
    let one = "2 nodes were asked for, and of the nodes that the job may be on, there is only one that \
               takes jobs; ask for -N 1";
    check(&[4, 4], 2, "-N 2 among 1", one);
    let shares =
        "3 nodes were asked for, and fewer can take their share of the tasks; ask for -N 1";
    check(&[12, 1, 1], 6, "-N 3", shares);
    let more = "5 nodes were asked for and 4 tasks; ask for at most -N 4, or for at least -n 5";
    check(&[2; 8], 4, "-N 5", more);
    let few = "one node was asked for, and none has room for all tasks; ask for -N 2";
    check(&[4, 4], 7, "-N 1", few);
    let room = "5 tasks were asked for, and the nodes that the job may be on have room for 4; ask \
                for at most -n 4, or allow more nodes";
    check(&[2; 8], 5, "among 1,7", room);
    let none = "none of the nodes that the job may be on is up and takes jobs (tutti nodes); allow \
                others, or try again later";
    check(&[2; 8], 1, "among 9", none);
}

#[test]
fn a_job_keeps_to_the_nodes_that_it_names() {
    check(&[4, 4, 4], 2, "among 2", "2:0-1");
    check(&[2, 2, 2], 4, "among 0,2", "0:0-1 2:2-3");
    check(&[2, 2, 2], 2, "among 1,2 -N 2", "1:0-0 2:1-1");
    // Tasks without processors of their own asked for share what there is of these nodes.
    let mut c = Cluster::with_nodes(&[8, 1, 2]);
    let shares = JobSpec { processors_per_task: None, ..spec(6, "among 1,2") };
    let id = c.submit(shares);
    assert_eq!(placed(&c, id), "1:0-1* 2:2-5*");
    // It waits for these though others are free, unless a row of its own may be made.
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let waits = c.submit(spec(1, "among 1,2"));
    assert_eq!(why(&c, waits), Some(WaitReason::Wish { limit: 1 }));
    c.finish(id);
    assert_eq!(placed(&c, waits), "1:0-0");
}

#[test]
fn spread_tasks_have_company_only_where_it_must_be() {
    check(&[4, 4, 4], 3, "spread", "0:0-0 1:1-1 2:2-2");
    check(&[1, 4, 4], 5, "spread", "0:0-0 1:1-2 2:3-4");
    check(&[4, 4, 4], 2, "spread among 1,2", "1:0-0 2:1-1");
    // Where others are at home already, it goes beside them last.
    let mut c = Cluster::with_nodes(&[4, 4, 4]);
    c.submit(job(1));
    let id = c.submit(spec(2, "spread"));
    assert_eq!(placed(&c, id), "1:0-0 2:1-1");
}

#[test]
fn who_wants_nodes_to_himself_has_them_in_his_row() {
    check(&[4, 2], 3, "exclusive", "0:0-2 of 4");
    check(&[2, 2], 2, "exclusive -N 2", "0:0-0 of 2 1:1-1 of 2");
    let mut c = Cluster::with_nodes(&[2, 2]);
    c.event(Event::SetParams { params: params(&[("rows", 2)]) });
    let first = c.submit(job(1));
    let alone = c.submit(spec(1, "exclusive"));
    assert_eq!(placed(&c, alone), "1:0-0 of 2", "beside the first on another node");
    let both = c.submit(spec(2, "exclusive -N 2"));
    assert_eq!(c.core.rows().count(), 2, "its turn comes in a row of its own");
    let waits = c.submit(spec(1, "exclusive among 0"));
    assert_eq!(why(&c, waits), Some(WaitReason::Wish { limit: 2 }));
    // No job comes beside one that is alone; there is room beside the first.
    let third = c.submit(job(1));
    assert_eq!(why(&c, third), Some(WaitReason::Behind(waits)));
    c.cancel(waits, true);
    assert_eq!(placed(&c, third), "0:0-0");
    for job in [first, alone, both, third] {
        c.finish(job);
    }
}

#[test]
fn every_placement_heeds_what_a_job_wants() {
    for placement in 0..5 {
        for packing in 0..3 {
            let mut c = Cluster::with_nodes(&[2, 2, 2, 2]);
            let settings = [("placement", placement), ("packing", packing)];
            c.event(Event::SetParams { params: params(&settings) });
            let two = c.submit(spec(2, "-N 2 among 1,2,3"));
            assert_eq!(c.core.parts(two).len(), 2, "{settings:?}");
            let other = c.submit(spec(1, "among 3 exclusive"));
            assert!(placed(&c, other).starts_with("3:0-0"), "{settings:?}");
        }
    }
}

fn drain(c: &mut Cluster, node: u32, reason: Option<&str>) {
    c.event(Event::SetDrained { node: NodeId(node), reason: reason.map(Into::into) });
}

#[test]
fn a_drained_node_keeps_who_is_there_and_takes_nobody_new() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let stays = c.submit(job(2));
    assert_eq!(placed(&c, stays), "0:0-1");
    drain(&mut c, 0, Some("its fan is loud"));
    c.event(Event::Suspend { job: stays });
    c.event(Event::Resume { job: stays });
    let others: Vec<JobId> = (0..3).map(|_| c.submit(job(2))).collect();
    assert!(others.iter().all(|&it| placed(&c, it).starts_with("1:")), "in turns, on the other");
    assert_eq!(c.try_submit(job(5)), None);
    assert_eq!(c.refusals, [Refusal::TooManyProcessors { asked: 5, available: 4 }]);
    let drained = c.core.nodes().map(|node| node.drained).collect::<Vec<_>>();
    assert_eq!(drained, [Some("its fan is loud"), None]);
    // Lost and back, it is drained still.
    c.finish(stays);
    c.lose(0);
    c.join(0, 2);
    drain(&mut c, 1, Some(""));
    let comes = c.submit(job(2));
    assert_eq!(why(&c, comes), Some(WaitReason::Nodes));
    drain(&mut c, 0, None);
    assert_eq!(placed(&c, comes), "0:0-1");
}

/// Under each policy and each discipline of the queue.
fn everywhere(check: impl Fn(&mut Cluster)) {
    for (policy, discipline) in (0..4).flat_map(|policy| (0..4).map(move |rule| (policy, rule))) {
        let mut c = Cluster::with_nodes(&[2, 2, 2, 2]);
        c.event(Event::SetParams {
            params: params(&[("policy", policy), ("discipline", discipline)]),
        });
        check(&mut c);
    }
}

#[test]
fn a_job_waits_for_the_processors_of_a_drained_node_and_holds_up_no_other() {
    let unbound = |tasks| JobSpec { processors_per_task: None, ..job(tasks) };
    everywhere(|c| {
        drain(c, 3, Some("a new fan"));
        let wide = c.submit(unbound(8));
        let bound = c.submit(job(8));
        let there = c.submit(spec(1, "among 3"));
        let spread = c.submit(JobSpec { processors_per_task: None, ..spec(8, "-N 4") });
        // It asks for more tasks than there are processors, whatever is drained.
        let shares = c.submit(unbound(9));
        assert_eq!(placed(c, shares), "0:0-2* 1:3-5* 2:6-8*");
        c.finish(shares);
        let shares = c.submit(JobSpec { processors_per_task: None, ..spec(3, "among 0") });
        assert_eq!(placed(c, shares), "0:0-2*");
        c.finish(shares);
        let small = c.submit(job(6));
        assert_eq!(placed(c, small), "0:0-1 1:2-3 2:4-5");
        for waits in [wide, bound, there, spread] {
            assert_eq!(why(c, waits), Some(WaitReason::Nodes));
        }
        c.finish(small);
        drain(c, 3, None);
        for waits in [wide, bound, there, spread] {
            c.finish(waits);
        }
    });
}

#[test]
fn a_job_whose_drained_node_is_lost_shares_what_is_left() {
    everywhere(|c| {
        drain(c, 3, Some(""));
        let wide = c.submit(JobSpec { processors_per_task: None, ..job(8) });
        assert_eq!(why(c, wide), Some(WaitReason::Nodes));
        c.lose(3);
        assert_eq!(placed(c, wide), "0:0-2* 1:3-5* 2:6-7");
    });
}

#[test]
fn a_job_waits_for_the_memory_of_a_drained_node_and_holds_up_no_other() {
    everywhere(|c| {
        let heavy = |bytes| JobSpec { memory_per_task_bytes: Some(bytes), ..job(4) };
        drain(c, 2, Some(""));
        drain(c, 3, Some(""));
        // A node has 1,000 bytes: one task fits each.
        let waits = c.submit(heavy(600));
        assert_eq!(why(c, waits), Some(WaitReason::Nodes));
        assert_eq!(c.try_submit(heavy(1001)), None);
        let light = c.submit(heavy(400));
        assert_eq!(placed(c, light), "0:0-1 1:2-3");
        c.finish(light);
        drain(c, 2, None);
        assert_eq!(why(c, waits), Some(WaitReason::Nodes));
        drain(c, 3, None);
        assert_eq!(placed(c, waits), "0:0-0 1:1-1 2:2-2 3:3-3");
    });
}

#[test]
fn who_waits_for_a_drained_node_is_let_by_until_it_is_back() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let first = c.submit(job(4));
    let wide = c.submit(job(4));
    let small = c.submit(job(1));
    drain(&mut c, 0, Some("new memory"));
    c.finish(first);
    assert_eq!(why(&c, wide), Some(WaitReason::Nodes));
    assert_eq!(placed(&c, small), "1:0-0");
    c.finish(small);
    drain(&mut c, 0, None);
    assert_eq!(placed(&c, wide), "0:0-1 1:2-3");
}

#[test]
fn a_node_that_is_removed_takes_its_jobs_along_and_leaves_its_sets() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let gpu = NodeSetName::new("gpu");
    c.event(Event::SetNodeSet { name: gpu.clone(), nodes: [0, 1, 7].map(NodeId).into() });
    assert_eq!(c.core.node_sets()[&gpu], [0, 1].map(NodeId).into());
    let victim = c.submit(job(2));
    c.remove(0);
    assert_eq!(c.outcomes[&victim].reason.to_string(), "node 0 was lost");
    assert_eq!(c.core.nodes().count(), 1);
    assert_eq!(c.core.node_sets()[&gpu], [NodeId(1)].into());
    c.remove(1);
    assert!(c.core.node_sets().is_empty());
    c.join(0, 2);
    let id = c.submit(job(1));
    c.end_job(id, TaskStatus::Exited(0));
}
