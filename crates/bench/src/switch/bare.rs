//! What the same cgroup writes cost with nothing around them: a small C program, in the same run.

use super::super::contend::find_program;
use super::super::scratch::Scratch;
use super::trees::Shape;
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tutti_client::scratch::groups_until_signal;
use tutti_linux::cgroup::Hierarchy;

const SOURCE: &str = include_str!("../../../../tests/bench/freeze.c");

/// Between two switches.
const PAUSE_MS: u32 = 20;

/// The compiled program and a cgroup for it, which goes when this does.
pub(super) struct Bare {
    program: PathBuf,
    hierarchy: Arc<Hierarchy>,
}

impl Bare {
    /// # Errors
    /// If there is no C compiler, or no cgroup for it; with what to do about that.
    pub(super) fn new(scratch: &Scratch) -> anyhow::Result<Self> {
        let compiler = find_program("cc")
            .context("there is no C compiler: install the package gcc, or another with cc")?;
        let name = format!("tutti-bench-{}", std::process::id());
        let hierarchy = groups_until_signal(&name)?;
        let (source, program) = (scratch.path("freeze.c"), scratch.path("freeze"));
        std::fs::write(&source, SOURCE)
            .with_context(|| format!("cannot write {}", source.display()))?;
        let done =
            Command::new(compiler).arg("-O2").arg("-o").args([&program, &source]).output()?;
        let why = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "cc could not compile freeze.c: {why}");
        Ok(Self { program, hierarchy })
    }

    /// The median of so many switches between two trees, microseconds.
    pub(super) fn median_us(&self, shape: Shape, switches: u64) -> anyhow::Result<u64> {
        let directory: &Path = self.hierarchy.path();
        let done = Command::new(&self.program)
            .arg(directory)
            .args([shape.processes.to_string(), shape.kind.word().to_owned()])
            .args([switches.to_string(), PAUSE_MS.to_string()])
            .output()?;
        let why = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "freeze.c failed: {why}");
        let text = String::from_utf8_lossy(&done.stdout);
        let lengths: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ensure!(lengths.len() as u64 == switches, "freeze.c made {} switches", lengths.len());
        #[expect(clippy::cast_possible_truncation, reason = "microseconds of a switch")]
        #[expect(clippy::cast_sign_loss, reason = "a length of time")]
        let median = super::super::contend::median_f64(&lengths).round() as u64;
        Ok(median)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // What a program that failed has left goes, too.
        let _ = self.hierarchy.remove();
    }
}
