//! Any bytes as what the daemon of a virtual machine of PVM sends.
//!
//! Whatever the pieces that they come in, they are the same messages.

use tutti_wire::pvm::{Heard, Incoming, MESSAGE_BYTES_MAX, Message};

fn messages_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Message> {
    let (mut incoming, mut found) = (Incoming::default(), Vec::new());
    for piece in pieces {
        incoming.push(piece);
        while let Some(message) = incoming.next() {
            found.push(message);
        }
    }
    found
}

/// See the file.
pub fn pvm(input: &[u8]) {
    let whole = messages_of([input].into_iter());
    for size in [1, 7, 256] {
        assert_eq!(messages_of(input.chunks(size)), whole, "{size}");
    }
    for message in whole {
        assert!(message.body.len() <= MESSAGE_BYTES_MAX);
        let mut again = Vec::new();
        message.write(message.peer, &mut again);
        assert_eq!(messages_of([&again[..]].into_iter()).len(), 1);
        let _ = Heard::read(&message);
    }
}
