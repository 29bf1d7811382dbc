//! `tutti nodes NODE`: all that is known of one node, a line for each fact.

use super::{devices, external};
use tutti_client::ask::{ask, pages_of_nodes};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::{Figures, Nanos};
use tutti_wire::code::Code;
use tutti_wire::local::Request;
use tutti_wire::report::{LinkReport, NetworkReport, NodeReport};
use tutti_wire::units::{format_bytes, format_duration_short};

pub(super) fn execute(name: &str, json: bool) -> anyhow::Result<Exit> {
    let mut nodes = pages_of_nodes(|from| ask(&Request::NodesClosely { from }))?;
    nodes.retain(|node| node.name == name);
    let Some(node) = nodes.first() else {
        let reason = format!("no node is named {name}; see `tutti nodes`");
        return Err(coded(Code::NoSuchNodes, reason));
    };
    if json {
        print_json(&nodes)?;
    } else {
        // Its heading is empty.
        print(table(node).render().trim_start_matches('\n'))?;
    }
    Ok(Exit::OK)
}

fn table(node: &NodeReport) -> Table {
    let short = |ns: u64| format_duration_short(Nanos(ns));
    let state = match &node.drained {
        Some(reason) if !reason.is_empty() => format!("{}: {reason}", node.state),
        Some(_) | None => node.state.clone(),
    };
    let mut rows = vec![
        ("node", node.name.clone()),
        ("state", state),
        ("processors", format!("{}, {} used", node.processors, node.processors_used)),
        ("memory", memory(node)),
        ("jobs", node.jobs.to_string()),
    ];
    rows.extend((!node.devices.is_empty()).then(|| ("devices", devices::counts(&node.devices))));
    rows.extend((!node.sets.is_empty()).then(|| ("sets", node.sets.join(","))));
    rows.extend((!node.features.is_empty()).then(|| ("features", node.features.join(" "))));
    rows.extend(node.load_averages_milli.map(|loads| ("load averages", averages(loads))));
    let has_external = node.external_load_milli.is_some() || !node.external_load.is_empty();
    rows.extend(has_external.then(|| ("external load", external(node))));
    rows.extend(node.parent.clone().filter(|it| !it.is_empty()).map(|parent| ("parent", parent)));
    rows.extend(node.clock_error_ns.map(|ns| ("clock error", short(ns))));
    rows.extend(node.figures.map(|figures| ("performance", performance(figures))));
    rows.extend(node.network.as_ref().map(|it| ("network", network(it))));
    rows.extend(node.network.as_ref().and_then(|it| it.link.as_ref()).map(|it| ("link", link(it))));
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    rows.into_iter().for_each(|(what, value)| table.row([what.to_owned(), value]));
    table
}

fn memory(node: &NodeReport) -> String {
    let free = node.memory_free_bytes;
    let free = free.map_or_else(String::new, |free| format!(", {} free", format_bytes(free)));
    let (all, allocated) = (node.memory_bytes, node.memory_allocated_bytes);
    format!("{}, {} allocated{free}", format_bytes(all), format_bytes(allocated))
}

fn averages(milli: [u32; 3]) -> String {
    milli.map(|it| format!("{}.{:02}", it / 1000, it % 1000 / 10)).join(" ")
}

fn performance(Figures { int, float, double, memory }: Figures) -> String {
    format!("int {int}, float {float}, double {double}, memory {memory} MB/s")
}

fn network(NetworkReport { bandwidth_mb_s, latency_us, .. }: &NetworkReport) -> String {
    format!("{bandwidth_mb_s} MB/s, {latency_us} us")
}

fn link(LinkReport { to, bandwidth_mb_s, latency_us }: &LinkReport) -> String {
    format!("{bandwidth_mb_s} MB/s, {latency_us} us, to {to}")
}

#[cfg(test)]
mod tests {
    use super::{LinkReport, NetworkReport, averages, link, network};

    #[test]
    fn figures_have_their_units() {
        let to = LinkReport { to: "a1".into(), bandwidth_mb_s: 11, latency_us: 240 };
        assert_eq!(link(&to), "11 MB/s, 240 us, to a1");
        let of = NetworkReport { bandwidth_mb_s: 117, latency_us: 55, link: Some(to) };
        assert_eq!(network(&of), "117 MB/s, 55 us");
        assert_eq!(averages([1250, 70, 0]), "1.25 0.07 0.00");
    }
}
