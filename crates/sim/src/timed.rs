//! Changes at times (`tutti at`), in a simulation. Their moments are known from the start.

use tutti_core::{DueChange, Event, Moment, settings_after};
use tutti_types::{ClusterTime, Settings, TimedChange, When};

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

    /// Its moments, by simulated time.
    pub fn moments(&self) -> impl Iterator<Item = ClusterTime> + '_ {
        self.moments.iter().map(|moment| moment.at)
    }
}

/// How many moments of each change have passed.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    passed: Vec<usize>,
}

/// The number of a change, from its place.
fn number(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or(u32::MAX)
}

/// What tells a core of all changes.
pub(crate) fn events(changes: &[ChangeAtTimes]) -> impl Iterator<Item = Event> + '_ {
    changes.iter().enumerate().map(|(place, it)| Event::SetTimed {
        number: number(place),
        entry: Some((it.when, it.change.clone(), it.moments.first().copied())),
    })
}

impl Timed {
    /// The first moment of a change that has not passed.
    fn next_of(&self, place: usize, change: &ChangeAtTimes) -> Option<Moment> {
        change.moments.get(self.passed.get(place).copied().unwrap_or(0)).copied()
    }

    /// When the next change happens; never, if none does.
    pub(crate) fn next(&self, changes: &[ChangeAtTimes]) -> ClusterTime {
        let nexts = changes.iter().enumerate().filter_map(|(at, it)| self.next_of(at, it));
        nexts.map(|moment| moment.at).min().unwrap_or(ClusterTime::NEVER)
    }

    /// What happens now, if anything does.
    pub(crate) fn due(&mut self, changes: &[ChangeAtTimes], now: ClusterTime) -> Option<Event> {
        self.passed.resize(changes.len(), 0);
        let mut due = Vec::new();
        for (place, change) in changes.iter().enumerate() {
            let Some(moment) = self.next_of(place, change).filter(|it| it.at <= now) else {
                continue;
            };
            self.passed[place] += 1;
            let next = self.next_of(place, change);
            due.push(DueChange { number: number(place), unix_ms: moment.unix_ms, next });
        }
        (!due.is_empty()).then_some(Event::TimedDue { due })
    }
}
