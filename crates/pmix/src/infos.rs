//! What the library learns of a step: lists of keys with values.
//!
//! Text and arrays that a list points to are never freed. The library keeps copies, and lists are
//! made once in the life of the process.

use crate::types::{
    BOOL, DATA_ARRAY, Data, DataArray, INFO, Info, PROC_RANK, STRING, UINT16, UINT32, Value,
};
use std::ffi::{CString, c_char};

fn info(key: &str, kind: u16, data: Data) -> Info {
    let mut info = Info { key: [0; 512], flags: 0, value: Value { kind, data } };
    info.key[..key.len()].copy_from_slice(key.as_bytes());
    info
}

/// No bits of another value beside one that is shorter.
const fn blank() -> Data {
    Data { words: [0; 3] }
}

pub(crate) fn text(key: &str, text: &str) -> Info {
    // What comes from the keeper has no zero byte; without one nothing is lost.
    let text = CString::new(text).unwrap_or_default();
    let mut data = blank();
    data.string = text.into_raw();
    info(key, STRING, data)
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

pub(crate) fn list(key: &str, list: Vec<Info>) -> Info {
    let size = list.len();
    let list: &'static mut [Info] = Vec::leak(list);
    let array = DataArray { kind: INFO, size, array: list.as_mut_ptr().cast() };
    let mut data = blank();
    data.array = Box::into_raw(Box::new(array));
    info(key, DATA_ARRAY, data)
}
