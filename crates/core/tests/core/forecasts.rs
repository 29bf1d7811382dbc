//! Forecasts against lives: a job that runs to its limit starts and ends when it was foretold.

use crate::cluster::{job, node_spec, params};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_core::{Action, Core, CutShort, Event, Forecast, Unknown, WaitReason, check};
use tutti_types::{
    ClassName, ClusterTime, JobId, JobSpec, Nanos, NodeId, RequestId, TaskStatus, UserId,
    default_classes,
};

const MS: u64 = 1_000_000;

/// A core whose jobs run exactly to their limits, worked out from how long each has run.
struct Life {
    core: Core,
    now: ClusterTime,
    limits: BTreeMap<JobId, Nanos>,
    starts: BTreeMap<JobId, ClusterTime>,
    ends: BTreeMap<JobId, ClusterTime>,
    requests: u64,
}

impl Life {
    fn new(widths: &[u32], policy: &str, queue: &str, values: &[(&str, u64)]) -> Self {
        let mut params = params(values);
        params.choose("policy", policy).unwrap();
        params.choose("discipline", queue).unwrap();
        let mut life = Self {
            core: Core::new(params, default_classes()),
            now: ClusterTime(0),
            limits: BTreeMap::new(),
            starts: BTreeMap::new(),
            ends: BTreeMap::new(),
            requests: 0,
        };
        for (node, &width) in (0..).map(NodeId).zip(widths) {
            life.event(Event::NodeJoined { node, spec: node_spec(width, 1000) });
        }
        life
    }

    fn event(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.core.apply(self.now, &event, &mut actions);
            let violations = check::check(&self.core);
            assert!(violations.is_empty(), "after {event:?}: {violations:#?}");
            for action in actions {
                match action {
                    Action::Launch { job, .. } => {
                        self.starts.entry(job).or_insert(self.now);
                    }
                    Action::Ended { job, .. } => {
                        self.ends.insert(job, self.now);
                    }
                    Action::MoveOut { job } => events.insert(0, Event::MovedOut { job }),
                    Action::MoveIn { job } => events.insert(0, Event::MovedIn { job }),
                    Action::Terminate { .. } | Action::Kill { .. } => panic!("{action:?}"),
                    _ => {}
                }
            }
        }
    }

    fn submit(&mut self, spec: &JobSpec) -> Option<JobId> {
        self.requests += 1;
        let before = self.core.jobs_made();
        self.event(Event::Submit { request: RequestId(self.requests), spec: spec.clone() });
        let job = JobId(self.core.jobs_made());
        let accepted = (job.0 > before).then_some(job);
        self.limits.extend(accepted.zip(spec.time_limit));
        accepted
    }

    /// When the first job has run as long as it may.
    fn next_end(&self) -> ClusterTime {
        let running = self.starts.keys().filter(|job| !self.ends.contains_key(job));
        let ends = running.filter_map(|job| {
            let left = self.limits.get(job)?.0.saturating_sub(self.core.service(*job).0);
            let runs = self.core.runs_in(*job);
            match (left, runs) {
                (0, _) => Some(self.now),
                (_, []) => None,
                (left, runs) => Some(self.core.reaches(runs, Nanos(left))),
            }
        });
        ends.min().unwrap_or(ClusterTime::NEVER)
    }

    /// Lives on until `until`, or until nothing is to come.
    fn live(&mut self, until: ClusterTime) {
        for _ in 0..10_000 {
            let due = self.next_end().min(self.core.wake_at()).min(self.core.next_change());
            if due > until || due == ClusterTime::NEVER {
                self.now = self.now.max(until.min(ClusterTime(u64::MAX / 2)));
                return;
            }
            self.now = self.now.max(due);
            let service = |job| self.core.job(job, self.now).map(|view| view.service);
            let over = self.limits.iter().filter(|(job, _)| self.starts.contains_key(job));
            let over = over.filter(|(job, limit)| service(**job).is_some_and(|it| it >= **limit));
            let jobs: Vec<JobId> = over.map(|(job, _)| *job).collect();
            match jobs.is_empty() {
                true => self.event(Event::Tick),
                false => self.event(Event::JobsEnded { jobs, status: TaskStatus::Exited(0) }),
            }
        }
        panic!("it does not come to an end");
    }
}

/// What is asked for, in the words of the test.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    gap: u64,
    tasks: u32,
    limit: u64,
    memory: u64,
    grace: u64,
    user: u32,
    class: usize,
}

fn spec_of(wanted: Wanted) -> JobSpec {
    let class = ["interactive", "production", "benchmark", "standby"][wanted.class];
    JobSpec {
        owner: UserId(1000 + wanted.user),
        class: ClassName::new(class),
        time_limit: Some(Nanos(wanted.limit * MS)),
        memory_per_task_bytes: (wanted.memory > 0).then_some(wanted.memory * 100),
        grace: Nanos(wanted.grace * MS),
        ..job(wanted.tasks)
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    // Jobs often end at the same moment.
    let limit = prop_oneof![1u64..2000, (1u64..5).prop_map(|half| half * 500)];
    let gap = prop_oneof![2 => Just(0), 1 => 0u64..400];
    (gap, 1u32..7, limit, 0u64..4, 0u64..50, 0u32..3, 0usize..4).prop_map(
        |(gap, tasks, limit, memory, grace, user, class)| Wanted {
            gap,
            tasks,
            limit,
            memory,
            grace,
            user,
            class,
        },
    )
}

/// What would submit a job.
fn submit(spec: &JobSpec) -> Event {
    Event::Submit { request: RequestId(0), spec: spec.clone() }
}

/// Plays a forecast to its end.
fn play(mut forecast: Forecast) -> Forecast {
    while forecast.step() {}
    forecast
}

fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(100),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Also where the job is only asked about: then it is foretold as if it were submitted.
    #[test]
    fn jobs_start_and_end_when_it_was_foretold(
        widths in prop::collection::vec(1u32..5, 1..4),
        policy in prop::sample::select(vec!["gang", "space", "classes", "deadline", "dhc"]),
        queue in prop::sample::select(vec!["fcfs", "easy", "sjbf", "conservative"]),
        rows in 1u64..4,
        lead in 0u64..3,
        work in prop::collection::vec(wanted(), 2..25),
    ) {
        let values = [("rows", rows), ("quantum", 100 * MS), ("lead", lead * 5 * MS)];
        let mut life = Life::new(&widths, policy, queue, &values);
        let mut at = 0;
        let (last, work) = work.split_last().unwrap();
        for &wanted in work {
            at += wanted.gap * MS;
            life.live(ClusterTime(at));
            life.submit(&spec_of(wanted));
        }
        let spec = spec_of(*last);
        let asked = Forecast::of_job(&life.core, life.now, submit(&spec)).map(|it| (it.0, play(it.1)));
        let before = life.core.digest();
        let line = play(Forecast::of_line(&life.core, life.now));
        prop_assert_eq!(life.core.digest(), before);
        let mut other = Life { core: life.core.clone(), ..Life::new(&[], policy, queue, &values) };
        (other.now, other.limits) = (life.now, life.limits.clone());
        (other.starts, other.ends) = (life.starts.clone(), life.ends.clone());
        // Without the job, what was foretold for the line.
        life.live(ClusterTime::NEVER);
        for (job, foreseen) in line.jobs(JobId(0)) {
            prop_assert_eq!(foreseen.starts, life.starts.get(&job).copied(), "start of {}", job);
            prop_assert_eq!(foreseen.ends, life.ends.get(&job).copied(), "end of {}", job);
            prop_assert_eq!(line.unknown(job).is_none(), foreseen.ends.is_some());
        }
        // With it, what was foretold for it.
        let accepted = other.submit(&spec);
        prop_assert_eq!(accepted, asked.as_ref().ok().map(|it| it.0));
        other.live(ClusterTime::NEVER);
        if let Ok((job, forecast)) = asked {
            let foreseen = forecast.jobs(job).next().unwrap().1;
            prop_assert_eq!(foreseen.starts, other.starts.get(&job).copied(), "start of {}", job);
            prop_assert_eq!(foreseen.ends, other.ends.get(&job).copied(), "end of {}", job);
        }
    }
}

fn limited(tasks: u32, limit_ms: u64) -> JobSpec {
    JobSpec { time_limit: Some(Nanos(limit_ms * MS)), ..job(tasks) }
}

#[test]
fn a_start_rests_on_the_limits_of_jobs_that_have_its_processors() {
    let mut life = Life::new(&[4], "space", "fcfs", &[]);
    for (tasks, limit) in [(1, 500), (2, 200), (1, 100), (4, 300), (1, 50)] {
        life.submit(&limited(tasks, limit));
    }
    let line = play(Forecast::of_line(&life.core, life.now));
    let found: Vec<_> = line.jobs(JobId(0)).map(|(job, it)| (job.0, it.clone())).collect();
    let [(4, fourth), (5, fifth)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(fourth.starts, Some(ClusterTime(500 * MS)));
    assert_eq!(fourth.ends, Some(ClusterTime(800 * MS)));
    assert_eq!(fourth.rests_on, [JobId(1), JobId(2), JobId(3)]);
    assert_eq!((fifth.starts, &fifth.rests_on[..]), (fourth.ends, &[JobId(4)][..]));
    assert_eq!(line.unknown(JobId(4)), None);
    let (asked, forecast) = Forecast::of_job(&life.core, life.now, submit(&job(1))).unwrap();
    let forecast = play(forecast);
    let foreseen = forecast.jobs(asked).next().unwrap().1;
    assert_eq!((asked, foreseen.starts), (JobId(6), Some(ClusterTime(800 * MS))));
    assert_eq!(forecast.unknown(asked), Some(Unknown::OwnLimit));
}

#[test]
fn behind_a_job_without_a_limit_a_start_is_unknown() {
    let mut life = Life::new(&[2], "space", "easy", &[]);
    life.submit(&limited(1, 100));
    life.submit(&job(1));
    let waits = life.submit(&limited(2, 100)).unwrap();
    let beside = life.submit(&limited(1, 100)).unwrap();
    let line = play(Forecast::of_line(&life.core, life.now));
    assert_eq!(line.unknown(waits), Some(Unknown::NoLimit(JobId(2))));
    let foreseen = line.jobs(beside).next().unwrap().1;
    assert_eq!(foreseen.starts.is_some(), line.unknown(beside).is_none());
    // Nodes that are too few, and a user's order, are reasons of their own.
    life.event(Event::Suspend { job: beside });
    life.event(Event::SetDrained { node: NodeId(0), reason: Some(String::new()) });
    let line = play(Forecast::of_line(&life.core, life.now));
    assert_eq!(line.unknown(beside), Some(Unknown::Suspended(beside)));
    assert_eq!(line.unknown(waits), Some(Unknown::Waits(WaitReason::Nodes)));
}

#[test]
fn a_forecast_looks_no_further_than_a_year() {
    let mut life = Life::new(&[1], "space", "fcfs", &[]);
    life.submit(&limited(1, 400 * 24 * 3600 * 1000));
    let waits = life.submit(&limited(1, 100)).unwrap();
    let line = play(Forecast::of_line(&life.core, life.now));
    assert_eq!(line.unknown(waits), Some(Unknown::CutShort(CutShort::Ahead)));
}

#[test]
fn a_job_that_would_be_declined_has_no_forecast() {
    let life = Life::new(&[1], "space", "fcfs", &[]);
    assert!(Forecast::of_job(&life.core, life.now, submit(&job(2))).is_err());
}

/// Of two users in turn: while jobs pass the first in line, another one is the first for a moment,
/// and starts.
#[test]
fn the_first_in_line_waits_for_a_reason_also_when_another_was_first_for_a_moment() {
    let mut life = Life::new(&[2, 4, 3], "gang", "easy", &[("rows", 1), ("lead", 0)]);
    let work = [
        (4, 1000, 0, 0, 1, 0),
        (3, 1371, 0, 0, 2, 0),
        (2, 500, 0, 0, 1, 0),
        (1, 999, 0, 0, 2, 0),
        (5, 1, 3, 0, 2, 3),
        (4, 180, 0, 38, 0, 3),
        (2, 144, 0, 0, 2, 0),
        (4, 1000, 0, 0, 2, 0),
        (3, 349, 2, 23, 0, 3),
        (6, 1500, 3, 0, 0, 0),
        (4, 2000, 0, 0, 1, 0),
        (2, 154, 0, 0, 1, 0),
    ];
    for (tasks, limit, memory, grace, user, class) in work {
        life.submit(&spec_of(Wanted { gap: 0, tasks, limit, memory, grace, user, class }));
    }
    life.live(ClusterTime::NEVER);
    assert_eq!(life.ends.len(), work.len());
}
