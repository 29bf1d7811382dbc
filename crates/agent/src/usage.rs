//! What the node's processors were used for, told to the controller interval by interval:
//! `tutti history --usage`. The intervals of all nodes end at the same cluster times, which are
//! multiples of their length.

use super::clock::ClusterClock;
use super::processor_time::Reading;
use super::released::Own;
use std::mem;
use tutti_node::platform::hardware::busy_processors;
use tutti_types::{ClusterTime, Nanos};
use tutti_wire::usage::{CarriedBytes, UsedProcessors};

/// When an interval ends, and what had been used when it began.
#[derive(Debug, Default)]
pub(super) struct UsageReports {
    interval: Nanos,
    /// On the monotonic clock.
    due_ns: Option<u64>,
    began: Option<Began>,
    /// What goes to the controller when the keeper has said what it carried.
    measured: Option<UsedProcessors>,
    /// What the keeper had carried when it was asked last.
    carried: CarriedBytes,
}

#[derive(Debug)]
struct Began {
    reading: Reading,
    has_groups: bool,
}

impl Began {
    /// Nothing where the kernel does not count.
    fn now(at_ns: u64, groups: Option<Own<'_>>) -> Option<Self> {
        if let Some(reading) = groups.and_then(|groups| Reading::take(at_ns, groups)) {
            return Some(Self { reading, has_groups: true });
        }
        let reading = Reading { at_ns, busy: busy_processors().ok()?, own_us: 0 };
        Some(Self { reading, has_groups: false })
    }
}

impl UsageReports {
    /// Measures intervals of this length from now on; none if zero.
    pub(super) fn every(&mut self, interval: Nanos, now_ns: u64) {
        if interval != self.interval {
            let due_ns = (interval.0 > 0).then_some(now_ns);
            *self = Self { interval, due_ns, ..Self::default() };
        }
    }

    /// When the interval ends, on the monotonic clock.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Measures, if an interval has ended, and says whether it has: then the keeper is asked what it
    /// carried, and its answer goes to [`Self::carried`].
    pub(super) fn news(
        &mut self,
        now_ns: u64,
        clock: &ClusterClock,
        groups: Option<Own<'_>>,
    ) -> bool {
        if self.due_ns.is_none_or(|due| due > now_ns) {
            return false;
        }
        let began = self.began.take();
        self.began = Began::now(now_ns, groups);
        let until = interval_end(clock.at(now_ns), self.interval);
        self.due_ns = Some(clock.own_ns(until + self.interval).max(now_ns + 1));
        let ends = began.as_ref().zip(self.began.as_ref());
        self.measured = ends.and_then(|(began, ended)| used(began, ended, self.interval, until));
        true
    }

    /// What there is to tell of an interval, now that the keeper has said what it carried so far.
    /// Nothing of an interval that was measured for less than half of its time.
    pub(super) fn carried(&mut self, carried: CarriedBytes) -> Option<UsedProcessors> {
        let since = carried.since(mem::replace(&mut self.carried, carried));
        Some(UsedProcessors { carried: Some(since), ..self.measured.take()? })
    }

    /// What there is to tell without a keeper.
    pub(super) const fn measured(&mut self) -> Option<UsedProcessors> {
        self.measured.take()
    }
}

/// The latest end of an interval that is not after this time.
fn interval_end(now: ClusterTime, interval: Nanos) -> ClusterTime {
    ClusterTime(now.0 - now.0 % interval.0.max(1))
}

fn used(
    began: &Began,
    ended: &Began,
    interval: Nanos,
    until: ClusterTime,
) -> Option<UsedProcessors> {
    let passed_ns = ended.reading.at_ns.saturating_sub(began.reading.at_ns);
    if passed_ns < interval.0 / 2 {
        return None;
    }
    let used = ended.reading.since(&began.reading);
    let milli = |us| u32::try_from(used.milli(us)).unwrap_or(u32::MAX);
    let of_each = used.busy.values().map(|busy| busy.us.saturating_add(busy.niced_us));
    let jobs_milli = (began.has_groups && ended.has_groups).then(|| milli(used.own_us));
    // Ticks are coarser than what groups have used.
    let busy_milli = milli(of_each.fold(0, u64::saturating_add)).max(jobs_milli.unwrap_or(0));
    Some(UsedProcessors { until, busy_milli, jobs_milli, carried: None })
}

#[cfg(test)]
mod tests {
    use super::{
        Began, CarriedBytes, ClusterTime, Nanos, Reading, UsageReports, UsedProcessors,
        interval_end, used,
    };
    use tutti_linux::proc::Busy;

    fn began(at_ms: u64, busy_ms: u64, own_ms: Option<u64>) -> Began {
        let busy = Busy { us: busy_ms * 500, niced_us: busy_ms * 500 };
        let own_us = own_ms.unwrap_or(0) * 1000;
        let reading = Reading { at_ns: at_ms * 1_000_000, busy: [(0, busy)].into(), own_us };
        Began { reading, has_groups: own_ms.is_some() }
    }

    #[test]
    fn an_interval_ends_at_a_multiple_of_its_length() {
        let interval = Nanos::from_secs(300);
        let end = |s: u64| interval_end(ClusterTime(s * 1_000_000_000), interval).0 / 1_000_000_000;
        assert_eq!([end(299), end(300), end(301), end(900)], [0, 300, 300, 900]);
        let mut reports = UsageReports::default();
        assert_eq!(reports.due_ns(), None);
        reports.every(interval, 7);
        assert_eq!(reports.due_ns(), Some(7), "what had been used before is read at once");
        reports.every(Nanos::ZERO, 8);
        assert_eq!(reports.due_ns(), None);
    }

    #[test]
    fn what_was_carried_since_the_last_answer_is_told_with_the_interval() {
        let mut reports = UsageReports::default();
        let carried = |input, output| CarriedBytes { input, output };
        assert_eq!(reports.carried(carried(10, 1000)), None, "nothing was measured yet");
        let mut told = |of_keeper| {
            let until = ClusterTime(1);
            let used = UsedProcessors { until, busy_milli: 0, jobs_milli: None, carried: None };
            reports.measured = Some(used);
            reports.carried(of_keeper).and_then(|it| it.carried)
        };
        assert_eq!(told(carried(15, 1700)), Some(carried(5, 700)));
        assert_eq!(told(carried(15, 1700)), Some(carried(0, 0)));
        assert_eq!(told(carried(2, 40)), Some(carried(2, 40)), "another keeper");
    }

    #[test]
    fn what_was_used_is_told_as_processors_on_average() {
        let (interval, until) = (Nanos::from_millis(1000), ClusterTime(5));
        let told = |ended: Began| {
            let told = used(&began(1000, 500, Some(100)), &ended, interval, until)?;
            Some((told.busy_milli, told.jobs_milli))
        };
        assert_eq!(told(began(2000, 2000, Some(850))), Some((1500, Some(750))));
        assert_eq!(told(began(3000, 2000, None)), Some((750, None)), "without cgroups");
        assert_eq!(told(began(2000, 510, Some(120))), Some((20, Some(20))), "ticks are coarse");
        assert_eq!(told(began(1499, 2000, Some(850))), None, "too short");
    }
}
