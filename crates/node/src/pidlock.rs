//! One daemon of a kind in a state directory: a second would take the sockets of the first away,
//! and neither would know all of what runs there.
//!
//! The lock is the process's and not that of an open file: one process holds it and never a child
//! that has its descriptors, and when that process ends, none does. So the file must not be opened
//! again in the same process, since closing it there would give the lock up.

use crate::codes::coded;
use crate::instance::Instance;
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use tutti_wire::code::Code;

/// The only daemon of its kind in a state directory, as long as this lives.
#[derive(Debug)]
pub struct Sole {
    path: PathBuf,
    _lock: File,
}

impl Sole {
    /// Makes this process the only `role` of the instance.
    ///
    /// # Errors
    /// If there is one already; the text says which process that is.
    pub fn claim(instance: &Instance, role: &str) -> anyhow::Result<Self> {
        let path = instance.role_file(role);
        let directory = instance.open()?;
        let directory = directory.with_context(|| format!("{} is gone", path.display()))?;
        loop {
            // A user that can open it can lock it, and keep the daemon from starting.
            let mut file = directory
                .file(&path, OFlag::O_RDWR | OFlag::O_CREAT)
                .with_context(|| format!("cannot open {}", path.display()))?;
            match fcntl(&file, FcntlArg::F_SETLK(&whole_file())) {
                Ok(_) => {}
                Err(Errno::EAGAIN | Errno::EACCES) => return Err(taken(instance, role, file)),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
            if directory.has(&file, &path) {
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(Self { path, _lock: file });
            }
        }
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The process that is the `role` of the instance, if there is one.
///
/// # Errors
/// What the kernel says.
pub fn holder(instance: &Instance, role: &str) -> anyhow::Result<Option<i32>> {
    let path = instance.role_file(role);
    let Some(directory) = instance.open()? else { return Ok(None) };
    let file = match directory.file(&path, OFlag::O_RDWR) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
    };
    let mut found = whole_file();
    fcntl(&file, FcntlArg::F_GETLK(&mut found))
        .with_context(|| format!("cannot see which process has locked {}", path.display()))?;
    Ok((libc::c_int::from(found.l_type) != libc::F_UNLCK).then_some(found.l_pid))
}

/// A lock that no other process may have, on all of a file.
fn whole_file() -> libc::flock {
    let lossless = |number: libc::c_int| libc::c_short::try_from(number).unwrap_or_default();
    libc::flock {
        l_type: lossless(libc::F_WRLCK),
        l_whence: lossless(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn taken(instance: &Instance, role: &str, mut file: File) -> anyhow::Error {
    let mut pid = String::new();
    let _ = file.read_to_string(&mut pid);
    let reason = format!(
        "the {role} of {} runs already, as process {}; `tutti down` ends the instance, TUTTI_DIR names \
         another place for a second one",
        instance.directory().display(),
        pid.trim()
    );
    coded(Code::NotStarted, reason)
}
