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
Examples:
  tutti access                            show the list
  tutti access ada=anywhere               ada may submit jobs from every machine
  tutti access '@physics=login[1-2]'      a group, from two machines
  tutti access ada='10.1.0.0/16,*.lab'    by address, and by host name
  tutti access ada=@staff                 from the machines of a netgroup
  tutti access ada=none                   remove ada from the list

While the list is empty, all users may submit jobs, from every machine. \
Otherwise only listed users and root may. A user listed by name and by groups \
may use the machines of all these entries. Jobs submitted before go on. A host \
name counts only if it leads back to the address of the machine.";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct AccessArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// User, group (@physics) or all, and the machines: anywhere, a list of nodes (a[1-8],
    /// set:login), addresses (10.1.0.0/16), host names (*.lab) and netgroups (@staff), or none to
    /// remove the entry [default: show all]
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
                    format!("{setting:?} sets nothing; write USER=MACHINES, such as ada=anywhere"),
                ));
            }
        }
    }
    let Reply::Access(mut list) = ask(&Request::Access)? else { return unexpected() };
    let all_may = list.is_empty();
    if !settings.is_empty() {
        let Reply::Access(now) = ask(&Request::SetAccess { settings })? else {
            return unexpected();
        };
        list = now;
        if all_may && !list.is_empty() {
            say!("tutti: from now on only these users may submit jobs, and root");
        }
    }
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
    let mut table = Table::new(&[("USER", Align::Left), ("FROM", Align::Left)]);
    for AccessReport { user, from } in list {
        table.row([user.clone(), from.clone()]);
    }
    table
}
