//! Processors with external load: used by what is none of the cluster's jobs, or held by jobs of
//! other instances on this machine. The agent reports them to the controller.
//!
//! Use is measured every [`INTERVAL_NS`], under the policy `classes` always, else only while the
//! node has jobs: each look costs a wake-up. Processors that other instances' jobs hold count at
//! once, before they are used and while they are not, but not under `classes`, which keeps jobs off
//! a processor for its use alone. The kernel tells when groups of other instances appear
//! ([`Others`]); what is given back counts until the next measurement, since each report may become
//! an entry of the journal.
//!
//! The kernel counts what each processor was used, but what the jobs have used only in all. So how
//! many processors others have follows from the whole: what was used less what the jobs have used.
//! Which ones is a guess: those that the timetable gives to no job and are busy nevertheless. Where
//! the jobs have all of them, it is as if others used the same of each. A process that gives way to
//! all others (`nice`) needs no processor of its own, and does not count; as far as that may be the
//! jobs (their time is not told apart so), it counts as theirs.

use crate::processor_time::{Reading, Used};
use crate::released::Own;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use tutti_linux::cgroup::Others;
use tutti_node::layout::is_of_a_job;
use tutti_types::{ProcessorSet, Timetable};

/// How much is looked at at once: a process that computes for a moment leaves the processor soon.
const INTERVAL_NS: u64 = 5_000_000_000;
/// What a processor is ahead of others by, in thousandths of it, that has been found to be used
/// before: processes move about, and a process without one of its own is on one now and on another
/// then.
const KEPT_MILLI: u64 = 250;
/// How long after a group of another instance has appeared its processors are read: they are
/// written a little later.
const SETTLE_NS: u64 = 20_000_000;
/// How often other instances are looked for where no group that is watched changes. That visits all
/// groups of the machine.
const FIND_NS: u64 = 60_000_000_000;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// How much of a processor external load must use; 0: the controller does not want to know.
    enough_milli: u32,
    /// Whether processors that others hold count.
    held_count: bool,
    due_ns: Option<u64>,
    /// When to read what others hold, before the next measurement.
    held_due_ns: Option<u64>,
    last: Option<Reading>,
    /// Processors of the jobs.
    given: ProcessorSet,
    found: ProcessorSet,
    /// Processors that jobs of other instances hold.
    held: ProcessorSet,
    others: Option<Others>,
    /// When to look for other instances.
    find_ns: u64,
    /// What the controller was told, if it was told anything.
    told: Option<ProcessorSet>,
}

impl Taken {
    /// One that sees other instances where their groups can be seen.
    pub(crate) fn beside(own: Option<Own<'_>>) -> Self {
        let others = own.and_then(|own| own.hierarchy.others());
        let held = held_by(others.as_ref(), own);
        Self { others, held, ..Self::default() }
    }

    /// Readable when groups of other instances have appeared or vanished.
    pub(crate) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.others.as_ref()?.changes()
    }

    /// Groups of other instances have appeared or vanished, or jobs of this one were released.
    pub(crate) fn on_changes(&mut self, now_ns: u64) {
        if let Some(others) = &self.others {
            others.take_changes();
        }
        self.find_ns = now_ns;
        if self.counts_held() && self.held_due_ns.is_none() {
            self.held_due_ns = Some(now_ns + SETTLE_NS);
        }
    }

    /// The processors that jobs of other instances hold now.
    fn held_now(&mut self, now_ns: u64, own: Option<Own<'_>>) -> ProcessorSet {
        if let Some(others) = &mut self.others
            && self.find_ns <= now_ns
        {
            self.find_ns = now_ns + FIND_NS;
            others.find();
        }
        if self.others.is_some() || own.is_some() {
            self.held = held_by(self.others.as_ref(), own);
        }
        self.held.clone()
    }

    const fn counts_held(&self) -> bool {
        self.held_count && self.enough_milli > 0
    }

    /// Measures now, and then again and again; not at all if `enough_milli` is zero.
    pub(crate) fn settings(&mut self, enough_milli: u32, held_count: bool, now_ns: u64) {
        if (enough_milli, held_count) != (self.enough_milli, self.held_count) {
            (self.enough_milli, self.held_count) = (enough_milli, held_count);
            self.due_ns = Some(now_ns);
            self.last = None;
            self.found = ProcessorSet::new();
        }
    }

    /// Whether use is measured again and again.
    fn measures(&self) -> bool {
        self.enough_milli > 0 && (!self.held_count || !self.given.is_empty())
    }

    /// Another controller, or one that may have forgotten: it is told anew after the next look;
    /// where no controller is to look, at once, since an earlier agent may have said something.
    pub(crate) fn forget_told(&mut self, now_ns: u64) {
        self.told = None;
        if self.enough_milli == 0 {
            self.due_ns = Some(now_ns);
        }
    }

    pub(crate) fn timetable(&mut self, timetable: &Timetable, now_ns: u64) {
        self.given = ProcessorSet::new();
        for candidate in timetable.slots.iter().flat_map(|slot| &slot.candidates) {
            self.given.union_with(&candidate.processors);
        }
        if self.due_ns.is_none() && self.measures() {
            // An average over the time without jobs says little about now.
            self.last = None;
            self.due_ns = Some(now_ns);
        }
    }

    /// When to look next.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns.into_iter().chain(self.held_due_ns).min()
    }

    /// What there is to tell, if it is time to look.
    pub(crate) fn news(&mut self, now_ns: u64, own: Option<Own<'_>>) -> Option<ProcessorSet> {
        let is_due = |due: Option<u64>| due.is_some_and(|due| due <= now_ns);
        if is_due(self.due_ns) {
            self.due_ns = self.measures().then_some(now_ns + INTERVAL_NS);
            self.held_due_ns = None;
            self.measure(now_ns, own)?;
        } else if is_due(self.held_due_ns) {
            self.held_due_ns = None;
            let mut held = std::mem::take(&mut self.held);
            held.union_with(&self.held_now(now_ns, own));
            self.held = held;
        } else {
            return None;
        }
        let mut all = self.found.clone();
        if self.counts_held() {
            all.union_with(&self.held);
        }
        let is_news = self.told.as_ref() != Some(&all);
        is_news.then(|| self.told.insert(all).clone())
    }

    /// `None` if nothing can be said yet.
    fn measure(&mut self, now_ns: u64, own: Option<Own<'_>>) -> Option<()> {
        let is_held = self.counts_held() && !self.held_now(now_ns, own).is_empty();
        let measured = match self.enough_milli {
            0 => Some(()),
            _ => own.and_then(|own| Reading::take(now_ns, own)).and_then(|now| self.look(now)),
        };
        measured.or(is_held.then_some(()))
    }

    /// Nothing can be said the first time.
    fn look(&mut self, now: Reading) -> Option<()> {
        let last = self.last.replace(now)?;
        let used = self.last.as_ref()?.since(&last);
        let own = self.by_jobs(&used);
        let busy = used.busy.iter().map(|(&processor, busy)| (processor, used.milli(busy.us)));
        let busy: BTreeMap<u32, u64> = busy.collect();
        let foreign = busy.values().sum::<u64>().saturating_sub(own);
        let count = count(foreign, u64::from(self.enough_milli), u64::from(self.found.count()));
        self.found = self.likely(&busy, own, count);
        Some(())
    }

    /// How much of a processor the jobs have used that did not give way, in thousandths.
    fn by_jobs(&self, used: &Used) -> u64 {
        let given = used.busy.iter().filter(|(processor, _)| self.given.contains(**processor));
        let niced = given.map(|(_, busy)| used.milli(busy.niced_us)).sum();
        used.milli(used.own_us).saturating_sub(niced)
    }

    /// So many processors, those first that others use most.
    fn likely(&self, busy: &BTreeMap<u32, u64>, own: u64, count: u64) -> ProcessorSet {
        let given = || busy.iter().filter(|(processor, _)| self.given.contains(**processor));
        let beside_own = given().map(|(_, milli)| milli).sum::<u64>().saturating_sub(own);
        let beside_each = beside_own / (given().count() as u64).max(1);
        let used = |(&processor, &milli): (&u32, &u64)| {
            let used = if self.given.contains(processor) { beside_each } else { milli };
            let kept = if self.found.contains(processor) { KEPT_MILLI } else { 0 };
            (Reverse(used + kept), processor)
        };
        let mut order: Vec<_> = busy.iter().map(used).collect();
        order.sort_unstable();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut likely = ProcessorSet::new();
        order.into_iter().take(count).for_each(|(_, processor)| likely.insert(processor));
        likely
    }
}

/// What jobs of other instances hold, and released jobs of this one.
fn held_by(others: Option<&Others>, own: Option<Own<'_>>) -> ProcessorSet {
    let by_others = others.map(|others| others.held(is_of_a_job)).unwrap_or_default();
    by_others.into_iter().chain(own.into_iter().flat_map(Own::held)).collect()
}

/// How many processors that is: one more for each of which enough is used, one fewer once it is
/// less than half of that.
fn count(foreign_milli: u64, enough_milli: u64, before: u64) -> u64 {
    let most = (foreign_milli + 1000).saturating_sub(enough_milli) / 1000;
    let least = (foreign_milli + 1000).saturating_sub(enough_milli.div_ceil(2)) / 1000;
    before.clamp(most.min(least), least)
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL_NS, Reading, Taken, count};
    use tutti_linux::proc::Busy;
    use tutti_types::{
        Candidate, IfAbsent, JobId, LaunchId, Nanos, ProcessorSet, RowId, Slot, Timetable,
    };

    /// Looks at four processors, some of which are the jobs', every second.
    struct Scene {
        taken: Taken,
        seconds: u64,
        busy_us: [u64; 4],
        niced_us: [u64; 4],
        own_us: u64,
    }

    impl Scene {
        fn new() -> Self {
            let mut taken = Taken::default();
            taken.settings(500, false, 0);
            let (busy_us, niced_us) = ([70, 60, 50, 40], [7, 6, 5, 4]);
            let mut scene = Self { taken, seconds: 0, busy_us, niced_us, own_us: 30 };
            scene.look([0; 4], 0);
            scene
        }

        fn give(&mut self, processors: &[u32]) {
            self.taken.given = ProcessorSet::new();
            processors.iter().for_each(|&processor| self.taken.given.insert(processor));
        }

        fn look(&mut self, busy_milli: [u64; 4], own_milli: u64) -> Vec<u32> {
            self.seconds += 1;
            self.own_us += own_milli * 1000;
            for (busy, milli) in self.busy_us.iter_mut().zip(busy_milli) {
                *busy += milli * 1000;
            }
            let both = self.busy_us.into_iter().zip(self.niced_us);
            let busy = (0..).zip(both.map(|(us, niced_us)| Busy { niced_us, us })).collect();
            let at_ns = self.seconds * 1_000_000_000;
            let _ = self.taken.look(Reading { at_ns, busy, own_us: self.own_us });
            self.taken.found.iter().collect()
        }
    }

    #[test]
    fn a_processor_counts_from_enough_on_until_half_of_that() {
        let counts = |before| [499, 500, 1249, 1250, 1500].map(|used| count(used, 500, before));
        assert_eq!(counts(0), [0, 1, 1, 1, 2]);
        assert_eq!(counts(2), [1, 1, 1, 2, 2]);
        assert_eq!([249, 250].map(|used| count(used, 500, 1)), [0, 1]);
        assert_eq!([0, 999, 1000].map(|used| count(used, 1000, 0)), [0, 0, 1]);
        assert_eq!(count(0, 1, 3), 0, "nobody uses anything");
    }

    #[test]
    fn others_have_what_is_busy_and_not_the_jobs() {
        let mut scene = Scene::new();
        assert_eq!(scene.look([0, 900, 0, 0], 0), [1]);
        // The jobs have two of them, others all of a third and a little of the fourth.
        scene.give(&[0, 1]);
        assert_eq!(scene.look([1000, 1000, 1000, 300], 2000), [2]);
        // One comes that has to share with the jobs; and all of them are gone.
        assert_eq!(scene.look([1000, 1000, 1000, 1000], 1400), [0, 2, 3]);
        assert_eq!(scene.look([1000, 1000, 20, 0], 2000), [] as [u32; 0]);
        // A job that is not held to its processors is no external load.
        scene.give(&[0]);
        assert_eq!(scene.look([100, 300, 300, 300], 1000), [] as [u32; 0]);
    }

    #[test]
    fn a_job_that_gives_way_hides_nobody() {
        let mut scene = Scene::new();
        scene.give(&[0]);
        scene.niced_us[0] += 1_000_000;
        assert_eq!(scene.look([0, 1000, 0, 0], 1000), [1]);
        // Others that give way need no processor, and are not taken for the jobs elsewhere.
        scene.niced_us[2] += 1_000_000;
        assert_eq!(scene.look([1000, 0, 0, 0], 1000), [] as [u32; 0]);
    }

    #[test]
    fn who_moves_about_is_where_he_was_found_first() {
        let mut scene = Scene::new();
        assert_eq!(scene.look([0, 0, 600, 400], 0), [2]);
        assert_eq!(scene.look([0, 0, 450, 550], 0), [2]);
        assert_eq!(scene.look([0, 0, 100, 900], 0), [3]);
    }

    /// A timetable with a job on processor 0, or with none.
    fn timetable(has_job: bool) -> Timetable {
        let launch = LaunchId::first(JobId(1));
        let (processors, if_absent) = (ProcessorSet::first(1), IfAbsent::Down);
        let candidates = has_job.then_some(Candidate { launch, processors, if_absent });
        let candidates = candidates.into_iter().collect();
        let slot = Slot { row: RowId(1), length: Nanos::from_secs(1), candidates, local: 0 };
        Timetable { slots: vec![slot], ..Timetable::default() }
    }

    #[test]
    fn an_agent_without_jobs_does_not_wake_up_to_measure() {
        let mut taken = Taken::default();
        taken.settings(500, true, 10);
        assert_eq!((taken.due_ns(), taken.news(10, None), taken.due_ns()), (Some(10), None, None));
        taken.timetable(&timetable(true), 20);
        assert_eq!((taken.due_ns(), taken.news(20, None)), (Some(20), None));
        assert_eq!(taken.due_ns(), Some(20 + INTERVAL_NS));
        taken.timetable(&timetable(false), 30);
        assert_eq!(taken.news(20 + INTERVAL_NS, None), None);
        assert_eq!(taken.due_ns(), None);
    }

    #[test]
    fn processors_that_others_hold_count_at_once_and_until_the_next_measurement() {
        let mut taken = Taken::default();
        taken.settings(500, true, 10);
        taken.held = ProcessorSet::first(1);
        taken.found.insert(3);
        taken.held_due_ns = Some(12);
        taken.due_ns = Some(50);
        assert_eq!(taken.news(11, None), None);
        let told: ProcessorSet = [0, 3].into_iter().collect();
        assert_eq!(taken.news(12, None), Some(told));
        assert_eq!(taken.due_ns(), Some(50));
        // Under a policy that keeps jobs off these processors, holding is not enough.
        taken.settings(500, false, 60);
        taken.held_due_ns = Some(70);
        taken.due_ns = None;
        assert_eq!(taken.news(70, None), Some(ProcessorSet::new()));
    }

    #[test]
    fn what_was_told_is_told_again_to_who_has_forgotten_it() {
        let mut taken = Taken::default();
        assert_eq!((taken.due_ns(), taken.news(5, None)), (None, None), "nobody looks unasked");
        taken.settings(500, false, 10);
        assert_eq!((taken.due_ns(), taken.news(10, None)), (Some(10), None));
        assert_eq!(taken.due_ns(), Some(10 + INTERVAL_NS));
        taken.found.insert(3);
        taken.told = Some(taken.found.clone());
        taken.forget_told(20);
        assert_eq!((taken.told.clone(), taken.due_ns()), (None, Some(10 + INTERVAL_NS)));
        // When the agent stops measuring, it takes back its reports.
        taken.told = Some(taken.found.clone());
        taken.settings(0, false, 30);
        assert_eq!(taken.news(30, None), Some(ProcessorSet::new()));
        assert_eq!((taken.due_ns(), taken.news(40, None)), (None, None));
        // Perhaps it was an earlier agent that said something.
        let mut taken = Taken::default();
        taken.forget_told(50);
        assert_eq!(taken.news(50, None), Some(ProcessorSet::new()));
        assert_eq!((taken.due_ns(), taken.news(60, None)), (None, None));
    }
}
