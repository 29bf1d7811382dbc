//! The notifications that are not delivered yet, and when each is tried.

use super::children::Children;
use super::message::Message;
use super::place::{Key, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::event::{EventRecord, JobOf, What};
use tutti_wire::notify::NotifyWay;

/// Deliveries that are kept at once: about 2 KiB each.
const ALL_MAX: usize = 10_000;

/// How often a command or mail is tried at most: neither is repeated for long.
const LOCAL_TRIES_MAX: u32 = 3;

/// The pause after the first failure; it doubles with each further one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// One notification in one way.
pub(super) struct Delivery {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) user: String,
    pub(super) way: NotifyWay,
    pub(super) key: Option<Vec<u8>>,
    pub(super) message: Message,
    /// Which of the ways it is.
    index: u8,
    tries: u32,
    due: Instant,
    is_running: bool,
}

/// Those that are outstanding, by their places in the stream.
#[derive(Default)]
pub(super) struct Outstanding {
    all: BTreeMap<Key, Delivery>,
    of_user: BTreeMap<u32, usize>,
}

/// The pause after so many tries.
fn pause_after(tries: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE)
}

impl Outstanding {
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= ALL_MAX
    }

    /// The places of all of them.
    pub(super) fn open(&self) -> Vec<Key> {
        self.all.keys().copied().collect()
    }

    /// When the next one is due that does not run.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let waiting = self.all.values().filter(|it| !it.is_running);
        let due = waiting.map(|it| it.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Takes up the notification of an event, if it is one that was not delivered before.
    pub(super) fn add(&mut self, record: EventRecord, place: &Place, per_user: usize) {
        let (number, at_ms) = (record.number, record.event.at_ms);
        let (What::JobNotification(it), Some(of)) = (record.event.what, record.event.job) else {
            return;
        };
        let message = Message::new(number, at_ms, &of, &it);
        let key = it.key.map(serde_bytes::ByteBuf::into_vec);
        for (index, way) in (0..).zip(it.ways) {
            let place_of = (number, index);
            if place.has_done(place_of) || self.all.contains_key(&place_of) {
                continue;
            }
            let count = self.of_user.entry(of.uid).or_default();
            if *count >= per_user {
                give_up(&of, &way, &format!("{} has {per_user} outstanding already", of.user));
                continue;
            }
            *count += 1;
            let delivery = Delivery {
                uid: of.uid,
                gid: it.gid,
                user: of.user.clone(),
                way,
                key: key.clone(),
                message: message.clone(),
                index,
                tries: 0,
                due: Instant::now(),
                is_running: false,
            };
            self.all.insert(place_of, delivery);
        }
    }

    /// The next one that is due and that may be started beside those that run.
    pub(super) fn next_due(&mut self, children: &Children) -> Option<(Key, &Delivery)> {
        let now = Instant::now();
        // The start of a job comes before its end, so one of a job runs at a time.
        let running = self.all.values().filter(|it| it.is_running);
        let running: BTreeSet<(JobId, u8)> = running.map(|it| (it.message.job, it.index)).collect();
        let is_due = |it: &Delivery| {
            !it.is_running
                && it.due <= now
                && children.has_room(it.uid)
                && !running.contains(&(it.message.job, it.index))
        };
        let (&key, delivery) = self.all.iter_mut().find(|(_, it)| is_due(it))?;
        delivery.is_running = true;
        Some((key, delivery))
    }

    /// One was delivered.
    pub(super) fn done(&mut self, key: Key) {
        if let Some(delivery) = self.remove(key) {
            let (way, job) = (delivery.way.word(), delivery.message.job);
            info!("notification of job {job} by {way} delivered");
        }
    }

    /// A try failed; whether no other one can help, and how many there may be.
    pub(super) fn failed(&mut self, key: Key, why: &str, is_final: bool, tries_max: u32) {
        let Some(delivery) = self.all.get_mut(&key) else { return };
        delivery.is_running = false;
        delivery.tries += 1;
        let most = match delivery.way {
            NotifyWay::Webhook(_) => tries_max,
            NotifyWay::Command(_) | NotifyWay::Mail(_) => tries_max.min(LOCAL_TRIES_MAX),
        };
        if is_final || delivery.tries >= most {
            let Some(delivery) = self.remove(key) else { return };
            let tries = delivery.tries;
            let of = delivery.message.of();
            return give_up(&of, &delivery.way, &format!("{why}, try {tries} of {most}"));
        }
        let pause = pause_after(delivery.tries);
        delivery.due = Instant::now() + pause;
        let (job, way, tries) = (delivery.message.job, delivery.way.word(), delivery.tries);
        let seconds = pause.as_secs();
        info!(
            "notification of job {job} by {way} failed: {why}, try {tries} of {most}; next in {seconds} s"
        );
    }

    fn remove(&mut self, key: Key) -> Option<Delivery> {
        let delivery = self.all.remove(&key)?;
        if let Some(count) = self.of_user.get_mut(&delivery.uid) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&delivery.uid);
            }
        }
        Some(delivery)
    }
}

fn give_up(of: &JobOf, way: &NotifyWay, why: &str) {
    let (job, user, word) = (of.job, &of.user, way.word());
    // What the user has named may be a secret, as URLs of chats are.
    warn!(
        code = %Code::NotNotified, job = %job,
        "notification of job {job} of {user} by {word} is given up: {why}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_wire::event::{Event, Notification};
    use tutti_wire::notify::NotifyMoment;

    fn record(number: u64, uid: u32, ways: usize) -> EventRecord {
        let what = What::JobNotification(Notification {
            on: NotifyMoment::Start,
            ways: vec![NotifyWay::Webhook("http://a/".into()); ways],
            key: None,
            gid: 1,
            nodes: String::new(),
            ending: None,
            exit_code: None,
            reason: String::new(),
            waited_ms: 0,
            service_ms: 0,
        });
        let job = Some(JobOf { job: JobId(number), name: "a".into(), user: "ada".into(), uid });
        EventRecord { number, entry: 1, event: Event { at_ms: 1, cluster_ns: 1, job, what } }
    }

    #[test]
    fn one_user_has_a_bound_and_others_have_room() {
        let (mut all, place) = (Outstanding::default(), Place::default());
        for number in 1..=5 {
            all.add(record(number, 7, 1), &place, 3);
        }
        all.add(record(6, 8, 2), &place, 3);
        assert_eq!(all.open(), [(1, 0), (2, 0), (3, 0), (6, 0), (6, 1)]);
        all.done((1, 0));
        all.add(record(7, 7, 1), &place, 3);
        assert_eq!(all.open().len(), 5);
        assert_eq!(all.of_user[&7], 3);
    }

    #[test]
    fn a_webhook_is_tried_with_growing_pauses_and_then_given_up() {
        assert_eq!([1, 2, 3, 30].map(|it| pause_after(it).as_secs()), [1, 2, 4, 300]);
        let (mut all, place) = (Outstanding::default(), Place::default());
        all.add(record(1, 7, 1), &place, 3);
        let children = Children::default();
        assert!(all.next_due(&children).is_some() && all.next_due(&children).is_none());
        all.failed((1, 0), "no answer", false, 2);
        assert!(all.next_due(&children).is_none(), "it is not due at once");
        assert!(all.due_in().is_some_and(|it| it <= FIRST_PAUSE));
        all.failed((1, 0), "no answer", false, 2);
        assert!(all.open().is_empty() && all.of_user.is_empty());
        all.add(record(2, 7, 1), &place, 3);
        all.failed((2, 0), "no such user", true, 9);
        assert!(all.open().is_empty());
    }
}
