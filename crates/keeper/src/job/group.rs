//! The cgroup of a job: its name, and the group until nothing of the job is left.

use crate::context::chain;
use crate::program::Refusal;
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tutti_node::platform::groups::Cgroup;

/// See the head of the file. A job may have none.
pub(crate) struct JobGroup {
    pub(super) path: Option<ByteBuf>,
    pub(super) open: Option<Cgroup>,
}

impl JobGroup {
    /// That of a job which begins. If it can't be opened, the job has none, and no task can start.
    pub(super) fn of(path: Option<ByteBuf>) -> (Self, Option<Refusal>) {
        let opened = path.as_ref().map(|path| Cgroup::open(Path::new(OsStr::from_bytes(path))));
        match opened.transpose() {
            Ok(open) => (Self { path, open }, None),
            Err(error) => {
                let refusal = Refusal::new(format!("no cgroup: {}", chain(&error)));
                (Self { path, open: None }, Some(refusal))
            }
        }
    }

    /// The group, unless there is none, or nothing of the job is left.
    pub(crate) const fn get(&self) -> Option<&Cgroup> {
        self.open.as_ref()
    }

    /// Nothing of the job is left. The group is the agent's to remove.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}
