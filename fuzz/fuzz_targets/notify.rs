//! Any text as what a user wants to be notified of and where, and as a webhook's answer:
//! `tests/fuzz notify`.
#![no_main]

#[path = "../checks/notify.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::notify(input));
