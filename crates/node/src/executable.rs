//! The executable that runs here. Its file may be replaced at any time: by an upgrade, or by
//! another machine that shares the file system and has tutti brought to it at the same moment.

use anyhow::Context;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What this process executes, whatever has become of the file that it began as.
pub const RUNNING: &str = "/proc/self/exe";

/// What the kernel appends to the path of a file that is not there any more.
const REPLACED: &[u8] = b" (deleted)";

/// The executable that daemons and verbs run, where that is not this one.
static OTHER: OnceLock<PathBuf> = OnceLock::new();

/// From now on `tutti` is another executable than this one: the one beside it, or else of the
/// `PATH`.
///
/// # Errors
/// If there is none; the text says so.
pub fn use_tutti_beside() -> anyhow::Result<()> {
    let beside = own_path()?.with_file_name("tutti");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::iter::once(beside).chain(std::env::split_paths(&path).map(|at| at.join("tutti")));
    let tutti = places.into_iter().find(|place| place.is_file());
    let tutti = tutti.context(
        "there is no `tutti` beside this program or in the PATH: install it, or build it",
    )?;
    OTHER.get_or_init(|| tutti);
    Ok(())
}

/// Where another process of this very build can be started from: the daemons of an instance speak
/// one version of the protocol.
///
/// # Errors
/// If the kernel does not say what runs here.
pub fn own_program() -> anyhow::Result<PathBuf> {
    if let Some(other) = OTHER.get() {
        return Ok(other.clone());
    }
    let path = own_path()?;
    Ok(if runs(&path) { path } else { RUNNING.into() })
}

/// Where this executable was put: what lies there may have replaced it since.
///
/// # Errors
/// If the kernel does not say what runs here.
pub fn own_path() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find the tutti program")?;
    Ok(without_mark(path))
}

fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(REPLACED) {
        Some(there) if !path.exists() => OsStr::from_bytes(there).into(),
        _ => path,
    }
}

/// Whether this process executes the file that is at this path now.
pub fn runs(path: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((file(path), file(Path::new(RUNNING))), (Ok(there), Ok(here)) if there == here)
}

#[cfg(test)]
mod tests {
    use super::{own_program, runs, without_mark};
    use std::path::Path;

    #[test]
    fn a_replaced_executable_is_where_it_was_put() {
        assert_eq!(without_mark("/none/tutti (deleted)".into()), Path::new("/none/tutti"));
        assert_eq!(without_mark("/none/tutti".into()), Path::new("/none/tutti"));
        assert!(runs(&own_program().unwrap()));
    }
}
