//! `tutti resource`.

use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::ResourceReport;

const HELP: &str = "\
Examples:
  tutti resource                       all resources, and how much is in use
  tutti resource licence=20            20 licences for all jobs together
  tutti resource barrier=4 --lent      preempted jobs give their circuit back
  tutti resource licence=none          no licences any more

Jobs ask with `--resource NAME:COUNT`, and have the numbers until they end. A \
lower count takes nothing from jobs.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ResourceArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// How many jobs may have each number at a time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "settings")]
    jobs_each: u32,

    /// A job that policy=classes preempts gives its numbers back, and gets others when it resumes
    #[arg(long, requires = "settings")]
    lent: bool,

    /// How many there are of a resource, or none [default: show all]
    #[arg(value_name = "NAME=COUNT")]
    settings: Vec<String>,
}

pub(crate) fn execute(args: &ResourceArgs) -> anyhow::Result<Exit> {
    let mut settings = Vec::new();
    for setting in &args.settings {
        match setting.split_once('=') {
            Some((name, count)) => settings.push((name.trim().into(), count.trim().into())),
            None => {
                return Err(coded(
                    Code::BadValue,
                    format!("{setting:?} sets nothing; write NAME=COUNT, such as licence=20"),
                ));
            }
        }
    }
    let (jobs_each, lent) = (args.jobs_each, args.lent);
    let request = match settings.is_empty() {
        true => Request::Resources,
        false => Request::SetResources { settings, jobs_each, lent },
    };
    let Reply::Resources(resources) = ask(&request)? else { return unexpected() };
    if args.json {
        print_json(&resources)?;
    } else {
        print_table(&table(&resources))?;
    }
    Ok(Exit::OK)
}

fn table(resources: &[ResourceReport]) -> Table {
    let titles = ["COUNT", "IN USE", "JOBS", "QUEUED", "JOBS EACH"];
    let titles = titles.map(|title| (title, Align::Right));
    let ends = [("PREEMPTED", Align::Left)];
    let mut table = Table::new(&[&[("RESOURCE", Align::Left)][..], &titles, &ends].concat());
    for ResourceReport { resource, count, in_use, jobs_each, lent, jobs, queued } in resources {
        let numbers = [count, in_use, jobs, queued, jobs_each].map(ToString::to_string);
        let preempted = if *lent { "gives it back" } else { "keeps it" };
        let row = [resource.clone()].into_iter().chain(numbers).chain([preempted.to_owned()]);
        table.row(row);
    }
    table
}
