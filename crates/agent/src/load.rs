//! How busy the node is, told to the controller while it wants to know: that costs a wake-up each
//! time.

use tutti_linux::proc;
use tutti_types::{LoadAverages, Nanos};

/// When to look at the load, and what was told of it.
#[derive(Debug, Default)]
pub(super) struct LoadReports {
    interval_ns: u64,
    due_ns: Option<u64>,
    told: Option<LoadAverages>,
}

impl LoadReports {
    /// Looks at once, and then so often; never if zero.
    pub(super) fn every(&mut self, interval: Nanos, now_ns: u64) {
        if interval.0 != self.interval_ns {
            self.interval_ns = interval.0;
            self.due_ns = (interval.0 > 0).then_some(now_ns);
        }
    }

    /// When to look next.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// What there is to tell, if it is time to look.
    pub(super) fn news(&mut self, now_ns: u64) -> Option<LoadAverages> {
        self.due_ns.filter(|&due| due <= now_ns)?;
        self.due_ns = Some(now_ns + self.interval_ns);
        let [now, five_minutes, fifteen_minutes] = proc::load_averages().ok()?;
        let averages = LoadAverages { now, five_minutes, fifteen_minutes };
        let is_new = self.told.replace(averages) != Some(averages);
        is_new.then_some(averages)
    }
}

#[cfg(test)]
mod tests {
    use super::LoadReports;
    use tutti_types::Nanos;

    #[test]
    fn nobody_looks_unasked() {
        let mut reports = LoadReports::default();
        assert_eq!((reports.news(100), reports.due_ns()), (None, None));
        reports.every(Nanos(10), 100);
        assert!(reports.news(100).is_some(), "the first is news");
        assert_eq!(reports.due_ns(), Some(110));
        assert_eq!(reports.news(109), None);
        reports.every(Nanos(10), 109);
        assert_eq!(reports.due_ns(), Some(110), "asked the same again");
        reports.every(Nanos::ZERO, 120);
        assert_eq!((reports.news(200), reports.due_ns()), (None, None));
    }
}
