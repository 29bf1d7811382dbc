//! The heap of this process.

/// Gives memory back to the kernel that was freed. The allocator does so by itself only at the end
/// of its heap, and one small thing there keeps hundreds of megabytes. It takes a look at all of
/// the heap: milliseconds where that is large.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and moves nothing that is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
