//! One number for a whole state, to compare a replay with what it replays.

use core::hash::Hasher;

/// FNV-1a, 64 bits, fed in a byte order and word size that every machine shares.
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
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
    use core::hash::Hasher;

    #[test]
    fn it_is_fnv_1a() {
        let mut digest = Digest::new();
        digest.write(b"foobar");
        assert_eq!(digest.finish(), 0x8594_4171_f739_67e8);
    }
}
