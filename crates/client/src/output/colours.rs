//! Colours on a terminal: when they are used, and which ones.

use anstyle::{AnsiColor, Effects, Style};
use clap::ValueEnum;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

/// When output has colours (`--color`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless the environment has it otherwise.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Nowhere.
    Never,
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// It runs, or works.
    Good,
    /// It needs a look.
    Warning,
    /// It failed, or is lost.
    Bad,
    /// It waits, or is over: no news.
    Dim,
    /// It is chosen.
    Chosen,
}

impl Paint {
    fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Dim => Style::new().effects(Effects::DIMMED),
            Self::Chosen => Style::new().effects(Effects::INVERT),
        }
    }

    /// The text in this colour.
    pub fn on(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}

/// Characters of a line that have a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The first one, from 0.
    pub from: usize,
    /// How many.
    pub count: usize,
    /// Their colour.
    pub paint: Paint,
}

/// The line with the colours of its marks, which are in order and do not overlap.
pub fn painted(text: &str, marks: &[Mark]) -> String {
    let (mut line, mut chars) = (String::with_capacity(text.len()), text.chars());
    let mut at = 0;
    for mark in marks {
        line.extend(chars.by_ref().take(mark.from.saturating_sub(at)));
        let marked: String = chars.by_ref().take(mark.count).collect();
        if !marked.is_empty() {
            line.push_str(&mark.paint.on(&marked));
        }
        at = mark.from + mark.count;
    }
    line.extend(chars);
    line
}

/// The colour of a state of a job or a node, of how a job ended, or of an exit code: the first word
/// says it.
pub fn of_state(text: &str) -> Option<Paint> {
    let end = text.find([',', ':', ' ']).unwrap_or(text.len());
    match &text[..end] {
        "running" | "up" | "alive" => Some(Paint::Good),
        "queued" | "checkpointed" | "ended" => Some(Paint::Dim),
        "suspended" | "swapped" | "preempting" | "preempted" | "resuming" | "checkpointing"
        | "ending" | "drained" | "unreachable" | "cancelled" | "abandoned" | "shut-down" => {
            Some(Paint::Warning)
        }
        "failed" | "timed-out" | "out-of-memory" | "lost" | "down" | "never-started" | "SILENT" => {
            Some(Paint::Bad)
        }
        "exit" => of_exit_code(text[end..].trim_start()),
        _ => None,
    }
}

/// The colour of an exit code.
pub fn of_exit_code(text: &str) -> Option<Paint> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse::<u32>().is_ok_and(|code| code > 0).then_some(Paint::Bad)
}

const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// Which streams have colours. None before [`choose`]: what answers to the name of another program
/// prints what that one prints.
static COLOURED: AtomicU8 = AtomicU8::new(0);

/// From now on output has colours as chosen.
pub fn choose(choice: ColorChoice) {
    let read = |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
    let of_stream = |is_terminal: bool, bit: u8| match is_coloured(choice, is_terminal, read) {
        true => bit,
        false => 0,
    };
    let (stdout, stderr) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
    let coloured = of_stream(stdout, STDOUT) | of_stream(stderr, STDERR);
    COLOURED.store(coloured, Ordering::Relaxed);
    tutti_node::say::set_red(coloured & STDERR != 0);
}

/// Whether standard output has colours.
pub fn on_stdout() -> bool {
    COLOURED.load(Ordering::Relaxed) & STDOUT != 0
}

/// The option comes first, then `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR=0`, and the terminal.
fn is_coloured(
    choice: ColorChoice,
    is_terminal: bool,
    read: impl Fn(&str) -> Option<String>,
) -> bool {
    let is_set = |name: &str| read(name).is_some_and(|value| !value.is_empty());
    let is_zero = |name: &str| read(name).is_some_and(|value| value == "0");
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if is_set("CLICOLOR_FORCE") && !is_zero("CLICOLOR_FORCE") => true,
        ColorChoice::Auto if is_zero("CLICOLOR") => false,
        ColorChoice::Auto => {
            is_terminal && read("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ColorChoice, Mark, Paint, is_coloured, of_exit_code, of_state, painted};

    #[test]
    fn colours_follow_the_option_then_the_environment_then_the_terminal() {
        let check = |choice, is_terminal, variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(it, _)| *it == name);
            is_coloured(choice, is_terminal, |name| value(name).map(|(_, it)| (*it).to_owned()))
        };
        let term = ("TERM", "xterm");
        let auto = |is_terminal, variables: &[(&str, &str)]| {
            check(ColorChoice::Auto, is_terminal, variables)
        };
        assert!(auto(true, &[term]) && !auto(false, &[term]));
        assert!(!auto(true, &[]) && !auto(true, &[("TERM", "dumb")]));
        assert!(!auto(true, &[term, ("NO_COLOR", "1")]));
        assert!(auto(true, &[term, ("NO_COLOR", "")]), "an empty value is none");
        assert!(auto(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!auto(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!auto(false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!auto(true, &[term, ("CLICOLOR", "0")]));
        assert!(check(ColorChoice::Always, false, &[("NO_COLOR", "1")]));
        assert!(!check(ColorChoice::Never, true, &[term, ("CLICOLOR_FORCE", "1")]));
    }

    #[test]
    fn the_first_word_of_a_state_has_the_colour() {
        assert_eq!(of_state("running, turn: always"), Some(Paint::Good));
        assert_eq!(of_state("failed, exit 3"), Some(Paint::Bad));
        assert_eq!(of_state("exit 137: cancelled"), Some(Paint::Bad));
        assert_eq!((of_state("exit 0"), of_state("n1:0-3"), of_state("")), (None, None, None));
        assert_eq!((of_exit_code("0"), of_exit_code("1")), (None, Some(Paint::Bad)));
    }

    #[test]
    fn marks_count_characters_and_may_pass_the_end() {
        let mark = |from, count| Mark { from, count, paint: Paint::Bad };
        let line = painted("äbcdef", &[mark(1, 2), mark(4, 9), mark(20, 1)]);
        assert_eq!(line, "ä\u{1b}[31mbc\u{1b}[0md\u{1b}[31mef\u{1b}[0m");
    }
}
