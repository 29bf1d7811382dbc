//! What waits for a front end, as it goes from one program to the next.

use super::{Kept, Outlet};
use serde_bytes::ByteBuf;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use tutti_linux::inherited::Inherited;
use tutti_wire::handover::{HeldKept, HeldOutlet};

impl Outlet {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HeldOutlet {
        let place = |&(at, ref pipe): &(usize, File)| ((at - self.begin) as u64, pipe.as_raw_fd());
        HeldOutlet {
            unsent: ByteBuf::from(&self.bytes[self.begin..self.end]),
            pipes: self.pipes.iter().map(place).collect(),
            kept: self.kept.as_ref().map(|kept| HeldKept {
                bytes: ByteBuf::from(kept.bytes.iter().copied().collect::<Vec<u8>>()),
                before: kept.before,
                uncounted: kept.uncounted as u64,
            }),
        }
    }

    /// Goes on with one of another program.
    pub(crate) fn take_over(held: HeldOutlet, inherited: &mut Inherited) -> io::Result<Self> {
        let (bytes, index) =
            (held.unsent.into_vec(), |at| usize::try_from(at).unwrap_or(usize::MAX));
        let mut pipes = std::collections::VecDeque::new();
        for (at, fd) in held.pipes {
            pipes.push_back((index(at).min(bytes.len()), File::from(inherited.take(fd)?)));
        }
        let kept = held.kept.map(|kept| Kept {
            bytes: kept.bytes.into_vec().into(),
            before: kept.before,
            uncounted: index(kept.uncounted),
        });
        Ok(Self { begin: 0, end: bytes.len(), bytes, pipes, kept })
    }
}
