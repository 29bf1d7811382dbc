//! What was measured of one size of trees.

use super::super::contend::{ms, ratio};
use super::super::figures::Figure;
use super::super::processes::Kind;
use super::trees::Shape;
use serde::Serialize;
use tutti_client::output::{Align, Table};
use tutti_client::scratch::percentile;
use tutti_wire::report::SwitchRecord;

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) kind: Kind,
    /// Of each of the two jobs.
    pub(super) processes: u32,
    switches: usize,
    /// From the end of the slot until the switch thread was awake.
    woke: Spread,
    /// From then until the last process of the old job had stopped.
    stopped: Spread,
    /// From then until all of the new job were running.
    resumed: Spread,
    /// From the end of the slot until all of the new job were running.
    whole: Spread,
    /// Without the waking.
    made: Spread,
    /// What that takes a C program that does nothing else: the median, where it could be measured.
    bare_us: Option<u64>,
    /// Switches that went on without a process that had not stopped in time.
    stragglers: usize,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Spread {
    median_us: u64,
    p99_us: u64,
}

impl Spread {
    fn of(records: &[SwitchRecord], length_ns: impl Fn(&SwitchRecord) -> u64) -> Self {
        let mut lengths: Vec<u64> = records.iter().map(|r| length_ns(r) / 1000).collect();
        lengths.sort_unstable();
        Self { median_us: percentile(&lengths, 50), p99_us: percentile(&lengths, 99) }
    }

    fn shown(self) -> String {
        format!("{} / {}", self.median_us, self.p99_us)
    }
}

/// How long a switch took, once the thread was awake.
pub(super) fn made_ns(record: &SwitchRecord) -> u64 {
    record.resumed_ns.saturating_sub(record.began_ns)
}

/// The lines of the table of figures that compare with the bare writes.
const OVER_BARE: &str = "2 times";

impl Row {
    pub(super) fn of(
        method: &'static str,
        Shape { processes, kind }: Shape,
        records: &[SwitchRecord],
        bare_us: Option<u64>,
    ) -> Self {
        Self {
            method,
            kind,
            processes,
            switches: records.len(),
            woke: Spread::of(records, |r| r.began_ns.saturating_sub(r.due_ns)),
            stopped: Spread::of(records, |r| r.stopped_ns.saturating_sub(r.began_ns)),
            resumed: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.stopped_ns)),
            whole: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.due_ns)),
            made: Spread::of(records, made_ns),
            bare_us,
            stragglers: records.iter().filter(|r| r.stragglers > 0).count(),
        }
    }

    /// How many times the bare cost it is.
    fn over_bare(&self) -> Option<f64> {
        self.bare_us.map(|bare| ratio(self.made.median_us, bare))
    }

    fn name(&self) -> String {
        format!("{} {} processes", self.processes, self.kind.word())
    }

    /// How long it takes; `without` says why the aim does not hold here.
    pub(super) fn figure(&self, without: Option<&str>) -> Figure {
        let what = format!("switch, {} a job, {}", self.name(), self.method);
        let (median, p99) = (ms(self.whole.median_us), ms(self.whole.p99_us));
        let measured = format!("{median} (99 %: {p99})");
        let most = match (self.method, self.kind, self.processes) {
            ("freeze", Kind::Busy, 15) => 400,
            ("freeze", Kind::Busy, 100) => 1000,
            ("freeze", Kind::Busy, 1000) => 10_000,
            _ => return Figure::shown(&what, measured),
        };
        let goal = format!("median under {}", ms(most));
        match without {
            Some(without) => Figure::missing(&what, &format!("{measured}; {without}"), &goal),
            None => Figure::goal(&what, measured, &goal, self.whole.median_us < most),
        }
    }

    /// How much more than the bare writes; `missing` says why these were not measured.
    pub(super) fn figure_over_bare(&self, missing: Option<&str>) -> Option<Figure> {
        if self.method != "freeze" {
            return None;
        }
        let what = format!("that of {} over the bare writes", self.name());
        Some(match (self.over_bare(), missing) {
            (Some(over), _) => {
                let measured = format!("{over:.2} times");
                Figure::goal(&what, measured, &format!("at most {OVER_BARE}"), over <= 2.0)
            }
            (None, Some(why)) => Figure::missing(&what, why, &format!("at most {OVER_BARE}")),
            (None, None) => return None,
        })
    }
}

/// What could not be measured.
#[derive(Debug, Serialize)]
pub(super) struct Missing {
    method: &'static str,
    kind: Kind,
    processes: u32,
    why: String,
}

impl Missing {
    pub(super) fn of(
        method: &'static str,
        Shape { processes, kind }: Shape,
        error: &anyhow::Error,
    ) -> Self {
        Self { method, kind, processes, why: format!("{error:#}") }
    }

    fn name(&self) -> String {
        format!("{} {} processes", self.processes, self.kind.word())
    }

    pub(super) fn shown(&self) -> String {
        format!("Not measured: {} of {}, since {}.\n", self.method, self.name(), self.why)
    }

    pub(super) fn figure(&self) -> Figure {
        let what = format!("switch, {} a job, {}", self.name(), self.method);
        Figure::missing(&what, &self.why, "")
    }
}

/// From 1,000 on it must take so many times as long as there are more processes, or less.
pub(super) fn growth(rows: &[Row]) -> Option<Figure> {
    let find = |processes| {
        let is_it = |row: &&Row| {
            row.method == "freeze" && row.kind == Kind::Idle && row.processes == processes
        };
        rows.iter().find(is_it).map(|row| row.made.median_us)
    };
    let (few, many) = (find(1000)?, find(5000)?);
    let times = ratio(many, few);
    let what = "5,000 idle processes over 1,000";
    Some(Figure::goal(what, format!("{times:.2} times"), "at most 5 times", times <= 5.0))
}

/// All rows, for people.
pub(super) fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("METHOD", Align::Left),
        ("PROCESSES", Align::Right),
        ("", Align::Left),
        ("SWITCHES", Align::Right),
        ("WOKE", Align::Right),
        ("STOPPED", Align::Right),
        ("RESUMED", Align::Right),
        ("WHOLE", Align::Right),
        ("BARE", Align::Right),
        ("STRAGGLERS", Align::Right),
    ]);
    for row in rows {
        table.row([
            row.method.into(),
            row.processes.to_string(),
            row.kind.word().into(),
            row.switches.to_string(),
            row.woke.shown(),
            row.stopped.shown(),
            row.resumed.shown(),
            row.whole.shown(),
            match (row.bare_us, row.over_bare()) {
                (Some(bare), Some(ratio)) => format!("{bare} ({ratio:.2})"),
                _ => "-".into(),
            },
            row.stragglers.to_string(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(processes: u32, kind: Kind, ms: u64, bare_us: Option<u64>) -> Row {
        let record = SwitchRecord {
            due_ns: 0,
            began_ns: 10_000,
            stopped_ns: 10_000 + ms * 500_000,
            devices_ns: 0,
            resumed_ns: 10_000 + ms * 1_000_000,
            left: Vec::new(),
            yields: Vec::new(),
            came: Vec::new(),
            running: Vec::new(),
            stragglers: 0,
        };
        Row::of("freeze", Shape { processes, kind }, &[record], bare_us)
    }

    #[test]
    fn a_switch_is_compared_without_its_waking() {
        let row = row(3, Kind::Busy, 3, Some(2000));
        assert_eq!(row.over_bare(), Some(1.5));
        assert_eq!(row.figure_over_bare(None).unwrap().reached, Some(true));
        let missing = Row { bare_us: None, ..row };
        let told = missing.figure_over_bare(Some("no compiler")).unwrap();
        assert_eq!((told.measured.as_str(), told.reached), ("no compiler", None));
        assert!(missing.figure_over_bare(None).is_none());
    }

    #[test]
    fn five_times_as_many_may_take_five_times_as_long() {
        let rows = |few, many| {
            [
                row(1000, Kind::Idle, few, None),
                row(1000, Kind::Busy, 1, None),
                row(5000, Kind::Idle, many, None),
            ]
        };
        assert_eq!(growth(&rows(2, 10)).unwrap().reached, Some(true));
        assert_eq!(growth(&rows(2, 11)).unwrap().reached, Some(false));
        assert!(growth(&rows(2, 11)[..2]).is_none());
    }
}
