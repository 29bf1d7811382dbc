//! Hollow ranks: what MPI programs would store before barriers, and get of the others. They meet
//! in a few barriers, one after the other, and end.

use super::super::tree::{Passage, Tree};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{LaunchId, Rank, TaskStatus};
use tutti_wire::launch::{Share, Usage};
use tutti_wire::pmi::{Barrier, BarrierGroup, Exchange, Values, packed};
use tutti_wire::tree::FromAgent;

/// Tasks that a hollow node has room for.
pub const RANKS_PER_NODE: u32 = 16;

/// In how many barriers they meet.
pub const BARRIERS: u32 = 3;

/// What a rank stores before each, in bytes.
const CARD_BYTES: usize = 1 << 10;

/// Parts of exchanges that went over connections, and what their values take.
#[derive(Debug, Default)]
pub struct Passages {
    /// Parts on the way to the parent.
    pub up: AtomicU64,
    /// The bytes of their values.
    pub up_bytes: AtomicU64,
    /// Parts on the way from the parent.
    pub down: AtomicU64,
    /// The bytes of their values.
    pub down_bytes: AtomicU64,
}

impl Passages {
    fn add(&self, up: &Passage, down: &Passage) {
        self.up.fetch_add(up.parts, Ordering::Relaxed);
        self.up_bytes.fetch_add(up.bytes, Ordering::Relaxed);
        self.down.fetch_add(down.parts, Ordering::Relaxed);
        self.down_bytes.fetch_add(down.bytes, Ordering::Relaxed);
    }
}

/// What is known of the barriers of hollow ranks.
#[derive(Debug, Default)]
pub struct Met {
    /// Over the connections of the head's children, in all barriers.
    pub at_head: Passages,
    /// When the first node has sent its first part, and when the last one had its last answer, in
    /// nanoseconds of the monotonic clock.
    span_ns: Mutex<Option<(u64, u64)>>,
}

impl Met {
    /// How long all barriers took together, in nanoseconds.
    pub fn took_ns(&self) -> u64 {
        let span = self.span_ns.lock().map_or(None, |span| *span);
        span.map_or(0, |(from, to)| to.saturating_sub(from))
    }

    fn note(&self, now_ns: u64) {
        if let Ok(mut span) = self.span_ns.lock() {
            *span = Some(span.map_or((now_ns, now_ns), |(from, _)| (from, now_ns)));
        }
    }
}

/// The ranks of a node.
#[derive(Debug)]
pub(super) struct Ranks {
    launch: LaunchId,
    ranks: Vec<Rank>,
    round: u32,
}

impl Ranks {
    /// Those of a launch: they begin, and enter the first barrier.
    pub(super) fn begin(launch: LaunchId, share: &Share, tree: &mut Tree, met: &Met) -> Self {
        let ranks: Vec<Rank> = share.tasks.iter().map(|task| task.rank).collect();
        met.note(monotonic_ns());
        let own = Self { launch, ranks, round: 0 };
        own.say_again(tree);
        own
    }

    /// Which launch they are of.
    pub(super) fn launch(&self) -> LaunchId {
        self.launch
    }

    /// Says that they run, and what they store before the barrier that they wait in. Also again, to
    /// a parent or a controller that may not have heard it.
    pub(super) fn say_again(&self, tree: &mut Tree) {
        let launch = self.launch;
        for &rank in &self.ranks {
            tree.report(FromAgent::TaskStarted { launch, rank, root: 1 });
        }
        self.enter(tree);
    }

    /// They are killed.
    pub(super) fn die(self, tree: &mut Tree) {
        self.end(TaskStatus::Signaled(9), tree);
    }

    fn end(&self, status: TaskStatus, tree: &mut Tree) {
        let (launch, usage) = (self.launch, Usage::default());
        for &rank in &self.ranks {
            tree.report(FromAgent::TaskEnded {
                launch,
                rank,
                status,
                detail: String::new(),
                usage,
            });
        }
        tree.report(FromAgent::Cleared { launch, usage });
    }

    fn enter(&self, tree: &mut Tree) {
        let card = |rank: &Rank| {
            let key = format!("card-{rank}-{}", self.round).into_bytes();
            (key.into(), vec![0; CARD_BYTES].into())
        };
        let barrier = Barrier { group: BarrierGroup::World, tag: 0, round: self.round };
        let cards = self.ranks.iter().map(|rank| Values::from(vec![card(rank)]));
        let parts = packed(cards.collect());
        let bytes = parts.iter().map(Values::bytes).sum();
        for place in 0..parts.len().max(1) {
            tree.exchange(Exchange::of_parts(self.launch, &barrier, (&parts, bytes), place));
        }
    }

    /// A part of the answer has come. Gives whether the ranks have ended.
    pub(super) fn hear(&mut self, part: &Exchange, tree: &mut Tree, met: &Met) -> bool {
        if (part.launch, part.barrier.round) != (self.launch, self.round) || !part.is_last {
            return false;
        }
        self.round += 1;
        if self.round < BARRIERS {
            self.enter(tree);
            return false;
        }
        met.note(monotonic_ns());
        if let Some([up, down]) = tree.passages_with_head() {
            met.at_head.add(up, down);
        }
        self.end(TaskStatus::Exited(0), tree);
        true
    }
}
