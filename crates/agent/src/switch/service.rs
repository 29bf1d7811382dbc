//! Service: what classes had of this node's time, and which local alternate comes first by that
//! (SP-2 paper: local schedulers decide alone what becomes of the time of an empty class, from
//! state that they keep by looking at messages).
//!
//! Timetables say which classes have jobs here, and their parts of the time. A class that has had
//! `t` of processor time has a *virtual time* of `t` over its part. At the beginning of each turn,
//! the local alternates of the class with the least virtual time come first. So what absent jobs
//! leave here is divided among the classes by their parts, whether or not the controller can be
//! reached, and no message is sent.
//!
//! All of it is soft state. A class that comes, as all do after a restart of the agent, begins with
//! the least virtual time of the others. One that could not use its time is behind by no more than
//! [`BEHIND_NS`]. Without local alternates none of this costs anything.

use std::collections::BTreeMap;
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::{ClassName, ClusterTime, JobId, Timetable};
use tutti_wire::report::ClassServiceReport;

/// How much of the time of one processor a class can catch up on, in nanoseconds.
const BEHIND_NS: u128 = 60_000_000_000;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Service {
    classes: Vec<Class>,
    /// The class of each job here, by its place.
    of: BTreeMap<JobId, usize>,
    /// Until when what ran is counted.
    since: ClusterTime,
    /// The timetable and the begin of the turn for which alternates are in order.
    ordered: Option<(u64, ClusterTime)>,
}

/// What a class has and had.
#[derive(Debug)]
struct Class {
    class: Option<ClassName>,
    part: u32,
    /// Processor time in the turns of its jobs, in nanoseconds.
    had_ns: u64,
    /// That over its part.
    virtual_ns: u128,
    /// On how many processors jobs of it run now.
    processors: u64,
}

impl Class {
    fn takes(&mut self, ns: u64) {
        let more = ns.saturating_mul(self.processors);
        self.had_ns = self.had_ns.saturating_add(more);
        self.virtual_ns = self.virtual_ns.saturating_add(over_part(more.into(), self.part));
    }
}

fn over_part(ns: u128, part: u32) -> u128 {
    ns.saturating_mul(SHARE_WHOLE.into()) / u128::from(part.max(1))
}

impl Service {
    /// A timetable has come into force.
    pub(super) fn follow(&mut self, timetable: &Timetable, now: ClusterTime) {
        if timetable.classes.is_empty() {
            if !self.classes.is_empty() {
                *self = Self::default();
            }
            return;
        }
        self.count(now);
        let mut before = std::mem::take(&mut self.classes);
        before.retain(|had| timetable.classes.iter().any(|it| it.class == had.class));
        let least = before.iter().map(|it| it.virtual_ns).min().unwrap_or(0);
        self.of.clear();
        for (place, named) in timetable.classes.iter().enumerate() {
            self.of.extend(named.jobs.iter().map(|&job| (job, place)));
            let had = before.iter().find(|it| it.class == named.class);
            self.classes.push(Class {
                class: named.class.clone(),
                part: named.part,
                had_ns: had.map_or(0, |it| it.had_ns),
                virtual_ns: had.map_or(least, |it| it.virtual_ns),
                processors: had.map_or(0, |it| it.processors),
            });
        }
    }

    /// Counts what has run until now.
    fn count(&mut self, now: ClusterTime) {
        let ns = now.since(self.since).0;
        self.since = now;
        self.classes.iter_mut().for_each(|class| class.takes(ns));
        let most = self.classes.iter().map(|it| it.virtual_ns).max().unwrap_or(0);
        for class in &mut self.classes {
            let least = most.saturating_sub(over_part(BEHIND_NS, class.part));
            class.virtual_ns = class.virtual_ns.max(least);
        }
    }

    /// These jobs run from now on. They stand in the order of the candidates.
    pub(super) fn run(&mut self, timetable: &Timetable, now: ClusterTime, running: &[JobId]) {
        if self.classes.is_empty() {
            return;
        }
        self.count(now);
        self.classes.iter_mut().for_each(|class| class.processors = 0);
        let slot = timetable.position(now).and_then(|it| timetable.slots.get(it.slot));
        let mut running = running.iter().peekable();
        for candidate in slot.into_iter().flat_map(|slot| &slot.candidates) {
            if running.next_if(|&&job| job == candidate.launch.job).is_none() {
                continue;
            }
            if let Some(&place) = self.of.get(&candidate.launch.job) {
                self.classes[place].processors += u64::from(candidate.processors.count());
            }
        }
    }

    /// Puts the local alternates of the turn that has begun in order, once for each turn.
    pub(super) fn put_in_order(&mut self, timetable: &mut Timetable, now: ClusterTime) {
        if self.classes.is_empty() {
            return;
        }
        let Some(position) = timetable.position(now) else { return };
        let turn = Some((timetable.version, position.begins));
        if self.ordered != turn {
            self.ordered = turn;
            self.sort((timetable, position.slot), now);
        }
    }

    /// Puts those of the turn that begins then in the order that they will have.
    pub(super) fn foresee(&self, timetable: &mut Timetable, begins: ClusterTime) {
        if self.classes.is_empty() {
            return;
        }
        if let Some(position) = timetable.position(begins) {
            self.sort((timetable, position.slot), begins);
        }
    }

    /// By what classes will have had at a moment. One without a part comes last.
    fn sort(&self, (timetable, slot): (&mut Timetable, usize), at: ClusterTime) {
        let ns = at.since(self.since).0;
        let virtual_ns = |class: &Class| {
            let more = ns.saturating_mul(class.processors);
            class.virtual_ns.saturating_add(over_part(more.into(), class.part))
        };
        let behind = |job: JobId| {
            let class = self.of.get(&job).map(|&place| &self.classes[place]);
            class.filter(|it| it.part > 0).map_or(u128::MAX, virtual_ns)
        };
        timetable.sort_local(slot, behind);
    }

    /// What each class had.
    pub(super) fn report(&mut self, now: ClusterTime) -> Vec<ClassServiceReport> {
        if !self.classes.is_empty() {
            self.count(now);
        }
        let whole: u64 = self.classes.iter().map(|it| u64::from(it.part)).sum();
        let report = |it: &Class| ClassServiceReport {
            class: it.class.as_ref().map(ToString::to_string),
            part_milli: u32::try_from(u64::from(it.part) * 1000 / whole.max(1)).unwrap_or(1000),
            had_ns: it.had_ns,
        };
        self.classes.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::{Candidate, ClassPart, IfAbsent, LaunchId, Nanos, ProcessorSet, RowId, Slot};

    const MS: u64 = 1_000_000;

    /// One node of one processor. Job 1 has no process. Each of the others has a slot, too, and is
    /// an alternate in all others.
    fn timetable(parts: &[(&str, u32)], lengths: &[u64]) -> Timetable {
        let candidate = |job: u64| Candidate {
            launch: LaunchId::first(JobId(job)),
            processors: ProcessorSet::first(1),
            if_absent: IfAbsent::Down,
        };
        let jobs = 1..=lengths.len() as u64;
        let slot = |home: u64| {
            let others = jobs.clone().filter(|&job| job != home);
            let candidates = std::iter::once(home).chain(others).map(candidate).collect();
            let local = u32::try_from(lengths.len()).unwrap() - 1;
            let length = Nanos(lengths[usize::try_from(home - 1).unwrap()] * MS);
            Slot { row: RowId(home), length, candidates, local }
        };
        let class = |(place, &(name, part)): (usize, &(&str, u32))| ClassPart {
            class: (!name.is_empty()).then(|| ClassName::new(name)),
            part,
            jobs: vec![JobId(place as u64 + 1)],
        };
        Timetable {
            version: 1,
            slots: jobs.clone().map(slot).collect(),
            classes: parts.iter().enumerate().map(class).collect(),
            ..Timetable::default()
        }
    }

    /// Which part of the time each job has, in so many rounds, while the first is absent. In each
    /// turn the thread looks twice.
    fn parts_of(
        service: &mut Service,
        timetable: &mut Timetable,
        (from, rounds): (u64, u64),
    ) -> BTreeMap<u64, f64> {
        let mut had: BTreeMap<u64, u64> = BTreeMap::new();
        let frame = timetable.frame().0;
        let end = from + rounds * frame;
        let mut now = ClusterTime(from);
        while now.0 < end {
            service.put_in_order(timetable, now);
            let position = timetable.position(now).unwrap();
            let mut running = Vec::new();
            timetable.running(position.slot, |launch| launch.job.0 > 1, &mut running);
            let jobs: Vec<JobId> = running.iter().map(|launch| launch.job).collect();
            service.run(timetable, now, &jobs);
            let half = ClusterTime(now.0 + position.ends.since(position.begins).0 / 2);
            let until = if now == position.begins { half } else { position.ends };
            *had.entry(jobs[0].0).or_default() += until.since(now).0;
            now = until;
        }
        let all = (end - from) as f64;
        had.into_iter().map(|(job, ns)| (job, ns as f64 / all)).collect()
    }

    #[test]
    fn what_an_absent_job_leaves_is_divided_by_the_parts_of_classes() {
        let parts = [("a", 6000), ("b", 3000), ("c", 1000)];
        let mut timetable = timetable(&parts, &[60, 30, 10]);
        let mut service = Service::default();
        service.follow(&timetable, ClusterTime(0));
        let had = parts_of(&mut service, &mut timetable, (0, 40));
        assert!((had[&2] - 0.75).abs() < 0.02 && (had[&3] - 0.25).abs() < 0.02, "{had:?}");
        // What it knew is lost with the agent: the same holds from then on.
        let mut service = Service::default();
        let from = 40 * timetable.frame().0;
        service.follow(&timetable, ClusterTime(from));
        let had = parts_of(&mut service, &mut timetable, (from, 40));
        assert!((had[&2] - 0.75).abs() < 0.02 && (had[&3] - 0.25).abs() < 0.02, "{had:?}");
        let report = service.report(ClusterTime(2 * from));
        assert_eq!(report[1].part_milli, 300);
        assert!(report[1].had_ns > 2 * report[2].had_ns, "{report:?}");
    }

    #[test]
    fn a_class_without_a_part_has_only_what_no_other_wants() {
        let mut timetable = timetable(&[("a", 9000), ("b", 1000), ("", 0)], &[90, 10, 10]);
        let mut service = Service::default();
        service.follow(&timetable, ClusterTime(0));
        let had = parts_of(&mut service, &mut timetable, (0, 10));
        assert!((had[&2] - 100.0 / 110.0).abs() < 0.01, "{had:?}");
    }

    #[test]
    fn a_class_that_was_away_does_not_take_all_when_it_is_back() {
        let mut all = timetable(&[("a", 5000), ("b", 2500), ("c", 2500)], &[50, 25, 25]);
        let mut service = Service::default();
        service.follow(&all, ClusterTime(0));
        // For an hour only class b runs.
        service.run(&all, ClusterTime(50 * MS), &[JobId(2)]);
        let hour = 3600 * 1000 * MS;
        service.count(ClusterTime(hour));
        let behind = service.classes[1].virtual_ns - service.classes[2].virtual_ns;
        assert_eq!(behind, over_part(BEHIND_NS, 2500));
        // One that is new begins beside the least.
        all.classes[0].class = Some(ClassName::new("new"));
        service.follow(&all, ClusterTime(hour));
        assert_eq!(service.classes[0].virtual_ns, service.classes[2].virtual_ns);
        assert_eq!(service.classes[0].had_ns, 0);
        all.classes.clear();
        service.follow(&all, ClusterTime(hour));
        assert!(service.classes.is_empty() && service.of.is_empty());
    }
}
