//! Any bytes as lines of the vacate protocol: `tests/fuzz vacate`.
#![no_main]

#[path = "../checks/vacate.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::vacate(input));
