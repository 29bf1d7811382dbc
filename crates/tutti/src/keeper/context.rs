//! What the jobs of a keeper share: the poller, reports to be sent, who is to be reaped.

use super::watch::Watches;
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use tutti_core::JobId;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::pmi::Names;

/// Handed to whatever a job does.
pub(super) struct Context {
    pub(super) watches: Watches,
    /// Reports for the agent, in order; sent at the end of each round of the loop.
    pub(super) reports: Vec<FromKeeper>,
    /// Jobs to look after at the end of the round: something may have to be written, or the job
    /// may be over.
    pub(super) touched: BTreeSet<JobId>,
    /// Which task a process is the root, or minder, of.
    pub(super) roots: HashMap<i32, (JobId, usize)>,
    /// When to look again at a task of which something was left.
    pub(super) endings: Vec<(u64, JobId, usize)>,
    /// Names that MPI programs published.
    pub(super) names: Names,
    /// Room for output that nobody wants.
    pub(super) scratch: Vec<u8>,
    pub(super) spool: PathBuf,
    /// Whether tasks can be started as other users.
    pub(super) uid: u32,
    /// The limit on descriptors that we were started with; ours is higher now.
    pub(super) descriptors: (u64, u64),
    pub(super) agent_connected: bool,
}

impl Context {
    pub(super) fn new(spool: PathBuf) -> io::Result<Self> {
        Ok(Self {
            watches: Watches::new()?,
            reports: Vec::new(),
            touched: BTreeSet::new(),
            roots: HashMap::new(),
            endings: Vec::new(),
            names: Names::new(),
            scratch: vec![0; 64 << 10],
            spool,
            uid: nix::unistd::geteuid().as_raw(),
            descriptors: raise_descriptor_limit()?,
            agent_connected: false,
        })
    }
}

/// Each task takes some six descriptors of ours, and the usual limit is 1,024. Returns the limits
/// of before, which tasks get unless their user has others.
fn raise_descriptor_limit() -> io::Result<(u64, u64)> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok((soft, hard))
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
