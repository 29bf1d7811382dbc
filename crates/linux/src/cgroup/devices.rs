//! Closing devices to a group: by a program at it ([`device_control`]), and where none can be had,
//! by its companion in the hierarchy `devices` of cgroup v1 ([`v1`]).

use super::Cgroup;
use crate::device_control::{self, Gate, gate, v1};
use crate::pidfd::Held;
use crate::{Error, Result, xattr};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

/// Maximum number of looks whether processes of a group have made others meanwhile: far more than
/// those that fork without a pause need.
const ROUNDS_MAX: u32 = 100;

/// Name of the extended attribute of a group with device files that were not there.
const MISSING: &CStr = c"user.missing-devices";

impl Cgroup {
    /// Closes character devices, by major and minor number, to all processes of the group, now and
    /// later.
    ///
    /// # Errors
    /// What the kernel says: without privileges, or without a way to close devices.
    pub fn close_devices(&self, closed: &[(u32, u32)]) -> Result<()> {
        match device_control::close(self.fd(), &self.path, closed) {
            Err(_) if self.top.may_close_devices() => self.close_devices_in_v1(closed),
            done => done,
        }
    }

    /// The same, and the group's own devices are behind a gate, which is closed at first.
    ///
    /// # Errors
    /// As [`Cgroup::close_devices`]. A program has a gate from Linux 5.5 on.
    pub fn close_devices_by_gate(&self, closed: &[(u32, u32)], own: &[(u32, u32)]) -> Result<Gate> {
        match gate::close(self.fd(), &self.path, closed, own) {
            Err(_) if self.top.may_close_devices() => self.close_devices_in_v1_by_gate(closed, own),
            done => done,
        }
    }

    /// As [`Cgroup::close_devices`], by v1 alone.
    ///
    /// # Errors
    /// Without the hierarchy `devices`; without `CAP_SYS_ADMIN`.
    pub fn close_devices_in_v1(&self, closed: &[(u32, u32)]) -> Result<()> {
        self.with_devices(|companion| v1::deny(companion, closed))
    }

    /// As [`Cgroup::close_devices_by_gate`], by v1 alone.
    ///
    /// # Errors
    /// As [`Cgroup::close_devices_in_v1`]; and where groups have no extended attributes.
    pub fn close_devices_in_v1_by_gate(
        &self,
        closed: &[(u32, u32)],
        own: &[(u32, u32)],
    ) -> Result<Gate> {
        self.with_devices(|companion| v1::close_by_gate(&self.path, companion, closed, own))
    }

    /// Tries whether v1 can close devices to groups of this subtree.
    ///
    /// # Errors
    /// As [`Cgroup::close_devices_in_v1`].
    pub fn check_devices_in_v1(&self) -> Result<()> {
        self.top.try_closing_devices()
    }

    /// The gate of the group's own devices, if they are behind one.
    ///
    /// # Errors
    /// What the kernel says: without `CAP_SYS_ADMIN`.
    pub fn device_gate(&self) -> Result<Option<Gate>> {
        let companion = self.top.own_devices(&self.path);
        let in_v1 = companion.map(|companion| v1::gate_of(&self.path, &companion));
        match in_v1.transpose()?.flatten() {
            Some(gate) => Ok(Some(gate)),
            None => match gate::of(self.fd()) {
                // A kernel without such programs.
                Err(error) if matches!(error.errno(), Some(libc::ENOSYS | libc::EINVAL)) => {
                    Ok(None)
                }
                found => found,
            },
        }
    }

    /// Whether devices were closed to the group.
    #[must_use]
    pub fn closes_devices(&self) -> bool {
        device_control::closes(self.fd()) || self.top.own_devices(&self.path).is_some()
    }

    /// Writes down on the group which device files were not there when devices were closed to it,
    /// for this process and those after it; without any, nothing is written there any more.
    /// Whether that could be done.
    #[must_use]
    pub fn note_missing_devices(&self, files: &[String]) -> bool {
        if files.is_empty() {
            xattr::remove(&self.path, MISSING);
            return true;
        }
        xattr::write(&self.path, MISSING, &files.join("\n"))
    }

    /// The device files that are written down there.
    #[must_use]
    pub fn missing_devices(&self) -> Vec<String> {
        let text = xattr::read(&self.path, MISSING).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Has `write` close devices to the companion. A new one then takes in the processes that are
    /// in the group; if that fails, it is removed, since it would count as closed.
    fn with_devices<T>(&self, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let is_new = self.top.own_devices(&self.path).is_none();
        let companion = self.top.make_devices(&self.path)?;
        let done = write(&companion).and_then(|done| {
            if is_new {
                self.move_all_to(&companion)?;
            }
            Ok(done)
        });
        if done.is_err() && is_new {
            let _ = fs::remove_dir(&companion);
        }
        done
    }

    /// Moves all processes here and below to a companion of this group, with those that they start
    /// meanwhile.
    fn move_all_to(&self, companion: &Path) -> Result<()> {
        let mut moved = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let here = self.processes()?;
            let new: Vec<i32> = here.into_iter().filter(|&pid| moved.insert(pid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                // One that has ended needs no more.
                if let Ok(process) = Held::whoever_is(pid) {
                    self.take_into(companion, &process)?;
                }
            }
        }
        let source = io::Error::from_raw_os_error(libc::EAGAIN);
        Err(Error::file("move all processes to", companion)(source))
    }
}
