//! Random events at random times: the invariants hold after each, every job's time adds up, the
//! same events give the same actions, and when all has ended nothing is left.

use crate::cluster::{Cluster, job, params, shared};
use proptest::prelude::*;
use tutti_core::{
    ClassName, ClusterTime, Event, Figures, IfAbsent, JobId, JobSpec, LoadAverages, Nanos, NodeId,
    OnBadExit, Rank, TaskStatus,
};

const WIDTHS: [u32; 3] = [2, 4, 3];
const MS: u64 = 1_000_000;

/// One thing that happens. Numbers are taken modulo whatever there is.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Submit(JobSpec),
    EndTask(usize, usize, TaskStatus),
    EndTasks(usize),
    EndJob(usize, TaskStatus),
    Clear(usize),
    DeliverKills,
    Cancel(usize, bool),
    Suspend(usize),
    Resume(usize),
    FrontEndLost(usize),
    Lose(u32),
    Join(u32, u32),
    Quantum(u64),
    Set(&'static str, u64),
    Node(u32, u32, u32),
    Hold(u64),
    Policy(u64, u64),
    Class(usize, u32, IfAbsent),
    Nonsense(u64, u32),
}

fn spec() -> impl Strategy<Value = JobSpec> {
    let each = prop_oneof![Just(None), Just(Some(1)), Just(Some(1)), Just(Some(2))];
    let memory = prop_oneof![3 => Just(None), 1 => (0u64..300).prop_map(Some)];
    let limit = prop_oneof![2 => Just(None), 1 => (MS..400 * MS).prop_map(Some)];
    let rule = prop_oneof![
        Just(OnBadExit::Kill),
        Just(OnBadExit::KillOnSignal),
        Just(OnBadExit::Continue)
    ];
    (1u32..8, each, memory, limit, 0u64..300 * MS, any::<bool>(), rule, 0usize..4).prop_map(
        |(tasks, each, memory, limit, grace, attached, rule, class)| JobSpec {
            class: class_name(class),
            processors_per_task: each,
            memory_per_task_bytes: memory,
            time_limit: limit.map(Nanos),
            grace: Nanos(grace),
            attached,
            on_bad_exit: rule,
            // Now and then more tasks than there are processors.
            ..job(if tasks == 7 { 11 } else { tasks })
        },
    )
}

fn class_name(class: usize) -> ClassName {
    ClassName::new(["interactive", "production", "benchmark", "standby"][class % 4])
}

fn status() -> impl Strategy<Value = TaskStatus> {
    prop_oneof![
        4 => Just(TaskStatus::Exited(0)),
        1 => Just(TaskStatus::Exited(3)),
        1 => Just(TaskStatus::Signaled(11)),
        1 => Just(TaskStatus::OutOfMemory),
        1 => Just(TaskStatus::Lost),
    ]
}

fn empty() -> impl Strategy<Value = IfAbsent> {
    prop_oneof![Just(IfAbsent::Down), Just(IfAbsent::Hold)]
}

/// What users and tasks do.
fn common() -> impl Strategy<Value = Step> {
    let index = 0usize..1000;
    prop_oneof![
        6 => (0..300 * MS).prop_map(Step::Pass),
        2 => (0..3 * MS).prop_map(Step::Pass),
        8 => spec().prop_map(Step::Submit),
        5 => (index.clone(), index.clone(), status()).prop_map(|(j, r, s)| Step::EndTask(j, r, s)),
        4 => index.clone().prop_map(Step::EndTasks),
        4 => (index.clone(), status()).prop_map(|(j, s)| Step::EndJob(j, s)),
        7 => index.clone().prop_map(Step::Clear),
        4 => Just(Step::DeliverKills),
        2 => (index.clone(), any::<bool>()).prop_map(|(j, once)| Step::Cancel(j, once)),
        3 => index.clone().prop_map(Step::Suspend),
        3 => index.clone().prop_map(Step::Resume),
        1 => index.prop_map(Step::FrontEndLost),
        1 => (0u64..50, 0u32..9).prop_map(|(job, n)| Step::Nonsense(job, n)),
    ]
}

/// What administrators and failures do, besides.
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => common(),
        1 => (0u32..3).prop_map(Step::Lose),
        1 => (0u32..3, 1u32..6).prop_map(|(node, width)| Step::Join(node, width)),
        1 => (2 * MS..150 * MS).prop_map(Step::Quantum),
        1 => (1u64..6).prop_map(|rows| Step::Set("rows", rows)),
        1 => (0u64..3).prop_map(|packing| Step::Set("packing", packing)),
        1 => (0u64..5).prop_map(|placement| Step::Set("placement", placement)),
        1 => (1u64..5).prop_map(|tasks| Step::Set("tasks_per_node", tasks)),
        1 => (0u32..4, 0u32..9, 0u32..9).prop_map(|(n, speed, load)| Step::Node(n, speed, load)),
        1 => (0u64..200).prop_map(Step::Hold),
        1 => (0u64..2, 0u64..4).prop_map(|(policy, queue)| Step::Policy(policy, queue)),
        1 => (0usize..4, 0u32..6000, empty()).prop_map(|(c, s, e)| Step::Class(c, s, e)),
    ]
}

fn pick(cluster: &Cluster, index: usize) -> JobId {
    let jobs: Vec<JobId> =
        cluster.core.jobs(ClusterTime(cluster.now)).map(|view| view.id).collect();
    jobs.get(index % jobs.len().max(1)).copied().unwrap_or(JobId(0))
}

fn take(cluster: &mut Cluster, step: &Step) {
    match step {
        Step::Pass(nanos) => cluster.advance(*nanos),
        Step::Submit(spec) => drop(cluster.try_submit(spec.clone())),
        Step::EndTask(index, rank, status) => {
            let job = pick(cluster, *index);
            let held = cluster.held.get(&job).cloned().unwrap_or_default();
            let ranks: Vec<Rank> = held.tasks.into_values().flatten().collect();
            if !ranks.is_empty() {
                cluster.end_task(job, ranks[rank % ranks.len()].0, *status);
            }
        }
        Step::EndTasks(index) => cluster.end_tasks(pick(cluster, *index), TaskStatus::Exited(0)),
        Step::EndJob(index, status) => cluster.end_job(pick(cluster, *index), *status),
        Step::Clear(index) => cluster.clear(pick(cluster, *index)),
        Step::DeliverKills => cluster.deliver_kills(),
        Step::Cancel(index, at_once) => cluster.cancel(pick(cluster, *index), *at_once),
        Step::Suspend(index) => cluster.event(Event::Suspend { job: pick(cluster, *index) }),
        Step::Resume(index) => cluster.event(Event::Resume { job: pick(cluster, *index) }),
        Step::FrontEndLost(index) => {
            cluster.event(Event::FrontEndLost { job: pick(cluster, *index) });
        }
        Step::Lose(node) => cluster.lose(*node),
        Step::Join(node, width) => join(cluster, *node, *width),
        Step::Quantum(quantum) => set(cluster, "quantum", *quantum),
        Step::Set(name, value) => set(cluster, name, *value),
        Step::Node(node, speed, load) => {
            let node = NodeId(*node);
            let figures = Figures { int: *speed, float: 1, double: 7 * speed, memory: 0 };
            cluster.event(Event::NodeMeasured { node, figures });
            let averages = LoadAverages { now: 500 * load, ..LoadAverages::default() };
            cluster.event(Event::NodeLoad { node, averages });
        }
        Step::Hold(job) => cluster.hold(*job),
        Step::Policy(policy, queue) => {
            set(cluster, "policy", *policy);
            set(cluster, "queue", *queue);
        }
        Step::Class(class, share, empty) => {
            let spec = shared(*share, *empty);
            cluster.event(Event::SetClass { class: class_name(*class), spec });
        }
        Step::Nonsense(job, n) => {
            let (job, node) = (JobId(1000 + job), NodeId(50 + n));
            cluster.event(Event::JobCleared { job, nodes: vec![node] });
            cluster.event(Event::JobCleared { job, nodes: vec![] });
            cluster.event(Event::NodeLost { node });
            let status = TaskStatus::Exited(1);
            cluster.event(Event::TasksEnded { job, ranks: vec![Rank(*n)], status });
            cluster.event(Event::TasksEnded { job, ranks: vec![], status });
            cluster.event(Event::JobsEnded { jobs: vec![job, job], status });
            cluster.event(Event::Signal { job, ranks: vec![Rank(*n)], signal: 1 });
            cluster.event(Event::Tick);
        }
    }
}

/// A node joins anew; if it was up with other means, what it held is gone.
fn join(cluster: &mut Cluster, node: u32, width: u32) {
    let same = cluster
        .core
        .nodes()
        .any(|view| view.id == NodeId(node) && view.up && view.spec.processors.count() == width);
    if !same {
        cluster.lose(node);
    }
    cluster.join(node, width);
}

fn set(cluster: &mut Cluster, name: &str, value: u64) {
    let mut params = cluster.core.params().clone();
    params.set(name, value).unwrap();
    cluster.event(Event::SetParams { params });
}

fn play(steps: &[Step], values: &[(&str, u64)]) -> Cluster {
    let mut cluster = Cluster::new(params(values));
    for (node, width) in (0..).zip(WIDTHS) {
        cluster.join(node, width);
    }
    for step in steps {
        take(&mut cluster, step);
    }
    cluster
}

fn same(a: &Cluster, b: &Cluster) {
    assert_eq!(a.log, b.log);
    assert_eq!(a.core.digest(), b.core.digest());
}

/// Few cases by default, as the core is checked whole after each event; `PROPTEST_CASES` asks for
/// more.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(80);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut cluster = play(&steps, &[("quantum", 7 * MS), ("rows", 3)]);
        same(&cluster, &play(&steps, &[("quantum", 7 * MS), ("rows", 3)]));
        cluster.drain();
    }

    #[test]
    fn with_a_lead(steps in prop::collection::vec(any_step(), 1..60), lead in 0..40 * MS) {
        let values = [("quantum", 7 * MS), ("lead", lead)];
        let mut cluster = play(&steps, &values);
        same(&cluster, &play(&steps, &values));
        cluster.drain();
    }

    #[test]
    fn however_jobs_are_placed(
        steps in prop::collection::vec(any_step(), 1..80), packing in 0u64..3, placement in 0u64..5,
    ) {
        let values =
            [("quantum", 7 * MS), ("rows", 3), ("packing", packing), ("placement", placement)];
        let mut cluster = play(&steps, &values);
        same(&cluster, &play(&steps, &values));
        cluster.drain();
    }

    /// However jobs come and go, a row waits no longer than the turns of all others.
    #[test]
    fn nobody_starves(steps in prop::collection::vec(common(), 1..120), rows in 1u64..5) {
        let quantum = 5 * MS;
        let cluster = play(&steps, &[("quantum", quantum), ("rows", rows)]);
        prop_assert!(cluster.longest_wait <= (rows - 1) * quantum, "{}", cluster.longest_wait);
    }
}
