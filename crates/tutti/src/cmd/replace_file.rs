//! Files that a verb replaces in one step.

use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// How many names are tried for the new file: one that was left there keeps none from being made.
const NAMES_TRIED: u32 = 16;

/// Replaces a file at once: readers see the old text or the new one, whole.
///
/// The text is first written beside it, to a file that did not exist: a link that another user put
/// there is not followed. What is no regular file, such as `/dev/stderr`, is written to.
pub(super) fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    replace(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, text: &str) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, text);
    }
    let (mut file, beside) = beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// A new file in the directory of another, and its name.
fn beside(path: &Path) -> Result<(File, PathBuf)> {
    let mut last = Error::from(ErrorKind::AlreadyExists);
    for number in 0..NAMES_TRIED {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(file) => return Ok((file, name.into())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::replace_file;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_and_a_link_beside_it_is_not_followed() {
        let dir = std::env::temp_dir().join(format!("tutti-replace-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (path, other) = (dir.join("a.prom"), dir.join("other"));
        fs::write(&other, "kept").unwrap();
        let beside = dir.join(format!("a.prom.{}.0", std::process::id()));
        symlink(&other, beside).unwrap();
        for text in ["one", "two"] {
            replace_file(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3, "nothing is left beside it");
        let wrong = replace_file(&dir.join("none/a"), "").unwrap_err();
        assert!(wrong.to_string().contains("cannot write"), "{wrong}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
