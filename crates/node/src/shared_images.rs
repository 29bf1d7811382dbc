//! A directory of images that nodes share: a job that was saved on one can be restored on another.
//!
//! Nodes share it if they reach the same file in it by the same name. The first instance that uses
//! a directory writes a random number into that file. What a daemon must know of it is in the state
//! directory: no daemon waits for a file system of other machines.

use anyhow::{Context, bail, ensure};
use nix::fcntl::OFlag;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tutti_linux::random::random_u32;
use tutti_types::digest::Digest;

/// The variable that names the directory.
pub const IMAGES_VARIABLE: &str = "TUTTI_IMAGES";

/// In the directory: its number.
const TOKEN: &str = "tutti-images";

/// Maximum length of what is read of a number and a name, in bytes.
const BYTES_MAX: u64 = 8 << 10;

/// Such a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedImages {
    /// What nodes that share it have in common.
    pub place: u64,
    /// Where it is.
    pub directory: PathBuf,
}

impl SharedImages {
    /// The directory that the environment names, if it does. It gets its number if it has none.
    /// Only instances of root save images.
    ///
    /// # Errors
    /// If it can't be used, or others than root can change what is in it.
    pub fn of_environment() -> anyhow::Result<Option<Self>> {
        let named = std::env::var_os(IMAGES_VARIABLE).filter(|it| !it.is_empty());
        let named = named.filter(|_| nix::unistd::geteuid().is_root());
        named.map(|directory| Self::find(Path::new(&directory))).transpose()
    }

    /// The directory of this name.
    ///
    /// # Errors
    /// As for [`Self::of_environment`].
    pub fn find(directory: &Path) -> anyhow::Result<Self> {
        let named = || format!("{IMAGES_VARIABLE}={} can't be used", directory.display());
        let number = check(directory).and_then(|()| number_of(directory)).with_context(named)?;
        // Processes know their temporary directory by its name.
        let place = Digest::of(&[directory.as_os_str().as_bytes(), number.as_bytes()].concat());
        Ok(Self { place, directory: directory.to_owned() })
    }

    /// What an instance has written down of its directory, if it has one.
    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        let text = fs::read(file).ok()?;
        let at = text.iter().position(|&byte| byte == b' ')?;
        let place = u64::from_str_radix(std::str::from_utf8(&text[..at]).ok()?, 16).ok()?;
        let directory = std::ffi::OsString::from_vec(text[at + 1..].to_vec());
        Some(Self { place, directory: directory.into() })
    }

    /// What an instance writes down of it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [format!("{:016x} ", self.place).as_bytes(), self.directory.as_os_str().as_bytes()].concat()
    }
}

fn check(directory: &Path) -> anyhow::Result<()> {
    ensure!(directory.is_absolute(), "it must be an absolute path");
    let found = fs::symlink_metadata(directory).context("cannot look at it")?;
    ensure!(found.is_dir(), "it must be a directory, and no link");
    ensure!(found.uid() == 0 && found.mode() & 0o022 == 0, "only root may write to it");
    // Users reach their temporary directories through it.
    ensure!(found.mode() & 0o001 != 0, "users must be able to enter it (mode 711)");
    let real = fs::canonicalize(directory).context("cannot look at it")?;
    for above in directory.ancestors().chain(real.ancestors()) {
        let found = fs::symlink_metadata(above).context("cannot look at what it is in")?;
        let is_kept = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
        ensure!(
            found.uid() == 0 && (is_kept || found.is_symlink()),
            "others than root can put another in its place: see '{}'",
            above.display()
        );
    }
    Ok(())
}

/// The number in a directory; a new one where there is none.
fn number_of(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join(TOKEN);
    for _ in 0..2 {
        match File::options().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path) {
            Ok(file) => {
                let mut text = String::new();
                file.take(BYTES_MAX).read_to_string(&mut text)?;
                ensure!(text.ends_with('\n'), "'{}' is not whole", path.display());
                return Ok(text);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("cannot read its number"),
        }
        // Linked when it is whole: the first of several nodes gives it its number.
        let number = format!("{:08x}{:08x}\n", random_u32()?, random_u32()?);
        let new = directory.join(format!("{TOKEN}-{}", number.trim()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let written = written.and_then(|mut file| {
            file.write_all(number.as_bytes())?;
            file.sync_all()
        });
        let linked = written.and_then(|()| fs::hard_link(&new, &path));
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).context("cannot write to it");
            }
            _ => {}
        }
    }
    bail!("its number can't be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nodes_share_a_directory_if_its_name_and_number_are_the_same() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let top = std::env::temp_dir().join(format!("tutti-shared-{}", std::process::id()));
        let [one, two] = ["one", "two"].map(|name| top.join(name));
        for directory in [&top, &one, &two] {
            fs::create_dir_all(directory).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(0o711)).unwrap();
        }
        let first = SharedImages::find(&one).unwrap();
        assert_eq!(SharedImages::find(&one).unwrap(), first);
        assert_eq!(SharedImages::read(Path::new("/nowhere")), None);
        fs::write(top.join("state"), first.to_bytes()).unwrap();
        assert_eq!(SharedImages::read(&top.join("state")), Some(first.clone()));
        assert_ne!(SharedImages::find(&two).unwrap().place, first.place);
        // A copy of the number under another name is another directory.
        fs::copy(one.join(TOKEN), two.join(TOKEN)).unwrap();
        assert_ne!(SharedImages::find(&two).unwrap().place, first.place);
        assert_eq!(fs::read_dir(&one).unwrap().count(), 1, "nothing else is left there");
        let refused = |path: &Path, why: &str| {
            let error = format!("{:#}", SharedImages::find(path).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        fs::write(one.join(TOKEN), "12").unwrap();
        refused(&one, "is not whole");
        symlink(&two, top.join("link")).unwrap();
        refused(&top.join("link"), "no link");
        refused(&top.join("missing"), "cannot look at it");
        refused(Path::new("relative"), "absolute");
        fs::set_permissions(&two, Permissions::from_mode(0o777)).unwrap();
        refused(&two, "only root may write");
        fs::set_permissions(&two, Permissions::from_mode(0o700)).unwrap();
        refused(&two, "mode 711");
        fs::set_permissions(&two, Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(&top, Permissions::from_mode(0o777)).unwrap();
        refused(&two, "can put another in its place");
        fs::set_permissions(&top, Permissions::from_mode(0o1777)).unwrap();
        assert!(SharedImages::find(&two).is_ok());
        std::os::unix::fs::chown(&top, Some(65534), None).unwrap();
        refused(&two, "can put another in its place");
        std::os::unix::fs::chown(&top, Some(0), None).unwrap();
        fs::remove_dir_all(&top).unwrap();
    }
}
