//! A front end, as it goes from one program to the next.

use super::Front;
use crate::context::Context;
use crate::outlet::Outlet;
use crate::watch::Watch;
use std::io;
use tutti_linux::inherited::Inherited;
use tutti_node::link::{Interest, Link};
use tutti_types::StepKey;
use tutti_wire::handover::HeldFront;
use tutti_wire::limits::FRONT_END_FRAME_BYTES_MAX;

impl Front {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HeldFront {
        HeldFront {
            link: self.link.as_ref().map(|(link, _)| link.hand_over()),
            outlet: self.outlet.hand_over(),
            heard: self.heard,
            away_until_ns: self.away_until_ns,
            is_done: self.is_done,
        }
    }

    /// Goes on with one of another program.
    pub(crate) fn take_over(
        held: HeldFront,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let interest = Interest::READ;
        let link = match held.link {
            None => None,
            Some(link) => {
                let link = Link::take_over(link, FRONT_END_FRAME_BYTES_MAX, inherited)?;
                let token = context.watches.add(&link, Watch::Front(job), interest)?;
                Some((link, token))
            }
        };
        Ok(Self {
            link,
            outlet: Outlet::take_over(held.outlet, inherited)?,
            interest,
            heard: held.heard,
            away_until_ns: held.away_until_ns,
            is_done: held.is_done,
        })
    }
}
