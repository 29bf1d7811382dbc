//! Turns of jobs over time: a lane for each processor, a bar for each turn.

use super::look::{FAINT, INK, LETTER, Look, ink_on};
use super::{Drawn, Picture, PictureError};
use plotters::coord::Shift;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, HSLColor, RGBColor};

/// A bar of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneBar {
    /// The lane, from 0.
    pub lane: u32,
    /// Where it begins, as a part of the width of all, from 0 to 1.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What is written in it, if it fits.
    pub label: String,
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
    /// Moments of the axis: where, from 0 to 1, and their names.
    pub ticks: Vec<(f64, String)>,
    /// The bars; a later one is drawn above.
    pub bars: Vec<LaneBar>,
}

const WIDTH: u32 = 1_200;
const LEFT: u32 = 150;
const RIGHT: u32 = 20;
const TOP: u32 = 34;
const FOOT: u32 = 10;
const MARK: RGBColor = RGBColor(204, 0, 0);

/// Height of a lane, in pixels, and that of one of many.
const LANE: u32 = 16;
const LOW_LANE: u32 = 4;
/// From this number of lanes on, they are low, and one in four has its name.
const MANY: u32 = 250;
/// More can't be drawn: the pixels would take more than 60 MB.
const LANES_MAX: u32 = 1_000;

impl Lanes {
    fn count(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    /// The height of each lane, in pixels.
    fn lane(&self) -> u32 {
        if self.count() > MANY { LOW_LANE } else { LANE }
    }

    fn height(&self) -> u32 {
        self.count().min(LANES_MAX) * self.lane() + TOP + FOOT
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
        if self.count() > LANES_MAX {
            let what = format!("{} processors", self.count());
            return Err(PictureError::TooMuch { what });
        }
        let look = Look { scale };
        let lane_height = self.lane();
        let (left, width) = (f64::from(look.px(LEFT)), f64::from(look.px(WIDTH - LEFT - RIGHT)));
        let x = |part: f64| pixels(left + part.clamp(0.0, 1.0) * width);
        let foot = look.at(self.height() - FOOT);
        for (at, tick) in &self.ticks {
            let x = x(*at);
            let grid = PathElement::new([(x, look.at(TOP - 6)), (x, foot)], look.line(FAINT, 1));
            area.draw(&grid).or_draw_error()?;
            let text = Text::new(tick.clone(), (x, look.at(TOP - 16)), look.text(11, HPos::Center));
            area.draw(&text).or_draw_error()?;
        }
        let letters = ((LEFT - 12) / LETTER) as usize;
        let named = (0u32..).zip(&self.names).step_by((LANE / lane_height) as usize);
        for (lane, name) in named {
            let place = (look.at(LEFT - 6), look.at(TOP + lane * lane_height + LANE / 2));
            let text = Text::new(tail(name, letters), place, look.text(11, HPos::Right));
            area.draw(&text).or_draw_error()?;
        }
        for bar in &self.bars {
            let top = TOP + bar.lane * lane_height;
            let gap = lane_height / 8;
            let from = x(bar.from);
            // What is too short to be seen has a pixel.
            let to = x(bar.to).max(from + 1);
            let place = [(from, look.at(top + gap)), (to, look.at(top + lane_height - gap) - 1)];
            let (hue, saturation, lightness) = bar.colour;
            let fill = HSLColor(hue, saturation, lightness);
            area.draw(&Rectangle::new(place, fill.filled())).or_draw_error()?;
            if bar.is_marked {
                area.draw(&Rectangle::new(place, look.line(MARK, 1))).or_draw_error()?;
            }
            let width = u32::try_from(bar.label.chars().count()).unwrap_or(u32::MAX);
            let width = i32::try_from(look.px(width.saturating_add(1).saturating_mul(LETTER)));
            if lane_height == LANE && width.is_ok_and(|width| to - from >= width) {
                let (red, green, blue) = fill.to_backend_color().rgb;
                let ink = ink_on(RGBColor(red, green, blue));
                let middle = (i32::midpoint(from, to), look.at(top + lane_height / 2));
                let style = look.text(10, HPos::Center).color(&ink);
                area.draw(&Text::new(bar.label.clone(), middle, style)).or_draw_error()?;
            }
        }
        let axis = [(x(0.0), look.at(TOP - 6)), (x(0.0), foot)];
        area.draw(&PathElement::new(axis, look.line(INK, 1))).or_draw_error()
    }
}

/// A name without its begin, if it is long: its end tells processors of one node apart.
fn tail(name: &str, most: usize) -> String {
    match name.chars().count().checked_sub(most) {
        None | Some(0) => name.to_owned(),
        Some(over) => format!("..{}", name.chars().skip(over + 2).collect::<String>()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
fn pixels(place: f64) -> i32 {
    place.round() as i32
}

#[cfg(test)]
mod tests {
    use super::super::png;
    use super::*;

    fn lanes(count: u32) -> Lanes {
        let bar = |lane| LaneBar {
            lane,
            from: 0.25,
            to: 0.75,
            label: "7".to_owned(),
            colour: (0.5, 0.6, 0.5),
            is_marked: false,
        };
        Lanes {
            names: (0..count).map(|lane| format!("a-node-with-a-long-name:{lane}")).collect(),
            ticks: vec![(0.0, "0s".to_owned()), (1.0, "1s".to_owned())],
            bars: (0..count).map(bar).collect(),
        }
    }

    /// The width and height in the head of a PNG.
    fn size(picture: &[u8]) -> (u32, u32) {
        let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
        (number(16), number(20))
    }

    #[test]
    fn long_name_keeps_its_end() {
        assert_eq!(tail("node1:3", 7), "node1:3");
        assert_eq!(tail("a-long-name:31", 8), "..ame:31");
    }

    #[test]
    fn height_of_a_picture_is_bounded() {
        for (count, height) in [(1, 60), (250, 4_044), (251, 1_048), (1_000, 4_044)] {
            assert_eq!(lanes(count).size(), (1_200, height), "{count}");
        }
        let picture = png(&lanes(3)).unwrap();
        assert!(picture.starts_with(b"\x89PNG"));
        assert_eq!(size(&picture), (2_400, 184));
        let error = png(&lanes(1_001)).unwrap_err();
        assert!(error.to_string().starts_with("1001 processors are more than"), "{error}");
    }
}
