//! Every maximum of this crate, with its reason.

/// The longest line that is read, in bytes without its line end. The longest known job line has
/// some 250; a file of one endless line must not fill the memory.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// All comment lines before the first job together, in bytes. The longest known header has 10 KB.
pub const HEADER_BYTES_MAX: usize = 4 << 20;

/// How much of a bad word an error shows, in bytes.
pub(crate) const SHOWN_BYTES_MAX: usize = 40;

const _: () = assert!(LINE_BYTES_MAX < HEADER_BYTES_MAX, "one line of a header must fit into it");
const _: () = assert!(SHOWN_BYTES_MAX < LINE_BYTES_MAX, "an error shows a part of a line");
