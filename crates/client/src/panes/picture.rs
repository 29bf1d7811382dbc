//! The picture of all panes.

use super::Panes;
use super::cell::{BEHIND, BOLD, Cell, Color, DIM, Frame, REVERSE, Style};
use super::commands::{Mode, Target};
use super::layout::Place;
use nix::sys::signal::Signal;
use tutti_types::TaskStatus;

/// Commands, with what they do. `LEAVE` depends on the verb.
const HELP: &[(&str, &str)] = &[
    ("arrows", "focus on the pane in this direction"),
    ("0-9", "focus on a rank; Enter ends a number of several digits"),
    ("Tab o, O", "focus on the next rank, or the one before"),
    ("n, p", "next page of panes, or the one before"),
    ("z", "the focused pane alone, or all again"),
    ("f", "keys go to the focused rank"),
    ("a", "keys go to all ranks"),
    ("t", "lines RANK: TEXT go to the rank that they name"),
    ("i", "edit a line, and send it by Enter"),
    ("[, PgUp", "scroll back; arrows, PgUp, PgDn, Home, End, then q"),
    ("e", "show what you type in panes, or not"),
    ("^L", "paint the screen anew"),
    ("^T", "a ^T for the rank"),
];

impl Panes {
    pub(super) fn frame(&self) -> Frame {
        let mut frame = Frame::new(self.width, self.height);
        let height = self.height.saturating_sub(1);
        let (first, count) = self.page();
        let places = self.layout.places(count, self.width, height);
        if self.keys.mode == Mode::Help {
            self.draw_help(&mut frame);
        } else {
            for (number, place) in places.iter().enumerate() {
                self.draw_pane(first + number, *place, &mut frame);
            }
        }
        self.draw_bar(&mut frame);
        frame
    }

    fn draw_pane(&self, number: usize, place: Place, frame: &mut Frame) {
        let Some(pane) = self.panes.get(number) else { return };
        self.draw_title(number, place, frame);
        for y in 1..place.height {
            let cells = pane.screen.line(y - 1, pane.back).iter().take(place.width);
            for (x, cell) in cells.enumerate() {
                // Half of a wide character would tear the line.
                let is_half = cell.character != BEHIND
                    && x + 1 == place.width
                    && unicode_width::UnicodeWidthChar::width(cell.character) == Some(2);
                let cell = if is_half { Cell::BLANK } else { *cell };
                frame.set(place.x + x, place.y + y, cell);
            }
        }
        if place.x > 0 {
            let line = if self.has_lines { '│' } else { '|' };
            for y in 0..place.height {
                frame.set(place.x - 1, place.y + y, Cell::new(line, Style::of(DIM)));
            }
        }
        let takes_keys = matches!(self.keys.mode, Mode::Keys) && self.over.is_none();
        if number == self.focus && takes_keys && pane.back == 0 {
            let (x, y) = pane.screen.cursor();
            if x < place.width && y + 1 < place.height {
                frame.cursor = Some((place.x + x, place.y + 1 + y));
            }
        }
    }

    fn draw_title(&self, number: usize, place: Place, frame: &mut Frame) {
        let Some(pane) = self.panes.get(number) else { return };
        let is_focused = number == self.focus;
        let mut words = vec![format!("{}", number)];
        words.extend(self.node_of(number).map(str::to_owned));
        words.push(pane.status.map_or_else(|| "running".into(), word));
        if pane.back > 0 {
            words.push(format!("-{} rows", pane.back));
        }
        let text = format!(" {} ", words.join("  "));
        let line = if self.has_lines { '─' } else { '-' };
        let (title, rest) = match is_focused {
            true => (Style::of(BOLD | REVERSE), Cell::new(' ', Style::of(BOLD | REVERSE))),
            false => (Style::of(BOLD), Cell::new(line, Style::of(DIM))),
        };
        for x in 0..place.width {
            frame.set(place.x + x, place.y, rest);
        }
        let is_bad = pane.status.is_some_and(|status| status.exit_code() != 0);
        let front = if is_bad { Color::Indexed(1) } else { Color::Default };
        let width = text.chars().count().min(place.width);
        frame.text((place.x, place.y), width, &text, Style { front, ..title });
    }

    /// The node of a rank, where it is known.
    fn node_of(&self, number: usize) -> Option<&str> {
        let mut before = 0;
        let share = self.nodes.iter().find(|share| {
            before += usize::try_from(share.tasks).unwrap_or(usize::MAX);
            number < before
        });
        share.map(|share| share.node.as_str())
    }

    fn draw_help(&self, frame: &mut Frame) {
        let leave = match self.options.is_viewer {
            true => "detach; the job goes on",
            false => "end the job, as ^C does: SIGINT, then SIGTERM, then SIGKILL",
        };
        let title = "Keys go to ranks. ^T leads commands:";
        frame.text((0, 0), self.width, title, Style::of(BOLD));
        let all = HELP.iter().copied().chain([("d, q", leave)]);
        for (y, (keys, effect)) in all.enumerate() {
            let text = format!("  {keys:<10} {effect}");
            frame.text((0, y + 1), self.width, &text, Style::default());
        }
        let of_signals = match self.options.is_viewer {
            true => "^C and ^\\ detach, ^Z stops the viewer.",
            false => "^C interrupts the job, ^\\ sends SIGQUIT, ^Z stops the view, ^D ends input.",
        };
        frame.text((0, HELP.len() + 3), self.width, of_signals, Style::default());
    }

    fn draw_bar(&self, frame: &mut Frame) {
        let Some(y) = self.height.checked_sub(1) else { return };
        let (text, types) = self.bar();
        let style = Style::of(REVERSE);
        // Of a long line that is typed, the end is seen.
        let count = text.chars().count();
        let skipped = if types { (count + 1).saturating_sub(self.width) } else { 0 };
        let seen: String = text.chars().skip(skipped).collect();
        frame.text((0, y), self.width, &seen, style);
        if types {
            frame.cursor = Some(((count - skipped).min(self.width.saturating_sub(1)), y));
        }
        let right = self.right_of_bar();
        let width = right.chars().count();
        if !types && count + width + 1 < self.width {
            frame.text((self.width - width, y), width, &right, style);
        }
    }

    fn right_of_bar(&self) -> String {
        let page = match self.layout.pages {
            1 => String::new(),
            pages => format!("page {}/{pages}  ", self.focus / self.layout.on_page + 1),
        };
        format!("{page}^T ? help ")
    }

    /// The last line, and whether something is typed there.
    fn bar(&self) -> (String, bool) {
        let to = match self.keys.target {
            Target::All => "all ranks".to_owned(),
            Target::Focused | Target::Tagged => format!("rank {}", self.focus),
        };
        let text = match &self.keys.mode {
            Mode::Rank(text) => return (format!(" rank: {text}"), true),
            Mode::Line(text) if self.keys.target == Target::Tagged => match &self.note {
                Some(note) if text.is_empty() => return (format!(" {note}"), false),
                _ => return (format!(" RANK: TEXT> {text}"), true),
            },
            Mode::Line(text) => return (format!(" to {to}> {text}"), true),
            Mode::Prefix => {
                let leave = if self.options.is_viewer { "detach" } else { "end" };
                format!(
                    " ^T: arrows 0-9 focus, f/a/t input, i line, z zoom, n/p page, [ back, d {leave}"
                )
            }
            Mode::Help => " any key goes back".into(),
            Mode::Past => {
                let pane = &self.panes[self.focus];
                let (back, past) = (pane.back, pane.screen.past());
                format!(" rank {}: {back} of {past} rows back; arrows, PgUp, PgDn, q", self.focus)
            }
            Mode::Keys => match (&self.note, &self.over) {
                (Some(note), _) => format!(" {note}"),
                (None, Some((_, over))) => format!(" {over}; press a key"),
                (None, None) if !self.has_readers() => {
                    format!(" {}  no rank reads input", self.options.title)
                }
                (None, None) => format!(" {}  keys go to {to}", self.options.title),
            },
        };
        (text, false)
    }

    fn has_readers(&self) -> bool {
        (0..self.panes.len()).any(|rank| self.reads(rank))
    }
}

/// How a rank ended, in a word or two.
fn word(status: TaskStatus) -> String {
    match status {
        TaskStatus::Exited(code) => format!("exit {code}"),
        TaskStatus::Signaled(number) => Signal::try_from(i32::from(number))
            .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned()),
        TaskStatus::Aborted(code) => format!("aborted, exit {code}"),
        TaskStatus::NotFound => "program not found".into(),
        TaskStatus::NotExecutable => "program not started".into(),
        TaskStatus::OutOfMemory => "out of memory".into(),
        TaskStatus::Lost => "lost".into(),
        TaskStatus::Unknown => "ended".into(),
        TaskStatus::Saved => "saved".into(),
        TaskStatus::NotRestored => "not restored".into(),
        TaskStatus::Damaged => "not saved".into(),
        TaskStatus::Unfinalized(code) => format!("exit {code}, no MPI_Finalize"),
    }
}
