//! A gate: a word that the program of a group reads each time that a process opens one of the
//! group's own devices. While it is zero, they are closed, too.
//!
//! Without such programs, it is a rule for each device (`v1`).
//!
//! The word is the only element of an array map that is mapped into this process, so a store opens
//! or closes the gate, without a system call. The program keeps the map alive. A later process
//! finds it by the program of the group ([`of`]).

use super::{Error, Result, attach, bpf, call, load};
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `BPF_MAP_CREATE`.
const MAP_CREATE: libc::c_long = 0;
/// `BPF_PROG_GET_FD_BY_ID`.
const PROG_BY_ID: libc::c_long = 13;
/// `BPF_MAP_GET_FD_BY_ID`.
const MAP_BY_ID: libc::c_long = 14;
/// `BPF_OBJ_GET_INFO_BY_FD`.
const INFO_BY_FD: libc::c_long = 15;
/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// Bytes of [`ProgramInfo`].
const PROGRAM_INFO_BYTES: u32 = 80;
const _: () = assert!(size_of::<ProgramInfo>() == 80);

/// Bytes of the word.
const WORD_BYTES: u32 = 4;

/// Programs of one group that are looked at.
const PROGRAMS_MAX: usize = 16;

/// Opens a group's own devices to its processes, and closes them. It stays as it is when this is
/// dropped.
#[derive(Debug)]
pub struct Gate(Means);

#[derive(Debug)]
enum Means {
    Word(Word),
    Files(super::v1::Files),
}

/// Memory that a program reads.
#[derive(Debug)]
struct Word(NonNull<AtomicU32>);

// SAFETY: the word is atomic, and its memory is this value's until it is dropped.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

/// What `BPF_MAP_CREATE` gets.
#[repr(C)]
#[derive(Default)]
struct CreateRequest {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// What the commands get that find an object by its number.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next_id: u32,
    flags: u32,
}

/// What `BPF_OBJ_GET_INFO_BY_FD` gets.
#[repr(C)]
struct InfoRequest {
    object: i32,
    bytes: u32,
    info: u64,
}

/// What the kernel says of a program, as far as it matters.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    bytes: [u32; 2],
    code: [u64; 2],
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

impl Gate {
    /// One that no group has: for the tests of what opens and closes gates.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn unattached() -> Result<Self> {
        Word::map(None).map(Self::of_word)
    }

    const fn of_word(word: Word) -> Self {
        Self(Means::Word(word))
    }

    pub(super) const fn of_files(files: super::v1::Files) -> Self {
        Self(Means::Files(files))
    }

    /// Opens or closes the gate. What is open stays open.
    pub fn set(&self, is_open: bool) {
        match &self.0 {
            Means::Word(word) => word.get().store(u32::from(is_open), Ordering::Release),
            Means::Files(files) => files.set(is_open),
        }
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.0 {
            Means::Word(word) => word.get().load(Ordering::Acquire) != 0,
            Means::Files(files) => files.is_open(),
        }
    }
}

impl Word {
    const fn get(&self) -> &AtomicU32 {
        // SAFETY: it is mapped until this is dropped, and a page is aligned for it.
        unsafe { self.0.as_ref() }
    }

    /// The word of a map, or of memory of its own.
    fn map(map: Option<BorrowedFd<'_>>) -> Result<Self> {
        let (flags, file) = match &map {
            Some(map) => (libc::MAP_SHARED, map.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory at an address that the kernel chooses.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), WORD_BYTES as usize, access, flags, file, 0)
        };
        let failed = || Error::Call { call: "mmap", source: std::io::Error::last_os_error() };
        if page == libc::MAP_FAILED {
            return Err(failed());
        }
        let word = NonNull::new(page.cast()).ok_or_else(failed)?;
        Ok(Self(word))
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), WORD_BYTES as usize) };
    }
}

/// As [`super::close`], with a gate for the group's own devices, which is closed at first.
///
/// # Errors
/// As [`super::close`]; `EINVAL` before Linux 5.5.
pub fn close(
    group: BorrowedFd<'_>,
    path: &Path,
    closed: &[(u32, u32)],
    own: &[(u32, u32)],
) -> Result<Gate> {
    let mut request = CreateRequest {
        kind: ARRAY,
        key_bytes: 4,
        value_bytes: WORD_BYTES,
        entries: 1,
        flags: MMAPABLE,
        name: *super::NAME,
        ..CreateRequest::default()
    };
    let map = owned(bpf(MAP_CREATE, &mut request))?;
    let word = Word::map(Some(map.as_fd()))?;
    let program = load(closed, Some((own, map.as_fd())))?;
    attach(group, path, &program)?;
    Ok(Gate::of_word(word))
}

/// The gate of a group; `None` if it has none.
///
/// # Errors
/// What the kernel says: `EPERM` without `CAP_SYS_ADMIN`.
pub fn of(group: BorrowedFd<'_>) -> Result<Option<Gate>> {
    let mut programs = [0_u32; PROGRAMS_MAX];
    let count = super::programs_of(group, &mut programs).map_err(call)?;
    for &program in programs.iter().take(count) {
        let mut request = ById { id: program, ..ById::default() };
        let program = owned(bpf(PROG_BY_ID, &mut request))?;
        let mut map = 0_u32;
        let mut info = ProgramInfo {
            map_count: 1,
            maps: std::ptr::from_mut(&mut map) as u64,
            ..ProgramInfo::default()
        };
        let mut request = InfoRequest {
            object: program.as_raw_fd(),
            bytes: PROGRAM_INFO_BYTES,
            info: std::ptr::from_mut(&mut info) as u64,
        };
        bpf(INFO_BY_FD, &mut request).map_err(call)?;
        if info.name != *super::NAME || info.map_count != 1 {
            continue;
        }
        let mut request = ById { id: map, ..ById::default() };
        let map = owned(bpf(MAP_BY_ID, &mut request))?;
        return Word::map(Some(map.as_fd())).map(Gate::of_word).map(Some);
    }
    Ok(None)
}

/// A descriptor that the kernel has just opened.
fn owned(opened: std::result::Result<i64, Errno>) -> Result<OwnedFd> {
    let opened = i32::try_from(opened.map_err(call)?).map_err(|_| call(Errno::EBADF))?;
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}
