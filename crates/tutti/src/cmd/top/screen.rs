//! The terminal while it is a screen that is painted over and over.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use tutti_client::await_foreground;
use tutti_client::keys::{Press, is_torn, presses};
use tutti_client::output::colours::{Mark, on_stdout, painted};
use tutti_client::output::print;
use tutti_client::output::terminal_size;
use tutti_node::exit::Exit;
use tutti_node::say::is_order;

/// What has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is over.
    End(Exit),
    /// The terminal is ours again.
    Back,
    /// These keys.
    Keys(Vec<Press>),
    /// Nothing but what is due.
    Nothing,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// As text.
    #[default]
    Plain,
    /// The names of columns, and titles.
    Title,
    /// The chosen job, and the last line.
    Inverse,
}

/// A line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// What it says.
    pub(super) text: String,
    /// How it looks.
    pub(super) style: Style,
    /// What of a plain line has colours.
    pub(super) marks: Vec<Mark>,
}

impl Line {
    pub(super) const fn new(text: String, style: Style) -> Self {
        Self { text, style, marks: Vec::new() }
    }

    /// The same line with these colours.
    pub(super) fn with(self, marks: Vec<Mark>) -> Self {
        Self { marks, ..self }
    }

    /// Its text, with colours where standard output has them.
    pub(super) fn into_text(self) -> String {
        match on_stdout() {
            true => painted(&self.text, &self.marks),
            false => self.text,
        }
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self::new(text, Style::Plain)
    }
}

/// How long the rest of a key is waited for.
const REST_OF_KEY_MS: u16 = 50;

/// Another screen of the terminal; without a cursor, cleared; and back.
const ENTER: &str = "\x1b[?1049h";
const CLEAR: &str = "\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal as it is while this lives; then it is as it was.
pub(super) struct Screen {
    signals: SignalFd,
    /// How the terminal was, if keys come from it.
    was: Option<Termios>,
}

impl Screen {
    /// # Errors
    /// If the terminal can't be set up.
    pub(super) fn enter() -> anyhow::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
            Signal::SIGCONT,
            Signal::SIGWINCH,
        ] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags)?;
        await_foreground();
        let screen = Self { signals, was: tcgetattr(std::io::stdin()).ok() };
        print(ENTER)?;
        screen.set_up()?;
        Ok(screen)
    }

    fn set_up(&self) -> anyhow::Result<()> {
        if let Some(was) = &self.was {
            let mut keys = was.clone();
            // Signals stay: ^C is one.
            keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &keys)?;
        }
        print(CLEAR)
    }

    fn give_back(&self) {
        // Without a reader, there is no screen, either.
        let _ = print(LEAVE);
        if let Some(was) = &self.was {
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, was);
        }
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        terminal_size().unwrap_or((80, 24))
    }

    /// Paints these lines, cut to the size of the terminal, over what is there.
    ///
    /// # Errors
    /// Without a reader.
    pub(super) fn draw(&self, lines: &[Line]) -> anyhow::Result<()> {
        let (width, height) = self.size();
        let cut = |line: &Line| {
            // Names and paths are anything that a user can type.
            let shown = line.text.chars().take(width);
            let text: String = shown.map(|it| if is_order(it) { '?' } else { it }).collect();
            match line.style {
                Style::Plain if on_stdout() => painted(&text, &line.marks),
                Style::Plain => text,
                Style::Title => format!("\x1b[1m{text}\x1b[m"),
                Style::Inverse => format!("\x1b[7m{text:<width$}\x1b[m"),
            }
        };
        let lines: Vec<String> = lines.iter().take(height).map(cut).collect();
        print(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// Waits for a key, a signal, an answer, a thread that wakes us, or until something is due.
    ///
    /// # Errors
    /// If there is nothing to wait for any more.
    pub(super) fn wait(
        &mut self,
        due: Instant,
        answer: Option<BorrowedFd<'_>>,
        wake: BorrowedFd<'_>,
    ) -> anyhow::Result<Came> {
        let left = due.saturating_duration_since(Instant::now());
        // While an answer is under way, nothing else is due.
        let timeout = match answer {
            Some(_) => PollTimeout::NONE,
            None => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        };
        let stdin = std::io::stdin();
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake, PollFlags::POLLIN),
        ];
        fds.extend(answer.map(|answer| PollFd::new(answer, PollFlags::POLLIN)));
        if self.was.is_some() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_keys =
            self.was.is_some() && fds.last().and_then(PollFd::any).is_some_and(|is_ready| is_ready);
        if let Some(came) = self.on_signal()? {
            return Ok(came);
        }
        Ok(if has_keys { self.read_keys() } else { Came::Nothing })
    }

    fn on_signal(&mut self) -> anyhow::Result<Option<Came>> {
        let Some(info) = self.signals.read_signal()? else { return Ok(None) };
        let signal = Signal::try_from(info.ssi_signo.cast_signed())?;
        Ok(match signal {
            Signal::SIGINT => Some(Came::End(Exit::OK)),
            Signal::SIGTSTP => {
                self.give_back();
                raise(Signal::SIGSTOP)?;
                await_foreground();
                print(ENTER)?;
                self.set_up()?;
                Some(Came::Back)
            }
            // A process that was stopped without being asked finds the terminal as the shell has
            // left it.
            Signal::SIGCONT => {
                self.set_up()?;
                Some(Came::Back)
            }
            Signal::SIGWINCH => Some(Came::Nothing),
            signal => Some(Came::End(Exit::of_signal(signal))),
        })
    }

    fn read_keys(&mut self) -> Came {
        let (mut typed, mut used) = ([0; 256], 0);
        loop {
            match nix::unistd::read(std::io::stdin(), &mut typed[used..]) {
                Ok(0) | Err(_) => {
                    // There is no input any more.
                    self.give_up_keys();
                    return Came::Nothing;
                }
                Ok(count) => used += count,
            }
            let stdin = std::io::stdin();
            let mut more = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            let is_open = used < typed.len() && is_torn(&typed[..used]);
            if !is_open || poll(&mut more, REST_OF_KEY_MS) != Ok(1) {
                return Came::Keys(presses(&typed[..used]));
            }
        }
    }

    fn give_up_keys(&mut self) {
        if let Some(was) = self.was.take() {
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &was);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}
