//! Who of a simulated world has something to read: one question to the kernel, instead of one to each daemon.

use super::machine::Daemon;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::os::fd::AsFd;

/// So many are heard at a time; the others are heard next.
const HEARD_MAX: usize = 32;

/// Whose connections have something to be read, or room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ear {
    Daemon(Daemon),
    /// What daemons of the machine have sent to other machines.
    Network,
}

/// See the head of the file. It has a poller of pollers.
pub(super) struct Ears(Epoll);

/// A machine's daemon, or its network, as one number.
fn token(site: usize, ear: Ear) -> u64 {
    let ear = match ear {
        Ear::Daemon(daemon) => daemon as u64,
        Ear::Network => 3,
    };
    site as u64 * 4 + ear
}

fn of_token(token: u64) -> (usize, Ear) {
    let ear = match token % 4 {
        0 => Ear::Daemon(Daemon::Controller),
        1 => Ear::Daemon(Daemon::Agent),
        2 => Ear::Daemon(Daemon::Keeper),
        _ => Ear::Network,
    };
    (usize::try_from(token / 4).unwrap_or(0), ear)
}

impl Ears {
    pub(super) fn new() -> Self {
        Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a descriptor"))
    }

    /// Listens to a poller, until it is closed.
    pub(super) fn add(&self, site: usize, ear: Ear, poller: impl AsFd) {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token(site, ear));
        self.0.add(poller, event).expect("a poller can be watched");
    }

    /// Who has something now, always in the same order.
    pub(super) fn heard(&self, heard: &mut Vec<(usize, Ear)>) {
        heard.clear();
        let mut events = [EpollEvent::empty(); HEARD_MAX];
        let count = self.0.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        heard.extend(events[..count].iter().map(|event| of_token(event.data())));
        heard.sort_unstable();
    }
}
