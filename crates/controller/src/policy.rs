//! The program of the site's own policy, live: when it is started, asked, given up and started
//! again.
//!
//! A thread waits for the program ([`Worker`]); the controller only ever looks whether a reply is
//! there. What follows from an answer is done some orders at a time, so that other requests are
//! served in between. The program runs as a user of its own, at a worse nice value.

use super::driver::Driver;
use super::policy_parts::OnNodes;
use nix::unistd::{Uid, User, geteuid};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tracing::{info, warn};
use tutti_core::Event;
use tutti_node::link::Interest;
use tutti_policy::program::CANNOT_EXECUTE;
use tutti_policy::{Failure, Life, Limits, Mode, Reply, Session, State, Worker, start_of};
use tutti_types::limits::POLICY_PATH_BYTES_MAX;
use tutti_types::{ClusterTime, PolicyProgram};

/// Orders that are done before others are served.
const ORDERS_AT_ONCE: usize = 64;

/// The token of the thread's replies in the poller.
pub(super) const POLICY: u64 = 2;

/// The program, as the controller knows it.
pub(super) struct Outsider {
    worker: Option<Worker>,
    pub(super) session: Session,
    life: Life,
    /// Why it failed last.
    failed: String,
    /// What was started, and with which limits.
    program: Option<(PolicyProgram, Limits)>,
    /// Its parts on nodes.
    pub(super) on_nodes: OnNodes,
}

impl Outsider {
    pub(super) fn new() -> Self {
        Self {
            worker: None,
            session: Session::new(Mode::Live),
            life: Life::default(),
            failed: String::new(),
            program: None,
            on_nodes: OnNodes::default(),
        }
    }

    /// The core has taken in an event.
    pub(super) fn note(&mut self, core: &tutti_core::Core, event: &Event) {
        if self.life.is_up() {
            self.session.note(core, event);
        }
    }

    /// What becomes of it, in words.
    pub(super) fn words(&self) -> String {
        match self.life.state() {
            State::Down(_) => format!("{} ({}; the log says more)", self.life.words(), self.failed),
            State::Off | State::Starting | State::Up(_) => self.life.words().to_owned(),
        }
    }
}

impl Driver {
    /// Whether a program is to run.
    pub(super) fn wants_program(&self) -> bool {
        let ends = self.due.stopping.is_some() || self.core.is_stopping();
        self.core.is_external() && self.core.policy_program().is_some() && !ends
    }

    /// What the program, and its part on each node, may have.
    pub(super) fn policy_limits(&self) -> Limits {
        let params = self.core.params();
        let (memory_bytes, processes) = (params.policy_memory_bytes(), params.policy_processes());
        Limits { memory_bytes, processes }
    }

    /// When something is due for the program.
    pub(super) fn policy_due(&self) -> ClusterTime {
        let now = self.now();
        let of_state = match self.outsider.life.state() {
            State::Off if self.wants_program() => now,
            State::Off | State::Starting => ClusterTime::NEVER,
            State::Down(until) => until,
            State::Up(_) => self.outsider.session.due(now),
        };
        let has_orders = self.outsider.life.is_up()
            && !self.outsider.session.is_asked()
            && self.outsider.session.has_items();
        if has_orders { now } else { of_state }
    }

    /// Does what is due for the program: takes its replies, does its orders, asks it.
    pub(super) fn follow_policy(&mut self) {
        let limits = self.policy_limits();
        let started = self.outsider.program.as_ref().map(|(it, limits)| (started_by(it), *limits));
        let other = started != self.core.policy_program().map(|it| (started_by(it), limits));
        if self.outsider.life.state() != State::Off && (other || !self.wants_program()) {
            self.stop_policy();
        }
        self.follow_parts();
        if self.wants_program() && self.outsider.life.is_to_start(self.now()) {
            self.start_policy();
        }
        while let Some(reply) = self.outsider.worker.as_ref().and_then(Worker::reply) {
            self.take_policy_reply(reply);
        }
        if !self.outsider.life.is_up() || self.outsider.session.is_asked() {
            return;
        }
        for _ in 0..ORDERS_AT_ONCE {
            let now = self.now();
            let Some(event) = self.outsider.session.next(&self.core, now) else { break };
            self.apply(&event);
        }
        self.send_to_parts();
        self.ask_policy();
    }

    /// Asks the program, if there is anything to tell it.
    fn ask_policy(&mut self) {
        let now = self.now();
        if self.outsider.session.due(now) > now {
            return;
        }
        let line = self.outsider.session.line(&self.core, now);
        let round = self.outsider.session.round();
        let limit = Duration::from_nanos(self.core.params().policy_limit().0);
        if let Some(worker) = &self.outsider.worker {
            worker.ask(line, round, limit);
        }
    }

    fn take_policy_reply(&mut self, reply: Reply) {
        let now = self.now();
        match (reply, self.outsider.life.state()) {
            (Reply::Began(greeting), State::Starting) => {
                self.outsider.session.begin(greeting, &self.core);
                self.outsider.life.began(now);
            }
            (Reply::Answered(answer), State::Up(_)) => {
                self.outsider.session.take(answer);
                if self.outsider.life.answered(now) {
                    info!("the policy program decides again");
                }
            }
            (Reply::Failed { why, said }, State::Starting | State::Up(_)) => {
                self.policy_failed(&why, &said);
            }
            // Of a program that was given up meanwhile.
            (Reply::Began(_) | Reply::Answered(_) | Reply::Failed { .. }, _) => {}
        }
    }

    fn policy_failed(&mut self, why: &Failure, said: &[String]) {
        self.outsider.session.failed();
        // All users may read it, so that it has nothing that the program itself wrote.
        let refusal = said.last().and_then(|line| line.split_once(CANNOT_EXECUTE));
        self.outsider.failed = refusal
            .map_or_else(|| why.to_string(), |(_, reason)| format!("{CANNOT_EXECUTE}{reason}"));
        if self.outsider.life.failed(self.now()) {
            let path = self.outsider.program.as_ref().map_or("", |(program, _)| &program.path);
            warn!("the policy program {path} failed: {why}; the built-in policy goes on");
            for line in said {
                warn!("the policy program wrote: {line}");
            }
        }
        self.end_charge();
    }

    /// The built-in policy goes on.
    fn end_charge(&mut self) {
        if self.core.has_outside_in_charge() {
            self.apply(&Event::PolicyInCharge { on: false });
        }
    }

    fn stop_policy(&mut self) {
        if let Some(worker) = self.outsider.worker.take() {
            self.intake.poller.remove(worker.wake());
            worker.stop();
        }
        let on_nodes = std::mem::take(&mut self.outsider.on_nodes);
        self.outsider = Outsider { on_nodes, ..Outsider::new() };
        self.end_charge();
    }

    fn start_policy(&mut self) {
        let Some(program) = self.core.policy_program().cloned() else { return };
        let hello = self.outsider.session.hello(&self.core);
        let limits = self.policy_limits();
        self.outsider.program = Some((program.clone(), limits));
        let start = start_of(program.path, program.user.as_deref(), limits);
        let begun = start.and_then(|start| {
            if self.outsider.worker.is_none() {
                let worker = Worker::new().map_err(|error| error.to_string())?;
                let added = self.intake.poller.add(worker.wake(), POLICY, Interest::READ);
                added.map_err(|error| error.to_string())?;
                self.outsider.worker = Some(worker);
            }
            Ok(start)
        });
        match (begun, &self.outsider.worker) {
            (Ok(start), Some(worker)) => {
                worker.start(start, hello);
                self.outsider.life.starts();
            }
            (Ok(_), None) => {}
            (Err(reason), _) => self.policy_failed(&Failure::NotStarted(reason), &[]),
        }
    }
}

/// What another process is started for, if it changes.
fn started_by(program: &PolicyProgram) -> (&str, Option<&str>) {
    (&program.path, program.user.as_deref())
}

/// Names of parameters and their values.
type Named = Vec<(String, String)>;

/// What the settings of parameters make of the policy program: the program, if it changes, and the
/// settings that are left for the core.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn program_of(
    before: Option<&PolicyProgram>,
    settings: &[(String, String)],
) -> Result<(Option<Event>, Named), String> {
    let mut program = before.cloned();
    let mut left = Vec::new();
    for (name, value) in settings {
        let is_program = name == "policy" && value.contains('/');
        if is_program || name == "policy_program" {
            let (user, node) = program.take().map_or((None, None), |it| (it.user, it.node));
            program = match &**value {
                "none" => None,
                path => Some(PolicyProgram { path: existing_path(path)?, user, node }),
            };
            if is_program {
                left.push((name.clone(), "external".to_owned()));
            }
        } else if matches!(&**name, "policy_user" | "policy-user") {
            let program = program.as_mut().ok_or(
                "policy_user is the user of a policy program; name that first with policy=/PATH",
            )?;
            program.user = checked_user(value)?;
        } else if matches!(&**name, "policy_node" | "policy-node") {
            let program = program.as_mut().ok_or(
                "policy_node is the part of a policy program on nodes; name that first with \
                 policy=/PATH",
            )?;
            program.node = match &**value {
                "none" => None,
                // It need not be on this machine.
                path => Some(checked_path(path)?),
            };
        } else {
            left.push((name.clone(), value.clone()));
        }
    }
    let event = (program.as_ref() != before).then_some(Event::SetPolicyProgram { program });
    Ok((event, left))
}

fn checked_path(path: &str) -> Result<String, String> {
    if !path.starts_with('/') || path.len() > POLICY_PATH_BYTES_MAX || path.contains('\0') {
        return Err(format!(
            "the path of a policy program is absolute, of at most {POLICY_PATH_BYTES_MAX} bytes"
        ));
    }
    Ok(path.to_owned())
}

fn existing_path(path: &str) -> Result<String, String> {
    let path = checked_path(path)?;
    match std::fs::metadata(&path) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 == 0 => {
            Err(format!("{path} can't be executed; `chmod +x` lets it be the policy program"))
        }
        Ok(file) if file.is_file() => Ok(path),
        Ok(_) => Err(format!("{path} is no file; name the policy program")),
        Err(error) => Err(format!("policy program {path}: {error}")),
    }
}

fn checked_user(name: &str) -> Result<Option<String>, String> {
    if name == "default" {
        return Ok(None);
    }
    let known = User::from_name(name).ok().flatten();
    let own = geteuid();
    match known.map(|user| user.uid) {
        None => Err(format!("there is no user {name}; name the user of the policy program")),
        Some(uid) if uid == own || own == Uid::from_raw(0) => Ok(Some(name.to_owned())),
        Some(_) => Err(format!(
            "policy_user={name} needs a controller of root's; here the program runs as you"
        )),
    }
}
