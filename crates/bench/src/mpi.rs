//! The MPI programs of the repository, compiled when a benchmark wants them and MPICH is there.

use super::contend::find_program;
use super::scratch::Scratch;
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The starter of MPICH.
pub(super) const HYDRA: &str = "mpiexec.hydra";

/// Debian's name of MPICH's compiler: `mpicc` alone may be another MPI's.
const COMPILER: &str = "mpicc.mpich";

/// A program: its name and its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// What tables and `--program` call it.
    pub(super) name: &'static str,
    source: &'static str,
}

/// Passes a token round.
pub(super) const RING: Program =
    Program { name: "ring", source: include_str!("../../../tests/mpi/ring.c") };
/// Every rank sends to every other.
pub(super) const ALLTOALL: Program =
    Program { name: "alltoall", source: include_str!("../../../tests/mpi/alltoall.c") };
/// Reduces in every iteration.
pub(super) const SOLVER: Program =
    Program { name: "solver", source: include_str!("../../../tests/mpi/solver.c") };
/// Computes for 0.1 ms and needs all ranks.
pub(super) const GRAIN: Program =
    Program { name: "grain", source: include_str!("../../../tests/mpi/grain.c") };
/// Starts and ends MPI.
pub(super) const INIT: Program =
    Program { name: "init", source: include_str!("../../../tests/mpi/init.c") };

impl Program {
    /// Compiles it; nothing if there is no compiler for MPICH.
    ///
    /// # Errors
    /// If the compiler says so.
    pub(super) fn compile(&self, scratch: &Scratch) -> anyhow::Result<Option<PathBuf>> {
        let Some(compiler) = find_program(COMPILER) else { return Ok(None) };
        let source = scratch.path(format!("{}.c", self.name));
        let program = scratch.path(self.name);
        std::fs::write(&source, self.source)
            .with_context(|| format!("cannot write {}", source.display()))?;
        let status = Command::new(compiler)
            .arg("-O2")
            .arg("-o")
            .args([&program, &source])
            .arg("-lm")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("{COMPILER} could not compile {}.c", self.name);
        }
        Ok(Some(program))
    }
}
