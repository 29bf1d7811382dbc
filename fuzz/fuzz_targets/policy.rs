//! Any lines as what a site's policy program answers:
//! `tests/fuzz policy`.
#![no_main]

#[path = "../checks/policy.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::policy(input));
