//! The processors of a machine in lots of which each is as good as another.
//!
//! As good as another are processors that are promised to the same jobs, and either all used by
//! other rows or all not. A task that needs several processors of a node has them side by side in
//! the order of their load, whichever lots these come from.

use super::promise::Promises;
use super::select::Lot;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet};

/// What a node has for the tasks of a job.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) node: NodeId,
    pub(crate) processors: ProcessorSet,
    /// Those that no other row uses.
    pub(crate) apart: ProcessorSet,
    /// How many tasks it has memory for.
    pub(crate) tasks: u32,
}

/// The lots of a machine, those that no other row uses first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lots {
    pub(crate) lots: Vec<Lot>,
    /// How many of them, from the first on, no other row uses.
    pub(crate) apart: usize,
    /// Where the seats of each are, widest first.
    seats: Vec<Vec<(NodeId, ProcessorSet)>>,
    each: u32,
}

/// Whether other rows use it, and which jobs were promised it: those not first.
type Kind = (bool, Vec<JobId>);

impl Lots {
    /// For tasks that take `each` processors of a node.
    pub(crate) fn new(promises: &Promises, offers: impl Iterator<Item = Offer>, each: u32) -> Self {
        let each = each.max(1);
        let mut kinds: BTreeMap<Kind, Vec<(NodeId, ProcessorSet)>> = BTreeMap::new();
        for offer in offers {
            let node = offer.node;
            for (kind, set) in seats_on(promises, offer, each) {
                kinds.entry(kind).or_default().push((node, set));
            }
        }
        let mut lots = Self { each, ..Self::default() };
        for ((shared, jobs), mut seats) in kinds {
            seats.sort_by_key(|(node, set)| (u32::MAX - set.count(), *node));
            let count = seats.iter().map(|(_, set)| u64::from(set.count() / each)).sum();
            lots.lots.push(Lot { busy: promises.time_of(&jobs), seats: count });
            lots.apart += usize::from(!shared);
            lots.seats.push(seats);
        }
        lots
    }

    /// The processors of a choice, by node.
    pub(crate) fn take(&self, seats: &[(usize, u64)]) -> BTreeMap<NodeId, ProcessorSet> {
        let mut taken: BTreeMap<NodeId, ProcessorSet> = BTreeMap::new();
        for &(lot, count) in seats {
            let mut left = usize::try_from(count).unwrap_or(usize::MAX);
            for (node, set) in &self.seats[lot] {
                let here = left.min((set.count() / self.each) as usize);
                left -= here;
                let set: ProcessorSet = set.iter().take(here * self.each as usize).collect();
                if !set.is_empty() {
                    taken.entry(*node).or_default().union_with(&set);
                }
            }
        }
        taken
    }
}

/// The seats of a node by kind: as many processors as a multiple of `each`.
fn seats_on(promises: &Promises, offer: Offer, each: u32) -> Vec<(Kind, ProcessorSet)> {
    let shared = offer.processors.without(&offer.apart);
    let mut kinds: Vec<(Kind, ProcessorSet)> = Vec::new();
    for (set, is_shared) in [(offer.apart, false), (shared, true)] {
        kinds.push(((is_shared, Vec::new()), set));
    }
    for (job, promised) in promises.on(offer.node) {
        let mut split = Vec::with_capacity(kinds.len());
        for ((shared, jobs), set) in kinds {
            let rest = set.without(promised);
            let theirs = set.without(&rest);
            let with = jobs.iter().copied().chain([job]).collect();
            split.push(((shared, jobs), rest));
            split.push(((shared, with), theirs));
        }
        split.retain(|(_, set)| !set.is_empty());
        kinds = split;
    }
    kinds.retain(|(_, set)| !set.is_empty());
    kinds.sort_by_cached_key(|((shared, jobs), set)| {
        (*shared, promises.time_of(jobs).length(), set.clone())
    });
    let mut left = offer.tasks;
    if each == 1 {
        for (_, set) in &mut kinds {
            let here = left.min(set.count());
            left -= here;
            *set = set.iter().take(here as usize).collect();
        }
        return kinds;
    }
    let single = kinds.iter().flat_map(|(kind, set)| set.iter().map(move |it| (kind, it)));
    let single: Vec<(&Kind, u32)> = single.collect();
    let seats = single.chunks_exact(each as usize).take(left as usize).map(|seat| {
        let mut jobs: Vec<JobId> = seat.iter().flat_map(|(kind, _)| &kind.1).copied().collect();
        jobs.sort_unstable();
        jobs.dedup();
        let shared = seat.iter().any(|(kind, _)| kind.0);
        ((shared, jobs), seat.iter().map(|&(_, processor)| processor).collect())
    });
    seats.collect()
}
