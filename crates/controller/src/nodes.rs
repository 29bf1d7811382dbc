//! `tutti nodes`: nodes by the names that people give, sets of them, and which take jobs.

use super::driver::Driver;
use super::node_queries::Page;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Event, NodeView};
use tutti_node::membership::Place;
use tutti_types::{NodeId, NodeSetName, NodeWish};
use tutti_wire::constraint::{ConstraintError, parse_constraint};
use tutti_wire::host_list::{HostItem, HostListError, format_host_list, parse_host_list};
use tutti_wire::launch::cut;
use tutti_wire::limits::NAME_BYTES_MAX;
use tutti_wire::local::{NodeChange, NodesRequest};
use tutti_wire::tree::Question;
use tutti_wire::units::shown;

/// The most of a list of what there is that a message repeats, in bytes.
const KNOWN_BYTES_MAX: usize = 400;

/// Why nodes are not what is asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodesError {
    #[error(transparent)]
    List(#[from] HostListError),
    #[error("there is no node {name}; the nodes are {known}{hint}")]
    NoNode { name: String, known: String, hint: &'static str },
    #[error("there is no set {name}; {known}")]
    NoSet { name: String, known: String },
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    #[error("no node and no set has the feature {name}; there are: {known}")]
    NoFeature { name: String, known: String },
    #[error("no node has what --constraint={constraint} asks for; see `tutti nodes features`")]
    NoneHas { constraint: String },
    #[error(
        "none of the nodes {named} has what --constraint={constraint} asks for; these do: {others}"
    )]
    NoneOfThem { named: String, constraint: String, others: String },
    #[error(
        "'{name}' can't be the name of a set; write letters, digits, '-' and '_', at most \
         {NAME_BYTES_MAX}"
    )]
    BadSetName { name: String },
    #[error(
        "{sets} sets of nodes are defined, which is as many as there may be; take one away with \
         `tutti nodes set NAME=none`"
    )]
    TooManySets { sets: usize },
    #[error(
        "node {name} has jobs: {jobs}; have it take no more with `tutti nodes drain {name}` and wait, \
         or end them with --now"
    )]
    HasJobs { name: String, jobs: String },
    #[error("node {name} is the one that the controller runs on; `tutti down` ends it")]
    OfInstance { name: String },
}

impl Driver {
    /// What a job wishes of its nodes, by their numbers.
    pub(super) fn node_wish(&self, asked: &NodesRequest) -> Result<NodeWish, NodesError> {
        let resolve = |list: &Option<String>| list.as_ref().map(|list| self.named(list));
        let mut among = resolve(&asked.only).transpose()?;
        if let Some(constraint) = &asked.constraint {
            let having = self.with_features(constraint)?;
            let asked_too = |node: &&NodeId| among.as_ref().is_none_or(|it| it.contains(node));
            let found: BTreeSet<NodeId> = having.iter().filter(asked_too).copied().collect();
            if found.is_empty() {
                return Err(self.none_has(constraint, &having, asked.only.as_deref()));
            }
            among = Some(found);
        }
        Ok(NodeWish {
            count: asked.count,
            among,
            except: resolve(&asked.exclude).transpose()?.unwrap_or_default(),
            spread: asked.spread,
            exclusive: asked.exclusive,
        })
    }

    /// Why no node is left: `having` are those that the constraint holds for, without regard to
    /// the list of nodes that was asked for, `only`.
    fn none_has(
        &self,
        constraint: &str,
        having: &BTreeSet<NodeId>,
        only: Option<&str>,
    ) -> NodesError {
        let constraint = shown(constraint);
        match only.filter(|_| !having.is_empty()) {
            None => NodesError::NoneHas { constraint },
            Some(named) => {
                let nodes = self.core.nodes().filter(|view| having.contains(&view.id));
                let others = format_host_list(nodes.map(|view| &*view.spec.name));
                let others = cut(others, KNOWN_BYTES_MAX);
                NodesError::NoneOfThem { named: shown(named), constraint, others }
            }
        }
    }

    /// The nodes that a constraint holds for: by what they were found to have, and by the sets that
    /// they are in.
    fn with_features(&self, constraint: &str) -> Result<BTreeSet<NodeId>, NodesError> {
        let constraint = parse_constraint(constraint)?;
        let sets = self.core.node_sets();
        let set = |name: &str| sets.get(&NodeSetName::new(name));
        let features = |node| self.core.node_features(node).map(|feature| &*feature.0);
        let holds = |view: &NodeView<'_>| {
            constraint.holds(&|name| {
                features(view.id).any(|feature| feature == name)
                    || set(name).is_some_and(|set| set.contains(&view.id))
            })
        };
        let nodes: BTreeSet<NodeId> = self.core.nodes().filter(holds).map(|view| view.id).collect();
        let found: BTreeSet<&str> = self.core.nodes().flat_map(|view| features(view.id)).collect();
        let is_unknown = |name: &&str| !found.contains(name) && set(name).is_none();
        // Another alternative may be known.
        if let Some(name) = constraint.names().find(is_unknown).filter(|_| nodes.is_empty()) {
            let sets = sets.keys().map(|name| &*name.0);
            let known = found.iter().copied().chain(sets).collect::<Vec<_>>().join(", ");
            let known = cut(known, KNOWN_BYTES_MAX);
            return Err(NodesError::NoFeature { name: name.into(), known });
        }
        Ok(nodes)
    }

    /// The nodes of a list.
    pub(super) fn named(&self, list: &str) -> Result<BTreeSet<NodeId>, NodesError> {
        let known: BTreeMap<&str, NodeId> =
            self.core.nodes().map(|view| (&*view.spec.name, view.id)).collect();
        let mut nodes = BTreeSet::new();
        for item in parse_host_list(list)? {
            match item {
                HostItem::Set(name) => nodes.extend(self.set(&name)?),
                HostItem::Names(names) => {
                    for name in names {
                        let node = known.get(&*name).ok_or_else(|| no_node(&name, &known))?;
                        nodes.insert(*node);
                    }
                }
            }
        }
        Ok(nodes)
    }

    fn set(&self, name: &str) -> Result<&BTreeSet<NodeId>, NodesError> {
        let sets = self.core.node_sets();
        sets.get(&NodeSetName::new(name)).ok_or_else(|| {
            let names = sets.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let known = match sets.is_empty() {
                true => "none is defined (`tutti nodes set NAME=NODES` does that)".into(),
                false => format!("the sets are {}", cut(names, KNOWN_BYTES_MAX)),
            };
            NodesError::NoSet { name: name.into(), known }
        })
    }

    pub(super) fn on_set_node_sets(&mut self, token: u64, uid: u32, settings: &[(String, String)]) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        let sets: Result<Vec<_>, NodesError> =
            settings.iter().map(|(name, list)| self.new_set(name, list)).collect();
        match sets {
            Ok(sets) => {
                for (name, nodes) in sets {
                    self.apply(&Event::SetNodeSet { name, nodes });
                }
                self.reply_nodes(token);
            }
            Err(error) => self.fail(token, error),
        }
    }

    /// A set as it is to be; of no nodes if there is to be none.
    fn new_set(
        &self,
        name: &str,
        list: &str,
    ) -> Result<(NodeSetName, BTreeSet<NodeId>), NodesError> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(good) {
            return Err(NodesError::BadSetName { name: cut(name.into(), NAME_BYTES_MAX) });
        }
        let key = NodeSetName::new(name);
        if list == "none" {
            self.set(name)?;
            return Ok((key, BTreeSet::new()));
        }
        let sets = self.core.node_sets();
        if sets.len() >= tutti_types::limits::NODE_SETS_MAX && !sets.contains_key(&key) {
            return Err(NodesError::TooManySets { sets: sets.len() });
        }
        Ok((key, self.named(list)?))
    }

    pub(super) fn on_change_nodes(
        &mut self,
        token: u64,
        uid: u32,
        list: &str,
        change: &NodeChange,
    ) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        if matches!(change, NodeChange::Remove { .. }) && self.strike_off_unseen(list) {
            return self.reply_nodes(token);
        }
        let nodes = match self.named(list).and_then(|nodes| self.may_change(nodes, change)) {
            Ok(nodes) => nodes,
            Err(error) => return self.fail(token, error),
        };
        let drained = match change {
            NodeChange::Drain { reason } => Some(cut(reason.clone(), NAME_BYTES_MAX)),
            NodeChange::Resume => None,
            NodeChange::Remove { .. } => return self.remove_nodes(token, &nodes),
        };
        // A drained node that is drained again without a reason keeps the one that it has.
        let is_drained: BTreeSet<NodeId> = match drained.as_deref() {
            Some("") => {
                self.core.nodes().filter(|it| it.drained.is_some()).map(|it| it.id).collect()
            }
            _ => BTreeSet::new(),
        };
        for node in nodes.difference(&is_drained).copied() {
            self.apply(&Event::SetDrained { node, reason: drained.clone() });
        }
        self.reply_nodes(token);
    }

    /// Takes a member out that has not joined since the controller began, or is a client machine;
    /// whether it is one.
    fn strike_off_unseen(&mut self, name: &str) -> bool {
        let is_seen = self.core.nodes().any(|view| view.spec.name == name);
        let is_struck = !is_seen && Place::of(&self.instance).expel(name).unwrap_or(false);
        if let Some(client) = self.cluster.clients.number_of(name).filter(|_| is_struck) {
            self.say_removed(client);
        }
        is_struck
    }

    fn may_change(
        &self,
        nodes: BTreeSet<NodeId>,
        change: &NodeChange,
    ) -> Result<BTreeSet<NodeId>, NodesError> {
        let NodeChange::Remove { now } = change else { return Ok(nodes) };
        for view in self.core.nodes().filter(|view| nodes.contains(&view.id)) {
            let name = view.spec.name.clone();
            if self.cluster.nodes.get(&view.id).is_some_and(|entry| entry.is_here) {
                return Err(NodesError::OfInstance { name });
            }
            if !view.jobs.is_empty() && !now {
                let jobs = view.jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(NodesError::HasJobs { name, jobs: cut(jobs, KNOWN_BYTES_MAX) });
            }
        }
        Ok(nodes)
    }

    /// Shows the first page of the nodes.
    pub(super) fn reply_nodes(&mut self, token: u64) {
        self.reply_nodes_from(token, NodeId(0));
    }

    pub(super) fn reply_nodes_from(&mut self, token: u64, from: NodeId) {
        let page = super::report::nodes(self, &BTreeMap::new(), from);
        self.reply(token, &page);
    }

    /// Shows the nodes with what they say of themselves.
    pub(super) fn on_nodes_closely(&mut self, token: u64, from: NodeId) {
        let nodes = self.nodes_with_agents();
        self.ask_for_page(token, &nodes, &Question::Fares, Page::of_nodes(from));
    }
}

fn no_node(name: &str, known: &BTreeMap<&str, NodeId>) -> NodesError {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let hint = if is_number { "; how many nodes is said by -N" } else { "" };
    let known = cut(format_host_list(known.keys().copied()), KNOWN_BYTES_MAX);
    NodesError::NoNode { name: cut(name.into(), NAME_BYTES_MAX), known, hint }
}
