//! A machine whose nodes differ, as a file describes it.
//!
//! A line for each node: name, processors, memory in MB, the figures of one processor for whole
//! numbers, numbers of 32 bits, numbers of 64 bits and memory, and the load that others put on the
//! node, as a load average. Two further columns may have the bandwidth of its network in MB a
//! second and the latency in microseconds; a node without them counts as a mean one. What follows a
//! `#` is a comment. Figures may be in any unit that is the same for all nodes.

use tutti_core::Event;
use tutti_types::limits::PROCESSORS_PER_NODE_MAX;
use tutti_types::{Figures, LoadAverages, NetworkFigures, NodeId, NodeSpec, ProcessorSet};

/// A node of such a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How many processors it has.
    pub processors: u32,
    /// How much memory, in bytes.
    pub memory_bytes: u64,
    /// What one of its processors can do.
    pub figures: Figures,
    /// How many processes of others want to run there, in thousandths, all the time.
    pub load_milli: u32,
    /// What its network can do, if that is known.
    pub network: Option<NetworkFigures>,
}

/// Why a file does not describe a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// It has no line that counts.
    #[error("it has no node; write a line for each: {COLUMNS}")]
    Nothing,
    /// A line has too few or too many columns.
    #[error(
        "line {line}: {found} columns instead of {wanted}, or {} with the network; write {COLUMNS}",
        wanted + 2
    )]
    Columns {
        /// Which line, from 1.
        line: usize,
        /// How many it has.
        found: usize,
        /// How many it should have.
        wanted: usize,
    },
    /// A column is no number, or one that makes no sense.
    #[error("line {line}: {what} can't be {text:?}; it may be {range}")]
    Value {
        /// Which line, from 1.
        line: usize,
        /// Which column.
        what: &'static str,
        /// What stands there.
        text: String,
        /// What might.
        range: &'static str,
    },
}

const COLUMNS: &str =
    "name processors memory_mb int float double memory load [bandwidth_mb_s latency_us]";
const COLUMN_COUNT: usize = 8;
const LOAD_MAX: f64 = 1e6;

/// Reads a description.
///
/// # Errors
/// Names the first line that is wrong.
pub fn parse_hosts(text: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let words: Vec<&str> =
            text.split('#').next().unwrap_or_default().split_whitespace().collect();
        if !words.is_empty() {
            hosts.push(host(line, &words)?);
        }
    }
    if hosts.is_empty() { Err(HostsError::Nothing) } else { Ok(hosts) }
}

fn host(line: usize, words: &[&str]) -> Result<Host, HostsError> {
    let &[name, processors, memory, int, float, double, bandwidth, load, ref network @ ..] = words
    else {
        let (found, wanted) = (words.len(), COLUMN_COUNT);
        return Err(HostsError::Columns { line, found, wanted });
    };
    if !matches!(network.len(), 0 | 2) {
        return Err(HostsError::Columns { line, found: words.len(), wanted: COLUMN_COUNT });
    }
    let wrong =
        |what, text: &str, range| HostsError::Value { line, what, text: text.into(), range };
    let figure = |what, text: &str| {
        let value = text.parse().ok().filter(|&value: &u32| value > 0);
        value.ok_or_else(|| wrong(what, text, "a whole number from 1 on"))
    };
    let width = figure("processors", processors)?;
    if width > PROCESSORS_PER_NODE_MAX {
        return Err(wrong("processors", processors, "1 to 8192"));
    }
    let megabytes = memory.parse::<u32>();
    let megabytes =
        megabytes.map_err(|_| wrong("memory_mb", memory, "a whole number from 0 on"))?;
    Ok(Host {
        name: name.into(),
        processors: width,
        memory_bytes: u64::from(megabytes) << 20,
        figures: Figures {
            int: figure("int", int)?,
            float: figure("float", float)?,
            double: figure("double", double)?,
            memory: figure("memory", bandwidth)?,
        },
        load_milli: thousandths(load)
            .ok_or_else(|| wrong("load", load, "a number such as 0 or 1.25"))?,
        network: match network {
            [bandwidth, latency] => Some(NetworkFigures {
                bandwidth_mb_s: figure("bandwidth_mb_s", bandwidth)?,
                latency_us: figure("latency_us", latency)?,
            }),
            _ => None,
        },
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
#[expect(clippy::cast_sign_loss, reason = "the range was checked")]
fn thousandths(text: &str) -> Option<u32> {
    let load = text.parse::<f64>().ok().filter(|load| (0.0..=LOAD_MAX).contains(load))?;
    Some((load * 1000.0).round() as u32)
}

/// What tells a core of the nodes: each joins, was measured, and is as loaded as it will always be.
pub(crate) fn events(hosts: &[Host]) -> impl Iterator<Item = Event> + '_ {
    (0..).map(NodeId).zip(hosts).flat_map(|(node, host)| {
        let Host { name, processors, memory_bytes, figures, load_milli, network } = host.clone();
        let processors = ProcessorSet::first(processors);
        let load = load_milli;
        let averages = LoadAverages { now: load, five_minutes: load, fifteen_minutes: load };
        let of_network =
            network.map(|figures| Event::NetworkMeasured { node, peer: node, figures });
        [
            Event::NodeJoined { node, spec: NodeSpec { name, processors, memory_bytes } },
            Event::NodeMeasured { node, figures },
            Event::NodeLoad { node, averages },
        ]
        .into_iter()
        .chain(of_network)
    })
}

#[cfg(test)]
mod tests {
    use super::{HostsError, parse_hosts};

    #[test]
    fn a_line_is_a_node_and_says_what_is_wrong_with_it() {
        let text = "# a machine\nfast 2 512 90 80 70 60 1.25\n\nslow 1 0 9 8 7 6 0 # idle\n";
        let hosts = parse_hosts(text).unwrap();
        assert_eq!((hosts[0].name.as_str(), hosts[0].load_milli), ("fast", 1250));
        assert_eq!((hosts[0].memory_bytes, hosts[1].figures.double), (512 << 20, 7));
        let network = parse_hosts("a 1 0 1 1 1 1 0 117 55").unwrap()[0].network;
        assert_eq!(network.map(|it| (it.bandwidth_mb_s, it.latency_us)), Some((117, 55)));
        assert_eq!(hosts[0].network, None);
        assert_eq!(parse_hosts("# nobody\n"), Err(HostsError::Nothing));
        let says = |text: &str| parse_hosts(text).unwrap_err().to_string();
        assert!(
            says("\na 1 2 3")
                .starts_with("line 2: 4 columns instead of 8, or 10 with the network; write name ")
        );
        assert!(says("a 1 0 1 1 1 1 0 117").contains("9 columns instead of 8, or 10 with the"));
        assert!(says("a 1 0 1 1 1 1 0 117 0").contains("latency_us can't be \"0\""));
        assert!(says("a 0 0 1 1 1 1 0").contains("processors can't be \"0\""));
        assert!(says("a 8193 0 1 1 1 1 0").contains("1 to 8192"));
        assert!(says("a 1 0 1 1 0 1 0").contains("double can't be \"0\""));
        for load in ["-1", "NaN", "1e9", "x"] {
            assert!(says(&format!("a 1 0 1 1 1 1 {load}")).contains("load can't be"), "{load}");
        }
    }
}
