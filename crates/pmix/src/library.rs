//! OpenPMIx's library, loaded at run time.

use crate::types::{FetchCallback, Info, Module, OpCallback, Proc};
use anyhow::{Context as _, bail, ensure};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The oldest version that was seen to work, and the first part of those after it.
const OLDEST: (u32, u32) = (4, 1);

/// The oldest with an answer about a group that Open MPI 5 can read. Tasks of a group see its
/// members in it, which older versions leave out.
const OLDEST_WITH_GROUPS: (u32, u32) = (5, 0);

/// What is needed of the library.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(crate) init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> c_int,
    pub(crate) regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    pub(crate) ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    pub(crate) register_space: unsafe extern "C" fn(
        *const c_char,
        c_int,
        *mut Info,
        usize,
        OpCallback,
        *mut c_void,
    ) -> c_int,
    pub(crate) register_client:
        unsafe extern "C" fn(*const Proc, u32, u32, *mut c_void, OpCallback, *mut c_void) -> c_int,
    pub(crate) setup_fork: unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> c_int,
    pub(crate) deregister_space: unsafe extern "C" fn(*const c_char, OpCallback, *mut c_void),
    pub(crate) fetch: unsafe extern "C" fn(*const Proc, FetchCallback, *mut c_void) -> c_int,
    pub(crate) notify: unsafe extern "C" fn(
        c_int,
        *const Proc,
        u8,
        *const Info,
        usize,
        OpCallback,
        *mut c_void,
    ) -> c_int,
    pub(crate) error: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Whether tasks can found groups by it.
    pub(crate) has_groups: bool,
}

impl Library {
    /// Loads the first of these that is there and new enough.
    ///
    /// # Errors
    /// If none is: with what is wrong with each.
    pub(crate) fn load(names: &[Vec<u8>]) -> anyhow::Result<Self> {
        let mut reasons = Vec::new();
        for name in names {
            match open(name).and_then(Self::of) {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(format!("{error:#}")),
            }
        }
        bail!("no PMIx library can be used: {}", reasons.join("; "))
    }

    fn of(handle: *mut c_void) -> anyhow::Result<Self> {
        let version = version(handle)?;
        let numbers = numbers_of(&version);
        ensure!(
            numbers.is_some_and(|numbers| numbers >= OLDEST),
            "libpmix is of version {version}; {}.{} or later is needed",
            OLDEST.0,
            OLDEST.1
        );
        // SAFETY: the types are those of the functions of these names, from 4.1 to 6.1.
        unsafe {
            Ok(Self {
                init: symbol(handle, c"PMIx_server_init")?,
                regex: symbol(handle, c"PMIx_generate_regex")?,
                ppn: symbol(handle, c"PMIx_generate_ppn")?,
                register_space: symbol(handle, c"PMIx_server_register_nspace")?,
                register_client: symbol(handle, c"PMIx_server_register_client")?,
                setup_fork: symbol(handle, c"PMIx_server_setup_fork")?,
                deregister_space: symbol(handle, c"PMIx_server_deregister_nspace")?,
                fetch: symbol(handle, c"PMIx_server_dmodex_request")?,
                notify: symbol(handle, c"PMIx_Notify_event")?,
                error: symbol(handle, c"PMIx_Error_string")?,
                has_groups: numbers >= Some(OLDEST_WITH_GROUPS),
            })
        }
    }

    /// An error where a status is none of success.
    pub(crate) fn check(&self, status: c_int, what: &str) -> anyhow::Result<()> {
        if status == crate::types::SUCCESS || status == crate::types::DONE {
            return Ok(());
        }
        // SAFETY: gives a text of the library, which stays.
        let text = unsafe { text_of((self.error)(status)) };
        bail!("libpmix cannot {what}: {text} ({status})")
    }
}

/// Which version of OpenPMIx a library is of, in its own words.
///
/// # Errors
/// If it can't be loaded, or is none that can serve tasks.
pub fn version_of(name: &[u8]) -> anyhow::Result<String> {
    let handle = open(name)?;
    Library::of(handle)?;
    version(handle)
}

fn open(name: &[u8]) -> anyhow::Result<*mut c_void> {
    let name = CString::new(name).context("the name of a library has a zero byte in it")?;
    // SAFETY: the name ends with a zero byte. The user chose what runs then.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: gives a text that stays until the next call of this thread.
        let why = unsafe { text_of(libc::dlerror()) };
        bail!("{why}");
    }
    Ok(handle)
}

/// The text of a version: OpenPMIx says `OpenPMIx 4.2.2 (PMIx Standard: ...)`.
fn version(handle: *mut c_void) -> anyhow::Result<String> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: that is its type, and it gives a text that stays.
    let text = unsafe { text_of(symbol::<Version>(handle, c"PMIx_Get_version")?()) };
    let is_of_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let number = text.split([' ', ',']).find(is_of_number);
    Ok(number.context("libpmix does not say its version")?.to_owned())
}

fn numbers_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// # Safety
/// The type must be that of the function.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> anyhow::Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is of a library that is never closed, the name ends with a zero byte.
    let pointer = unsafe { libc::dlsym(handle, name.as_ptr()) };
    ensure!(!pointer.is_null(), "the library has no {}", name.to_string_lossy());
    // SAFETY: as the caller promises; both are as large as a pointer.
    Ok(unsafe { std::mem::transmute_copy(&pointer) })
}

/// # Safety
/// It must be null or a text with an end.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::numbers_of;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(numbers_of("4.2.2"), Some((4, 2)));
        assert_eq!(numbers_of("5.0.11rc1"), Some((5, 0)));
        assert!(numbers_of("10.0.1") > Some((4, 1)) && numbers_of("3.2.5") < Some((4, 1)));
        assert_eq!(numbers_of("x"), None);
    }
}
