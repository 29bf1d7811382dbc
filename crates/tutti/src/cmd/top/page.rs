//! One job alone: what `tutti show` prints of it, and its output as it comes.

use super::beside::Wake;
use super::screen::{Line, Style};
use crate::cmd::logs::{Shown, open_all};
use crate::cmd::show::{ask_to_show, marks_of, text_to_show};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use tutti_client::keys::Press;
use tutti_node::output_files::{Stream, files_of};
use tutti_node::say::is_order;
use tutti_types::JobId;
use tutti_wire::show::ShowReport;

/// Lines of output that are kept, and characters of each.
const LINES_MAX: usize = 1000;
const CHARS_MAX: usize = 1000;

/// Pieces of output that are read in a look: a job that writes more is read on in the next.
const PIECES_MAX: usize = 16;

/// Lines of a page of output.
const PAGE: usize = 10;

/// What is asked of a page's thread.
struct Ask {
    /// Counts how often the output was begun anew.
    turn: u64,
    stream: Stream,
    rank: Option<u32>,
}

/// What the thread has found.
struct Seen {
    turn: u64,
    /// What is known of the job; `None` if nothing new is.
    text: Option<Vec<String>>,
    /// How many ranks have output of their own.
    ranks: u32,
    /// Why there is no output.
    lacks: Option<String>,
    pieces: Vec<Vec<u8>>,
}

/// The thread of a page: files and answers of the instance may take long, and keys must not wait.
struct Reader {
    job: JobId,
    turn: u64,
    shown: Option<Shown>,
}

impl Reader {
    fn look(&mut self, Ask { turn, stream, rank }: Ask) -> Seen {
        if self.turn != turn {
            (self.turn, self.shown) = (turn, None);
        }
        let mut seen = Seen { turn, text: None, ranks: 0, lacks: None, pieces: Vec::new() };
        let report = match ask_to_show(self.job, false) {
            Ok(report) => report,
            Err(error) => {
                seen.lacks = Some(format!("{error:#}"));
                return seen;
            }
        };
        seen.text = Some(text_to_show(&report, &[]).lines().map(str::to_owned).collect());
        seen.ranks = if has_files_by_rank(&report, stream) { report.job.tasks } else { 0 };
        if self.shown.is_none() {
            match open_all(&report, stream, rank, Some(LINES_MAX as u64)) {
                Ok(shown) => self.shown = Some(shown),
                Err(error) => seen.lacks = Some(format!("{error:#}")),
            }
        }
        let Some(shown) = &mut self.shown else { return seen };
        if report.ended_ms.is_some() {
            shown.hurry();
        }
        for _ in 0..PIECES_MAX {
            match shown.next_piece() {
                Ok(Some(piece)) => seen.pieces.push(piece),
                Ok(None) => break,
                Err(error) => {
                    seen.lacks = Some(format!("{error:#}"));
                    break;
                }
            }
        }
        if let (Some(why_not), true) = (shown.missing(), report.ended_ms.is_some()) {
            seen.lacks = Some(why_not);
        }
        seen
    }
}

/// See the module.
pub(super) struct Page {
    pub(super) job: JobId,
    asks: Sender<Ask>,
    seen: Receiver<Seen>,
    /// An answer of the thread is under way.
    is_asked: bool,
    turn: u64,
    /// What is known of the job.
    text: Vec<String>,
    stream: Stream,
    /// Only the output of this rank.
    rank: Option<u32>,
    ranks: u32,
    /// Why there is no output.
    lacks: Option<String>,
    output: VecDeque<String>,
    /// The last line has no end yet.
    is_open: bool,
    /// The last line ended in a carriage return.
    is_returned: bool,
    /// How many lines are below the last one that is shown.
    below: usize,
}

impl Page {
    /// That of a job, with a thread that looks at once.
    pub(super) fn new(job: JobId, wake: Wake) -> Self {
        let ((asks, asked), (found, seen)) = (channel::<Ask>(), channel());
        std::thread::spawn(move || {
            let mut reader = Reader { job, turn: 0, shown: None };
            while let Ok(ask) = asked.recv() {
                // The page may be gone by now.
                if found.send(reader.look(ask)).is_err() {
                    return;
                }
                wake.up();
            }
        });
        let mut page = Self::blank(job, asks, seen);
        page.look();
        page
    }

    fn blank(job: JobId, asks: Sender<Ask>, seen: Receiver<Seen>) -> Self {
        Self {
            job,
            asks,
            seen,
            is_asked: false,
            turn: 0,
            text: vec![format!("job {job}")],
            stream: Stream::Output,
            rank: None,
            ranks: 0,
            lacks: None,
            output: VecDeque::new(),
            is_open: false,
            is_returned: false,
            below: 0,
        }
    }

    /// Has the thread look again, unless it still does.
    pub(super) fn look(&mut self) {
        if !self.is_asked {
            let ask = Ask { turn: self.turn, stream: self.stream, rank: self.rank };
            self.is_asked = self.asks.send(ask).is_ok();
        }
    }

    /// Takes in what the thread has found.
    pub(super) fn receive(&mut self) {
        while let Ok(seen) = self.seen.try_recv() {
            self.is_asked = false;
            if seen.turn != self.turn {
                self.look();
                continue;
            }
            if let Some(text) = seen.text {
                (self.text, self.ranks) = (text, seen.ranks);
            }
            self.lacks = seen.lacks;
            seen.pieces.iter().for_each(|piece| self.take_in(piece));
        }
    }

    fn take_in(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(part);
            if !self.is_open {
                self.output.push_back(String::new());
                // What is looked at stays where it is.
                self.below += usize::from(self.below > 0);
            }
            self.is_open = !part.ends_with(b"\n");
            if let Some(line) = self.output.back_mut() {
                append(line, text.trim_end_matches('\n'), &mut self.is_returned);
                self.is_returned &= self.is_open;
            }
        }
        while self.output.len() > LINES_MAX {
            self.output.pop_front();
        }
        self.below = self.below.min(self.output.len());
    }

    /// What a key does; whether it was one of this page.
    pub(super) fn press(&mut self, press: Press) -> bool {
        match press {
            Press::Up | Press::Char('k') => self.below += 1,
            Press::Down | Press::Char('j') => self.below = self.below.saturating_sub(1),
            Press::PageUp => self.below += PAGE,
            Press::PageDown => self.below = self.below.saturating_sub(PAGE),
            Press::Home => self.below = self.output.len(),
            Press::End => self.below = 0,
            Press::Char('e') => {
                self.stream = match self.stream {
                    Stream::Output => Stream::Error,
                    Stream::Error => Stream::Output,
                };
                self.begin_again();
            }
            Press::Char('n') if self.ranks > 0 => {
                self.rank = match self.rank {
                    None => Some(0),
                    Some(rank) => Some(rank + 1).filter(|rank| *rank < self.ranks),
                };
                self.begin_again();
            }
            Press::Char('p') if self.ranks > 0 => {
                self.rank = match self.rank {
                    None => Some(self.ranks - 1),
                    Some(rank) => rank.checked_sub(1),
                };
                self.begin_again();
            }
            _ => return false,
        }
        self.below = self.below.min(self.output.len().saturating_sub(1));
        true
    }

    fn begin_again(&mut self) {
        (self.lacks, self.is_open, self.is_returned, self.below) = (None, false, false, 0);
        self.turn += 1;
        self.output.clear();
        self.look();
    }

    /// The picture, in so many lines.
    pub(super) fn lines(&self, height: usize) -> Vec<Line> {
        let mut lines: Vec<Line> =
            self.text.iter().map(|text| Line::from(text.clone()).with(marks_of(text))).collect();
        if let Some(first) = lines.first_mut() {
            first.style = Style::Title;
        }
        // Output has half of the screen at least.
        let most = (height / 2).max(height.saturating_sub(self.output.len() + 2));
        if lines.len() > most {
            lines.truncate(most.saturating_sub(1));
            lines.push(format!("  (`tutti show {}` has more)", self.job).into());
        }
        let name = match self.stream {
            Stream::Output => "output",
            Stream::Error => "errors",
        };
        let of = match self.rank {
            Some(rank) => format!("{name} of rank {rank} of {}", self.ranks),
            None => name.to_owned(),
        };
        let below = match self.below {
            0 => String::new(),
            below => format!(", {below} more below"),
        };
        lines.push(Line::default());
        lines.push(Line::new(format!("{of}{below}"), Style::Title));
        if let Some(lacks) = &self.lacks {
            lines.push(lacks.lines().next().unwrap_or_default().to_owned().into());
        }
        let room = height.saturating_sub(lines.len());
        let end = self.output.len().saturating_sub(self.below);
        let begin = end.saturating_sub(room);
        lines.extend(self.output.range(begin..end).cloned().map(Line::from));
        lines
    }
}

/// Whether each rank has a file of its own.
fn has_files_by_rank(report: &ShowReport, stream: Stream) -> bool {
    let Some(details) = report.details.as_ref().filter(|_| report.job.tasks > 1) else {
        return false;
    };
    files_of(&report.job, details, stream, Some(0))
        .is_ok_and(|files| files.iter().all(|file| file.writers.1 <= 1))
}

/// Appends text as a terminal would show it: a carriage return begins the line anew, tabs are
/// spaces, colours and other orders are left out. One at the end counts when something follows.
fn append(line: &mut String, text: &str, is_returned: &mut bool) {
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if std::mem::take(is_returned) {
            line.clear();
        }
        match character {
            '\r' => *is_returned = true,
            '\t' => line.push_str(&" ".repeat(8 - line.chars().count() % 8)),
            '\x1b' if rest.as_str().starts_with('[') => {
                let orders = rest.as_str()[1..].find(|c: char| ('\x40'..'\x7f').contains(&c));
                rest = orders.map_or("", |end| &rest.as_str()[end + 2..]).chars();
            }
            character if is_order(character) => line.push('?'),
            character => line.push(character),
        }
        if line.len() > CHARS_MAX * 4 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&str]) -> Page {
        let mut page = Page::blank(JobId(7), channel().0, channel().1);
        pieces.iter().for_each(|piece| page.take_in(piece.as_bytes()));
        page
    }

    fn output(page: &Page) -> Vec<&str> {
        page.output.iter().map(String::as_str).collect()
    }

    #[test]
    fn output_is_shown_as_a_terminal_would() {
        let page = of(&["on", "e\ntwo\r\n10 %\r20 %", "\r30 %\n", "\x1b[31mred\x1b[0m\ta\x07\n"]);
        assert_eq!(output(&page), ["one", "two", "30 %", "red     a?"]);
        assert!(!page.is_open);
        assert_eq!(output(&of(&["10 %\r", "20 %\r", "30 %\r", "\nend"])), ["30 %", "end"]);
        assert_eq!(output(&of(&["é\x1b[", "x\x1b[3"])), ["éx"]);
        let long = "x".repeat(1 << 20);
        let page = of(&[&long, &long, "\nend"]);
        assert!(page.output[0].len() < 8000 && page.output[1] == "end");
    }

    #[test]
    fn output_is_bounded_and_scrolled() {
        let mut page = of(&[]);
        for number in 0..3 * LINES_MAX {
            page.take_in(format!("line {number}\n").as_bytes());
        }
        assert_eq!((page.output.len(), output(&page)[0]), (LINES_MAX, "line 2000"));
        page.text = vec!["job 7".into(); 30];
        let shown = |page: &Page| page.lines(20).last().unwrap().text.clone();
        assert_eq!((page.lines(20).len(), shown(&page)), (20, "line 2999".to_owned()));
        assert!(page.press(Press::Up) && page.press(Press::PageUp));
        assert_eq!(shown(&page), "line 2988");
        // What comes does not move what is looked at.
        page.take_in(b"more\nand more\n");
        assert_eq!(shown(&page), "line 2988");
        page.press(Press::End);
        assert_eq!(shown(&page), "and more");
        page.press(Press::Home);
        assert!(page.lines(20).len() <= 20);
        assert!(!page.press(Press::Char('x')));
    }
}
