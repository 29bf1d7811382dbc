//! Turns of jobs in a file, as a trace for Perfetto.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tutti_sim::picture::{Gantt, TraceNames};

/// Names of nodes by their numbers; a node that is missing is node0 and so on.
#[derive(Debug, Default)]
pub(crate) struct NodeNames(pub(crate) BTreeMap<u32, String>);

impl TraceNames for NodeNames {
    fn node(&self, node: u32) -> String {
        self.0.get(&node).cloned().unwrap_or_else(|| format!("node{node}"))
    }
}

/// The file, made before work is put into its content.
#[derive(Debug)]
pub(crate) struct TurnsFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl TurnsFile {
    /// Creates the file.
    ///
    /// # Errors
    /// If its name has another ending, or it can't be written.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            None | Some("json" | "trace") => {}
            Some(ending) => bail!(
                "{}: a timeline is a trace for Perfetto as .json, and not .{ending}; `tutti sim \
                 --plot gantt=FILE` draws an .svg or .png",
                path.display()
            ),
        }
        let file = File::create(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::with_capacity(256 << 10, file) })
    }

    /// Writes what was recorded.
    ///
    /// # Errors
    /// If it is too much, or can't be written.
    pub(crate) fn write(mut self, turns: Gantt, names: &NodeNames) -> anyhow::Result<()> {
        let written = turns.trace(names, &mut self.out);
        written
            .map_err(anyhow::Error::new)
            .and_then(|()| Ok(self.out.flush()?))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
