//! From which machines requests come: their addresses, host names and netgroups, for the list of
//! `tutti access`.
//!
//! The address of a machine is the one from which its connection comes, as the agent saw that took
//! the connection. Its host name counts only if the name leads back to the address. Name servers
//! may take long to answer, so a thread beside the loop asks them: when a machine joins or the list
//! changes, and again when what is known is old. A request never waits for that. Until a name is
//! known, no item of the list that needs it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tutti_linux::host_names::{confirmed_name, is_in_netgroup};
use tutti_node::platform::time::monotonic_ns;
use tutti_node::workers::{Bounds, Workers};
use tutti_wire::origins::{OriginItem, is_host};

/// For how long it holds what name servers have said.
const KEPT_NS: u64 = 300_000_000_000;

/// Of so many addresses it is kept what was said: far more than a cluster has machines that users
/// submit from.
const ADDRESSES_MAX: usize = 100_000;

/// Threads that ask at once: a name server that does not answer takes each of them some seconds.
const BOUNDS: Bounds = Bounds { of_user: 8, all: 8 };

/// What is known of an address.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When it was asked for last.
    asked_ns: u64,
    /// Whether it is yet to be asked for.
    waits: bool,
    /// Whether there was an answer yet.
    is_known: bool,
    /// Its host name, if that leads back to it.
    name: Option<String>,
    /// The netgroups of the list that it is in.
    netgroups: BTreeSet<String>,
}

/// Finds the host name of an address, and which of some netgroups it is in.
type LookUp = fn(IpAddr, &BTreeSet<String>) -> (Option<String>, BTreeSet<String>);

/// What is known of addresses, and what is to be known.
#[derive(Default)]
struct Names {
    known: BTreeMap<IpAddr, Known>,
    /// The netgroups of the list; `None` where no item of it needs a host name.
    netgroups: Option<Arc<BTreeSet<String>>>,
}

/// What is known of addresses.
pub(super) struct HostNames {
    names: Arc<Mutex<Names>>,
    workers: Workers,
    look_up: LookUp,
}

impl Default for HostNames {
    fn default() -> Self {
        Self::by(look_up)
    }
}

/// Whether a machine is one of an item that is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsOne {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// Name servers have not answered yet.
    Unknown,
}

impl HostNames {
    fn by(look_up: LookUp) -> Self {
        Self { names: Arc::default(), workers: Workers::new(BOUNDS), look_up }
    }

    /// Whether one of the addresses of a machine is one of an item, which is not of nodes.
    pub(super) fn is_one(&self, item: &OriginItem, addresses: &[IpAddr]) -> IsOne {
        let has = |is_one: &dyn Fn(&Known) -> bool| {
            let names = locked(&self.names);
            let mut all = addresses.iter().map(|address| names.known.get(address));
            if all.clone().flatten().any(|known| known.is_known && is_one(known)) {
                return IsOne::Yes;
            }
            match all.any(|known| known.is_none_or(|known| !known.is_known)) {
                true => IsOne::Unknown,
                false => IsOne::No,
            }
        };
        match item {
            OriginItem::Nodes(_) => IsOne::No,
            OriginItem::Addresses(mask) => {
                match addresses.iter().any(|&address| mask.contains(address)) {
                    true => IsOne::Yes,
                    false => IsOne::No,
                }
            }
            OriginItem::Hosts(pattern) => {
                has(&|known| known.name.as_ref().is_some_and(|name| is_host(pattern, name)))
            }
            OriginItem::Netgroup(netgroup) => has(&|known| known.netgroups.contains(netgroup)),
        }
    }

    /// From now on, the host names and these netgroups of machines are needed; `None`: neither is.
    pub(super) fn need(&self, netgroups: Option<BTreeSet<String>>) {
        locked(&self.names).netgroups = netgroups.map(Arc::new);
    }

    /// Has name servers asked for these addresses, if that is needed: where what is known of one is
    /// old or nothing, or is to be asked for `anew`.
    pub(super) fn ask(&self, addresses: &[IpAddr], anew: bool) {
        let now_ns = monotonic_ns();
        for &address in addresses {
            if locked(&self.names).is_to_be_asked_for(address, now_ns, anew) {
                let (names, look_up) = (Arc::clone(&self.names), self.look_up);
                self.workers.start(0, Box::new(move || ask(&names, address, look_up)));
            }
        }
    }
}

impl Names {
    /// Whether an address is to be asked for, which is noted.
    fn is_to_be_asked_for(&mut self, address: IpAddr, now_ns: u64, anew: bool) -> bool {
        if self.netgroups.is_none() {
            return false;
        }
        let is_old = |it: &Known| now_ns.saturating_sub(it.asked_ns) >= KEPT_NS;
        if self.known.len() >= ADDRESSES_MAX && !self.known.contains_key(&address) {
            self.known.retain(|_, it| it.waits || !is_old(it));
            if self.known.len() >= ADDRESSES_MAX {
                return false;
            }
        }
        let is_new = !self.known.contains_key(&address);
        let it = self.known.entry(address).or_default();
        let asks = !it.waits && (is_new || is_old(it) || anew);
        if asks {
            (it.asked_ns, it.waits) = (now_ns, true);
        }
        asks
    }
}

/// Asks for an address, and notes the answer.
fn ask(names: &Mutex<Names>, address: IpAddr, look_up: LookUp) {
    let netgroups = {
        let mut names = locked(names);
        // What the list needs from here on is asked for again.
        names.known.entry(address).or_default().waits = false;
        names.netgroups.clone().unwrap_or_default()
    };
    let (name, netgroups) = look_up(address, &netgroups);
    if let Some(it) = locked(names).known.get_mut(&address) {
        (it.is_known, it.name, it.netgroups) = (true, name, netgroups);
    }
}

fn locked(names: &Mutex<Names>) -> MutexGuard<'_, Names> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_up(address: IpAddr, netgroups: &BTreeSet<String>) -> (Option<String>, BTreeSet<String>) {
    let name = confirmed_name(address);
    // A netgroup may have a host by its name, by the first part of it, or by its address.
    let mut hosts = vec![address.to_canonical().to_string()];
    if let Some(name) = &name {
        hosts.push(name.clone());
        hosts.extend(name.split_once('.').map(|(first, _)| first.to_owned()));
    }
    let is_in = |netgroup: &&String| hosts.iter().any(|host| is_in_netgroup(netgroup, host));
    (name, netgroups.iter().filter(is_in).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::{HostNames, IsOne, KEPT_NS, Names};
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};
    use tutti_wire::origins::{OriginItem, parse_origins};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn item(text: &str) -> OriginItem {
        parse_origins(text).unwrap().remove(0)
    }

    /// One machine has a name, and all are in each netgroup that begins with an `a`.
    fn one_has_a_name(
        asked: IpAddr,
        netgroups: &BTreeSet<String>,
    ) -> (Option<String>, BTreeSet<String>) {
        let name = (asked == address("10.0.0.1")).then(|| "n1.lab".to_owned());
        (name, netgroups.iter().filter(|name| name.starts_with('a')).cloned().collect())
    }

    /// Waits until something is so of what is known.
    fn until(what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_name_counts_once_it_is_known_and_a_mask_at_once() {
        let names = HostNames::by(one_has_a_name);
        let (named, other) = ([address("10.0.0.1")], [address("10.0.0.2")]);
        assert_eq!(names.is_one(&item("10.0.0.0/31"), &named), IsOne::Yes);
        assert_eq!(names.is_one(&item("10.0.0.0/31"), &other), IsOne::No);
        assert_eq!(names.is_one(&item("*.lab"), &named), IsOne::Unknown);
        assert_eq!(names.is_one(&item("*.lab"), &[]), IsOne::No, "it has no address");
        names.need(Some(BTreeSet::from(["all".to_owned(), "none".to_owned()])));
        names.ask(&[named[0], other[0]], false);
        until("no answer", || {
            [named, other].iter().all(|it| names.is_one(&item("*.lab"), it) != IsOne::Unknown)
        });
        assert_eq!(names.is_one(&item("*.lab"), &named), IsOne::Yes);
        assert_eq!(names.is_one(&item("*.lab"), &other), IsOne::No);
        assert_eq!(names.is_one(&item("@all"), &other), IsOne::Yes);
        assert_eq!(names.is_one(&item("@none"), &other), IsOne::No);
    }

    #[test]
    fn only_what_is_old_is_asked_for_again_and_only_once_at_a_time() {
        let (mut names, address) = (Names::default(), address("10.0.0.1"));
        assert!(!names.is_to_be_asked_for(address, 5, true), "no item needs it");
        names.netgroups = Some(Arc::default());
        assert!(names.is_to_be_asked_for(address, 5, false), "it is new");
        assert!(!names.is_to_be_asked_for(address, 5, true), "it waits already");
        let names = Mutex::new(names);
        super::ask(&names, address, one_has_a_name);
        let mut names = names.into_inner().unwrap();
        assert!(names.known[&address].is_known);
        assert!(!names.is_to_be_asked_for(address, 4 + KEPT_NS, false), "it is not old");
        assert!(names.is_to_be_asked_for(address, 5 + KEPT_NS, false), "it is old");
    }
}
