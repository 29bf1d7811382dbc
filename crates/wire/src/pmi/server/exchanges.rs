//! What the servers of a job on several nodes send each other at barriers.
//!
//! A server keeps no copy of what it sends: it remembers the keys, and looks the values up when it
//! makes a part. So it can send all parts again to a controller that has missed them.

use super::{Barrier, Effect, Server, Unstored, entry_bytes, key_bytes};
use crate::limits::EXCHANGE_PART_BYTES;
use crate::pmi::exchange::{Exchange, Values};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::LaunchId;

/// A barrier that this node has completed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sent {
    /// Keys that were put before it.
    keys: Vec<Vec<u8>>,
    /// How many of them were sent.
    sent: usize,
    /// What their values took when the first part was made: every part announces it.
    announced: usize,
    /// The number of the next part to send.
    next: u32,
    /// Whether the last part was sent.
    is_sent: bool,
    /// The number of the next part of the answer.
    expected: u32,
    /// Whether the whole answer was taken in.
    is_answered: bool,
}

impl Sent {
    fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key_bytes(key)).sum()
    }
}

impl Server {
    /// All tasks of this node have entered a barrier: what was put since the last one belongs to
    /// it.
    pub(super) fn complete(&mut self, barrier: Barrier) {
        let keys = core::mem::take(&mut self.fresh).into_iter().collect();
        self.sent.insert(barrier, Sent { keys, ..Sent::default() });
    }

    /// Whether [`Self::next_part`] gives one.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.sent.values().any(|sent| !sent.is_sent)
    }

    /// The next part of what is to be sent of a barrier. A barrier before which nothing was put has
    /// one, empty part.
    pub fn next_part(&mut self, launch: LaunchId) -> Option<Exchange> {
        let (barrier, sent) = self.sent.iter_mut().find(|(_, sent)| !sent.is_sent)?;
        let entries = self.spaces.get(&self.space_name)?;
        if sent.next == 0 {
            // Once for all parts: a look at every key for each part would take minutes of a keeper.
            let of = |key: &Vec<u8>| entries.get(key).map_or(0, |value| entry_bytes(key, value));
            sent.announced = sent.keys.iter().map(of).sum();
        }
        let (mut values, mut size) = (Vec::new(), 0);
        while let Some(key) = sent.keys.get(sent.sent).filter(|_| size < EXCHANGE_PART_BYTES) {
            sent.sent += 1;
            if let Some(value) = entries.get(key) {
                size += entry_bytes(key, value);
                values.push((ByteBuf::from(&key[..]), ByteBuf::from(&value[..])));
            }
        }
        let number = sent.next;
        sent.next = sent.next.saturating_add(1);
        sent.is_sent = sent.sent == sent.keys.len();
        let (barrier, is_last, bytes) = (barrier.clone(), sent.is_sent, sent.announced);
        let values = Values::from(values);
        Some(Exchange { launch, barrier, number, is_last, bytes, values })
    }

    /// The controller may have missed any of it: all is to be sent again.
    pub fn send_again(&mut self) {
        for sent in self.sent.values_mut() {
            (sent.sent, sent.next, sent.is_sent) = (0, 0, false);
        }
    }

    /// There is no way to the controller now: nothing is to be sent until [`Self::send_again`].
    pub fn send_nothing(&mut self) {
        for sent in self.sent.values_mut() {
            sent.is_sent = true;
        }
    }

    /// Takes in a part of what all nodes of the job have stored before a barrier. The last one
    /// opens the barrier. A part that does not follow the one before is dropped: all of them come
    /// again.
    pub fn hear(&mut self, part: &Exchange, out: &mut Vec<Effect>) {
        let Some(sent) = self.sent.get_mut(&part.barrier).filter(|sent| !sent.is_answered) else {
            return;
        };
        if part.number == 0 {
            sent.expected = 0;
        }
        if part.number != sent.expected {
            return;
        }
        sent.expected = sent.expected.saturating_add(1);
        sent.is_answered = part.is_last;
        for (key, value) in part.values.iter() {
            if let Err(Unstored::Full) = self.store(None, key, value, false) {
                // The first task speaks for the job.
                return self.fill(0, out);
            }
        }
        if part.is_last {
            self.forget_before(&part.barrier);
            self.open(&part.barrier, out);
        }
    }

    /// All nodes have completed this round of a barrier, so all have had the answer to the one
    /// before.
    fn forget_before(&mut self, barrier: &Barrier) {
        let Some(round) = barrier.round.checked_sub(1) else { return };
        if let Some(before) = self.sent.remove(&Barrier { round, ..barrier.clone() }) {
            self.bytes -= before.bytes();
        }
    }
}
