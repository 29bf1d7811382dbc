//! The user's terminal while rank 0 of a job has one of its own (`--pty`), or while it shows panes
//! (`--panes`).
//!
//! With `--pty` it is in raw mode meanwhile: keys go to the task as bytes, `^C` and `^Z` too, and
//! its output is shown as it comes. Standard input need not be a terminal. Then it goes to the task
//! as it is.
//!
//! With `--panes` it shows its other screen, keys come one by one, and `^C`, `^\\` and `^Z` are
//! signals. Messages wait until it shows its first screen again.
//!
//! It has its former mode again when this process ends, stops or panics.

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{InputFlags, LocalFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use tutti_linux::pty;
use tutti_node::codes::coded;
use tutti_node::say;
use tutti_wire::attach::TerminalSize;
use tutti_wire::code::Code;

/// The size of the terminal where the user has none.
const SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// What the terminal is set back to.
static FORMER: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether it shows its other screen.
static IS_SCREEN: AtomicBool = AtomicBool::new(false);

/// To the other screen of a terminal, and back: with the cursor and no colours.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// What the terminal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// In front of that of rank 0.
    Pty,
    /// Panes are shown on it.
    Panes,
}

/// Signals about the terminal.
fn of_terminals() -> SigSet {
    [Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT].into_iter().collect()
}

/// The user's terminal.
pub(super) struct Terminal {
    signals: SignalFd,
    keys: Keys,
    purpose: Purpose,
    /// Whether it is to be in raw mode.
    is_entered: bool,
}

impl Terminal {
    /// Holds the signals about it; the mode stays. To be called before any other thread exists.
    ///
    /// # Errors
    /// In the background of a terminal, where nothing can be typed.
    pub(super) fn new(purpose: Purpose) -> anyhow::Result<Self> {
        if purpose == Purpose::Panes {
            check_screen()?;
        }
        if stdin().is_terminal() && !is_in_foreground() && purpose == Purpose::Pty {
            let reason = "--pty needs the foreground of the terminal: leave out the `&`, or give it \
                          other input, such as `< /dev/null`";
            return Err(coded(Code::Improper, reason));
        }
        let set = of_terminals();
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).context("cannot read signals")?;
        Ok(Self { signals, keys: Keys::default(), purpose, is_entered: false })
    }

    /// Whether rank 0 has a terminal behind it.
    pub(super) fn is_pty(&self) -> bool {
        self.purpose == Purpose::Pty
    }

    /// Signals that wait for [`Self::on_signals`].
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// The size of the user's terminal.
    pub(super) fn size() -> TerminalSize {
        let (output, input, error) = (stdout(), stdin(), stderr());
        let all = [output.as_fd(), input.as_fd(), error.as_fd()];
        let mut sizes = all.into_iter().filter_map(|fd| pty::size(fd).ok());
        let found = sizes.find(|&(rows, columns)| rows > 0 && columns > 0);
        found.map_or(SIZE, |(rows, columns)| TerminalSize { rows, columns })
    }

    /// Sets raw mode, if standard input is a terminal and in its foreground.
    pub(super) fn enter(&mut self) {
        static ON_PANIC: Once = Once::new();
        self.is_entered = true;
        let input = stdin();
        if self.purpose == Purpose::Panes {
            await_foreground();
        }
        if !input.is_terminal() || !is_in_foreground() {
            return;
        }
        let Ok(former) = tcgetattr(&input) else { return };
        let mut raw = former.clone();
        cfmakeraw(&mut raw);
        if self.purpose == Purpose::Panes {
            raw.input_flags.insert(InputFlags::ICRNL);
            // Output that is under way must not be lost for a signal.
            raw.local_flags.insert(LocalFlags::ISIG | LocalFlags::NOFLSH);
        }
        {
            let mut kept = FORMER.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get_or_insert(former);
        }
        ON_PANIC.call_once(|| {
            let former = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                former(panic);
            }));
        });
        say::set_raw(tcsetattr(&input, SetArg::TCSANOW, &raw).is_ok());
        if self.purpose == Purpose::Panes && !IS_SCREEN.swap(true, Ordering::SeqCst) {
            say::hold();
            write(ENTER);
        }
    }

    /// From now on `^C` and the like are keys, too.
    pub(super) fn take_all_keys(&self) {
        if let Ok(mut mode) = tcgetattr(stdin()) {
            mode.local_flags.remove(LocalFlags::ISIG);
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, &mode);
        }
    }

    /// Sets the former mode again, for good.
    pub(super) fn leave(&mut self) {
        self.is_entered = false;
        restore();
    }

    /// Heeds the signals that have come; the size of the terminal, if it may be another one.
    pub(super) fn on_signals(&mut self) -> Option<TerminalSize> {
        let mut size = None;
        while let Ok(Some(found)) = self.signals.read_signal() {
            if i32::try_from(found.ssi_signo) == Ok(Signal::SIGTSTP as i32) {
                restore();
                // SIGTSTP itself is blocked. This returns when the process goes on.
                let _ = raise(Signal::SIGSTOP);
            }
            // A shell may have set another mode meanwhile.
            let is_back = i32::try_from(found.ssi_signo) != Ok(Signal::SIGWINCH as i32);
            if is_back && self.is_entered {
                self.enter();
            }
            size = Some(Self::size());
        }
        size
    }

    /// What of the keys goes to the task, and whether the user wants to end it instead.
    pub(super) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        match say::is_raw() && self.is_pty() {
            true => self.keys.take(typed),
            false => (typed.to_vec(), false),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its former mode again, if it has another one and is ours to set.
fn restore() {
    if IS_SCREEN.swap(false, Ordering::SeqCst) {
        write(LEAVE);
    }
    let former = FORMER.lock().unwrap_or_else(PoisonError::into_inner).take();
    // In the background the kernel would stop this process; the shell has set its own mode there.
    if let Some(former) = former.filter(|_| is_in_foreground()) {
        let _ = tcsetattr(stdin(), SetArg::TCSANOW, &former);
    }
    say::set_raw(false);
    say::release();
}

/// Without a reader there is no screen, either.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Checks that panes can be shown.
fn check_screen() -> anyhow::Result<()> {
    let what = match (stdin().is_terminal(), stdout().is_terminal()) {
        (true, true) if std::env::var_os("TERM").is_none_or(|it| it == "dumb") => {
            "a terminal whose cursor moves, and TERM names none"
        }
        (true, true) => return Ok(()),
        (true, false) => "a terminal as standard output",
        (false, _) => "a terminal as standard input",
    };
    let reason = format!("--panes needs {what}; `-l` shows the rank before each line instead");
    Err(coded(Code::Improper, reason))
}

/// In the background the terminal is another's: stops, as a process that reads from it is stopped,
/// until it is ours.
pub fn await_foreground() {
    // A process without a shell is not stopped by that.
    for _ in 0..16 {
        if is_in_foreground() || raise(Signal::SIGTTIN).is_err() {
            return;
        }
    }
}

/// A terminal of another session has no foreground to be in.
fn is_in_foreground() -> bool {
    nix::unistd::tcgetpgrp(stdin()).map_or(true, |group| group == nix::unistd::getpgrp())
}

/// Where the keys are on the way to `~.` at the beginning of a line, which ends the task: `^C` is
/// the task's, and one that is suspended does not read it.
#[derive(Debug, Default, PartialEq, Eq)]
enum Keys {
    #[default]
    AtLine,
    AtTilde,
    InLine,
}

impl Keys {
    fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            let is_at_tilde = *self == Self::AtTilde;
            match key {
                b'.' if is_at_tilde => return (passed, true),
                b'~' if *self == Self::AtLine => {
                    *self = Self::AtTilde;
                    continue;
                }
                b'~' if is_at_tilde => {}
                _ if is_at_tilde => passed.push(b'~'),
                _ => {}
            }
            *self = if key == b'\r' || key == b'\n' { Self::AtLine } else { Self::InLine };
            passed.push(key);
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn a_tilde_and_a_dot_at_the_beginning_of_a_line_end_the_task_and_all_else_is_passed_on() {
        for (typed, passed, ends) in [
            (&["ls ~.\r"][..], "ls ~.\r", false),
            (&["~."], "", true),
            (&["ls\r", "~", ".x"], "ls\r", true),
            (&["~", "x\r~."], "~x\r", true),
            (&["~~.\r"], "~.\r", false),
            (&["~\r", "~."], "~\r", true),
            (&["a\n~"], "a\n", false),
        ] {
            let mut keys = Keys::default();
            let mut found = (Vec::new(), false);
            for piece in typed {
                let (bytes, ended) = keys.take(piece.as_bytes());
                found.0.extend(bytes);
                found.1 |= ended;
            }
            assert_eq!(found, (passed.as_bytes().to_vec(), ends), "{typed:?}");
        }
    }
}
