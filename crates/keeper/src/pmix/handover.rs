//! The PMIx server of a job, as it goes from one program to the next.

use super::Pmix;
use crate::context::Context;
use crate::helper::{Helper, Kind};
use std::io;
use tutti_linux::inherited::Inherited;
use tutti_types::StepKey;
use tutti_wire::handover::HandedPmix;

impl Pmix {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HandedPmix {
        HandedPmix {
            helper: self.helper.hand_over(),
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
        let mut helper = Helper::take_over(handed.helper, (Kind::Pmix, job), context, inherited)?;
        // It may have said more than was taken in.
        context.mpi.unheard.insert((job, None));
        let fence_bytes = helper.link().map_or(0, |link| link.unsent());
        Ok(Self {
            helper,
            fence_bytes,
            session: handed.session,
            until_ns: handed.until_ns,
            is_awaited: handed.is_awaited,
            parts: handed.parts,
            fence: handed.fence,
        })
    }
}
