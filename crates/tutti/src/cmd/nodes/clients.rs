//! The client machines of a cluster.

use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_node::exit::Exit;
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

/// Below the nodes, if there are any.
pub(super) fn print_below() -> anyhow::Result<()> {
    let clients = clients()?;
    if clients.is_empty() {
        return Ok(());
    }
    print("\n")?;
    print_table(&table(&clients))
}

fn clients() -> anyhow::Result<Vec<ClientReport>> {
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
