//! Pseudo terminals: a pair of ends, of which one is the terminal of a task.

use crate::{Error, Result};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Whether input is UTF-8, so that a key that erases takes a whole character.
const IUTF8: libc::tcflag_t = 0o40_000;

/// The group of terminals, by convention of Linux: what may write messages to users is of it.
const TTY_GROUP: u32 = 5;

/// A new pseudo terminal.
#[derive(Debug)]
pub struct Pty {
    /// The end of the program that stands for the user. Reads and writes never wait. When its last
    /// descriptor is closed, the terminal hangs up.
    pub master: OwnedFd,
    /// The terminal.
    pub slave: OwnedFd,
}

impl Pty {
    /// Makes a terminal of this size (rows and columns). It is no controlling terminal yet.
    /// `owner`: the user that it is to belong to; `None`: the caller.
    ///
    /// # Errors
    /// If the kernel has none left, or there is no `/dev/ptmx`.
    pub fn open(size: (u16, u16), owner: Option<u32>) -> Result<Self> {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let master = open(c"/dev/ptmx", flags | libc::O_NONBLOCK)?;
        let unlocked: libc::c_int = 0;
        // SAFETY: the kernel reads one int through the pointer.
        if unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) } != 0 {
            return Err(Error::last("ioctl TIOCSPTLCK"));
        }
        let slave = open_slave(master.as_fd(), flags)?;
        give_to(slave.as_fd(), owner)?;
        erase_whole_characters(slave.as_fd());
        set_size(slave.as_fd(), size)?;
        Ok(Self { master, slave })
    }
}

fn open(path: &std::ffi::CStr, flags: libc::c_int) -> Result<OwnedFd> {
    // SAFETY: the path is NUL-terminated.
    match unsafe { libc::open(path.as_ptr(), flags) } {
        -1 => Err(Error::last("open a pseudo terminal")),
        // SAFETY: it was just opened, and has no other owner.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// By the master where the kernel can (from Linux 4.13 on): no path decides which one it is.
fn open_slave(master: BorrowedFd, flags: libc::c_int) -> Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if fd >= 0 {
        // SAFETY: it was just opened, and has no other owner.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let mut number: libc::c_uint = 0;
    // SAFETY: the kernel writes one int through the pointer.
    if unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) } != 0 {
        return Err(Error::last("ioctl TIOCGPTN"));
    }
    let path = CString::new(format!("/dev/pts/{number}")).unwrap_or_default();
    open(&path, flags)
}

/// Sets owner, group and mode, as a login does.
fn give_to(slave: BorrowedFd, owner: Option<u32>) -> Result<()> {
    let fd = slave.as_raw_fd();
    // SAFETY: all zero is a stat, and the kernel writes one through the pointer.
    let mut found: libc::stat = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above.
    if unsafe { libc::fstat(fd, &raw mut found) } != 0 {
        return Err(Error::last("fstat a terminal"));
    }
    let mut group = found.st_gid;
    if let Some(owner) = owner {
        // SAFETY: takes no pointer.
        let own_group = unsafe { libc::getegid() };
        // The file system of terminals may be mounted without a group for them.
        group = if group == own_group { TTY_GROUP } else { group };
        // SAFETY: takes no pointer.
        if unsafe { libc::fchown(fd, owner, group) } != 0 {
            return Err(Error::last("fchown a terminal"));
        }
    }
    let mode = if group == TTY_GROUP { 0o620 } else { 0o600 };
    // SAFETY: takes no pointer.
    match unsafe { libc::fchmod(fd, mode) } {
        0 => Ok(()),
        _ => Err(Error::last("fchmod a terminal")),
    }
}

fn mode_of(terminal: BorrowedFd) -> Option<libc::termios> {
    let mut mode = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the kernel writes a whole mode through the pointer if it succeeds.
    unsafe {
        (libc::tcgetattr(terminal.as_raw_fd(), mode.as_mut_ptr()) == 0).then(|| mode.assume_init())
    }
}

/// A key that erases takes a whole character of UTF-8.
fn erase_whole_characters(terminal: BorrowedFd) {
    if let Some(mut mode) = mode_of(terminal) {
        mode.c_iflag |= IUTF8;
        // SAFETY: the mode is valid for the call. A terminal that refuses works all the same.
        unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const mode) };
    }
}

/// The character that is the end of input for a program that reads lines, if there is one.
#[must_use]
pub fn end_of_input(terminal: BorrowedFd) -> Option<u8> {
    let mode = mode_of(terminal)?;
    Some(mode.c_cc[libc::VEOF]).filter(|&it| it != 0)
}

/// The size of a terminal: rows and columns.
///
/// # Errors
/// If it is none.
pub fn size(terminal: BorrowedFd) -> Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one size through the pointer.
    match unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } {
        0 => Ok((size.ws_row, size.ws_col)),
        _ => Err(Error::last("ioctl TIOCGWINSZ")),
    }
}

/// Sets the size of a terminal (rows and columns). Its foreground gets SIGWINCH if it changes.
///
/// # Errors
/// If it is none.
pub fn set_size(terminal: BorrowedFd, (rows, columns): (u16, u16)) -> Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one size through the pointer.
    match unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) } {
        0 => Ok(()),
        _ => Err(Error::last("ioctl TIOCSWINSZ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_new_terminal_has_its_size_and_its_owner_alone_may_read_it() {
        let pty = Pty::open((21, 91), None).unwrap();
        assert_eq!(size(pty.slave.as_fd()).unwrap(), (21, 91));
        set_size(pty.slave.as_fd(), (5, 7)).unwrap();
        assert_eq!(size(pty.master.as_fd()).unwrap(), (5, 7));
        assert_eq!(end_of_input(pty.slave.as_fd()), Some(4));
        let found = File::from(pty.slave).metadata().unwrap();
        let expected = if found.gid() == TTY_GROUP { 0o620 } else { 0o600 };
        assert_eq!(found.mode() & 0o777, expected);
        assert_eq!(found.uid(), nix::unistd::geteuid().as_raw());
    }

    #[test]
    fn roots_terminals_are_given_to_their_users() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let pty = Pty::open((24, 80), Some(12_345)).unwrap();
        let found = File::from(pty.slave).metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (12_345, TTY_GROUP, 0o620));
    }

    #[test]
    fn the_ends_are_joined_and_the_master_never_waits() {
        let pty = Pty::open((24, 80), None).unwrap();
        let (mut master, mut slave) = (File::from(pty.master), File::from(pty.slave));
        let mut room = [0; 64];
        assert_eq!(master.read(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
        slave.write_all(b"a\n").unwrap();
        let count = master.read(&mut room).unwrap();
        assert_eq!(&room[..count], b"a\r\n");
        master.write_all(b"typed\n").unwrap();
        let count = slave.read(&mut room).unwrap();
        assert_eq!(&room[..count], b"typed\n");
        drop(master);
        assert_eq!(slave.read(&mut room).unwrap(), 0, "it has hung up");
    }

    #[test]
    fn what_is_no_terminal_has_no_size() {
        let null = File::open("/dev/null").unwrap();
        assert!(size(null.as_fd()).is_err() && end_of_input(null.as_fd()).is_none());
    }
}
