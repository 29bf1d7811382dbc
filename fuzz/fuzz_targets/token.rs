//! Any text as a token to join by: `cargo +nightly fuzz run token`.
//!
//! What is one is written and read back the same, however it was spelt.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tutti_secure::Token;

fuzz_target!(|input: &str| {
    let Ok(token) = input.parse::<Token>() else { return };
    assert_eq!(token.to_string().parse(), Ok(token));
});
