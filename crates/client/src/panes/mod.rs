//! A pane for each rank: `tutti run --panes` and `tutti attach --panes`.
//!
//! The paper's filter that shows the output of each rank in a window of its own. Output goes to
//! the small terminal ([`screen`]) of its rank; what is seen of all is one picture ([`cell`]), of
//! which only changes are written. [`layout`] says where panes are, and [`commands`] what the user
//! types means. Memory for rows of the past is divided among the ranks.

mod cell;
mod commands;
mod layout;
mod picture;
mod screen;

use super::sink::Output;
use super::terminal::Terminal;
use cell::{DIM, Frame, Style};
use commands::{Command, Keys, Mode, Scroll, Target};
use layout::Layout;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use screen::Screen;
use serde_bytes::ByteBuf;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tutti_node::codes::coded;
use tutti_types::{JobId, Rank, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, TerminalSize};
use tutti_wire::code::Code;
use tutti_wire::launch::InputTo;
use tutti_wire::local::{Reply, Request};
use tutti_wire::show::NodeShare;
use vte::Parser;

/// Pictures are at least so far apart.
const BETWEEN_PICTURES: Duration = Duration::from_millis(30);

/// Messages of other threads are looked for so often.
const TICK: Duration = Duration::from_millis(200);

/// How long the rest of a key is waited for.
const REST_OF_KEY_MS: u16 = 50;

/// Keys that come so soon after the end were for a rank.
const GUARD: Duration = Duration::from_millis(400);

/// Places of the past of all panes together, of 16 bytes each.
const PAST_CELLS_MAX: usize = 4 << 20;

/// Rows of the past of one pane.
const PAST_ROWS_MAX: usize = 5000;

/// Panes of one job.
const PANES_MAX: u32 = 1000;

/// Checks that so many ranks can be shown.
///
/// # Errors
/// If there are more than [`PANES_MAX`]: each pane takes memory.
pub(super) fn check_count(ranks: u32) -> anyhow::Result<()> {
    if ranks <= PANES_MAX {
        return Ok(());
    }
    let reason = format!(
        "--panes shows at most {PANES_MAX} ranks, and the job has {ranks}; `-l` shows the rank \
         before each line instead"
    );
    Err(coded(Code::Improper, reason))
}

/// What a command comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// This goes to the keepers.
    Send(FromFrontEnd),
    /// The user wants to leave.
    Leave,
}

/// What is shown, and which ranks read input.
pub(super) struct PanesOptions {
    /// What the job is called in the last line.
    pub(super) title: String,
    /// How many ranks it has.
    pub(super) size: u32,
    /// Which ranks read input.
    pub(super) readers: InputTo,
    /// Which ranks keys are for at first.
    pub(super) input: InputTo,
    /// Whether this is a viewer beside the front end of the job.
    pub(super) is_viewer: bool,
}

/// Reads the escape sequences of one stream. Their texts are kept up to 64 bytes.
type Sequences = Parser<64>;

/// The pane of a rank.
struct Pane {
    screen: Screen,
    output: Sequences,
    error: Sequences,
    typed: Sequences,
    status: Option<TaskStatus>,
    /// How many rows back the present is.
    back: usize,
}

/// See the module.
pub(super) struct Panes {
    options: PanesOptions,
    panes: Vec<Pane>,
    nodes: Vec<NodeShare>,
    keys: Keys,
    /// The pane with the focus.
    focus: usize,
    is_zoomed: bool,
    echoes: bool,
    width: usize,
    height: usize,
    layout: Layout,
    has_colors: bool,
    has_lines: bool,
    /// A message in the last line, until the next key.
    note: Option<String>,
    /// How many messages were held when `note` was set last.
    messages: u64,
    /// What the terminal shows; `None`: it is not known.
    shown: Option<Frame>,
    is_dirty: bool,
    drawn: Option<Instant>,
    /// When the job ended, and what is said of it.
    over: Option<(Instant, String)>,
    is_entered: bool,
}

impl Panes {
    pub(super) fn new(options: PanesOptions) -> Self {
        let size = usize::try_from(options.size).unwrap_or(1).max(1);
        let past = (PAST_CELLS_MAX / 80 / size).min(PAST_ROWS_MAX);
        let pane = || Pane {
            screen: Screen::new(80, 24, past),
            output: Sequences::new_with_size(),
            error: Sequences::new_with_size(),
            typed: Sequences::new_with_size(),
            status: None,
            back: 0,
        };
        let (target, focus) = match options.input {
            InputTo::All => (Target::All, 0),
            InputTo::Tagged => (Target::Tagged, 0),
            InputTo::Rank(rank) => (Target::Focused, usize::try_from(rank).unwrap_or(0)),
            InputTo::Nobody => (Target::Focused, 0),
        };
        let mut keys = Keys { target, ranks: options.size, ..Keys::default() };
        keys.settle();
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let locale = locale.unwrap_or_default().to_uppercase();
        let mut panes = Self {
            panes: (0..size).map(|_| pane()).collect(),
            nodes: Vec::new(),
            keys,
            focus: focus.min(size - 1),
            is_zoomed: false,
            echoes: true,
            width: 80,
            height: 24,
            layout: Layout::default(),
            has_colors: set("NO_COLOR").is_none(),
            has_lines: locale.contains("UTF-8") || locale.contains("UTF8"),
            note: None,
            messages: 0,
            shown: None,
            is_dirty: true,
            drawn: None,
            over: None,
            is_entered: false,
            options,
        };
        panes.lay_out();
        panes
    }

    /// From now on the terminal is theirs. The names of nodes are looked up.
    pub(super) fn enter(&mut self, job: Option<JobId>, size: TerminalSize) {
        if let Some(job) = job
            && let Ok(Reply::Show(report)) =
                crate::ask::ask(&Request::Show { job, environment: false })
        {
            self.nodes = report.details.map(|details| details.nodes).unwrap_or_default();
        }
        self.is_entered = true;
        self.resize(size);
    }

    /// Whether the terminal was theirs.
    pub(super) const fn is_entered(&self) -> bool {
        self.is_entered
    }

    /// The terminal has this size, and shows nothing that is known.
    pub(super) fn resize(&mut self, size: TerminalSize) {
        let limited = |length: u16| usize::from(length).min(screen::SIZE_MAX);
        (self.width, self.height) = (limited(size.columns), limited(size.rows));
        self.shown = None;
        self.lay_out();
    }

    /// Output of a rank.
    pub(super) fn feed(&mut self, rank: Rank, stream: Stream, data: &[u8]) {
        let Some(pane) = self.pane_of(rank.0) else { return };
        let before = pane.screen.scrolled();
        match stream {
            Stream::Output => pane.output.advance(&mut pane.screen, data),
            Stream::Error => pane.error.advance(&mut pane.screen, data),
        }
        // What is looked at stays where it is.
        if pane.back > 0 {
            let new = usize::try_from(pane.screen.scrolled() - before).unwrap_or(usize::MAX);
            pane.back = pane.back.saturating_add(new).min(pane.screen.past());
        }
        self.is_dirty = true;
    }

    /// A rank has ended.
    pub(super) fn on_task_ended(&mut self, rank: Rank, status: TaskStatus) {
        if let Some(pane) = self.pane_of(rank.0) {
            pane.status = Some(status);
        }
        self.is_dirty = true;
    }

    /// The job has ended, as this text says; the next key leaves.
    pub(super) fn end(&mut self, text: String) {
        self.over = Some((Instant::now(), text));
        // A line that is being typed has no reader any more; messages follow on the first screen.
        self.keys.target = Target::Focused;
        if matches!(self.keys.mode, Mode::Line(_)) {
            self.keys.settle();
        }
        self.note = None;
        self.is_dirty = true;
    }

    fn pane_of(&mut self, rank: u32) -> Option<&mut Pane> {
        self.panes.get_mut(usize::try_from(rank).ok()?)
    }

    /// How long until a picture is due, or something is to be looked for.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.is_entered.then(|| match self.drawn {
            Some(drawn) if self.is_dirty => BETWEEN_PICTURES.saturating_sub(drawn.elapsed()),
            Some(_) => TICK,
            None => Duration::ZERO,
        })
    }

    /// What is to be written to the terminal now; empty if nothing is.
    pub(super) fn picture(&mut self) -> String {
        if let Some((messages, last)) = tutti_node::say::held()
            && messages != self.messages
            && self.over.is_none()
        {
            self.messages = messages;
            self.note = Some(last.trim_start_matches("tutti: ").to_owned());
            self.is_dirty = true;
        }
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= BETWEEN_PICTURES);
        if !self.is_entered || !self.is_dirty || !is_due {
            return String::new();
        }
        let frame = self.frame();
        let text = frame.changes(self.shown.as_ref(), self.has_colors);
        self.shown = Some(frame);
        self.is_dirty = false;
        self.drawn = Some(Instant::now());
        text
    }

    /// Reads what was typed, and what it comes to; `None` at the end of standard input.
    pub(super) fn read_keys(&mut self) -> Option<Vec<Act>> {
        let (mut typed, mut used) = ([0; 4096], 0);
        loop {
            match nix::unistd::read(std::io::stdin(), &mut typed[used..]) {
                Ok(0) => return None,
                Ok(count) => used += count,
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => break,
                Err(_) => return None,
            }
            let stdin = std::io::stdin();
            let mut more = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            let is_open = used < typed.len() && self.keys.wants_whole(&typed[..used]);
            if !is_open || poll(&mut more, REST_OF_KEY_MS) != Ok(1) {
                break;
            }
        }
        Some(self.type_in(&typed[..used]))
    }

    /// What these keys come to.
    fn type_in(&mut self, typed: &[u8]) -> Vec<Act> {
        self.note = None;
        self.is_dirty = true;
        let commands = self.keys.take(typed);
        commands.into_iter().filter_map(|command| self.on_command(command)).collect()
    }

    fn on_command(&mut self, command: Command) -> Option<Act> {
        if let Some((since, _)) = &self.over
            && matches!(command, Command::Type(_) | Command::EndInput | Command::Line(_))
        {
            return (since.elapsed() > GUARD).then_some(Act::Leave);
        }
        match command {
            Command::Type(bytes) => return self.send(bytes),
            Command::EndInput if self.options.is_viewer => {
                self.note = Some("the front end of the job ends its input, not a viewer".into());
            }
            Command::EndInput => return self.send(Vec::new()),
            Command::Line(line) => return self.send_line(&line),
            Command::Leave => return Some(Act::Leave),
            Command::Go(step) => self.go(step),
            Command::Next(is_forth) => {
                let count = self.panes.len();
                let step = if is_forth { 1 } else { count - 1 };
                self.set_focus((self.focus + step) % count);
            }
            Command::Page(is_forth) => {
                let (count, step) = (self.layout.pages, self.layout.on_page);
                let page = self.focus / step + if is_forth { 1 } else { count - 1 };
                self.set_focus(page % count * step);
            }
            Command::Rank(rank) => match usize::try_from(rank) {
                Ok(pane) if pane < self.panes.len() => self.set_focus(pane),
                _ => {
                    let last = self.panes.len() - 1;
                    self.note = Some(format!("there is no rank {rank}; ranks are 0 to {last}"));
                }
            },
            Command::To(_) => {}
            Command::Zoom => {
                self.is_zoomed = !self.is_zoomed;
                self.lay_out();
            }
            Command::Echo => {
                self.echoes = !self.echoes;
                let word = if self.echoes { "shown" } else { "not shown" };
                self.note = Some(format!("keys are {word} in panes from now on"));
            }
            Command::Scroll(scroll) => self.scroll(scroll),
            Command::Redraw => self.shown = None,
            Command::Unknown => self.note = Some("no such command; ^T ? lists all".into()),
        }
        None
    }

    fn set_focus(&mut self, pane: usize) {
        self.focus = pane;
        self.lay_out();
    }

    fn go(&mut self, step: layout::Step) {
        let (first, count) = self.page();
        let on_page = self.layout.on_page;
        let to = self.layout.neighbour(self.focus - first, count, step).map(|it| it + first);
        let last = self.panes.len() - 1;
        // At an edge, panes of the page beside come next.
        let beyond = match step {
            layout::Step::Left | layout::Step::Up => first.checked_sub(on_page).map(|_| first - 1),
            layout::Step::Right | layout::Step::Down => {
                Some(first + on_page).filter(|it| *it <= last)
            }
        };
        if let Some(to) = to.or(beyond) {
            self.set_focus(to);
        }
    }

    fn scroll(&mut self, scroll: Scroll) {
        let pane = &mut self.panes[self.focus];
        let page = pane.screen.height().saturating_sub(1).max(1).cast_signed();
        let rows = match scroll {
            Scroll::Rows(rows) => rows,
            Scroll::Pages(pages) => pages.saturating_mul(page),
            Scroll::First => isize::MAX,
            Scroll::Last => isize::MIN,
        };
        pane.back = pane.back.saturating_add_signed(rows).min(pane.screen.past());
    }

    /// The first pane of the page with the focus, and how many it has.
    fn page(&self) -> (usize, usize) {
        let first = self.focus / self.layout.on_page * self.layout.on_page;
        (first, self.layout.on_page.min(self.panes.len() - first))
    }

    /// Gives panes that are seen the size of their places.
    fn lay_out(&mut self) {
        let height = self.height.saturating_sub(1);
        self.layout = match self.is_zoomed {
            true => Layout::alone(self.panes.len()),
            false => Layout::of(self.panes.len(), self.width, height),
        };
        let (first, count) = self.page();
        let places = self.layout.places(count, self.width, height);
        for (pane, place) in self.panes[first..].iter_mut().zip(&places) {
            pane.screen.resize(place.width, place.height.saturating_sub(1));
            pane.back = pane.back.min(pane.screen.past());
        }
        self.is_dirty = true;
    }

    const fn reads(&self, rank: usize) -> bool {
        match self.options.readers {
            InputTo::Nobody => false,
            InputTo::All | InputTo::Tagged => true,
            InputTo::Rank(only) => only as usize == rank,
        }
    }

    /// Sends bytes to the target; none end its input.
    fn send(&mut self, bytes: Vec<u8>) -> Option<Act> {
        match self.keys.target {
            Target::All => self.send_to(None, bytes),
            Target::Focused | Target::Tagged => self.send_to(Some(self.focus), bytes),
        }
    }

    fn send_line(&mut self, line: &str) -> Option<Act> {
        if self.keys.target != Target::Tagged {
            return self.send(format!("{line}\n").into_bytes());
        }
        let parsed = line.split_once(':').and_then(|(rank, text)| {
            let rank: usize = rank.trim().parse().ok()?;
            (rank < self.panes.len()).then(|| (rank, text.strip_prefix(' ').unwrap_or(text)))
        });
        let Some((rank, text)) = parsed else {
            let last = self.panes.len() - 1;
            self.note = Some(format!("write RANK: TEXT, with a rank of 0 to {last}"));
            return None;
        };
        self.send_to(Some(rank), format!("{text}\n").into_bytes())
    }

    fn send_to(&mut self, rank: Option<usize>, bytes: Vec<u8>) -> Option<Act> {
        let count = self.panes.len();
        let all = rank.map_or(0..count, |rank| rank..rank + 1);
        let taken: Vec<usize> =
            all.filter(|it| self.reads(*it) && self.panes[*it].status.is_none()).collect();
        if taken.is_empty() {
            self.note = Some(match rank {
                Some(rank) if self.panes[rank].status.is_some() => {
                    format!("rank {rank} has ended and reads nothing more")
                }
                Some(rank) => format!("rank {rank} reads no input: the job was started without"),
                None => "no rank reads input".into(),
            });
            return None;
        }
        if self.echoes && !bytes.is_empty() {
            taken.iter().for_each(|rank| self.panes[*rank].echo(&bytes));
        }
        let rank = rank.and_then(|rank| u32::try_from(rank).ok()).map(Rank);
        Some(Act::Send(FromFrontEnd::Input { rank, data: ByteBuf::from(bytes) }))
    }

    /// The target reads too slowly.
    pub(super) fn note_dropped(&mut self) {
        self.note = Some("keys were dropped: earlier ones have not been read yet".into());
    }
}

impl Pane {
    /// Shows what was typed, as a terminal does.
    fn echo(&mut self, typed: &[u8]) {
        let mut shown = Vec::with_capacity(typed.len());
        for &byte in typed {
            match byte {
                b'\n' | b'\t' => shown.push(byte),
                0..0x20 | 0x7f => shown.extend([b'^', byte ^ 0x40]),
                _ => shown.push(byte),
            }
        }
        let own = self.screen.set_style(Style::of(DIM));
        self.typed.advance(&mut self.screen, &shown);
        self.screen.set_style(own);
    }
}

/// Shows the panes of a job that has ended until a key is pressed, or one of `others` has
/// something. `text` says how the job ended.
pub(super) fn linger(
    output: &mut Output,
    terminal: &mut Terminal,
    text: String,
    other: Option<BorrowedFd<'_>>,
    is_over: impl Fn() -> bool,
) {
    let Some(panes) = output.panes.as_mut().filter(|it| it.is_entered()) else { return };
    panes.end(text);
    terminal.take_all_keys();
    loop {
        let stdin = std::io::stdin();
        if output.write_due().is_err() || is_over() {
            return;
        }
        let mut fds = vec![
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(terminal.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(other.map(|other| PollFd::new(other, PollFlags::POLLIN)));
        let Some(panes) = &mut output.panes else { return };
        let due = panes.due_in().unwrap_or(TICK).as_millis();
        let _ = poll(&mut fds, PollTimeout::try_from(due + 1).unwrap_or(PollTimeout::MAX));
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        if let Some(size) = terminal.on_signals() {
            terminal.take_all_keys();
            panes.resize(size);
        }
        let leaves = match ready.first() {
            Some(true) => panes.read_keys().is_none_or(|acts| acts.contains(&Act::Leave)),
            _ => false,
        };
        if leaves || ready.get(2) == Some(&true) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panes(size: u32, input: InputTo) -> Panes {
        let (title, readers) = ("job 1 a".into(), InputTo::All);
        Panes::new(PanesOptions { title, size, readers, input, is_viewer: false })
    }

    fn last_line(panes: &Panes) -> String {
        panes.frame().line(23)
    }

    #[test]
    fn the_end_of_the_job_takes_the_place_of_a_line_that_is_typed() {
        let mut panes = panes(2, InputTo::Tagged);
        panes.type_in(b"1: unfinished");
        assert!(last_line(&panes).contains("RANK: TEXT> 1: unfinished"));
        panes.end("job 1 has ended".into());
        assert!(last_line(&panes).contains("job 1 has ended; press a key"));
        // A key that was for a rank does not leave.
        assert_eq!(panes.type_in(b"x"), []);
        std::thread::sleep(GUARD + Duration::from_millis(50));
        assert_eq!(panes.type_in(b"x"), [Act::Leave]);
    }

    #[test]
    fn output_and_its_sequences_stay_in_the_pane_of_the_rank() {
        let mut panes = panes(2, InputTo::Rank(0));
        panes.feed(Rank(1), Stream::Output, b"\x1b[2J\x1b[HAAAA\x1b[999;999HB\x1b[1;1r\x1b[?6h");
        panes.feed(Rank(7), Stream::Output, b"no such rank");
        let frame = panes.frame();
        let at = |letter| (0..24).filter(|y| frame.line(*y).contains(letter)).collect::<Vec<_>>();
        assert_eq!((at('A'), at('B')), (vec![12], vec![22]));
        assert!(frame.line(0).contains("0  running") && frame.line(11).contains("1  running"));
    }

    #[test]
    fn a_tagged_line_goes_to_its_rank_and_a_wrong_one_says_what_to_write() {
        let mut panes = panes(3, InputTo::Tagged);
        let input = |rank: u32, text: &str| {
            let data = ByteBuf::from(text.as_bytes().to_vec());
            [Act::Send(FromFrontEnd::Input { rank: Some(Rank(rank)), data })]
        };
        assert_eq!(panes.type_in(b"2: go\r"), input(2, "go\n"));
        assert_eq!(panes.type_in(b"3: go\r"), []);
        assert!(last_line(&panes).contains("write RANK: TEXT, with a rank of 0 to 2"));
    }

    #[test]
    fn more_ranks_than_panes_are_refused() {
        assert!(check_count(PANES_MAX).is_ok());
        assert!(check_count(PANES_MAX + 1).is_err());
    }
}
