//! Any bytes as what neighbours in the control tree say: `tests/fuzz branch`.
#![no_main]

#[path = "../checks/branch.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::branch(input));
