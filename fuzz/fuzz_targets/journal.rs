//! Any bytes as a journal's records: `tests/fuzz journal`.
#![no_main]

#[path = "../checks/journal.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::journal(input));
