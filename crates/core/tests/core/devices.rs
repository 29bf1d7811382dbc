//! Devices of nodes under every policy: which a job gets, when it waits, and when they are free.

use crate::cluster::{Cluster, job, node_spec, params};
use proptest::prelude::*;
use tutti_core::policy::POLICIES;
use tutti_core::{Event, JobState, SubmitOptions, WaitReason};
use tutti_types::{
    Amount, ClassName, ClusterTime, Device, DeviceId, JobId, JobSpec, Nanos, NodeId, NodeWish,
    OnNodeLoss, Params, Per, ProcessorSet, ResourceName, ResourceWish,
};

fn gpu() -> ResourceName {
    ResourceName::new("gpu").unwrap()
}

/// Devices of a node of so many processors: the first half is near the lower half of these.
fn devices(count: u32, processors: u32) -> Vec<Device> {
    let half = processors / 2;
    let device = |number| {
        let first = if number < count / 2 { 0 } else { half };
        Device {
            id: DeviceId { name: gpu(), number },
            files: vec![format!("/dev/gpu{number}")],
            maker: None,
            pci: None,
            numa: None,
            near: (first..first + half).collect(),
        }
    };
    (0..count).map(device).collect()
}

fn found(c: &mut Cluster, node: u32, count: u32) {
    let devices = devices(count, 8);
    c.event(Event::DevicesFound { node: NodeId(node), devices });
}

fn asks(tasks: u32, count: u32, per: Per) -> JobSpec {
    let wish = ResourceWish { name: gpu(), amount: Amount::OnNodes { count, per, vacates: false } };
    JobSpec { resources: vec![wish], ..job(tasks) }
}

fn cluster(policy: &str) -> Cluster {
    let mut params = Params::default();
    params.choose("policy", policy).unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 8);
    found(&mut c, 0, 4);
    c
}

/// The devices of a job: node and number.
fn has(c: &Cluster, job: JobId) -> Vec<(u32, u32)> {
    let parts = c.core.parts(job).iter().map(|part| part.node);
    let devices = parts.flat_map(|node| {
        c.core.devices_of(job, node).into_iter().map(move |id| (node.0, id.number))
    });
    devices.collect()
}

fn why(c: &Cluster, job: JobId) -> Option<WaitReason> {
    match c.core.job(job, ClusterTime(c.now))?.state {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

fn waits_for_gpu(c: &Cluster, job: JobId) -> bool {
    matches!(why(c, job), Some(WaitReason::Device { name }) if name == gpu())
}

#[test]
fn a_job_gets_its_devices_or_waits_under_every_policy() {
    for policy in POLICIES.map(|policy| policy.name) {
        let mut c = cluster(policy);
        let [first, second] = [3, 2].map(|count| c.submit(asks(1, count, Per::Job)));
        assert_eq!(has(&c, first).len(), 3, "{policy}");
        assert!(why(&c, second).is_some() && has(&c, second).is_empty(), "{policy}");
        c.finish(first);
        assert_eq!(has(&c, second).len(), 2, "{policy}");
        c.finish(second);
        assert!(c.core.devices().on(NodeId(0)).all(|it| it.users.is_empty()));
        c.drain();
    }
}

/// What a node has without files is counted and assigned like its devices.
#[test]
fn a_job_gets_what_nodes_count_or_waits() {
    let mut c = Cluster::with_nodes(&[4, 4]);
    let name = ResourceName::new("scratch").unwrap();
    for number in 0..2 {
        let id = DeviceId { name, number };
        let device = Some(Device::counted(id));
        c.event(Event::SetDevice { node: NodeId(1), id, device });
    }
    let wish = |text: &str| text.parse::<ResourceWish>().unwrap().of_nodes();
    let asks = |text| JobSpec { resources: [wish(text)].into(), ..job(1) };
    let [first, second] = ["scratch:2", "scratch"].map(|text| c.submit(asks(text)));
    let numbers = |c: &Cluster, job| c.core.devices_of(job, NodeId(1)).len();
    assert_eq!([first, second].map(|job| numbers(&c, job)), [2, 0]);
    let waits = |c: &Cluster| matches!(why(c, second), Some(WaitReason::Device { .. }));
    assert!(waits(&c), "{:?}", why(&c, second));
    let id = DeviceId { name, number: 1 };
    c.event(Event::SetDevice { node: NodeId(1), id, device: None });
    assert_eq!(numbers(&c, first), 2, "a lower count takes nothing from jobs");
    c.finish(first);
    assert_eq!((numbers(&c, second), waits(&c)), (1, false));
    assert_eq!(c.try_submit(asks("scratch:2/node")), None);
    c.finish(second);
    c.drain();
}

#[test]
fn no_two_jobs_have_a_device_in_different_rows() {
    let mut c = cluster("gang");
    let [first, second] = [8, 8].map(|tasks| c.submit(asks(tasks, 3, Per::Job)));
    assert_eq!((has(&c, first).len(), waits_for_gpu(&c, second)), (3, true));
    c.event(Event::Suspend { job: first });
    assert!(waits_for_gpu(&c, second), "a suspended job keeps its devices");
    let third = c.submit(asks(8, 1, Per::Job));
    assert_eq!(has(&c, third), [] as [(u32, u32); 0], "it may not pass the second");
    c.event(Event::Resume { job: first });
    c.finish(first);
    assert_eq!([second, third].map(|job| has(&c, job).len()), [3, 1]);
    c.drain();
}

/// A job that gives up its devices before it loses a turn.
fn submit_vacating(c: &mut Cluster, spec: JobSpec) -> JobId {
    let options = SubmitOptions { vacate: Some(Nanos(1000)), ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options)).unwrap()
}

fn set(c: &mut Cluster, name: &str, word: &str) {
    let mut params = c.core.params().clone();
    params.choose(name, word).unwrap();
    c.event(Event::SetParams { params });
}

/// The jobs that run in each slot of node 0 while all are present.
fn slots(c: &Cluster) -> Vec<Vec<JobId>> {
    let timetable = c.core.timetable(NodeId(0)).unwrap();
    let jobs = |slot| {
        let mut running = Vec::new();
        timetable.running(slot, |_| true, &mut running);
        running.into_iter().map(|launch| launch.job).collect()
    };
    (0..timetable.slots.len()).map(jobs).collect()
}

#[test]
fn jobs_that_vacate_have_a_device_in_turns_and_never_in_one_slot() {
    let mut c = cluster("gang");
    let [first, second] = [0, 1].map(|_| submit_vacating(&mut c, asks(1, 3, Per::Job)));
    // One device is left, and two are shared; there are processors enough for both jobs at once.
    assert_eq!(has(&c, first), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!(has(&c, second), [(0, 0), (0, 1), (0, 3)]);
    let third = c.submit(job(1));
    let runs = slots(&c);
    assert_eq!(runs.len(), 2, "{runs:?}");
    for slot in &runs {
        let of_both = slot.iter().filter(|&&job| job == first || job == second);
        assert_eq!((of_both.count(), slot.contains(&third)), (1, true), "{runs:?}");
    }
    // No other gets one that it does not vacate.
    let fourth = c.submit(asks(1, 1, Per::Job));
    assert!(waits_for_gpu(&c, fourth));
    // One that a user has suspended leaves its turns to the other, and gets them back.
    c.event(Event::Suspend { job: first });
    assert!(slots(&c).iter().all(|slot| slot.contains(&second)), "{:?}", slots(&c));
    c.event(Event::Resume { job: first });
    assert_eq!(slots(&c).iter().filter(|slot| slot.contains(&second)).count(), 1);
    c.finish(first);
    assert!(slots(&c).iter().all(|slot| slot.contains(&second)), "it is alone: {:?}", slots(&c));
    assert_eq!(has(&c, fourth), [(0, 2)]);
    c.drain();
}

#[test]
fn a_job_in_place_of_an_absent_one_is_none_that_has_its_device() {
    let mut c = cluster("gang");
    let [first, second] = [0, 1].map(|_| submit_vacating(&mut c, asks(8, 4, Per::Job)));
    let timetable = c.core.timetable(NodeId(0)).unwrap();
    for slot in &timetable.slots {
        let jobs: Vec<JobId> = slot.candidates.iter().map(|it| it.launch.job).collect();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
    }
    assert_eq!([first, second].map(|job| has(&c, job).len()), [4, 4]);
    c.drain();
}

#[test]
fn a_site_says_which_jobs_have_devices_in_turns() {
    let mut c = cluster("gang");
    let all = || asks(8, 4, Per::Job);
    set(&mut c, "share_devices", "never");
    let first = submit_vacating(&mut c, all());
    let second = submit_vacating(&mut c, all());
    assert!(waits_for_gpu(&c, second));
    set(&mut c, "share_devices", "all");
    // The first began when no job had devices in turns.
    assert!(waits_for_gpu(&c, second));
    c.finish(first);
    let third = c.submit(all());
    assert_eq!([second, third].map(|job| has(&c, job).len()), [4, 4]);
    set(&mut c, "share_devices", "vacate");
    let fourth = submit_vacating(&mut c, all());
    assert!(waits_for_gpu(&c, fourth), "the third does not vacate");
    c.finish(third);
    assert_eq!(has(&c, fourth).len(), 4);
    c.drain();
}

#[test]
fn a_job_that_makes_way_by_priority_has_its_devices_alone() {
    let mut c = cluster("gang");
    let class = ClassName::new("standby");
    let spec = c.core.classes()[&class].with("control", 2).unwrap();
    c.event(Event::SetClass { class: class.clone(), spec });
    let of_class = |class: &ClassName| JobSpec { class: class.clone(), ..asks(8, 4, Per::Job) };
    let first = submit_vacating(&mut c, of_class(&class));
    let second = submit_vacating(&mut c, asks(8, 4, Per::Job));
    assert_eq!((has(&c, first).len(), waits_for_gpu(&c, second)), (4, true));
    c.drain();
}

#[test]
fn preempted_jobs_give_no_turns_and_come_back_beside_none_that_has_their_device() {
    let mut c = cluster("gang");
    let [first, second] = [0, 1].map(|_| submit_vacating(&mut c, asks(2, 3, Per::Job)));
    for policy in ["classes", "deadline", "gang", "space", "dhc", "gang"] {
        set(&mut c, "policy", policy);
        c.advance(1_000_000_000);
        for slot in slots(&c) {
            let both = [first, second].iter().all(|job| slot.contains(job));
            assert!(!both, "{policy}: {slot:?}");
        }
    }
    c.drain();
}

#[test]
fn devices_near_the_processors_of_a_job_come_first() {
    let mut c = cluster("gang");
    let lower = c.submit(job(4));
    assert_eq!(c.core.parts(lower)[0].processors, ProcessorSet::first(4));
    let upper = c.submit(asks(4, 2, Per::Job));
    assert_eq!(has(&c, upper), [(0, 2), (0, 3)]);
    let another = c.submit(asks(1, 2, Per::Job));
    assert_eq!(has(&c, another), [(0, 0), (0, 1)]);
    c.drain();
}

#[test]
fn devices_are_for_the_job_for_each_node_or_for_each_task() {
    let mut c = cluster("gang");
    c.join(1, 8);
    found(&mut c, 1, 4);
    let on_two = |spec: JobSpec| {
        let nodes = NodeWish { count: Some(2), ..NodeWish::default() };
        JobSpec { nodes, ..spec }
    };
    let cases = [
        (on_two(asks(4, 4, Per::Job)), 2, 2),
        (on_two(asks(4, 3, Per::Job)), 2, 2),
        (on_two(asks(4, 1, Per::Node)), 1, 1),
        (on_two(asks(4, 2, Per::Task)), 4, 4),
        (asks(4, 4, Per::Job), 4, 0),
        // Processors of one node are enough, and its devices are not.
        (asks(5, 1, Per::Task), 4, 1),
    ];
    for (spec, first, second) in cases {
        let name = format!("{:?} of {}", spec.resources, spec.tasks);
        let job = c.submit(spec);
        let on = |node| has(&c, job).iter().filter(|(other, _)| *other == node).count();
        assert_eq!((on(0), on(1)), (first, second), "{name}");
        c.finish(job);
    }
    c.drain();
}

#[test]
fn a_job_starts_where_the_devices_are() {
    let mut c = Cluster::new(params(&[("rows", 2)]));
    for node in 0..3 {
        c.join(node, 8);
    }
    found(&mut c, 2, 2);
    let first = c.submit(asks(2, 1, Per::Job));
    assert_eq!(has(&c, first), [(2, 0)]);
    let wide = c.try_submit(asks(16, 1, Per::Node));
    assert_eq!(wide, None, "two nodes with a device are not there");
    assert!(c.refusals.last().unwrap().to_string().contains("gpu:1/node was asked for"));
    c.drain();
}

#[test]
fn what_can_never_be_met_is_declined_with_what_would_be() {
    let mut c = cluster("gang");
    let mut says = |spec| {
        assert_eq!(c.try_submit(spec), None);
        c.refusals.last().unwrap().to_string()
    };
    assert!(says(asks(1, 5, Per::Job)).ends_with("ask for at most gpu:4"));
    assert!(says(asks(2, 3, Per::Task)).ends_with("ask for at most gpu:2/task"));
    assert!(says(asks(5, 1, Per::Task)).ends_with("they have 4 in all: ask for fewer tasks"));
    let amount = Amount::OnNodes { count: 1, per: Per::Job, vacates: false };
    let name = ResourceName::new("fpga").unwrap();
    let other = JobSpec { resources: vec![ResourceWish { name, amount }], ..job(1) };
    assert!(says(other).starts_with("no node has a device fpga"));
}

#[test]
fn what_an_administrator_names_holds_whatever_is_found() {
    let mut c = cluster("gang");
    let node = NodeId(0);
    let set = |c: &mut Cluster, number, device: Option<Device>| {
        c.event(Event::SetDevice { node, id: DeviceId { name: gpu(), number }, device });
    };
    set(&mut c, 1, None);
    let numbers = |c: &Cluster| -> Vec<u32> {
        c.core.devices().on(node).map(|it| it.device.id.number).collect()
    };
    assert_eq!(numbers(&c), [0, 2, 3]);
    found(&mut c, 0, 2);
    assert_eq!(numbers(&c), [0], "found again, and hidden still");
    set(&mut c, 7, devices(8, 8).pop());
    assert_eq!(numbers(&c), [0, 7]);
    let first = c.submit(asks(1, 2, Per::Job));
    found(&mut c, 0, 8);
    assert_eq!(numbers(&c), [0, 2, 3, 4, 5, 6, 7]);
    found(&mut c, 0, 2);
    set(&mut c, 7, None);
    assert_eq!((numbers(&c), has(&c, first)), (vec![0], vec![(0, 0), (0, 7)]));
    let second = c.submit(asks(1, 1, Per::Job));
    assert!(waits_for_gpu(&c, second));
    c.finish(first);
    assert_eq!(has(&c, second), [(0, 0)]);
    c.drain();
}

#[test]
fn a_file_that_was_named_is_of_no_device_that_is_found() {
    let mut c = cluster("gang");
    let id = DeviceId { name: ResourceName::new("tape").unwrap(), number: 0 };
    let device = Device { id, ..devices(4, 8).swap_remove(2) };
    c.event(Event::SetDevice { node: NodeId(0), id, device: Some(device) });
    let names = c.core.devices().on(NodeId(0)).map(|it| it.device.id.to_string());
    assert!(names.eq(["gpu:0", "gpu:1", "gpu:3", "tape:0"]));
    c.drain();
}

#[test]
fn a_job_that_is_queued_again_gets_the_devices_of_another_node() {
    let mut c = cluster("gang");
    c.join(1, 8);
    found(&mut c, 1, 4);
    let spec = JobSpec { on_node_loss: OnNodeLoss::Requeue, ..asks(2, 4, Per::Job) };
    let lost = c.submit(spec);
    let node = c.core.parts(lost)[0].node;
    c.lose(node.0);
    let other = c.core.parts(lost)[0].node;
    assert_ne!(node, other);
    assert_eq!(has(&c, lost).len(), 4);
    c.event(Event::NodeJoined { node, spec: node_spec(8, 1000) });
    assert_eq!(c.core.devices().on(node).filter(|it| it.users.is_empty()).count(), 4);
    c.drain();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever jobs ask for, under whatever policy and queue: what the invariants say holds, and
    /// no job waits for ever.
    #[test]
    fn every_job_gets_its_turn(
        policy in 0..4usize,
        queue in prop::sample::select(vec!["fcfs", "easy", "sjbf", "conservative"]),
        jobs in prop::collection::vec((1..9u32, 1..5u32, 0..3usize, prop::bool::ANY), 1..20),
    ) {
        let mut params = params(&[("rows", 2)]);
        params.choose("policy", POLICIES[policy].name).unwrap();
        params.choose("discipline", queue).unwrap();
        let mut c = Cluster::new(params);
        for node in 0..2 {
            c.join(node, 4);
            found(&mut c, node, 3);
        }
        let submitted = jobs.iter().filter_map(|&(tasks, count, per, limited)| {
            let time_limit = limited.then(|| Nanos::from_secs(10));
            let per = [Per::Job, Per::Node, Per::Task][per];
            c.try_submit(JobSpec { time_limit, ..asks(tasks, count, per) })
        });
        let ids: Vec<JobId> = submitted.collect();
        for _ in &ids {
            let runs = c.first_running(&ids).expect("one of those that are left runs");
            prop_assert!(!has(&c, runs).is_empty());
            c.finish(runs);
        }
        c.drain();
    }
}

/// Its only node with a device takes no jobs, so it is out of line until another has one.
#[test]
fn a_job_of_a_class_that_keeps_rows_starts_there_as_soon_as_devices_are_found() {
    let mut c = Cluster::new(params(&[("rows", 2)]));
    c.join(0, 2);
    c.join(1, 1);
    found(&mut c, 1, 1);
    for _ in 0..2 {
        c.submit(job(3));
    }
    c.event(Event::SetDrained { node: NodeId(1), reason: Some(String::new()) });
    let quick = c.submit(JobSpec { class: ClassName::new("interactive"), ..asks(1, 1, Per::Job) });
    assert_eq!((why(&c, quick), has(&c, quick)), (Some(WaitReason::Nodes), vec![]));
    found(&mut c, 0, 1);
    assert_eq!(has(&c, quick), [(0, 0)]);
}
