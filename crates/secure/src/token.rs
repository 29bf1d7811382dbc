//! Tokens: by one, a machine that has no certificate yet joins a cluster, once.
//!
//! A token tells the machine its peer (the fingerprint of the cluster's authority, the first 128
//! bits of it, since no other certificate with the same can be made), and carries a secret of 128
//! bits that the cluster takes once for a certificate. Written, it is `tutti1-` and 56 letters and
//! digits (base32 of 35 bytes; capitals and spaces don't matter); the last three bytes are a
//! checksum, so that a slip of the hand is not taken for a token that is refused.

use crate::certificate::Fingerprint;
use crate::hash::sha256;
use crate::random::{NoRandomness, draw};
use std::fmt;
use std::str::FromStr;

/// What every token of this form begins with; another form would count up.
const PREFIX: &str = "tutti1-";
const FAMILY: &str = "tutti";

const AUTHORITY_BYTES: usize = 16;
const SECRET_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 3;
const BYTES: usize = AUTHORITY_BYTES + SECRET_BYTES + CHECKSUM_BYTES;
/// Base32 has a letter for five bits, and there is no rest.
const LETTERS: usize = BYTES * 8 / 5;
const _: () = assert!(BYTES.is_multiple_of(5));

/// The part of a token that is redeemed.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    pub(crate) fn draw() -> Result<Self, NoRandomness> {
        Ok(Self(draw()?))
    }

    /// The bytes of it, to be sent to the cluster only.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The secret of these bytes; `None` if there are too many or too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// What is kept of it: a reader can't redeem it.
    pub(crate) fn hash(&self) -> [u8; 32] {
        sha256(&[&self.0])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A token, as a joining machine is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    authority: [u8; AUTHORITY_BYTES],
    secret: Secret,
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not look like one.
    #[error(
        "this is no token: a token begins with '{PREFIX}' and has {LETTERS} letters and digits after it"
    )]
    NotAToken,
    /// It is made in a way that this version does not know.
    #[error(
        "this token is of another version of Tutti: use the version of the cluster that gave it"
    )]
    OtherVersion,
    /// Part of it is missing, or there is too much.
    #[error(
        "the token has {letters} letters after '{PREFIX}' and should have {LETTERS}: copy it again, whole"
    )]
    Length {
        /// How many there are.
        letters: usize,
    },
    /// It has the right length, but not the right letters.
    #[error("the token is mistyped: copy it again")]
    Mistyped,
}

impl Token {
    pub(crate) fn new(authority: &Fingerprint, secret: Secret) -> Self {
        let mut token = Self { authority: [0; AUTHORITY_BYTES], secret };
        token.authority.copy_from_slice(&authority.as_bytes()[..AUTHORITY_BYTES]);
        token
    }

    /// What the cluster has to know.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Whether this is the authority of the cluster that it was given by.
    #[must_use]
    pub fn is_of(&self, authority: &Fingerprint) -> bool {
        authority.as_bytes().starts_with(&self.authority)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        let (authority, rest) = bytes.split_at_mut(AUTHORITY_BYTES);
        let (secret, checksum_place) = rest.split_at_mut(SECRET_BYTES);
        authority.copy_from_slice(&self.authority);
        secret.copy_from_slice(&self.secret.0);
        checksum_place.copy_from_slice(&checksum(&self.authority, &self.secret));
        let letters = data_encoding::BASE32_NOPAD_NOCASE.encode(&bytes).to_ascii_lowercase();
        write!(f, "{PREFIX}{letters}")
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        // A line that was broken on the way, or a blank too many, is no slip of the hand.
        let text: String =
            text.chars().filter(|letter| !letter.is_whitespace()).take(MAX).collect();
        let text = text.to_ascii_lowercase();
        let Some(letters) = text.strip_prefix(PREFIX) else {
            let other = text.strip_prefix(FAMILY).is_some_and(|rest| {
                let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
                rest.starts_with('-')
            });
            return Err(if other { TokenError::OtherVersion } else { TokenError::NotAToken });
        };
        if letters.chars().count() != LETTERS {
            return Err(TokenError::Length { letters: letters.chars().count() });
        }
        let bytes = data_encoding::BASE32_NOPAD_NOCASE
            .decode(letters.as_bytes())
            .map_err(|_| TokenError::Mistyped)?;
        Self::from_bytes(&bytes).ok_or(TokenError::Mistyped)
    }
}

/// More letters than this are not looked at.
const MAX: usize = PREFIX.len() + 2 * LETTERS;

impl Token {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (authority, rest) = bytes.split_first_chunk()?;
        let (secret, sum) = rest.split_first_chunk()?;
        let token = Self { authority: *authority, secret: Secret(*secret) };
        (checksum(authority, &token.secret) == *sum).then_some(token)
    }
}

fn checksum(authority: &[u8], secret: &Secret) -> [u8; CHECKSUM_BYTES] {
    let hash = sha256(&[PREFIX.as_bytes(), authority, &secret.0]);
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&hash[..CHECKSUM_BYTES]);
    sum
}
