//! Messages that tasks have asked for, about the ends of tasks and of hosts.

use std::collections::BTreeMap;
use tutti_wire::pvm::{Message, Notify, Pack};

/// Maximum number of messages that are waited for. Wishes beyond it are dropped.
const WISHES_MAX: usize = 64 << 10;

/// What a wish is about, in its lowest byte.
const ENDS: i32 = 1;
const LOST_HOSTS: i32 = 2;
const NEW_HOSTS: i32 = 3;

/// The bit that cancels an earlier wish: its messages are sent at once.
const CANCEL: i32 = 256;

/// A message that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    to: u32,
    context: u32,
    tag: u32,
    wait: u32,
}

/// All wishes, by the task or host that they are about.
#[derive(Debug)]
pub(super) struct Notices {
    wishes: BTreeMap<u32, Vec<Wish>>,
    count: usize,
    /// Those about new hosts, each with the number of its messages that are left; below 0: all.
    new_hosts: Vec<(Wish, i32)>,
}

impl Notices {
    /// None.
    pub(super) const fn new() -> Self {
        Self { wishes: BTreeMap::new(), count: 0, new_hosts: Vec::new() }
    }

    /// Notes, changes or ends the wish of a task to hear of new hosts.
    fn wish_for_new(&mut self, message: &Message, notify: &Notify) {
        let (to, wait) = (message.peer, message.wait);
        self.new_hosts.retain(|(wish, _)| (wish.to, wish.tag) != (to, notify.tag));
        let is_wanted = notify.count != 0 && notify.flags & CANCEL == 0;
        if is_wanted && self.new_hosts.len() < WISHES_MAX {
            let wish = Wish { to, context: notify.context, tag: notify.tag, wait };
            self.new_hosts.push((wish, notify.count));
        }
    }

    /// What is sent since there are new hosts.
    pub(super) fn on_new(&mut self, hosts: &[u32]) -> Vec<Message> {
        if hosts.is_empty() {
            return Vec::new();
        }
        let mut sent = Vec::new();
        for (wish, left) in &mut self.new_hosts {
            let pack = Pack::default().count(hosts.len());
            sent.push(wish.message(hosts.iter().fold(pack, |pack, &host| pack.number(host))));
            *left -= i32::from(*left > 0);
        }
        self.new_hosts.retain(|(_, left)| *left != 0);
        sent
    }

    /// Notes a wish, or cancels it. What is about something that is not there is sent at once.
    pub(super) fn on_wish(
        &mut self,
        message: &Message,
        notify: &Notify,
        is_there: impl Fn(u32) -> bool,
    ) -> Vec<Message> {
        let mut sent = Vec::new();
        if notify.flags & 0xff == NEW_HOSTS {
            self.wish_for_new(message, notify);
            return sent;
        }
        if ![ENDS, LOST_HOSTS].contains(&(notify.flags & 0xff)) {
            return sent;
        }
        let (to, wait) = (message.peer, message.wait);
        let wish = Wish { to, context: notify.context, tag: notify.tag, wait };
        for &about in &notify.about {
            if notify.flags & CANCEL != 0 {
                if self.cancel(about, wish) {
                    sent.push(wish.message(Pack::default().number(about)));
                }
            } else if !is_there(about) {
                sent.push(wish.message(Pack::default().number(about)));
            } else if self.count < WISHES_MAX {
                self.wishes.entry(about).or_default().push(wish);
                self.count += 1;
            }
        }
        sent
    }

    /// What is sent since a task or host is gone.
    pub(super) fn on_end(&mut self, about: u32) -> Vec<Message> {
        let wishes = self.wishes.remove(&about).unwrap_or_default();
        self.count -= wishes.len();
        wishes.iter().map(|wish| wish.message(Pack::default().number(about))).collect()
    }

    /// Forgets the wishes of a task that is gone.
    pub(super) fn forget(&mut self, to: u32) {
        let mut count = 0;
        self.wishes.retain(|_, wishes| {
            wishes.retain(|wish| wish.to != to);
            count += wishes.len();
            !wishes.is_empty()
        });
        self.count = count;
        self.new_hosts.retain(|(wish, _)| wish.to != to);
    }

    fn cancel(&mut self, about: u32, wish: Wish) -> bool {
        let Some(wishes) = self.wishes.get_mut(&about) else { return false };
        let is_same = |it: &Wish| (it.to, it.context, it.tag) == (wish.to, wish.context, wish.tag);
        let Some(at) = wishes.iter().position(is_same) else { return false };
        wishes.remove(at);
        self.count -= 1;
        true
    }
}

impl Wish {
    fn message(self, body: Pack) -> Message {
        let message = Message::new(self.to, self.tag, body);
        Message { context: self.context, wait: self.wait, ..message }
    }
}
