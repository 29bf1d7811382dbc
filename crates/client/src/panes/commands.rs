//! What the user types while panes are shown: keys for ranks, and commands behind a prefix key.

use super::layout::Step;
use crate::keys::{Press, first_press};

/// Ctrl-T: the key that leads commands.
pub(super) const PREFIX: u8 = 0x14;

/// Ctrl-D: the end of input.
const END_OF_INPUT: u8 = 0x04;

/// A longer line is not taken.
const LINE_CHARACTERS_MAX: usize = 4096;

/// What gets the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    /// The rank of the focused pane.
    #[default]
    Focused,
    /// All ranks.
    All,
    /// The rank that a typed line begins with.
    Tagged,
}

/// What keys mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// These bytes are for the target.
    Type(Vec<u8>),
    /// This line is for the target, or the rank that it names if that is [`Target::Tagged`].
    Line(String),
    /// The input of the target ends.
    EndInput,
    /// Focus on a pane beside this one.
    Go(Step),
    /// Focus on the next pane, or the one before.
    Next(bool),
    /// Focus on this rank.
    Rank(u32),
    /// Another page: the next one or the one before.
    Page(bool),
    /// Keys are for these ranks.
    To(Target),
    /// The focused pane alone, or all again.
    Zoom,
    /// Whether keys are shown in panes.
    Echo,
    /// The past of the focused pane, by so many rows, pages or all.
    Scroll(Scroll),
    /// Paint all anew.
    Redraw,
    /// End the panes: detach, or what Ctrl-C does.
    Leave,
    /// No such command.
    Unknown,
}

/// A movement in the past of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scroll {
    /// So many rows back, or forth if it is negative.
    Rows(isize),
    /// So many screens.
    Pages(isize),
    /// To the first row.
    First,
    /// To the present.
    Last,
}

/// What is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys for ranks.
    #[default]
    Keys,
    /// The prefix was typed.
    Prefix,
    /// The number of a rank.
    Rank(String),
    /// A line for ranks.
    Line(String),
    /// The past of a pane is looked at.
    Past,
    /// The list of commands is shown.
    Help,
}

/// The keys so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) mode: Mode,
    pub(super) target: Target,
    /// How many ranks there are.
    pub(super) ranks: u32,
}

impl Keys {
    /// Whether the rest of a key that was torn is to be waited for.
    pub(super) fn wants_whole(&self, typed: &[u8]) -> bool {
        (self.mode != Mode::Keys || typed.contains(&PREFIX)) && crate::keys::is_torn(typed)
    }

    /// What these bytes mean, in their order.
    pub(super) fn take(&mut self, mut typed: &[u8]) -> Vec<Command> {
        let mut found = Vec::new();
        while let Some(&first) = typed.first() {
            if first == PREFIX && self.mode != Mode::Prefix {
                self.mode = Mode::Prefix;
                typed = &typed[1..];
                continue;
            }
            if self.mode == Mode::Keys {
                typed = self.take_keys(typed, &mut found);
                continue;
            }
            if self.mode == Mode::Prefix && first == PREFIX {
                self.settle();
                found.push(Command::Type(vec![PREFIX]));
                typed = &typed[1..];
                continue;
            }
            let (press, rest) = first_press(typed);
            typed = rest;
            match press {
                Some(press) => found.extend(self.press(press)),
                None if self.mode == Mode::Prefix => {
                    self.settle();
                    found.push(if first == 0x0c { Command::Redraw } else { Command::Unknown });
                }
                None => {}
            }
        }
        found
    }

    /// What comes before the next command is for ranks.
    fn take_keys<'a>(&mut self, typed: &'a [u8], found: &mut Vec<Command>) -> &'a [u8] {
        let is_own = |byte: &u8| matches!(*byte, PREFIX | END_OF_INPUT);
        let end = typed.iter().position(is_own).unwrap_or(typed.len());
        let (keys, rest) = typed.split_at(end);
        if !keys.is_empty() {
            found.push(Command::Type(keys.to_vec()));
        }
        match rest.split_first() {
            Some((&END_OF_INPUT, rest)) => {
                found.push(Command::EndInput);
                rest
            }
            _ => rest,
        }
    }

    /// The mode after a command.
    pub(super) fn settle(&mut self) {
        self.mode = match self.target {
            Target::Tagged => Mode::Line(String::new()),
            Target::Focused | Target::All => Mode::Keys,
        };
    }

    fn press(&mut self, press: Press) -> Option<Command> {
        match std::mem::take(&mut self.mode) {
            Mode::Keys | Mode::Prefix => self.command(press),
            Mode::Help => {
                self.settle();
                None
            }
            Mode::Past => self.in_past(press),
            Mode::Rank(text) => self.in_rank(text, press),
            Mode::Line(text) => self.in_line(text, press),
        }
    }

    fn command(&mut self, press: Press) -> Option<Command> {
        self.settle();
        Some(match press {
            Press::Left => Command::Go(Step::Left),
            Press::Right => Command::Go(Step::Right),
            Press::Up => Command::Go(Step::Up),
            Press::Down => Command::Go(Step::Down),
            Press::Tab | Press::Char('o') => Command::Next(true),
            Press::Char('O') => Command::Next(false),
            Press::Char(digit @ '0'..='9') if self.ranks <= 10 => {
                Command::Rank(digit.to_digit(10).unwrap_or(0))
            }
            Press::Char(digit @ '0'..='9') => {
                self.mode = Mode::Rank(digit.into());
                return None;
            }
            Press::Char('n') => Command::Page(true),
            Press::Char('p') => Command::Page(false),
            Press::Char('f') => self.aim(Target::Focused),
            Press::Char('a') => self.aim(Target::All),
            Press::Char('t') => self.aim(Target::Tagged),
            Press::Char('i') => {
                self.mode = Mode::Line(String::new());
                return None;
            }
            Press::Char('z') => Command::Zoom,
            Press::Char('e') => Command::Echo,
            Press::Char('[') => {
                self.mode = Mode::Past;
                Command::Scroll(Scroll::Rows(0))
            }
            Press::PageUp => {
                self.mode = Mode::Past;
                Command::Scroll(Scroll::Pages(1))
            }
            Press::Char('d' | 'q') => Command::Leave,
            Press::Char('?' | 'h') => {
                self.mode = Mode::Help;
                return None;
            }
            Press::Escape | Press::Enter => return None,
            _ => Command::Unknown,
        })
    }

    fn aim(&mut self, target: Target) -> Command {
        self.target = target;
        self.settle();
        Command::To(target)
    }

    fn in_past(&mut self, press: Press) -> Option<Command> {
        self.mode = Mode::Past;
        Some(Command::Scroll(match press {
            Press::Up | Press::Char('k') => Scroll::Rows(1),
            Press::Down | Press::Char('j') => Scroll::Rows(-1),
            Press::PageUp | Press::Char('b') => Scroll::Pages(1),
            Press::PageDown | Press::Char(' ') => Scroll::Pages(-1),
            Press::Home | Press::Char('g') => Scroll::First,
            Press::End | Press::Char('G') => Scroll::Last,
            Press::Escape | Press::Enter | Press::Char('q') => {
                self.settle();
                Scroll::Last
            }
            _ => return None,
        }))
    }

    fn in_rank(&mut self, mut text: String, press: Press) -> Option<Command> {
        match press {
            Press::Char(digit @ '0'..='9') if text.len() < 9 => text.push(digit),
            Press::Backspace => drop(text.pop()),
            Press::Enter => {
                self.settle();
                return text.parse().ok().map(Command::Rank);
            }
            Press::Escape => {
                self.settle();
                return None;
            }
            _ => {}
        }
        self.mode = Mode::Rank(text);
        None
    }

    fn in_line(&mut self, mut text: String, press: Press) -> Option<Command> {
        match press {
            Press::Char(character) if text.chars().count() < LINE_CHARACTERS_MAX => {
                text.push(character);
            }
            Press::Tab => text.push('\t'),
            Press::Backspace => drop(text.pop()),
            Press::Enter => {
                self.settle();
                return Some(Command::Line(text));
            }
            Press::Escape => {
                self.settle();
                return None;
            }
            _ => {}
        }
        self.mode = Mode::Line(text);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &mut Keys, text: &str) -> Vec<Command> {
        keys.take(text.as_bytes())
    }

    fn bytes(text: &str) -> Command {
        Command::Type(text.as_bytes().to_vec())
    }

    #[test]
    fn keys_are_for_ranks_and_commands_stand_behind_the_prefix() {
        let mut keys = Keys { ranks: 4, ..Keys::default() };
        assert_eq!(typed(&mut keys, "ls\n\x1b[A"), [bytes("ls\n\x1b[A")]);
        assert_eq!(typed(&mut keys, "a\x143b"), [bytes("a"), Command::Rank(3), bytes("b")]);
        assert_eq!(typed(&mut keys, "\x14\x14x"), [bytes("\x14"), bytes("x")]);
        assert_eq!(typed(&mut keys, "\x14"), []);
        assert!(keys.wants_whole(b"\x1b[") && !keys.wants_whole(b"\x1b[A"));
        assert_eq!(typed(&mut keys, "\x1b[C"), [Command::Go(Step::Right)]);
        assert!(!keys.wants_whole(b"\x1b["));
        assert_eq!(typed(&mut keys, "x\x04y"), [bytes("x"), Command::EndInput, bytes("y")]);
        assert_eq!(typed(&mut keys, "\x14\x0c\x14%\x14\x1b"), [Command::Redraw, Command::Unknown]);
        assert_eq!(typed(&mut keys, "\x14dz"), [Command::Leave, bytes("z")]);
    }

    #[test]
    fn lines_are_edited_and_sent_by_enter() {
        let mut keys = Keys { ranks: 4, ..Keys::default() };
        let line = |text: &str| Command::Line(text.into());
        assert_eq!(typed(&mut keys, "\x14ihel\x7f\x7fi\nx"), [line("hi"), bytes("x")]);
        assert_eq!(
            typed(&mut keys, "\x14t1: a\n2: b"),
            [Command::To(Target::Tagged), line("1: a")]
        );
        assert_eq!(keys.mode, Mode::Line("2: b".into()));
        // A command leaves the line.
        assert_eq!(typed(&mut keys, "\x14z"), [Command::Zoom]);
        assert_eq!(keys.mode, Mode::Line(String::new()));
        assert_eq!(typed(&mut keys, "\x14fx"), [Command::To(Target::Focused), bytes("x")]);
    }

    #[test]
    fn ranks_of_several_digits_are_ended_by_enter() {
        let mut keys = Keys { ranks: 12, ..Keys::default() };
        assert_eq!(typed(&mut keys, "\x1411\nx"), [Command::Rank(11), bytes("x")]);
        assert_eq!(typed(&mut keys, "\x1411\x1bx"), [bytes("x")]);
    }

    #[test]
    fn the_past_is_left_by_q_and_help_by_any_key() {
        let mut keys = Keys { ranks: 4, ..Keys::default() };
        let scroll = Command::Scroll;
        assert_eq!(
            typed(&mut keys, "\x14\x1b[5~k\x1b[6~qx"),
            [
                scroll(Scroll::Pages(1)),
                scroll(Scroll::Rows(1)),
                scroll(Scroll::Pages(-1)),
                scroll(Scroll::Last),
                bytes("x")
            ]
        );
        assert_eq!(typed(&mut keys, "\x14?"), []);
        assert_eq!(keys.mode, Mode::Help);
        assert_eq!(typed(&mut keys, "qx"), [bytes("x")]);
    }
}
