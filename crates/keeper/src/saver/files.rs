//! Files to which the processes of an image may have appended since.
//!
//! An image of processes that went on is older than what they have written later. Restored, they
//! write that again. So each regular file that they had open for writing is cut to the length that
//! it had then, with the rights of their user. What is cut off is kept beside it, since others may
//! have appended it. A file that is another one by now is not touched; CRIU compares lengths and
//! refuses it.

use anyhow::{Context, ensure};
use nix::fcntl::OFlag;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// In an image: for each file its length and inode in decimal and its name, ended by NUL.
const FILES: &str = "tutti-files";

/// The same of processes that ended when they were saved. What others append to the files until
/// they are restored stays; then the list gets the other name.
const FILES_AT_END: &str = "tutti-files-at-end";

/// Maximum length of the list that is read, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of files beside one with what a job has cut off.
const TAILS_MAX: u32 = 10_000;

/// The list in an image, and the name that it has when the processes go on.
pub(super) const RENAMED: (&str, &str) = (FILES_AT_END, FILES);

/// Writes down the files that these processes, which stand still, have open for writing. Whether
/// they end then.
pub(super) fn note(
    image: &Path,
    processes: &BTreeSet<u32>,
    (uid, gid): (u32, u32),
    ends: bool,
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
    let path = image.join(if ends { FILES_AT_END } else { FILES });
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

/// The processes of an image go on: what they append from now on is cut off before they are
/// restored from it once more.
pub(super) fn go_on(image: &Path) -> io::Result<()> {
    match fs::rename(image.join(FILES_AT_END), image.join(FILES)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an image has such a list: its processes went on.
pub(super) fn has_list(image: &Path) -> bool {
    image.join(FILES).exists()
}

/// The length, the inode and the name of each file of a list; none if there is no list.
fn read(image: &Path, list: &str) -> anyhow::Result<Vec<(u64, u64, PathBuf)>> {
    let mut bytes = Vec::new();
    match File::open(image.join(list)) {
        Ok(file) => file.take(LIST_BYTES_MAX).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("cannot read the list of its files"),
    };
    let entries = bytes.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
    entries.map(|entry| parse(entry).context("the image is damaged")).collect()
}

/// A file that is longer than an image knows it.
struct Longer {
    name: PathBuf,
    open: File,
    /// Its length then, in bytes.
    length: u64,
}

/// Cuts the files of an image to the length that they had then. By their user.
///
/// What is cut off may be what others have appended. It is kept in a file beside each, and those
/// stay. No file is cut before all can be, and all that is cut off is kept.
pub(super) fn cut(image: &Path, job: &OsStr) -> anyhow::Result<()> {
    // Processes that have ended have appended nothing since.
    for (_, _, name) in read(image, FILES_AT_END)? {
        let found = fs::symlink_metadata(&name);
        let blocks = found.is_ok_and(|found| may_block(found.file_type()));
        ensure!(!blocks, "'{}' is no file any more", name.display());
    }
    let mut all = Vec::new();
    for (length, inode, name) in read(image, FILES)? {
        let open = open_longer(&name, inode, length)
            .with_context(|| format!("cannot cut '{}' to {length} bytes", name.display()))?;
        all.extend(open.map(|open| Longer { name, open, length }));
    }
    let mut kept = Vec::new();
    for longer in &mut all {
        if let Err(error) = longer.keep_tail(job, &mut kept) {
            // Nothing was cut, so all of it is still where it was.
            kept.iter().for_each(|(name, _)| drop(fs::remove_file(name)));
            let name = longer.name.display();
            return Err(error).with_context(|| format!("cannot keep what follows in '{name}'"));
        }
    }
    for (longer, (_, tail)) in all.iter_mut().zip(&mut kept) {
        longer.cut(tail).with_context(|| {
            format!("cannot cut '{}' to {} bytes", longer.name.display(), longer.length)
        })?;
    }
    Ok(())
}

impl Longer {
    /// Copies what is to be cut off to a new file beside it.
    fn keep_tail(&mut self, job: &OsStr, kept: &mut Vec<(PathBuf, File)>) -> io::Result<()> {
        let (name, mut tail) = create_tail(&self.name, job)?;
        self.open.seek(SeekFrom::Start(self.length))?;
        kept.push((name, tail.try_clone()?));
        io::copy(&mut self.open, &mut tail)?;
        tail.sync_all()
    }

    fn cut(&mut self, tail: &mut File) -> io::Result<()> {
        // Others may have appended meanwhile.
        if io::copy(&mut self.open, tail)? > 0 {
            tail.sync_all()?;
        }
        self.open.set_len(self.length)
    }
}

/// Creates `NAME.after-checkpoint-JOB`, with a number behind if there is one.
fn create_tail(name: &Path, job: &OsStr) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let mut tail = name.as_os_str().to_owned();
        tail.push(".after-checkpoint-");
        tail.push(job);
        if number > 1 {
            tail.push(format!(".{number}"));
        }
        let tail = PathBuf::from(tail);
        match OpenOptions::new().write(true).create_new(true).open(&tail) {
            Ok(open) => return Ok((tail, open)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < TAILS_MAX => {}
            Err(error) => {
                let why = format!("cannot create '{}': {error}", tail.display());
                return Err(io::Error::new(error.kind(), why));
            }
        }
        number += 1;
    }
}

fn parse(entry: &[u8]) -> Option<(u64, u64, PathBuf)> {
    let mut words = entry.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (length, inode) = (number()?, number()?);
    let name = OsString::from_vec(words.next()?.to_vec());
    Some((length, inode, name.into()))
}

/// Opens a file if it is the same one and has become longer.
fn open_longer(name: &Path, inode: u64, length: u64) -> io::Result<Option<File>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let found = match fs::symlink_metadata(name) {
        Ok(found) => found,
        // CRIU says what is missing.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if may_block(found.file_type()) {
        return Err(io::Error::other("it is no file any more"));
    }
    // Numbers of devices may be others after a restart of the machine.
    let is_longer = |it: &fs::Metadata| it.is_file() && it.ino() == inode && it.len() > length;
    if !is_longer(&found) {
        return Ok(None);
    }
    let open = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(name)?;
    let is_longer = is_longer(&open.metadata()?);
    Ok(is_longer.then_some(open))
}

/// Whether this is something that CRIU, which opens it again, may wait for without an end.
fn may_block(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_char_device()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Each finds what this process has open, and so what another test has.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn files_that_were_appended_to_are_cut_and_others_stay() {
        let _alone = alone();
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
        note(&image, &[std::process::id()].into(), own, false).unwrap();
        open.iter_mut().for_each(|file| file.write_all(b", after").unwrap());
        fs::write(path("read"), "longer than before").unwrap();
        fs::rename(path("replaced"), path("elsewhere")).unwrap();
        fs::write(path("replaced"), "another file").unwrap();
        cut(&image, "7".as_ref()).unwrap();
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!((text("log"), text("in two words")), ("before".into(), "before".into()));
        assert_eq!(text("read"), "longer than before");
        assert_eq!(
            (text("replaced"), text("elsewhere")),
            ("another file".into(), "before, after".into())
        );
        let tail = |name: &str| fs::read_to_string(path(name)).ok();
        let kept = ["log.after-checkpoint-7", "in two words.after-checkpoint-7"];
        assert_eq!(kept.map(tail), [Some(", after".into()), Some(", after".into())]);
        assert_eq!(tail("read.after-checkpoint-7"), None);
        assert_eq!(tail("replaced.after-checkpoint-7"), None);
        // Once more: what was kept stays.
        fs::write(path("log"), "before, again").unwrap();
        cut(&image, "7".as_ref()).unwrap();
        assert_eq!(
            (text("log"), text("log.after-checkpoint-7")),
            ("before".into(), ", after".into())
        );
        assert_eq!(tail("log.after-checkpoint-7.2"), Some(", again".into()));
        drop(read);
        fs::remove_dir_all(image).unwrap();
    }

    #[test]
    fn no_file_is_cut_if_what_follows_in_one_can_not_be_kept() {
        let _alone = alone();
        let image = std::env::temp_dir().join(format!("tutti-tails-{}", std::process::id()));
        fs::create_dir_all(&image).unwrap();
        // A name of this length leaves no room for a longer one.
        let names = ["log".to_owned(), "x".repeat(250)];
        let mut open = names.each_ref().map(|name| File::create(image.join(name)).unwrap());
        open.iter_mut().for_each(|file| file.write_all(b"before").unwrap());
        let own = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        note(&image, &[std::process::id()].into(), own, false).unwrap();
        open.iter_mut().for_each(|file| file.write_all(b", after").unwrap());
        let error = format!("{:#}", cut(&image, "7".as_ref()).unwrap_err());
        assert!(error.contains("cannot keep what follows in"), "{error}");
        for name in &names {
            assert_eq!(fs::read_to_string(image.join(name)).unwrap(), "before, after");
        }
        let mut left: Vec<_> = fs::read_dir(&image).unwrap().flatten().collect();
        left.retain(|it| it.file_name() != FILES);
        assert_eq!(left.len(), names.len(), "{left:?}");
        fs::remove_dir_all(image).unwrap();
    }
}
