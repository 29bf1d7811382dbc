//! The shortest slot that settings can give, whatever the hour.

use tutti_types::ids::ClassName;
use tutti_types::settings::Settings;
use tutti_types::time::Nanos;

/// The shortest slot that settings can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortestSlot {
    /// How long it is.
    pub length: Nanos,
    /// The class that has it, or one of those.
    pub class: ClassName,
    /// The quantum then.
    pub quantum: Nanos,
}

/// The shortest slot that there may be at any time of the week; `None` where no job takes turns.
#[must_use]
pub fn shortest_slot(settings: &Settings) -> Option<ShortestSlot> {
    let at = |week| {
        let (params, classes) = settings.at(week).ok()?;
        let (policy, quantum) = (super::of(&params), params.quantum());
        let (length, class) = (policy.shares.shortest)(&classes, quantum)?;
        let slot = ShortestSlot { length, class, quantum };
        policy.has_turns(&params, &classes).then_some(slot)
    };
    // And what holds while the time is unknown.
    let slots = settings.moments().map(Some).chain([None]).filter_map(at);
    slots.min_by_key(|slot| slot.length)
}

#[cfg(test)]
mod tests {
    use super::{ShortestSlot, shortest_slot};
    use tutti_types::class::default_classes;
    use tutti_types::ids::ClassName;
    use tutti_types::params::Params;
    use tutti_types::settings::{Overrides, Settings};
    use tutti_types::time::Nanos;

    #[test]
    fn the_shortest_slot_is_that_of_any_hour_in_which_there_are_turns() {
        let (mut params, mut classes) = (Params::default(), default_classes());
        params.set("quantum", 200_000_000).unwrap();
        let mut settings = Settings::new(params, classes.clone());
        let shortest = |settings: &Settings| {
            shortest_slot(settings).map(|it| (it.length.0 / 1_000_000, it.quantum.0 / 1_000_000))
        };
        assert_eq!(shortest(&settings), Some((100, 200)));
        let night = "mon-fri 22:00-06:00".parse().unwrap();
        let mut overrides = Overrides::default();
        overrides.params.insert("quantum".into(), 50_000_000);
        let standby: ClassName = ClassName::new("standby");
        overrides.classes.insert(standby.clone(), [("slots".into(), 5)].into());
        settings.set_period(night, overrides);
        let slot = ShortestSlot {
            length: Nanos::from_millis(5),
            class: standby.clone(),
            quantum: Nanos::from_millis(50),
        };
        assert_eq!(shortest_slot(&settings), Some(slot));
        // One row has no turns, but at night.
        settings.params.set("rows", 1).unwrap();
        assert_eq!(shortest(&settings), None);
        let mut overrides = settings.period(night).cloned().unwrap();
        overrides.params.insert("rows".into(), 2);
        settings.set_period(night, overrides);
        assert_eq!(shortest(&settings), Some((5, 50)));
        // But one beside an empty one that is held.
        settings.set_period(night, Overrides::default());
        assert_eq!(shortest(&settings), None);
        let spec = classes[&standby].with("share", 1000).unwrap().with("empty", 0).unwrap();
        classes.insert(standby, spec);
        settings.classes = classes;
        assert_eq!(shortest(&settings), Some((10, 200)));
    }
}
