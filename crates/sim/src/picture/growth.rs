//! How the time of a job grows with nodes, and with jobs: both axes logarithmic, so that what grows
//! in proportion is a straight line, and what does not grow is level.

use super::look::{FAINT, INK, Look, colour, digits};
use super::{Drawn, Picture, PictureError};
use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::element::Circle;
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::series::LineSeries;
use plotters::style::{Color, WHITE};

/// One policy.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// How many there were of what grows, and microseconds for each job.
    pub points: Vec<(f64, f64)>,
}

/// Microseconds for each job, against nodes and against jobs; the same policies in both.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Against nodes.
    pub by_nodes: Vec<Curve>,
    /// How many jobs there are meanwhile.
    pub jobs: u32,
    /// Against jobs.
    pub by_jobs: Vec<Curve>,
    /// How many nodes there are meanwhile.
    pub nodes: u32,
}

impl Growth {
    /// The range of times, in whole powers of ten.
    fn times(&self) -> (f64, f64) {
        let curves = || self.by_nodes.iter().chain(&self.by_jobs);
        let times = || curves().flat_map(|curve| &curve.points).map(|point| point.1);
        let least = times().fold(f64::MAX, f64::min).clamp(1e-3, 1e9);
        let most = times().fold(0.0, f64::max).clamp(1e-3, 1e9);
        let power = |value: f64| 10f64.powf(value);
        (power(least.log10().floor()), power(most.log10().ceil()).max(least * 10.0))
    }
}

impl Picture for Growth {
    fn size(&self) -> (u32, u32) {
        (900, 360)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let names: Vec<&str> = self.by_nodes.iter().map(|curve| curve.name.as_str()).collect();
        let area = look.head(area, "Time to simulate one job", &names)?;
        let (left, right) = area.split_horizontally(area.dim_in_pixel().0 / 2);
        let by_nodes = format!("nodes ({} jobs)", count(&self.jobs.into()));
        let by_jobs = format!("jobs ({} nodes)", count(&self.nodes.into()));
        panel(&left, look, &by_nodes, (&self.by_nodes, self.times()))?;
        panel(&right, look, &by_jobs, (&self.by_jobs, self.times()))
    }
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    look: Look,
    what: &str,
    (curves, (least, most)): (&[Curve], (f64, f64)),
) -> Result<(), PictureError> {
    let sizes = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let from = sizes().fold(f64::MAX, f64::min).clamp(1.0, 1e9);
    let to = sizes().fold(0.0, f64::max).clamp(from * 10.0, 1e10);
    let mut builder = ChartBuilder::on(area);
    builder.margin_left(look.px(14)).margin_right(look.px(36)).margin_top(look.px(8));
    builder.margin_bottom(look.px(8)).x_label_area_size(look.px(50));
    builder.y_label_area_size(look.px(60));
    let mut chart = builder
        .build_cartesian_2d((from..to).log_scale(), (least..most).log_scale())
        .or_draw_error()?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_desc(what)
        .y_desc("microseconds")
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&count)
        .y_label_formatter(&|us| if *us < 1.0 { digits(*us) } else { count(us) })
        .y_label_offset(look.at(1))
        // The lowest numbers of both axes stand apart.
        .set_tick_mark_size(LabelAreaPosition::Bottom, look.px(8))
        .label_style(look.axis())
        .axis_desc_style(look.axis())
        .draw()
        .or_draw_error()?;
    for (number, curve) in curves.iter().enumerate() {
        let colour = colour(number);
        let points = || curve.points.iter().copied();
        chart.draw_series(LineSeries::new(points(), look.line(colour, 2))).or_draw_error()?;
        let dot = |point| Circle::new(point, look.px(3), colour.filled());
        chart.draw_series(points().map(dot)).or_draw_error()?;
    }
    Ok(())
}

/// A whole number with its thousands apart.
fn count(value: &f64) -> String {
    let plain = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::{Curve, Growth, count};

    #[test]
    fn both_growths_are_drawn() {
        let curve = |points: &[(f64, f64)]| Curve { name: "gang".into(), points: points.into() };
        let growth = Growth {
            by_nodes: vec![curve(&[(100.0, 8.0), (1000.0, 9.0), (100_000.0, 70.0)])],
            jobs: 30_000,
            by_jobs: vec![curve(&[(1000.0, 12.0), (1_000_000.0, 8.5)])],
            nodes: 5000,
        };
        let text = svg(&growth).unwrap();
        for word in
            ["Time to simulate one job", "(30,000 jobs)", "(5,000 nodes)", "1,000,000", "100,000"]
        {
            assert!(text.contains(word), "{word}");
        }
        let nothing = Growth { by_nodes: Vec::new(), by_jobs: Vec::new(), ..growth };
        assert!(svg(&nothing).is_ok());
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [1.0, 999.0, 1000.0, 1_000_000.0].map(|it| count(&it)),
            ["1", "999", "1,000", "1,000,000"]
        );
    }
}
