//! Any bytes as messages of PVM: `tests/fuzz pvm`.
#![no_main]

#[path = "../checks/pvm.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::pvm(input));
