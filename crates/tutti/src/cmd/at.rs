//! `tutti at`.

use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_client::site_file::{self, FileOptions, Part, say_changes};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request, Section, Setting};
use tutti_wire::report::{TimedMoment, TimedReport};
use tutti_wire::units::parse_duration;

const HELP: &str = "\
Examples:
  tutti at                                      all changes, and their times
  tutti at --next 7d                            what happens within a week
  tutti at 'mon-fri 08:00' params interactive.rows=3 quantum=50ms
  tutti at 'mon-fri 18:00' nodes set:lab in     nodes that went out come back
  tutti at 'mon-fri 08:00' nodes set:lab out ahead=2h
  tutti at '2026-12-24 18:00' nodes n1,n2 out   on one day
  tutti at 'fri 18:00' release queue:weekend    held jobs come into line
  tutti at remove 3                             by its number
  tutti at --toml                               all changes, as a file has them
  tutti at --file site.toml --dry-run           what that file would change

Times are of the clocks of the controller's machine. A job does not start on a \
node that goes out before the time limit of the job (-t) is over; a job without \
a limit does not start there at all. With ahead=TIME that holds only so long \
before. What runs at that time runs on, as after `tutti nodes drain`. JOBS are \
numbers, queue:NAME or class:NAME.";

/// The words with which a change begins.
const CHANGES: [&str; 3] = ["params", "nodes", "release"];

#[derive(Args, Debug)]
#[command(after_help = HELP)]
#[command(group = clap::ArgGroup::new("how").args(["file", "toml", "next"])
    .conflicts_with("words"))]
pub(crate) struct AtArgs {
    /// Show what happens within this time, such as 7d
    #[arg(long, value_name = "TIME")]
    next: Option<String>,

    #[command(flatten)]
    site: FileOptions,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// When, and what: params NAME=VALUE..., nodes LIST out [ahead=TIME], nodes LIST in, release
    /// JOBS; or remove NUMBER... [default: show all]
    #[arg(value_name = "TIME CHANGE")]
    words: Vec<String>,
}

pub(crate) fn execute(args: &AtArgs) -> anyhow::Result<Exit> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let typed = match words[..] {
        [] | ["list"] => Vec::new(),
        ["remove", ref numbers @ ..] if !numbers.is_empty() => {
            numbers.iter().map(|number| setting(number, "remove")).collect()
        }
        _ => vec![change_of(&words)?],
    };
    if let Some(lines) = args.site.run(Part::At, None, typed)? {
        say_changes(&lines)?;
        return Ok(Exit::OK);
    }
    show(args)
}

fn setting(name: &str, value: &str) -> Setting {
    let (name, value) = (name.to_owned(), value.to_owned());
    Setting { line: 0, section: Section::At, during: None, name, value }
}

fn change_of(words: &[&str]) -> anyhow::Result<Setting> {
    match words.iter().position(|word| CHANGES.contains(word)) {
        Some(at) if at > 0 => Ok(setting(&words[..at].join(" "), &words[at..].join(" "))),
        _ => {
            let reason = format!(
                "{:?} is no change; write a time and what happens then, such as \
                 'mon 08:00' nodes n1 out",
                words.join(" ")
            );
            Err(coded(Code::BadValue, reason))
        }
    }
}

fn show(args: &AtArgs) -> anyhow::Result<Exit> {
    let ahead = args.next.as_deref().map(parse_duration).transpose();
    let ahead = ahead.map_err(|error| coded(Code::BadValue, format!("--next: {error}")))?;
    let ahead_s = ahead.map(|ahead| ahead.0 / 1_000_000_000);
    let Reply::Timed { changes, coming } = ask(&Request::Timed { ahead_s })? else {
        return unexpected();
    };
    match (args.json, args.site.toml, ahead_s) {
        (true, _, Some(_)) => print_json(&coming)?,
        (true, _, None) => print_json(&changes)?,
        (false, true, _) => print(&site_file::changes_at(&changes))?,
        (false, false, Some(_)) if coming.is_empty() => print("nothing happens by then\n")?,
        (false, false, Some(_)) => print_table(&moments(&coming))?,
        (false, false, None) if changes.is_empty() => print("nothing changes at any time\n")?,
        (false, false, None) => print_table(&table(&changes))?,
    }
    Ok(Exit::OK)
}

fn table(changes: &[TimedReport]) -> Table {
    let left = ["WHEN", "NEXT", "LAST", "CHANGE"].map(|title| (title, Align::Left));
    let mut table = Table::new(&[&[("NUMBER", Align::Right)][..], &left].concat());
    for change in changes {
        let moment = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".into());
        let last = match &change.failed {
            Some(reason) => format!("{} failed: {reason}", moment(&change.last)),
            None => moment(&change.last),
        };
        let number = change.number.to_string();
        table.row([number, change.when.clone(), moment(&change.next), last, change.change.clone()]);
    }
    table
}

fn moments(coming: &[TimedMoment]) -> Table {
    let mut table =
        Table::new(&[("AT", Align::Left), ("NUMBER", Align::Right), ("CHANGE", Align::Left)]);
    for TimedMoment { at, number, change, .. } in coming {
        table.row([at.clone(), number.to_string(), change.clone()]);
    }
    table
}
