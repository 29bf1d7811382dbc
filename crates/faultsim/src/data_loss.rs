//! When what happened on the simulated controller's machine did not get to its disk, and what a
//! loss of power may therefore take away.

use std::collections::BTreeSet;
use tutti_types::LaunchId;

/// What has happened is on disk after so long, if the disk takes it and nothing has stopped the
/// controller (`controller/src/end_acks.rs`).
const ON_DISK_NS: u64 = 3_000_000_000;

/// What happens is heard of within so long.
const UNHEARD_NS: u64 = 10_000_000_000;

/// See the head of the file. All times are the world's.
#[derive(Debug, Default)]
pub(super) struct Lapses {
    /// Since when the disk takes nothing, if it does not.
    bad_disk_ns: Option<u64>,
    /// From when to when it took nothing, or the controller stood still.
    over: Vec<(u64, u64)>,
    /// What happened in these times may be forgotten: the power went before it was on disk, or
    /// another controller began while the disk took nothing.
    forgotten: Vec<(u64, u64)>,
    /// The launches that the controller knew of when it was last there, and when it decided on
    /// each.
    known: Vec<(LaunchId, u64)>,
    /// Those that it decided on in such a time: keepers that stood still began with them only
    /// later.
    launches: BTreeSet<LaunchId>,
}

impl Lapses {
    /// Whether the disk takes all, or not, from now on.
    pub(super) fn note_disk(&mut self, takes_all: bool, now_ns: u64) {
        match (takes_all, self.bad_disk_ns) {
            (false, None) => self.bad_disk_ns = Some(now_ns),
            (true, Some(since_ns)) => {
                self.forgotten.push((since_ns, now_ns));
                self.over.push((since_ns, now_ns));
                self.bad_disk_ns = None;
            }
            _ => {}
        }
    }

    /// The controller stands still until then, if no other one begins before.
    pub(super) fn note_stop(&mut self, now_ns: u64, until_ns: u64) {
        self.over.push((now_ns, until_ns));
    }

    /// When the controller has heard of what happened then, at the latest: one that stood still, or
    /// was about to, when it went on.
    pub(super) fn heard_ns(&self, happened_ns: u64) -> u64 {
        let mut heard_ns = happened_ns;
        let mut lapses = self.over.clone();
        lapses.sort_unstable();
        for (since_ns, until_ns) in lapses {
            if since_ns <= heard_ns.saturating_add(UNHEARD_NS) {
                heard_ns = heard_ns.max(until_ns);
            }
        }
        heard_ns
    }

    /// Another controller begins. What the disk did not take, it does not know.
    pub(super) fn note_begin(&mut self, now_ns: u64) {
        self.forgotten.extend(self.bad_disk_ns.map(|since_ns| (since_ns, now_ns)));
        for (_, until_ns) in &mut self.over {
            *until_ns = now_ns.min(*until_ns);
        }
    }

    pub(super) const fn is_disk_bad(&self) -> bool {
        self.bad_disk_ns.is_some()
    }

    /// The controller is about to be gone, and knows of these launches.
    pub(super) fn note_launches(&mut self, known: Vec<(LaunchId, u64)>) {
        self.known = known;
    }

    /// The power is gone.
    pub(super) fn lose_power(&mut self, now_ns: u64) {
        let safe_ns = self.safe_until_ns(now_ns);
        self.forgotten.push((safe_ns, now_ns));
        let lately = self.known.drain(..).filter(|&(_, decided_ns)| decided_ns >= safe_ns);
        self.launches.extend(lately.map(|(launch, _)| launch));
    }

    /// What has happened before that is on disk: nothing has kept it from there for long enough
    /// since.
    fn safe_until_ns(&self, now_ns: u64) -> u64 {
        let bad_disk = self.bad_disk_ns.map(|since_ns| (since_ns, u64::MAX));
        let mut lapses: Vec<(u64, u64)> = self.over.iter().copied().chain(bad_disk).collect();
        lapses.sort_unstable_by_key(|&(_, until_ns)| std::cmp::Reverse(until_ns));
        let mut safe_ns = now_ns;
        for (since_ns, until_ns) in lapses {
            if until_ns.saturating_add(ON_DISK_NS) > safe_ns {
                safe_ns = safe_ns.min(since_ns);
            }
        }
        safe_ns.saturating_sub(ON_DISK_NS)
    }

    /// Whether that there was such a launch may not have been on disk when the power went.
    pub(super) fn is_launch_forgotten(&self, launch: LaunchId) -> bool {
        self.launches.contains(&launch)
    }

    /// Whether what happened then may not have been on disk when the power went.
    pub(super) fn is_forgotten(&self, at_ns: u64) -> bool {
        self.forgotten.iter().any(|(from_ns, to_ns)| (*from_ns..=*to_ns).contains(&at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::JobId;

    const SEC: u64 = 1_000_000_000;

    /// What is safe after a loss of power at the hundredth second.
    fn safe_s(lapses: &Lapses) -> u64 {
        lapses.safe_until_ns(100 * SEC) / SEC
    }

    #[test]
    fn the_last_three_seconds_are_lost() {
        assert_eq!(safe_s(&Lapses::default()), 97);
    }

    #[test]
    fn a_controller_that_stood_still_until_then_has_brought_nothing_to_disk() {
        let mut lapses = Lapses::default();
        lapses.note_stop(80 * SEC, 90 * SEC);
        assert_eq!(safe_s(&lapses), 97, "it had ten seconds for it");
        lapses.note_stop(95 * SEC, 120 * SEC);
        assert_eq!(safe_s(&lapses), 92);
        lapses.note_begin(96 * SEC);
        assert_eq!(safe_s(&lapses), 97, "another one had four");
    }

    #[test]
    fn what_a_disk_did_not_take_is_lost_also_when_the_controller_stood_still_after() {
        let mut lapses = Lapses::default();
        lapses.note_disk(false, 50 * SEC);
        lapses.note_disk(true, 96 * SEC);
        lapses.note_stop(98 * SEC, 99 * SEC);
        assert_eq!(safe_s(&lapses), 47);
        assert!(lapses.is_forgotten(60 * SEC) && !lapses.is_forgotten(49 * SEC));
    }

    #[test]
    fn a_launch_of_the_last_three_seconds_is_forgotten_whenever_its_tasks_begin() {
        let [early, late] = [1, 2].map(|job| LaunchId::first(JobId(job)));
        let mut lapses = Lapses::default();
        lapses.note_launches(vec![(early, 96 * SEC), (late, 98 * SEC)]);
        lapses.lose_power(100 * SEC);
        assert!(lapses.is_launch_forgotten(late) && !lapses.is_launch_forgotten(early));
    }

    #[test]
    fn a_controller_that_begins_while_the_disk_takes_nothing_knows_none_of_it() {
        let mut lapses = Lapses::default();
        lapses.note_disk(false, 50 * SEC);
        assert!(!lapses.is_forgotten(60 * SEC));
        lapses.note_begin(70 * SEC);
        assert!(lapses.is_forgotten(60 * SEC) && !lapses.is_forgotten(71 * SEC));
    }

    #[test]
    fn a_disk_that_takes_nothing_yet() {
        let mut lapses = Lapses::default();
        lapses.note_disk(false, 50 * SEC);
        assert!(lapses.is_disk_bad());
        lapses.lose_power(100 * SEC);
        assert!(lapses.is_forgotten(47 * SEC) && !lapses.is_forgotten(46 * SEC));
    }
}
