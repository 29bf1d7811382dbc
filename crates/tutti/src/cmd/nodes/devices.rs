//! `tutti nodes device`.

use super::nodes_after;
use tutti_client::ask::{ask, pages_of_nodes};
use tutti_client::output::{Align, Table, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::host_list::format_host_list;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{AgentStatus, DeviceReport, NodeReport};

pub(super) fn execute(node: Option<&str>, settings: &[String], json: bool) -> anyhow::Result<Exit> {
    let mut orders = Vec::new();
    for setting in settings {
        match setting.split_once('=') {
            Some((device, files)) => orders.push((device.trim().into(), files.trim().into())),
            None => {
                return Err(coded(
                    Code::BadValue,
                    format!(
                        "{setting:?} sets nothing; write NAME:NUMBER=FILE, such as \
                         gpu:0=/dev/nvidia0"
                    ),
                ));
            }
        }
    }
    let nodes = match (node, orders.is_empty()) {
        (Some(node), false) => {
            nodes_after(Request::SetDevices { node: node.to_owned(), settings: orders })?
        }
        _ => pages_of_nodes(|from| ask(&Request::Nodes { from }))?,
    };
    if let Some(name) = node.filter(|name| nodes.iter().all(|node| node.name != *name)) {
        let reason = format!("there is no node {name}; `tutti nodes` lists them");
        return Err(coded(Code::BadValue, reason));
    }
    let nodes: Vec<(&NodeReport, Vec<&DeviceReport>)> = nodes
        .iter()
        .filter(|it| node.is_none_or(|name| it.name == name))
        .map(|node| (node, with_files(node)))
        .collect();
    if json {
        let all: std::collections::BTreeMap<&str, &[&DeviceReport]> =
            nodes.iter().map(|(node, all)| (node.name.as_str(), all.as_slice())).collect();
        print_json(&all)?;
    } else {
        print_table(&table(&nodes))?;
        if nodes.iter().any(|(_, all)| !all.is_empty()) {
            say_open();
        }
    }
    Ok(Exit::OK)
}

/// What has no file is a resource that is counted: `tutti nodes resource` shows it.
fn with_files(node: &NodeReport) -> Vec<&DeviceReport> {
    node.devices.iter().filter(|device| !device.files.is_empty()).collect()
}

/// Says on which nodes jobs can open the devices of others.
fn say_open() {
    let Ok(Reply::Status(status)) = ask(&Request::Status) else { return };
    let is_open = |agent: &&AgentStatus| agent.device_control == "none";
    let open = status.agents.iter().filter(is_open).map(|agent| agent.node.as_str());
    let open: Vec<&str> = open.collect();
    if !open.is_empty() {
        let names = format_host_list(open);
        say!("tutti: jobs can open devices of other jobs on {names}; `tutti doctor` says why");
    }
}

fn table(nodes: &[(&NodeReport, Vec<&DeviceReport>)]) -> Table {
    let left = |title| (title, Align::Left);
    let titles = ["NODE", "DEVICE", "FILES", "PCI ADDRESS"].map(left);
    let ends = [("NUMA", Align::Right), left("ORIGIN"), left("JOBS")];
    let mut table = Table::new(&[&titles[..], &ends].concat());
    for (node, device) in nodes.iter().flat_map(|(node, all)| all.iter().map(move |it| (node, it)))
    {
        table.row([
            node.name.clone(),
            device.device.clone(),
            device.files.join(" "),
            device.pci_address.clone().unwrap_or_default(),
            device.numa_node.map(|node| node.to_string()).unwrap_or_default(),
            device.origin.clone(),
            device.jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        ]);
    }
    table
}

/// How many devices of each name jobs have, of how many: `gpu:1/4`.
pub(super) fn counts(devices: &[DeviceReport]) -> String {
    let name_of = |device: &DeviceReport| device.device.split(':').next().unwrap_or("").to_owned();
    let mut counts: Vec<(String, usize, usize)> = Vec::new();
    for device in devices {
        let name = name_of(device);
        let used = usize::from(!device.jobs.is_empty());
        match counts.last_mut().filter(|(last, ..)| *last == name) {
            Some((_, in_use, all)) => (*in_use, *all) = (*in_use + used, *all + 1),
            None => counts.push((name, used, 1)),
        }
    }
    let shown = counts.iter().map(|(name, used, all)| format!("{name}:{used}/{all}"));
    shown.collect::<Vec<_>>().join(" ")
}
