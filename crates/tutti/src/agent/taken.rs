//! Which processors of the node are used by what is none of the cluster's jobs, told to the controller while it wants to
//! know: that costs a wake-up each time.
//!
//! The kernel counts what each processor was used, but what the jobs have used only in all. So how many processors
//! others have follows from the whole: what was used less what the jobs have used. Which ones is a guess: those that
//! the timetable gives to nobody and are busy nevertheless. Where the jobs have all of them, it is as if others used the same
//! of each. Who has given way to everybody else (`nice`) needs no processor of his own, and does not count; as far as
//! that may be the jobs, whose time is not told apart so, it counts as theirs.

use super::processor_time::{Reading, Used};
use crate::outside::groups::Hierarchy;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tutti_core::{ProcessorSet, Timetable};

/// How much is looked at at once: who computes for a moment leaves the processor soon.
const INTERVAL_NS: u64 = 5_000_000_000;
/// What a processor is ahead of others by, in thousandths of it, that has been found to be used before: processes
/// move about, and who has none of his own is on one now and on another then.
const KEPT_MILLI: u64 = 250;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// How much of a processor others must use; 0: nobody wants to know.
    enough_milli: u32,
    due_ns: Option<u64>,
    last: Option<Reading>,
    /// Processors of the jobs.
    given: ProcessorSet,
    found: ProcessorSet,
    /// What the controller was told, if it was told anything.
    told: Option<ProcessorSet>,
}

impl Taken {
    /// Looks now, and then again and again; not at all if `enough_milli` is zero.
    pub(super) fn settings(&mut self, enough_milli: u32, now_ns: u64) {
        if enough_milli != self.enough_milli {
            self.enough_milli = enough_milli;
            self.due_ns = Some(now_ns);
            self.last = None;
            self.found = ProcessorSet::new();
        }
    }

    /// Another controller, or one that may have forgotten: it is told anew after the next look; where nobody is to
    /// look, at once, since an earlier agent may have said something.
    pub(super) fn forget_told(&mut self, now_ns: u64) {
        self.told = None;
        if self.enough_milli == 0 {
            self.due_ns = Some(now_ns);
        }
    }

    pub(super) fn timetable(&mut self, timetable: &Timetable) {
        self.given = ProcessorSet::new();
        for candidate in timetable.slots.iter().flat_map(|slot| &slot.candidates) {
            self.given.union_with(&candidate.processors);
        }
    }

    /// When to look next.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// What there is to tell, if it is time to look.
    pub(super) fn news(&mut self, now_ns: u64, own: Option<&Hierarchy>) -> Option<ProcessorSet> {
        self.due_ns.filter(|&due| due <= now_ns)?;
        self.due_ns = (self.enough_milli > 0).then_some(now_ns + INTERVAL_NS);
        if self.enough_milli > 0 {
            self.look(Reading::take(now_ns, own?)?)?;
        }
        let is_news = self.told.as_ref() != Some(&self.found);
        is_news.then(|| self.told.insert(self.found.clone()).clone())
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

/// How many processors that is: one more for each of which enough is used, one fewer once it is less than half of that.
fn count(foreign_milli: u64, enough_milli: u64, before: u64) -> u64 {
    let most = (foreign_milli + 1000).saturating_sub(enough_milli) / 1000;
    let least = (foreign_milli + 1000).saturating_sub(enough_milli.div_ceil(2)) / 1000;
    before.clamp(most.min(least), least)
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL_NS, Reading, Taken, count};
    use tutti_core::ProcessorSet;
    use tutti_linux::proc::Busy;

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
            taken.settings(500, 0);
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
        // A job that is not held to its processors is nobody else.
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

    #[test]
    fn what_was_told_is_told_again_to_who_has_forgotten_it() {
        let mut taken = Taken::default();
        assert_eq!((taken.due_ns(), taken.news(5, None)), (None, None), "nobody looks unasked");
        taken.settings(500, 10);
        assert_eq!((taken.due_ns(), taken.news(10, None)), (Some(10), None));
        assert_eq!(taken.due_ns(), Some(10 + INTERVAL_NS));
        taken.found.insert(3);
        taken.told = Some(taken.found.clone());
        taken.forget_told(20);
        assert_eq!((taken.told.clone(), taken.due_ns()), (None, Some(10 + INTERVAL_NS)));
        // Who looks no more takes back what he has said.
        taken.told = Some(taken.found.clone());
        taken.settings(0, 30);
        assert_eq!(taken.news(30, None), Some(ProcessorSet::new()));
        assert_eq!((taken.due_ns(), taken.news(40, None)), (None, None));
        // Perhaps it was an earlier agent that said something.
        let mut taken = Taken::default();
        taken.forget_told(50);
        assert_eq!(taken.news(50, None), Some(ProcessorSet::new()));
        assert_eq!((taken.due_ns(), taken.news(60, None)), (None, None));
    }
}
