//! A reader of the stream of events: `tutti events`, and what is built on it.
//!
//! It keeps its place by number, so it goes on behind a controller that was started anew.

use crate::ask::{ask_until_answered, unexpected};
use crate::connect;
use crate::output::without_orders;
use serde::Serialize;
use serde_json::{Map, Value};
use tutti_node::codes::{coded, is_away};
use tutti_node::link::Link;
use tutti_wire::event::{EVENTS_VERSION, EventQuery, EventRecord, JobOf};
use tutti_wire::local::{Reply, Request};

/// The words of all events, as JSON has them.
pub const EVENT_WORDS: [&str; 35] = [
    "controller_started",
    "instance_ending",
    "job_checkpoint_failed",
    "job_checkpointed",
    "job_checkpointing",
    "job_class_changed",
    "job_ended",
    "job_ending",
    "job_held",
    "job_limit_changed",
    "job_moved",
    "job_node_back",
    "job_node_lost",
    "job_node_unreachable",
    "job_notification",
    "job_preempted",
    "job_promise_broken",
    "job_ranks_given_up",
    "job_ranks_lost",
    "job_ranks_respawned",
    "job_released",
    "job_requeued",
    "job_resumed",
    "job_started",
    "job_submitted",
    "job_suspended",
    "node_back",
    "node_drained",
    "node_joined",
    "node_lost",
    "node_removed",
    "node_resumed",
    "node_unreachable",
    "setting_changed",
    "tasks_ended",
];

/// A place in the stream.
pub struct EventStream {
    query: EventQuery,
    /// A connection that the next request can take.
    link: Option<Link>,
}

/// Some events, and how far they go.
pub struct EventPage {
    /// The events; there may be none.
    pub events: Vec<EventRecord>,
    /// The number of the earliest that is kept; 0: none is.
    pub first: u64,
    /// The number from which the next page goes on.
    pub until: u64,
    /// The number of the latest event.
    pub last: u64,
}

impl EventStream {
    /// The events that a query wants.
    #[must_use]
    pub const fn new(query: EventQuery) -> Self {
        Self { query, link: None }
    }

    /// The next events; with [`EventQuery::wait`], once there are some.
    ///
    /// # Errors
    /// If no instance answers, or those events are not kept.
    pub fn next_page(&mut self) -> anyhow::Result<EventPage> {
        let request = Request::Events(self.query.clone());
        let reply = match self.call(&request) {
            Some(reply) => reply,
            None => ask_until_answered(&request)?,
        };
        match reply {
            Reply::Events { events, first, until, last } => {
                self.query.after = Some(until);
                Ok(EventPage { events, first, until, last })
            }
            Reply::Failed { reason, code } => Err(coded(code, reason)),
            _ => unexpected(),
        }
    }

    /// Asks on the connection of the request before; `None`: another one is needed.
    fn call(&mut self, request: &Request) -> Option<Reply> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => connect().ok()?,
        };
        link.send(request);
        let reply = link.call().ok()?;
        if matches!(&reply, Reply::Failed { code, .. } if is_away(*code)) {
            return None;
        }
        self.link = Some(link);
        Some(reply)
    }
}

/// The word of an event, as JSON has it.
#[must_use]
pub fn word_of(record: &EventRecord) -> String {
    // Each event is written as `{"word": {fields}}`.
    let what = serde_json::to_value(&record.event.what).unwrap_or_default();
    let word = what.as_object().and_then(|object| object.keys().next());
    word.cloned().unwrap_or_default()
}

/// One event as a line of JSON, without a line end; docs/reference/events.md has the fields.
///
/// # Errors
/// Never: nothing of an event can't be written.
pub fn json_line(record: &EventRecord) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Line<'a> {
        version: u32,
        number: u64,
        entry: u64,
        at_ms: u64,
        cluster_ns: u64,
        event: &'a str,
        #[serde(flatten)]
        job: Option<&'a JobOf>,
        #[serde(flatten)]
        fields: &'a Map<String, Value>,
    }
    let what = serde_json::to_value(&record.event.what)?;
    let no_word = String::new();
    // Each event is written as `{"word": {fields}}`.
    let found = what.as_object().and_then(|object| object.iter().next());
    let (word, fields) = found.unwrap_or((&no_word, &Value::Null));
    // The key of a webhook is between the user and the receiver.
    let mut public = fields.as_object().cloned().unwrap_or_default();
    public.remove("key");
    let line = Line {
        version: EVENTS_VERSION,
        number: record.number,
        entry: record.entry,
        at_ms: record.event.at_ms,
        cluster_ns: record.event.cluster_ns,
        event: word,
        job: record.event.job.as_ref(),
        fields: &public,
    };
    Ok(without_orders(&serde_json::to_string(&line)?))
}

#[cfg(test)]
mod tests {
    use super::json_line;
    use tutti_types::JobId;
    use tutti_wire::event::{Event, EventRecord, JobOf, What};

    #[test]
    fn an_event_is_one_flat_object_without_orders_to_a_terminal() {
        let user = "ada".into();
        let job = Some(JobOf { job: JobId(7), name: "a\u{9b}b\n".into(), user, uid: 1 });
        let what = What::JobClassChanged { class: "test".into() };
        let record = EventRecord {
            number: 5,
            entry: 9,
            event: Event { at_ms: 3, cluster_ns: 4, job, what },
        };
        let wanted = concat!(
            r#"{"version":1,"number":5,"entry":9,"at_ms":3,"cluster_ns":4,"#,
            r#""event":"job_class_changed","job":7,"name":"a\u009bb\n","#,
            r#""user":"ada","uid":1,"class":"test"}"#
        );
        assert_eq!(json_line(&record).unwrap(), wanted);
        let record = EventRecord {
            event: Event { at_ms: 3, cluster_ns: 4, job: None, what: What::InstanceEnding {} },
            ..record
        };
        let wanted = r#"{"version":1,"number":5,"entry":9,"at_ms":3,"cluster_ns":4,"event":"instance_ending"}"#;
        assert_eq!(json_line(&record).unwrap(), wanted);
    }
}
