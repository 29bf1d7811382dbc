//! `tutti nodes resource`.

use super::nodes_after;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tutti_client::ask::{ask, pages_of_nodes};
use tutti_client::output::{Align, Table, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::host_list::{HostItem, parse_host_list};
use tutti_wire::local::Request;
use tutti_wire::report::NodeReport;

/// What one node has of a resource.
#[derive(Default, Serialize)]
struct OfNode {
    /// How many.
    count: u32,
    /// How many of them jobs have.
    in_use: u32,
    /// The jobs that have some.
    jobs: BTreeSet<JobId>,
}

pub(super) fn execute(list: Option<&str>, settings: &[String], json: bool) -> anyhow::Result<Exit> {
    let mut orders = Vec::new();
    for setting in settings {
        match setting.split_once('=') {
            Some((name, count)) => orders.push((name.trim().into(), count.trim().into())),
            None => {
                return Err(coded(
                    Code::BadValue,
                    format!("{setting:?} sets nothing; write NAME=COUNT, such as scratch=2"),
                ));
            }
        }
    }
    if let Some(setting) = list.filter(|list| list.contains('=')) {
        let reason = format!(
            "name the nodes before what they have, such as a1 {setting}; `tutti resource` counts \
             what the whole cluster has"
        );
        return Err(coded(Code::BadValue, reason));
    }
    let nodes = match (list, orders.is_empty()) {
        (Some(list), false) => {
            nodes_after(Request::SetNodeResources { nodes: list.to_owned(), settings: orders })?
        }
        _ => pages_of_nodes(|from| ask(&Request::Nodes { from }))?,
    };
    let items = list.map(parse_host_list).transpose();
    let items = items.map_err(|error| coded(Code::BadValue, error.to_string()))?;
    let is_meant = |node: &&NodeReport| {
        let holds = |item: &HostItem| match item {
            HostItem::Names(names) => names.contains(&node.name),
            HostItem::Set(set) => node.sets.contains(set),
        };
        items.as_ref().is_none_or(|items| items.iter().any(holds))
    };
    let meant: Vec<&NodeReport> = nodes.iter().filter(is_meant).collect();
    if let Some(list) = list.filter(|_| meant.is_empty()) {
        let reason = format!("there is no node {list}; `tutti nodes` lists them");
        return Err(coded(Code::BadValue, reason));
    }
    let all: BTreeMap<&str, BTreeMap<&str, OfNode>> =
        meant.iter().map(|node| (node.name.as_str(), of_node(node))).collect();
    match json {
        true => print_json(&all)?,
        false => print_table(&table(&all))?,
    }
    Ok(Exit::OK)
}

fn of_node(node: &NodeReport) -> BTreeMap<&str, OfNode> {
    let mut all: BTreeMap<&str, OfNode> = BTreeMap::new();
    for device in node.devices.iter().filter(|device| device.files.is_empty()) {
        let Some((name, _)) = device.device.split_once(':') else { continue };
        let of_node = all.entry(name).or_default();
        of_node.count += 1;
        of_node.in_use += u32::from(!device.jobs.is_empty());
        of_node.jobs.extend(&device.jobs);
    }
    all
}

fn table(all: &BTreeMap<&str, BTreeMap<&str, OfNode>>) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("RESOURCE", Align::Left),
        ("COUNT", Align::Right),
        ("IN USE", Align::Right),
        ("JOBS", Align::Left),
    ]);
    for (node, resources) in all {
        for (name, OfNode { count, in_use, jobs }) in resources {
            table.row([
                (*node).to_owned(),
                (*name).to_owned(),
                count.to_string(),
                in_use.to_string(),
                jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            ]);
        }
    }
    table
}
