//! `tutti access`.

use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::AccessReport;

/// What the words mean.
const HELP: &str = "\
While the list is empty, all users may submit jobs, from every machine. Then only listed users may,
and root. A user listed by name and by groups may use the machines of all these. Jobs that
were submitted before continue. Machines are a list of nodes, as in a[1-8],b,set:login.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct AccessArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// Which users may submit jobs from where: ada=anywhere, @physics=login[1-2] for a group,
    /// all=set:login; ada=none removes a user from the list; without any, all are shown
    #[arg(value_name = "USER=MACHINES")]
    settings: Vec<String>,
}

pub(crate) fn execute(args: &AccessArgs) -> anyhow::Result<Exit> {
    let mut settings = Vec::new();
    for setting in &args.settings {
        match setting.split_once('=') {
            Some((who, from)) => settings.push((who.trim().into(), from.trim().into())),
            None => {
                return Err(coded(
                    Code::BadValue,
                    format!("{setting:?} sets nothing; write WHO=MACHINES, such as ada=anywhere"),
                ));
            }
        }
    }
    let request = match settings.is_empty() {
        true => Request::Access,
        false => Request::SetAccess { settings },
    };
    let Reply::Access(list) = ask(&request)? else { return unexpected() };
    if args.json {
        print_json(&list)?;
    } else if list.is_empty() {
        print("all users may submit jobs, from every machine\n")?;
    } else {
        print_table(&table(&list))?;
    }
    Ok(Exit::OK)
}

fn table(list: &[AccessReport]) -> Table {
    let mut table = Table::new(&[("WHO", Align::Left), ("FROM", Align::Left)]);
    for AccessReport { who, from } in list {
        table.row([who.clone(), from.clone()]);
    }
    table
}
