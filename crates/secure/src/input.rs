//! Room for what comes from a socket, before it is decrypted.

use crate::limits::{INPUT_BYTES, INPUT_BYTES_BULK};
use std::io::{self, ErrorKind, Read};

/// Bytes that were read and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Input {
    pub(crate) const fn is_empty(&self) -> bool {
        self.taken == self.filled
    }

    /// Reads once, in place of what was there, which must have been taken. 0: the end.
    ///
    /// # Errors
    /// Those of reading, except of having been interrupted.
    pub(crate) fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        // A peer that fills the room sends in bulk.
        let size = if self.filled >= INPUT_BYTES { INPUT_BYTES_BULK } else { INPUT_BYTES };
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
        (self.taken, self.filled) = (0, 0);
        loop {
            match source.read(&mut self.bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.filled = count;
                    return Ok(count);
                }
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = (&self.bytes[self.taken..self.filled]).read(room)?;
        self.taken += count;
        Ok(count)
    }
}
