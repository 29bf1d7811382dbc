//! `mpiexec` and `mpirun`: `tutti run` with the options of MPI's standard and of MPICH.
//!
//! They lie in a directory of their own, which users put into their `PATH` if they want it. Inside
//! a job the `mpirun` of an MPI library comes first: it starts processes by the job's environment.
//! Only where there is none, ours starts a step.

use super::wrong;
use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tutti_client::output::print;
use tutti_wire::units::shown;

const HELP: &str = "\
mpiexec, mpirun: run an MPI program as a job; `tutti run` has more options.

  mpiexec -n 4 ./solver in.dat     four ranks
  mpiexec -n 4 -l ./solver         each line begins with its rank
  mpiexec -n 4 -host n1,n2 -ppn 2 ./solver
  mpiexec -n 2 -env OMP_NUM_THREADS 4 ./solver

Options: -n, -np N; -host, -hosts, -H LIST; -ppn, -perhost N; -env, -genv NAME
VALUE; -x NAME[=VALUE]; -l, -prepend-rank; -wdir, -wd DIR. Each may have one or
two dashes. Inside a job, another mpiexec in PATH is called, if there is one.
";

/// What a command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// The words of `tutti run`.
    words: Vec<OsString>,
    variables: Vec<(String, String)>,
    problems: Vec<String>,
    is_help: bool,
}

impl Asked {
    fn of(words: &[OsString]) -> Self {
        let mut asked = Self::default();
        let mut rest = words.iter();
        let mut program = Vec::new();
        while let Some(word) = rest.next() {
            let text = word.to_string_lossy();
            if !text.starts_with('-') || text == "-" {
                program.push(word.clone());
                break;
            }
            if text == "--" {
                break;
            }
            let (name, mut inner) = match text.trim_start_matches('-').split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text.trim_start_matches('-'), None),
            };
            let mut next =
                || inner.take().or_else(|| rest.next().map(|it| it.to_string_lossy().into_owned()));
            if let Err(problem) = asked.take(name, &mut next) {
                asked.problems.push(problem);
            }
        }
        program.extend(rest.cloned());
        if program.iter().any(|word| word == ":") {
            let problem = "':' is not available: a job has tasks of one program; \
                           `srun --multi-prog` has ranks of several";
            asked.problems.push(problem.into());
        }
        if program.is_empty() && !asked.is_help && asked.problems.is_empty() {
            asked.problems.push("no program is named, as in: mpiexec -n 4 ./solver".into());
        }
        asked.words.push("--".into());
        asked.words.extend(program);
        asked
    }

    /// Takes one option. `next`: its value.
    fn take(&mut self, name: &str, next: &mut dyn FnMut() -> Option<String>) -> Result<(), String> {
        let mut value = || next().ok_or_else(|| format!("option -{name} requires an argument"));
        match name {
            "n" | "np" | "c" => self.words.extend(["-n".into(), value()?.into()]),
            "host" | "hosts" | "H" => self.words.extend(["-w".into(), value()?.into()]),
            "ppn" | "perhost" | "npernode" | "N" => {
                self.words.extend(["--tasks-per-node".into(), value()?.into()]);
            }
            "wdir" | "wd" => self.words.extend(["-D".into(), value()?.into()]),
            "l" | "prepend-rank" | "tag-output" => self.words.push("-l".into()),
            "env" | "genv" => {
                let variable = (value()?, value()?);
                self.variables.push(variable);
            }
            "x" => {
                // A job has all variables of its submitter.
                if let Some((name, value)) = value()?.split_once('=') {
                    self.variables.push((name.to_owned(), value.to_owned()));
                }
            }
            "h" | "help" => self.is_help = true,
            "envall" | "genvall" | "oversubscribe" | "allow-run-as-root" => {}
            other => {
                let reason =
                    "is not available; `mpiexec --help` lists options, `tutti run` has more";
                return Err(format!("option -{} {reason}", shown(other)));
            }
        }
        match self.variables.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0']))
        {
            Some((name, _)) => Err(format!("{} is no name of a variable", shown(name))),
            None => Ok(()),
        }
    }
}

/// The process that an `mpiexec` of Tutti's became another one in.
const CALLED: &str = "TUTTI_MPIEXEC";

/// Whether an `mpiexec` of another Tutti in the `PATH` called this one, in this same process. Else
/// the two would call each other for ever.
fn is_called() -> bool {
    std::env::var(CALLED).is_ok_and(|pid| pid == std::process::id().to_string())
}

/// `mpiexec` or `mpirun`, by this name.
fn execute(name: &str, words: &[OsString]) -> anyhow::Result<u8> {
    if tutti_client::outer_job().is_some()
        && !is_called()
        && let Some(other) = other_in_path(OsStr::new(name))
    {
        let own = std::process::id().to_string();
        let error = Command::new(&other).args(words).env(CALLED, own).exec();
        return Err(error).with_context(|| format!("cannot execute {}", other.display()));
    }
    let asked = Asked::of(words);
    if asked.is_help {
        print(HELP)?;
        return Ok(0);
    }
    if !asked.problems.is_empty() {
        return Ok(wrong(name, &asked.problems));
    }
    let program = std::env::current_exe().context("cannot find this executable")?;
    let mut command = Command::new(&program);
    command.arg0("tutti").arg("run").args(&asked.words).envs(asked.variables);
    Err(command.exec()).with_context(|| format!("cannot execute {}", program.display()))
}

pub(super) fn mpiexec(words: &[OsString]) -> anyhow::Result<u8> {
    execute("mpiexec", words)
}

pub(super) fn mpirun(words: &[OsString]) -> anyhow::Result<u8> {
    execute("mpirun", words)
}

/// The first program of this name in the `PATH` that is not this executable.
fn other_in_path(name: &OsStr) -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).filter(|place| place.as_os_str().as_bytes() != b"").find_map(
        |place| {
            let path = place.join(name);
            let is_program = std::fs::metadata(&path)
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
            (is_program && std::fs::canonicalize(&path).ok() != own).then_some(path)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::Asked;
    use proptest::prelude::*;
    use std::ffi::OsString;

    fn asked(text: &str) -> Asked {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        Asked::of(&words)
    }

    #[test]
    fn options_are_those_of_run_and_the_program_keeps_its_own() {
        for (text, expected) in [
            ("-n 4 ./a -n 9", "-n 4 -- ./a -n 9"),
            ("-np 4 -host n1,n2 -ppn 2 ./a", "-n 4 -w n1,n2 --tasks-per-node 2 -- ./a"),
            ("--np=2 -l -wdir /tmp ./a", "-n 2 -l -D /tmp -- ./a"),
            ("-n 1 -- -a", "-n 1 -- -a"),
        ] {
            let asked = asked(text);
            let words: Vec<String> =
                asked.words.iter().map(|it| it.to_string_lossy().into_owned()).collect();
            assert_eq!((words.join(" ").as_str(), &asked.problems), (expected, &vec![]), "{text}");
        }
        let variables = asked("-env A 1 -x B=2 -x HOME -genv C d=e ./a").variables;
        let expected = [("A", "1"), ("B", "2"), ("C", "d=e")];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_is_not_available_is_named() {
        for (text, says) in [
            ("-n 2 ./a : -n 2 ./b", "srun --multi-prog"),
            ("-nosuch ./a", "option -nosuch is not available"),
            ("-n", "option -n requires an argument"),
            ("-n 2", "no program is named"),
            ("-env A=B 1 ./a", "A=B is no name of a variable"),
        ] {
            let problems = asked(text).problems.join("\n");
            assert!(problems.contains(says), "{text}: {problems}");
        }
    }

    proptest! {
        #[test]
        fn any_words_are_read_without_a_panic(all in prop::collection::vec(".{0,8}", 0..6)) {
            let all: Vec<OsString> = all.into_iter().map(OsString::from).collect();
            let _ = Asked::of(&all);
        }
    }
}
