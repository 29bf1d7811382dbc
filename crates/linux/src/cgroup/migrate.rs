//! Taking in processes that run already.
//!
//! The kernel takes them by number alone, and a number is another's as soon as its process has
//! ended and was reaped. So the process is held while it is moved: has it ended by then, the
//! process that reuses its PID was perhaps moved in its place, and goes back to where its parent
//! is, as if it had been left where it was born.

use super::Cgroup;
use super::hierarchy::Mounts;
use crate::pidfd::Held;
use crate::proc::{ProcessStat, ancestors, descendants};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of looks whether a process moved by mistake has left children here: far more than
/// one that has just been born needs.
const ROUNDS_MAX: u32 = 100;

impl Cgroup {
    /// Moves a process in, with all its threads. `false` if it has ended: no other is moved into
    /// the group for it, by PID reuse.
    ///
    /// # Errors
    /// `EACCES` if this process may not write to the group, to the one that the process leaves, or
    /// to the one above both.
    pub fn take_in(&self, process: &Held) -> Result<bool> {
        let moved = self.move_in(process.pid());
        if !process.has_ended() {
            return moved.map(|()| true);
        }
        self.put_back(process.pid())?;
        Ok(false)
    }

    /// Moves a process of the group to this companion, which it is not in.
    ///
    /// # Errors
    /// `EACCES` if this process may not write there.
    pub(super) fn take_into(&self, companion: &Path, process: &Held) -> Result<()> {
        let moved = move_to(process.pid(), companion);
        if process.has_ended() { self.put_back(process.pid()) } else { moved }
    }

    fn move_in(&self, pid: i32) -> Result<()> {
        self.directories().iter().try_for_each(|directory| move_to(pid, directory))
    }

    /// Where a process of the group is: in the companions, and in the group itself.
    fn directories(&self) -> Vec<PathBuf> {
        let companions = self.companions();
        let companions = companions.iter().filter_map(|file| file.parent()).map(Path::to_owned);
        companions.chain([self.path.clone()]).collect()
    }

    /// Moves the process that has this number now out, with what that has started meanwhile.
    fn put_back(&self, pid: i32) -> Result<()> {
        // Not reaped yet, the number is its own.
        if ProcessStat::read(pid).is_ok_and(|stat| stat.has_ended()) {
            return Ok(());
        }
        let places = self.places_of_parent(pid);
        let mut strays = vec![pid];
        for _ in 0..ROUNDS_MAX {
            if places.is_empty() || strays.is_empty() {
                return Ok(());
            }
            for &stray in &strays {
                places.iter().try_for_each(|place| move_to(stray, place))?;
            }
            let here: BTreeSet<i32> = self.processes()?.into_iter().collect();
            strays = [pid].into_iter().chain(descendants(pid)?).collect();
            strays.retain(|stray| here.contains(stray));
        }
        let source = io::Error::from_raw_os_error(libc::EAGAIN);
        Err(self.error("move another's processes out of", "cgroup.procs", source))
    }

    /// For each hierarchy in which a process is here and its parent is not: where that is. Nowhere
    /// for a process that was born here.
    fn places_of_parent(&self, pid: i32) -> Vec<PathBuf> {
        let above: Vec<Mounts> =
            ancestors(pid).into_iter().filter_map(|pid| Mounts::read_of(pid).ok()).collect();
        let Ok(own) = Mounts::read_of(pid) else { return Vec::new() };
        let place = |directory: PathBuf| {
            own.group_beside(&directory).filter(|group| group.starts_with(&directory))?;
            let mut above = above.iter().filter_map(|it| it.group_beside(&directory));
            // None above it can be seen from here: then to the top.
            let place = above.find(|group| group.is_dir()).or_else(|| own.point_of(&directory))?;
            (!place.starts_with(&directory)).then_some(place)
        };
        self.directories().into_iter().filter_map(place).collect()
    }
}

/// A process that has ended counts as moved.
fn move_to(pid: i32, directory: &Path) -> Result<()> {
    let file = directory.join("cgroup.procs");
    match fs::write(&file, pid.to_string()).map_err(Error::file("write", &file)) {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
