//! The queue's disciplines against a plain model: one list of running jobs, one of waiting jobs,
//! processor counts, and a scan for everything. Job by job, the same starts.

use crate::cluster::{Cluster, job, node_spec, params};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_core::{Action, Core, Event, JobState, WaitReason, check};
use tutti_types::{
    ClusterTime, EndReason, JobId, JobSpec, Nanos, NodeId, RequestId, TaskStatus, default_classes,
};

const MS: u64 = 1_000_000;
const NEVER: u64 = u64::MAX;

/// A job of a workload: times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Work {
    gap: u64,
    processors: u32,
    run: u64,
    /// [`NEVER`]: none.
    estimate: u64,
    /// If it still waits then, it is cancelled.
    patience: u64,
}

/// Something that starts jobs. Jobs are numbered from 1.
trait Scheduler {
    fn submit(&mut self, now: u64, job: u64, work: Work);
    fn end(&mut self, now: u64, jobs: &[u64]);
    fn cancel(&mut self, now: u64, job: u64);
    /// The jobs that were started by the latest of these, in any order.
    fn started(&mut self) -> Vec<u64>;
}

/// When each job starts, if it does. At the same moment, jobs end first (those of `together` in one
/// event), then come, then give up.
fn starts(scheduler: &mut dyn Scheduler, work: &[Work], together: bool) -> BTreeMap<u64, u64> {
    let mut starts = BTreeMap::new();
    let mut events: BTreeMap<(u64, u8, u64), ()> = BTreeMap::new();
    let mut now = 0;
    for (job, work) in (1..).zip(work) {
        now += work.gap;
        events.insert((now, 1, job), ());
        if work.patience < NEVER {
            events.insert((now + work.patience, 2, job), ());
        }
    }
    while let Some(((now, kind, job), ())) = events.pop_first() {
        match kind {
            0 => {
                let mut jobs = vec![job];
                while together
                    && events.first_key_value().is_some_and(|(k, ())| (k.0, k.1) == (now, 0))
                {
                    jobs.extend(events.pop_first().map(|((_, _, job), ())| job));
                }
                scheduler.end(now, &jobs);
            }
            1 => scheduler.submit(now, job, of(work, job)),
            _ if starts.contains_key(&job) => continue,
            _ => scheduler.cancel(now, job),
        }
        for job in scheduler.started() {
            assert_eq!(starts.insert(job, now), None, "job {job} started twice");
            events.insert((now + of(work, job).run, 0, job), ());
        }
    }
    starts
}

/// The core, on nodes of these widths.
struct Real {
    core: Core,
    actions: Vec<Action>,
    /// Whether a part of the time that a job is taken to last is its grace.
    graces: bool,
}

impl Real {
    fn new(widths: &[u32], policy: &str, values: &[(&str, u64)]) -> Self {
        let mut params = params(values);
        params.choose("policy", policy).unwrap();
        let core = Core::new(params, default_classes());
        let mut real = Self { core, actions: Vec::new(), graces: false };
        for (node, &width) in (0..).map(NodeId).zip(widths) {
            real.event(0, &Event::NodeJoined { node, spec: node_spec(width, 1000) });
        }
        real
    }

    fn event(&mut self, now: u64, event: &Event) {
        self.core.apply(ClusterTime(now), event, &mut self.actions);
        let violations = check::check(&self.core);
        assert!(violations.is_empty(), "after {event:?}: {violations:#?}");
    }
}

impl Scheduler for Real {
    fn submit(&mut self, now: u64, number: u64, work: Work) {
        let grace = Nanos(if self.graces { (work.estimate - MS) / 3 } else { 0 });
        let time_limit = (work.estimate < NEVER).then(|| Nanos(work.estimate - grace.0));
        let spec = JobSpec { time_limit, grace, ..job(work.processors) };
        self.event(now, &Event::Submit { request: RequestId(number), spec });
    }

    fn end(&mut self, now: u64, jobs: &[u64]) {
        let jobs = jobs.iter().copied().map(JobId).collect();
        self.event(now, &Event::JobsEnded { jobs, status: TaskStatus::Exited(0) });
    }

    fn cancel(&mut self, now: u64, job: u64) {
        let (job, reason) = (JobId(job), EndReason::Cancelled);
        self.event(now, &Event::Cancel { job, reason, at_once: true });
    }

    fn started(&mut self) -> Vec<u64> {
        let graces = self.graces;
        let launched = |action: Action| match action {
            Action::Launch { job, .. } => Some(job.0),
            Action::Terminate { .. } if graces => None,
            Action::Kill { .. } | Action::Terminate { .. } => panic!("{action:?}"),
            _ => None,
        };
        self.actions.drain(..).filter_map(launched).collect()
    }
}

/// The model.
struct Plain {
    discipline: &'static str,
    machine: u64,
    waiting: Vec<(u64, u64, u64)>,
    running: Vec<(u64, u64, u64)>,
    reserved: BTreeMap<u64, (u64, u64)>,
    started: Vec<u64>,
}

impl Plain {
    fn new(machine: u32, discipline: &'static str) -> Self {
        Self {
            discipline,
            machine: machine.into(),
            waiting: Vec::new(),
            running: Vec::new(),
            reserved: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    fn free(&self) -> u64 {
        self.machine - self.running.iter().map(|&(_, processors, _)| processors).sum::<u64>()
    }

    fn start(&mut self, now: u64, job: u64) {
        let index = self.waiting.iter().position(|&(waits, ..)| waits == job).unwrap();
        let (_, processors, estimate) = self.waiting.remove(index);
        self.running.push((job, processors, now.saturating_add(estimate)));
        self.reserved.remove(&job);
        self.started.push(job);
    }

    fn pass(&mut self, now: u64, forward: bool) {
        if self.discipline == "conservative" {
            return self.reserve(now, forward);
        }
        while let Some(&(job, processors, _)) = self.waiting.first()
            && processors <= self.free()
        {
            self.start(now, job);
        }
        if self.discipline != "fcfs" && !self.waiting.is_empty() {
            self.let_by(now);
        }
    }

    fn let_by(&mut self, now: u64) {
        let needs = self.waiting[0].1;
        let free_at = |t: u64, model: &Self| {
            let gone =
                model.running.iter().filter(|&&(_, _, end)| end.max(now) <= t && end < NEVER);
            model.free() + gone.map(|&(_, processors, _)| processors).sum::<u64>()
        };
        let ends = self.running.iter().map(|&(_, _, end)| end.max(now)).filter(|&end| end < NEVER);
        let shadow = ends.filter(|&end| free_at(end, self) >= needs).min();
        let mut extra = shadow.map_or(0, |shadow| free_at(shadow, self) - needs);
        let mut candidates = self.waiting[1..].to_vec();
        if self.discipline == "sjbf" {
            candidates.sort_by_key(|&(job, _, estimate)| (estimate, job));
        }
        for (job, processors, estimate) in candidates {
            let end = now.saturating_add(estimate);
            let gone = shadow.map_or(end < NEVER, |shadow| end <= shadow);
            if processors <= self.free() && (gone || processors <= extra) {
                extra -= if gone { 0 } else { processors };
                self.start(now, job);
            }
        }
    }

    fn reserve(&mut self, now: u64, forward: bool) {
        if forward || self.reserved.values().any(|&(start, _)| start < now) {
            let mut order: Vec<(u64, u64)> =
                self.reserved.iter().map(|(&job, &(start, _))| (start, job)).collect();
            order.sort_unstable();
            for (_, job) in order {
                self.reserved.remove(&job);
                let place = self.earliest(now, job);
                self.reserved.extend(place.map(|place| (job, place)));
            }
        }
        let mut endless = false;
        for (job, _, estimate) in self.waiting.clone() {
            if !self.reserved.contains_key(&job) {
                let place = self.earliest(now, job).filter(|_| !endless || estimate < NEVER);
                endless |= place.is_none();
                self.reserved.extend(place.map(|place| (job, place)));
            }
        }
        for (job, (start, _)) in self.reserved.clone() {
            let processors = self.waiting.iter().find(|&&(waits, ..)| waits == job).unwrap().1;
            if start <= now && processors <= self.free() {
                self.start(now, job);
            }
        }
    }

    /// The first moment from which on as many processors as the job needs stay free, beside those
    /// that run and those that have a reservation.
    fn earliest(&self, now: u64, job: u64) -> Option<(u64, u64)> {
        let asked = |job| *self.waiting.iter().find(|&&(waits, ..)| waits == job).unwrap();
        let (_, needs, estimate) = asked(job);
        let mut others: Vec<(u64, u64, u64)> = self
            .running
            .iter()
            .map(|&(_, processors, end)| (now, end.max(now), processors))
            .collect();
        others.extend(
            self.reserved.iter().map(|(&job, &(start, end))| (start.max(now), end, asked(job).1)),
        );
        let mut moments: Vec<u64> = others.iter().flat_map(|&(from, to, _)| [from, to]).collect();
        moments.push(now);
        moments.sort_unstable();
        let used = |t: u64| {
            let there = others.iter().filter(|&&(from, to, _)| from <= t && t < to);
            there.map(|&(_, _, processors)| processors).sum::<u64>()
        };
        let fits = |&start: &u64| {
            let end = start.saturating_add(estimate);
            let within = moments.iter().filter(|&&t| t >= start && t < end);
            start < NEVER && within.chain([&start]).all(|&t| used(t) + needs <= self.machine)
        };
        let start = moments.iter().copied().find(fits)?;
        Some((start, start.saturating_add(estimate)))
    }
}

impl Scheduler for Plain {
    fn submit(&mut self, now: u64, job: u64, work: Work) {
        self.waiting.push((job, work.processors.into(), work.estimate));
        self.pass(now, false);
    }

    fn end(&mut self, now: u64, jobs: &[u64]) {
        self.running.retain(|(job, ..)| !jobs.contains(job));
        self.pass(now, true);
    }

    fn cancel(&mut self, now: u64, job: u64) {
        self.waiting.retain(|&(waits, ..)| waits != job);
        self.reserved.remove(&job);
        self.pass(now, true);
    }

    fn started(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.started)
    }
}

const WIDTHS: [u32; 4] = [4, 1, 3, 8];

fn work() -> impl Strategy<Value = Work> {
    let processors = prop_oneof![3 => 1u32..4, 2 => 1u32..17, 1 => Just(16)];
    let gap = prop_oneof![2 => Just(0), 3 => 0u64..8, 1 => 0u64..60];
    let run = prop_oneof![1u64..10, 1u64..80];
    let over = prop_oneof![3 => Just(Some(0)), 3 => (0u64..60).prop_map(Some), 1 => Just(None)];
    let patience = prop_oneof![5 => Just(NEVER), 1 => (0u64..50).prop_map(|ms| ms * MS)];
    (gap, processors, run, over, patience).prop_map(|(gap, processors, run, over, patience)| Work {
        gap: gap * MS,
        processors,
        run: run * MS,
        estimate: over.map_or(NEVER, |over| (run + over) * MS),
        patience,
    })
}

fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(60),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Each discipline does what the model does; and `gang` with one row is `space`.
    #[test]
    fn the_disciplines_are_those_of_the_model(
        work in prop::collection::vec(work(), 1..60), together in any::<bool>(),
    ) {
        for discipline in ["fcfs", "easy", "sjbf", "conservative"] {
            let machine = WIDTHS.iter().sum();
            let expected = starts(&mut Plain::new(machine, discipline), &work, together);
            let mut space = Real::new(&WIDTHS, &format!("space:{discipline}"), &[]);
            prop_assert_eq!(starts(&mut space, &work, together), expected.clone(), "{}", discipline);
            prop_assert_eq!(space.core.job_count(), 0);
            let mut space = Real::new(&WIDTHS, &format!("space:{discipline}"), &[]);
            space.graces = true;
            prop_assert_eq!(starts(&mut space, &work, together), expected.clone(), "{}", discipline);
            let policy = format!("gang:{discipline}");
            let mut gang = Real::new(&WIDTHS, &policy, &[("rows", 1), ("quantum", 5 * MS)]);
            prop_assert_eq!(starts(&mut gang, &work, together), expected.clone(), "gang, {}", policy);
            let best_fit = [("rows", 1), ("quantum", 5 * MS), ("packing", 1)];
            let mut gang = Real::new(&WIDTHS, &policy, &best_fit);
            prop_assert_eq!(starts(&mut gang, &work, together), expected, "best fit, {}", policy);
        }
    }

    #[test]
    fn what_was_promised_is_kept_in_turns_too(
        work in prop::collection::vec(work(), 1..60), rows in 1u64..5,
    ) {
        for (packing, placement) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 2), (0, 4)] {
            let values = [("rows", rows), ("packing", packing), ("placement", placement)];
            promises_are_kept("gang:easy", &values, &work);
            promises_are_kept("gang:sjbf", &values, &work);
        }
    }
}

/// Runs a workload in turns, where jobs end when their turns gave them what they need. A job that
/// was told when it starts at the latest has started by then.
fn promises_are_kept(policy: &str, values: &[(&str, u64)], work: &[Work]) {
    let values = [values, &[("quantum", 5 * MS)]].concat();
    let mut real = Real::new(&WIDTHS, policy, &values);
    let mut promised: BTreeMap<u64, u64> = BTreeMap::new();
    let mut running: Vec<u64> = Vec::new();
    let mut coming = (1..).zip(work).peekable();
    let mut comes = 0;
    loop {
        let ends = |&job: &u64| {
            let need = of(work, job).run - real.core.service(JobId(job)).0;
            (real.core.reaches(real.core.runs_in(JobId(job)), Nanos(need)).0, job)
        };
        let end = running.iter().map(ends).min().unwrap_or((NEVER, 0));
        let next = coming.peek().map_or(NEVER, |(_, work)| comes + work.gap);
        let now = next.min(end.0);
        if now == NEVER {
            break;
        } else if next <= end.0 {
            let (job, work) = coming.next().unwrap();
            comes = now;
            real.submit(now, job, *work);
        } else {
            running.retain(|&job| job != end.1);
            real.end(now, &[end.1]);
        }
        for job in real.started() {
            let at_latest = promised.get(&job).copied().unwrap_or(NEVER);
            assert!(now <= at_latest, "job {job} starts at {now}, not {at_latest}");
            running.push(job);
        }
        for view in real.core.jobs(ClusterTime(now)) {
            if let JobState::Queued { why: WaitReason::Reserved { within }, .. } = view.state {
                let at_latest = promised.entry(view.id.0).or_insert(NEVER);
                *at_latest = (*at_latest).min(now + within.0);
            }
        }
    }
    assert_eq!(real.core.job_count(), 0);
}

fn of(work: &[Work], job: u64) -> Work {
    work[usize::try_from(job).unwrap() - 1]
}

/// Starts of jobs given as (processors, run and limit in ms, submitted at ms), on four processors.
fn told(discipline: &str, jobs: &[(u32, u64, u64)]) -> Vec<u64> {
    let mut before = 0;
    let work: Vec<Work> = jobs
        .iter()
        .map(|&(processors, run, at)| {
            let gap = (at - before) * MS;
            before = at;
            Work { gap, processors, run: run * MS, estimate: run * MS, patience: NEVER }
        })
        .collect();
    let mut real = Real::new(&[4], &format!("space:{discipline}"), &[]);
    starts(&mut real, &work, false).into_values().map(|at| at / MS).collect()
}

#[test]
fn who_is_let_by() {
    // The second waits for the first until 10; the third would last until 12, the fourth until 10,
    // and the fifth fits beside the second.
    let jobs = [(3, 10, 0), (3, 10, 1), (1, 10, 2), (1, 8, 2), (1, 5, 3)];
    assert_eq!(told("fcfs", &jobs), [0, 10, 10, 20, 20]);
    assert_eq!(told("easy", &jobs), [0, 10, 2, 12, 20]);
    let jobs = [(3, 10, 0), (4, 10, 1), (1, 10, 2), (1, 8, 2), (1, 5, 3)];
    assert_eq!(told("easy", &jobs), [0, 10, 20, 2, 20]);
    // One of the last two fits beside the second, and then the other would last too long.
    let jobs = [(4, 2, 0), (3, 10, 0), (4, 9, 0), (1, 8, 0), (1, 3, 0)];
    assert_eq!(told("easy", &jobs), [0, 2, 12, 2, 21]);
    assert_eq!(told("sjbf", &jobs), [0, 2, 12, 21, 2]);
}

#[test]
fn a_job_that_uses_its_grace_delays_none_that_was_promised_a_start() {
    for discipline in ["easy", "conservative"] {
        let mut c = Cluster::with_nodes(&[4]);
        let mut params = c.core.params().clone();
        params.choose("policy", &format!("space:{discipline}")).unwrap();
        c.event(Event::SetParams { params });
        let limited = |tasks, ms, grace| JobSpec {
            time_limit: Some(Nanos(ms * MS)),
            grace: Nanos(grace * MS),
            ..job(tasks)
        };
        c.submit(limited(3, 1000, 500));
        let promised = c.submit(limited(4, 1000, 0));
        let why = |c: &Cluster, job| match c.core.job(job, ClusterTime(c.now)).unwrap().state {
            JobState::Queued { why, .. } => Some(why),
            _ => None,
        };
        let within = |ms| Some(WaitReason::Reserved { within: Nanos(ms * MS) });
        assert_eq!(why(&c, promised), within(1500), "{discipline}");
        let too_long = c.submit(limited(1, 1000, 501));
        let short_enough = c.submit(limited(1, 1000, 500));
        assert_eq!(why(&c, short_enough), None, "{discipline}");
        assert!(why(&c, too_long).is_some(), "{discipline}");
        c.advance_ms(1200);
        assert_eq!(why(&c, promised), within(300), "{discipline}: both are in their grace");
        c.advance_ms(300);
        c.deliver_kills();
        assert_eq!(why(&c, promised), None, "{discipline}");
    }
}
