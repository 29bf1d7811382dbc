//! SHA-256, by which certificates, secrets and checksums go.

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// The hash of all parts, one after the other.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}
