//! Files to which the processes of an image may have appended since.
//!
//! An image of processes that went on is older than what they have written later. Restored, they
//! write that again. So each regular file that they had open for writing is cut to the length that
//! it had then, with the rights of their user. A file that is another one by now is not touched;
//! CRIU compares lengths and refuses it.

use anyhow::Context;
use nix::fcntl::OFlag;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// In an image: for each file its length and inode in decimal and its name, ended by NUL.
const FILES: &str = "tutti-files";

/// Maximum length of the list that is read, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Writes down the files that these processes, which stand still, have open for writing.
pub(super) fn note(
    image: &Path,
    processes: &BTreeSet<u32>,
    (uid, gid): (u32, u32),
) -> anyhow::Result<()> {
    let mut found: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
    for process in processes {
        let directory = PathBuf::from(format!("/proc/{process}"));
        for entry in fs::read_dir(directory.join("fd")).into_iter().flatten().flatten() {
            let link = entry.path();
            let Some(file) = fs::metadata(&link).ok().filter(|it| it.is_file()) else { continue };
            let info = directory.join("fdinfo").join(entry.file_name());
            // One without a name is part of the image.
            if file.nlink() > 0 && is_for_writing(&fs::read_to_string(info)?) {
                found.insert(fs::read_link(&link)?, (file.len(), file.ino()));
            }
        }
    }
    let mut list = Vec::new();
    for (name, (length, inode)) in found {
        write!(list, "{length} {inode} ")?;
        list.extend(name.as_os_str().as_bytes());
        list.push(0);
    }
    let path = image.join(FILES);
    fs::write(&path, list)?;
    chown(path, Some(uid), Some(gid))?;
    Ok(())
}

/// Whether a description of an open file says that it may be written to.
fn is_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlag::O_ACCMODE.bits() != OFlag::O_RDONLY.bits())
}

/// Cuts the files of an image to the length that they had then. By their user.
pub(super) fn cut(image: &Path) -> anyhow::Result<()> {
    let mut list = Vec::new();
    match File::open(image.join(FILES)) {
        Ok(file) => file.take(LIST_BYTES_MAX).read_to_end(&mut list)?,
        // Its processes have ended, and appended nothing since.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("cannot read the list of its files"),
    };
    for entry in list.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
        let (length, inode, name) = parse(entry).context("the image is damaged")?;
        cut_one(&name, inode, length)
            .with_context(|| format!("cannot cut '{}' to {length} bytes", name.display()))?;
    }
    Ok(())
}

fn parse(entry: &[u8]) -> Option<(u64, u64, PathBuf)> {
    let mut words = entry.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (length, inode) = (number()?, number()?);
    let name = OsString::from_vec(words.next()?.to_vec());
    Some((length, inode, name.into()))
}

fn cut_one(name: &Path, inode: u64, length: u64) -> std::io::Result<()> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let open = OpenOptions::new().write(true).custom_flags(flags.bits()).open(name);
    let open = match open {
        Ok(open) => open,
        // CRIU says what is missing.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let now = open.metadata()?;
    // Numbers of devices may be others after a restart of the machine.
    let is_same = now.is_file() && now.ino() == inode;
    if is_same && now.len() > length { open.set_len(length) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_appended_to_are_cut_and_others_stay() {
        let image = std::env::temp_dir().join(format!("tutti-files-{}", std::process::id()));
        fs::create_dir_all(&image).unwrap();
        let path = |name: &str| image.join(name);
        let mut open = Vec::new();
        for name in ["log", "in two words", "replaced"] {
            let mut file = File::create(path(name)).unwrap();
            file.write_all(b"before").unwrap();
            open.push(file);
        }
        fs::write(path("read"), "before").unwrap();
        let read = File::open(path("read")).unwrap();
        let own = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        note(&image, &[std::process::id()].into(), own).unwrap();
        open.iter_mut().for_each(|file| file.write_all(b", after").unwrap());
        fs::write(path("read"), "longer than before").unwrap();
        fs::rename(path("replaced"), path("elsewhere")).unwrap();
        fs::write(path("replaced"), "another file").unwrap();
        cut(&image).unwrap();
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!((text("log"), text("in two words")), ("before".into(), "before".into()));
        assert_eq!(text("read"), "longer than before");
        assert_eq!(
            (text("replaced"), text("elsewhere")),
            ("another file".into(), "before, after".into())
        );
        drop(read);
        fs::remove_dir_all(image).unwrap();
    }
}
