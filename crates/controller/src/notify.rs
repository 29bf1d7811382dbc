//! Notifications about jobs, as far as the controller has to do with them.
//!
//! It checks what a job asks for, keeps it with the job, and makes an event of each notification
//! ([`tutti_wire::event::What::JobNotification`]). It delivers nothing: a process of its own reads
//! these events, and the supervisor starts it when the first job asks for a notification.

use super::arrays::Element;
use super::driver::Driver;
use super::error::Problem;
use super::jobs::{Ended, Entry};
use std::io::Write;
use std::os::unix::net::UnixStream;
use tracing::warn;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::event::{EventNode, Notification};
use tutti_wire::history::Ending;
use tutti_wire::launch::cut;
use tutti_wire::limits::EVENT_TEXT_BYTES_MAX;
use tutti_wire::notify::{Notify, NotifyMoment, NotifyOn, NotifyWay};

/// The longest list of nodes in a notification.
const NODES_BYTES_MAX: usize = 256;

/// How much memory a notification takes beside its job.
pub(super) fn notify_bytes(notify: Option<&Notify>) -> usize {
    notify.map_or(0, Notify::bytes)
}

/// What an element has of its array's notification. An array notifies as a whole: its start is that
/// of its first element.
pub(super) fn of_element(whole: Option<&Notify>, element: Option<Element>) -> Option<Notify> {
    let is_first = element.is_some_and(Element::is_first);
    let whole = whole.filter(|whole| is_first && whole.on.start)?;
    let on = NotifyOn { start: true, ..NotifyOn::default() };
    Some(Notify { on, ..whole.clone() })
}

/// What is to be delivered of an end, if anything is.
pub(super) fn of_end(notify: &Notify, ended: &Ended) -> Option<Notification> {
    let ending = Ending::of(ended.outcome);
    let is_well = matches!(ending, Ending::Completed) && ended.outcome.exit_code == 0;
    let report = &ended.report;
    Some(Notification {
        on: notify.on.of_end(is_well)?,
        ways: ways_of(notify, &report.user),
        key: notify.key.clone(),
        gid: ended.gid,
        nodes: String::new(),
        ending: Some(ending),
        exit_code: Some(ended.outcome.exit_code),
        reason: cut(report.reason.clone(), EVENT_TEXT_BYTES_MAX),
        waited_ms: report.waited_ms,
        service_ms: report.service_ms,
    })
}

/// The ways of a notification: mail to the owner, if the job names none.
fn ways_of(notify: &Notify, user: &str) -> Vec<NotifyWay> {
    match notify.ways.is_empty() {
        true => vec![NotifyWay::Mail(user.to_owned())],
        false => notify.ways.clone(),
    }
}

impl Driver {
    /// What is wrong with what a job asks for, if anything is.
    pub(super) fn check_notify(&self, notify: Option<&Notify>) -> Result<(), Problem> {
        let Some(notify) = notify else { return Ok(()) };
        notify.check().map_err(|error| Problem::new(Code::Improper, error))?;
        let params = self.core.params();
        for (word, parameter, is_on) in [
            ("command", "notify_commands", params.has_notify_commands()),
            ("webhook", "notify_webhooks", params.has_notify_webhooks()),
        ] {
            if !is_on && notify.ways.iter().any(|way| way.word() == word) {
                let reason = format!(
                    "this site has no notification by {word}s ({parameter}=off): leave --notify-{word} out, and use \
                     --notify-mail"
                );
                return Err(Problem::new(Code::Improper, reason));
            }
        }
        Ok(())
    }

    /// What is kept of a request: what the site has as default, where the job asks for nothing.
    pub(super) fn notify_of(&self, asked: Option<Notify>) -> Option<Notify> {
        let notify = asked.unwrap_or_else(|| {
            let level = self.core.params().notify_default();
            let on = NotifyOn { start: level >= 3, end: level >= 2, fail: level >= 1 };
            Notify { on, ..Notify::default() }
        });
        Some(notify).filter(|notify| notify.on.any())
    }

    /// What is to be delivered of a start, if anything is.
    pub(super) fn notification_of_start(
        &self,
        job: JobId,
        nodes: &[EventNode],
    ) -> Option<Notification> {
        let entry = self.jobs.get(&job)?;
        let notify = entry.notify.as_deref().filter(|it| it.on.start && entry.requeues == 0)?;
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        Some(Notification {
            on: NotifyMoment::Start,
            ways: ways_of(notify, &entry.owner.user),
            key: notify.key.clone(),
            gid: entry.owner.credentials.gid,
            nodes: cut(names.join(","), NODES_BYTES_MAX),
            ending: None,
            exit_code: None,
            reason: String::new(),
            waited_ms: self.now().since(entry.times.accepted).0 / 1_000_000,
            service_ms: 0,
        })
    }

    /// Has the supervisor start the process that delivers, unless this controller has asked before.
    pub(super) fn want_notifier(&mut self) {
        if self.monitoring.events.has_notifier {
            return;
        }
        let asked = UnixStream::connect(self.instance.supervisor_socket())
            .and_then(|mut supervisor| supervisor.write_all(b"notifier\n"));
        match asked {
            Ok(()) => self.monitoring.events.has_notifier = true,
            Err(error) => warn!(
                code = %Code::NotNotified,
                "the supervisor can't be asked to start the notifier: {error}; notifications wait until the next job \
                 asks for one"
            ),
        }
    }

    /// The same at the start of a controller, if notifications may be outstanding.
    pub(super) fn want_notifier_again(&mut self) {
        let wants = |entry: &Entry| entry.notify.is_some();
        let entries = self.jobs.values().chain(self.arrays.values());
        if self.instance.notified_file().exists() || entries.map(Box::as_ref).any(wants) {
            self.want_notifier();
        }
    }
}
