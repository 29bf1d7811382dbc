//! The tokens that a cluster has given out. What is kept are hashes: a reader of them can't join.

use crate::certificate::Fingerprint;
use crate::clock::after;
use crate::limits::{TOKEN_REMEMBERED, TOKENS_MAX};
use crate::name::Admission;
use crate::random::NoRandomness;
use crate::token::{Secret, Token};
use rustls::pki_types::UnixTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Why no token is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// Too many wait to be redeemed.
    #[error("{TOKENS_MAX} tokens are given out and neither used nor expired: use those, or wait")]
    TooMany,
    /// None can be drawn.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// It was never given out here, or so long ago that it is forgotten.
    #[error("the cluster does not know this token: ask for a new one")]
    Unknown,
    /// It was used. If that was another machine, that machine has joined by it.
    #[error("this token was used already, and is good for one machine alone: ask for a new one")]
    Used,
    /// It came too late.
    #[error("this token has expired: ask for a new one")]
    Expired,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Issued {
    hash: [u8; 32],
    /// What its owner may become. By this name, since registers have it.
    #[serde(rename = "role")]
    admission: Admission,
    /// Seconds since 1970.
    expires_s: u64,
    used: bool,
}

impl Issued {
    const fn is_over(&self, now: UnixTime) -> bool {
        self.used || now.as_secs() >= self.expires_s
    }
}

/// All that were given out and are not forgotten.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tokens {
    issued: Vec<Issued>,
}

impl Tokens {
    /// Gives out a token that one machine can join by, within `lifetime`.
    ///
    /// # Errors
    /// If too many are given out, or none can be drawn.
    pub fn issue(
        &mut self,
        authority: &Fingerprint,
        admission: Admission,
        now: UnixTime,
        lifetime: Duration,
    ) -> Result<Token, IssueError> {
        self.forget(now);
        if self.waiting(now) >= TOKENS_MAX {
            return Err(IssueError::TooMany);
        }
        let secret = Secret::draw()?;
        let expires_s = after(now, lifetime).as_secs();
        self.issued.push(Issued { hash: secret.hash(), admission, expires_s, used: false });
        Ok(Token::new(authority, secret))
    }

    /// Takes a token, once, and says what its owner may become. How long this takes says nothing of
    /// the tokens that there are, but their number. A token is gone by this also if its owner's
    /// request turns out to be none.
    ///
    /// # Errors
    /// If it is refused, with the reason.
    pub fn redeem(&mut self, secret: &Secret, now: UnixTime) -> Result<Admission, Refusal> {
        let issued = self.find(secret, now)?;
        issued.used = true;
        Ok(issued.admission.clone())
    }

    /// What the owner of a token may become, as [`Self::redeem`] would say. The token stays good.
    ///
    /// # Errors
    /// If it would be refused, with the reason.
    pub fn admission(&mut self, secret: &Secret, now: UnixTime) -> Result<Admission, Refusal> {
        self.find(secret, now).map(|issued| issued.admission.clone())
    }

    fn find(&mut self, secret: &Secret, now: UnixTime) -> Result<&mut Issued, Refusal> {
        let hash = secret.hash();
        let mut found = None;
        for issued in &mut self.issued {
            if bool::from(issued.hash.ct_eq(&hash)) {
                found = Some(issued);
            }
        }
        match found {
            None => Err(Refusal::Unknown),
            Some(issued) if issued.used => Err(Refusal::Used),
            Some(issued) if issued.is_over(now) => Err(Refusal::Expired),
            Some(issued) => Ok(issued),
        }
    }

    /// Revokes a token that was given out and not used.
    pub fn revoke(&mut self, secret: &Secret) {
        let hash = secret.hash();
        self.issued.retain(|issued| issued.used || !bool::from(issued.hash.ct_eq(&hash)));
    }

    /// Takes back all that can still be redeemed; gives how many those were.
    pub fn revoke_all(&mut self, now: UnixTime) -> usize {
        let waiting = self.waiting(now);
        self.issued.retain(|issued| issued.is_over(now));
        waiting
    }

    /// How many can still be redeemed.
    #[must_use]
    pub fn waiting(&self, now: UnixTime) -> usize {
        self.issued.iter().filter(|issued| !issued.is_over(now)).count()
    }

    /// Forgets those that expired some time ago, and where many are over, the oldest of them.
    fn forget(&mut self, now: UnixTime) {
        self.issued.retain(|issued| {
            let end = UnixTime::since_unix_epoch(Duration::from_secs(issued.expires_s));
            now < after(end, TOKEN_REMEMBERED)
        });
        let mut over = self.issued.iter().filter(|issued| issued.is_over(now)).count();
        self.issued.retain(|issued| {
            let excess = over > TOKENS_MAX && issued.is_over(now);
            over -= usize::from(excess);
            !excess
        });
    }
}
