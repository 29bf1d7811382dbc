//! Whether an image is whole: a list of its files, with their sizes and checksums.
//!
//! A file that is cut short, missing or changed may be restored to processes that spin, or to
//! memory that was never theirs. So the list is made when CRIU has written the image, and all files
//! are read and compared before it is restored.

use anyhow::{Context, bail, ensure};
use crc32fast::Hasher;
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// In an image: for each of its files the length and checksum (CRC-32), in decimal, and the name;
/// in the last line the checksum of all lines before it.
pub(super) const LIST: &str = "tutti-list";

/// Maximum length of the list, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// How much is read at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Files without which nothing can be restored.
const NEEDED: [&str; 2] = ["inventory.img", "pstree.img"];

/// A file of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    bytes: u64,
    crc: u32,
}

/// Whether CRIU has written what it takes to restore a process.
///
/// # Errors
/// If it has not, with what is missing.
pub(super) fn expect(image: &Path, root: i32) -> anyhow::Result<()> {
    let needed = NEEDED.map(str::to_owned).into_iter().chain([format!("core-{root}.img")]);
    for name in needed {
        let bytes = fs::metadata(image.join(&name)).map_or(0, |found| found.len());
        ensure!(bytes > 0, "CRIU has made no image: there is no {name}, or it is empty");
    }
    Ok(())
}

/// Writes down which files an image has, but for the one `apart`. They may be synced meanwhile.
///
/// # Errors
/// If one can't be read, or the list can't be written.
pub(super) fn note(image: &Path, apart: &str) -> anyhow::Result<()> {
    let mut text = String::new();
    for entry in fs::read_dir(image)? {
        let name = entry?.file_name();
        if name == LIST || name == apart {
            continue;
        }
        let Sum { bytes, crc } = sum_of(image, &name).context("cannot read what was written")?;
        let name = name.to_str().filter(|name| !name.contains('\n')).context("a foreign file")?;
        writeln!(text, "{bytes} {crc} {name}")?;
    }
    let all = crc32fast::hash(text.as_bytes());
    writeln!(text, "{all}")?;
    Ok(fs::write(image.join(LIST), text)?)
}

/// Whether an image has its files as they were written. `renamed`: the name of a file, and one that
/// it may have got since.
///
/// # Errors
/// If it has not, with what is wrong.
pub(super) fn check(image: &Path, renamed: (&str, &str)) -> anyhow::Result<()> {
    let list = read_list(image)?;
    // Sizes first: they cost nothing.
    for with_sums in [false, true] {
        for (name, sum) in &list {
            let present = match name == renamed.0 && !image.join(name).exists() {
                true => renamed.1,
                false => name,
            };
            check_file(image, present, *sum, with_sums)?;
        }
    }
    Ok(())
}

fn check_file(image: &Path, name: &str, sum: Sum, with_sum: bool) -> anyhow::Result<()> {
    if with_sum {
        let found = sum_of(image, OsStr::new(name))
            .with_context(|| format!("the image is damaged: cannot read {name}"))?;
        ensure!(found == sum, "the image is damaged: {name} is not as it was written");
        return Ok(());
    }
    match fs::symlink_metadata(image.join(name)) {
        Ok(found) => ensure!(
            found.is_file() && found.len() == sum.bytes,
            "the image is damaged: {name} has {} bytes instead of {}",
            found.len(),
            sum.bytes
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("the image is damaged: {name} is missing")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {name}")),
    }
    Ok(())
}

/// What the list says. There is none in what is no image of ours.
fn read_list(image: &Path) -> anyhow::Result<BTreeMap<String, Sum>> {
    let mut text = String::new();
    open(image, OsStr::new(LIST))
        .and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text))
        .context("the image is damaged: cannot read the list of its files")?;
    parse(&text).context("the image is damaged: the list of its files is not as it was written")
}

fn parse(text: &str) -> Option<BTreeMap<String, Sum>> {
    let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let all = text.get(..=lines.len())?;
    if sum.parse::<u32>().ok()? != crc32fast::hash(all.as_bytes()) {
        return None;
    }
    let parts = all.lines().map(|line| {
        let mut words = line.splitn(3, ' ');
        let (bytes, crc) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((words.next()?.to_owned(), Sum { bytes, crc }))
    });
    parts.collect()
}

fn open(image: &Path, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(image.join(name))?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file")),
    }
}

fn sum_of(image: &Path, name: &OsStr) -> io::Result<Sum> {
    let mut file = open(image, name)?;
    let (mut hasher, mut bytes) = (Hasher::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Sum { bytes, crc: hasher.finalize() }),
            Ok(count) => {
                hasher.update(&piece[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// How many bytes the files of a directory have; 0 if there is none.
pub(super) fn bytes_of(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    files.flat_map(|it| it.metadata()).map(|it| it.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_whole_only_as_it_was_written() {
        let image = std::env::temp_dir().join(format!("tutti-whole-{}", std::process::id()));
        fs::create_dir_all(&image).unwrap();
        let path = |name: &str| image.join(name);
        let why = || format!("{:#}", check(&image, ("old", "new")).unwrap_err());
        assert!(expect(&image, 300).unwrap_err().to_string().contains("no inventory.img"));
        let pages = vec![7; 3 * PIECE_BYTES + 5];
        let all = ["inventory.img", "pstree.img", "core-300.img", "old"];
        all.iter().for_each(|name| fs::write(path(name), name).unwrap());
        fs::write(path("pages-1.img"), &pages).unwrap();
        fs::write(path("log"), "said").unwrap();
        expect(&image, 300).unwrap();
        assert!(expect(&image, 301).unwrap_err().to_string().contains("no core-301.img"));
        assert!(why().contains("cannot read the list of its files"), "{}", why());
        note(&image, "log").unwrap();
        fs::write(path("log"), "more was said").unwrap();
        fs::write(path("stats-restore"), "").unwrap();
        check(&image, ("old", "new")).unwrap();
        fs::rename(path("old"), path("new")).unwrap();
        check(&image, ("old", "new")).unwrap();
        let mut flipped = pages.clone();
        *flipped.last_mut().unwrap() = 8;
        fs::write(path("pages-1.img"), &flipped).unwrap();
        assert!(why().contains("pages-1.img is not as it was written"), "{}", why());
        fs::write(path("pages-1.img"), &pages[1..]).unwrap();
        assert!(why().contains("pages-1.img has 786436 bytes instead of 786437"), "{}", why());
        fs::remove_file(path("pages-1.img")).unwrap();
        assert!(why().contains("pages-1.img is missing"), "{}", why());
        fs::write(path("pages-1.img"), &pages).unwrap();
        check(&image, ("old", "new")).unwrap();
        let list = fs::read_to_string(path(LIST)).unwrap();
        let without = list.split_once('\n').unwrap().1;
        for damaged in ["", "\n", "0\n", without, list.trim_end(), &list.replace("786437", "1")] {
            fs::write(path(LIST), damaged).unwrap();
            assert_eq!(parse(damaged), None, "{damaged}");
            assert!(why().contains("the list of its files is not as it was written"), "{}", why());
        }
        fs::remove_dir_all(image).unwrap();
    }
}
