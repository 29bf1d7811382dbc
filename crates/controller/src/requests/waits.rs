//! Front ends, and clients that wait for a job's begin or end.

use super::{Client, Forbidden};
use crate::driver::{Connection, Driver, Kind};
use crate::jobs::Entry;
use crate::report;
use tutti_core::Event;
use tutti_types::{JobId, NodeId};
use tutti_wire::local::{KeeperAt, Reply};

impl Driver {
    /// The connection is that of the job's front end.
    pub(crate) fn be_front(&mut self, token: u64, job: JobId) {
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
        {
            client.front_of = Some(job);
        }
    }

    pub(crate) fn tell_why_it_waits(&mut self, token: u64, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.clients.note_answer();
        }
        let waits = report::why_it_waits(self, job);
        self.reply(token, &Reply::Accepted { job, waits });
        self.tell_front_where(job);
    }

    /// The same for a front end that has come back: what was launched meanwhile waits for it. One
    /// that knows better has seen a beginning that is not in the journal, and gives the job up.
    pub(crate) fn tell_why_it_waited(&mut self, token: u64, job: JobId) {
        let is_told =
            |entry: &Entry| entry.clients.has_told_front() || entry.run.started_on().is_empty();
        if self.jobs.get(&job).map(Box::as_ref).is_none_or(is_told) {
            return self.tell_why_it_waits(token, job);
        }
        self.reply(token, &Reply::Accepted { job, waits: "for its front end".into() });
        self.tell_front_where(job);
    }

    /// The job is being started on these nodes.
    pub(crate) fn tell_front_of_start(&mut self, job: JobId, nodes: Vec<NodeId>) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        entry.run.start_on(nodes);
        // A client that asks for it just now hears first that it is accepted.
        if !entry.clients.is_unanswered() {
            self.tell_front_where(job);
        }
    }

    /// Tells a job's front end where the keepers of its tasks are, as seen from its own node.
    fn tell_front_where(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let nodes = entry.run.started_on();
        let Some(front) = entry.clients.front().filter(|_| !nodes.is_empty()) else { return };
        let attach = self.keepers_of(front, nodes);
        self.reply(front, &Reply::Starting { job, attach });
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.clients.note_told();
        }
    }

    /// Where a viewer finds the output of a job.
    pub(super) fn on_keepers(&mut self, token: u64, uid: u32, job: JobId) {
        if let Err(error) = self.owned(uid, job) {
            return self.fail(token, error);
        }
        match self.jobs.get(&job).map(|entry| entry.run.started_on()) {
            Some(nodes @ [_, ..]) => {
                let attach = self.keepers_of(token, nodes);
                self.reply(token, &Reply::Starting { job, attach });
            }
            _ => self.fail(token, Forbidden::NotBegun(job)),
        }
    }

    /// The keepers of these nodes, as a client reaches them from its own.
    pub(crate) fn keepers_of(&self, token: u64, nodes: &[NodeId]) -> Vec<KeeperAt> {
        let vouch =
            self.intake.connections.get(&token).and_then(|connection| connection.vouch.as_ref());
        let attach = |node: &NodeId| {
            let entry = self.cluster.nodes.get(node);
            let is_near = match vouch {
                Some(vouch) => vouch.node == *node,
                None => entry.is_some_and(|entry| entry.is_here),
            };
            match entry.filter(|_| is_near) {
                Some(entry) => KeeperAt::Here(entry.attach.clone()),
                None => KeeperAt::Node(*node),
            }
        };
        nodes.iter().map(attach).collect()
    }

    /// Answers a client about a job that has ended, or is another user's.
    pub(crate) fn is_ended_for(&mut self, token: u64, uid: u32, job: JobId) -> bool {
        match (self.owned(uid, job), self.ends.ended.get(job)) {
            (Err(Forbidden::Ended { .. }), Some(ended)) => {
                let (outcome, detail) = (ended.outcome, ended.report.detail.clone());
                let report = Box::new(ended.report.clone());
                self.reply(token, &Reply::Ended { job, outcome, detail, report });
            }
            (Err(error), _) => self.fail(token, error),
            (Ok(()), _) => return false,
        }
        true
    }

    pub(super) fn on_wait(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
            && client.waits_for.insert(job)
            && let Some(entry) = self.jobs.get_mut(&job).or_else(|| self.arrays.get_mut(&job))
        {
            entry.clients.await_end(token);
        }
    }

    pub(super) fn on_wait_begun(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&job) else {
            return self.fail(token, Forbidden::IsArray(job));
        };
        if entry.run.has_begun() {
            return self.reply(token, &Reply::Done);
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
            && client.waits_for.insert(job)
        {
            entry.clients.await_begin(token);
        }
    }

    /// A node reports that a task of the job has begun.
    pub(crate) fn note_begun(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if entry.run.begin() {
            self.count_begun(job);
        }
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        for token in entry.clients.take_begin() {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.intake.connections.get_mut(&token)
            {
                client.waits_for.remove(&job);
            }
            self.reply(token, &Reply::Done);
        }
    }

    /// A client is gone; from another node, if one is named, and perhaps only the way there broke.
    pub(crate) fn on_client_gone(&mut self, client: Client, from: Option<NodeId>) {
        for job in client.waits_for {
            let entry = self.jobs.get_mut(&job).or_else(|| self.arrays.get_mut(&job));
            if let Some(entry) = entry {
                entry.clients.retain(|token| self.intake.connections.contains_key(&token));
            }
        }
        if let Some(key) = client.front_of_step {
            self.on_step_front_gone(key, from);
        }
        if let Some(job) = client.front_of {
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.clients.lose_front();
            }
            match from {
                Some(node) => self.await_front(job, node),
                None => self.apply(&Event::FrontEndLost { job }),
            }
        }
    }
}
