//! Every maximum and lifetime of this crate, with its reason.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The name of a cluster, a node or an admin, in bytes: what the name of a host may have.
pub const NAME_BYTES_MAX: usize = 253;

/// How long an authority is good for. To follow it by another, each machine must join again, so
/// that it outlives the machines.
pub const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(20 * 365);

/// Lifetime of a certificate: none is revoked, so that a stolen one must not last.
pub const CERTIFICATE_LIFETIME: Duration = DAY.saturating_mul(30);

/// When so many parts, of how many, of its time are over a certificate is due to be renewed: a node
/// that is off for a week still comes back by itself.
pub const RENEWAL_PARTS: (u32, u32) = (2, 3);

/// Certificates are good from so long before they were made: clocks of machines differ, and a
/// machine joins has no cluster time yet.
pub const CLOCK_SKEW: Duration = HOUR;

/// A request for a certificate; one made here has some 230 bytes.
pub const REQUEST_BYTES_MAX: usize = 4 << 10;

/// A certificate; one made here has some 1,100 bytes at most.
pub const CERTIFICATE_BYTES_MAX: usize = 4 << 10;

/// A file with a key and two certificates.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// Tokens that can wait to be redeemed: a large cluster joins with one for each machine. Each that
/// is redeemed is compared with all of them.
pub const TOKENS_MAX: usize = 4 << 10;

/// How long a token is remembered after its end, so that a late machine hears that it was in order
/// once.
pub const TOKEN_REMEMBERED: Duration = DAY;

/// Room for what comes from the network, as long as little comes.
pub const INPUT_BYTES: usize = 16 << 10;

/// The same, for a peer that fills that.
pub const INPUT_BYTES_BULK: usize = 256 << 10;

/// What is encrypted and not yet taken by the kernel: more is not taken from the caller.
pub const UNSENT_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(RENEWAL_PARTS.0 < RENEWAL_PARTS.1);
const _: () = assert!(CERTIFICATE_LIFETIME.as_secs() < AUTHORITY_LIFETIME.as_secs());
const _: () = assert!(3 * CERTIFICATE_BYTES_MAX < FILE_BYTES_MAX);
