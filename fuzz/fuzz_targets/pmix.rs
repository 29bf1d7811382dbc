//! Any bytes as what a PMIx server says to its keeper: `tests/fuzz pmix`.
#![no_main]

#[path = "../checks/pmix.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::pmix(input));
