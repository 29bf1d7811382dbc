//! What the library learns of a step: lists of keys with values.
//!
//! The library keeps copies. Texts are of the C library's making, as those that the library makes.

use crate::types::{
    BOOL, BYTES, ByteObject, DATA_ARRAY, Data, DataArray, INFO, Info, PROC, PROC_RANK, Proc, SIZE,
    STRING, UINT16, UINT32, Value,
};
use std::ffi::{CString, c_char};

fn info(key: &str, kind: u16, data: Data) -> Info {
    let mut info = Info { key: [0; 512], flags: 0, value: Value { kind, data } };
    info.key[..key.len()].copy_from_slice(key.as_bytes());
    info
}

/// No bits of another value beside one that is shorter.
pub(crate) const fn blank() -> Data {
    Data { words: [0; 3] }
}

pub(crate) fn text(key: &str, text: &str) -> Info {
    // What comes from the keeper has no zero byte; without one nothing is lost.
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with a zero byte.
    made(key, unsafe { libc::strdup(text.as_ptr()) })
}

/// A text that the library made.
pub(crate) fn made(key: &str, text: *mut c_char) -> Info {
    let mut data = blank();
    data.string = text;
    info(key, STRING, data)
}

pub(crate) fn number(key: &str, number: u32) -> Info {
    let mut data = blank();
    data.uint32 = number;
    info(key, UINT32, data)
}

pub(crate) fn size(key: &str, size: usize) -> Info {
    let mut data = blank();
    data.size = size;
    info(key, SIZE, data)
}

/// Bytes. The library may take them: then their pointer is null.
pub(crate) fn bytes(key: &str, bytes: &[u8]) -> Info {
    let mut data = blank();
    // SAFETY: so many bytes are copied to where there is room for them, and none if there is none.
    data.bytes = unsafe {
        let copy = libc::malloc(bytes.len().max(1)).cast::<u8>();
        let size = if copy.is_null() { 0 } else { bytes.len() };
        bytes.as_ptr().copy_to_nonoverlapping(copy, size);
        ByteObject { bytes: copy.cast(), size }
    };
    info(key, BYTES, data)
}

pub(crate) fn small(key: &str, number: u32) -> Info {
    let mut data = blank();
    data.uint16 = u16::try_from(number).unwrap_or(u16::MAX);
    info(key, UINT16, data)
}

pub(crate) fn rank(key: &str, rank: u32) -> Info {
    let mut data = blank();
    data.uint32 = rank;
    info(key, PROC_RANK, data)
}

pub(crate) fn flag(key: &str, flag: bool) -> Info {
    let mut data = blank();
    data.flag = flag;
    info(key, BOOL, data)
}

pub(crate) fn process(key: &str, of: Proc) -> Info {
    let mut data = blank();
    data.proc = Box::into_raw(Box::new(of));
    info(key, PROC, data)
}

/// Frees what a list points to. It must be of the functions here.
pub(crate) fn free(infos: Vec<Info>) {
    for info in infos {
        // SAFETY: made here, by what the type says, and freed once.
        unsafe {
            match info.value.kind {
                STRING => libc::free(info.value.data.string.cast()),
                BYTES => libc::free(info.value.data.bytes.bytes.cast()),
                PROC => drop(Box::from_raw(info.value.data.proc)),
                DATA_ARRAY => {
                    let DataArray { kind, size, array } = *Box::from_raw(info.value.data.array);
                    match kind {
                        PROC => drop(Vec::from_raw_parts(array.cast::<Proc>(), size, size)),
                        _ => free(Vec::from_raw_parts(array.cast::<Info>(), size, size)),
                    }
                }
                _ => {}
            }
        }
    }
}

pub(crate) fn list(key: &str, list: Vec<Info>) -> Info {
    array(key, INFO, list)
}

pub(crate) fn processes(key: &str, list: Vec<Proc>) -> Info {
    array(key, PROC, list)
}

/// A list of values of this type.
fn array<T>(key: &str, kind: u16, list: Vec<T>) -> Info {
    let size = list.len();
    let list = Box::into_raw(list.into_boxed_slice());
    let array = DataArray { kind, size, array: list.cast() };
    let mut data = blank();
    data.array = Box::into_raw(Box::new(array));
    info(key, DATA_ARRAY, data)
}
