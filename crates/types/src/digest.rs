//! One number for many bytes: to compare a replay with what it replays, or to name a directory.
//! It is no protection: two texts with the same number are easily made.

use core::hash::Hasher;

/// FNV-1a, 64 bits, fed in a byte order and word size that every machine shares.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// That of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// That of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::new();
        digest.write(bytes);
        digest.finish()
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    // Discriminants of enums come in this way.
    fn write_isize(&mut self, value: isize) {
        self.write_u64((value as i64).cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn it_is_fnv_1a() {
        assert_eq!(Digest::of(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
