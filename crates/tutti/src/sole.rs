//! One daemon of a kind in a state directory: a second would take the sockets of the first away, and
//! neither would know all of what runs there.

use crate::codes::coded;
use crate::instance::Instance;
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use tutti_wire::code::Code;

/// The only daemon of its kind in a state directory, as long as this lives.
#[derive(Debug)]
pub(crate) struct Sole {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Sole {
    /// Makes this process the only `role` of the instance.
    ///
    /// # Errors
    /// If there is one already; the text says which process that is.
    pub(crate) fn claim(instance: &Instance, role: &str) -> anyhow::Result<Self> {
        let path = instance.role_file(role);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                // Whoever can open it can lock it, and keep the daemon from starting.
                .mode(0o600)
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => lock,
                Err((file, Errno::EWOULDBLOCK)) => return Err(taken(instance, role, file)),
                Err((_, error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            };
            // One that has just ended may have removed the file after it was opened here.
            let is_there = fs::metadata(&path)
                .is_ok_and(|found| lock.metadata().is_ok_and(|own| own.ino() == found.ino()));
            if is_there {
                lock.set_len(0)?;
                writeln!(lock, "{}", std::process::id())?;
                return Ok(Self { path, _lock: lock });
            }
        }
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
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
