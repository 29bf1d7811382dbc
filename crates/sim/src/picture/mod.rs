//! Pictures of simulations, and curves of whatever was measured, as SVG or PNG by the file's
//! ending.
//!
//! Each picture draws itself once, on whatever there is to draw on; a PNG has twice the pixels. The
//! colours are those of Okabe and Ito, which colour-blind people tell apart too.

mod bars;
mod gantt;
mod growth;
mod lanes;
mod line;
mod look;
mod plot;
mod waits;

pub use bars::{Bar, Bars, Panel};
pub use gantt::{Gantt, GanttPicture, TraceError, TraceNames};
pub use growth::{Curve, Growth};
pub use lanes::{LaneBar, Lanes};
pub use line::{Load, Utilisation};
pub use plot::{Mark, Panel2d, Plot, PlotCurve, Scale};
pub use waits::Waits;

use look::{FONT, FONT_NAME};
use plotters::coord::Shift;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::prelude::{BitMapBackend, DrawingArea, DrawingBackend, SVGBackend, WHITE};
use plotters::style::{FontStyle, register_font};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// The file's ending is neither.
    #[error("{}: a picture's file ends in .svg or .png", path.display())]
    Ending {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is more than a picture can show.
    #[error(
        "{what} are more than one picture or trace can show; take fewer with --jobs or --horizon"
    )]
    TooMuch {
        /// What.
        what: String,
    },
    /// It can't be drawn.
    #[error("the picture can't be drawn: {0}")]
    Draw(String),
}

/// What can be drawn.
pub trait Picture {
    /// Width and height of the SVG, in pixels.
    fn size(&self) -> (u32, u32);
    /// Draws it, all lengths times `scale`.
    ///
    /// # Errors
    /// If there is too much to draw, or the backend fails.
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: u32,
    ) -> Result<(), PictureError>;
}

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A PNG has so many pixels for one of the SVG, each way.
const PNG_SCALE: u32 = 2;
const BYTES_PER_PIXEL: usize = 3;

/// Whether a picture can be written to a file of this name, before work is put into it.
///
/// # Errors
/// If its ending tells no format.
pub fn check(path: &Path) -> Result<(), PictureError> {
    format_of(path).map(|_| ())
}

/// Draws a picture and writes it.
///
/// # Errors
/// If it can't be drawn, or the file not be written.
pub fn save(picture: &impl Picture, path: &Path) -> Result<(), PictureError> {
    let bytes = match format_of(path)? {
        Format::Svg => svg(picture)?.into_bytes(),
        Format::Png => png(picture)?,
    };
    let written = fs::write(path, bytes);
    written.map_err(|source| PictureError::Write { path: path.to_owned(), source })
}

fn format_of(path: &Path) -> Result<Format, PictureError> {
    let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err(PictureError::Ending { path: path.to_owned() }),
    }
}

fn svg(picture: &impl Picture) -> Result<String, PictureError> {
    let mut text = String::new();
    draw(picture, SVGBackend::with_string(&mut text, picture.size()), 1)?;
    Ok(text)
}

/// A picture as PNG.
///
/// # Errors
/// If it can't be drawn.
pub fn png(picture: &impl Picture) -> Result<Vec<u8>, PictureError> {
    let (width, height) = picture.size();
    let (width, height) = (width * PNG_SCALE, height * PNG_SCALE);
    let mut pixels = vec![0; width as usize * height as usize * BYTES_PER_PIXEL];
    draw(picture, BitMapBackend::with_buffer(&mut pixels, (width, height)), PNG_SCALE)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().map_err(drawn)?;
    writer.write_image_data(&pixels).map_err(drawn)?;
    writer.finish().map_err(drawn)?;
    Ok(bytes)
}

fn draw<B: DrawingBackend>(
    picture: &impl Picture,
    backend: B,
    scale: u32,
) -> Result<(), PictureError> {
    register_font(FONT_NAME, FontStyle::Normal, FONT)
        .map_err(|_| PictureError::Draw("its font is damaged".to_owned()))?;
    let area = backend.into_drawing_area();
    area.fill(&WHITE).map_err(drawn)?;
    picture.draw(&area, scale)?;
    area.present().map_err(drawn)
}

fn drawn(error: impl Error) -> PictureError {
    PictureError::Draw(error.to_string())
}

/// Draws something, with an error of ours.
trait Drawn<T> {
    fn or_draw_error(self) -> Result<T, PictureError>;
}

impl<T, E: Error + Send + Sync> Drawn<T> for Result<T, DrawingAreaErrorKind<E>> {
    fn or_draw_error(self) -> Result<T, PictureError> {
        self.map_err(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars, Panel, PictureError, Waits, check, png, svg};
    use crate::sketch::Sketch;
    use std::path::Path;

    fn bars() -> Bars {
        let panel = |kind, values: [f64; 2]| Panel {
            title: "Mean wait".to_owned(),
            kind,
            values: values.into(),
        };
        Bars {
            title: "KTH".to_owned(),
            names: [
                "space:fcfs".to_owned(),
                "a name that is far too long for its place".to_owned(),
            ]
            .into(),
            panels: vec![panel(Bar::Seconds, [7_300.0, 0.0]), panel(Bar::Share, [0.5, 0.25])],
        }
    }

    #[test]
    fn endings_tell_the_format() {
        assert!(check(Path::new("a/b.SVG")).is_ok() && check(Path::new("b.png")).is_ok());
        for name in ["a", "a.jpg", "svg", ""] {
            assert!(matches!(check(Path::new(name)), Err(PictureError::Ending { .. })), "{name}");
        }
    }

    #[test]
    fn a_picture_says_what_it_shows() {
        let text = svg(&bars()).unwrap();
        for word in ["KTH", "Mean wait", "space:fcfs", "2.03 h", "0 h", "25.0 %", "a name that"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(text, svg(&bars()).unwrap());
        let bytes = png(&bars()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes == png(&bars()).unwrap());
    }

    #[test]
    fn there_is_a_picture_of_nothing_too() {
        let mut waits = Waits::default();
        waits.add("gang", &Sketch::default());
        assert!(svg(&waits).unwrap().contains("How long jobs wait"));
    }
}
