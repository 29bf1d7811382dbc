//! Any bytes as a program, and as the cache of the dynamic linker.

use tutti_wire::elf::{NEEDED_MAX, cached, dynamic};

/// See the file.
pub fn elf(input: &[u8]) {
    let mut read = |offset: u64, count: usize| {
        let rest = input.get(usize::try_from(offset).ok()?..)?;
        Some(rest[..count.min(rest.len())].to_vec())
    };
    if let Some(found) = dynamic(&mut read) {
        assert!(found.needed.len() <= NEEDED_MAX);
    }
    let _ = cached(input, "libmpi.so.40").count();
}
