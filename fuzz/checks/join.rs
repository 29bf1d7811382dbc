//! Any bytes as what a machine says that nobody knows yet, and what it is answered.
//!
//! What is a message is written and read back the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tutti_wire::frame::{decode, encode};
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::{DecodeError, Hello};

fn again<M: Serialize + DeserializeOwned + PartialEq + Debug>(input: &[u8]) {
    let Ok(message) = decode::<M>(input) else { return };
    let mut frame = Vec::new();
    encode(&message, &mut frame).expect("it came in a frame");
    assert_eq!(decode::<M>(&frame[4..]), Ok(message));
}

/// See the file.
pub fn join(input: &[u8]) {
    again::<Redeem>(input);
    again::<Redeemed>(input);
    match Hello::decode(input) {
        Ok(hello) => assert!(input.starts_with(&hello.to_frame()[4..])),
        Err(DecodeError::OtherVersion { theirs, ours }) => assert_ne!(theirs, ours),
        Err(_) => {}
    }
}
