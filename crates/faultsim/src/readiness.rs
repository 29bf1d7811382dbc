//! Which daemon of a simulated cluster has something to read. Mostly that is known in memory
//! ([`stream`]). What daemons have from the kernel all the same, as pipes of their tasks, is
//! watched by one poller instead of one for each daemon, and only where something may have happened
//! to it.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use tutti_node::simulated::machine::{Daemon, Ear};
use tutti_node::simulated::stream;

/// So many are heard at a time; the others are heard next.
const HEARD_MAX: usize = 32;

/// See the head of the file. It has a poller of pollers.
pub(super) struct Ears {
    kernel: Epoll,
    /// The descriptors of daemons' pollers.
    pollers: BTreeMap<(usize, Ear), RawFd>,
}

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
        let kernel = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a descriptor");
        Self { kernel, pollers: BTreeMap::new() }
    }

    /// Listens to a poller, until it is closed.
    pub(super) fn add(&mut self, site: usize, ear: Ear, poller: impl AsFd) {
        stream::listen(&poller, (site, ear));
        self.pollers.insert((site, ear), poller.as_fd().as_raw_fd());
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token(site, ear));
        self.kernel.add(poller, event).expect("a poller can be watched");
        stream::stir();
    }

    /// Those with something now, always in the same order.
    pub(super) fn heard(&self, heard: &mut Vec<(usize, Ear)>) {
        heard.clear();
        stream::heard(heard);
        if stream::is_stirred() {
            self.ask_kernel(heard);
        }
        heard.sort_unstable();
        heard.dedup();
    }

    fn ask_kernel(&self, heard: &mut Vec<(usize, Ear)>) {
        let mut events = [EpollEvent::empty(); HEARD_MAX];
        let count = self.kernel.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            let whose = of_token(event.data());
            if let Some(&poller) = self.pollers.get(&whose) {
                stream::has_more(poller);
            }
            heard.push(whose);
        }
        if count == 0 {
            stream::settle();
        }
    }
}
