//! Characters with their looks, and the sequences that draw them on a terminal.

use std::fmt::Write;

/// A colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Color {
    /// That of the terminal.
    #[default]
    Default,
    /// One of the terminal's 256.
    Indexed(u8),
    /// Red, green and blue.
    Rgb(u8, u8, u8),
}

/// How a character looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) front: Color,
    pub(super) back: Color,
    /// Of [`BOLD`] and the others.
    pub(super) attributes: u8,
}

pub(super) const BOLD: u8 = 1;
pub(super) const DIM: u8 = 2;
pub(super) const ITALIC: u8 = 4;
pub(super) const UNDERLINE: u8 = 8;
pub(super) const REVERSE: u8 = 16;
pub(super) const STRUCK: u8 = 32;

/// Attributes, with the numbers that set them.
const ATTRIBUTES: [(u8, u8); 6] =
    [(BOLD, 1), (DIM, 2), (ITALIC, 3), (UNDERLINE, 4), (REVERSE, 7), (STRUCK, 9)];

impl Style {
    pub(super) const fn of(attributes: u8) -> Self {
        Self { front: Color::Default, back: Color::Default, attributes }
    }

    /// Applies the numbers of a sequence `CSI ... m`, each with those that belong to it (`4:3`).
    pub(super) fn apply<'a>(&mut self, mut numbers: impl Iterator<Item = &'a [u16]>) {
        while let Some(number) = numbers.next() {
            let first = number.first().copied().unwrap_or(0);
            match first {
                0 => *self = Self::default(),
                // 4:0 is no underline.
                4 if number.get(1) == Some(&0) => self.attributes &= !UNDERLINE,
                1..=9 => {
                    let set = ATTRIBUTES.iter().find(|(_, it)| u16::from(*it) == first);
                    self.attributes |= set.map_or(0, |(attribute, _)| *attribute);
                }
                22 => self.attributes &= !(BOLD | DIM),
                23 => self.attributes &= !ITALIC,
                24 => self.attributes &= !UNDERLINE,
                27 => self.attributes &= !REVERSE,
                29 => self.attributes &= !STRUCK,
                30..=37 => self.front = indexed(first - 30),
                90..=97 => self.front = indexed(first - 90 + 8),
                40..=47 => self.back = indexed(first - 40),
                100..=107 => self.back = indexed(first - 100 + 8),
                39 => self.front = Color::Default,
                49 => self.back = Color::Default,
                38 => self.front = color(number, &mut numbers).unwrap_or(self.front),
                48 => self.back = color(number, &mut numbers).unwrap_or(self.back),
                _ => {}
            }
        }
    }

    /// The sequence that sets it, whatever was set before.
    fn write(self, has_colors: bool, out: &mut String) {
        out.push_str("\x1b[0");
        for (_, number) in ATTRIBUTES.iter().filter(|(it, _)| self.attributes & it != 0) {
            let _ = write!(out, ";{number}");
        }
        if has_colors {
            write_color(self.front, 3, out);
            write_color(self.back, 4, out);
        }
        out.push('m');
    }
}

fn indexed(number: u16) -> Color {
    u8::try_from(number).map_or(Color::Default, Color::Indexed)
}

/// The colour behind 38 or 48: `5;N` or `2;R;G;B`, also with colons.
fn color<'a>(own: &[u16], numbers: &mut impl Iterator<Item = &'a [u16]>) -> Option<Color> {
    let byte = |number: u16| u8::try_from(number).ok();
    if let [_, kind, values @ ..] = own {
        return match (kind, values) {
            (5, [number, ..]) => Some(Color::Indexed(byte(*number)?)),
            // With four, the first names a colour space.
            (2, [red, green, blue] | [_, red, green, blue, ..]) => {
                Some(Color::Rgb(byte(*red)?, byte(*green)?, byte(*blue)?))
            }
            _ => None,
        };
    }
    let mut next = || numbers.next().and_then(|number| number.first().copied());
    match next()? {
        5 => Some(Color::Indexed(byte(next()?)?)),
        2 => {
            let (red, green, blue) = (next()?, next()?, next()?);
            Some(Color::Rgb(byte(red)?, byte(green)?, byte(blue)?))
        }
        _ => None,
    }
}

fn write_color(color: Color, kind: u8, out: &mut String) {
    let _ = match color {
        Color::Default => return,
        Color::Indexed(number @ 0..8) => write!(out, ";{}", kind * 10 + number),
        Color::Indexed(number) => write!(out, ";{kind}8;5;{number}"),
        Color::Rgb(red, green, blue) => write!(out, ";{kind}8;2;{red};{green};{blue}"),
    };
}

/// A place of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// Its character; [`BEHIND`] where the one before takes two places.
    pub(super) character: char,
    pub(super) style: Style,
}

/// In the second place of a wide character.
pub(super) const BEHIND: char = '\0';

impl Cell {
    pub(super) const BLANK: Self = Self { character: ' ', style: Style::of(0) };

    pub(super) const fn new(character: char, style: Style) -> Self {
        Self { character, style }
    }
}

/// A picture of the whole terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    width: usize,
    height: usize,
    cells: Vec<Cell>,
    /// Column and line of the cursor, if it is shown.
    pub(super) cursor: Option<(usize, usize)>,
}

impl Frame {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![Cell::BLANK; width * height], cursor: None }
    }

    /// Sets one place, if there is such a one.
    pub(super) fn set(&mut self, x: usize, y: usize, cell: Cell) {
        if x < self.width && y < self.height {
            self.cells[y * self.width + x] = cell;
        }
    }

    /// Writes a text of characters that take one place each, at most `width` of them, over what is
    /// there; filled up with blanks.
    pub(super) fn text(&mut self, (x, y): (usize, usize), width: usize, text: &str, style: Style) {
        let characters = text.chars().chain(std::iter::repeat(' '));
        for (place, character) in characters.take(width).enumerate() {
            self.set(x + place, y, Cell::new(plain(character), style));
        }
    }

    fn row(&self, y: usize) -> &[Cell] {
        &self.cells[y * self.width..(y + 1) * self.width]
    }

    /// The text of a line.
    #[cfg(test)]
    pub(super) fn line(&self, y: usize) -> String {
        self.row(y).iter().map(|cell| cell.character).filter(|it| *it != BEHIND).collect()
    }

    /// What turns a terminal that shows `before` into one that shows this; `None`: whatever it
    /// shows.
    pub(super) fn changes(&self, before: Option<&Self>, has_colors: bool) -> String {
        let before = before.filter(|it| (it.width, it.height) == (self.width, self.height));
        let mut out = String::from("\x1b[?25l");
        if before.is_none() {
            out.push_str("\x1b[0m\x1b[2J");
        }
        for y in 0..self.height {
            self.row_changes(y, before, has_colors, &mut out);
        }
        out.push_str("\x1b[0m");
        if let Some((x, y)) = self.cursor {
            let _ = write!(out, "\x1b[{};{}H\x1b[?25h", y + 1, x + 1);
        }
        out
    }

    fn row_changes(&self, y: usize, before: Option<&Self>, has_colors: bool, out: &mut String) {
        let row = self.row(y);
        let is_changed = |x: &usize| match before {
            Some(before) => before.row(y)[*x] != row[*x],
            None => row[*x] != Cell::BLANK,
        };
        let Some(mut first) = (0..self.width).find(is_changed) else { return };
        let last = (0..self.width).rfind(is_changed).unwrap_or(first);
        while first > 0 && row[first].character == BEHIND {
            first -= 1;
        }
        let _ = write!(out, "\x1b[{};{}H", y + 1, first + 1);
        let mut style = None;
        for (x, cell) in row.iter().enumerate().take(last + 1).skip(first) {
            if cell.character == BEHIND {
                continue;
            }
            if style != Some(cell.style) {
                cell.style.write(has_colors, out);
                style = Some(cell.style);
            }
            out.push(cell.character);
            // Terminals differ in how wide they take such a one for.
            if !cell.character.is_ascii() && x < last {
                let next =
                    if row.get(x + 1).is_some_and(|it| it.character == BEHIND) { 2 } else { 1 };
                let _ = write!(out, "\x1b[{}G", x + next + 1);
            }
        }
    }
}

/// A character of a name or a message, which takes one place and gives the terminal no order.
fn plain(character: char) -> char {
    let is_narrow = unicode_width::UnicodeWidthChar::width(character) == Some(1);
    if is_narrow && !tutti_node::say::is_order(character) { character } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_written() {
        let mut before = Frame::new(10, 2);
        before.text((0, 0), 10, "abcdefgh", Style::default());
        let mut after = before.clone();
        after.set(3, 0, Cell::new('X', Style::of(BOLD)));
        let text = after.changes(Some(&before), true);
        assert_eq!(text, "\x1b[?25l\x1b[1;4H\x1b[0;1mX\x1b[0m");
        assert_eq!(after.changes(Some(&after), true), "\x1b[?25l\x1b[0m");
        let whole = after.changes(None, true);
        assert!(whole.contains("\x1b[2J") && whole.contains("abc"), "{whole:?}");
        // Another size is another picture.
        assert!(Frame::new(9, 2).changes(Some(&after), true).contains("\x1b[2J"));
    }

    #[test]
    fn colors_are_left_out_where_none_are_wanted() {
        let mut style = Style::default();
        let numbers: [&[u16]; 9] =
            [&[1], &[38], &[5], &[200], &[48, 2, 0, 1, 2, 3], &[4], &[24], &[7], &[27]];
        style.apply(numbers.into_iter());
        let (front, back) = (Color::Indexed(200), Color::Rgb(1, 2, 3));
        assert_eq!(style, Style { front, back, attributes: BOLD });
        let (mut colored, mut plain) = (String::new(), String::new());
        style.write(true, &mut colored);
        style.write(false, &mut plain);
        assert_eq!(
            (colored.as_str(), plain.as_str()),
            ("\x1b[0;1;38;5;200;48;2;1;2;3m", "\x1b[0;1m")
        );
    }

    #[test]
    fn names_give_no_orders() {
        let mut frame = Frame::new(6, 1);
        frame.text((0, 0), 6, "a\x1b[2\u{202e}你", Style::default());
        assert_eq!(frame.line(0), "a?[2??");
    }
}
