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
use std::sync::{Arc, Mutex, PoisonError};
use tutti_linux::host_names::{confirmed_name, is_in_netgroup};
use tutti_node::platform::time::monotonic_ns;
use tutti_node::workers::{Bounds, Workers};
use tutti_wire::origins::{OriginItem, is_host};

/// For how long it holds what name servers have said.
const KEPT_NS: u64 = 300_000_000_000;

/// Of so many addresses it is kept what was said: far more than a cluster has machines that users
/// submit from.
const ADDRESSES_MAX: usize = 100_000;

/// One thread asks: all wait for the same name servers.
const BOUNDS: Bounds = Bounds { of_user: 1, all: 1 };

/// What is known of an address.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When it was asked for last.
    asked_ns: u64,
    /// Whether there was an answer yet.
    is_known: bool,
    /// Its host name, if that leads back to it.
    name: Option<String>,
    /// The netgroups of the list that it is in.
    netgroups: BTreeSet<String>,
}

/// Finds the host name of an address, and which of some netgroups it is in.
type LookUp = fn(IpAddr, &BTreeSet<String>) -> (Option<String>, BTreeSet<String>);

/// What is known of addresses.
pub(super) struct HostNames {
    known: Arc<Mutex<BTreeMap<IpAddr, Known>>>,
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
        Self { known: Arc::default(), workers: Workers::new(BOUNDS), look_up }
    }

    /// Whether one of the addresses of a machine is one of an item, which is not of nodes.
    pub(super) fn is_one(&self, item: &OriginItem, addresses: &[IpAddr]) -> IsOne {
        let has = |is_one: &dyn Fn(&Known) -> bool| {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = addresses.iter().map(|address| known.get(address));
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

    /// Has name servers asked for these addresses, where what is known of one is old or nothing, or
    /// is to be asked for `anew`.
    pub(super) fn ask(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        netgroups: &Arc<BTreeSet<String>>,
        anew: bool,
    ) {
        let now_ns = monotonic_ns();
        for address in addresses {
            {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= ADDRESSES_MAX && !known.contains_key(&address) {
                    known.retain(|_, it| now_ns.saturating_sub(it.asked_ns) < KEPT_NS);
                    if known.len() >= ADDRESSES_MAX {
                        return;
                    }
                }
                let is_new = !known.contains_key(&address);
                let it = known.entry(address).or_default();
                let is_old = now_ns.saturating_sub(it.asked_ns) >= KEPT_NS;
                if !(is_new || is_old || anew) {
                    continue;
                }
                it.asked_ns = now_ns;
            }
            let (known, netgroups) = (Arc::clone(&self.known), Arc::clone(netgroups));
            let look_up = self.look_up;
            let work = move || {
                let (name, netgroups) = look_up(address, &netgroups);
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(it) = known.get_mut(&address) {
                    (it.is_known, it.name, it.netgroups) = (true, name, netgroups);
                }
            };
            self.workers.start(0, Box::new(work));
        }
    }
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
    use super::{HostNames, IsOne};
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Arc;
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

    #[test]
    fn a_name_counts_once_it_is_known_and_a_mask_at_once() {
        let names = HostNames::by(one_has_a_name);
        let (named, other) = ([address("10.0.0.1")], [address("10.0.0.2")]);
        assert_eq!(names.is_one(&item("10.0.0.0/31"), &named), IsOne::Yes);
        assert_eq!(names.is_one(&item("10.0.0.0/31"), &other), IsOne::No);
        assert_eq!(names.is_one(&item("*.lab"), &named), IsOne::Unknown);
        assert_eq!(names.is_one(&item("*.lab"), &[]), IsOne::No, "it has no address");
        let netgroups = Arc::new(BTreeSet::from(["all".to_owned(), "none".to_owned()]));
        names.ask([named[0], other[0]], &netgroups, false);
        let begun = Instant::now();
        while names.is_one(&item("*.lab"), &other) == IsOne::Unknown
            || names.is_one(&item("*.lab"), &named) == IsOne::Unknown
        {
            assert!(begun.elapsed() < Duration::from_secs(30), "no answer");
            std::thread::yield_now();
        }
        assert_eq!(names.is_one(&item("*.lab"), &named), IsOne::Yes);
        assert_eq!(names.is_one(&item("*.lab"), &other), IsOne::No);
        assert_eq!(names.is_one(&item("@all"), &other), IsOne::Yes);
        assert_eq!(names.is_one(&item("@none"), &other), IsOne::No);
    }
}
