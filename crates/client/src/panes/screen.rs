//! The screen of a pane: a small terminal with the output of one rank.
//!
//! Ranks write to pipes, so this is less than a whole terminal: characters, colours, movements of
//! the cursor and erasing. All else is left out, as are orders to the terminal around it. A line
//! end also returns to the first column. A long line goes on in the next row, and is broken anew
//! where the width changes. Rows that leave the screen at the top are kept, up to a number.

use super::cell::{BEHIND, Cell, Style};
use std::collections::VecDeque;
use unicode_width::UnicodeWidthChar;
use vte::{Params, Perform};

/// The widest and highest.
pub(super) const SIZE_MAX: usize = 1000;

/// The width up to which all rows of the past are kept.
const USUAL_WIDTH: usize = 80;

/// A row of it.
#[derive(Clone, Debug, Default)]
struct Row {
    /// At most as many as the screen is wide; blanks behind them.
    cells: Vec<Cell>,
    /// Whether its line goes on in the next row.
    continues: bool,
}

impl Row {
    /// Its cells without the blanks at the end.
    fn trimmed(&self) -> &[Cell] {
        let end = self.cells.iter().rposition(|cell| *cell != Cell::BLANK);
        &self.cells[..end.map_or(0, |end| end + 1)]
    }

    /// Blanks a part; wide characters that are cut lose both halves.
    fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.cells.len());
        for x in from..to {
            self.set(x, Cell::BLANK);
        }
    }

    /// Sets a place that exists.
    fn set(&mut self, x: usize, cell: Cell) {
        if self.cells[x].character == BEHIND && x > 0 {
            self.cells[x - 1] = Cell::BLANK;
        }
        if let Some(next) = self.cells.get_mut(x + 1)
            && next.character == BEHIND
        {
            *next = Cell::BLANK;
        }
        self.cells[x] = cell;
    }

    /// After places were moved: no half of a wide character stands alone.
    fn fix_halves(&mut self) {
        for x in 0..self.cells.len() {
            let is_wide = |cell: &Cell| cell.character.width() == Some(2);
            let is_bad = match self.cells[x].character {
                BEHIND => x == 0 || !is_wide(&self.cells[x - 1]),
                _ => {
                    is_wide(&self.cells[x])
                        && self.cells.get(x + 1).is_none_or(|next| next.character != BEHIND)
                }
            };
            if is_bad {
                self.cells[x] = Cell::BLANK;
            }
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    width: usize,
    height: usize,
    /// Those of the past, then those of the screen, as far as there are some.
    rows: VecDeque<Row>,
    /// The first row of the screen.
    top: usize,
    /// Rows of the past that are kept.
    past_max: usize,
    /// Rows that have left the screen so far.
    scrolled: u64,
    /// The cursor's, below the first row of the screen.
    row: usize,
    /// The cursor's; the width behind a full row.
    column: usize,
    style: Style,
    saved: (usize, usize, Style),
}

impl Screen {
    /// An empty one that keeps so many rows of the past, or fewer that are wider than usual.
    pub(super) fn new(width: usize, height: usize, past_max: usize) -> Self {
        Self {
            width: width.clamp(1, SIZE_MAX),
            height: height.clamp(1, SIZE_MAX),
            rows: VecDeque::new(),
            top: 0,
            past_max,
            scrolled: 0,
            row: 0,
            column: 0,
            style: Style::default(),
            saved: (0, 0, Style::default()),
        }
    }

    /// How many rows it has.
    pub(super) const fn height(&self) -> usize {
        self.height
    }

    /// How many rows of the past there are.
    pub(super) const fn past(&self) -> usize {
        self.top
    }

    /// How many rows have left the screen so far.
    pub(super) const fn scrolled(&self) -> u64 {
        self.scrolled
    }

    /// Column and row of the cursor.
    pub(super) fn cursor(&self) -> (usize, usize) {
        (self.column.min(self.width - 1), self.row)
    }

    /// A row of the screen, `back` rows earlier.
    pub(super) fn line(&self, y: usize, back: usize) -> &[Cell] {
        self.rows.get(self.top.saturating_sub(back) + y).map_or(&[], |row| &row.cells)
    }

    /// Sets how new characters look.
    pub(super) const fn set_style(&mut self, style: Style) -> Style {
        std::mem::replace(&mut self.style, style)
    }

    /// The row of the cursor.
    fn current(&mut self) -> &mut Row {
        let at = self.top + self.row;
        while self.rows.len() <= at {
            self.rows.push_back(Row::default());
        }
        &mut self.rows[at]
    }

    fn line_end(&mut self) {
        self.column = 0;
        self.row_down();
    }

    fn row_down(&mut self) {
        if self.row + 1 < self.height {
            self.row += 1;
        } else {
            self.scroll();
        }
    }

    /// The first row of the screen is of the past from now on.
    fn scroll(&mut self) {
        if self.rows.len() <= self.top {
            self.rows.push_back(Row::default());
        }
        self.top += 1;
        self.scrolled += 1;
        self.forget();
    }

    fn forget(&mut self) {
        // Wider rows take more memory.
        let past_max = self.past_max * USUAL_WIDTH / self.width.max(USUAL_WIDTH);
        while self.top > past_max {
            self.rows.pop_front();
            self.top -= 1;
        }
    }

    fn row_up(&mut self) {
        match self.row.checked_sub(1) {
            Some(row) => self.row = row,
            None => self.insert_row(0),
        }
    }

    fn insert_row(&mut self, row: usize) {
        let at = self.top + row;
        if at < self.rows.len() {
            self.rows.insert(at, Row::default());
            self.rows.truncate(self.top + self.height);
        }
    }

    fn put(&mut self, character: char) {
        let Some(width) = character.width().filter(|width| *width > 0) else { return };
        let is_bad = tutti_node::say::is_order(character) || width > self.width;
        let (character, width) = if is_bad { ('?', 1) } else { (character, width) };
        if self.column + width > self.width {
            self.current().continues = true;
            self.line_end();
        }
        let (column, style) = (self.column, self.style);
        let row = self.current();
        while row.cells.len() < column + width {
            row.cells.push(Cell::BLANK);
        }
        row.set(column, Cell::new(character, style));
        if width == 2 {
            row.set(column + 1, Cell::BLANK);
            row.cells[column] = Cell::new(character, style);
            row.cells[column + 1] = Cell::new(BEHIND, style);
        }
        self.column += width;
    }

    fn erase_in_line(&mut self, how: u16) {
        let (column, width) = (self.column.min(self.width - 1), self.width);
        let row = self.current();
        match how {
            0 => {
                row.blank(column, width);
                row.cells.truncate(column.min(row.cells.len()));
                row.fix_halves();
                row.continues = false;
            }
            1 => row.blank(0, column + 1),
            2 => *row = Row::default(),
            _ => {}
        }
    }

    fn erase_in_screen(&mut self, how: u16) {
        let at = self.top + self.row;
        match how {
            0 => {
                self.erase_in_line(0);
                self.rows.truncate(at + 1);
            }
            1 => {
                self.erase_in_line(1);
                self.rows.range_mut(self.top..at).for_each(|row| *row = Row::default());
            }
            2 => self.rows.truncate(self.top),
            3 => {
                self.rows.drain(..self.top);
                self.top = 0;
            }
            _ => {}
        }
    }

    /// Inserts or deletes places in the row of the cursor.
    fn shift(&mut self, count: usize, inserts: bool) {
        let (column, width) = (self.column.min(self.width - 1), self.width);
        let row = self.current();
        if column >= row.cells.len() {
            return;
        }
        let count = count.min(width - column);
        if inserts {
            let blanks = std::iter::repeat_n(Cell::BLANK, count);
            row.cells.splice(column..column, blanks);
            row.cells.truncate(width);
        } else {
            row.cells.drain(column..(column + count).min(row.cells.len()));
        }
        row.fix_halves();
    }

    fn go(&mut self, row: usize, column: usize) {
        self.row = row.min(self.height - 1);
        self.column = column.min(self.width - 1);
    }

    /// Gives it another size; lines are broken anew.
    pub(super) fn resize(&mut self, width: usize, height: usize) {
        let (width, height) = (width.clamp(1, SIZE_MAX), height.clamp(1, SIZE_MAX));
        if (width, height) == (self.width, self.height) {
            return;
        }
        self.current();
        let mut at = self.top + self.row;
        while self.rows.len() > at + 1 && self.rows.back().is_some_and(|it| it.trimmed().is_empty())
        {
            self.rows.pop_back();
        }
        if width != self.width {
            at = self.break_anew(width, at);
        }
        (self.width, self.height) = (width, height);
        self.top = self.rows.len().saturating_sub(height);
        // The cursor may be far above the last row.
        self.row = at.saturating_sub(self.top);
        self.forget();
        self.saved.0 = self.saved.0.min(height - 1);
        self.saved.1 = self.saved.1.min(width - 1);
    }

    /// Breaks all lines at another width; the new place of the row `at` of the cursor, whose column
    /// is set.
    fn break_anew(&mut self, width: usize, at: usize) -> usize {
        let old = std::mem::take(&mut self.rows);
        let (count, mut line, mut offset, mut found) = (old.len(), Vec::new(), None, 0);
        for (number, row) in old.into_iter().enumerate() {
            if number == at {
                offset = Some(line.len() + self.column);
            }
            let goes_on = row.continues && number + 1 < count;
            line.extend_from_slice(if goes_on { &row.cells } else { row.trimmed() });
            if goes_on {
                continue;
            }
            let first = self.rows.len();
            broken(&mut line, width, &mut self.rows);
            let Some(mut left) = offset.take() else { continue };
            found = first;
            while found + 1 < self.rows.len() && left >= self.rows[found].cells.len() {
                left -= self.rows[found].cells.len();
                found += 1;
            }
            self.column = left.min(width);
        }
        found
    }

    fn sequence(&mut self, params: &Params, action: char) {
        let mut numbers = params.iter().map(|it| it.first().copied().unwrap_or(0));
        let first = numbers.next().unwrap_or(0);
        let second = numbers.next().unwrap_or(0);
        let count = usize::from(first).max(1);
        let column = self.column.min(self.width - 1);
        match action {
            'A' => self.go(self.row.saturating_sub(count), column),
            'B' | 'e' => self.go(self.row + count, column),
            'C' | 'a' => self.go(self.row, column + count),
            'D' => self.go(self.row, column.saturating_sub(count)),
            'E' => self.go(self.row + count, 0),
            'F' => self.go(self.row.saturating_sub(count), 0),
            'G' | '`' => self.go(self.row, count - 1),
            'd' => self.go(count - 1, column),
            'H' | 'f' => self.go(count - 1, usize::from(second).max(1) - 1),
            'J' => self.erase_in_screen(first),
            'K' => self.erase_in_line(first),
            '@' => self.shift(count, true),
            'P' => self.shift(count, false),
            'X' => self.current().blank(column, column.saturating_add(count)),
            'L' => (0..count.min(self.height)).for_each(|_| self.insert_row(self.row)),
            'M' => {
                for _ in 0..count.min(self.height) {
                    self.rows.remove(self.top + self.row);
                }
            }
            'S' => (0..count.min(self.height)).for_each(|_| self.scroll()),
            'T' => (0..count.min(self.height)).for_each(|_| self.insert_row(0)),
            'm' => self.style.apply(params.iter()),
            's' => self.save(),
            'u' => self.restore(),
            _ => {}
        }
    }

    fn save(&mut self) {
        self.saved = (self.row, self.column.min(self.width - 1), self.style);
    }

    fn restore(&mut self) {
        let (row, column, style) = self.saved;
        self.go(row, column);
        self.style = style;
    }
}

/// Breaks a line into rows.
fn broken(line: &mut Vec<Cell>, width: usize, rows: &mut VecDeque<Row>) {
    let mut row = Row::default();
    let mut cells = line.drain(..).peekable();
    while let Some(mut cell) = cells.next() {
        let is_wide = cells.peek().is_some_and(|next| next.character == BEHIND);
        let needs = if is_wide { 2 } else { 1 };
        if is_wide && width < 2 {
            cell.character = '?';
            cells.next();
        } else if row.cells.len() + needs > width {
            row.continues = true;
            rows.push_back(std::mem::take(&mut row));
        }
        if is_wide && width < 2 && row.cells.len() == width {
            row.continues = true;
            rows.push_back(std::mem::take(&mut row));
        }
        row.cells.push(cell);
        if is_wide && width >= 2 {
            row.cells.extend(cells.next());
        }
    }
    rows.push_back(row);
}

impl Perform for Screen {
    fn print(&mut self, character: char) {
        self.put(character);
    }

    fn execute(&mut self, byte: u8) {
        let column = self.column.min(self.width - 1);
        match byte {
            b'\n' | 0x0b | 0x0c => self.line_end(),
            b'\r' => self.column = 0,
            b'\t' => self.column = ((column / 8 + 1) * 8).min(self.width - 1),
            0x08 => self.column = column.saturating_sub(1),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, marks: &[u8], is_cut: bool, action: char) {
        match (marks, action) {
            _ if is_cut => {}
            ([], _) => self.sequence(params, action),
            // Another screen, and back: an empty one.
            ([b'?'], 'h' | 'l') => {
                let is_other = |number: &[u16]| matches!(number.first(), Some(47 | 1047 | 1049));
                if params.iter().any(is_other) {
                    self.erase_in_screen(2);
                    self.go(0, 0);
                }
            }
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, marks: &[u8], _is_cut: bool, byte: u8) {
        match (marks, byte) {
            ([], b'7') => self.save(),
            ([], b'8') => self.restore(),
            ([], b'D') => self.row_down(),
            ([], b'E') => self.line_end(),
            ([], b'M') => self.row_up(),
            ([], b'c') => {
                self.erase_in_screen(2);
                self.go(0, 0);
                self.style = Style::default();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vte::Parser;

    fn shown(screen: &Screen) -> Vec<String> {
        let text = |y| {
            let cells = screen.line(y, 0).iter();
            let line: String =
                cells.map(|cell| cell.character).filter(|it| *it != BEHIND).collect();
            line.trim_end().to_owned()
        };
        (0..screen.height).map(text).collect()
    }

    fn screen_of(width: usize, height: usize, bytes: &[u8]) -> Screen {
        let mut screen = Screen::new(width, height, 100);
        Parser::<64>::new_with_size().advance(&mut screen, bytes);
        screen
    }

    fn check(bytes: &[u8], expected: [&str; 3]) {
        assert_eq!(
            shown(&screen_of(8, 3, bytes)),
            expected,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }

    #[test]
    fn lines_wrap_and_leave_at_the_top() {
        check(b"one\ntwo", ["one", "two", ""]);
        check(b"0123456789", ["01234567", "89", ""]);
        check(b"01234567\nx", ["01234567", "x", ""]);
        check(b"a\nb\nc\nd", ["b", "c", "d"]);
        check("1234567你".as_bytes(), ["1234567", "你", ""]);
        check("e\u{301}\u{202e}x".as_bytes(), ["ex", "", ""]);
    }

    #[test]
    fn a_progress_bar_and_erasing_work() {
        check(b"10 %\r20 %", ["20 %", "", ""]);
        check(b"abcdef\r\x1b[Kx\ty", ["x      y", "", ""]);
        check(b"a\nb\x1b[Ac\x1b[2;5Hd\x1b[1J", ["", "", ""]);
        check(b"abc\ndef\nghi\x1b[2;2H\x1b[J", ["abc", "d", ""]);
        check(b"abcdef\x1b[3G\x1b[2P\x1b[@", ["ab ef", "", ""]);
        check(b"a\nb\nc\x1b[1;1H\x1b[L\x1b[2;1H\x1b[M", ["", "b", ""]);
        check(b"abc\x1b[?1049hx", ["x", "", ""]);
        check(b"\x1b]0;title\x07x\x1bPq#1\x1b\\y\x1b[?1000hz", ["xyz", "", ""]);
        check("你好\x1b[2Gx".as_bytes(), [" x好", "", ""]);
    }

    #[test]
    fn lines_are_broken_anew_where_the_width_changes() {
        let mut screen = screen_of(8, 3, b"0123456789abcdef\nend");
        assert_eq!(shown(&screen), ["01234567", "89abcdef", "end"]);
        screen.resize(16, 3);
        assert_eq!(shown(&screen), ["0123456789abcdef", "end", ""]);
        assert_eq!(screen.cursor(), (3, 1));
        screen.resize(5, 3);
        assert_eq!(shown(&screen), ["abcde", "f", "end"]);
        assert_eq!((screen.past(), screen.cursor()), (2, (3, 2)));
        screen.resize(5, 8);
        assert_eq!(shown(&screen)[..5], ["01234", "56789", "abcde", "f", "end"]);
        assert_eq!((screen.past(), screen.cursor()), (0, (3, 4)));
        screen.resize(1, 2);
        let mut wide = screen_of(4, 2, "你好".as_bytes());
        wide.resize(3, 2);
        assert_eq!(shown(&wide), ["你", "好"]);
        wide.resize(1, 2);
        assert_eq!(shown(&wide), ["?", "?"]);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut screen = Screen::new(10, 4, 50);
        let mut parser = Parser::<64>::new_with_size();
        (0..1000).for_each(|_| parser.advance(&mut screen, b"line\n\x1b[9S"));
        assert_eq!((screen.past(), screen.rows.len() <= 54), (50, true));
        parser.advance(&mut screen, b"\x1b[3J");
        assert_eq!(screen.past(), 0);
    }

    #[test]
    fn wide_rows_of_the_past_are_fewer() {
        let mut screen = Screen::new(160, 4, 50);
        let mut parser = Parser::<64>::new_with_size();
        (0..1000).for_each(|_| parser.advance(&mut screen, b"line\n"));
        assert_eq!(screen.past(), 25);
        screen.resize(800, 4);
        assert_eq!(screen.past(), 5);
    }

    /// Sequences that change much, to be mixed with random bytes.
    const PIECES: &[&str] = &[
        "\x1b[",
        "你",
        "e\u{301}",
        "\u{1f468}\u{200d}\u{1f469}",
        "\n",
        "\r",
        "\t",
        "\x08",
        "\x1b[K",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[J",
        "\x1b[1J",
        "\x1b[2J",
        "\x1b[3J",
        "\x1b[999;999H",
        "\x1b[H",
        "\x1bM",
        "\x1bD",
        "\x1b[5@",
        "\x1b[65535P",
        "\x1b[3X",
        "\x1b[65535X",
        "\x1b[9L",
        "\x1b[9M",
        "\x1b[65535S",
        "\x1b[65535T",
        "\x1b7",
        "\x1b8",
        "\x1b[38;5;",
        "\x1b[38;2;1;2;3m",
        "\x1b[65535A",
        "\x1b[65535B",
        "\x1b[65535C",
        "\x1b[65535D",
        "\x1b[?1049h",
        "\x1bc",
        "\x1b]0;",
        "\x07",
        "\x1bP",
        "abcdefgh",
        "\x1b[65535d",
        "\x1b[65535G",
        "\u{9b}",
        "\x1b[4:3m",
        "\x1b[38:2::1:2:3m",
    ];

    #[test]
    fn no_bytes_and_no_sizes_break_it() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |count: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % count).unwrap()
        };
        for _ in 0..3000 {
            let past_max = below(6);
            let mut screen = Screen::new(below(9), below(6), past_max);
            let mut parser = Parser::<64>::new_with_size();
            for _ in 0..100 {
                match below(10) {
                    0 => screen.resize(below(10), below(7)),
                    1 => {
                        let bytes: Vec<u8> =
                            (0..8).map(|_| u8::try_from(below(256)).unwrap()).collect();
                        parser.advance(&mut screen, &bytes);
                    }
                    2 => {
                        let last = char::from(u8::try_from(64 + below(62)).unwrap());
                        let text = format!("\x1b[{};{}{last}", below(9), below(9));
                        parser.advance(&mut screen, text.as_bytes());
                    }
                    _ => {
                        let piece = PIECES[below(PIECES.len() as u64)];
                        parser.advance(&mut screen, piece.as_bytes());
                    }
                }
                assert!(screen.top <= past_max && screen.row < screen.height);
                assert!(screen.rows.len() <= screen.top + screen.height);
                for row in &screen.rows {
                    assert!(row.cells.len() <= screen.width);
                    for (x, cell) in row.cells.iter().enumerate() {
                        assert!(cell.character == BEHIND || !cell.character.is_control());
                        let is_wide = cell.character.width() == Some(2);
                        let next = row.cells.get(x + 1).map(|it| it.character);
                        assert_eq!(is_wide, next == Some(BEHIND) && cell.character != BEHIND);
                    }
                }
            }
        }
    }
}
