//! System calls without the C library.
//!
//! A child that shares its parent's memory also shares the place where the library keeps `errno`,
//! of which the parent may be making use at the same time. Here what the kernel says comes back as
//! a value.

use std::ffi::{CStr, c_int, c_long};
use std::io;

/// Whether a child can be made on a stack of its own, in the memory of its parent.
pub(super) const CAN_SHARE: bool = cfg!(target_arch = "x86_64");

/// What the kernel answers, or the number of the error.
pub(super) type Answer = Result<usize, c_int>;

/// Calls the kernel.
///
/// # Safety
/// As for the call: pointers among the arguments must be valid for what it does with them.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> Answer {
    let result: c_long;
    // SAFETY: the kernel changes no other register than these; the rest the caller promises.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") 0_usize,
            out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    answer(result)
}

/// Calls the kernel.
///
/// # Safety
/// As for the call: pointers among the arguments must be valid for what it does with them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> Answer {
    // SAFETY: the caller promises it. No process shares memory here.
    match unsafe { libc::syscall(number, a, b, c, d, e, 0_usize) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        result => usize::try_from(result).map_err(|_| libc::EIO),
    }
}

/// The kernel gives errors as negative numbers; no call that is made here answers with one.
#[cfg(target_arch = "x86_64")]
fn answer(result: c_long) -> Answer {
    usize::try_from(result).map_err(|_| c_int::try_from(-result).unwrap_or(libc::EIO))
}

/// An answer that is a descriptor, or another small number.
pub(super) fn small(answer: usize) -> c_int {
    c_int::try_from(answer).unwrap_or(-1)
}

/// What a number is as an argument: negative ones, such as `AT_FDCWD`, with their sign.
pub(super) const fn word(number: c_int) -> usize {
    number as isize as usize
}

/// Opens a file.
pub(super) fn open(path: &CStr, flags: c_int, mode: u32) -> Result<c_int, c_int> {
    let arguments = [word(libc::AT_FDCWD), path.as_ptr() as usize, word(flags), mode as usize, 0];
    // SAFETY: the path is NUL-terminated.
    unsafe { call(libc::SYS_openat, arguments) }.map(small)
}

/// Writes once. The rest, if any, is not written.
pub(super) fn write(fd: c_int, bytes: &[u8]) -> Answer {
    let arguments = [word(fd), bytes.as_ptr() as usize, bytes.len(), 0, 0];
    // SAFETY: the bytes are only read.
    unsafe { call(libc::SYS_write, arguments) }
}

/// Closes a descriptor, whose owner, if there is one in this process, is not asked.
pub(super) fn close(fd: c_int) {
    // SAFETY: takes no pointer.
    let _ = unsafe { call(libc::SYS_close, [word(fd), 0, 0, 0, 0]) };
}

/// Has `source` as `target`, too, which must differ from it.
pub(super) fn duplicate(source: c_int, target: c_int, flags: c_int) -> Answer {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_dup3, [word(source), word(target), word(flags), 0, 0]) }
}

/// Ends this process, with nothing of its parent's run.
pub(super) fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: takes no pointer, and does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [word(status), 0, 0, 0, 0]) };
    }
}

/// Makes a process by `clone3` that begins with `entry(data)` on the stack that `arguments` names.
///
/// # Errors
/// What the kernel says.
///
/// # Safety
/// `arguments` must be what the kernel takes, with a stack that no other code uses while the
/// process lives in this memory; and all that `entry` reaches from `data` must stay as long.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone_sharing(
    arguments: &mut libc::clone_args,
    entry: extern "C" fn(*mut libc::c_void) -> !,
    data: *mut libc::c_void,
) -> io::Result<usize> {
    let result: c_long;
    // SAFETY: in the parent the call changes no other register than these. The child has the same
    // registers and another stack, from which it never returns here.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") std::ptr::from_mut(arguments),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") entry,
            in("r13") data,
            out("rcx") _, out("r11") _,
        );
    }
    answer(result).map_err(io::Error::from_raw_os_error)
}

/// Never called: [`CAN_SHARE`] says no.
///
/// # Errors
/// `ENOSYS`.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn clone_sharing(
    _: &mut libc::clone_args,
    _: extern "C" fn(*mut libc::c_void) -> !,
    _: *mut libc::c_void,
) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_errors_are_told_apart() {
        assert_eq!(open(c"/nowhere/at/all", libc::O_RDONLY, 0), Err(libc::ENOENT));
        let fd = open(c"/dev/null", libc::O_WRONLY | libc::O_CLOEXEC, 0).unwrap();
        assert_eq!(write(fd, b"four"), Ok(4));
        assert_eq!(duplicate(fd, fd, 0), Err(libc::EINVAL));
        close(fd);
        assert_eq!(write(fd, b"four"), Err(libc::EBADF));
    }
}
