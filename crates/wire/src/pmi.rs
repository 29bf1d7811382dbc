//! The process management interface of MPI libraries (PMI-1, wire protocol 1.1 and 1.2, and PMI-2),
//! by which the tasks of a job learn their ranks, exchange addresses and wait for each other.
//!
//! A task speaks over an inherited socket (`PMI_FD`), one line a command and one line an answer. In
//! here is no socket: a keeper collects bytes in a [`LineBuffer`] for each task, hands whole lines
//! to the job's [`Server`], and carries out its [`Effect`]s.
//!
//! The version: MPICH announces 1.1 whatever it knows, and takes from the answer what the server
//! knows. So the answer is 1.2 to everyone of version 1. Clients older than that ignore the number,
//! newer ones refuse group barriers without it. A client that announces 2 is answered by PMI-2.
//!
//! Values are passed through byte for byte: whether a client escapes blanks or not, it gets back
//! what it wrote.

mod exchange;
mod line;
mod names;
mod second;
mod server;
mod spawn;

pub use exchange::{Collected, Exchange, Values, packed};
pub use line::{Command, LineBuffer, PmiError, parse_line};
pub use names::{NameError, Names};
pub use server::{Barrier, BarrierGroup, Effect, Server, ServerSpec, TaskState};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The longest name of a key space, as clients learn it.
pub const SPACE_NAME_BYTES_MAX: usize = 256;
/// The longest key, as clients learn it. The same as hydra's, which every client was tried with.
pub const KEY_BYTES_MAX: usize = 64;
/// The longest value, as clients learn it: MPICH puts it into a line buffer of its own, and cuts
/// what is longer into pieces. Also the same as hydra's.
pub const VALUE_BYTES_MAX: usize = 1024;
/// What one job may make its server on one node keep: its keys and values, and what is remembered
/// of barriers. 4,096 tasks with cards of 4 KiB need 20 MiB; a thousand tasks of MPICH less than
/// one.
pub const STORE_BYTES_MAX: usize = 64 << 20;
/// Key spaces that one job may create beside its own. No MPI library creates any.
pub const SPACES_MAX: usize = 16;
/// Barriers that one task may wait in at once: one for each thread that makes a communicator.
pub const BARRIERS_PER_TASK_MAX: u32 = 64;
/// Names that the jobs of one user may have published at a time.
pub const NAMES_PER_USER_MAX: usize = 1024;

/// Which ranks share a node, in the form that MPICH reads (`PMI_process_mapping`): blocks of first
/// node, number of nodes, ranks on each, repeated from the front until all ranks are placed. So
/// `(vector,(0,1,4))` is four ranks on one node.
///
/// `nodes_by_rank` gives each rank's node. None if the text would be longer than a value may be:
/// MPICH then compares the names of the hosts, which takes longer and says the same.
#[must_use]
pub fn process_mapping(nodes_by_rank: impl IntoIterator<Item = u32>) -> Option<String> {
    struct Block {
        first: u32,
        nodes: u32,
        ranks: u32,
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for node in nodes_by_rank {
        match runs.last_mut() {
            Some((last, ranks)) if *last == node => *ranks = ranks.checked_add(1)?,
            _ => runs.push((node, 1)),
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (node, ranks) in runs {
        match blocks.last_mut() {
            Some(last)
                if last.ranks == ranks && last.first.checked_add(last.nodes) == Some(node) =>
            {
                last.nodes += 1;
            }
            _ => blocks.push(Block { first: node, nodes: 1, ranks }),
        }
    }
    let mut texts: Vec<String> = blocks
        .iter()
        .map(|block| format!("({},{},{})", block.first, block.nodes, block.ranks))
        .collect();
    if texts.iter().all(|text| *text == texts[0]) {
        texts.truncate(1);
    }
    let mapping = format!("(vector,{})", texts.join(","));
    Some(mapping).filter(|mapping| mapping.len() <= VALUE_BYTES_MAX && !texts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What MPICH makes of a mapping.
    fn placed(mapping: &str, size: usize) -> Vec<u32> {
        let blocks: Vec<Vec<u32>> = mapping
            .strip_prefix("(vector,(")
            .and_then(|rest| rest.strip_suffix("))"))
            .unwrap()
            .split("),(")
            .map(|block| block.split(',').map(|number| number.parse().unwrap()).collect())
            .collect();
        blocks
            .iter()
            .cycle()
            .flat_map(|block| (block[0]..block[0] + block[1]).map(|node| (node, block[2])))
            .flat_map(|(node, ranks)| (0..ranks).map(move |_| node))
            .take(size)
            .collect()
    }

    #[test]
    fn mappings_are_short() {
        for (nodes, mapping) in [
            (&[0u32, 0, 0, 0][..], "(vector,(0,1,4))"),
            (&[0, 0, 1, 1, 2, 2], "(vector,(0,3,2))"),
            (&[0, 0, 1, 1, 2], "(vector,(0,2,2),(2,1,1))"),
            (&[0, 1, 0, 1], "(vector,(0,2,1))"),
            (&[0, 1, 2, 0], "(vector,(0,3,1),(0,1,1))"),
            (&[3], "(vector,(3,1,1))"),
        ] {
            assert_eq!(process_mapping(nodes.iter().copied()).as_deref(), Some(mapping));
        }
        assert_eq!(process_mapping([]), None);
        assert_eq!(process_mapping((0..2_000).map(|rank| rank * 7 % 1_999)), None, "too long");
    }

    proptest! {
        #[test]
        fn a_mapping_says_where_each_rank_is(nodes in proptest::collection::vec(0u32..4, 1..60)) {
            let mapping = process_mapping(nodes.iter().copied()).unwrap();
            prop_assert_eq!(placed(&mapping, nodes.len()), nodes);
        }
    }
}
