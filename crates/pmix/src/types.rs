//! The types of OpenPMIx's interface, by hand: their layout is the same in 4.1 to 6.1, and the name
//! of the library (`libpmix.so.2`) changes when it does.

use std::ffi::{CStr, c_char, c_int, c_void};

/// Length of a name space's name, its end included.
pub(crate) const SPACE_BYTES: usize = 256;
pub(crate) const KEY_BYTES: usize = 512;

/// Status codes.
pub(crate) const SUCCESS: c_int = 0;
pub(crate) const TIMEOUT: c_int = -24;
pub(crate) const UNREACHABLE: c_int = -25;
pub(crate) const BAD_PARAMETER: c_int = -27;
pub(crate) const NO_ROOM: c_int = -29;
pub(crate) const NOT_FOUND: c_int = -46;
pub(crate) const NOT_SUPPORTED: c_int = -47;
pub(crate) const DUPLICATE: c_int = -53;
/// Done: no callback follows.
pub(crate) const DONE: c_int = -157;

/// An event: a task has ended without a word to the others.
pub(crate) const WITHOUT_A_WORD: c_int = -200;

/// A range of events: the tasks of this server.
pub(crate) const HERE: u8 = 2;

/// Types of values.
pub(crate) const BOOL: u16 = 1;
pub(crate) const STRING: u16 = 3;
pub(crate) const SIZE: u16 = 4;
pub(crate) const INT: u16 = 6;
pub(crate) const UINT16: u16 = 13;
pub(crate) const UINT32: u16 = 14;
pub(crate) const PROC: u16 = 22;
pub(crate) const INFO: u16 = 24;
pub(crate) const BYTES: u16 = 27;
pub(crate) const PERSISTENCE: u16 = 30;
pub(crate) const DATA_ARRAY: u16 = 39;
pub(crate) const PROC_RANK: u16 = 40;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Proc {
    pub(crate) space: [u8; SPACE_BYTES],
    pub(crate) rank: u32,
}

impl Proc {
    pub(crate) fn new(space: &CStr, rank: u32) -> Self {
        let mut proc = Self { space: [0; SPACE_BYTES], rank };
        let bytes = space.to_bytes();
        let length = bytes.len().min(SPACE_BYTES - 1);
        proc.space[..length].copy_from_slice(&bytes[..length]);
        proc
    }

    /// Whether it is of this name space.
    pub(crate) fn is_of(&self, space: &CStr) -> bool {
        CStr::from_bytes_until_nul(&self.space).is_ok_and(|own| own == space)
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Data {
    pub(crate) flag: bool,
    pub(crate) string: *mut c_char,
    pub(crate) uint16: u16,
    pub(crate) uint32: u32,
    pub(crate) int: c_int,
    pub(crate) size: usize,
    pub(crate) byte: u8,
    pub(crate) proc: *mut Proc,
    pub(crate) bytes: ByteObject,
    pub(crate) array: *mut DataArray,
    pub(crate) words: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ByteObject {
    pub(crate) bytes: *mut c_char,
    pub(crate) size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub(crate) kind: u16,
    pub(crate) data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Info {
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) flags: u32,
    pub(crate) value: Value,
}

#[repr(C)]
pub(crate) struct DataArray {
    pub(crate) kind: u16,
    pub(crate) size: usize,
    pub(crate) array: *mut c_void,
}

/// A published value, as it is looked up.
#[repr(C)]
pub(crate) struct Published {
    pub(crate) proc: Proc,
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) value: Value,
}

/// A program that is to be spawned.
#[repr(C)]
pub(crate) struct App {
    pub(crate) command: *const c_char,
    pub(crate) argv: *const *const c_char,
    pub(crate) environment: *const *const c_char,
    pub(crate) directory: *const c_char,
    pub(crate) tasks: c_int,
    pub(crate) infos: *const Info,
    pub(crate) count: usize,
}

const _: () = assert!(size_of::<Info>() == 552 && size_of::<Proc>() == 260);
const _: () = assert!(size_of::<Published>() == 808 && size_of::<App>() == 56);

/// Reports the end of an operation.
pub(crate) type OpCallback = Option<unsafe extern "C" fn(c_int, *mut c_void)>;
/// Frees what was passed with a [`ModexCallback`].
pub(crate) type Release = Option<unsafe extern "C" fn(*mut c_void)>;
/// Hands over what a fence has gathered, or what one task has said.
pub(crate) type ModexCallback =
    Option<unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Release, *mut c_void)>;

/// Hands over what was looked up.
pub(crate) type LookupCallback =
    Option<unsafe extern "C" fn(c_int, *mut Published, usize, *mut c_void)>;
/// Hands over what is known of a group.
pub(crate) type InfoCallback =
    Option<unsafe extern "C" fn(c_int, *mut Info, usize, *mut c_void, Release, *mut c_void)>;
/// Hands over the name space of what was spawned.
pub(crate) type SpawnCallback = Option<unsafe extern "C" fn(c_int, *mut c_char, *mut c_void)>;
/// Takes what a task of this node has said of itself.
pub(crate) type FetchCallback =
    Option<unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_void)>;

/// The library's module of callbacks: an array of pointers. Those that are null are answered by the
/// library: not supported. Later versions have more of them than 4.1, none has so many.
pub(crate) type Module = [*mut c_void; 64];
