//! Any bytes as what clients, front ends, keepers and tasks say.
//!
//! What is a message is written and read back the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::frame::{FrameBuffer, decode, encode};
use tutti_wire::handover::{FORM, FromHolder, Handover, MAGIC, ToHolder};
use tutti_wire::keeper::{FromKeeper, ToKeeper};
use tutti_wire::local::{Reply, Request};
use tutti_wire::pmi::{LineBuffer, parse_line};
use tutti_wire::writer::WriterOrder;

fn again<M: Serialize + DeserializeOwned + PartialEq + Debug>(input: &[u8]) {
    let Ok(message) = decode::<M>(input) else { return };
    let mut frame = Vec::new();
    if encode(&message, &mut frame).is_ok() {
        assert_eq!(decode::<M>(&frame[4..]).expect("it was just written"), message);
    }
}

/// See the file.
pub fn messages(input: &[u8]) {
    again::<Request>(input);
    again::<Reply>(input);
    again::<FromFrontEnd>(input);
    again::<ToFrontEnd>(input);
    again::<WriterOrder>(input);
    again::<ToKeeper>(input);
    again::<FromKeeper>(input);
    again::<ToHolder>(input);
    again::<FromHolder>(input);
    let _ = Handover::decode(&[&MAGIC[..], &FORM.to_le_bytes(), input].concat());
    // The same bytes as what comes over a connection, in pieces.
    let mut frames = FrameBuffer::new();
    frames.limit(1 << 16);
    for piece in input.chunks(7) {
        frames.extend(piece);
        while let Ok(Some(frame)) = frames.next_frame() {
            let _ = decode::<Request>(frame);
        }
    }
    // And as what an MPI library says.
    let mut lines = LineBuffer::default();
    for piece in input.chunks(11) {
        lines.extend(piece);
        while let Ok(Some(line)) = lines.next_line() {
            let _ = parse_line(line);
        }
    }
}
