use super::{Block, Levels};
use crate::matrix::{Matrix, Owner, Parts};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet};

/// Nodes of these widths, with controllers.
fn machine(widths: &[u32]) -> Matrix {
    let mut matrix = Matrix::default();
    for (node, &width) in (0..).map(NodeId).zip(widths) {
        matrix.add_node(node, &ProcessorSet::first(width));
    }
    matrix.follow_levels(true, &BTreeMap::new());
    matrix
}

fn map(matrix: &Matrix, tasks: u64) -> Option<Block> {
    Some(matrix.levels()?.map(tasks)?.block)
}

/// A job gets a block, in a row of its own; what was sent for it is returned.
fn settle(matrix: &mut Matrix, job: u64, tasks: u64) -> Option<u64> {
    let levels = matrix.levels()?;
    let (before, mapped) = (levels.messages().reports, levels.map(tasks)?);
    let mut left = u32::try_from(tasks).ok()?;
    let mut parts = Vec::new();
    for (node, skip, count) in levels.nodes_of(mapped.block) {
        let known = matrix.column(node)?.processors.iter();
        let set: ProcessorSet = known.skip(skip as usize).take(count.min(left) as usize).collect();
        left -= set.count();
        if !set.is_empty() {
            parts.push((node, set));
        }
    }
    assert_eq!(left, 0, "the block holds the job");
    let class = ClassName::new("production");
    let parts: Parts = parts.into();
    matrix.place(JobId(job), (&class, Owner::default()), None, parts);
    let reports = matrix.levels()?.messages().reports - before;
    Some(u64::from(mapped.messages) + reports)
}

#[test]
fn a_decision_costs_at_most_two_messages_a_level_from_8_to_4096_nodes() {
    for log in 3..=12 {
        let nodes = 1usize << log;
        let mut matrix = machine(&vec![1; nodes]);
        let (mut most, mut most_at_end, mut random) = (0, 0, 1u64);
        for job in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let tasks = 1 + (random >> 33) % (1 << ((random >> 20) % (log + 1)));
            most = most.max(settle(&mut matrix, job, tasks).unwrap());
            if job % 3 == 2 {
                let before = matrix.levels().unwrap().messages().reports;
                matrix.remove(JobId(job - 1));
                let after = matrix.levels().unwrap().messages().reports;
                most_at_end = most_at_end.max(after - before);
            }
        }
        println!("{nodes} nodes: at most {most} messages a decision, {most_at_end} an end");
        assert_eq!((most, most_at_end), (2 * log, log), "single processors cost the most");
        assert!(matrix.levels().unwrap().is_like(&matrix.new_levels(&BTreeMap::new())));
    }
}

#[test]
fn blocks_lie_within_nodes_and_lines_of_nodes() {
    let matrix = machine(&[3, 4, 4]);
    let levels = matrix.levels().unwrap();
    // Nodes have four places each, so the root has sixteen.
    assert_eq!(levels.top(), 4);
    let block = |tasks| map(&matrix, tasks).map(|block| (block.level, block.index));
    assert_eq!(block(1), Some((0, 0)));
    assert_eq!(block(2), Some((1, 0)));
    // Node 0 has too few processors to be a whole block of four.
    assert_eq!(block(4), Some((2, 1)));
    assert_eq!(block(3), Some((2, 1)));
    // Of two nodes, only the first two together have as many as any.
    assert_eq!(block(7), Some((3, 0)));
    assert_eq!(block(11), Some((4, 0)));
    assert_eq!(block(12), None);
}

#[test]
fn a_drained_node_is_no_part_of_a_whole_block() {
    let mut matrix = machine(&[1; 8]);
    matrix.close(NodeId(1));
    assert!(matrix.levels().is_none(), "nodes have changed");
    matrix.follow_levels(true, &BTreeMap::new());
    assert_eq!(map(&matrix, 4), Some(Block { level: 2, index: 1 }));
    assert_eq!(map(&matrix, 2), Some(Block { level: 1, index: 1 }));
    assert_eq!(map(&matrix, 8), None);
}

/// The loads of all blocks of a level, by looking at every job.
fn by_hand(jobs: &BTreeMap<u64, Block>, level: u32, count: u64) -> Vec<(u64, u64, u64)> {
    let loads = (0..count).map(|index| {
        let own = jobs.values().filter(|it| **it == Block { level, index }).count() as u64;
        let overlaps = |it: &&Block| {
            let (high, low) = if it.level > level { (it.level, level) } else { (level, it.level) };
            let shifted = |level, index| index >> (high - level);
            high >= low && shifted(it.level, it.index) == shifted(level, index)
        };
        let theirs = jobs.values().filter(overlaps);
        (own, theirs.map(|it| 1 << it.level.min(level)).sum(), index)
    });
    loads.collect()
}

proptest! {
    /// The block that controllers find by messages is the one that has the least load of all.
    #[test]
    fn the_least_loaded_block_is_found(
        log in 0u32..6,
        acts in prop::collection::vec((any::<bool>(), 0usize..64), 1..60),
    ) {
        let nodes = 1u64 << log;
        let mut matrix = machine(&vec![1; 1 << log]);
        let mut jobs: BTreeMap<u64, Block> = BTreeMap::new();
        for (number, (ends, value)) in (0..).zip(acts) {
            if ends && !jobs.is_empty() {
                let job = *jobs.keys().nth(value % jobs.len()).unwrap();
                jobs.remove(&job);
                matrix.remove(JobId(job));
            } else {
                // A job of a whole block, so that its processors say its level.
                let tasks = (1u64 << (value % (log as usize + 1))).min(nodes);
                let found = map(&matrix, tasks).unwrap();
                let loads = by_hand(&jobs, found.level, nodes >> found.level);
                prop_assert_eq!(loads.iter().min().unwrap().2, found.index, "{:?}", loads);
                settle(&mut matrix, number, tasks);
                jobs.insert(number, found);
            }
            prop_assert!(matrix.levels().unwrap().is_like(&matrix.new_levels(&BTreeMap::new())));
        }
    }

    /// Whatever nodes there are, a job that they hold together finds a block that holds it.
    #[test]
    fn whatever_fits_finds_a_block(
        widths in prop::collection::vec(0u32..9, 1..7),
        closed in 0u32..8,
        tasks in 1u64..40,
    ) {
        let mut matrix = machine(&widths);
        matrix.close(NodeId(closed));
        matrix.follow_levels(true, &BTreeMap::new());
        let open = (0..).zip(&widths).filter(|&(node, _)| node != closed);
        let open: u64 = open.map(|(_, &width)| u64::from(width)).sum();
        let found = settle(&mut matrix, 1, tasks);
        prop_assert_eq!(found.is_some(), tasks <= open);
    }
}

#[test]
fn controllers_are_soft_state() {
    let mut matrix = machine(&[1; 8]);
    settle(&mut matrix, 1, 2);
    let stored = postcard::to_allocvec(&matrix).unwrap();
    let mut read: Matrix = postcard::from_bytes(&stored).unwrap();
    assert!(read.levels().is_none() && read == matrix, "nothing of them is stored");
    read.follow_levels(true, &BTreeMap::new());
    assert!(read.levels().unwrap().is_like(matrix.levels().unwrap()));
    assert!(!Levels::default().is_current());
}
