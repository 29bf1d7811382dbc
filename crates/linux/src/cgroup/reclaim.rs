//! The memory of a group, moved out while its processes are frozen.
//!
//! In v2 the kernel is asked to reclaim (`memory.reclaim`). In v1 it reclaims where a limit is set
//! below what is used: so the limit of each companion is lowered step by step, and restored. The
//! old limit is written on the companion first, as an extended attribute. An agent that is killed
//! in between leaves it there, and the next one restores it ([`Cgroup::restore_limits`]).

use super::Cgroup;
use super::cgroup_v1::{MEMORY, below_by_points};
use crate::procfile::read_text;
use crate::swap::{Advice, SwapBy, SwapSpace, advise_all, malformed, resident_bytes, takes_advice};
use crate::{Error, Result, xattr};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Memory that is moved in one step, in bytes: how often it is asked whether to go on.
const STEP_BYTES: u64 = 64 << 20;

/// A step that moved less was the last.
const STEP_BYTES_MIN: u64 = 128 << 10;

/// Name of the extended attribute of a companion with the limit that it had.
const RECORD: &CStr = c"user.limit";

const RECLAIM: &str = "memory.reclaim";
const CURRENT: &str = "memory.current";
const USAGE: &str = "memory.usage_in_bytes";
const LIMIT: &str = "memory.limit_in_bytes";

impl Cgroup {
    /// By what the memory of the processes here and below can be moved out.
    #[must_use]
    pub fn swap_by(&self) -> SwapBy {
        if self.path.join(RECLAIM).exists() {
            SwapBy::Reclaim
        } else if !self.memory_companions().is_empty() {
            SwapBy::Limit
        } else if takes_advice() {
            SwapBy::Advice
        } else {
            SwapBy::None
        }
    }

    /// The memory of the processes here and below, in bytes: what is charged to them where that is
    /// counted, with the pages of files that they read.
    ///
    /// # Errors
    /// [`Error::is_gone`] for a removed group.
    pub fn resident_bytes(&self) -> Result<u64> {
        if self.path.join(CURRENT).exists() {
            return bytes_in(&self.path.join(CURRENT));
        }
        let companions = self.memory_companions();
        if companions.is_empty() {
            return Ok(resident_bytes(&self.processes()?));
        }
        companions.iter().try_fold(0, |sum, it| Ok(sum + bytes_in(&it.join(USAGE))?))
    }

    /// Moves out the memory of the processes here and below, which are frozen, as far as there is
    /// swap space for it and as long as `goes_on`. Gives by what.
    ///
    /// # Errors
    /// What the kernel says. Limits are as before then, or are written down for
    /// [`Cgroup::restore_limits`].
    pub fn swap_out(&self, goes_on: &dyn Fn() -> bool) -> Result<SwapBy> {
        let goes_on = || goes_on() && !SwapSpace::read().is_short();
        let by = self.swap_by();
        match by {
            SwapBy::Reclaim => self.reclaim(&goes_on)?,
            SwapBy::Limit => {
                let lowered = self.lower_limits(&goes_on);
                let restored = self.restore_limits();
                if !lowered.and_then(|all| restored.map(|()| all))? {
                    // A limit can't be written down here: it is not touched.
                    advise_all(|| self.processes(), Advice::Out, &goes_on)?;
                    return Ok(SwapBy::Advice);
                }
            }
            SwapBy::Advice => advise_all(|| self.processes(), Advice::Out, &goes_on)?,
            SwapBy::None => {}
        }
        Ok(by)
    }

    /// Reads back what was moved out, as long as `goes_on`. What is not, the processes read when
    /// they need it.
    ///
    /// # Errors
    /// What reading the list of processes says.
    pub fn swap_in(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        advise_all(|| self.processes(), Advice::Back, goes_on)
    }

    /// Gives companions the limits that were written down when they were lowered.
    ///
    /// # Errors
    /// What the kernel says; what was written down stays.
    pub fn restore_limits(&self) -> Result<()> {
        for companion in self.memory_companions() {
            let Some(limit) = xattr::read(&companion, RECORD) else { continue };
            write(&companion.join(LIMIT), limit.trim())?;
            xattr::remove(&companion, RECORD);
        }
        Ok(())
    }

    fn reclaim(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let (file, current) = (self.path.join(RECLAIM), self.path.join(CURRENT));
        // The second time what the kernel would rather keep, if it knows that word.
        for order in [format!("{STEP_BYTES}"), format!("{STEP_BYTES} swappiness=200")] {
            move_out(
                goes_on,
                || bytes_in(&current),
                |_| match fs::write(&file, &order) {
                    // Not all that was asked for, or an older kernel.
                    Err(error) if is_in_vain(&error) => Ok(()),
                    outcome => outcome.map_err(Error::file("write", &file)),
                },
            )?;
        }
        Ok(())
    }

    /// `false` where a limit can't be written down.
    fn lower_limits(&self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        for companion in self.memory_companions() {
            let (limit, usage) = (companion.join(LIMIT), companion.join(USAGE));
            if xattr::read(&companion, RECORD).is_none() {
                let before = read_text(&limit).map_err(Error::file("read", &limit))?;
                if !xattr::write(&companion, RECORD, before.trim()) {
                    return Ok(false);
                }
            }
            move_out(
                goes_on,
                || bytes_in(&usage),
                |used| {
                    let target = used.saturating_sub(STEP_BYTES);
                    match fs::write(&limit, target.to_string()) {
                        Err(error) if is_in_vain(&error) => Ok(()),
                        outcome => outcome.map_err(Error::file("write", &limit)),
                    }
                },
            )?;
        }
        Ok(true)
    }

    /// The groups of v1 that memory of the processes here and below is charged to.
    fn memory_companions(&self) -> Vec<PathBuf> {
        let Some(base) = self.top.base(MEMORY) else { return Vec::new() };
        let Some(own) = self.top.place(base, &self.path, MEMORY) else { return Vec::new() };
        let mut found = below_by_points(&own).unwrap_or_default();
        found.extend(own.is_dir().then_some(own));
        found
    }
}

/// Goes on as long as the steps move anything.
fn move_out(
    goes_on: &dyn Fn() -> bool,
    used: impl Fn() -> Result<u64>,
    step: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    let mut before = used()?;
    while goes_on() {
        step(before)?;
        let after = used()?;
        if after.saturating_add(STEP_BYTES_MIN) > before {
            break;
        }
        before = after;
    }
    Ok(())
}

/// Whether the kernel could not move as much as was asked, or does not know what was.
fn is_in_vain(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR | libc::EINVAL))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(Error::file("write", file))
}

fn bytes_in(file: &Path) -> Result<u64> {
    let text = read_text(file).map_err(Error::file("read", file))?;
    text.trim().parse().map_err(|_| malformed(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_goes_on_while_steps_move_anything_and_no_longer_than_it_may() {
        let (used, steps) = (Cell::new(200_u64 << 20), Cell::new(0));
        let step = |before: u64| {
            steps.set(steps.get() + 1);
            used.set(before.saturating_sub(STEP_BYTES).max(50 << 20));
            Ok(())
        };
        move_out(&|| true, || Ok(used.get()), step).unwrap();
        assert_eq!((used.get(), steps.get()), (50 << 20, 4), "the last step moved nothing");
        used.set(200 << 20);
        steps.set(0);
        move_out(&|| steps.get() < 2, || Ok(used.get()), step).unwrap();
        assert_eq!((used.get(), steps.get()), (72 << 20, 2));
    }
}
