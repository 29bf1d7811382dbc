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
use tutti_core::Nanos;
use tutti_node::exit::Exit;
use tutti_wire::report::{JobReport, NodeReport, Target, TaskReport};
use view::{Room, View};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    /// How long between two looks, at least 100ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = delay)]
    delay: Nanos,

    /// Ends after so many looks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// One look below the other, as where the output is no terminal
    #[arg(short, long)]
    batch: bool,

    /// As JSON: an object in a line for each look
    #[arg(long, conflicts_with = "batch")]
    json: bool,

    /// List only jobs of this user
    #[arg(short, long)]
    user: Option<String>,

    /// Also the processes of these: a job, a rank of one, or a process with all below it: 7, 7.0, 7.0/1234
    #[arg(value_name = "JOB")]
    targets: Vec<Target>,
}

const HELP: &str = "\
Above is the matrix: a line for each row, with its part of the time, and in it a place for each
processor of each node, with the letter of the job that has it in that row's turns. Where that is
too wide, each node has one place: the letter of the job with most processors there, and a +
behind it where it is not alone. What a row leaves idle (a dot), jobs of others may use meanwhile.

CPU is processor time since the look before, in parts of one processor, and - while that is not
known of all nodes of the job, or where there are no cgroups; the other columns are those of
`tutti ps`.

Keys: q or ^C ends it, ^Z stops it until `fg`, up, down, page up and page down show other jobs,
space looks again at once.";

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
            // Nobody is shown who ended before the first look.
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

/// On a terminal, until somebody ends it.
fn live(args: &TopArgs) -> anyhow::Result<Exit> {
    // Who asks for a job that is not there hears so before the screen changes.
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
