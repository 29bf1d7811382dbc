//! The process that delivers notifications about jobs: `tutti notifier`. The supervisor starts it
//! when the first job asks for one.
//!
//! It reads the stream of events and delivers each `job_notification`. Every delivery is a process
//! of the job's user ([`mod@deliver`]), with bounds ([`mod@bounds`]). So a command, a mail program
//! or a web server that hangs holds up nothing, and no URL reaches what its user could not.
//!
//! A thread reads the events; this one keeps what is outstanding ([`Outstanding`]) and the place in
//! the stream ([`place`]), and starts and ends the processes. The controller knows nothing of it:
//! it only answers a reader.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

mod bounds;
mod children;
mod deliver;
mod message;
mod outstanding;
mod place;
mod webhook;

pub use deliver::deliver;

use children::Children;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use outstanding::Outstanding;
use place::Place;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_client::ask::ask;
use tutti_client::events::{EventPage, EventStream};
use tutti_node::codes::code_of;
use tutti_node::instance::Instance;
use tutti_node::log;
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::event::EventQuery;
use tutti_wire::local::{Reply, Request};
use tutti_wire::units::parse_duration;

/// How often running deliveries are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long the thread that reads events waits after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// How long deliveries may go on after SIGTERM.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Pages of events that wait to be handled: the reader of them waits then.
const PAGES_MAX: usize = 4;

/// How old the parameters may be that are gone by.
const SETTINGS_AGE: Duration = Duration::from_secs(5);

/// A message to the main thread.
enum Told {
    /// Events, with how far they go.
    Page(EventPage),
    /// To end.
    End,
}

/// The site's parameters.
#[derive(Clone, Copy)]
struct Settings {
    per_user: usize,
    tries: u32,
    time: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { per_user: 1000, tries: 8, time: Duration::from_secs(60) }
    }
}

impl Settings {
    /// Those that the controller has; `None`: it can't be asked.
    fn asked() -> Option<Self> {
        let Ok(Reply::Params { params, .. }) = ask(&Request::Params) else { return None };
        let value = |name: &str| params.iter().find(|it| it.name == name).map(|it| &it.value);
        let count = |name: &str| value(name)?.parse::<u32>().ok();
        let Nanos(time) = parse_duration(value("notify_time")?).ok()?;
        Some(Self {
            per_user: count("notify_per_user")? as usize,
            tries: count("notify_tries")?,
            time: Duration::from_nanos(time),
        })
    }
}

/// Delivers notifications until it gets SIGTERM.
///
/// # Errors
/// If it can't begin.
pub fn main(instance: &Instance) -> anyhow::Result<()> {
    log::begin();
    // What a delivery leaves behind becomes a child of this process, and is ended.
    set_child_subreaper(true)?;
    let mut set = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|it| set.add(it));
    // Threads inherit it.
    set.thread_block()?;
    let (tell, told) = sync_channel(PAGES_MAX);
    let place = Place::read(instance.notified_file())?;
    let (to_reader, after) = (tell.clone(), place.begin());
    let directory = instance.clone();
    std::thread::Builder::new().spawn(move || read_events(&directory, after, &to_reader))?;
    std::thread::Builder::new().spawn(move || {
        let _ = set.wait();
        let _ = tell.send(Told::End);
    })?;
    let mut notifier = Notifier {
        place,
        outstanding: Outstanding::default(),
        children: Children::new(instance.cgroup_name()),
        settings: Settings::asked().unwrap_or_default(),
        asked_at: Instant::now(),
    };
    info!("notifications are delivered from event {after} on");
    notifier.serve(&told);
    Ok(())
}

/// Reads events for the main thread, for ever, or until the instance is gone.
fn read_events(instance: &Instance, mut after: u64, tell: &SyncSender<Told>) {
    let mut stream = stream_after(after);
    loop {
        match stream.next_page() {
            Ok(page) => {
                after = page.until;
                if tell.send(Told::Page(page)).is_err() {
                    return;
                }
            }
            Err(error) if code_of(&error) == Code::EventsGone => {
                warn!(code = %Code::NotNotified, "notifications were missed: {error:#}");
                stream = stream_after(0);
            }
            Err(_) if !instance.directory().exists() => {
                let _ = tell.send(Told::End);
                return;
            }
            Err(_) => {
                std::thread::sleep(PAUSE);
                stream = stream_after(after);
            }
        }
    }
}

fn stream_after(number: u64) -> EventStream {
    let query =
        EventQuery { after: Some(number), wait: true, is_own: true, ..EventQuery::default() };
    EventStream::new(query)
}

struct Notifier {
    place: Place,
    outstanding: Outstanding,
    children: Children,
    settings: Settings,
    asked_at: Instant,
}

impl Notifier {
    fn serve(&mut self, told: &Receiver<Told>) {
        let mut ends_at = None;
        loop {
            // Where too much is outstanding, the stream waits: its events are kept.
            let next = match self.outstanding.is_full() {
                true => {
                    std::thread::sleep(LOOK);
                    Err(RecvTimeoutError::Timeout)
                }
                false => told.recv_timeout(self.wait_at_most()),
            };
            match next {
                Ok(Told::Page(page)) => self.take(page),
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => {
                    ends_at.get_or_insert_with(|| Instant::now() + LAST_PATIENCE);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.reap();
            match ends_at {
                Some(at) if self.children.is_empty() || Instant::now() >= at => break,
                Some(_) => std::thread::sleep(LOOK),
                None => self.start(),
            }
            self.place.keep(&self.outstanding.open());
        }
        self.children.end_all();
        self.place.keep(&self.outstanding.open());
    }

    fn wait_at_most(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(3600);
        match self.children.are_at_rest() {
            true => self.outstanding.due_in().unwrap_or(LONG),
            false => LOOK,
        }
    }

    fn take(&mut self, page: EventPage) {
        if self.asked_at.elapsed() > SETTINGS_AGE {
            self.settings = Settings::asked().unwrap_or(self.settings);
            self.asked_at = Instant::now();
        }
        self.place.note_last(page.last);
        for record in page.events {
            self.outstanding.add(record, &self.place, self.settings.per_user);
        }
        self.place.advance(page.until);
    }

    /// Starts the deliveries that are due.
    fn start(&mut self) {
        while let Some((key, delivery)) = self.outstanding.next_due(&self.children) {
            if let Err(error) = self.children.start(key, delivery, self.settings.time) {
                self.outstanding.failed(key, &error.to_string(), false, self.settings.tries);
            }
        }
    }

    /// Takes the results of those that have ended.
    fn reap(&mut self) {
        for (key, result) in self.children.reap() {
            match result {
                Ok(()) => self.outstanding.done(key),
                Err((why, is_final)) => {
                    self.outstanding.failed(key, &why, is_final, self.settings.tries);
                }
            }
        }
    }
}
