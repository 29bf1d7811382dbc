//! How a supervisor is told to upgrade to another executable.

use crate::instance::Instance;
use crate::state_dir;
use anyhow::{anyhow, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The longest answer: a reason.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An order to a supervisor that is not answered yet.
#[derive(Debug)]
pub struct Order {
    supervisor: UnixStream,
    said: Vec<u8>,
}

impl Order {
    /// Tells the supervisor to upgrade to an executable.
    ///
    /// # Errors
    /// If the path can't be told, or there is no supervisor to tell, then as the kernel says it; or
    /// [`state_dir::NotOurs`].
    pub fn give(supervisor: &Path, program: &Path) -> anyhow::Result<Self> {
        let bytes = program.as_os_str().as_bytes();
        ensure!(!bytes.contains(&b'\n'), "there is a line end in {}", program.display());
        let mut supervisor = state_dir::connect(supervisor)?;
        supervisor.write_all(&[b"upgrade ", bytes, b"\n"].concat())?;
        Ok(Self { supervisor, said: Vec::new() })
    }

    /// Tells the supervisor to end controller and agent, and then itself: the keeper stays, and
    /// with it the jobs.
    ///
    /// # Errors
    /// If there is no supervisor to tell, then as the kernel says it; or [`state_dir::NotOurs`].
    pub fn leave(instance: &Instance) -> anyhow::Result<Self> {
        let mut supervisor = state_dir::connect(&instance.supervisor_socket())?;
        supervisor.write_all(b"leave\n")?;
        Ok(Self { supervisor, said: Vec::new() })
    }

    /// From now on [`Self::heard`] does not wait.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn do_not_wait(&self) -> std::io::Result<()> {
        self.supervisor.set_nonblocking(true)
    }

    /// What the supervisor says to it, or why it does not upgrade; `None` while it has not said
    /// all.
    pub fn heard(&mut self) -> Option<anyhow::Result<String>> {
        let mut room = [0; 1024];
        loop {
            match self.supervisor.read(&mut room) {
                Ok(0) => return Some(self.understand()),
                Ok(_) if self.said.len() > ANSWER_BYTES_MAX => {
                    return Some(Err(anyhow!("the supervisor does not stop talking; see its log")));
                }
                Ok(count) => self.said.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    fn understand(&self) -> anyhow::Result<String> {
        let said = String::from_utf8_lossy(&self.said);
        match said.trim_end().split_once(' ') {
            Some(("done", text)) => Ok(text.to_owned()),
            Some(("refused", text)) => bail!("{text}"),
            _ => bail!("the supervisor went away before it was done; see its log"),
        }
    }
}

impl AsFd for Order {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.supervisor.as_fd()
    }
}

/// Has the instance upgrade to an executable; what its supervisor says to that.
///
/// # Errors
/// If it does not, with the reason.
pub fn order(instance: &Instance, program: &Path) -> anyhow::Result<String> {
    answer(Order::give(&instance.supervisor_socket(), program)?)
}

/// Has the supervisor of an instance end with controller and agent, and leave the jobs running.
///
/// # Errors
/// If it does not, with the reason.
pub fn leave(instance: &Instance) -> anyhow::Result<()> {
    answer(Order::leave(instance)?).map(drop)
}

fn answer(mut order: Order) -> anyhow::Result<String> {
    loop {
        if let Some(answer) = order.heard() {
            return answer;
        }
    }
}
