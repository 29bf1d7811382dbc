//! Which users may have which processes adopted. Those of another machine its keeper looks at
//! (`keeper/src/adopt.rs`).

use super::report::user_name;
use tutti_linux::proc::{self, ProcessStat, ancestors};
use tutti_node::instance::{is_in_a_job, is_of_the_system, is_of_this_instance};
use tutti_wire::launch::{AdoptedProcess, Stdio};
use tutti_wire::limits::ADOPTED_MAX;
use tutti_wire::local::JobRequest;

/// Why a process can't be adopted.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotAdopt {
    #[error(
        "a job adopts processes or starts a program, not both, and those it adopts are one task"
    )]
    Shape,
    #[error(
        "{0} processes are to be adopted; at most {ADOPTED_MAX} are possible: name those that the \
             others descend from"
    )]
    TooMany(usize),
    #[error("there is no process {0}")]
    Gone(i32),
    #[error("process {pid} runs as {}; only its owner, or root, may have it adopted", user_name(*owner))]
    NotYours { pid: i32, owner: u32 },
    #[error("process {0} is the system's own, and can't be adopted")]
    System(i32),
    #[error("process {0} belongs to tutti already: it is in a job, or one of the daemons")]
    Ours(i32),
    #[error(
        "process {0} has started the tutti that asks for it: it would be suspended with it; name \
             what the shell has started instead"
    )]
    Above(i32),
}

/// Looks at the processes of a request, as user `uid` in process `client`, if that is on this
/// machine.
pub(super) fn check(
    request: &JobRequest,
    uid: u32,
    client: Option<i32>,
) -> Result<(), CannotAdopt> {
    let adopt = &request.launch.adopt;
    if adopt.is_empty() != (request.launch.stdio != Stdio::Kept) {
        return Err(CannotAdopt::Shape);
    }
    if adopt.is_empty() {
        return Ok(());
    }
    if request.tasks != 1 || request.launch.script.is_some() {
        return Err(CannotAdopt::Shape);
    }
    if adopt.len() > ADOPTED_MAX {
        return Err(CannotAdopt::TooMany(adopt.len()));
    }
    let Some(client) = client else { return Ok(()) };
    let above_client = ancestors(client);
    adopt.iter().try_for_each(|process| check_one(*process, uid, &above_client))
}

fn check_one(process: AdoptedProcess, uid: u32, above_client: &[i32]) -> Result<(), CannotAdopt> {
    let AdoptedProcess { pid, start_time } = process;
    let found = ProcessStat::read(pid).ok().filter(|stat| !stat.has_ended());
    if found.is_none_or(|stat| stat.start_time != start_time) {
        return Err(CannotAdopt::Gone(pid));
    }
    let ids = proc::user_ids(pid).map_err(|_| CannotAdopt::Gone(pid))?;
    if uid != 0 && ids != [uid; 4] {
        let owner = ids.into_iter().find(|&id| id != uid).unwrap_or(uid);
        return Err(CannotAdopt::NotYours { pid, owner });
    }
    if is_of_the_system(pid) {
        return Err(CannotAdopt::System(pid));
    }
    if is_of_this_instance(pid) || is_in_a_job(pid) {
        return Err(CannotAdopt::Ours(pid));
    }
    if above_client.contains(&pid) {
        return Err(CannotAdopt::Above(pid));
    }
    Ok(())
}
