//! `tutti nodes`: which there are, which take jobs, and sets of them.

pub(super) mod clients;
mod devices;
mod one;
mod resources;
mod timetable;

use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use tutti_client::ask::{ask, pages_of_nodes};
use tutti_client::node_list;
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table, counted, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::{Nanos, ProcessorSet};
use tutti_wire::code::Code;
use tutti_wire::host_list::format_host_list;
use tutti_wire::local::{NodeChange, Request};
use tutti_wire::report::NodeReport;
use tutti_wire::units::{format_bytes, format_duration_short};

/// What the columns of a node mean.
const COLUMNS: &str = "\
Examples:
  tutti nodes
  tutti nodes drain 'a[1-4]' --reason 'new memory'
  tutti nodes resume a1,a2
  tutti nodes set 'gpu=b[1-2]'    jobs ask for it by -w set:gpu
  tutti nodes a1                  all that is known of a1, with its performance
  tutti nodes --timetable a1      the slots of a1, and the jobs that have them

Columns:
  STATE      up, drained (takes no new jobs), unreachable (its jobs go on until
             its lease expires), lost, or down (by `tutti down` there)
  USED       processors that a job has
  ALLOCATED  memory that jobs in the matrix have by --memory
  JOBS       jobs with tasks on the node
  DEVICES    devices that jobs have, of all: gpu:1/4
  EXTERNAL   processors that external load has used lately; in brackets those
             that jobs get last, or not at all (tutti params foreign)
  BRANCH     nodes that are connected through this one, and jobs on all of them
  PARENT     the node through which this one is connected
  CLOCK      maximum error of cluster time; switches are no more exact

Lists of nodes: a[1-8],b,set:gpu is a1 to a8, b, and the nodes of the set gpu.";

const DRAIN_EXAMPLES: &str = "\
Examples:
  tutti nodes drain a1 --reason 'new memory'
  tutti nodes drain 'a[1-8]'      quotes keep the shell from the brackets";

const RESUME_EXAMPLES: &str = "\
Examples:
  tutti nodes resume a1";

const REMOVE_EXAMPLES: &str = "\
Examples:
  tutti nodes drain a1            first: no new jobs
  tutti nodes remove a1           then: once its jobs have ended";

const CLIENTS_EXAMPLES: &str = "\
Examples:
  tutti nodes clients
  tutti nodes clients desk1 --users ada,eve
                                  its users from now on
  tutti nodes remove desk1        take the client machine desk1 out
  tutti invite --client --users ada,bob
                                  let another one join

Columns:
  STATE    up while it is connected, or away
  ADDRESS  from which it is connected
  USERS    the users that it may speak for; all is every user but root";

const FEATURES_EXAMPLES: &str = "\
Examples:
  tutti nodes features
  tutti run -C 'avx2&intel' ./a   on nodes that have both

Nodes are found to have an architecture, a maker, instructions and the levels of
x86-64. A set of nodes is a feature, too: tutti nodes set ssd='a[1-4]'.";

const SET_EXAMPLES: &str = "\
Examples:
  tutti nodes set                 show the sets
  tutti nodes set 'gpu=b[1-2]'    jobs ask for it by -w set:gpu
  tutti nodes set gpu=none        delete the set";

const DEVICE_EXAMPLES: &str = "\
Examples:
  tutti nodes device                             show the devices of all nodes
  tutti nodes device a1 gpu:0=/dev/nvidia0,gpu:1=/dev/nvidia1
  tutti nodes device a1 gpu:0=nvidia.com/gpu=0   by its CDI name
  tutti nodes device a1 fpga:0=/dev/xdma0_user+/dev/xdma0_control
  tutti nodes device a1 gpu:1=none               jobs get gpu:1 no more

The agent of a node finds GPUs of NVIDIA and AMD by itself. Jobs ask with
`--gpus` and `--device`. Jobs that run keep what they have.";

const RESOURCE_EXAMPLES: &str = "\
Examples:
  tutti nodes resource                    show the resources of all nodes
  tutti nodes resource 'a[1-4]' scratch=2 two on each of these nodes
  tutti nodes resource a1 scratch=none    a1 has none any more
  tutti run --resource scratch ./a        one for the job
  tutti run -n 4 --resource scratch:1/node ./a

Resources of the whole cluster are set by `tutti resource`. A lower count takes
nothing from jobs.";

#[derive(Args, Debug)]
#[command(after_help = COLUMNS, args_conflicts_with_subcommands = true)]
pub(crate) struct NodesArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// Show the timetable that a node's agent follows
    #[arg(long, value_name = "NODE")]
    timetable: Option<String>,

    /// Show all that is known of one node
    #[arg(value_name = "NODE", conflicts_with = "timetable")]
    node: Option<String>,

    #[command(subcommand)]
    order: Option<Order>,
}

#[derive(Subcommand, Debug)]
enum Order {
    /// Let nodes take no new jobs; running jobs go on
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain {
        /// Nodes to drain
        #[arg(value_name = "NODES", value_parser = node_list)]
        nodes: String,
        /// Reason, shown by `tutti nodes` and for jobs that wait
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Let drained nodes take jobs again
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        /// Nodes to resume
        #[arg(value_name = "NODES", value_parser = node_list)]
        nodes: String,
    },
    /// Take nodes out of the cluster
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// Nodes to remove
        #[arg(value_name = "NODES", value_parser = node_list)]
        nodes: String,
        /// Also nodes with jobs: these end as at the loss of a node, once none of their processes
        /// runs there
        #[arg(long)]
        now: bool,
    },
    /// Show the client machines, or give one other users: they submit there, and no task runs there
    #[command(after_help = CLIENTS_EXAMPLES)]
    Clients {
        /// The client machine that gets other users
        #[arg(value_name = "NAME", requires = "users")]
        name: Option<String>,

        /// Users that it may speak for from now on: names or numbers, or all for every user but
        /// root; at the head
        #[arg(
            long,
            value_name = "USERS",
            value_delimiter = ',',
            requires = "name",
            conflicts_with = "json"
        )]
        users: Vec<String>,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what nodes have that jobs may ask for by --constraint
    #[command(after_help = FEATURES_EXAMPLES)]
    Features {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show devices of nodes, and name others
    #[command(after_help = DEVICE_EXAMPLES)]
    Device {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// The node [default: all]
        node: Option<String>,
        /// A device and its files: gpu:0=/dev/nvidia0; several files are joined by +; gpu:0=none
        /// takes it away
        #[arg(value_name = "NAME:NUMBER=FILE", value_delimiter = ',')]
        settings: Vec<String>,
    },
    /// Show and set counted resources that nodes have of their own
    #[command(after_help = RESOURCE_EXAMPLES)]
    Resource {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// The nodes [default: all]
        nodes: Option<String>,
        /// How many of a resource each of the nodes has, or none
        #[arg(value_name = "NAME=COUNT", value_delimiter = ',')]
        settings: Vec<String>,
    },
    /// Show and change named sets of nodes
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Name and nodes of a set: gpu=a[1-4]; gpu=none deletes it
        #[arg(value_name = "NAME=NODES")]
        settings: Vec<String>,
    },
}

pub(crate) fn execute(args: NodesArgs) -> anyhow::Result<Exit> {
    if let Some(node) = args.timetable {
        return timetable::execute(node, args.json);
    }
    if let Some(node) = args.node {
        return one::execute(&node, args.json);
    }
    let order = match args.order {
        None => None,
        Some(Order::Set { json, settings }) => return sets(json, &settings),
        Some(Order::Features { json }) => return features(json),
        Some(Order::Clients { name: Some(name), users, .. }) => {
            return clients::set_users(&name, &users);
        }
        Some(Order::Clients { json, .. }) => return clients::execute(json),
        Some(Order::Device { json, node, settings }) => {
            return devices::execute(node.as_deref(), &settings, json);
        }
        Some(Order::Resource { json, nodes, settings }) => {
            return resources::execute(nodes.as_deref(), &settings, json);
        }
        Some(Order::Drain { nodes, reason }) => {
            Some(Request::ChangeNodes { nodes, change: NodeChange::Drain { reason } })
        }
        Some(Order::Resume { nodes }) => {
            Some(Request::ChangeNodes { nodes, change: NodeChange::Resume })
        }
        Some(Order::Remove { nodes, now }) => {
            Some(Request::ChangeNodes { nodes, change: NodeChange::Remove { now } })
        }
    };
    let is_order = order.is_some();
    let nodes = match order {
        Some(order) => nodes_after(order)?,
        None => pages_of_nodes(|from| ask(&Request::NodesClosely { from }))?,
    };
    match (args.json, is_order) {
        (true, _) => print_json(&nodes)?,
        (false, false) => {
            print_table(&table(&nodes))?;
            clients::print_below()?;
        }
        // Done, and no more to be said.
        (false, true) => {}
    }
    Ok(Exit::OK)
}

/// All nodes once an order about them is carried out, which is answered with their first page.
fn nodes_after(order: Request) -> anyhow::Result<Vec<NodeReport>> {
    let mut order = Some(order);
    pages_of_nodes(|from| ask(&order.take().unwrap_or(Request::Nodes { from })))
}

fn sets(json: bool, settings: &[String]) -> anyhow::Result<Exit> {
    let mut orders = Vec::new();
    for setting in settings {
        match setting.split_once('=') {
            Some((name, nodes)) => orders.push((name.trim().into(), nodes.trim().into())),
            None => {
                return Err(coded(
                    Code::BadValue,
                    format!("{setting:?} sets nothing; write NAME=NODES, such as gpu=a[1-4]"),
                ));
            }
        }
    }
    let nodes = match orders.is_empty() {
        true => pages_of_nodes(|from| ask(&Request::Nodes { from }))?,
        false => nodes_after(Request::SetNodeSets { settings: orders })?,
    };
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in &nodes {
        for set in &node.sets {
            sets.entry(set).or_default().push(&node.name);
        }
    }
    if json {
        print_json(&sets)?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&[("SET", Align::Left), ("NODES", Align::Left)]);
    for (set, nodes) in sets {
        table.row([set.to_owned(), format_host_list(nodes)]);
    }
    print_table(&table)?;
    Ok(Exit::OK)
}

/// Nodes that have the same stand in one row.
fn features(json: bool) -> anyhow::Result<Exit> {
    let nodes = pages_of_nodes(|from| ask(&Request::Nodes { from }))?;
    let mut alike: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for node in &nodes {
        let features = node.sets.iter().chain(&node.features).map(String::as_str).collect();
        alike.entry(features).or_default().push(&node.name);
    }
    if json {
        let by_nodes: BTreeMap<String, Vec<&str>> = alike
            .into_iter()
            .map(|(features, nodes)| (format_host_list(nodes), features))
            .collect();
        print_json(&by_nodes)?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&[("NODES", Align::Left), ("FEATURES", Align::Left)]);
    for (features, nodes) in alike {
        table.row([format_host_list(nodes), features.join(" ")]);
    }
    print_table(&table)?;
    Ok(Exit::OK)
}

fn table(nodes: &[NodeReport]) -> Table {
    // What most clusters never use takes no room there.
    let sets = nodes.iter().any(|node| !node.sets.is_empty());
    let cluster = nodes.len() > 1;
    let reasons = nodes.iter().any(|node| node.drained.is_some());
    let has_external =
        |node: &NodeReport| node.external_load_milli.is_some() || !node.external_load.is_empty();
    let has_externals = nodes.iter().any(has_external);
    let is_inner = |node: &NodeReport| node.depth > Some(0) && node.branch_nodes > Some(0);
    let levels = nodes.iter().any(is_inner);
    let has_devices = nodes.iter().any(|node| !node.devices.is_empty());
    let mut columns = vec![
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("PROCESSORS", Align::Right),
        ("USED", Align::Right),
        ("MEMORY", Align::Right),
        ("ALLOCATED", Align::Right),
        ("JOBS", Align::Right),
    ];
    columns.extend(has_devices.then_some(("DEVICES", Align::Left)));
    columns.extend(has_externals.then_some(("EXTERNAL", Align::Right)));
    columns.extend(cluster.then_some(("PARENT", Align::Left)));
    columns.extend(levels.then_some(("BRANCH", Align::Left)));
    columns.extend(cluster.then_some(("CLOCK", Align::Right)));
    columns.extend(sets.then_some(("SETS", Align::Left)));
    columns.extend(reasons.then_some(("REASON", Align::Left)));
    let mut table = Table::new(&columns)
        .can_spare(&["BRANCH", "ALLOCATED", "CLOCK", "EXTERNAL", "PARENT", "SETS", "STATE"])
        .painted(&[("STATE", of_state)]);
    for node in nodes {
        let mut row = vec![
            node.name.clone(),
            node.state.clone(),
            node.processors.to_string(),
            node.processors_used.to_string(),
            format_bytes(node.memory_bytes),
            format_bytes(node.memory_allocated_bytes),
            node.jobs.to_string(),
        ];
        row.extend(has_devices.then(|| devices::counts(&node.devices)));
        row.extend(has_externals.then(|| external(node)));
        row.extend(cluster.then(|| node.parent.clone().unwrap_or_default()));
        row.extend(levels.then(|| branch(node)));
        if cluster {
            let clock = node.clock_error_ns.map(|ns| format_duration_short(Nanos(ns)));
            row.push(clock.unwrap_or_default());
        }
        row.extend(sets.then(|| node.sets.join(",")));
        row.extend(reasons.then(|| node.drained.clone().unwrap_or_default()));
        table.row(row);
    }
    table
}

/// So many thousandths, to the tenth.
fn processors(milli: u32) -> String {
    let tenths = milli.saturating_add(50) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// How many processors external load uses, and those that jobs avoid for it.
pub(super) fn external(node: &NodeReport) -> String {
    let used = node.external_load_milli.map(processors);
    let left: ProcessorSet = node.external_load.iter().copied().collect();
    let left = (!left.is_empty()).then(|| format!("({left})"));
    used.into_iter().chain(left).collect::<Vec<_>>().join(" ")
}

/// Nothing for a node without nodes below.
fn branch(node: &NodeReport) -> String {
    match (node.branch_nodes, node.branch_jobs) {
        (Some(nodes), Some(jobs)) if nodes > 0 => {
            format!("{}, {}", counted(nodes, "node"), counted(jobs, "job"))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::processors;

    #[test]
    fn processors_are_given_to_the_tenth() {
        let given = [0, 49, 50, 949, 950, 12_345].map(processors);
        assert_eq!(given, ["0.0", "0.0", "0.1", "0.9", "1.0", "12.3"]);
        assert_eq!(processors(u32::MAX), "4294967.2");
    }
}
