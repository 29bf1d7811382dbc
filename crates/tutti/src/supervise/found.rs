//! What a supervisor that was killed has left: daemons that live on.
//!
//! The keeper holds the tasks, so it stays as it is. Controller and agent are made to be killed, and learn what
//! they must know from the journal and from the keeper: they begin anew, as children of the supervisor that
//! comes after.

use super::process::Process;
use crate::instance::Instance;
use crate::sole;
use crate::trusted;
use tutti_linux::peer::{peer_credentials, peer_lives, peer_process};

/// The keeper, if it lives.
pub(super) fn keeper(instance: &Instance) -> Option<Process> {
    let stream = trusted::connect(&instance.keeper_socket()).ok()?;
    if !peer_lives(&stream) {
        return None;
    }
    let pid = peer_credentials(&stream).ok()?.pid;
    Some(Process::held(pid, peer_process(&stream).ok()?))
}

/// Whether tasks may run that nobody supervises, and that a controller may not know.
pub(crate) fn has_keeper(instance: &Instance) -> bool {
    keeper(instance).is_some()
}

/// Ends the daemon of this role, if it lives.
///
/// # Errors
/// What the kernel says.
pub(super) fn end(instance: &Instance, role: &str) -> anyhow::Result<()> {
    while let Some(pid) = sole::holder(instance, role)? {
        let process = Process::resume(pid);
        // Still the same: the number was not another's when it was taken hold of.
        if sole::holder(instance, role)? == Some(pid) {
            say!("tutti: the {role} that was here before, process {pid}, is followed by another");
            process.end();
        }
    }
    Ok(())
}
