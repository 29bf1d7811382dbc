//! Programs with an amount of work that can be set, and how much of it takes how long.

use super::mpi::{self, Program};
use super::options;
use super::scratch::Scratch;
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_client::JobOptions;
use tutti_client::scratch::ScratchInstance;
use tutti_client::work::rounds_for;
use tutti_wire::script::split_words;

/// A job that uses all processors for some time.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// What tables call it.
    pub(super) name: String,
    argv: Vec<OsString>,
    tasks: u32,
}

/// What may be asked for by name.
pub(super) const SPIN: &str = "spin";

/// The programs of table 1: what they get as arguments before the number of rounds.
const MPI: [(Program, &[&str]); 3] =
    [(mpi::RING, &[]), (mpi::ALLTOALL, &["4096"]), (mpi::SOLVER, &[])];

impl Work {
    /// Tasks that need no other and use their processors alone.
    pub(super) fn spin(tasks: u32, length: Duration) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        let rounds = rounds_for(length).to_string();
        Ok(Self { name: SPIN.into(), argv: vec![program, "work".into(), rounds.into()], tasks })
    }

    /// One of the MPI programs; nothing where MPICH is not installed.
    pub(super) fn mpi(
        own: &ScratchInstance,
        scratch: &Scratch,
        name: &str,
        tasks: u32,
        length: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(program) = MPI.into_iter().find(|(program, _)| program.name == name) else {
            anyhow::bail!("there is no program {name}");
        };
        Self::of_mpi(own, scratch, program, tasks, length)
    }

    /// An MPI program with its arguments before the number of rounds; nothing where MPICH is not
    /// installed.
    pub(super) fn of_mpi(
        own: &ScratchInstance,
        scratch: &Scratch,
        (program, arguments): (Program, &[&str]),
        tasks: u32,
        length: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = program.compile(scratch)? else { return Ok(None) };
        let mut argv = vec![path.into_os_string()];
        argv.extend(arguments.iter().map(OsString::from));
        Ok(Some(Self { name: program.name.into(), argv, tasks }.sized(own, length)?))
    }

    /// The command of each task.
    pub(super) fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// A program of the user's own with its arguments, as long as it takes.
    pub(super) fn command(line: &str, tasks: u32) -> anyhow::Result<Self> {
        let words = split_words(line).with_context(|| format!("cannot understand '{line}'"))?;
        let mut argv: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let program = argv.first_mut().context("the command to be measured is empty")?;
        // A path holds from where the user stands; a name is searched for by the keeper.
        if program.as_encoded_bytes().contains(&b'/') {
            *program = std::path::absolute(Path::new(program))?.into_os_string();
        }
        Ok(Self { name: line.into(), argv, tasks })
    }

    /// Appends the number of rounds that take so long when it runs alone.
    fn sized(self, own: &ScratchInstance, length: Duration) -> anyhow::Result<Self> {
        let with = |rounds: u128| {
            let mut argv = self.argv.clone();
            argv.push(rounds.to_string().into());
            Self { argv, ..self.clone() }
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

    fn alone(&self, own: &ScratchInstance) -> anyhow::Result<Duration> {
        self.together(own, 1)
    }

    /// Starts so many of it at once and waits for all: how long that took.
    pub(super) fn together(&self, own: &ScratchInstance, count: u32) -> anyhow::Result<Duration> {
        let options = self.options()?;
        let begin = Instant::now();
        let jobs = (0..count)
            .map(|_| own.submit(&options, &self.argv))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for job in jobs {
            own.wait(job).with_context(|| self.failed(count))?;
        }
        Ok(begin.elapsed())
    }

    fn failed(&self, count: u32) -> String {
        let Self { name, tasks, .. } = self;
        format!("a run of '{name}' failed ({tasks} tasks, {count} at once; output is not kept)")
    }

    fn options(&self) -> anyhow::Result<JobOptions> {
        let mut options = options(self.tasks, None)?;
        // The others might wait for ever for a rank that has failed.
        options.kill_on_bad_exit = true;
        Ok(options)
    }
}

/// How long a run must take to tell how long others will.
const ENOUGH: Duration = Duration::from_millis(300);

/// The names of the MPI programs.
pub(super) fn mpi_names() -> impl Iterator<Item = &'static str> {
    MPI.iter().map(|(program, _)| program.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let work = Work::command("sh -c 'exec ./lu | grep \"0 failed\"' lu", 2).unwrap();
        assert_eq!(work.argv, ["sh", "-c", "exec ./lu | grep \"0 failed\"", "lu"]);
        for wrong in ["", " ", "sh -c 'true"] {
            assert!(Work::command(wrong, 2).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_path_of_a_program_holds_from_here_and_its_arguments_are_its_own() {
        let here = std::env::current_dir().unwrap();
        let work = Work::command("./solver ./input", 2).unwrap();
        assert_eq!(work.argv, [here.join("solver").into_os_string(), "./input".into()]);
    }
}
