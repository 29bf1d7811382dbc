//! Programs with an amount of work that can be set, and how much of it takes how long.

use super::mpi::{self, Program};
use super::scratch::Scratch;
use super::{options, processors};
use crate::cmd::own::OwnInstance;
use crate::cmd::work::rounds_for;
use crate::front::JobOptions;
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// A job that uses all processors, one task on each, for some time.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// What tables call it.
    pub(super) name: String,
    argv: Vec<OsString>,
}

/// What may be asked for by name.
pub(super) const SPIN: &str = "spin";

/// The programs of table 1: what they get as arguments before the number of rounds.
const MPI: [(Program, &[&str]); 3] =
    [(mpi::RING, &[]), (mpi::ALLTOALL, &["4096"]), (mpi::SOLVER, &[])];

impl Work {
    /// Tasks that need nobody and use their processors alone.
    pub(super) fn spin(length: Duration) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        let rounds = rounds_for(length).to_string();
        Ok(Self { name: SPIN.into(), argv: vec![program, "work".into(), rounds.into()] })
    }

    /// One of the MPI programs; nothing where MPICH is not installed.
    pub(super) fn mpi(
        own: &OwnInstance,
        scratch: &Scratch,
        name: &str,
        length: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(program) = MPI.into_iter().find(|(program, _)| program.name == name) else {
            anyhow::bail!("there is no program {name}");
        };
        Self::of_mpi(own, scratch, program, length)
    }

    /// An MPI program with its arguments before the number of rounds; nothing where MPICH is not
    /// installed.
    pub(super) fn of_mpi(
        own: &OwnInstance,
        scratch: &Scratch,
        (program, arguments): (Program, &[&str]),
        length: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = program.compile(scratch)? else { return Ok(None) };
        let mut argv = vec![path.into_os_string()];
        argv.extend(arguments.iter().map(OsString::from));
        Ok(Some(Self { name: program.name.into(), argv }.sized(own, length)?))
    }

    /// The command of each task.
    pub(super) fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// A program of the user's own, as long as it is.
    pub(super) fn program(path: &str) -> anyhow::Result<Self> {
        // A path holds from where the user stands; a name is searched for by the keeper.
        let program = match path.contains('/') {
            true => std::path::absolute(Path::new(path))?.into_os_string(),
            false => path.into(),
        };
        Ok(Self { name: path.into(), argv: vec![program] })
    }

    /// Appends the number of rounds that take so long when it runs alone.
    fn sized(self, own: &OwnInstance, length: Duration) -> anyhow::Result<Self> {
        let with = |rounds: u128| {
            let mut argv = self.argv.clone();
            argv.push(rounds.to_string().into());
            Self { name: self.name.clone(), argv }
        };
        let idle = with(1).alone(own)?;
        let mut rounds = 64;
        loop {
            let took = with(rounds).alone(own)?.saturating_sub(idle);
            if took >= ENOUGH {
                rounds = rounds * length.as_nanos() / took.as_nanos().max(1);
                return Ok(with(rounds.max(1)));
            }
            rounds *= 4;
            ensure!(rounds < 1 << 40, "{} takes no time", self.name);
        }
    }

    fn alone(&self, own: &OwnInstance) -> anyhow::Result<Duration> {
        self.together(own, 1)
    }

    /// Starts so many of it at once and waits for all: how long that took.
    pub(super) fn together(&self, own: &OwnInstance, count: u32) -> anyhow::Result<Duration> {
        let options = self.options()?;
        let begin = Instant::now();
        let jobs = (0..count)
            .map(|_| own.submit(&options, &self.argv))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for job in jobs {
            own.wait(job).with_context(|| format!("{} did not run", self.name))?;
        }
        Ok(begin.elapsed())
    }

    fn options(&self) -> anyhow::Result<JobOptions> {
        let mut options = options(processors(), Some(1))?;
        options.name = Some(self.name.clone());
        Ok(options)
    }
}

/// How long a run must take to tell how long others will.
const ENOUGH: Duration = Duration::from_millis(300);

/// The names of the MPI programs.
pub(super) fn mpi_names() -> impl Iterator<Item = &'static str> {
    MPI.iter().map(|(program, _)| program.name)
}
