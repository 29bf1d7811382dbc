//! `tutti events`: what happens to jobs and nodes, as lines of JSON, or as calls of a command.

mod command;

use self::command::Command;
use super::job_range::{Several, targets_of, whole_jobs};
use clap::Args;
use nix::unistd::User;
use std::ffi::OsString;
use std::path::PathBuf;
use tutti_client::events::{EVENT_WORDS, EventStream, json_line, word_of};
use tutti_client::output::print;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::event::EventQuery;

const EXAMPLES: &str = "\
Examples:
  tutti events                         all events that are kept
  tutti events -f                      those from now on, until Ctrl-C
  tutti events -f --since 4711         go on behind event 4711
  tutti events --job 7 --job last      of two jobs
  tutti events --only job_ended --user ada
  tutti events -f --only job_ended --exec ./notify.sh --place ~/.tutti-place

Each line is one event; docs/reference/events.md has their words and fields. You \
see events of your own jobs and of nodes and settings; administrators see all. In \
a job, `tutti events --job $TUTTI_JOB` tells of its own ranks and nodes.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Print events as they happen, until Ctrl-C; without --since, from now on
    #[arg(short, long)]
    follow: bool,

    /// Those behind the event with this number; 0: all that are kept
    #[arg(short, long, value_name = "NUMBER")]
    since: Option<u64>,

    /// Of a job, the name of one of your jobs, or `last`; may be given several times
    #[arg(short, long = "job", value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,

    /// Of the jobs of a user, by name or number
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,

    /// Only those with one of these words
    #[arg(short, long, value_name = "WORDS", value_delimiter = ',', value_parser = EVENT_WORDS)]
    only: Vec<String>,

    /// Run a command for each event, by `sh -c`, with the line as its input; it is tried 3 times
    #[arg(short, long, value_name = "COMMAND")]
    exec: Option<OsString>,

    /// Keep in this file how far events were handled, and go on from there
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    place: Option<PathBuf>,
}

pub(crate) fn execute(args: &EventsArgs) -> anyhow::Result<Exit> {
    if let Some(user) = &args.user {
        check_user(user)?;
    }
    let jobs = jobs_of(&args.jobs)?;
    let kept = args.place.as_deref().map(command::read_place).transpose()?.flatten();
    let since = kept.or(args.since);
    let after = if args.follow { since } else { since.or(Some(0)) };
    let user = args.user.clone();
    let mut query = EventQuery { after, jobs, user, ..EventQuery::default() };
    if query.after.is_none() {
        // From here on nothing is missed, whichever controller answers.
        query.after = Some(EventStream::new(query.clone()).next_page()?.until);
    }
    // What happens before the first event is handled is not missed the next time, either.
    if let Some(after) = query.after.filter(|_| kept.is_none()) {
        write_place(args, after)?;
    }
    query.wait = args.follow;
    let command = args.exec.as_ref().map(|line| Command::new(line.clone()));
    let mut stream = EventStream::new(query);
    let mut last = None;
    loop {
        let page = stream.next_page()?;
        let mut text = String::new();
        for record in &page.events {
            let word = word_of(record);
            if !(args.only.is_empty() || args.only.contains(&word)) {
                continue;
            }
            let line = json_line(record)?;
            match &command {
                Some(command) => {
                    command.call(&line, &word, record);
                    write_place(args, record.number)?;
                }
                None => text.push_str(&format!("{line}\n")),
            }
        }
        print(&text)?;
        write_place(args, page.until)?;
        // What happens meanwhile is not waited for.
        if !args.follow && page.until >= *last.get_or_insert(page.last) {
            return Ok(Exit::OK);
        }
    }
}

/// A name that no user has would wait for events for ever.
fn check_user(user: &str) -> anyhow::Result<()> {
    let is_known = user.parse::<u32>().is_ok() || !matches!(User::from_name(user), Ok(None));
    if is_known {
        return Ok(());
    }
    let reason = format!("there is no user {user} on this machine; a number is taken as it is");
    Err(coded(Code::BadValue, reason))
}

fn write_place(args: &EventsArgs, number: u64) -> anyhow::Result<()> {
    args.place.as_deref().map_or(Ok(()), |path| command::write_place(path, number))
}

/// The numbers of jobs; those that are named by a number may be long gone.
fn jobs_of(several: &[Several]) -> anyhow::Result<Vec<JobId>> {
    let targets = targets_of(several, true)?;
    Ok(targets.into_iter().map(|target| target.job).collect())
}
