//! Every maximum of the wire, with its reason.

/// The version of the messages; peers of another version are refused with both versions named.
pub const PROTOCOL_VERSION: u16 = 1;

/// A control frame: a job's arguments and environment (at most 2 MiB each for the kernel to accept
/// them), a script, or the list of many jobs.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// One piece of a task's output or input. Large enough that the cost of a frame vanishes, small
/// enough that ranks take turns on a connection.
pub const STDIO_CHUNK_BYTES: usize = 256 << 10;

/// A job script.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// One line of a PMI connection; MPICH's own limit is 1,024 bytes a value and 256 a key.
pub const PMI_LINE_BYTES_MAX: usize = 64 << 10;

/// Switch records that one answer carries.
pub const SWITCH_RECORDS_MAX: usize = 65_536;

const _: () = assert!(STDIO_CHUNK_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(SCRIPT_BYTES_MAX + (4 << 20) < FRAME_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX < u32::MAX as usize);
