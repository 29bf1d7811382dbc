//! Utilisation and the queue over time.

use super::look::{FAINT, INK, Look, colour, tick, unit_of};
use super::{Drawn, Picture, PictureError};
use crate::observer::{Observer, Passed};
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::series::{AreaSeries, LineSeries};
use plotters::style::{Color, WHITE};
use tutti_types::ClusterTime;

/// Looks on and keeps, for each of a few hundred equal times, how much ran and waited. As time goes
/// on, two and two become one.
#[derive(Clone, Debug)]
pub struct Load {
    processors: u32,
    begin: Option<ClusterTime>,
    width_ns: u64,
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    useful_ns: f64,
    waiting_ns: f64,
    passed_ns: f64,
}

/// One or several runs over time.
#[derive(Debug, Default)]
pub struct Utilisation {
    curves: Vec<(String, Load)>,
}

const BINS_MAX: usize = 400;
const NS_PER_S: f64 = 1e9;

impl Load {
    /// For a machine with so many processors.
    #[must_use]
    pub const fn new(processors: u32) -> Self {
        Self { processors, begin: None, width_ns: 1_000_000_000, bins: Vec::new() }
    }

    fn bin(&mut self, at: u64) -> usize {
        loop {
            let index = usize::try_from(at / self.width_ns).unwrap_or(usize::MAX);
            if index < BINS_MAX {
                if self.bins.len() <= index {
                    self.bins.resize(index + 1, Bin::default());
                }
                return index;
            }
            self.width_ns = self.width_ns.saturating_mul(2);
            let pairs =
                self.bins.chunks(2).map(|pair| pair.iter().copied().fold(Bin::default(), Bin::and));
            self.bins = pairs.collect();
        }
    }

    fn span_s(&self) -> f64 {
        self.bins.len() as f64 * self.width_ns as f64 / NS_PER_S
    }

    /// Steps: the time in units of `unit_s`, and what `of` says of it.
    fn steps(&self, unit_s: f64, of: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
        let width = self.width_ns as f64 / NS_PER_S / unit_s;
        let bins = self.bins.iter().enumerate().filter(|(_, bin)| bin.passed_ns > 0.0);
        let step = |(index, bin)| {
            let (begin, value) = (index as f64 * width, of(bin));
            [(begin, value), (begin + width, value)]
        };
        bins.flat_map(step).collect()
    }

    fn utilisation(&self, unit_s: f64) -> Vec<(f64, f64)> {
        let whole = f64::from(self.processors);
        self.steps(unit_s, |bin| bin.useful_ns / (bin.passed_ns * whole) * 100.0)
    }

    fn waiting(&self, unit_s: f64) -> Vec<(f64, f64)> {
        self.steps(unit_s, |bin| bin.waiting_ns / bin.passed_ns)
    }
}

impl Bin {
    fn and(self, other: Self) -> Self {
        Self {
            useful_ns: self.useful_ns + other.useful_ns,
            waiting_ns: self.waiting_ns + other.waiting_ns,
            passed_ns: self.passed_ns + other.passed_ns,
        }
    }
}

impl Observer for Load {
    fn submitted(&mut self, _: u64, job: &crate::Job) -> std::io::Result<()> {
        self.begin.get_or_insert(job.submit);
        Ok(())
    }

    fn passed(&mut self, passed: &Passed) {
        let Some(begin) = self.begin else { return };
        let (from, to) = (passed.from.since(begin).0, passed.to.since(begin).0);
        let whole_ns = to.saturating_sub(from) as f64;
        if whole_ns == 0.0 {
            return;
        }
        self.bin(to.saturating_sub(1));
        let mut at = from;
        while at < to {
            let index = self.bin(at);
            let end = (index as u64 + 1).saturating_mul(self.width_ns).min(to);
            let part = (end - at) as f64 / whole_ns;
            let bin = &mut self.bins[index];
            bin.useful_ns += passed.useful_ns as f64 * part;
            bin.waiting_ns += passed.waiting as f64 * whole_ns * part;
            bin.passed_ns += whole_ns * part;
            at = end;
        }
    }
}

impl Utilisation {
    /// Adds a run under a name.
    pub fn add(&mut self, name: &str, load: Load) {
        self.curves.push((name.to_owned(), load));
    }
}

impl Picture for Utilisation {
    fn size(&self) -> (u32, u32) {
        (900, 520)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let span_s = self.curves.iter().map(|(_, load)| load.span_s()).fold(1.0, f64::max);
        let unit = unit_of(span_s);
        let names: Vec<&str> = self.curves.iter().map(|(name, _)| name.as_str()).collect();
        let area = look.head(area, "Utilisation and queue", &names)?;
        let (upper, lower) = area.split_vertically(area.dim_in_pixel().1 / 2 - look.px(6));
        let of = |load: &Load| load.utilisation(unit.seconds);
        self.panel(&upper, look, ("processors in use, %", ""), (span_s / unit.seconds, 100.0), of)?;
        let of = |load: &Load| load.waiting(unit.seconds);
        let points = self.curves.iter().flat_map(|(_, load)| of(load));
        let most = points.map(|point| point.1).fold(4.0, f64::max) * 1.05;
        let time = format!("time since the first submission, {}", unit.name);
        self.panel(&lower, look, ("jobs waiting", &time), (span_s / unit.seconds, most), of)
    }
}

impl Utilisation {
    fn panel<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        look: Look,
        (what, time): (&str, &str),
        (right, top): (f64, f64),
        of: impl Fn(&Load) -> Vec<(f64, f64)>,
    ) -> Result<(), PictureError> {
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(look.px(14)).margin_right(look.px(20)).margin_top(look.px(8));
        builder.margin_bottom(look.px(8)).y_label_area_size(look.px(60));
        builder.x_label_area_size(look.px(if time.is_empty() { 20 } else { 40 }));
        let mut chart = builder.build_cartesian_2d(0.0..right, 0.0..top).or_draw_error()?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(time)
            .y_desc(what)
            .y_labels(6)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .y_label_offset(look.at(1))
            .label_style(look.axis())
            .axis_desc_style(look.axis())
            .draw()
            .or_draw_error()?;
        let alone = self.curves.len() == 1;
        for (number, (_, load)) in self.curves.iter().enumerate() {
            let (colour, points) = (colour(number), of(load));
            if alone {
                let area = AreaSeries::new(points.clone(), 0.0, colour.mix(0.35));
                chart.draw_series(area).or_draw_error()?;
            }
            let style = look.line(colour, if alone { 1 } else { 2 });
            chart.draw_series(LineSeries::new(points, style)).or_draw_error()?;
        }
        Ok(())
    }
}
