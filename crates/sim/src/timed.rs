//! Changes at times (`tutti at`), in a simulation. Their moments are known from the start.

use tutti_core::{DueChange, Event, Moment, settings_after};
use tutti_types::{ClusterTime, Nanos, Settings, TimedChange, When};

/// A change, and when it happens.
#[derive(Clone, Debug)]
pub struct ChangeAtTimes {
    /// The time, as it was written.
    when: When,
    /// What changes.
    change: TimedChange,
    /// Its moments, in their order.
    moments: Vec<Moment>,
}

impl ChangeAtTimes {
    /// A change of such settings, at these moments in their order: each by simulated time, and in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// If the settings can't change so, or there is no moment.
    pub fn new(
        (when, change): (When, TimedChange),
        moments: impl Iterator<Item = (ClusterTime, u64)>,
        settings: &Settings,
    ) -> Result<Self, String> {
        if let TimedChange::Set(overrides) = &change {
            settings_after(settings, overrides)?;
        }
        let moments: Vec<Moment> = moments.map(|(at, unix_ms)| Moment { at, unix_ms }).collect();
        if moments.is_empty() {
            return Err(format!("{when} is before the workload begins"));
        }
        Ok(Self { when, change, moments })
    }

    /// The same, where time begins so much later.
    #[must_use]
    pub fn later_by(mut self, time: Nanos) -> Self {
        self.moments.iter_mut().for_each(|moment| moment.at = moment.at + time);
        self
    }

    /// Its moments, by simulated time.
    pub fn moments(&self) -> impl Iterator<Item = ClusterTime> + '_ {
        self.moments.iter().map(|moment| moment.at)
    }
}

/// How many moments of each change have passed.
#[derive(Debug, Default)]
pub struct TimedChanges {
    passed: Vec<usize>,
    /// What the numbers of changes begin behind.
    behind: u32,
}

/// The number of a change, from its place.
fn number(place: usize, behind: u32) -> u32 {
    u32::try_from(place + 1).unwrap_or(u32::MAX).saturating_add(behind)
}

/// What tells a core of all changes, which have numbers from the one behind `behind`.
pub fn timed_events(changes: &[ChangeAtTimes], behind: u32) -> impl Iterator<Item = Event> + '_ {
    changes.iter().enumerate().map(move |(place, it)| Event::SetTimed {
        number: number(place, behind),
        entry: Some((it.when, it.change.clone(), it.moments.first().copied())),
    })
}

impl TimedChanges {
    /// None has passed; they have numbers from the one behind `behind`.
    #[must_use]
    pub const fn numbered_behind(behind: u32) -> Self {
        Self { passed: Vec::new(), behind }
    }

    /// The first moment of a change that has not passed.
    fn next_of(&self, place: usize, change: &ChangeAtTimes) -> Option<Moment> {
        change.moments.get(self.passed.get(place).copied().unwrap_or(0)).copied()
    }

    /// When the next change happens; never, if none does.
    #[must_use]
    pub fn next(&self, changes: &[ChangeAtTimes]) -> ClusterTime {
        let nexts = changes.iter().enumerate().filter_map(|(at, it)| self.next_of(at, it));
        nexts.map(|moment| moment.at).min().unwrap_or(ClusterTime::NEVER)
    }

    /// What happens now, if anything does.
    pub fn due(&mut self, changes: &[ChangeAtTimes], now: ClusterTime) -> Option<Event> {
        self.passed.resize(changes.len(), 0);
        let mut due = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            let Some(moment) = self.next_of(place, change).filter(|it| it.at <= now) else {
                continue;
            };
            self.passed[place] += 1;
            let next = self.next_of(place, change);
            due.push(DueChange {
                number: number(place, self.behind),
                unix_ms: moment.unix_ms,
                next,
            });
        }
        (!due.is_empty()).then_some(Event::TimedDue { due })
    }
}
