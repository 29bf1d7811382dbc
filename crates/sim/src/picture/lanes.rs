//! What ran when: a lane for each processor, a bar for each turn.

use super::look::{FAINT, INK, Look};
use super::{Drawn, Picture, PictureError};
use plotters::coord::Shift;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, HSLColor, RGBColor};

/// A bar of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneBar {
    /// The lane, from 0.
    pub lane: u32,
    /// Where it begins, as a part of the width of all, from 0 to 1.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its hue, saturation and lightness, from 0 to 1.
    pub colour: (f64, f64, f64),
    /// Whether a red border sets it off.
    pub is_marked: bool,
}

/// Lanes with bars, below an axis.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The names of lanes, the upper one first.
    pub names: Vec<String>,
    /// The names of moments that are the same distance apart, from the left edge to the right one.
    pub ticks: Vec<String>,
    /// The bars; a later one is drawn above.
    pub bars: Vec<LaneBar>,
}

const WIDTH: u32 = 1_200;
const LEFT: u32 = 150;
const RIGHT: u32 = 20;
const TOP: u32 = 34;
const LANE: u32 = 16;
const FOOT: u32 = 10;
const MARK: RGBColor = RGBColor(204, 0, 0);

impl Lanes {
    fn height(&self) -> u32 {
        let lanes = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        lanes.saturating_mul(LANE).saturating_add(TOP + FOOT)
    }
}

impl Picture for Lanes {
    fn size(&self) -> (u32, u32) {
        (WIDTH, self.height())
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError> {
        let look = Look { scale };
        let (left, width) = (f64::from(look.px(LEFT)), f64::from(look.px(WIDTH - LEFT - RIGHT)));
        let x = |part: f64| pixels(left + part.clamp(0.0, 1.0) * width);
        let foot = look.at(self.height() - FOOT);
        let spaces = u32::try_from(self.ticks.len().saturating_sub(1)).unwrap_or(1).max(1);
        for (number, tick) in (0u32..).zip(&self.ticks) {
            let x = x(f64::from(number) / f64::from(spaces));
            let grid = PathElement::new([(x, look.at(TOP - 6)), (x, foot)], look.line(FAINT, 1));
            area.draw(&grid).or_draw_error()?;
            let text = Text::new(tick.clone(), (x, look.at(TOP - 16)), look.text(11, HPos::Center));
            area.draw(&text).or_draw_error()?;
        }
        for (lane, name) in (0u32..).zip(&self.names) {
            let place = (look.at(LEFT - 6), look.at(TOP + lane * LANE + LANE / 2));
            let text = Text::new(name.clone(), place, look.text(11, HPos::Right));
            area.draw(&text).or_draw_error()?;
        }
        for bar in &self.bars {
            let top = TOP + bar.lane * LANE;
            let from = x(bar.from);
            // What is too short to be seen has a pixel.
            let to = x(bar.to).max(from + 1);
            let place = [(from, look.at(top + 2)), (to, look.at(top + LANE - 2))];
            let (hue, saturation, lightness) = bar.colour;
            let fill = HSLColor(hue, saturation, lightness).filled();
            area.draw(&Rectangle::new(place, fill)).or_draw_error()?;
            if bar.is_marked {
                area.draw(&Rectangle::new(place, look.line(MARK, 1))).or_draw_error()?;
            }
        }
        let axis = [(x(0.0), look.at(TOP - 6)), (x(0.0), foot)];
        area.draw(&PathElement::new(axis, look.line(INK, 1))).or_draw_error()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
fn pixels(place: f64) -> i32 {
    place.round() as i32
}
