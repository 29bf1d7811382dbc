//! Switches by signals, in every order, against the retry interval, on one processor and on all:
//! the process-tracking paper's figures 3 to 5.

use super::super::contend::{median, ms};
use super::super::figures::Figure;
use super::super::processes::Kind;
use super::super::processors;
use super::super::scratch::Scratch;
use super::model::{self, Stops};
use super::rows::made_ns;
use super::trees::{Shape, Trees, Wanted};
use super::{Bench, progress};
use serde::Serialize;
use std::path::Path;
use tutti_client::output::{Align, Table};
use tutti_client::scratch::ScratchInstance;
use tutti_linux::{affinity, clock, proc};
use tutti_sim::picture::{Mark, Panel2d, Plot, PlotCurve, Scale, save};
use tutti_types::Nanos;

/// Those of the paper.
const SIZES: [u32; 3] = [3, 7, 15];
const RETRIES_MS: [u32; 6] = [1, 2, 5, 10, 20, 50];
/// The one that the paper recommends.
const RETRY_BEST_MS: u32 = 5;
/// The paper's own order is measured for every size, the others for the largest.
const PAPERS: &str = "depth-first";
const OTHERS: [&str; 3] = ["breadth-first", "hybrid", "all-at-once"];
/// What stands in place of an order where no signals are sent.
const FREEZER: &str = "freezer";

/// The paper's own machine, an S70: processors, and a tick in milliseconds.
const S70: (u32, f64) = (4, 10.0);

/// What a turn has besides the longest that a switch is expected to take.
const QUANTUM_LEAST_MS: u32 = 60;
/// Levels of the largest tree, and one: in other orders than the paper's, so many are waited for.
const LEVELS: u32 = 5;

const THOROUGH: Wanted =
    Wanted { switches: 15, length_max: Nanos::from_secs(4), switches_least: 11, patience: 2 };
const QUICK: Wanted =
    Wanted { switches: 5, length_max: Nanos::from_secs(1), switches_least: 3, patience: 2 };

/// All that was measured, on one processor first.
#[derive(Debug, Serialize)]
pub(super) struct Curves {
    /// This machine's clock tick.
    tick_ms: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    processors: u32,
    /// Of each of the two jobs.
    processes: u32,
    /// The order of the signals, or `freezer`.
    order: &'static str,
    /// Of no matter to the freezer, which is measured once.
    retry_ms: u32,
    switches: usize,
    /// How long a switch took; the median, where the paper has the mean: what else the machine does
    /// makes single ones long.
    median_us: u64,
    /// What equation 9 says, for the paper's own order.
    model_us: Option<u64>,
    /// The same where each must get a processor before it stops.
    model_linux_us: Option<u64>,
}

pub(super) fn measure(
    bench: &Bench,
    scratch: &Scratch,
    figures: Option<&Path>,
) -> anyhow::Result<Curves> {
    let wanted = if bench.quick { QUICK } else { THOROUGH };
    #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
    let tick_ms = clock::tick_ns() as f64 / 1e6;
    let mut curves = Curves { tick_ms, points: Vec::new() };
    let all = proc::online_processors();
    let own = std::process::id().cast_signed();
    // What this process may use is all that the instance has.
    affinity::bind(own, &all[..1])?;
    let alone = curves.measure_here(scratch, wanted);
    affinity::bind(own, &all)?;
    alone?;
    if all.len() > 1 {
        curves.measure_here(scratch, wanted)?;
    }
    if let Some(directory) = figures {
        std::fs::create_dir_all(directory)?;
        for (name, plot) in curves.plots() {
            for ending in ["svg", "png"] {
                save(&plot, &directory.join(format!("{name}.{ending}")))?;
            }
        }
    }
    Ok(curves)
}

impl Curves {
    fn measure_here(&mut self, scratch: &Scratch, wanted: Wanted) -> anyhow::Result<()> {
        let own = super::start()?;
        for processes in SIZES {
            self.measure_size(&own, scratch, processes, wanted)?;
        }
        own.end()
    }

    fn measure_size(
        &mut self,
        own: &ScratchInstance,
        scratch: &Scratch,
        processes: u32,
        wanted: Wanted,
    ) -> anyhow::Result<()> {
        let count = processors();
        // Trees that are suspended slowly grow slowly.
        own.set("traversal", OTHERS[2])?;
        own.set("retry_interval", "1ms")?;
        progress(&format!("switch: {processes} processes a job on {count}, by retry interval"));
        let shape = Shape { processes, kind: Kind::Busy };
        let trees = Trees::start(own, scratch, "signal", shape, &[])?;
        for order in [PAPERS].into_iter().chain(OTHERS) {
            if order != PAPERS && processes != SIZES[SIZES.len() - 1] {
                continue;
            }
            own.set("traversal", order)?;
            for retry_ms in RETRIES_MS {
                own.set("retry_interval", &format!("{retry_ms}ms"))?;
                let waits = if order == PAPERS { processes } else { LEVELS };
                let quantum = set_quantum(own, waits * retry_ms)?;
                let records = trees.records(wanted, quantum)?;
                self.add(processes, order, retry_ms, records.iter().map(made_ns));
            }
        }
        trees.end()?;
        let trees = Trees::start(own, scratch, "freeze", shape, &[])?;
        let records = trees.records(wanted, set_quantum(own, 0)?)?;
        self.add(processes, FREEZER, 0, records.iter().map(made_ns));
        trees.end()
    }

    fn add(
        &mut self,
        processes: u32,
        order: &'static str,
        retry_ms: u32,
        lengths_ns: impl Iterator<Item = u64>,
    ) {
        let mut lengths: Vec<u64> = lengths_ns.map(|ns| ns / 1000).collect();
        let machine = (processors(), self.tick_ms);
        let model = |stops| {
            let ms = model::suspend_ms(processes, machine, f64::from(retry_ms), stops);
            #[expect(clippy::cast_possible_truncation, reason = "milliseconds of a switch")]
            #[expect(clippy::cast_sign_loss, reason = "a length of time")]
            let us = (ms * 1000.0).round() as u64;
            us
        };
        self.points.push(Point {
            processors: processors(),
            processes,
            order,
            retry_ms,
            switches: lengths.len(),
            median_us: median(&mut lengths),
            model_us: (order == PAPERS).then(|| model(Stops::WhoRuns)),
            model_linux_us: (order == PAPERS).then(|| model(Stops::Everybody)),
        });
    }

    /// The medians of a curve, by retry interval; the freezer's are the same at all.
    fn medians(&self, processors: u32, processes: u32, order: &str) -> Vec<(f64, f64)> {
        let is_its = |point: &&Point| {
            point.processors == processors && point.processes == processes && point.order == order
        };
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a switch")]
        let length = |point: &Point| point.median_us as f64 / 1000.0;
        let of = |point: &Point| match order {
            FREEZER => RETRIES_MS.iter().map(|&at| (f64::from(at), length(point))).collect(),
            _ => vec![(f64::from(point.retry_ms), length(point))],
        };
        self.points.iter().filter(is_its).flat_map(of).collect()
    }

    /// The figures, each with the name of its file.
    fn plots(&self) -> Vec<(&'static str, Plot)> {
        let measured = |processors: u32, mark| -> Vec<PlotCurve> {
            let curve = |(colour, processes): (usize, u32)| PlotCurve {
                name: format!("{processes} processes, {PAPERS}"),
                points: self.medians(processors, processes, PAPERS),
                mark,
                colour,
            };
            SIZES.into_iter().enumerate().map(|(colour, size)| curve((colour, size))).collect()
        };
        let others = |processors: u32| -> Vec<PlotCurve> {
            let most = SIZES[SIZES.len() - 1];
            let curve = |(number, order): (usize, &str)| PlotCurve {
                name: format!("{most}, {order}"),
                points: self.medians(processors, most, order),
                mark: Mark::Both,
                colour: SIZES.len() + number,
            };
            OTHERS.into_iter().chain([FREEZER]).enumerate().map(curve).collect()
        };
        let count = processors();
        let one = [measured(1, Mark::Both), others(1)].concat();
        let s70 = modelled(S70, Stops::WhoRuns, "on the paper's machine");
        let several = [measured(count, Mark::Both), others(count), s70].concat();
        let here = (count, self.tick_ms);
        let mut linux = modelled(here, Stops::Everybody, "if all must run to stop");
        linux.iter_mut().for_each(|curve| curve.mark = Mark::Line);
        let paper = modelled(here, Stops::WhoRuns, "equation 9");
        let against = [measured(count, Mark::Dots), linux, paper].concat();
        vec![
            ("switch-3", plot("Switches by signals on one processor", &one, &[Scale::Linear])),
            (
                "switch-4",
                plot(
                    &format!("Switches by signals on {count} processors"),
                    &several,
                    &[Scale::Log, Scale::Linear],
                ),
            ),
            (
                "switch-5",
                plot(
                    &format!("Measured and modelled, on {count} processors"),
                    &against,
                    &[Scale::Log, Scale::Linear],
                ),
            ),
        ]
    }

    /// How near the model is at the interval that the paper recommends, for the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let of = |point: &Point| {
            let what = format!(
                "signals, {} busy processes on {}, retry {} ms: switch; equation 9; if all must run to stop",
                point.processes, point.processors, point.retry_ms
            );
            let modelled = [point.model_us, point.model_linux_us].into_iter().flatten();
            let shown: Vec<String> =
                [point.median_us].into_iter().chain(modelled).map(ms).collect();
            Figure::shown(&what, shown.join("; "))
        };
        let is_shown = |point: &&Point| point.order == PAPERS && point.retry_ms == RETRY_BEST_MS;
        self.points.iter().filter(is_shown).map(of).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("PROCESSORS", Align::Right),
            ("PROCESSES", Align::Right),
            ("ORDER", Align::Left),
            ("RETRY", Align::Right),
            ("SWITCHES", Align::Right),
            ("MEDIAN", Align::Right),
            ("MODEL", Align::Right),
            ("MUST RUN", Align::Right),
        ]);
        let shown = |us: Option<u64>| us.map_or_else(|| "-".into(), ms);
        for point in &self.points {
            table.row([
                point.processors.to_string(),
                point.processes.to_string(),
                point.order.to_owned(),
                if point.retry_ms == 0 { "-".into() } else { format!("{} ms", point.retry_ms) },
                point.switches.to_string(),
                ms(point.median_us),
                shown(point.model_us),
                shown(point.model_linux_us),
            ]);
        }
        format!(
            "Two jobs of N busy processes each, switched by signals; the model is equation 9 of the \
             process-tracking paper with this machine's tick of {} ms; MUST RUN: the same where also a process that is \
             not running must run before it stops\n\n{}",
            self.tick_ms,
            table.render()
        )
    }
}

/// The model's curves, pale.
fn modelled(machine: (u32, f64), stops: Stops, name: &str) -> Vec<PlotCurve> {
    let at = |processes: u32, retry_ms: u32| {
        let retry_ms = f64::from(retry_ms);
        (retry_ms, model::suspend_ms(processes, machine, retry_ms, stops))
    };
    let curve = |(colour, processes): (usize, u32)| PlotCurve {
        name: format!("{processes}, {name}"),
        points: (1..=RETRIES_MS[RETRIES_MS.len() - 1]).map(|ms| at(processes, ms)).collect(),
        mark: Mark::Faint,
        colour,
    };
    SIZES.into_iter().enumerate().map(curve).collect()
}

/// A turn that a switch of so many milliseconds fits into.
fn set_quantum(own: &ScratchInstance, switch_ms: u32) -> anyhow::Result<Nanos> {
    let ms = QUANTUM_LEAST_MS + switch_ms;
    own.set("quantum", &format!("{ms}ms"))?;
    Ok(Nanos::from_millis(u64::from(ms)))
}

fn plot(title: &str, curves: &[PlotCurve], scales: &[Scale]) -> Plot {
    let panel =
        |&scale| Panel2d { x: "retry interval (ms)".into(), y: "switch (ms)".into(), scale };
    Plot {
        title: title.into(),
        curves: curves.to_vec(),
        panels: scales.iter().map(panel).collect(),
    }
}
