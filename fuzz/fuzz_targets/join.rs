//! Any bytes as what a machine says that nobody knows yet, and what it is answered:
//! `tests/fuzz join`.
#![no_main]

#[path = "../checks/join.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::join(input));
