//! Fences of a PMIx server over several nodes: what they carry goes the way of a barrier's values.
//!
//! A fence is a barrier of the world with a tag of its own ([`TAG`]), in which no task waits: the
//! PMIx server holds them. What the tasks of a node say is stored under keys that no PMI-1 client
//! can use. It stays until the next fence has ended: until then another node may need it again.

use super::{BarrierGroup, Effect, Server, Unstored, entry_bytes};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Tells fences from barriers of PMI-1.
const TAG: u32 = u32::MAX;

/// A key of PMI-1 has no blank in it.
const PREFIX: &str = "PMIx fence";

/// The part of a key that all values of a fence have. Digits keep the order.
fn of_round(round: u32) -> String {
    format!("{PREFIX} {round:010} ")
}

impl Server {
    /// Stores the next part of what this node says in the fence that it has not completed.
    pub fn store_fence(&mut self, node: u32, part: u32, data: &[u8], out: &mut Vec<Effect>) {
        let round = self.this_round(BarrierGroup::World, TAG).round;
        let key = format!("{}{node:010} {part:010}", of_round(round));
        if let Err(Unstored::Full) = self.store(None, key.as_bytes(), data, true) {
            self.fill(0, out);
        }
    }

    /// This node has said all. Gives the number of the fence.
    pub fn complete_fence(&mut self, out: &mut Vec<Effect>) -> u32 {
        let barrier = self.this_round(BarrierGroup::World, TAG);
        let round = barrier.round;
        if self.knows(&barrier) {
            self.complete(barrier.clone());
            out.push(Effect::BarrierComplete { barrier });
        } else {
            self.fill(0, out);
        }
        round
    }

    /// What all nodes have said in this fence, once they all have: pieces in the order of nodes.
    /// Drops what was said in the fences before.
    pub fn take_fence(&mut self, round: u32) -> Option<Vec<Vec<u8>>> {
        if self.this_round(BarrierGroup::World, TAG).round <= round {
            return None;
        }
        let entries = self.spaces.get_mut(&self.space_name)?;
        let (first, end) = (of_round(round).into_bytes(), of_round(round.saturating_add(1)));
        let before = entries.range(PREFIX.as_bytes().to_vec()..first.clone());
        let before: Vec<Vec<u8>> = before.map(|(key, _)| key.clone()).collect();
        for key in before {
            if let Some(value) = entries.remove(&key) {
                self.bytes -= entry_bytes(&key, &value);
            }
        }
        let all = entries.range(first..end.into_bytes());
        Some(all.map(|(_, value)| value.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::{STORE_BYTES_MAX, ServerSpec};
    use alloc::vec;
    use tutti_types::{JobId, LaunchId, Rank, UserId};

    fn servers() -> [Server; 2] {
        [[0, 1], [2, 3]].map(|ranks| {
            Server::new(ServerSpec {
                job: JobId(7),
                user: UserId(1000),
                size: 4,
                ranks: ranks.map(Rank).into(),
                space_name: "kvs_7".into(),
                process_mapping: None,
                attributes: Vec::new(),
                universe: 8,
                spawned: None,
            })
        })
    }

    /// Passes on what the servers have sent, as the controller does when all have.
    fn exchange(servers: &mut [Server; 2]) {
        let launch = LaunchId::first(JobId(7));
        let mut parts = Vec::new();
        for server in servers.iter_mut() {
            while let Some(part) = server.next_part(launch) {
                parts.push(part);
            }
        }
        let count = parts.len();
        for server in servers {
            for (number, part) in parts.iter().enumerate() {
                let number = u32::try_from(number).unwrap();
                let is_last = number as usize + 1 == count;
                let part = crate::pmi::Exchange { number, is_last, ..part.clone() };
                server.hear(&part, &mut Vec::new());
            }
        }
    }

    #[test]
    fn each_node_gets_what_all_nodes_said_in_the_order_of_nodes() {
        let mut servers = servers();
        let mut bytes = Vec::new();
        for turn in 0..5_u8 {
            let mut rounds = Vec::new();
            for (node, server) in (0..).zip(&mut servers) {
                let mut out = Vec::new();
                for part in 0..3 {
                    server.store_fence(node, part, &[turn, node.to_le_bytes()[0]], &mut out);
                }
                rounds.push(server.complete_fence(&mut out));
                assert!(matches!(out[..], [Effect::BarrierComplete { .. }]), "{out:?}");
                assert_eq!(server.take_fence(rounds[0]), None, "the other node has said nothing");
            }
            exchange(&mut servers);
            for server in &mut servers {
                let said = server.take_fence(rounds[0]).unwrap();
                assert_eq!(
                    said,
                    [[turn, 0]; 3].into_iter().chain([[turn, 1]; 3]).collect::<Vec<_>>()
                );
            }
            bytes.push(servers[0].bytes());
        }
        assert_eq!(bytes[2], bytes[4], "what earlier fences said is kept: {bytes:?}");
    }

    #[test]
    fn what_a_fence_stores_is_bounded() {
        let [mut server, _] = servers();
        let mut out = Vec::new();
        let part = vec![0; 1 << 20];
        for number in 0..200 {
            server.store_fence(0, number, &part, &mut out);
        }
        assert_eq!(out, [Effect::Full { task: 0 }]);
        assert!(server.bytes() <= STORE_BYTES_MAX);
    }
}
