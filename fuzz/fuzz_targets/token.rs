//! Any text as a token to join by: `tests/fuzz token`.
#![no_main]

#[path = "../checks/token.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::token(input));
