//! Any bytes as what clients, front ends, keepers and tasks say: `tests/fuzz messages`.
#![no_main]

#[path = "../checks/messages.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::messages(input));
