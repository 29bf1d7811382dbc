//! Any bytes as what a machine says that nobody knows yet, and what it is answered: `cargo +nightly fuzz
//! run join`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tutti_wire::frame::{decode, encode};
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::{DecodeError, Hello};

fuzz_target!(|input: &[u8]| {
    if let Ok(redeem) = decode::<Redeem>(input) {
        let mut frame = Vec::new();
        encode(&redeem, &mut frame).unwrap();
        assert_eq!(decode::<Redeem>(&frame[4..]), Ok(redeem));
    }
    if let Ok(redeemed) = decode::<Redeemed>(input) {
        let mut frame = Vec::new();
        encode(&redeemed, &mut frame).unwrap();
        assert_eq!(decode::<Redeemed>(&frame[4..]), Ok(redeemed));
    }
    match Hello::decode(input) {
        Ok(hello) => assert!(input.starts_with(&hello.to_frame()[4..])),
        Err(DecodeError::OtherVersion { theirs, ours }) => assert_ne!(theirs, ours),
        Err(_) => {}
    }
});
