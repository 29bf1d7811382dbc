//! Descriptors over `execve`. Alone in its program, since it deals with all of the process.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::FD_CLOEXEC;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use tutti_linux::inherited::{Inherited, keep_all_open};

#[test]
fn what_is_left_open_is_found_once_and_nothing_else() {
    let (left, writer) = std::io::pipe().unwrap();
    keep_all_open(true).unwrap();
    assert_eq!(fcntl(writer.as_fd(), FcntlArg::F_GETFD).unwrap(), 0);
    // As the program before would have left it; what this one opens closes.
    let number = writer.into_raw_fd();
    let left_number = left.into_raw_fd();
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut inherited = Inherited::take_all().unwrap();
    assert!(inherited.take(reader.as_raw_fd()).is_err(), "it closes on exec");
    let writer = inherited.take(number).unwrap();
    assert!(inherited.take(number).is_err(), "taken twice");
    assert_eq!(fcntl(writer.as_fd(), FcntlArg::F_GETFD).unwrap(), FD_CLOEXEC);
    assert!(Inherited::take_all().is_err(), "they are somebody's by now");
    let left = inherited.take(left_number).unwrap();
    drop((writer, inherited));
    assert_eq!(std::fs::File::from(left).read(&mut [0]).unwrap(), 0, "nobody else has it");
}
