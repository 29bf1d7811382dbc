//! `tutti top`: the matrix, jobs and processes, live.

mod beside;
mod desk;
mod feed;
mod letters;
mod matrix;
mod nodes;
mod pace;
mod page;
mod screen;
mod short;
mod view;

use super::submit::order;
use beside::Wake;
use clap::Args;
use desk::{Deed, Desk, Step};
use feed::{Feed, Look, Sample};
use nodes::Nodes;
use pace::Pace;
use page::Page;
use screen::{Came, Line, Screen, Style};
use serde::Serialize;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tutti_client::keys::Press;
use tutti_client::output::{counted, print, said_width, terminal_width, without_orders};
use tutti_node::codes::code_of;
use tutti_node::exit::Exit;
use tutti_types::{JobId, Nanos};
use tutti_wire::report::{JobReport, NodeReport, Target, TaskReport};
use view::{Room, View};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    /// Time between two updates, at least 100ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = delay)]
    delay: Nanos,

    /// End after this number of updates
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print updates one below the other, as without a terminal
    #[arg(short, long)]
    batch: bool,

    /// As JSON, an object in a line for each update
    #[arg(long, conflicts_with = "batch")]
    json: bool,

    /// List only jobs of this user
    #[arg(short, long)]
    user: Option<String>,

    /// List jobs in short columns, with a letter for each state
    #[arg(short, long, conflicts_with = "json")]
    short: bool,

    /// Show processes of these jobs, ranks or processes: 7, 7.0, 7.0/1234
    #[arg(value_name = "JOB")]
    targets: Vec<Target>,
}

const HELP: &str = "\
Examples:
  tutti top                    live; q ends it
  tutti top 7                  also the processes of job 7
  tutti top -b -n 1            one update, for a file or a pipe
  tutti top --short            a letter for each state of a job

The matrix is above: a line for each row, with its part of the time. It has a \
letter for each processor of each node: the job that has it in the turns of \
that row. If that is too wide, a node has one letter: the job with most \
processors, with a + if there are others. A dot is an idle processor; jobs of \
other rows may use it.

CPU is processor time since the last update, in percent of one processor. It is - \
without cgroups, or until all nodes of the job have reported. `tutti ps --help` \
explains the other columns. While nothing happens, CPU and AGE of thousands of \
jobs are updated less often: `tutti top` then uses 1 % of a processor at most.

With --short, ROW is the row of the matrix, BASE the first node and processor,
and H:MM the time of turns. ST is the state:
  N  new: it waits for processors    W  it waits for its first turn
  R  it runs, in its turns           S, s  suspended, swapped out
  o, O  preempting, preempted        i  resuming
  E  ending

Keys:
  up, down, page up, page down, home, end: choose a job
  enter      show the chosen job, and its output as it comes
  space      mark the job; orders are for all that are marked
  c, C       cancel; kill at once
  s, r       suspend; resume
  h, u       hold back a waiting job; release it
  l          give another class
  /          list only jobs with this text in number, name, user, class or state
  o, O       sort by number, CPU, service, user or state; reverse
  n          show nodes
  escape     no marks; no choice and no filter
  g          update at once
  ?          these keys
  q, ^C      end
  ^Z         stop; `fg` goes on
Orders are given once you have confirmed them by y.

Keys while a job is shown:
  up, down, page up, page down, home, end: scroll its output
  e          its standard error, or its standard output again
  n, p       the output of the next rank or the one before, if each has a file
  escape     back to all jobs

Keys while nodes are shown:
  up, down, page up, page down, home, end: choose a node
  o, O       sort by number, name, state, processors in use, load, free memory
             or jobs; reverse
  n, escape  back to jobs
TURN is the row that had its turn at the latest switch of the node.";

const DELAY_MIN: Nanos = Nanos::from_millis(100);

fn delay(text: &str) -> Result<Nanos, String> {
    let delay = tutti_client::duration(text)?;
    if delay < DELAY_MIN { Err(format!("the least is {DELAY_MIN}")) } else { Ok(delay) }
}

pub(crate) fn execute(args: &TopArgs) -> anyhow::Result<Exit> {
    if args.json || args.batch || !std::io::stdout().is_terminal() {
        return one_by_one(args);
    }
    live(args)
}

/// As JSON.
#[derive(Serialize)]
struct Shown<'a> {
    time_ms: u64,
    nodes: &'a [NodeReport],
    jobs: Vec<&'a JobReport>,
    tasks: &'a [TaskReport],
}

/// One look after the other, without a terminal.
fn one_by_one(args: &TopArgs) -> anyhow::Result<Exit> {
    let (mut feed, mut view) = (Feed::new(&args.targets)?, View::new(args.short));
    let mut due = Instant::now();
    for look in 1.. {
        let sample = feed.look()?;
        if let Some(remark) = &sample.remark {
            // No job is shown that ended before the first look.
            anyhow::ensure!(look > 1, "{remark}");
            say!("tutti: {remark}");
        }
        if args.json {
            let mut line = without_orders(&serde_json::to_string(&shown(&sample, args))?);
            line.push('\n');
            print(&line)?;
        } else {
            let between = if look == 1 { "" } else { "\n" };
            let width = terminal_width().or_else(said_width);
            let lines = view.texts(&sample, args.user.as_deref(), Room { width, height: None });
            print(&format!("{between}{}\n", lines.join("\n")))?;
        }
        if args.count == Some(look) {
            break;
        }
        due = (due + length(args.delay)).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(Exit::OK)
}

fn shown<'a>(sample: &'a Sample, args: &TopArgs) -> Shown<'a> {
    let is_wanted = |job: &&JobReport| args.user.as_ref().is_none_or(|user| *user == job.user);
    Shown {
        time_ms: sample.wall_ms,
        nodes: &sample.nodes,
        jobs: sample.jobs.iter().filter(is_wanted).collect(),
        tasks: &sample.tasks,
    }
}

const fn length(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.0)
}

/// On a terminal, until the user ends it.
fn live(args: &TopArgs) -> anyhow::Result<Exit> {
    // A user that asks for an unknown job hears so before the screen changes.
    let (mut feed, mut view) = (Feed::new(&args.targets)?, View::new(args.short));
    let mut sample = feed.look()?;
    if let Some(remark) = &sample.remark {
        anyhow::bail!("{remark}");
    }
    let mut screen = Screen::enter()?;
    let (mut looks, mut pace) = (1, Pace::new(length(args.delay)));
    let (mut state, mut drawn) = (State::new()?, None);
    loop {
        let size = screen.size();
        if drawn != Some(size) {
            let jobs = view.arrange(&sample, args.user.as_deref(), &mut state.desk);
            screen.draw(&state.picture(&mut view, &sample, &jobs, size))?;
            drawn = Some(size);
            pace.on_drawn();
        }
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::OK);
        }
        match screen.wait(pace.due, feed.awaited(), state.wake.awaited())? {
            Came::End(exit) => return Ok(exit),
            Came::Back => {
                pace.hurry();
                drawn = None;
            }
            Came::Keys(presses) => {
                drawn = None;
                for press in presses {
                    let jobs = view.arrange(&sample, args.user.as_deref(), &mut state.desk);
                    match state.press(press, &jobs) {
                        Next::End => return Ok(Exit::OK),
                        Next::Look => pace.hurry(),
                        Next::Wait => {}
                    }
                }
            }
            Came::Nothing => {}
        }
        let (has_come, was_done) = state.receive();
        if has_come {
            drawn = None;
        }
        if was_done {
            pace.hurry();
        }
        feed.look_closely(state.nodes.is_some());
        let turn = feed.turn(pace.is_due(), pace.is_whole());
        if feed.awaited().is_some() {
            pace.on_asked();
        }
        match state.take_in(turn, &mut pace) {
            Turned::Nothing => {}
            Turned::Same => looks += 1,
            Turned::New(next) => (sample, drawn, looks) = (next, None, looks + 1),
            Turned::Away => drawn = None,
        }
    }
}

/// What a turn of the feed means for the picture.
enum Turned {
    Nothing,
    Same,
    New(Sample),
    /// The controller is away.
    Away,
}

/// What comes after a key.
enum Next {
    End,
    Look,
    Wait,
}

/// What is shown, and what keys are for.
struct State {
    desk: Desk,
    /// The job that is shown alone.
    page: Option<Page>,
    /// The nodes, if they are shown.
    nodes: Option<Nodes>,
    /// Why there is no new look.
    remark: Option<String>,
    /// Threads have something for us.
    wake: Wake,
    /// What came of orders, which threads give: the instance may take long to answer.
    done: (Sender<String>, Receiver<String>),
}

impl State {
    fn new() -> anyhow::Result<Self> {
        let (desk, wake) = (Desk::default(), Wake::new()?);
        Ok(Self { desk, page: None, nodes: None, remark: None, wake, done: channel() })
    }

    /// Takes in what threads have for us; whether there was anything, and whether an order was
    /// given.
    fn receive(&mut self) -> (bool, bool) {
        let has_come = self.wake.is_up();
        if let Some(page) = &mut self.page {
            page.receive();
        }
        let done: Vec<String> = self.done.1.try_iter().collect();
        let any = !done.is_empty();
        done.into_iter().for_each(|text| self.desk.say(text));
        (has_come, any)
    }

    /// Takes in what came of a turn of the feed.
    fn take_in(&mut self, turn: anyhow::Result<Option<Look>>, pace: &mut Pace) -> Turned {
        let look = match turn {
            Ok(None) => return Turned::Nothing,
            Ok(Some(look)) => look,
            // It may be started again just now.
            Err(error) => {
                self.remark = Some(format!("{error:#}"));
                pace.on_nothing();
                return Turned::Away;
            }
        };
        self.remark = None;
        if let Some(page) = &mut self.page {
            page.look();
        }
        match look {
            Look::Same => {
                pace.on_nothing();
                Turned::Same
            }
            Look::New(sample) => {
                pace.on_look();
                Turned::New(sample)
            }
        }
    }

    /// The picture of a look, with its last line.
    fn picture(
        &mut self,
        view: &mut View,
        sample: &Sample,
        jobs: &[&JobReport],
        (width, height): (usize, usize),
    ) -> Vec<Line> {
        let height = height.saturating_sub(1);
        let mut lines = match (&self.page, &mut self.nodes) {
            _ if self.desk.shows_help() => help(),
            (Some(page), _) => page.lines(height),
            (None, Some(nodes)) => nodes.lines(sample, (width, height)),
            (None, None) => {
                let room = Room { width: Some(width), height: Some(height) };
                view.lines(sample, jobs, &self.desk, room)
            }
        };
        if let (Some(remark), Some(first)) =
            (self.remark.as_ref().or(sample.remark.as_ref()), lines.first_mut())
        {
            *first = remark.lines().next().unwrap_or_default().to_owned().into();
        }
        lines.resize(height, Line::default());
        let bar = match (&self.nodes, self.desk.is_watched()) {
            (Some(_), true) => self.desk.said().unwrap_or(Nodes::bar()).to_owned(),
            _ => self.desk.bar(jobs, self.page.is_some()),
        };
        lines.push(Line::new(bar, Style::Inverse));
        lines
    }

    fn press(&mut self, press: Press, jobs: &[&JobReport]) -> Next {
        let page = self.page.as_ref().map(|page| page.job);
        self.desk.say_nothing();
        if let Some(shown) = &mut self.page
            && self.desk.is_watched()
        {
            if press == Press::Escape {
                self.page = None;
                return Next::Wait;
            }
            if shown.press(press) {
                return Next::Wait;
            }
        }
        if let Some(nodes) = &mut self.nodes
            && self.desk.is_watched()
        {
            match press {
                Press::Escape | Press::Char('n') => self.nodes = None,
                Press::Char('q' | 'Q' | '?' | 'g') => return self.do_step(press, jobs, page),
                _ if nodes.press(press) => {}
                _ => self.desk.say("keys about jobs need their list: n".into()),
            }
            return Next::Wait;
        }
        self.do_step(press, jobs, page)
    }

    /// Does what a key of the desk means.
    fn do_step(&mut self, press: Press, jobs: &[&JobReport], page: Option<JobId>) -> Next {
        match self.desk.press(press, jobs, page) {
            Step::Nodes => {
                self.nodes = Some(Nodes::default());
                Next::Look
            }
            Step::None => Next::Wait,
            Step::End => Next::End,
            Step::Look => Next::Look,
            Step::Open(job) => {
                self.page = Some(Page::new(job, self.wake.clone()));
                Next::Wait
            }
            Step::Do(deed, of) => {
                self.desk.say("asking".into());
                let (told, wake) = (self.done.0.clone(), self.wake.clone());
                std::thread::spawn(move || {
                    let _ = told.send(done(&deed, &of));
                    wake.up();
                });
                Next::Wait
            }
        }
    }
}

/// Gives an order about jobs; what the last line says of it.
fn done(deed: &Deed, of: &[JobId]) -> String {
    let (mut accepted, mut wrong) = (0u64, None);
    for &job in of {
        match order(&deed.request(job)) {
            Ok(()) => accepted += 1,
            Err(error) => {
                let text = code_of(&error).mark(&format!("{error:#}"));
                wrong.get_or_insert(text);
            }
        }
    }
    match wrong {
        None => format!("done: {}", counted(accepted, "job")),
        Some(wrong) if accepted == 0 => wrong,
        Some(wrong) => format!("done: {}; {wrong}", counted(accepted, "job")),
    }
}

/// The part of the help that is about keys.
fn help() -> Vec<Line> {
    let keys = HELP.lines().skip_while(|line| *line != "Keys:");
    keys.map(|line| {
        let style = if line.starts_with("Keys") { Style::Title } else { Style::Plain };
        Line::new(line.to_owned(), style)
    })
    .collect()
}
