//! How it is known that what is read is what was written, all of it, in its order.

/// The checksum of a row, which takes in that of the row before: a row that is missing, or stands
/// at another place, is noticed as one that was changed.
#[must_use]
pub(crate) fn seal(before: u32, number: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&number.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// The checksum of what stands for itself: of where it stands, and of what it is.
#[must_use]
pub(crate) fn own_seal(place: &[u64], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in place {
        hasher.update(&part.to_le_bytes());
    }
    hasher.update(body);
    hasher.finalize()
}
