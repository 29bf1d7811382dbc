//! Extended attributes of files and groups.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// More than the kernel keeps with one file.
const BYTES_MAX: usize = 64 << 10;

/// The value of an attribute; none if there is no such attribute, it may not be read, or is no
/// text.
pub(crate) fn read(path: &Path, name: &CStr) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut value = vec![0_u8; BYTES_MAX];
    // SAFETY: both strings end in NUL and the buffer is as long as said.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(usize::try_from(length).ok()?);
    String::from_utf8(value).ok()
}

/// Sets an attribute; whether that was possible.
pub(crate) fn write(path: &Path, name: &CStr, value: &str) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in NUL and the value is as long as said.
    let result = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    result == 0
}

/// Removes an attribute, if there is one.
pub(crate) fn remove(path: &Path, name: &CStr) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: both strings end in NUL.
    unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn attributes_are_written_read_and_removed() {
        let path = std::env::temp_dir().join(format!("tutti-xattr-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        assert_eq!(read(&path, c"user.tutti"), None);
        // Not every file system has them.
        if write(&path, c"user.tutti", "a b") {
            assert_eq!(read(&path, c"user.tutti").as_deref(), Some("a b"));
            remove(&path, c"user.tutti");
            assert_eq!(read(&path, c"user.tutti"), None);
        }
        assert!(!write(Path::new("/nonexistent"), c"user.tutti", "a"));
        fs::remove_file(&path).unwrap();
    }
}
