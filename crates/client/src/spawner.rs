//! The spawner: the front end of tasks that a task of a job has spawned (`MPI_Comm_spawn`).
//!
//! A keeper starts it ([`tutti_wire::spawn`]), as the job's user. It asks the controller for the
//! step as `tutti run` inside the job does, tells the keeper what became of that, and passes the
//! output of the step on. Its own output is that of the task that has asked.

use super::run::{Inside, RunOptions, run_spawned};
use super::sink::OutputOptions;
use super::submission::new_key;
use super::task_ends::TellEnds;
use anyhow::Context;
use nix::unistd::{AccessFlags, access};
use serde_bytes::ByteBuf;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tutti_linux::inherited::Inherited;
use tutti_linux::spawn::program_candidates;
use tutti_node::exit::Exit;
use tutti_node::helper_user::become_user;
use tutti_node::link::Link;
use tutti_types::{Nanos, OnBadExit, StepId, StepSpec};
use tutti_wire::Role;
use tutti_wire::launch::InputTo;
use tutti_wire::local::StepRequest;
use tutti_wire::spawn::{SPAWNER_FD, SpawnAnswer, SpawnOrder, SpawnedProgram};

/// How long tasks that were asked to end may take. The core puts that of the job in its place.
const GRACE: Nanos = Nanos::from_secs(5);

/// How long slots are waited for that tasks which are ending have.
const SLOTS_WAIT: Duration = Duration::from_secs(1);

/// Does what the keeper orders that has started this process.
///
/// # Errors
/// If there is no such keeper, or no controller.
pub fn spawn() -> anyhow::Result<Exit> {
    let mut inherited = Inherited::take_all().context("cannot see what was handed over")?;
    let socket = inherited.take(SPAWNER_FD).context("this verb is for the keeper")?;
    let mut link = Link::new(UnixStream::from(socket))?;
    let mut order: SpawnOrder = link.call().context("the keeper gives no order")?;
    become_user(order.identity.as_ref()).context("cannot become the user of the job")?;
    link.greet(Role::FrontEnd);
    let tell = move |answer: Result<StepId, String>| {
        let mut link = link;
        link.send(&match answer {
            Ok(step) => SpawnAnswer::Started { step },
            Err(reason) => SpawnAnswer::Refused { reason },
        });
        // A keeper that is gone has ended the task, too.
        let _ = link.flush();
    };
    if let Err(reason) = find_programs(&mut order) {
        say!("tutti: MPI_Comm_spawn: {reason}");
        tell(Err(reason));
        return Ok(Exit::FAILED);
    }
    let tasks = order.spawned.tasks().unwrap_or(u32::MAX);
    let step = StepRequest {
        job: order.job,
        key: new_key()?,
        again: false,
        spec: StepSpec {
            tasks,
            processors_per_task: None,
            overlap: false,
            nodes: None,
            grace: GRACE,
            on_bad_exit: OnBadExit::default(),
            lender: None,
            beside: None,
            spawned_by: Some(order.step),
            on_node: None,
        },
        memory_per_task_bytes: None,
        launch: order.launch,
        spawned: Some(order.spawned),
        node: None,
        serves: false,
    };
    let options = RunOptions {
        output: OutputOptions::default(),
        input: InputTo::Nobody,
        summary: false,
        inside: Inside::default(),
        terminal: false,
        panes: false,
        tells_ends: TellEnds::No,
    };
    let patience = if order.may_wait { SLOTS_WAIT } else { Duration::ZERO };
    run_spawned(step, options, (Box::new(tell), patience))
}

/// Finds all programs, so that one that is not there is an error of MPI's.
fn find_programs(order: &mut SpawnOrder) -> Result<(), String> {
    let environment = &order.launch.environment;
    let search = environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
    let search = search.map(<[u8]>::to_vec);
    let home = PathBuf::from(OsStr::from_bytes(&order.launch.directory));
    for program in &mut order.spawned.programs {
        if let Some(directory) = &mut program.directory {
            let path = home.join(OsStr::from_bytes(directory)).into_os_string();
            *directory = ByteBuf::from(path.into_vec());
        }
        find_program(program, (&home, search.as_deref()))?;
    }
    Ok(())
}

/// Replaces the program's name by its path where a `path` was given.
fn find_program(
    program: &mut SpawnedProgram,
    (home, search): (&Path, Option<&[u8]>),
) -> Result<(), String> {
    let named = program.argv.first().cloned().unwrap_or_default();
    let shown = tutti_wire::units::shown(&String::from_utf8_lossy(&named));
    let name = CString::new(named.to_vec()).map_err(|_| format!("no such program: {shown}"))?;
    let directory = program.directory.as_ref();
    let here = directory.map_or(home, |path| Path::new(OsStr::from_bytes(path)));
    if !here.is_dir() {
        return Err(format!("no such directory: {}", here.display()));
    }
    let is_there = |path: &CString| -> Option<PathBuf> {
        let path = here.join(OsStr::from_bytes(path.as_bytes()));
        (path.is_file() && access(&path, AccessFlags::X_OK).is_ok()).then_some(path)
    };
    if let Some(first) = &program.path {
        let found = program_candidates(&name, Some(first)).iter().find_map(&is_there);
        if let (Some(path), Some(word)) = (found, program.argv.first_mut()) {
            *word = ByteBuf::from(OsString::from(path).into_vec());
            return Ok(());
        }
    }
    match program_candidates(&name, search).iter().find_map(is_there) {
        Some(_) => Ok(()),
        None => Err(format!("no such program: {shown}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_it_will_be() {
        let text = |text: &str| ByteBuf::from(text.as_bytes());
        let found = |name: &str, directory: Option<&str>, path: Option<&str>| {
            let mut program = SpawnedProgram {
                tasks: 1,
                argv: vec![text(name)],
                directory: directory.map(text),
                path: path.map(text),
            };
            let found = find_program(&mut program, (Path::new("/"), Some(b"/bin")));
            found.map(|()| String::from_utf8(program.argv[0].to_vec()).unwrap())
        };
        for (name, directory, path, expected) in [
            ("sh", None, None, Ok("sh")),
            ("bin/sh", None, None, Ok("bin/sh")),
            ("./sh", Some("/bin"), None, Ok("./sh")),
            ("sh", None, Some("/etc:/bin"), Ok("/bin/sh")),
            ("./sh", None, None, Err("no such program: ./sh")),
            ("etc/passwd", None, None, Err("no such program: etc/passwd")),
            ("sh", Some("/no/such"), None, Err("no such directory: /no/such")),
        ] {
            let expected = expected.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
            assert_eq!(found(name, directory, path), expected, "{name}");
        }
    }
}
