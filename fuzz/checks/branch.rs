//! Any bytes as what neighbours in the control tree say.
//!
//! What is a message is written and read back the same, and no longer than a frame may be; so is
//! each of the batches that orders travel in.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tutti_wire::branch::{FromBranch, ToBranch, batches};
use tutti_wire::frame::{FrameBuffer, decode, encode};

fn again<M: Serialize + DeserializeOwned + PartialEq + Debug>(message: &M) {
    let mut frame = Vec::new();
    if encode(message, &mut frame).is_ok() {
        assert_eq!(&decode::<M>(&frame[4..]).unwrap(), message);
    }
}

/// See the file.
pub fn branch(input: &[u8]) {
    if let Ok(message) = decode::<FromBranch>(input) {
        again(&message);
    }
    if let Ok(message) = decode::<ToBranch>(input) {
        again(&message);
        if let ToBranch::Orders(orders) = message {
            let count = orders.len();
            assert_eq!(batches(orders).iter().map(Vec::len).sum::<usize>(), count);
        }
    }
    // The same bytes as a stream of frames.
    let mut frames = FrameBuffer::new();
    frames.limit(1 << 16);
    let room = frames.room(input.len().max(1));
    let length = room.len().min(input.len());
    room[..length].copy_from_slice(&input[..length]);
    frames.filled(length);
    while let Ok(Some(frame)) = frames.next_frame() {
        let _ = decode::<FromBranch>(frame);
        let _ = decode::<ToBranch>(frame);
    }
}
