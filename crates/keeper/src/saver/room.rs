//! Room for images on their file system, where the journal of the instance is, too.
//!
//! A saver that begins an image notes its size in a file that it holds locked until the image is
//! whole. The others count what it has yet to write. The kernel drops the lock of one that is
//! killed. While a saver looks for room, it locks the directory of all images.
//!
//! A size is a guess. So while CRIU writes, it is looked whether the reserve is still free.

use super::images::JOB;
use anyhow::{Context, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use tutti_wire::units::format_bytes;

/// Below the directory of an order: bytes that an image takes that is being made.
const ROOM: &str = "room";

/// Room that an image takes beside the memory of its processes.
const MARGIN_BYTES: u64 = 16 << 20;

/// This part of the file system stays free: 5 %.
const RESERVE: u64 = 20;

/// Maximum number of tries to get the lock, and the pause between two.
const TRIES_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Finds room in `store` for an image of so much memory. It is kept for the image until the file in
/// `kept` is closed. In a directory that nodes share, images of other jobs are not counted: only
/// their own nodes know what they are about to take.
///
/// # Errors
/// If there is not enough room beside a reserve and what other images are about to take.
pub(super) fn reserve(
    kept: &Path,
    store: &Path,
    new: &str,
    memory: u64,
) -> anyhow::Result<Flock<File>> {
    let images = kept.parent().and_then(Path::parent).context("there is no directory of images")?;
    let _lock = lock(File::open(images).context("cannot lock the images")?);
    let found = statvfs(store).context("cannot ask for free space")?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
    let others = if store == kept { others(images, kept, new) } else { 0 };
    let taken = others.saturating_add(bytes(found.blocks()) / RESERVE);
    let free = bytes(found.blocks_available()).saturating_sub(taken);
    let needed = memory.saturating_add(MARGIN_BYTES);
    ensure!(
        needed <= free,
        "the image takes up to {}, and {} are free for it in '{}'",
        format_bytes(needed),
        format_bytes(free),
        store.display()
    );
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let mut room = options.open(kept.join(ROOM))?;
    room.set_len(0)?;
    room.write_all(needed.to_string().as_bytes())?;
    Flock::lock(room, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

/// Whether less is free on the file system of images than has to stay so: what was expected of an
/// image that is being made was too little, or others have taken the room.
pub(super) fn is_short(store: &Path) -> bool {
    statvfs(store).is_ok_and(|found| found.blocks_available() < found.blocks() / RESERVE)
}

/// Waits for a lock, up to 1 s. A saver may be suspended while it has it: the look for room is then
/// made without.
fn lock(mut file: File) -> Option<Flock<File>> {
    for _ in 0..TRIES_MAX {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((unlocked, _)) => file = unlocked,
        }
        sleep(PAUSE);
    }
    None
}

/// What images of other jobs are about to take, in bytes.
fn others(images: &Path, own: &Path, new: &str) -> u64 {
    let entries = fs::read_dir(images).into_iter().flatten().flatten();
    let jobs = entries.filter(|it| it.file_name().to_string_lossy().starts_with(JOB));
    let kept = jobs.map(|job| job.path().join("kept")).filter(|kept| kept != own);
    kept.map(|kept| about_to_take(&kept, new)).sum()
}

fn about_to_take(kept: &Path, new: &str) -> u64 {
    let Ok(room) = File::open(kept.join(ROOM)) else { return 0 };
    let Err((mut room, _)) = Flock::lock(room, FlockArg::LockSharedNonblock) else { return 0 };
    let mut text = String::new();
    let _ = room.read_to_string(&mut text);
    let files = fs::read_dir(kept.join(new)).into_iter().flatten().flatten();
    let written: u64 = files.flat_map(|it| it.metadata()).map(|it| it.blocks() * 512).sum();
    text.parse::<u64>().unwrap_or(0).saturating_sub(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn images_that_are_being_made_at_once_do_not_count_on_the_same_room() {
        let images = std::env::temp_dir().join(format!("tutti-room-{}", std::process::id()));
        let kept = [1, 2].map(|job| images.join(format!("{JOB}{job}/kept")));
        kept.iter().for_each(|kept| create_dir_all(kept.join("new")).unwrap());
        let found = statvfs(&images).unwrap();
        let all = found.blocks_available() * found.fragment_size();
        let reserve_of_all = found.blocks() * found.fragment_size() / RESERVE;
        let most = all.saturating_sub(reserve_of_all + 4 * MARGIN_BYTES);
        assert!(reserve(&kept[0], &kept[0], "new", all).is_err(), "a part stays free");
        let first = reserve(&kept[0], &kept[0], "new", most / 10 * 6).unwrap();
        let error = reserve(&kept[1], &kept[1], "new", most / 10 * 6).unwrap_err().to_string();
        assert!(error.starts_with("the image takes up to "), "{error}");
        drop(first);
        reserve(&kept[1], &kept[1], "new", most / 10 * 6).unwrap();
        fs::remove_dir_all(&images).unwrap();
    }
}
