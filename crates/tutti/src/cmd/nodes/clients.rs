//! The client machines of a cluster.

use super::super::cluster::{membership_of_head, users_of_client};
use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::membership::Place;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::ClientReport;

pub(super) fn execute(json: bool) -> anyhow::Result<Exit> {
    let clients = clients()?;
    match json {
        true => print_json(&clients)?,
        false => print_table(&table(&clients))?,
    }
    Ok(Exit::OK)
}

/// Gives a client machine other users. Streams that are open stay.
pub(super) fn set_users(name: &str, users: &[String]) -> anyhow::Result<Exit> {
    let place = Place::of(&Instance::locate());
    membership_of_head(&place, "users of client machines change")?;
    if !place.set_users(name, users_of_client(users)?)? {
        let reason = format!("there is no client machine {name}; `tutti nodes clients` shows all");
        return Err(coded(Code::NoSuchNodes, reason));
    }
    print(&format!("client machine {name} speaks for {} from now on\n", users.join(", ")))?;
    Ok(Exit::OK)
}

/// Below the nodes, if there are any.
pub(super) fn print_below() -> anyhow::Result<()> {
    let clients = clients()?;
    if clients.is_empty() {
        return Ok(());
    }
    print("\n")?;
    print_table(&table(&clients))
}

/// All of them.
pub(in super::super) fn clients() -> anyhow::Result<Vec<ClientReport>> {
    all_pages(0, |from| match ask(&Request::Clients { from })? {
        Reply::Clients { clients, next } => Ok((clients, next)),
        _ => unexpected(),
    })
}

fn table(clients: &[ClientReport]) -> Table {
    let columns = ["CLIENT", "STATE", "ADDRESS", "USERS"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns).painted(&[("STATE", of_state)]);
    for client in clients {
        let users = client.users.as_ref().map_or_else(|| "all".into(), |users| users.join(","));
        let address = client.address.clone().unwrap_or_default();
        table.row([client.name.clone(), client.state.clone(), address, users]);
    }
    table
}
