//! The PMIx server of a job, as it goes from one program to the next.

use super::Pmix;
use crate::context::Context;
use crate::watch::Watch;
use std::io;
use std::os::fd::AsRawFd;
use tutti_linux::inherited::Inherited;
use tutti_node::link::{Interest, Link};
use tutti_types::StepKey;
use tutti_wire::handover::HandedPmix;
use tutti_wire::pmix::PMIX_FRAME_BYTES_MAX;

impl Pmix {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HandedPmix {
        HandedPmix {
            pid: self.pid,
            report: self.report.as_raw_fd(),
            link: self.link.as_ref().map(|(link, _)| link.hand_over()),
            session: self.session.clone(),
            until_ns: self.until_ns,
            is_awaited: self.is_awaited,
            parts: self.parts,
            fence: self.fence,
        }
    }

    /// Goes on with one of another program.
    ///
    /// # Errors
    /// If a descriptor of it was not left.
    pub(crate) fn take_over(
        handed: HandedPmix,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut link = None;
        if let Some(held) = handed.link {
            let taken = Link::take_over(held, PMIX_FRAME_BYTES_MAX, inherited)?;
            // What waited for room is sent with the next event.
            let interest = Interest { read: true, write: true };
            let token = context.watches.add(&taken, Watch::Pmix(job), interest)?;
            link = Some((taken, token));
        }
        if let Some(pid) = handed.pid {
            context.children.pmix.insert(pid, job);
        }
        Ok(Self {
            pid: handed.pid,
            report: inherited.take(handed.report)?,
            link,
            session: handed.session,
            until_ns: handed.until_ns,
            is_awaited: handed.is_awaited,
            parts: handed.parts,
            fence: handed.fence,
        })
    }
}
