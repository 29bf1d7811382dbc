//! `tutti top`: the matrix, jobs and processes, live.

mod feed;
mod letters;
mod matrix;
mod screen;
mod view;

use clap::Args;
use feed::{Feed, Sample};
use screen::{Key, Screen};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tutti_client::output::{print, said_width, terminal_width, without_orders};
use tutti_node::exit::Exit;
use tutti_types::Nanos;
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

    /// Show processes of these jobs, ranks or processes: 7, 7.0, 7.0/1234
    #[arg(value_name = "JOB")]
    targets: Vec<Target>,
}

const HELP: &str = "\
Examples:
  tutti top                    live; q ends it
  tutti top 7                  also the processes of job 7
  tutti top -b -n 1            one update, for a file or a pipe

The matrix is above: a line for each row, with its part of the time. It has a \
letter for each processor of each node: the job that has it in the turns of \
that row. If that is too wide, a node has one letter: the job with most \
processors, with a + if there are others. A dot is an idle processor; jobs of \
other rows may use it.

CPU is processor time since the last update, in percent of one processor. It is - \
without cgroups, or until all nodes of the job have reported. `tutti ps --help` \
explains the other columns.

Keys:
  q, ^C                        end
  ^Z                           stop; `fg` goes on
  up, down, page up, page down show other jobs
  space                        update at once";

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
    let (mut feed, mut view) = (Feed::new(&args.targets)?, View::default());
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
            let lines = view.lines(&sample, args.user.as_deref(), Room { width, height: None });
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
    let (mut feed, mut view) = (Feed::new(&args.targets)?, View::default());
    let mut sample = feed.look()?;
    if let Some(remark) = &sample.remark {
        anyhow::bail!("{remark}");
    }
    let mut screen = Screen::enter()?;
    let (mut looks, mut due, mut remark) = (1, Instant::now() + length(args.delay), None);
    loop {
        let (width, height) = screen.size();
        let room = Room { width: Some(width), height: Some(height) };
        let mut lines = view.lines(&sample, args.user.as_deref(), room);
        if let (Some(remark), Some(first)) =
            (remark.as_ref().or(sample.remark.as_ref()), lines.first_mut())
        {
            *first = remark.lines().next().unwrap_or_default().to_owned();
        }
        screen.draw(&lines)?;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::OK);
        }
        match screen.wait(due, feed.awaited())? {
            Key::End(exit) => return Ok(exit),
            Key::Scroll(lines) => view.scroll(lines),
            Key::Look => due = Instant::now(),
            Key::None => {}
        }
        match feed.turn(Instant::now() >= due) {
            Ok(None) => {}
            Ok(Some(next)) => {
                (sample, remark, looks) = (next, None, looks + 1);
                due = Instant::now() + length(args.delay);
            }
            // It may be started again just now.
            Err(error) => {
                remark = Some(format!("{error:#}"));
                due = Instant::now() + length(args.delay);
            }
        }
    }
}
