//! A directory for the files of a benchmark, gone when it is.

use anyhow::Context;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory; removed with all in it when dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// If it can't be made, or is there already.
    pub(super) fn new(purpose: &str) -> anyhow::Result<Self> {
        let name = format!("tutti-bench-{purpose}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        tutti_client::scratch::remove_on_signal(&path)?;
        Ok(Self(path))
    }

    /// A file in it.
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-overs in a directory for temporary files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
