//! A job that is accepted with a deadline is done by then, whatever comes later: random workloads,
//! with jobs that end early, are cancelled, and others that were promised nothing.

use crate::cluster::{Cluster, job, params};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_core::Event;
use tutti_types::{ClassName, ClassSpec, ClusterTime, JobId, JobSpec, Nanos, Refusal, TaskStatus};

const MS: u64 = 1_000_000;

/// A job, and what becomes of it.
#[derive(Clone, Debug)]
struct Coming {
    /// After the one before it.
    after: u64,
    spec: JobSpec,
    /// How long its tasks run; it may be ended at its limit before.
    run: u64,
    cancelled: bool,
}

fn coming() -> impl Strategy<Value = Coming> {
    let each = prop_oneof![Just(None), Just(Some(1)), Just(Some(1)), Just(Some(2))];
    let memory = prop_oneof![3 => Just(None), 1 => (0u64..200).prop_map(Some)];
    let limit = MS..300 * MS;
    let deadline = prop_oneof![1 => Just(None), 4 => (100u64..900).prop_map(Some)];
    let class = prop_oneof![Just("interactive"), Just("production"), Just("standby")];
    let grace = prop_oneof![1 => Just(0), 2 => 0..80 * MS];
    (0..200 * MS, 1u32..8, (each, memory), (limit, grace), deadline, class, 1u64..150, 0u32..20)
        .prop_map(
            |(after, tasks, (each, memory), (limit, grace), deadline, class, run, cancelled)| {
                Coming {
                    after,
                    spec: JobSpec {
                        class: ClassName::new(class),
                        processors_per_task: each,
                        memory_per_task_bytes: memory,
                        time_limit: Some(Nanos(limit)),
                        deadline: deadline.map(|percent| Nanos(limit * percent / 100)),
                        grace: Nanos(grace),
                        ..job(if tasks == 7 { 12 } else { tasks })
                    },
                    run: limit * run / 100,
                    cancelled: cancelled == 0,
                }
            },
        )
}

/// A job on its way.
struct Live {
    run: u64,
    /// By when it was promised to be done, if it keeps its limit.
    deadline: Option<u64>,
}

impl Live {
    fn new(coming: &Coming, deadline: Option<u64>) -> Self {
        let keeps_limit = coming.spec.time_limit.is_some_and(|limit| coming.run <= limit.0);
        Self { run: coming.run, deadline: deadline.filter(|_| keeps_limit) }
    }
}

struct Driver {
    cluster: Cluster,
    live: BTreeMap<JobId, Live>,
}

impl Driver {
    fn new(values: &[(&str, u64)], shares: [u32; 2], slots: u64) -> Self {
        let mut cluster = Cluster::new(params(values));
        for (node, width) in (0..).zip([2, 4, 3]) {
            cluster.join(node, width);
        }
        for (class, share) in ["interactive", "production"].into_iter().zip(shares) {
            let spec = ClassSpec::default().with("share", u64::from(share)).unwrap();
            let spec = spec.with("slots", if class == "interactive" { slots } else { 1 }).unwrap();
            cluster.event(Event::SetClass { class: ClassName::new(class), spec });
        }
        Self { cluster, live: BTreeMap::new() }
    }

    /// The job that is done next, if nothing changes, and when.
    fn next_done(&self) -> Option<(u64, JobId)> {
        let core = &self.cluster.core;
        let done = self.live.iter().map(|(&job, live)| {
            let need = live.run.saturating_sub(core.service(job).0);
            (core.reaches(core.runs_in(job), Nanos(need)).0, job)
        });
        done.min().filter(|&(at, _)| at < u64::MAX)
    }

    /// Everything that happens until `target`, each thing at its moment.
    fn advance(&mut self, target: u64) {
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 100_000, "the core asks to be woken for ever, at {}", self.cluster.now);
            let cluster = &mut self.cluster;
            let wake = cluster.wake.0.min(cluster.core.next_change().0);
            let done = self.next_done().filter(|&(at, _)| at <= target.min(wake));
            let cluster = &mut self.cluster;
            if let Some((at, job)) = done {
                cluster.pass(at);
                cluster.end_job(job, TaskStatus::Exited(0));
            } else if wake <= target {
                cluster.pass(wake.max(cluster.now));
                cluster.event(Event::Tick);
                cluster.deliver_kills();
            } else {
                cluster.pass(target);
                self.judge();
                return;
            }
            self.judge();
        }
    }

    /// No job is late.
    fn judge(&mut self) {
        let Cluster { core, now, outcomes, .. } = &self.cluster;
        for (job, live) in &self.live {
            let late = live.deadline.is_some_and(|deadline| deadline < *now);
            let gone = outcomes.contains_key(job);
            assert!(!late, "job {job} is late at {now}: {:?}", core.job(*job, ClusterTime(*now)));
            assert!(gone || core.at_risk(*job).is_none(), "job {job} is at risk at {now}");
        }
        self.live.retain(|job, _| !outcomes.contains_key(job));
    }

    fn submit(&mut self, coming: &Coming) {
        let now = self.cluster.now;
        let mut spec = coming.spec.clone();
        let Some(job) = self.cluster.try_submit(spec.clone()) else {
            let refusal = self.cluster.refusals.last().cloned();
            let Some(Refusal::Deadline { earliest: Some(earliest), .. }) = refusal else { return };
            // What is named is accepted, and not a nanosecond less.
            spec.deadline = Some(Nanos(earliest.0 - 1));
            assert_eq!(self.cluster.try_submit(spec.clone()), None);
            spec.deadline = Some(earliest);
            let job = self.cluster.submit(spec);
            let deadline = Some(now + earliest.0);
            self.live.insert(job, Live::new(coming, deadline));
            return;
        };
        let deadline = spec.deadline.map(|deadline| now + deadline.0);
        self.live.insert(job, Live::new(coming, deadline));
        if coming.cancelled {
            self.cluster.cancel(job, true);
            self.cluster.deliver_kills();
            self.live.remove(&job);
        }
    }
}

fn play(jobs: &[Coming], values: &[(&str, u64)], shares: [u32; 2], slots: u64) {
    let mut driver = Driver::new(values, shares, slots);
    for coming in jobs {
        driver.advance(driver.cluster.now + coming.after);
        driver.submit(coming);
    }
    driver.advance(driver.cluster.now + 100_000 * MS);
    driver.cluster.drain();
}

fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(60);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn without_shares(jobs in prop::collection::vec(coming(), 1..40)) {
        play(&jobs, &[("policy", 3), ("deadline_slack", 0)], [0, 0], 1);
    }

    #[test]
    fn with_shares(
        jobs in prop::collection::vec(coming(), 1..40),
        shares in [0u32..5000, 0u32..5001],
        quantum in 2 * MS..60 * MS,
        slots in 1u64..5,
    ) {
        play(&jobs, &[("policy", 3), ("deadline_slack", 0), ("quantum", quantum)], shares, slots);
    }

    #[test]
    fn with_a_lead(
        jobs in prop::collection::vec(coming(), 1..30),
        shares in [0u32..5000, 0u32..5001],
        lead in 0..30 * MS,
    ) {
        play_with_a_lead(&jobs, shares, lead);
    }
}

fn one(class: &str, (tasks, each): (u32, Option<u32>), limit: u64, run: u64) -> Coming {
    let spec = JobSpec {
        class: ClassName::new(class),
        processors_per_task: each,
        time_limit: Some(Nanos(limit)),
        grace: Nanos(0),
        ..job(tasks)
    };
    Coming { after: 0, spec, run, cancelled: true }
}

fn within(deadline: u64, coming: Coming) -> Coming {
    let spec = JobSpec { deadline: Some(Nanos(deadline)), ..coming.spec };
    Coming { spec, ..coming }
}

fn play_with_a_lead(jobs: &[Coming], shares: [u32; 2], lead: u64) {
    let values = [("policy", 3), ("deadline_slack", 0), ("quantum", 9 * MS), ("lead", lead)];
    play(jobs, &values, shares, 2);
}

/// The last of job 6 is a nanosecond of its own, between the end of another job and a change that
/// was decided on before: with that it reaches its limit, and it has no turn afterwards.
#[test]
fn who_is_set_aside_at_his_limit_is_ended_then() {
    let jobs = [
        Coming { cancelled: false, ..one("interactive", (3, None), 100_679_919, 22_149_582) },
        within(187_021_641, one("interactive", (2, None), 187_021_641, 110_342_768)),
        Coming { cancelled: false, ..one("production", (4, None), 184_471_654, 27_670_748) },
        Coming {
            cancelled: false,
            ..within(63_852_239, one("standby", (2, Some(2)), 26_494_705, 26_494_705))
        },
        one("production", (1, None), MS, 10_000),
        Coming {
            after: 10_293_216,
            ..within(12_543_337, one("standby", (6, None), 12_543_337, 12_668_770))
        },
    ];
    play_with_a_lead(&jobs, [173, 25], 15_894_198);
}

/// Job 1 is to be set aside, and has its turns until that takes effect: they are enough for its
/// limit.
#[test]
fn who_reaches_his_limit_before_he_is_set_aside_is_ended_then() {
    let jobs = [
        within(33_308_063, one("interactive", (3, Some(2)), 33_308_063, 35_639_627)),
        Coming { cancelled: false, ..one("standby", (4, None), 35_860_064, 35_860_064) },
        Coming {
            after: 13_817_259,
            cancelled: false,
            ..within(171_417_088, one("interactive", (4, None), 25_893_820, 258_938))
        },
        within(42_566_111, one("standby", (1, None), 42_566_111, 42_566_111)),
    ];
    play_with_a_lead(&jobs, [3540, 118], 14_535_362);
}
