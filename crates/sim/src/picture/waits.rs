//! How long jobs wait: which share of them waits at most so long.

use super::look::{FAINT, INK, Look, colour};
use super::{Drawn, Picture, PictureError};
use crate::sketch::Sketch;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::series::LineSeries;
use plotters::style::WHITE;
use std::ops::Range;

/// The distribution of waits in one run or several.
#[derive(Debug, Default)]
pub struct Waits {
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Where the axis has marks: seconds, and their name.
const MARKS: [(f64, &str); 10] = [
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (36_000.0, "10 h"),
    (86_400.0, "1 d"),
    (864_000.0, "10 d"),
    (8_640_000.0, "100 d"),
    (86_400_000.0, "1000 d"),
];

impl Waits {
    /// Adds a run under a name.
    pub fn add(&mut self, name: &str, waits: &Sketch) {
        let whole = waits.count().max(1) as f64;
        let mut below = 0.0;
        let mut points = Vec::new();
        for (wait_ns, count) in waits.counts() {
            let at = (wait_ns as f64 / 1e9).max(1.0).log10();
            points.push((at, below / whole * 100.0));
            below += f64::from(count);
            points.push((at, below / whole * 100.0));
        }
        // It begins with jobs that don't wait, and goes on to the end of the axis.
        if let Some(first) = points.first().copied() {
            points.retain(|point| point.0 > 0.0 || point.1 > first.1);
            if points.first().is_none_or(|point| point.0 > 0.0) {
                points.insert(0, (0.0, first.1));
            }
        }
        self.curves.push((name.to_owned(), points));
    }

    /// The logarithm of the longest wait, up to the next mark.
    fn end(&self) -> f64 {
        let points = self.curves.iter().flat_map(|(_, points)| points);
        let longest = points.map(|point| point.0).fold(0.0, f64::max);
        let marks = MARKS.map(|(seconds, _)| seconds.log10());
        marks.into_iter().find(|&mark| mark >= longest && mark > 1.0).unwrap_or(longest)
    }
}

/// Logarithms of seconds, with the marks above.
struct Axis(RangedCoordf64);

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        let end = self.0.range().end;
        MARKS.iter().map(|(seconds, _)| seconds.log10()).filter(|&mark| mark <= end).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.range()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(at: &f64) -> String {
        let mark = MARKS.iter().find(|(seconds, _)| (seconds.log10() - at).abs() < 1e-6);
        mark.map_or_else(String::new, |(_, name)| (*name).to_owned())
    }
}

impl Picture for Waits {
    fn size(&self) -> (u32, u32) {
        (820, 430)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let end = self.end();
        let names: Vec<&str> = self.curves.iter().map(|(name, _)| name.as_str()).collect();
        let area = look.head(area, "How long jobs wait", &names)?;
        let mut chart = ChartBuilder::on(&area)
            .margin_left(look.px(14))
            .margin_right(look.px(24))
            .margin_top(look.px(6))
            .margin_bottom(look.px(10))
            .x_label_area_size(look.px(40))
            .y_label_area_size(look.px(52))
            .build_cartesian_2d(Axis((0.0..end).into()), 0.0..100.0)
            .or_draw_error()?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc("wait, from submission to getting processors")
            .y_desc("jobs that wait at most this long, %")
            .y_label_formatter(&super::look::tick)
            .y_label_offset(look.at(1))
            .label_style(look.axis())
            .axis_desc_style(look.axis())
            .draw()
            .or_draw_error()?;
        for (number, (_, points)) in self.curves.iter().enumerate() {
            let last = [(end, 100.0)].into_iter().filter(|_| !points.is_empty());
            let points = points.iter().copied().chain(last);
            let line = LineSeries::new(points, look.line(colour(number), 2));
            chart.draw_series(line).or_draw_error()?;
        }
        Ok(())
    }
}
