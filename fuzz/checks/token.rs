//! Any text as a token to join by.
//!
//! What is one is written and read back the same, however it was spelt.

use tutti_secure::Token;

/// See the file.
pub fn token(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let Ok(token) = input.parse::<Token>() else { return };
    assert_eq!(token.to_string().parse(), Ok(token));
}
