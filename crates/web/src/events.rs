//! The stream of events: one reader of the instance, and any number of readers of the server.
//!
//! A thread reads the instance's events and keeps the latest of them. Each reader has its own place
//! among these, so a slow reader costs no memory. A reader that falls behind all that is kept is
//! dropped; it resumes by the number of its last event, and gets older events from the instance.

use crate::answer::error_json;
use crate::app::App;
use crate::limits::{EVENTS_KEPT, PIECES_MAX, SIGN_OF_LIFE, WRITE_TIME};
use crate::routes::Piece;
use crate::source::{Answer, EventLine, EventLines, Events, Failure, Source};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::timeout;
use tutti_wire::code::Code;

/// How long after a failure the instance is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The latest events.
pub(crate) struct Hub {
    kept: Mutex<Kept>,
    /// How many items there were so far.
    count: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    items: VecDeque<Item>,
    /// How many items there were before those that are kept.
    before: u64,
    /// The number behind which all events are kept; nothing until the instance was reached.
    from: Option<u64>,
    /// The number up to which events were read.
    until: Option<u64>,
    failure: Option<Failure>,
}

/// What readers get.
#[derive(Clone)]
enum Item {
    Event(u64, Arc<str>),
    /// The instance does not answer.
    Away(Arc<str>),
    /// It answers again.
    Back,
}

impl Kept {
    fn push(&mut self, item: Item) {
        if self.items.len() == EVENTS_KEPT {
            self.before += 1;
            if let Some(Item::Event(number, _)) = self.items.pop_front() {
                self.from = Some(number);
            }
        }
        self.items.push_back(item);
    }

    fn count(&self) -> u64 {
        self.before + self.items.len() as u64
    }
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::default(), count: watch::channel(0).0 }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the events of the instance, for ever.
    pub(crate) fn read(&self, source: &dyn Source) {
        loop {
            let until = self.kept().until;
            let failure = match source.follow(until) {
                Ok(mut events) => self.read_from(&mut *events),
                Err(failure) => failure,
            };
            self.fail(failure);
            std::thread::sleep(PAUSE);
        }
    }

    fn read_from(&self, events: &mut dyn Events) -> Failure {
        loop {
            match events.next() {
                Ok(page) => self.take(page),
                Err(failure) => return failure,
            }
        }
    }

    fn take(&self, page: EventLines) {
        let mut kept = self.kept();
        if kept.failure.take().is_some() {
            kept.push(Item::Back);
        }
        if kept.until.is_none() {
            let first = page.events.first();
            kept.from = Some(first.map_or(page.until, |event| event.number.saturating_sub(1)));
        }
        for EventLine { number, json } in page.events {
            kept.push(Item::Event(number, json.into()));
        }
        kept.until = Some(page.until);
        let count = kept.count();
        drop(kept);
        self.count.send_replace(count);
    }

    fn fail(&self, failure: Failure) {
        let mut kept = self.kept();
        if failure.code == Code::EventsGone {
            // Those in between are lost. Readers look anew at `back`.
            kept.until = None;
        }
        if kept.failure.is_none() {
            kept.push(Item::Away(error_json(&failure).into()));
        }
        kept.failure = Some(failure);
        let count = kept.count();
        drop(kept);
        self.count.send_replace(count);
    }

    /// The place of a new reader, and whether the instance must be asked for what is behind a
    /// number.
    fn enter(&self, after: Option<u64>) -> (u64, bool) {
        let kept = self.kept();
        match after {
            None => (kept.count(), false),
            Some(after) => (kept.before, kept.from.is_none_or(|from| after < from)),
        }
    }

    /// The items from a place on; nothing if these are not kept any more.
    fn find(&self, place: u64) -> Option<Vec<Item>> {
        let kept = self.kept();
        let at = usize::try_from(place.checked_sub(kept.before)?).ok()?;
        Some(kept.items.iter().skip(at).cloned().collect())
    }

    /// What an error of the instance is, while it does not answer.
    fn failure(&self) -> Option<Failure> {
        self.kept().failure.clone()
    }
}

/// A reader of the server.
struct Reader {
    app: Arc<App>,
    to: mpsc::Sender<Piece>,
    /// The number of the latest event that it has.
    sent: Option<u64>,
    place: u64,
    _permit: OwnedSemaphorePermit,
}

/// Begins a stream for a reader: events behind a number, or from now on.
///
/// # Errors
/// If there are too many readers, or those events are not kept.
pub(crate) async fn stream(app: Arc<App>, after: Option<u64>) -> Answer<mpsc::Receiver<Piece>> {
    let permit = app.reader()?;
    let (place, needs_older) = app.hub.enter(after);
    let mut older = None;
    if let Some(after) = after.filter(|_| needs_older) {
        older = Some(next_older(&app, None, after).await?);
    }
    let (to, from) = mpsc::channel(PIECES_MAX);
    let reader = Reader { app, to, sent: after, place, _permit: permit };
    tokio::spawn(reader.serve(older));
    Ok(from)
}

type Older = (Box<dyn Events>, EventLines);

async fn next_older(app: &App, events: Option<Box<dyn Events>>, after: u64) -> Answer<Older> {
    app.ask(move |source| {
        let mut events = match events {
            Some(events) => events,
            None => source.past(after)?,
        };
        let page = events.next()?;
        Ok((events, page))
    })
    .await
}

impl Reader {
    /// Serves it until it goes away; nothing if it did.
    async fn serve(mut self, older: Option<Older>) -> Option<()> {
        let mut begin = String::from("retry: 1000\n: a stream of events\n\n");
        if let Some(failure) = self.app.hub.failure() {
            begin.push_str(&format!("event: away\ndata: {}\n\n", error_json(&failure)));
        }
        self.send(begin).await?;
        let mut next = older;
        while let Some((events, page)) = next.take() {
            let (until, last) = (page.until, page.last);
            let items =
                page.events.into_iter().map(|event| Item::Event(event.number, event.json.into()));
            self.send_items(items.collect()).await?;
            if until < last {
                next = Some(next_older(&self.app, Some(events), until).await.ok()?);
            }
        }
        let mut count = self.app.hub.count.subscribe();
        loop {
            count.borrow_and_update();
            let items = self.app.hub.find(self.place)?;
            self.place += items.len() as u64;
            self.send_items(items).await?;
            match timeout(SIGN_OF_LIFE, count.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => self.send(": \n\n".into()).await?,
            }
        }
    }

    async fn send_items(&mut self, items: Vec<Item>) -> Option<()> {
        let mut text = String::new();
        for item in items {
            match item {
                Item::Event(number, json) if self.sent.is_none_or(|sent| number > sent) => {
                    text.push_str(&format!("id: {number}\ndata: {json}\n\n"));
                    self.sent = Some(number);
                }
                Item::Event(..) => {}
                Item::Away(error) => text.push_str(&format!("event: away\ndata: {error}\n\n")),
                Item::Back => text.push_str("event: back\ndata: {}\n\n"),
            }
        }
        if text.is_empty() { Some(()) } else { self.send(text).await }
    }

    /// Sends it, unless the reader takes nothing for too long.
    async fn send(&self, text: String) -> Option<()> {
        timeout(WRITE_TIME, self.to.send(Ok(text.into()))).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
    use super::*;

    fn page(numbers: std::ops::Range<u64>) -> EventLines {
        let until = numbers.end - 1;
        let events = numbers.map(|number| EventLine { number, json: String::new() }).collect();
        EventLines { events, until, last: until }
    }

    #[test]
    fn a_reader_that_is_behind_what_is_kept_is_told_so() {
        let hub = Hub::new();
        assert_eq!(hub.enter(None), (0, false));
        assert!(hub.enter(Some(3)).1, "nothing is known yet");
        hub.take(page(5..9));
        assert_eq!((hub.enter(Some(4)).1, hub.enter(Some(3)).1), (false, true));
        assert_eq!(hub.find(0).unwrap().len(), 4);
        hub.take(page(9..9 + EVENTS_KEPT as u64));
        assert!(hub.find(0).is_none() && hub.find(3).is_none());
        assert_eq!(hub.find(4).unwrap().len(), EVENTS_KEPT);
        assert_eq!((hub.enter(Some(8)).1, hub.enter(Some(7)).1), (false, true));
    }

    #[test]
    fn an_instance_that_is_away_is_said_once_and_that_it_is_back() {
        let hub = Hub::new();
        hub.take(page(1..2));
        hub.fail(Failure::new(Code::ControllerAway, "gone"));
        hub.fail(Failure::new(Code::ControllerAway, "gone"));
        assert!(hub.failure().is_some());
        hub.take(page(2..3));
        let words: Vec<&str> = hub
            .find(0)
            .unwrap()
            .iter()
            .map(|item| match item {
                Item::Event(..) => "event",
                Item::Away(_) => "away",
                Item::Back => "back",
            })
            .collect();
        assert_eq!(words, ["event", "away", "back", "event"]);
        assert!(hub.failure().is_none());
    }
}
