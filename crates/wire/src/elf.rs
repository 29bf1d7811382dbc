//! What a program loads: the dynamic section of an ELF file, and the cache of the dynamic linker.
//!
//! Only what a 64-bit little-endian linker of glibc or musl reads to find libraries. Nothing is
//! executed. Every count and length is bounded, whatever the file says.

use alloc::string::String;
use alloc::vec::Vec;

/// Reads so many bytes at an offset of a file, or fewer at its end; `None` if it can't be read.
pub type ReadAt<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;

/// What a file asks the dynamic linker for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Libraries that it needs, at most [`NEEDED_MAX`].
    pub needed: Vec<String>,
    /// Where its libraries, and those that they need, are looked for first; directories with `:`.
    pub rpath: String,
    /// Where its libraries are looked for after `LD_LIBRARY_PATH`.
    pub runpath: String,
}

/// Maximum number of libraries of one file that are taken note of.
pub const NEEDED_MAX: usize = 128;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADERS_MAX: usize = 64;
/// One read has the header and, where they usually are, the program headers.
const FIRST_BYTES: usize = HEADER_BYTES + PROGRAM_HEADER_BYTES * 16;
const DYNAMIC_BYTES_MAX: usize = 64 << 10;
const NAME_BYTES_MAX: usize = 256;
const PATH_BYTES_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// A part of the file, and where it is in memory.
#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

/// The dynamic section of a file. `None`: it is no such file, has none, or is damaged.
pub fn dynamic(read: ReadAt<'_>) -> Option<Dynamic> {
    let segments = segments(read)?;
    let section = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let bytes = usize::try_from(section.bytes).ok()?.min(DYNAMIC_BYTES_MAX);
    let section = read(section.offset, bytes)?;
    let entries = || {
        let pairs = section.chunks_exact(16).map(|pair| (u64_at(pair, 0), u64_at(pair, 8)));
        pairs.map_while(|(tag, value)| Some((tag.filter(|tag| *tag != 0)?, value?)))
    };
    let strings = entries().find(|(tag, _)| *tag == DT_STRTAB)?.1;
    let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let within = |segment: &&Segment| {
        strings.checked_sub(segment.address).is_some_and(|into| into < segment.bytes)
    };
    let segment = loaded.clone().find(within)?;
    let strings = segment.offset.checked_add(strings - segment.address)?;
    let mut text = |at: u64, most: usize| {
        let bytes = read(strings.checked_add(at)?, most)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        core::str::from_utf8(&bytes[..end]).ok().map(String::from)
    };
    let mut found = Dynamic::default();
    for (tag, value) in entries() {
        match tag {
            DT_NEEDED if found.needed.len() < NEEDED_MAX => {
                found.needed.extend(text(value, NAME_BYTES_MAX));
            }
            DT_RPATH => found.rpath = text(value, PATH_BYTES_MAX).unwrap_or_default(),
            DT_RUNPATH => found.runpath = text(value, PATH_BYTES_MAX).unwrap_or_default(),
            _ => {}
        }
    }
    Some(found)
}

fn segments(read: ReadAt<'_>) -> Option<Vec<Segment>> {
    let first = read(0, FIRST_BYTES)?;
    // 64 bits, little-endian.
    if !first.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let offset = u64_at(&first, 32)?;
    let size = usize::from(u16_at(&first, 54)?);
    let count = usize::from(u16_at(&first, 56)?).min(PROGRAM_HEADERS_MAX);
    if size != PROGRAM_HEADER_BYTES {
        return None;
    }
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(size * count)?;
    let headers = match first.get(begin..end) {
        Some(headers) => headers.to_vec(),
        None => read(offset, size * count)?,
    };
    let segment = |header: &[u8]| {
        Some(Segment {
            kind: u32_at(header, 0)?,
            offset: u64_at(header, 8)?,
            address: u64_at(header, 16)?,
            bytes: u64_at(header, 32)?,
        })
    };
    Some(headers.chunks_exact(size).filter_map(segment).collect())
}

const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const CACHE_HEADER_BYTES: usize = 48;
const CACHE_ENTRY_BYTES: usize = 24;
const CACHE_ENTRIES_MAX: usize = 100_000;

/// The paths that the dynamic linker's cache (`/etc/ld.so.cache`) has for a library.
pub fn cached<'a>(cache: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a str> {
    // An older form may precede it.
    let begin = cache.windows(CACHE_MAGIC.len()).position(|window| window == CACHE_MAGIC);
    let cache = begin.map_or(&[][..], |begin| &cache[begin..]);
    let count = u32_at(cache, CACHE_MAGIC.len()).and_then(|count| usize::try_from(count).ok());
    let text = |at: u32| {
        let rest = cache.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        core::str::from_utf8(&rest[..end]).ok()
    };
    (0..count.unwrap_or(0).min(CACHE_ENTRIES_MAX))
        .map_while(move |index| cache.get(CACHE_HEADER_BYTES + index * CACHE_ENTRY_BYTES..))
        .filter_map(move |entry| {
            let key = cache.get(usize::try_from(u32_at(entry, 4)?).ok()?..)?;
            let is_it = key.strip_prefix(name.as_bytes())?.first() == Some(&0);
            if is_it { text(u32_at(entry, 8)?) } else { None }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Option<Dynamic> {
        dynamic(&mut |offset, count| {
            let rest = bytes.get(usize::try_from(offset).ok()?..)?;
            Some(rest[..count.min(rest.len())].to_vec())
        })
    }

    /// A file that needs two libraries and has a runpath.
    fn sample() -> Vec<u8> {
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 2;
        let strings = b"\0libmpi.so.40\0libc.so.6\0$ORIGIN/lib\0";
        let entries = [(1u64, 1u64), (1, 14), (29, 24), (5, 0x1000 + 256), (0, 0), (1, 1)];
        let mut header = |at: usize, kind: u8, offset: u64, address: u64, bytes: u64| {
            file[at] = kind;
            for (place, value) in [(8, offset), (16, address), (32, bytes)] {
                file[at + place..at + place + 8].copy_from_slice(&value.to_le_bytes());
            }
        };
        header(64, 1, 0, 0x1000, 4096);
        header(120, 2, 512, 0x1200, 16 * entries.len() as u64);
        file.resize(256, 0);
        file.extend(strings);
        file.resize(512, 0);
        file.extend(
            entries
                .iter()
                .flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat()),
        );
        file
    }

    #[test]
    fn needed_libraries_and_search_path_are_read() {
        let found = of(&sample()).unwrap();
        assert_eq!(found.needed, ["libmpi.so.40", "libc.so.6"]);
        assert_eq!((found.rpath.as_str(), found.runpath.as_str()), ("", "$ORIGIN/lib"));
        // This test itself.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(of(&own).unwrap().needed.iter().any(|name| name.starts_with("libc.so")));
        for other in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x01\x01"] {
            assert_eq!(of(other), None);
        }
    }

    #[test]
    fn linker_cache_is_searched_by_name() {
        let mut cache = CACHE_MAGIC.to_vec();
        cache.extend(2u32.to_le_bytes());
        cache.resize(CACHE_HEADER_BYTES, 0);
        let texts = CACHE_HEADER_BYTES + 2 * CACHE_ENTRY_BYTES;
        for (key, value) in [(0, 5), (13, 19)] {
            let mut entry = vec![0; CACHE_ENTRY_BYTES];
            entry[4..8].copy_from_slice(&u32::try_from(texts + key).unwrap().to_le_bytes());
            entry[8..12].copy_from_slice(&u32::try_from(texts + value).unwrap().to_le_bytes());
            cache.extend(entry);
        }
        cache.extend(b"liba\0/l/liba\0libab\0/l/libab\0");
        let found = |name| cached(&cache, name).collect::<Vec<_>>();
        assert_eq!(found("liba"), ["/l/liba"]);
        assert_eq!(found("libab"), ["/l/libab"]);
        assert_eq!(found("lib"), Vec::<&str>::new());
        assert_eq!(cached(b"ld.so-1.7.0", "liba").count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            changes in proptest::collection::vec((0usize..700, any::<u8>()), 0..8),
        ) {
            let _ = (of(&bytes), cached(&bytes, "a").count());
            let mut near = sample();
            for (at, byte) in changes {
                if let Some(place) = near.get_mut(at) {
                    *place = byte;
                }
            }
            if let Some(found) = of(&near) {
                prop_assert!(found.needed.len() <= NEEDED_MAX);
            }
        }
    }
}
