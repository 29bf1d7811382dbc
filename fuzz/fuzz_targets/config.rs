//! Any text as what people write: lengths, lists of nodes, scripts, patterns, hours of the week:
//! `tests/fuzz config`.
#![no_main]

#[path = "../checks/config.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::config(input));
