//! Any bytes as what clients, front ends, keepers and tasks say.
//!
//! What is a message is written and read back the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tutti_types::{JobId, Rank, UserId};
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::frame::{FrameBuffer, decode, encode};
use tutti_wire::handover::{FORM, FromHolder, Handover, MAGIC, ToHolder};
use tutti_wire::keeper::{FromKeeper, ToKeeper};
use tutti_wire::local::{Reply, Request};
use tutti_wire::pmi::{LineBuffer, Names, Server, ServerSpec};
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
    for version in ["1", "2"] {
        let mut server = Server::new(ServerSpec {
            job: JobId(7),
            user: UserId(1000),
            size: 3,
            ranks: vec![Rank(0), Rank(1)],
            space_name: "kvs_7".into(),
            process_mapping: None,
            attributes: vec![],
            universe: 4,
            spawned: None,
        });
        let (mut names, mut effects) = (Names::new(), vec![]);
        let begin = format!("cmd=init pmi_version={version} pmi_subversion=0");
        server.handle(0, begin.as_bytes(), &mut names, &mut effects);
        let mut lines = LineBuffer::default();
        for piece in input.chunks(11) {
            lines.extend(piece);
            while let Ok(Some(line)) = lines.next_line() {
                server.handle(0, line, &mut names, &mut effects);
            }
        }
    }
}
