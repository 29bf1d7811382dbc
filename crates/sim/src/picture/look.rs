//! Fonts, colours, and how time is written on an axis.

use super::{Drawn, PictureError};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::ShapeStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle, WHITE};

/// The letters; see assets/README.md.
pub(super) const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-latin.ttf");
/// What an SVG's reader shows text in may be any font of this kind.
pub(super) const FONT_NAME: &str = "sans-serif";

/// One for each thing told apart; the first is for what is alone.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(60, 60, 60);
/// What leads the eye and no more.
pub(super) const FAINT: RGBColor = RGBColor(228, 228, 228);

/// The coordinates of a chart.
pub(super) type Plane = Cartesian2d<RangedCoordf64, RangedCoordf64>;

/// All lengths times the scale of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) scale: u32,
}

impl Look {
    pub(super) fn px(self, pixels: u32) -> u32 {
        pixels * self.scale
    }

    pub(super) fn at(self, pixels: u32) -> i32 {
        i32::try_from(self.px(pixels)).unwrap_or(i32::MAX)
    }

    /// For axes, which place their text themselves.
    pub(super) fn axis(self) -> TextStyle<'static> {
        self.font(12).color(&INK)
    }

    fn font(self, pixels: u32) -> FontDesc<'static> {
        FontDesc::new(FontFamily::SansSerif, f64::from(self.px(pixels)), FontStyle::Normal)
    }

    pub(super) fn title(self) -> TextStyle<'static> {
        self.text(17, HPos::Left)
    }

    pub(super) fn label(self) -> TextStyle<'static> {
        self.text(12, HPos::Left)
    }

    /// Its middle at the height of its place.
    pub(super) fn text(self, pixels: u32, horizontal: HPos) -> TextStyle<'static> {
        self.font(pixels).color(&INK).pos(Pos::new(horizontal, VPos::Center))
    }

    /// Draws the title, and below it the colour of each name if there are several; gives what is
    /// left of the area.
    pub(super) fn head<B: DrawingBackend>(
        self,
        area: &DrawingArea<B, Shift>,
        title: &str,
        names: &[&str],
    ) -> Result<DrawingArea<B, Shift>, PictureError> {
        let text = Text::new(title.to_owned(), (self.at(14), self.at(24)), self.title());
        area.draw(&text).or_draw_error()?;
        if names.len() < 2 {
            return Ok(area.split_vertically(self.px(40)).1);
        }
        let mut x = 16u32;
        let mut y = 52u32;
        for (number, name) in names.iter().enumerate() {
            let letters = u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
            let width = letters.saturating_mul(LETTER).saturating_add(52);
            if x > 16 && x.saturating_add(width) > self.px_of(area) {
                (x, y) = (16, y + 20);
            }
            let swatch = [(self.at(x), self.at(y - 4)), (self.at(x + 20), self.at(y + 4))];
            area.draw(&Rectangle::new(swatch, colour(number).filled())).or_draw_error()?;
            let place = (self.at(x + 27), self.at(y));
            area.draw(&Text::new((*name).to_owned(), place, self.label())).or_draw_error()?;
            x = x.saturating_add(width);
        }
        Ok(area.split_vertically(self.px(y + 18)).1)
    }

    /// The area's width, in pixels before scaling.
    fn px_of<B: DrawingBackend>(self, area: &DrawingArea<B, Shift>) -> u32 {
        area.dim_in_pixel().0 / self.scale
    }

    pub(super) fn line(self, colour: RGBColor, pixels: u32) -> ShapeStyle {
        colour.stroke_width(self.px(pixels))
    }
}

/// What a letter of a label takes, about, in pixels.
pub(super) const LETTER: u32 = 7;

/// The colour of a thing by its number.
pub(super) fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// What can be read on a colour.
pub(super) fn ink_on(colour: RGBColor) -> RGBColor {
    let RGBColor(red, green, blue) = colour;
    let bright = 3 * u32::from(red) + 6 * u32::from(green) + u32::from(blue);
    if bright > 1_400 { RGBColor(30, 30, 30) } else { WHITE }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
}

/// The unit in which an axis up to `seconds` has short numbers.
pub(super) fn unit_of(seconds: f64) -> Unit {
    const UNITS: [(&str, f64, f64); 4] = [
        ("days", 86_400.0, 3.0 * 86_400.0),
        ("hours", 3_600.0, 3.0 * 3_600.0),
        ("minutes", 60.0, 180.0),
        ("seconds", 1.0, 0.0),
    ];
    let unit = UNITS.iter().find(|(_, _, least)| seconds >= *least).unwrap_or(&UNITS[3]);
    Unit { name: unit.0, seconds: unit.1 }
}

/// A number on an axis, without a point where it needs none.
pub(super) fn tick(value: &f64) -> String {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    format!("{rounded}")
}

/// A length of time in words, in the unit that fits one of `most`.
pub(super) fn length(seconds: f64, most: f64) -> String {
    let (unit_s, unit) = match most {
        ..120.0 => (1.0, "s"),
        120.0..7_200.0 => (60.0, "min"),
        7_200.0..172_800.0 => (3_600.0, "h"),
        _ => (86_400.0, "d"),
    };
    format!("{} {unit}", digits(seconds / unit_s))
}

/// A number with three digits or so.
pub(super) fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{length, tick, unit_of};

    #[test]
    fn times_are_written_in_fitting_units() {
        assert_eq!(unit_of(100.0).name, "seconds");
        assert_eq!(unit_of(100_000.0).name, "hours");
        assert_eq!(length(0.0, 100.0), "0 s");
        assert_eq!(length(4_853.8, 5_000.0), "80.9 min");
        assert_eq!(length(4_853.8, 1e6), "0.06 d");
        assert_eq!((tick(&3.0), tick(&0.1)), ("3".to_owned(), "0.1".to_owned()));
    }
}
