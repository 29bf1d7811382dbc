//! Where an agent looks for a parent: where it was sent, then with the agents above the parent that
//! it has lost, the nearest first, then at the root.
//!
//! An agent that could not be reached is left out for a while, and others are told so, that they
//! send none there. Knows no clock and no connection.

use tutti_wire::branch::Contact;
use tutti_wire::limits::{DEPTH_MAX, UNREACHABLE_MAX};

/// How long an agent is left out that could not be reached: longer than it takes others to notice.
const UNREACHABLE_NS: u64 = 10_000_000_000;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Where the root is reached.
    roots: Vec<String>,
    /// The agents above this one, from the root down to its parent, as they were told last.
    above: Vec<Contact>,
    /// Where the one that was asked last has sent us.
    sent: Option<Contact>,
    /// The agent that is being asked.
    asked: Option<Contact>,
    /// The agents that could not be reached, and until when they are left out.
    unreachable: Vec<(String, u64)>,
    /// How often an agent was asked since there was a parent.
    asks: usize,
    /// How often one has sent us to the next, since the root was asked without having been sent.
    sendings: usize,
}

impl Candidates {
    /// Those of an agent that knows no more than this.
    pub(super) fn new(roots: Vec<String>) -> Self {
        Self { roots, ..Self::default() }
    }

    /// The agent to ask now; `None` only at the root.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Contact> {
        self.forgive(now_ns);
        if self.good().is_none() {
            // All were asked in vain: from the beginning.
            self.unreachable.clear();
        }
        let next = self.good().or_else(|| self.root(self.asks));
        // The root has no name here.
        if self.sent.is_none() && next.as_ref().is_some_and(|next| next.name.is_empty()) {
            self.sendings = 0;
        }
        self.asks += 1;
        self.sent = None;
        self.asked.clone_from(&next);
        next
    }

    /// Whether an agent is left that was not asked in vain just now.
    pub(super) fn has_another(&mut self, now_ns: u64) -> bool {
        self.forgive(now_ns);
        self.good().is_some()
    }

    /// The agent that was asked is of no use, or no more.
    pub(super) fn failed(&mut self, now_ns: u64) {
        let Some(Contact { address, .. }) = self.asked.take() else { return };
        self.above.retain(|contact| contact.address != address);
        if self.unreachable.len() == UNREACHABLE_MAX {
            self.unreachable.remove(0);
        }
        self.unreachable.push((address, now_ns.saturating_add(UNREACHABLE_NS)));
    }

    /// The agent that was asked names another. Whether to go there: not if it goes on so without an
    /// end.
    pub(super) fn sent_to(&mut self, contact: Contact) -> bool {
        self.sendings += 1;
        let goes_on = self.sendings <= DEPTH_MAX;
        self.sent = Some(contact).filter(|_| goes_on);
        goes_on
    }

    /// The agent that was asked is the parent now; gives whether the agents above it make sense.
    pub(super) fn taken(&mut self, above: Vec<Contact>, own_name: &str) -> bool {
        let is_loop = above.iter().any(|contact| contact.name == own_name);
        if is_loop || above.len() > DEPTH_MAX {
            self.above.clear();
            return false;
        }
        self.above = above;
        (self.asks, self.sendings) = (0, 0);
        true
    }

    /// The agents above this one, from the root down to its parent.
    pub(super) fn above(&self) -> &[Contact] {
        &self.above
    }

    /// Where the others need not send us.
    pub(super) fn unreachable(&self) -> Vec<String> {
        self.unreachable.iter().map(|(address, _)| address.clone()).collect()
    }

    fn forgive(&mut self, now_ns: u64) {
        self.unreachable.retain(|(_, until_ns)| *until_ns > now_ns);
    }

    fn good(&self) -> Option<Contact> {
        let is_good = |contact: &Contact| {
            self.unreachable.iter().all(|(address, _)| *address != contact.address)
        };
        let roots = (0..self.roots.len()).filter_map(|number| self.root(number));
        let above = self.above.iter().rev().cloned();
        self.sent.iter().cloned().chain(above).chain(roots).find(is_good)
    }

    fn root(&self, number: usize) -> Option<Contact> {
        let address = self.roots.get(number.checked_rem(self.roots.len())?)?.clone();
        Some(Contact { name: String::new(), address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Contact {
        Contact { name: address.to_uppercase(), address: address.into() }
    }

    fn asked(candidates: &mut Candidates, now_ns: u64) -> String {
        candidates.next(now_ns).unwrap().address
    }

    /// An agent below root, a and b.
    fn below() -> Candidates {
        let mut candidates = Candidates::new(vec!["root".into()]);
        assert_eq!(asked(&mut candidates, 0), "root");
        assert!(candidates.sent_to(at("a")));
        assert_eq!(asked(&mut candidates, 0), "a");
        assert!(candidates.sent_to(at("b")));
        assert_eq!(asked(&mut candidates, 0), "b");
        assert!(candidates.taken(vec![at("root"), at("a"), at("b")], "OWN"));
        candidates
    }

    #[test]
    fn who_loses_his_parent_asks_the_grandparent_and_so_on_up_to_the_root() {
        let mut candidates = below();
        candidates.failed(0);
        assert_eq!(asked(&mut candidates, 0), "a");
        assert_eq!(candidates.unreachable(), ["b"]);
        candidates.failed(0);
        assert_eq!(asked(&mut candidates, 0), "root");
        candidates.failed(0);
        assert!(!candidates.has_another(0));
        // And from the beginning.
        assert_eq!(asked(&mut candidates, 0), "root");
    }

    #[test]
    fn who_is_sent_to_nobody_comes_back_and_says_so() {
        let mut candidates = below();
        candidates.failed(0);
        assert_eq!(asked(&mut candidates, 0), "a");
        assert!(candidates.sent_to(at("c")));
        assert_eq!(asked(&mut candidates, 0), "c");
        candidates.failed(0);
        assert_eq!(asked(&mut candidates, 0), "a");
        assert_eq!(candidates.unreachable(), ["b", "c"]);
        assert!(candidates.sent_to(at("b")));
        assert_eq!(asked(&mut candidates, 0), "a", "sent where it has just been");
        assert!(candidates.sent_to(at("b")));
        assert_eq!(asked(&mut candidates, UNREACHABLE_NS), "b", "it may be there again");
    }

    #[test]
    fn who_was_turned_away_for_long_goes_where_he_is_sent_in_the_end() {
        let mut candidates = Candidates::new(vec!["root".into()]);
        for _ in 0..2 * DEPTH_MAX {
            assert_eq!(asked(&mut candidates, 0), "root");
            candidates.failed(0);
        }
        assert_eq!(asked(&mut candidates, 0), "root");
        assert!(candidates.sent_to(at("a")));
        assert_eq!(asked(&mut candidates, 0), "a");
    }

    #[test]
    fn nobody_is_sent_about_for_ever_or_is_his_own_ancestor() {
        let mut candidates = below();
        candidates.failed(0);
        let mut sent = 0;
        while asked(&mut candidates, 0) != "root" && sent < 1000 {
            if !candidates.sent_to(at(&format!("c{sent}"))) {
                candidates.failed(0);
            }
            sent += 1;
        }
        assert!(sent <= DEPTH_MAX + 2, "sent {sent} times");
        assert!(!candidates.taken(vec![at("root"), at("own")], "OWN"));
        assert!(candidates.above().is_empty());
    }
}
