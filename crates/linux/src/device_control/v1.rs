//! Closing devices by the hierarchy `devices` of cgroup v1, where no program can be put at a group.
//!
//! To a companion of the group all is open but what is written to its `devices.deny`. A gate is a
//! write for each device behind it. An extended attribute of the group has their numbers, for later
//! processes.

use super::Gate;
use crate::{Error, Result, xattr};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the extended attribute with the devices behind the gate, as `MAJOR:MINOR` in lines.
const OWN: &CStr = c"user.devices";

/// A gate that is made of files.
#[derive(Debug)]
pub(super) struct Files {
    allow: File,
    deny: File,
    /// What is written for each device.
    own: Vec<String>,
    is_open: AtomicBool,
}

impl Files {
    fn open(companion: &Path, own: Vec<String>) -> Result<Self> {
        let (allow, deny) =
            (open(&companion.join("devices.allow"))?, open(&companion.join("devices.deny"))?);
        Ok(Self { allow, deny, own, is_open: AtomicBool::new(false) })
    }

    /// Opens or closes all. A failed write leaves that device as it was. It fails for want of
    /// memory, or where a group above closes the device.
    pub(super) fn set(&self, is_open: bool) {
        let mut file = if is_open { &self.allow } else { &self.deny };
        let mut is_done = true;
        for line in &self.own {
            is_done &= file.write_all(line.as_bytes()).is_ok();
        }
        self.is_open.store(is_open || !is_done, Ordering::Release);
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).open(path).map_err(Error::file("open", path))
}

/// What is written for a character device.
fn rule(numbers: &str) -> String {
    format!("c {numbers} rwm")
}

fn text((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// Closes character devices to the processes of a companion.
///
/// # Errors
/// What the kernel says: `EPERM` without `CAP_SYS_ADMIN`.
pub(crate) fn deny(companion: &Path, closed: &[(u32, u32)]) -> Result<()> {
    let path = companion.join("devices.deny");
    let mut file = open(&path)?;
    let mut write = |&device: &(u32, u32)| file.write_all(rule(&text(device)).as_bytes());
    closed.iter().try_for_each(&mut write).map_err(Error::file("write", &path))
}

/// The same for a group with this companion. Its own devices get a gate, closed at first.
///
/// # Errors
/// As [`deny`]; and if the group takes no extended attributes.
pub(crate) fn close_by_gate(
    group: &Path,
    companion: &Path,
    closed: &[(u32, u32)],
    own: &[(u32, u32)],
) -> Result<Gate> {
    let numbers: Vec<String> = own.iter().copied().map(text).collect();
    // First, since a device behind a gate that later processes do not find stays closed.
    if !xattr::write(group, OWN, &numbers.join("\n")) {
        let unsupported = std::io::Error::from_raw_os_error(libc::ENOTSUP);
        return Err(Error::file("write an attribute of", group)(unsupported));
    }
    let rules = numbers.iter().map(|it| rule(it)).collect();
    let done = deny(companion, &[closed, own].concat());
    let gate = done.and_then(|()| Files::open(companion, rules).map(Gate::of_files));
    if gate.is_err() {
        xattr::remove(group, OWN);
    }
    gate
}

/// The gate of a group with this companion; `None` if it has none. What it is like is not known:
/// it counts as closed until it is set.
///
/// # Errors
/// If its files can't be opened.
pub(crate) fn gate_of(group: &Path, companion: &Path) -> Result<Option<Gate>> {
    let Some(numbers) = xattr::read(group, OWN) else { return Ok(None) };
    let rules = numbers.lines().map(rule).collect();
    Files::open(companion, rules).map(Gate::of_files).map(Some)
}
