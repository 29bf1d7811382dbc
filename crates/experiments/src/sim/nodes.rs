//! The names of the simulated nodes, for lists of nodes.

use std::collections::{BTreeMap, BTreeSet};
use tutti_sim::{Host, Machine};
use tutti_types::NodeId;
use tutti_wire::host_list::{HostItem, parse_host_list};

/// Nodes by their names: those of `--hosts`, or node0 and so on.
pub(crate) struct Nodes {
    by_name: BTreeMap<String, NodeId>,
    count: u32,
}

impl Nodes {
    pub(crate) fn of(machine: Machine, hosts: &[Host]) -> Self {
        let named = (0..).map(NodeId).zip(hosts).map(|(id, host)| (host.name.clone(), id));
        Self { by_name: named.collect(), count: machine.nodes() }
    }

    /// The nodes of a list.
    ///
    /// # Errors
    /// Names the node that there is not.
    pub(crate) fn named(&self, list: &str) -> Result<BTreeSet<NodeId>, String> {
        let mut nodes = BTreeSet::new();
        for item in parse_host_list(list).map_err(|error| error.to_string())? {
            match item {
                HostItem::Set(name) => {
                    return Err(format!("a simulation has no set of nodes {name}; name the nodes"));
                }
                HostItem::Names(names) => {
                    for name in names {
                        nodes.insert(self.one(&name).ok_or_else(|| self.unknown(&name))?);
                    }
                }
            }
        }
        Ok(nodes)
    }

    fn one(&self, name: &str) -> Option<NodeId> {
        if !self.by_name.is_empty() {
            return self.by_name.get(name).copied();
        }
        let number = name.strip_prefix("node")?.parse::<u32>().ok()?;
        (number < self.count && name == format!("node{number}")).then_some(NodeId(number))
    }

    fn unknown(&self, name: &str) -> String {
        let known = match self.by_name.first_key_value() {
            Some((first, _)) => format!("{} such as {first}", self.by_name.len()),
            None => format!("node0 to node{}", self.count.saturating_sub(1)),
        };
        format!("there is no node {name}; there are {known}")
    }
}

#[cfg(test)]
mod tests {
    use super::Nodes;
    use tutti_sim::Machine;
    use tutti_types::NodeId;

    #[test]
    fn nodes_are_named_by_their_numbers() {
        let nodes = Nodes::of(Machine::new(4, 1).unwrap(), &[]);
        assert_eq!(nodes.named("node[1-2]").unwrap(), [NodeId(1), NodeId(2)].into());
        assert!(nodes.named("node4").unwrap_err().contains("there are node0 to node3"));
        assert!(nodes.named("set:gpu").unwrap_err().contains("no set of nodes gpu"));
    }
}
