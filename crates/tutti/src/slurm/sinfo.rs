//! `sinfo`.

use super::cluster::{Partition, nodes, partitions};
use super::format::{self, Piece, duration_short};
use super::options::{Known, Line, Order, flag, read, value};
use super::{print_version, wrong};
use std::collections::BTreeMap;
use std::ffi::OsString;
use tutti_client::output::print;
use tutti_wire::host_list::format_host_list;
use tutti_wire::report::{DeviceReport, NodeReport};

const NAME: &str = "sinfo";

const OPTIONS: &[Known] = &[
    flag("all", Some('a')),
    value("clusters", Some('M')),
    flag("dead", Some('d')),
    flag("exact", Some('e')),
    flag("federation", None),
    value("format", Some('o')),
    value("Format", Some('O')),
    flag("future", Some('F')),
    flag("help", None),
    flag("hide", None),
    value("iterate", Some('i')),
    flag("json", None),
    flag("list-reasons", Some('R')),
    flag("local", None),
    flag("long", Some('l')),
    flag("Node", Some('N')),
    value("nodes", Some('n')),
    flag("noconvert", None),
    flag("noheader", Some('h')),
    value("partition", Some('p')),
    flag("reservation", Some('T')),
    flag("responding", Some('r')),
    value("sort", Some('S')),
    value("states", Some('t')),
    flag("summarize", Some('s')),
    flag("usage", None),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
    flag("yaml", None),
];

const HELP: &str = "\
sinfo: list partitions and nodes in the columns of Slurm's sinfo; `tutti nodes`
and `tutti queue` show more. Partitions are queues and classes.

  sinfo                      partitions, with their nodes by state
  sinfo -N -l                a line for each node
  sinfo -h -o '%P %D %t'     columns of your own

Which: -p/--partition, -n/--nodes, -t/--states, -r/--responding, -d/--dead.
How: -h/--noheader, -l/--long, -s/--summarize, -N/--Node, -o/--format, -O/--Format,
-R/--list-reasons. SINFO_FORMAT and SINFO_PARTITION count.
";

const DEFAULT: &str = "%#P %.5a %.10l %.6D %.6t %N";
const LONG: &str = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N";
const SUMMARY: &str = "%#P %.5a %.10l %.16F %N";
const BY_NODE: &str = "%#N %.6D %.#P %6t";
const BY_NODE_LONG: &str = "%#N %.6D %.#P %11T %.4c %.8z %.6m %.8d %.6w %.8f %20E";
const REASONS: &str = "%20E %12U %19H %N";

/// A column: its letter, its names for `-O` and its heading.
type Column = &'static (Option<char>, &'static [&'static str], &'static str);

const COLUMNS: &[(Option<char>, &[&str], &str)] = &[
    (Some('P'), &["partition"], "PARTITION"),
    (Some('R'), &["partitionname"], "PARTITION"),
    (Some('a'), &["available"], "AVAIL"),
    (Some('l'), &["time"], "TIMELIMIT"),
    (Some('L'), &["defaulttime"], "DEFAULTTIME"),
    (Some('D'), &["nodes"], "NODES"),
    (Some('t'), &["statecompact"], "STATE"),
    (Some('T'), &["state", "statelong"], "STATE"),
    (Some('N'), &["nodelist"], "NODELIST"),
    (Some('n'), &["nodehost"], "HOSTNAMES"),
    (Some('o'), &["nodeaddr"], "NODE_ADDR"),
    (Some('c'), &["cpus"], "CPUS"),
    (Some('C'), &["cpusstate"], "CPUS(A/I/O/T)"),
    (Some('F'), &["nodeaiot"], "NODES(A/I/O/T)"),
    (Some('A'), &["nodeai"], "NODES(A/I)"),
    (Some('m'), &["memory"], "MEMORY"),
    (Some('e'), &["freemem"], "FREE_MEM"),
    (Some('O'), &["cpusload"], "CPU_LOAD"),
    (Some('G'), &["gres"], "GRES"),
    (None, &["gresused"], "GRES_USED"),
    (Some('f'), &["features"], "AVAIL_FEATURES"),
    (Some('b'), &["features_act"], "ACTIVE_FEATURES"),
    (Some('z'), &["socketcorethread"], "S:C:T"),
    (Some('X'), &["sockets"], "SOCKETS"),
    (Some('Y'), &["cores"], "CORES"),
    (Some('Z'), &["threads"], "THREADS"),
    (Some('E'), &["reason"], "REASON"),
    (Some('H'), &["timestamp"], "TIMESTAMP"),
    (Some('u'), &["user"], "USER"),
    (Some('U'), &["userlong"], "USER"),
    (Some('d'), &["disk"], "TMP_DISK"),
    (Some('w'), &["weight"], "WEIGHT"),
    (Some('s'), &["size"], "JOB_SIZE"),
    (Some('r'), &["root"], "ROOT"),
    (Some('h'), &["oversubscribe"], "OVERSUBS"),
    (Some('g'), &["groups"], "GROUPS"),
    (Some('B'), &["maxcpuspernode"], "MAX_CPUS_PER_NODE"),
    (Some('M'), &["preemptmode"], "PREEMPT_MODE"),
    (Some('p'), &["prioritytier", "priorityjobfactor"], "PRIO_TIER"),
    (Some('S'), &["allocnodes"], "ALLOCNODES"),
    (Some('v'), &["version"], "VERSION"),
    (Some('V'), &["cluster"], "CLUSTER"),
    (Some('I'), &["nodeaddress"], "PRIO_JOB_FACTOR"),
];

/// Columns that are about all nodes of a line.
const OF_ALL: [&str; 6] = ["nodes", "nodelist", "cpusstate", "nodeaiot", "nodeai", "cpusload"];

pub(super) fn execute(words: &[OsString]) -> anyhow::Result<u8> {
    let mut line = read(OPTIONS, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    line.check_clusters();
    if let Some(json) = ["json", "yaml"].into_iter().find(|name| line.has(name)) {
        line.problems
            .push(format!("--{json} is not available; `tutti nodes --json` has all fields"));
    }
    if line.has("all") && line.has("partition") {
        let problem = "Conflicting options, -a and -p, specified. Please choose one or the other.";
        line.problems.push(problem.into());
    }
    line.problems.extend(wrong_states(&line));
    let columns = format_of(&line).map_err(|problem| line.problems.push(problem));
    let wanted = line.last("nodes").map(super::hosts::unfolded).transpose();
    let wanted = wanted.map_err(|problem| line.problems.push(problem));
    let (Ok(columns), Ok(wanted), true) = (columns, wanted, line.problems.is_empty()) else {
        return Ok(wrong(NAME, &line.problems));
    };
    if line.has("reservation") {
        print("No reservations in the system\n")?;
        return Ok(0);
    }
    let mut nodes = nodes();
    nodes.retain(|node| wanted.as_ref().is_none_or(|wanted| wanted.contains(&node.name)));
    nodes.retain(|node| has_state(node, &line));
    let is_dated = ["long", "verbose"].iter().any(|name| line.has(name));
    let date = if is_dated && !line.has("noheader") { format::date_line() } else { String::new() };
    print(&(date + &table(&nodes, &partitions_of(&line), &columns, &line)))?;
    Ok(0)
}

fn format_of(line: &Line) -> Result<Vec<Piece<Column>>, String> {
    let letter = |c| COLUMNS.iter().find(|(letter, ..)| *letter == Some(c));
    let name = |name: &str| {
        let name = name.to_ascii_lowercase();
        COLUMNS.iter().find(|(_, names, _)| names.contains(&&*name))
    };
    let last = line.given.iter().rev().find(|it| ["format", "Format"].contains(&it.name));
    if let Some((option, Some(format))) = last.map(|it| (it.name, it.value.as_ref())) {
        return match option {
            "format" => format::letters(format, letter),
            _ => format::names(format, name),
        };
    }
    let set = std::env::var("SINFO_FORMAT").ok().filter(|format| !format.is_empty());
    let built_in = match (line.has("Node"), line.has("long")) {
        _ if line.has("list-reasons") => REASONS,
        _ if line.has("summarize") => SUMMARY,
        (true, true) => BY_NODE_LONG,
        (true, false) => BY_NODE,
        (false, true) => LONG,
        (false, false) => set.as_deref().unwrap_or(DEFAULT),
    };
    format::letters(&with_widths(built_in), letter)
}

/// A built-in format in which `%#P` and `%#N` are as wide as the longest name needs.
fn with_widths(format: &str) -> String {
    const LEAST: usize = 9;
    let of_partition = |it: &Partition| it.name.len() + usize::from(it.is_default);
    let partition = partitions().iter().map(of_partition).max().unwrap_or(0).max(LEAST);
    let node = nodes().iter().map(|it| it.name.len()).max().unwrap_or(0).max(LEAST);
    format.replace("#P", &format!("{partition}P")).replace("#N", &format!("{node}N"))
}

fn partitions_of(line: &Line) -> Vec<Partition> {
    let mut wanted = line.items("partition");
    if wanted.is_empty() {
        let set = std::env::var("SINFO_PARTITION").unwrap_or_default();
        wanted = set.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    }
    let mut all = partitions();
    all.retain(|it| wanted.is_empty() || wanted.contains(&it.name));
    all
}

/// A node's state in Slurm's words: long and short.
pub(super) fn state(node: &NodeReport) -> (&'static str, &'static str) {
    let is_used = node.processors_used > 0;
    match (node.state.as_str(), node.drained.is_some()) {
        ("lost" | "down", _) => ("down", "down"),
        ("unreachable", _) => ("down*", "down*"),
        (_, true) if is_used => ("draining", "drng"),
        (_, true) => ("drained", "drain"),
        _ if node.processors_used >= node.processors => ("allocated", "alloc"),
        _ if is_used => ("mixed", "mix"),
        _ => ("idle", "idle"),
    }
}

/// The states of nodes that Slurm documents. Nodes are in few of them here.
const STATES: [&str; 35] = [
    "alloc",
    "allocated",
    "blocked",
    "cloud",
    "comp",
    "completing",
    "down",
    "drain",
    "drained",
    "draining",
    "drng",
    "fail",
    "future",
    "futr",
    "idle",
    "maint",
    "mix",
    "mixed",
    "no_respond",
    "npc",
    "perfctrs",
    "planned",
    "power_down",
    "powering_down",
    "powered_down",
    "power_up",
    "powering_up",
    "reboot_issued",
    "reboot_requested",
    "resv",
    "reserved",
    "unk",
    "unknown",
    "up",
    "all",
];

/// What is wrong with the states that are asked for.
fn wrong_states(line: &Line) -> Vec<String> {
    let is_wrong = |word: &String| {
        let word = word.to_ascii_lowercase();
        !STATES.contains(&word.trim_end_matches(['*', '$', '~', '#']))
    };
    let wrong = line.items("states").into_iter().find(is_wrong);
    let said = wrong.map(|word| {
        let all = STATES.join(",");
        [format!("Bad state string: \"{word}\""), format!("valid states: {all}")]
    });
    said.into_iter().flatten().collect()
}

fn has_state(node: &NodeReport, line: &Line) -> bool {
    let (long, short) = state(node);
    let is_down = long.starts_with("down");
    let states = line.items("states");
    let names = |word: &String| {
        let word = word.to_ascii_lowercase();
        let word = word.trim_end_matches(['*', '$', '~', '#']);
        ["all", long.trim_end_matches('*'), short.trim_end_matches('*')].contains(&word)
            || word == "drain" && node.drained.is_some()
            || word == "up" && !is_down
    };
    (states.is_empty() || states.iter().any(names))
        && !(line.has("responding") && is_down)
        && (!line.has("dead") || is_down)
        && !(line.has("list-reasons") && node.drained.is_none())
}

fn table(
    nodes: &[NodeReport],
    partitions: &[Partition],
    columns: &[Piece<Column>],
    line: &Line,
) -> String {
    let mut text = line.cluster_heading();
    if !line.has("noheader") {
        text.push_str(&format::line(columns, |column| column.2.to_owned()));
        text.push('\n');
    }
    let mut lines: Vec<String> = Vec::new();
    let mut add = |partition: &Partition, nodes: &[&NodeReport]| {
        lines.push(format::line(columns, |column| cell(partition, nodes, column.1[0])));
    };
    if line.has("Node") {
        for node in nodes {
            partitions.iter().for_each(|partition| add(partition, &[node]));
        }
    } else {
        for partition in partitions {
            let groups = groups(nodes, partition, columns);
            if groups.is_empty() && !line.has("list-reasons") {
                add(partition, &[]);
            }
            groups.iter().for_each(|group| add(partition, group));
        }
    }
    // Without the partition, lines of all partitions are the same.
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The nodes that have the same in all columns that are about one node.
fn groups<'a>(
    nodes: &'a [NodeReport],
    partition: &Partition,
    columns: &[Piece<Column>],
) -> Vec<Vec<&'a NodeReport>> {
    let of_each: Vec<&str> = columns
        .iter()
        .filter_map(|piece| match piece {
            Piece::Field { field, .. } => Some(field.1[0]),
            Piece::Text(_) => None,
        })
        .filter(|name| !OF_ALL.contains(name))
        .collect();
    let mut groups: Vec<(Vec<String>, Vec<&NodeReport>)> = Vec::new();
    for node in nodes {
        let key: Vec<String> = of_each.iter().map(|name| cell(partition, &[node], name)).collect();
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(node),
            None => groups.push((key, vec![node])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// How many of some there are: with jobs, idle, otherwise and in all.
fn in_parts(parts: impl Iterator<Item = (u64, u64, u64)>) -> String {
    let (used, idle, other) =
        parts.fold((0, 0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1, sum.2 + it.2));
    format!("{used}/{idle}/{other}/{}", used + idle + other)
}

/// One, among those with jobs, the idle ones or the others.
fn node_parts(node: &NodeReport) -> (u64, u64, u64) {
    match state(node).1 {
        "alloc" | "mix" => (1, 0, 0),
        "idle" => (0, 1, 0),
        _ => (0, 0, 1),
    }
}

fn processor_parts(node: &NodeReport) -> (u64, u64, u64) {
    let (all, used) = (u64::from(node.processors), u64::from(node.processors_used));
    match node_parts(node) {
        (0, 0, _) => (used, 0, all.saturating_sub(used)),
        _ => (used, all.saturating_sub(used), 0),
    }
}

fn cell(partition: &Partition, nodes: &[&NodeReport], column: &str) -> String {
    match column {
        "partition" if partition.is_default => format!("{}*", partition.name),
        "partition" | "partitionname" => partition.name.clone(),
        "available" => "up".into(),
        "time" => partition.most_s.map_or("infinite".into(), duration_short),
        "nodes" => nodes.len().to_string(),
        "nodelist" => format_host_list(nodes.iter().map(|node| node.name.as_str())),
        "cpusstate" => in_parts(nodes.iter().map(|node| processor_parts(node))),
        "nodeaiot" => in_parts(nodes.iter().map(|node| node_parts(node))),
        "nodeai" => {
            let all = in_parts(nodes.iter().map(|node| node_parts(node)));
            all.split('/').take(2).collect::<Vec<&str>>().join("/")
        }
        "size" => "1-infinite".into(),
        "root" => "no".into(),
        "oversubscribe" => "FORCE".into(),
        "groups" => "all".into(),
        "maxcpuspernode" => "UNLIMITED".into(),
        "preemptmode" => "SUSPEND".into(),
        "prioritytier" | "nodeaddress" | "weight" => "1".into(),
        "allocnodes" => "all".into(),
        "cluster" => tutti_client::slurm::cluster_name(),
        "version" => super::VERSION.into(),
        _ => match nodes.first() {
            Some(node) => of_node(node, column),
            None if ["statecompact", "state"].contains(&column) => "n/a".into(),
            None => "0".into(),
        },
    }
}

/// How many devices of each name a node has, in Slurm's words: `gpu:4`.
pub(super) fn gres(node: &NodeReport, counts: impl Fn(&DeviceReport) -> bool) -> String {
    let mut all: BTreeMap<&str, u32> = BTreeMap::new();
    for device in &node.devices {
        let name = device.device.split(':').next().unwrap_or_default();
        *all.entry(name).or_default() += u32::from(counts(device));
    }
    let all = all.into_iter().map(|(name, count)| format!("{name}:{count}"));
    super::or_null(all.collect::<Vec<String>>().join(","))
}

fn of_node(node: &NodeReport, column: &str) -> String {
    match column {
        "statecompact" => state(node).1.into(),
        "state" => state(node).0.into(),
        "nodehost" | "nodeaddr" => node.name.clone(),
        "cpus" | "sockets" => node.processors.to_string(),
        "cores" | "threads" => "1".into(),
        "socketcorethread" => format!("{}:1:1", node.processors),
        "memory" => (node.memory_bytes >> 20).to_string(),
        "freemem" => {
            let free = node.memory_bytes.saturating_sub(node.memory_allocated_bytes);
            (node.memory_free_bytes.unwrap_or(free) >> 20).to_string()
        }
        "cpusload" => match node.load_averages_milli {
            Some([one, ..]) => format!("{}.{:02}", one / 1000, one % 1000 / 10),
            None => "N/A".into(),
        },
        "gres" => gres(node, |_| true),
        "gresused" => gres(node, |device| !device.jobs.is_empty()),
        "features" | "features_act" => super::or_null(super::features(node)),
        "reason" => match node.drained.as_deref() {
            None | Some("") => "none".into(),
            Some(reason) => reason.to_owned(),
        },
        "timestamp" | "user" | "userlong" => "Unknown".into(),
        "disk" => "0".into(),
        _ => "(null)".into(),
    }
}
