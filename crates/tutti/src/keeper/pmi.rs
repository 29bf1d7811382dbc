//! The PMI servers of jobs.
use super::context::Context;
use super::job::Job;
use super::watch::Event;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub(super) struct PmiJob;
impl PmiJob { pub(super) fn close(&mut self, _i: usize, _c: &mut Context) {} }
pub(super) fn connect(_job: &mut Job, _index: usize, _context: &mut Context) -> io::Result<OwnedFd> {
    let (_a, b) = UnixStream::pair()?;
    Ok(b.into())
}
impl Job { pub(super) fn on_pmi(&mut self, _index: usize, _event: Event, _context: &mut Context) {} }
