//! The tree of blocks, and how many processors each has.

use crate::matrix::Column;
use alloc::vec::Vec;
use tutti_types::ids::NodeId;

/// A block of `2^level` places of the line of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Its level.
    pub level: u32,
    /// How many blocks of its level come before it.
    pub index: u64,
}

impl Block {
    /// The least block with both places.
    #[must_use]
    pub fn around(first: u64, last: u64) -> Self {
        let level = u64::BITS - (first ^ last).leading_zeros();
        Self { level, index: first.checked_shr(level).unwrap_or(0) }
    }

    /// How many places it has.
    #[must_use]
    pub const fn size(self) -> u64 {
        1 << self.level
    }

    /// Its first place.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.index << self.level
    }

    /// The block around it.
    #[must_use]
    pub const fn parent(self) -> Self {
        Self { level: self.level + 1, index: self.index / 2 }
    }

    /// Its halves. A block of level 0 has none.
    pub(super) const fn children(self) -> [Self; 2] {
        let level = self.level.saturating_sub(1);
        [Self { level, index: 2 * self.index }, Self { level, index: 2 * self.index + 1 }]
    }
}

/// How loaded a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    /// The jobs that take turns there at its level.
    pub(super) jobs: u32,
    /// How many of its processors jobs ask for, added up; without those of controllers above the
    /// one that says so.
    pub(super) demand: u64,
}

/// The controller of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Controller {
    /// The jobs that are mapped to its block.
    pub(super) jobs: u32,
    /// How many processors those ask for that are mapped to blocks within.
    pub(super) below: u64,
    /// What it reports: by level, the least load of a block in its own; `None`: no such block is
    /// whole.
    pub(super) least: Vec<Option<Load>>,
}

/// How many processors blocks have that jobs may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// The level of the blocks that are nodes.
    node_level: u32,
    top: u32,
    /// How many processors nodes have, by number.
    widths: Vec<u32>,
    /// By level, from that of nodes on, and by block: the most processors of a block of each such
    /// level in it.
    most: Vec<Vec<u64>>,
}

impl Room {
    /// Nodes that take no jobs have places, and no processors.
    pub(super) fn new<'a>(columns: impl Iterator<Item = (NodeId, &'a Column, bool)>) -> Self {
        let mut widths = Vec::new();
        let mut widest = 1;
        for (node, column, takes_jobs) in columns {
            widest = widest.max(column.width);
            widths.resize(node.0 as usize + 1, 0);
            widths[node.0 as usize] = if takes_jobs { column.width } else { 0 };
        }
        let node_level = widest.next_power_of_two().ilog2();
        let above = widths.len().max(1).next_power_of_two().ilog2();
        let mut most: Vec<Vec<u64>> = alloc::vec![widths.iter().copied().map(u64::from).collect()];
        most[0].resize(1 << above, 0);
        for level in 1..=above as usize {
            let (below, stride) = (&most[level - 1], level);
            let mut blocks = Vec::with_capacity((1 << (above as usize - level)) * (level + 1));
            for halves in below.chunks(2 * stride) {
                let (left, right) = halves.split_at(stride);
                blocks.extend(left.iter().zip(right).map(|(left, right)| left.max(right)));
                blocks.push(left[stride - 1] + right[stride - 1]);
            }
            most.push(blocks);
        }
        Self { node_level, top: node_level + above, widths, most }
    }

    pub(super) const fn top(&self) -> u32 {
        self.top
    }

    pub(super) const fn root(&self) -> Block {
        Block { level: self.top, index: 0 }
    }

    /// How many places each node has.
    pub(super) const fn places_of_a_node(&self) -> u64 {
        1 << self.node_level
    }

    /// The first place of a node.
    pub(super) const fn first_of(&self, node: NodeId) -> u64 {
        (node.0 as u64) << self.node_level
    }

    /// See [`super::Levels::nodes_of`].
    pub(super) fn nodes_of(
        &self,
        block: Block,
    ) -> impl Iterator<Item = (NodeId, u32, u32)> + use<> {
        let each = 1u64 << self.node_level;
        let (first, end) = (block.first(), block.first() + block.size());
        let known = self.widths.len() as u64;
        let nodes = first / each..end.div_ceil(each).min(known);
        let (skip, count) = (first % each, block.size().min(each));
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        nodes.map(move |node| (NodeId(number(node)), number(skip), number(count)))
    }

    /// The most processors that a block of a level has.
    pub(super) fn most(&self, level: u32) -> u64 {
        self.most_in(self.root(), level)
    }

    /// Whether there is, within a block, one of a level that has as many as any.
    pub(super) fn has_whole(&self, block: Block, level: u32) -> bool {
        let most = self.most(level);
        most > 0 && self.most_in(block, level) == most
    }

    /// The most processors that a block of a level has within another.
    fn most_in(&self, block: Block, level: u32) -> u64 {
        let size = 1 << level;
        if let Some(above) = block.level.checked_sub(self.node_level) {
            let stride = u64::from(above) + 1;
            let at = |level: u32| {
                let index = block.index.checked_mul(stride)? + u64::from(level);
                self.most.get(above as usize)?.get(usize::try_from(index).ok()?).copied()
            };
            return match level.checked_sub(self.node_level) {
                Some(level) => at(level).unwrap_or(0),
                None => at(0).unwrap_or(0).min(size),
            };
        }
        let (node, offset) =
            (block.first() >> self.node_level, block.first() % (1 << self.node_level));
        let width = usize::try_from(node).ok().and_then(|node| self.widths.get(node));
        let here = width.map_or(0, |&width| u64::from(width).saturating_sub(offset));
        here.min(block.size()).min(size)
    }
}
