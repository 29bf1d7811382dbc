//! Any text as a site's TOML file:
//! `tests/fuzz site`.
#![no_main]

#[path = "../checks/site.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::site(input));
