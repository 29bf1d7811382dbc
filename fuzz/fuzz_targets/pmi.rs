//! Any lines as what tasks say to the process manager of their job: `tests/fuzz pmi`.
#![no_main]

#[path = "../checks/pmi.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::pmi(input));
