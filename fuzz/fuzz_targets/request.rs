//! Any bytes as a request for a certificate, and as a certificate: `tests/fuzz request`.
#![no_main]

#[path = "../checks/request.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::request(input));
