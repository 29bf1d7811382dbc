//! Any bytes as a trace: `tests/fuzz swf`.
#![no_main]

#[path = "../checks/swf.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::swf(input));
