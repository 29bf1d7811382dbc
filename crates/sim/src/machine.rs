//! The machine that is simulated: equal nodes, or those of [`Host`]s.

use crate::hosts::Host;
use tutti_core::Event;
use tutti_trace::Header;
use tutti_types::limits::PROCESSORS_PER_NODE_MAX;
use tutti_types::{NodeId, NodeSpec, ProcessorSet};

/// How large a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    nodes: u32,
    processors_per_node: u32,
    processors: u32,
}

/// Why there can be no such machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Nothing to run on.
    #[error("a machine needs at least one node with one processor")]
    Nothing,
    /// A node is wider than the core can count.
    #[error(
        "{asked} processors in a node are too many; give at most {PROCESSORS_PER_NODE_MAX}, and more \
         nodes"
    )]
    NodeTooWide {
        /// What was asked.
        asked: u32,
    },
    /// More nodes than make sense.
    #[error("{asked} nodes are too many; give at most {NODES_MAX}, with more processors in each")]
    TooManyNodes {
        /// What was asked.
        asked: u32,
    },
    /// More processors than can be counted.
    #[error("{nodes} nodes of {processors_per_node} processors are more than can be counted")]
    TooLarge {
        /// How many nodes.
        nodes: u32,
        /// How many processors in each.
        processors_per_node: u32,
    },
}

/// Beyond the largest machine ever built, and small enough to keep a record of each.
const NODES_MAX: u32 = 1_000_000;
/// The width of nodes that is tried first where only the number of processors is known.
const CONVENIENT_WIDTH: u32 = 64;

impl Machine {
    /// So many nodes of so many processors.
    ///
    /// # Errors
    /// If it has none, or too many.
    pub const fn new(nodes: u32, processors_per_node: u32) -> Result<Self, MachineError> {
        if nodes == 0 || processors_per_node == 0 {
            return Err(MachineError::Nothing);
        }
        if processors_per_node > PROCESSORS_PER_NODE_MAX {
            return Err(MachineError::NodeTooWide { asked: processors_per_node });
        }
        if nodes > NODES_MAX {
            return Err(MachineError::TooManyNodes { asked: nodes });
        }
        match nodes.checked_mul(processors_per_node) {
            Some(processors) => Ok(Self { nodes, processors_per_node, processors }),
            None => Err(MachineError::TooLarge { nodes, processors_per_node }),
        }
    }

    /// The machine of these nodes.
    ///
    /// # Errors
    /// If they are none, or too many.
    pub fn of_hosts(hosts: &[Host]) -> Result<Self, MachineError> {
        let nodes = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let widest = hosts.iter().map(|host| host.processors).max().unwrap_or(0);
        let machine = Self::new(nodes, widest)?;
        Ok(Self { processors: hosts.iter().map(|host| host.processors).sum(), ..machine })
    }

    /// So many processors, in nodes of a convenient width: the widest up to 64 that leaves none
    /// over.
    ///
    /// # Errors
    /// If it has none, or too many.
    pub fn of_processors(processors: u32) -> Result<Self, MachineError> {
        let divides = |width: &u32| processors.is_multiple_of(*width);
        let width = (1..=CONVENIENT_WIDTH).rev().find(divides).unwrap_or(1);
        Self::new(processors / width, width)
    }

    /// The machine of a trace: `MaxNodes` nodes with `MaxProcs` processors together; where these do
    /// not go into each other, or one is missing, nodes of a convenient width.
    ///
    /// # Errors
    /// If there are too many of them. `None` if the header does not tell.
    #[must_use]
    pub fn of_header(header: &Header) -> Option<Result<Self, MachineError>> {
        let processors = header.machine_processors()?;
        let nodes = header.max_nodes().and_then(|nodes| u32::try_from(nodes).ok());
        let even = nodes.filter(|&nodes| nodes > 0 && processors.is_multiple_of(nodes));
        Some(match even {
            Some(nodes) => Self::new(nodes, processors / nodes),
            None => Self::of_processors(processors),
        })
    }

    /// How many nodes.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.nodes
    }

    /// How many processors each node has, or the widest.
    #[must_use]
    pub const fn processors_per_node(self) -> u32 {
        self.processors_per_node
    }

    /// How many processors all nodes have.
    #[must_use]
    pub const fn processors(self) -> u32 {
        self.processors
    }

    /// What tells a core of a machine of equal nodes.
    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let processors = ProcessorSet::first(self.processors_per_node);
        (0..self.nodes).map(move |node| Event::NodeJoined {
            node: NodeId(node),
            // Traces rarely tell memory in a way that could be relied on: none is asked for.
            spec: NodeSpec {
                name: format!("node{node}"),
                processors: processors.clone(),
                memory_bytes: 0,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Machine, MachineError};
    use tutti_trace::Header;

    fn shape(machine: Machine) -> (u32, u32) {
        (machine.nodes(), machine.processors_per_node())
    }

    #[test]
    fn a_header_gives_nodes_and_processors() {
        let of = |directives: &[(&str, &str)]| {
            Machine::of_header(&Header::of(directives)).map(|machine| machine.map(shape))
        };
        assert_eq!(of(&[("MaxNodes", "1024"), ("MaxProcs", "8192")]), Some(Ok((1024, 8))));
        assert_eq!(of(&[("MaxNodes", "128")]), Some(Ok((128, 1))));
        assert_eq!(of(&[("MaxProcs", "96")]), Some(Ok((2, 48))));
        assert_eq!(of(&[("MaxNodes", "7"), ("MaxProcs", "96")]), Some(Ok((2, 48))));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn impossible_machines_are_refused() {
        assert_eq!(Machine::new(0, 4), Err(MachineError::Nothing));
        assert_eq!(Machine::new(1, 8193), Err(MachineError::NodeTooWide { asked: 8193 }));
        assert_eq!(Machine::of_processors(0), Err(MachineError::Nothing));
        assert!(Machine::new(1_000_000, 8192).is_err());
        assert_eq!(Machine::of_processors(4_294_967_291).map(shape).ok(), None, "a prime");
    }
}
