//! Curves over a common quantity, in one panel or in several that differ in their scales.

use super::look::{FAINT, INK, Look, colour, tick};
use super::{Drawn, Picture, PictureError};
use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::element::Circle;
use plotters::prelude::{DrawingArea, DrawingBackend, Ranged};
use plotters::series::LineSeries;
use plotters::style::{Color, WHITE};

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// A thin and pale one: something to compare with.
    Faint,
    /// A dot for each point.
    Dots,
    /// Dots on a line.
    Both,
}

/// Whether equal steps of an axis are equal differences or equal ratios; both axes of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Differences, from zero.
    Linear,
    /// Ratios; what is not above zero can't be shown.
    Log,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct PlotCurve {
    /// Its name.
    pub name: String,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub mark: Mark,
    /// The number of its colour: curves of one thing may share one.
    pub colour: usize,
}

/// One panel; all curves are in each.
#[derive(Clone, Debug)]
pub struct Panel2d {
    /// What the horizontal axis is.
    pub x: String,
    /// What the vertical one is.
    pub y: String,
    /// Of both.
    pub scale: Scale,
}

/// The picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What stands above.
    pub title: String,
    /// What is drawn in every panel.
    pub curves: Vec<PlotCurve>,
    /// From left to right.
    pub panels: Vec<Panel2d>,
}

/// A panel's width and height in pixels, and what one line of names takes.
const PANEL: (u32, u32) = (460, 330);

impl Plot {
    /// The names to be distinguished by colour; the ways of drawing are described in words.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<Vec<String>> = Vec::new();
        for curve in &self.curves {
            if names.len() <= curve.colour {
                names.resize(curve.colour + 1, Vec::new());
            }
            let how = match curve.mark {
                Mark::Line => " (line)",
                Mark::Faint => " (thin line)",
                Mark::Dots => " (dots)",
                Mark::Both => "",
            };
            names[curve.colour].push(format!("{}{how}", curve.name));
        }
        names.into_iter().map(|names| names.join("; ")).collect()
    }

    /// The range of an axis.
    fn range(&self, scale: Scale, value: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(&value);
        let most = values().fold(0.0, f64::max).clamp(1e-6, 1e12);
        match scale {
            Scale::Linear => (0.0, most * 1.05),
            Scale::Log => {
                let least = values().filter(|it| *it > 0.0).fold(most, f64::min);
                (10f64.powf(least.log10().floor()), most * 1.3)
            }
        }
    }
}

impl Picture for Plot {
    fn size(&self) -> (u32, u32) {
        let panels = u32::try_from(self.panels.len()).unwrap_or(1).clamp(1, 8);
        let width = (PANEL.0 * panels).max(640);
        let names = self.names();
        let letters: usize = names.iter().map(|name| name.chars().count() + 8).sum();
        let lines = u32::try_from(letters).unwrap_or(0) * super::look::LETTER / width + 1;
        (width, PANEL.1 + 70 + 20 * lines)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let names = self.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let area = look.head(area, &self.title, &names)?;
        let areas = area.split_evenly((1, self.panels.len().max(1)));
        for (area, panel) in areas.iter().zip(&self.panels) {
            let (x, y) = (self.range(panel.scale, |at| at.0), self.range(panel.scale, |at| at.1));
            match panel.scale {
                Scale::Linear => self.panel(area, look, panel, (x.0..x.1, y.0..y.1))?,
                Scale::Log => {
                    let ranges = ((x.0..x.1).log_scale(), (y.0..y.1).log_scale());
                    self.panel(area, look, panel, ranges)?;
                }
            }
        }
        Ok(())
    }
}

impl Plot {
    fn panel<B: DrawingBackend, X, Y>(
        &self,
        area: &DrawingArea<B, Shift>,
        look: Look,
        panel: &Panel2d,
        (x, y): (X, Y),
    ) -> Result<(), PictureError>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>>,
    {
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(look.px(14)).margin_right(look.px(24)).margin_top(look.px(8));
        builder.margin_bottom(look.px(8)).x_label_area_size(look.px(50));
        builder.y_label_area_size(look.px(60));
        let mut chart = builder.build_cartesian_2d(x, y).or_draw_error()?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(panel.x.as_str())
            .y_desc(panel.y.as_str())
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .y_label_offset(look.at(1))
            // The lowest numbers of both axes stand apart.
            .set_tick_mark_size(LabelAreaPosition::Bottom, look.px(8))
            .label_style(look.axis())
            .axis_desc_style(look.axis())
            .draw()
            .or_draw_error()?;
        for curve in &self.curves {
            let colour = colour(curve.colour);
            let points = || curve.points.iter().copied();
            let line = match curve.mark {
                Mark::Line | Mark::Both => Some(look.line(colour, 2)),
                Mark::Faint => Some(colour.mix(0.35).stroke_width(look.px(1))),
                Mark::Dots => None,
            };
            if let Some(line) = line {
                chart.draw_series(LineSeries::new(points(), line)).or_draw_error()?;
            }
            if matches!(curve.mark, Mark::Dots | Mark::Both) {
                let dot = |point| Circle::new(point, look.px(3), colour.filled());
                chart.draw_series(points().map(dot)).or_draw_error()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Mark, Panel2d, Plot, PlotCurve, Scale};
    use crate::picture::svg;

    #[test]
    fn curves_are_drawn_as_they_say_in_every_panel() {
        let points = vec![(1.0, 0.2), (10.0, 3.0), (50.0, 400.0)];
        let curve = |mark, colour| PlotCurve {
            name: format!("{mark:?}"),
            points: points.clone(),
            mark,
            colour,
        };
        let panel = |scale| Panel2d { x: "interval".into(), y: "length".into(), scale };
        let plot = Plot {
            title: "Switches".into(),
            curves: vec![curve(Mark::Dots, 0), curve(Mark::Line, 0), curve(Mark::Faint, 1)],
            panels: vec![panel(Scale::Log), panel(Scale::Linear)],
        };
        let text = svg(&plot).unwrap();
        for word in
            ["Switches", "Dots (dots); Line (line)", "Faint (thin line)", "interval", "length"]
        {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(text.matches("<circle").count(), 2 * points.len());
        assert_eq!(text, svg(&plot).unwrap());
        let empty = Plot { curves: Vec::new(), ..plot };
        assert!(svg(&empty).is_ok());
    }
}
