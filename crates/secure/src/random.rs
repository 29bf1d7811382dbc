//! Random numbers, as the operating system gives them.

use ring::rand::{SecureRandom, SystemRandom};

/// The machine gives no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine gives no random numbers")]
pub struct NoRandomness;

/// A number that can't be guessed.
///
/// # Errors
/// If the machine gives none.
pub fn random_number() -> Result<u64, NoRandomness> {
    Ok(u64::from_ne_bytes(draw()?))
}

/// So many random bytes.
pub(crate) fn draw<const BYTES: usize>() -> Result<[u8; BYTES], NoRandomness> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}
