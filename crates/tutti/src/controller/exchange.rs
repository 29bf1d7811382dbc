//! What MPI processes of different nodes must know of each other: each keeper collects what its tasks
//! store, and when all have entered a barrier, all keepers of the job get what the others have.

use super::agents::ranks_of;
use super::driver::Driver;
use std::collections::{BTreeSet, VecDeque};
use tutti_core::{EndReason, Event, JobId, NodeId};
use tutti_wire::limits::EXCHANGE_BYTES_MAX;
use tutti_wire::pmi::{BarrierGroup, Exchange};
use tutti_wire::tree::ToAgent;

/// Barriers of a job that are remembered when they are over: as many as a task may wait in at once.
const EXCHANGED_MAX: usize = tutti_wire::pmi::BARRIERS_PER_TASK_MAX as usize;

impl Driver {
    /// A node's tasks of a job have all entered a barrier.
    pub(super) fn on_exchange(&mut self, node: NodeId, exchange: Exchange) {
        let Exchange { launch, barrier, stored } = exchange;
        let job = launch.job;
        if !self.is_latest(launch) {
            return;
        }
        let members = self.members(job, &barrier.group);
        let Some(entry) = self.jobs.get_mut(&job).filter(|_| members.contains(&node)) else {
            return;
        };
        if let Some(known) = entry.exchanged.iter().find(|known| known.barrier == barrier) {
            // All have said so, and the answer to this node was lost.
            let exchange = known.clone();
            return self.tell_node(node, ToAgent::Exchanged(exchange));
        }
        let gathered = entry.exchanges.entry(barrier.clone()).or_default();
        if !gathered.nodes.insert(node) {
            // Said again by an agent that joined again.
            return;
        }
        gathered.bytes += stored.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        gathered.stored.extend(stored);
        if gathered.bytes > EXCHANGE_BYTES_MAX {
            let mib = EXCHANGE_BYTES_MAX >> 20;
            let detail =
                format!("its tasks stored more than {mib} MiB for each other before a barrier");
            entry.note_detail(tutti_core::Rank(0), detail);
            self.apply(&Event::Cancel { job, reason: EndReason::TaskFailed, at_once: true });
            return;
        }
        if gathered.nodes.is_superset(&members) {
            let stored = entry.exchanges.remove(&barrier).unwrap_or_default().stored;
            let exchange = Exchange { launch, barrier, stored };
            remember(&mut entry.exchanged, exchange.clone());
            self.tell_nodes(members.into_iter().collect(), ToAgent::Exchanged(exchange));
        }
    }

    /// The nodes that take part.
    fn members(&self, job: JobId, group: &BarrierGroup) -> BTreeSet<NodeId> {
        let Some(view) = self.core.job(job, self.now()) else { return BTreeSet::new() };
        let takes_part = |placed: &&tutti_core::PlacementView| match group {
            BarrierGroup::World => true,
            BarrierGroup::Node => false,
            BarrierGroup::Ranks(ranks) => ranks_of(placed).any(|rank| ranks.contains(&rank)),
        };
        view.placements.iter().filter(takes_part).map(|placed| placed.node).collect()
    }
}

/// Keeps what the latest barriers were answered with: a node lacks no more than its tasks wait in.
fn remember(exchanged: &mut VecDeque<Exchange>, exchange: Exchange) {
    let bytes = |it: &Exchange| -> usize {
        it.stored.iter().map(|(key, value)| key.len() + value.len()).sum()
    };
    exchanged.push_back(exchange);
    while exchanged.len() > EXCHANGED_MAX
        || (exchanged.len() > 1 && exchanged.iter().map(bytes).sum::<usize>() > EXCHANGE_BYTES_MAX)
    {
        exchanged.pop_front();
    }
}
