//! The program of the site's own policy, live: when it is started, asked, given up and started
//! again.
//!
//! A thread waits for the program ([`Worker`]); the controller only ever looks whether a reply is
//! there. What follows from an answer is done some orders at a time, so that other requests are
//! served in between. The program runs as a user of its own, at a worse nice value.

use super::driver::Driver;
use nix::unistd::{Uid, User, geteuid};
use std::time::Duration;
use tracing::{info, warn};
use tutti_core::Event;
use tutti_linux::spawn::Identity;
use tutti_node::link::Interest;
use tutti_policy::{Failure, Mode, Reply, Session, Start, Worker};
use tutti_types::limits::POLICY_PATH_BYTES_MAX;
use tutti_types::{ClusterTime, Nanos, PolicyProgram};

/// Orders that are done before others are served.
const ORDERS_AT_ONCE: usize = 64;

/// The pause before a program that failed is started again; doubled each time.
const PAUSE: Nanos = Nanos::from_secs(1);
const PAUSE_MAX: Nanos = Nanos::from_secs(60);

/// A program that has decided for so long has failed for another reason than before.
const GOOD_AFTER: Nanos = Nanos::from_secs(60);

/// The nice value of a program: a worse one than the controller's.
const NICE: i32 = 5;

/// The user that a program of root's instance runs as, unless the site names another.
const DEFAULT_USER: &str = "nobody";

/// The token of the thread's replies in the poller.
pub(super) const POLICY: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None runs, and none is to.
    Off,
    /// It was started, and has yet to answer.
    Starting,
    /// It answers, since this time.
    Up(ClusterTime),
    /// It failed, and is started again at this time.
    Down(ClusterTime),
}

/// The program, as the controller knows it.
pub(super) struct Outsider {
    worker: Option<Worker>,
    session: Session,
    state: State,
    /// What was started.
    program: Option<PolicyProgram>,
    /// How often it failed in a row.
    failures: u32,
    /// Whether the log has said so.
    has_said: bool,
}

impl Outsider {
    pub(super) fn new() -> Self {
        Self {
            worker: None,
            session: Session::new(Mode::Live),
            state: State::Off,
            program: None,
            failures: 0,
            has_said: false,
        }
    }

    /// The core has taken in an event.
    pub(super) fn note(&mut self, core: &tutti_core::Core, event: &Event) {
        if matches!(self.state, State::Up(_)) {
            self.session.note(core, event);
        }
    }

    /// What becomes of it, in words.
    pub(super) const fn words(&self) -> &'static str {
        match self.state {
            State::Off => "does not run",
            State::Starting => "is starting",
            State::Up(_) => "answers",
            State::Down(_) => "has failed, and is started again",
        }
    }
}

impl Driver {
    /// Whether a program is to run.
    fn wants_program(&self) -> bool {
        let ends = self.due.stopping.is_some() || self.core.is_stopping();
        self.core.is_external() && self.core.policy_program().is_some() && !ends
    }

    /// When something is due for the program.
    pub(super) fn policy_due(&self) -> ClusterTime {
        let now = self.now();
        let of_state = match self.outsider.state {
            State::Off if self.wants_program() => now,
            State::Off | State::Starting => ClusterTime::NEVER,
            State::Down(until) => until,
            State::Up(_) => self.outsider.session.due(now),
        };
        let has_orders = matches!(self.outsider.state, State::Up(_))
            && !self.outsider.session.is_asked()
            && self.outsider.session.has_items();
        if has_orders { now } else { of_state }
    }

    /// Does what is due for the program: takes its replies, does its orders, asks it.
    pub(super) fn follow_policy(&mut self) {
        let other = self.outsider.program.as_ref() != self.core.policy_program();
        if self.outsider.state != State::Off && (other || !self.wants_program()) {
            self.stop_policy();
        }
        let now = self.now();
        match self.outsider.state {
            State::Off if self.wants_program() => self.start_policy(),
            State::Down(until) if until <= now => self.start_policy(),
            State::Off | State::Down(_) | State::Starting | State::Up(_) => {}
        }
        while let Some(reply) = self.outsider.worker.as_ref().and_then(Worker::reply) {
            self.take_policy_reply(reply);
        }
        if !matches!(self.outsider.state, State::Up(_)) || self.outsider.session.is_asked() {
            return;
        }
        for _ in 0..ORDERS_AT_ONCE {
            let now = self.now();
            let Some(event) = self.outsider.session.next(&self.core, now) else { break };
            self.apply(&event);
        }
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
        match (reply, self.outsider.state) {
            (Reply::Began(greeting), State::Starting) => {
                self.outsider.session.begin(greeting, &self.core);
                self.outsider.state = State::Up(self.now());
            }
            (Reply::Answered(answer), State::Up(since)) => {
                self.outsider.session.take(answer);
                if self.now().since(since) > GOOD_AFTER || !self.outsider.has_said {
                    self.outsider.failures = 0;
                }
                if self.outsider.has_said && self.now().since(since) > GOOD_AFTER {
                    self.outsider.has_said = false;
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
        let pause = Nanos(PAUSE.0 << self.outsider.failures.min(6)).min(PAUSE_MAX);
        self.outsider.failures = self.outsider.failures.saturating_add(1);
        self.outsider.state = State::Down(self.now() + pause);
        if !std::mem::replace(&mut self.outsider.has_said, true) {
            let path = self.outsider.program.as_ref().map_or("", |program| &program.path);
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
        self.outsider = Outsider::new();
        self.end_charge();
    }

    fn start_policy(&mut self) {
        let Some(program) = self.core.policy_program().cloned() else { return };
        let hello = self.outsider.session.hello(&self.core);
        self.outsider.program = Some(program.clone());
        let start = identity(&program).map(|identity| Start {
            path: program.path,
            identity,
            environment: environment(),
            nice: NICE,
        });
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
                self.outsider.state = State::Starting;
            }
            (Ok(_), None) => {}
            (Err(reason), _) => self.policy_failed(&Failure::NotStarted(reason), &[]),
        }
    }
}

/// The user that a program runs as; `None`: the controller's own.
fn identity(program: &PolicyProgram) -> Result<Option<Identity>, String> {
    let own = geteuid();
    let name = match &program.user {
        None if !own.is_root() => return Ok(None),
        None => DEFAULT_USER,
        Some(name) => name,
    };
    let user = User::from_name(name).ok().flatten();
    let user = user.ok_or_else(|| format!("there is no user {name} for it (policy_user)"))?;
    match own {
        own if own == user.uid => Ok(None),
        own if own.is_root() => Ok(Some(Identity {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: Vec::new(),
        })),
        _ => Err(format!("only a controller of root's can run it as {name} (policy_user)")),
    }
}

/// What it finds in its environment: nothing of the controller's own.
fn environment() -> Vec<String> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
    vec![format!("PATH={path}"), "LANG=C.UTF-8".into(), "PYTHONDONTWRITEBYTECODE=1".into()]
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
            let user = program.take().and_then(|program| program.user);
            program = match &**value {
                "none" => None,
                path => Some(PolicyProgram { path: checked_path(path)?, user }),
            };
            if is_program {
                left.push((name.clone(), "external".to_owned()));
            }
        } else if matches!(&**name, "policy_user" | "policy-user") {
            let program = program.as_mut().ok_or(
                "policy_user is the user of a policy program; name that first with policy=/PATH",
            )?;
            program.user = checked_user(value)?;
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
    match std::fs::metadata(path) {
        Ok(file) if file.is_file() => Ok(path.to_owned()),
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
