//! Runs side by side: a panel for each figure, a bar in it for each run.

use super::look::{INK, LETTER, Look, colour, digits, length};
use super::{Drawn, Picture, PictureError};
use plotters::coord::Shift;
use plotters::element::{Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// What kind of figure it is, for how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// A length of time, in seconds.
    Seconds,
    /// A number.
    Number,
    /// A share, from 0 to 1.
    Share,
}

/// One figure of all runs.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it is.
    pub title: String,
    /// Its kind.
    pub kind: Bar,
    /// Its value in each run.
    pub values: Vec<f64>,
}

/// Figures of several runs.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What they are about.
    pub title: String,
    /// The runs.
    pub names: Vec<String>,
    /// The figures; two stand side by side.
    pub panels: Vec<Panel>,
}

const WIDTH: u32 = 900;
const BAR: u32 = 20;
const STEP: u32 = 28;
const HEAD: u32 = 52;
const PANEL_HEAD: u32 = 30;
const MARGIN: u32 = 16;
/// The most room for a name.
const NAME_MAX: u32 = 210;

impl Bars {
    fn panel_height(&self) -> u32 {
        PANEL_HEAD + u32::try_from(self.names.len()).unwrap_or(1) * STEP + MARGIN
    }

    fn name_width(&self) -> u32 {
        let longest = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        (u32::try_from(longest).unwrap_or(u32::MAX).saturating_mul(LETTER) + 14).min(NAME_MAX)
    }
}

impl Picture for Bars {
    fn size(&self) -> (u32, u32) {
        let rows = u32::try_from(self.panels.len().div_ceil(2)).unwrap_or(1);
        (WIDTH, HEAD + rows * self.panel_height())
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        look.head(area, &self.title, &[])?;
        for (number, panel) in (0u32..).zip(&self.panels) {
            let left = MARGIN + number % 2 * (WIDTH / 2);
            let top = HEAD + number / 2 * self.panel_height();
            self.panel(area, look, panel, (left, top))?;
        }
        Ok(())
    }
}

impl Bars {
    fn panel<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        look: Look,
        panel: &Panel,
        (left, top): (u32, u32),
    ) -> Result<(), PictureError> {
        let at = |x: u32, y: u32| (look.at(left + x), look.at(top + y));
        let title = Text::new(panel.title.clone(), at(0, 10), look.text(13, HPos::Left));
        area.draw(&title).or_draw_error()?;
        let most = panel.values.iter().copied().fold(0.0, f64::max);
        let begin = self.name_width();
        let room = WIDTH / 2 - 2 * MARGIN - begin - 62;
        for (number, (name, &value)) in self.names.iter().zip(&panel.values).enumerate() {
            let y = PANEL_HEAD + u32::try_from(number).unwrap_or(0) * STEP;
            let middle = y + BAR / 2;
            let shown = shorten(name, ((begin - 10) / LETTER) as usize);
            area.draw(&Text::new(shown, at(0, middle), look.label())).or_draw_error()?;
            let part = if most > 0.0 { value / most } else { 0.0 };
            let length = pixels(part * f64::from(room)).max(1);
            let bar = [at(begin, y), at(begin + length, y + BAR)];
            area.draw(&Rectangle::new(bar, colour(number).filled())).or_draw_error()?;
            let place = at(begin + length + 6, middle);
            area.draw(&Text::new(written(panel.kind, value, most), place, look.label()))
                .or_draw_error()?;
        }
        let count = u32::try_from(self.names.len()).unwrap_or(1);
        let foot = PANEL_HEAD + count * STEP - (STEP - BAR);
        let axis = [at(begin, PANEL_HEAD - 4), at(begin, foot + 4)];
        let axis = plotters::element::PathElement::new(axis, look.line(INK, 1));
        area.draw(&axis).or_draw_error()
    }
}

/// A value beside others up to `most`.
fn written(kind: Bar, value: f64, most: f64) -> String {
    match kind {
        Bar::Seconds => length(value, most),
        Bar::Number => digits(value),
        Bar::Share => format!("{:.1} %", value * 100.0),
    }
}

fn shorten(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let kept: String = name.chars().take(most.saturating_sub(1)).collect();
    kept + "\u{2026}"
}

#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
#[expect(clippy::cast_sign_loss, reason = "the conversion saturates")]
fn pixels(length: f64) -> u32 {
    length as u32
}
