//! Any bytes as a request for a certificate, and as a certificate.
//!
//! These are read of machines that are no members yet, and of those that give themselves out for a
//! cluster.

use std::sync::LazyLock;
use std::time::Duration;
use tutti_secure::{Authority, Credentials, Key, Name, Role, UnixTime};

const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));

static NAME: LazyLock<Name> = LazyLock::new(|| Name::new("fuzz").expect("it is one"));
static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::create(&NAME, NOW).expect("the machine has random numbers"));

/// Whether it is a request that is granted.
pub fn is_signed(input: &[u8]) -> bool {
    AUTHORITY.sign(input, Role::Node, &NAME, NOW).is_ok()
}

/// See the file.
pub fn request(input: &[u8]) {
    is_signed(input);
    let key = Key::generate().expect("the machine has random numbers");
    assert!(Credentials::new(key, input, AUTHORITY.certificate()).is_err());
}
