//! The PMI server of a job, as it goes from one program to the next.

use super::{Connection, PmiJob, interest};
use crate::context::Context;
use crate::watch::Watch;
use serde_bytes::ByteBuf;
use std::io;
use std::os::fd::AsRawFd;
use tutti_linux::inherited::Inherited;
use tutti_node::platform::ways::Stream;
use tutti_types::StepKey;
use tutti_wire::handover::{HandedPmi, HandedPmiLink};
use tutti_wire::pmi::{LineBuffer, Server};

impl PmiJob {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HandedPmi {
        let link = |connection: &Connection| HandedPmiLink {
            fd: connection.stream.as_raw_fd(),
            lines: ByteBuf::from(connection.lines.rest()),
            unsent: ByteBuf::from(&connection.unsent[..]),
        };
        HandedPmi {
            server: Server::clone(&self.server),
            connections: self.connections.iter().map(|slot| slot.as_ref().map(link)).collect(),
        }
    }

    /// Goes on with one of another program.
    pub(crate) fn take_over(
        handed: HandedPmi,
        job: StepKey,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut connections = Vec::new();
        for (index, link) in handed.connections.into_iter().enumerate() {
            connections.push(match link {
                None => None,
                Some(link) => Some(Connection::take_over(link, (job, index), context, inherited)?),
            });
        }
        Ok(Self { server: handed.server, connections, counted: 0 })
    }
}

impl Connection {
    fn take_over(
        handed: HandedPmiLink,
        (job, index): (StepKey, usize),
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let stream = Stream::from(inherited.take(handed.fd)?);
        let mut lines = LineBuffer::new();
        lines.extend(&handed.lines);
        let (unsent, has_more) = (handed.unsent.into_vec(), !handed.lines.is_empty());
        // What it says is heard as soon as it has read its answers.
        let interest = interest(&unsent, has_more);
        if has_more {
            context.mpi.unheard.insert((job, Some(index)));
        }
        let token = context.watches.add(&stream, Watch::Pmi(job, index), interest)?;
        Ok(Self { stream, token, lines, unsent, interest, has_more })
    }
}
