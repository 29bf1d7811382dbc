//! Connections: how they are accepted, and what is asked before it is known what each is for.

use super::{ACCEPT_PAUSE_NS, ATTACH_WAIT_NS, Keeper, Newcomer};
use crate::front;
use crate::job::Job;
use crate::outlet::Outlet;
use crate::viewers::VIEWERS_OF_USER_MAX;
use crate::watch::Watch;
use anyhow::bail;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use tracing::warn;
use tutti_linux::peer;
use tutti_node::instance::may_run_instance;
use tutti_node::link::{Interest, Link, LinkError};
use tutti_node::log::PROVOKED;
use tutti_node::platform::time::monotonic_ns;
use tutti_node::platform::ways::Stream;
use tutti_types::StepKey;
use tutti_wire::Role;
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::branch::Vouch;
use tutti_wire::code::Code;
use tutti_wire::limits::{FRONT_END_FRAME_BYTES_MAX, NEWCOMER_FRAME_BYTES_MAX};

impl Keeper {
    pub(super) fn on_listener(&mut self) {
        loop {
            match self.door.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.welcome_newcomer(stream) {
                        warn!(target: PROVOKED, code = %Code::NotUnderstood, "turned a connection away: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        warn!(code = %Code::System, "cannot take a connection: {error}");
                        // The connection still waits: without a pause we would do nothing else.
                        self.accept(Interest::NONE);
                        self.door.accept_again_ns = Some(monotonic_ns() + ACCEPT_PAUSE_NS);
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn accept(&self, interest: Interest) {
        self.context.watches.modify(&self.door.listener, self.door.listener_token, interest);
    }

    pub(crate) fn welcome_newcomer(&mut self, stream: impl Into<Stream>) -> anyhow::Result<()> {
        let stream = stream.into();
        let uid = peer::peer_credentials(&stream)?.uid;
        self.check_room_for(uid)?;
        let mut link = Link::new(stream)?;
        link.limit(NEWCOMER_FRAME_BYTES_MAX);
        let number = self.door.newcomers_so_far;
        self.door.newcomers_so_far += 1;
        let token = self.context.watches.add(&link, Watch::Newcomer(number), Interest::READ)?;
        let until_ns = monotonic_ns() + ATTACH_WAIT_NS;
        let newcomer = Newcomer {
            link,
            token,
            uid,
            outlet: None,
            waits: None,
            views: false,
            received: None,
            terminal: None,
            until_ns,
        };
        self.door.newcomers.insert(number, newcomer);
        // Most have sent their greeting with the connection: no need to wait for another round.
        self.on_newcomer(number);
        Ok(())
    }

    /// No client may keep others out by connections that say nothing; the agent always gets in.
    fn check_room_for(&self, uid: u32) -> anyhow::Result<()> {
        if may_run_instance(uid, self.options.instance_uid) {
            return Ok(());
        }
        let most = self.context.launching.room.newcomers_max();
        let of_user = self.door.newcomers.values().filter(|newcomer| newcomer.uid == uid).count();
        if self.door.newcomers.len() >= most || of_user >= most / 4 {
            bail!("{of_user} of user {uid} have not said what they want");
        }
        Ok(())
    }

    pub(super) fn on_newcomer(&mut self, number: u64) {
        let Some(newcomer) = self.door.newcomers.get_mut(&number) else { return };
        let received = newcomer.link.receive();
        if newcomer.waits.is_none() {
            match newcomer.link.next_greeting() {
                Ok(None) => {}
                Ok(Some(Role::Agent)) => return self.on_new_agent(number),
                Ok(Some(Role::FrontEnd)) => return self.on_new_front(number, received),
                Ok(Some(Role::Proxy)) => return self.on_proxy(number),
                Ok(Some(Role::Supervisor)) => return self.on_supervisor(number),
                Ok(Some(_)) => return self.drop_newcomer(number, "neither agent nor front end"),
                Err(error) => return self.drop_newcomer(number, &error.to_string()),
            }
        }
        if received.is_err() {
            self.remove_newcomer(number);
        }
    }

    /// The agent speaks for a user on another node: what follows is that user's.
    fn on_proxy(&mut self, number: u64) {
        let Some(newcomer) = self.door.newcomers.get_mut(&number) else { return };
        if !may_run_instance(newcomer.uid, self.options.instance_uid) {
            let why = format!("user {} may not act for another user", newcomer.uid);
            return self.drop_newcomer(number, &why);
        }
        match newcomer.link.next::<Vouch>() {
            Ok(Some(vouch)) => self.be_vouched_for(number, &vouch),
            Ok(None) => {}
            Err(error) => self.drop_newcomer(number, &error.to_string()),
        }
    }

    /// The connection counts as that user's from now on.
    fn be_vouched_for(&mut self, number: u64, vouch: &Vouch) {
        if let Err(error) = self.check_room_for(vouch.uid) {
            return self.drop_newcomer(number, &error.to_string());
        }
        let Some(newcomer) = self.door.newcomers.get_mut(&number) else { return };
        newcomer.uid = vouch.uid;
        newcomer.link.expect_greeting();
        self.on_newcomer(number);
    }

    pub(super) fn remove_newcomer(&mut self, number: u64) -> Option<Newcomer> {
        let newcomer = self.door.newcomers.remove(&number)?;
        self.context.watches.remove(&newcomer.link, newcomer.token);
        Some(newcomer)
    }

    pub(super) fn drop_newcomer(&mut self, number: u64, why: &str) {
        warn!(target: PROVOKED, code = %Code::NotUnderstood, "dropped a connection: {why}");
        self.remove_newcomer(number);
    }

    /// Says why not, and lets go of it.
    pub(super) fn refuse(&mut self, number: u64, reason: &str) {
        if let Some(newcomer) = self.remove_newcomer(number) {
            let outlet = newcomer.outlet.unwrap_or_else(Outlet::new);
            let refused = ToFrontEnd::Refused { reason: reason.into() };
            let _ = front::answer(&newcomer.link, outlet, &refused);
        }
    }

    fn on_new_front(&mut self, number: u64, received: Result<(), LinkError>) {
        let Some(newcomer) = self.door.newcomers.get_mut(&number) else { return };
        let outlet = newcomer.outlet.get_or_insert_with(Outlet::new);
        match newcomer.link.next::<FromFrontEnd>() {
            Ok(Some(FromFrontEnd::Attach { key: job, received, terminal })) => {
                newcomer.waits = Some(job);
                (newcomer.received, newcomer.terminal) = (received, terminal);
                newcomer.until_ns = monotonic_ns() + ATTACH_WAIT_NS;
                // What else it sends waits in the kernel until there is a task to feed.
                self.context.watches.modify(&newcomer.link, newcomer.token, Interest::NONE);
                if self.jobs.contains_key(&job) {
                    // Our greeting goes together with the answer.
                    self.attach(number, job);
                } else {
                    let _ = outlet.flush(newcomer.link.stream());
                }
            }
            Ok(Some(FromFrontEnd::GiveUp { job, reason })) => {
                self.on_give_up(number, StepKey::first(job), reason);
            }
            Ok(Some(FromFrontEnd::Watch { job }))
                if self.jobs.contains_key(&StepKey::first(job)) =>
            {
                self.view(number, StepKey::first(job));
            }
            // A job counts as started once that is decided: a viewer may be here before the launch.
            Ok(Some(FromFrontEnd::Watch { job })) => {
                newcomer.waits = Some(StepKey::first(job));
                newcomer.views = true;
                newcomer.until_ns = monotonic_ns() + ATTACH_WAIT_NS;
                self.context.watches.modify(&newcomer.link, newcomer.token, Interest::NONE);
                let _ = outlet.flush(newcomer.link.stream());
            }
            Ok(Some(_)) => self.drop_newcomer(number, "it said something before it attached"),
            Ok(None) if received.is_err() => drop(self.remove_newcomer(number)),
            // It may wait for our greeting before it says more.
            Ok(None) => drop(outlet.flush(newcomer.link.stream())),
            Err(error) => self.drop_newcomer(number, &error.to_string()),
        }
    }

    /// The writer of a job on another node can't write, and has not attached.
    fn on_give_up(&mut self, number: u64, id: StepKey, reason: String) {
        let Some(newcomer) = self.door.newcomers.get(&number) else { return };
        let uid = newcomer.uid;
        let is_far = |job: &&mut Job| job.launch.written().is_far;
        let is_its = |job: &&mut Job| uid == 0 || uid == job.launch.credentials.uid;
        let Some(job) = self.jobs.get_mut(&id).filter(is_far).filter(is_its) else {
            return self.refuse(number, "no such job is here");
        };
        job.fail_output(reason, &mut self.context);
        if let Some(newcomer) = self.remove_newcomer(number) {
            let outlet = newcomer.outlet.unwrap_or_else(Outlet::new);
            let _ = front::answer(&newcomer.link, outlet, &ToFrontEnd::Finished);
        }
    }

    /// Gives a front end its job, if it may have it.
    pub(super) fn attach(&mut self, number: u64, id: StepKey) {
        let Some(newcomer) = self.door.newcomers.get(&number) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let owner = job.launch.credentials.uid;
        if newcomer.uid != owner && newcomer.uid != 0 {
            // As for a job that does not exist: its owner is not revealed.
            return self.refuse(number, "the job is not yours");
        }
        if let Some(why) = job.objection_to_front(newcomer.received) {
            return self.refuse(number, why);
        }
        let Some(newcomer) = self.door.newcomers.remove(&number) else { return };
        let Newcomer { mut link, token, outlet, received, terminal, .. } = newcomer;
        link.limit(FRONT_END_FRAME_BYTES_MAX);
        let outlet = outlet.unwrap_or_else(Outlet::new);
        job.note_terminal(terminal);
        job.attach(link, token, (outlet, received), &mut self.context);
    }

    /// Has a connection see the output of a job, if it may.
    pub(super) fn view(&mut self, number: u64, id: StepKey) {
        let Some(newcomer) = self.door.newcomers.get(&number) else { return };
        let uid = newcomer.uid;
        let is_its = |job: &&mut Job| uid == 0 || uid == job.launch.credentials.uid;
        let Some(job) = self.jobs.get_mut(&id).filter(is_its) else {
            return self.refuse(number, "no such job is here");
        };
        if let Some(why) = job.objection_to_viewer() {
            return self.refuse(number, why);
        }
        if let Some(why) = self.objection_to_viewer_of(number, uid) {
            return self.refuse(number, why);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(newcomer) = self.door.newcomers.remove(&number) else { return };
        let Newcomer { mut link, token, outlet, .. } = newcomer;
        link.limit(FRONT_END_FRAME_BYTES_MAX);
        // One that has waited for its job was not watched.
        self.context.watches.modify(&link, token, Interest::READ);
        let outlet = outlet.unwrap_or_else(Outlet::new);
        job.view((number, uid), (link, token), outlet, &mut self.context);
    }

    /// Why a connection of that user can't be another viewer of any job, if so.
    fn objection_to_viewer_of(&self, number: u64, uid: u32) -> Option<&'static str> {
        let newcomer = self.door.newcomers.get(&number)?;
        // Viewers leave room for front ends and the agent, as tasks do.
        if self.context.launching.room.check(&newcomer.link.stream().as_fd()).is_err() {
            return Some("the keeper of this node has no descriptor left for a viewer; try later");
        }
        let of_user: usize = self.jobs.values().map(|job| job.viewers_of(uid)).sum();
        (of_user >= VIEWERS_OF_USER_MAX)
            .then_some("too many of your viewers are on this node; end one of them with Ctrl-\\")
    }
}
