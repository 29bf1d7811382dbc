//! The users of a simulated world: they submit jobs, ask again when there is no answer, and says
//! what else is to be done with them. They speak as the verbs do.

use super::front::Front;
use super::script::Plan;
use std::collections::BTreeMap;
use std::path::Path;
use tracing::debug;
use tutti_node::link::Link;
use tutti_node::simulated::machine::with_here;
use tutti_node::simulated::process::arguments;
use tutti_types::{ClassName, JobId, Nanos, OnBadExit};
use tutti_wire::Role;
use tutti_wire::launch::{InputTo, LaunchSpec, OpenMode, Stdio};
use tutti_wire::local::{JobRequest, NodesRequest, Reply, Request, SubmitKey};

/// How long a user waits that was not heard.
const RETRY_NS: u64 = 50_000_000;

/// What a client wants.
enum Wanted {
    Submit(Plan, SubmitKey),
    Run(Plan),
    Command(Box<Request>),
}

struct Client {
    wanted: Wanted,
    link: Option<Link>,
    /// The job, once it is accepted.
    job: Option<JobId>,
    front: Option<Front>,
    /// Not tried again before.
    retry_ns: u64,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Users {
    clients: Vec<Client>,
    /// Jobs that were accepted, as their users were told.
    pub(super) accepted: BTreeMap<JobId, Plan>,
    /// How many requests were refused.
    pub(super) refused: u64,
    keys: u64,
    pub(super) wrong: Vec<String>,
}

/// Bytes of a text.
fn bytes(text: &str) -> serde_bytes::ByteBuf {
    text.as_bytes().to_vec().into()
}

/// A job as its user asks for it.
fn request(plan: Plan) -> JobRequest {
    let stdio = match plan.is_attached {
        true => Stdio::FrontEnd { input: InputTo::Nobody },
        false => Stdio::Files {
            input: None,
            output: bytes("/dev/null"),
            error: None,
            mode: OpenMode::default(),
        },
    };
    JobRequest {
        queue: None,
        names_class: true,
        class: ClassName::new(plan.class),
        tasks: plan.tasks,
        processors_per_task: Some(1),
        memory_per_task_bytes: None,
        time_limit: None,
        deadline: None,
        grace: Nanos::from_secs(1),
        weights: None,
        nodes: NodesRequest { count: plan.nodes, ..NodesRequest::default() },
        on_bad_exit: OnBadExit::KillOnSignal,
        on_node_loss: plan.on_node_loss,
        no_requeue: false,
        within: None,
        hold: false,
        after: None,
        singleton: false,
        begin_ms: None,
        warning: None,
        checkpoint: None,
        policy_args: Vec::new(),
        swap: false,
        array: None,
        notify: None,
        first: plan.first(),
        resources: Vec::new(),
        launch: LaunchSpec {
            name: "job".into(),
            argv: arguments(plan.life_ms, plan.lines, plan.code, plan.barriers())
                .iter()
                .map(|it| bytes(it))
                .collect(),
            script: None,
            environment: vec![bytes("PATH=/bin"), bytes("TMPDIR=/world/tmp")],
            directory: bytes("/"),
            umask: 0o022,
            rlimits: Vec::new(),
            stdio,
            processes_max: None,
            adopt: Vec::new(),
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        },
    }
}

impl Users {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Hands a job in.
    pub(super) fn submit(&mut self, plan: Plan) {
        self.keys += 1;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.keys.to_le_bytes());
        self.add(if plan.is_attached {
            Wanted::Run(plan)
        } else {
            Wanted::Submit(plan, SubmitKey(key))
        });
    }

    /// Asks for something else.
    pub(super) fn command(&mut self, request: Request) {
        self.add(Wanted::Command(Box::new(request)));
    }

    fn add(&mut self, wanted: Wanted) {
        self.clients.push(Client { wanted, link: None, job: None, front: None, retry_ns: 0 });
    }

    /// The job that was accepted as the latest but so many.
    pub(super) fn latest(&self, before: u64) -> Option<JobId> {
        let count = u64::try_from(self.accepted.len()).ok()?.checked_sub(1)?;
        let index = usize::try_from(count - before.min(count)).ok()?;
        self.accepted.keys().nth(index).copied()
    }

    /// The machine that all of them are at has lost its power: none is there any more, nor what ends with them.
    pub(super) fn vanish(&mut self) {
        self.clients.clear();
        self.accepted.retain(|_, plan| !plan.is_attached);
    }

    /// Whether a user still waits for an answer, or for the end of a job.
    pub(super) fn are_waiting(&self) -> bool {
        !self.clients.is_empty()
    }

    /// All do what they can do now. Gives when to look again though nothing has come.
    pub(super) fn step(&mut self, now_ns: u64) -> Option<u64> {
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| client.step(self, now_ns));
        clients.append(&mut self.clients);
        self.clients = clients;
        let due = |client: &Client| {
            let front_ns = client.front.as_ref().and_then(|front| front.due_ns(now_ns));
            let own_ns = client.link.is_none().then(|| client.retry_ns.max(now_ns + 1_000_000));
            front_ns.into_iter().chain(own_ns).min()
        };
        self.clients.iter().filter_map(due).min()
    }
}

impl Client {
    /// Whether it goes on.
    fn step(&mut self, users: &mut Users, now_ns: u64) -> bool {
        if self.link.is_none() && self.retry_ns <= now_ns && !self.knows_the_end() {
            self.retry_ns = now_ns + RETRY_NS;
            self.link = self.dial();
        }
        let mut goes_on = true;
        if let Some(mut link) = self.link.take() {
            let received = link.receive();
            let mut is_good = true;
            loop {
                match link.next::<Reply>() {
                    Ok(Some(reply)) => goes_on &= self.on_reply(reply, users, now_ns),
                    Ok(None) => break,
                    Err(_) => {
                        is_good = false;
                        break;
                    }
                }
            }
            is_good &= received.is_ok() && link.flush().is_ok();
            if is_good {
                self.link = Some(link);
            } else {
                goes_on &= self.asks_again();
            }
        }
        if let Some(front) = &mut self.front {
            front.step(now_ns);
            if let Some(wrong) = front.wrong.take() {
                users.wrong.push(wrong);
            }
            if front.has_given_up {
                self.job.map(|job| users.accepted.remove(&job));
            }
            if front.is_over() || front.has_given_up {
                return false;
            }
        }
        goes_on || self.front.is_some()
    }

    fn knows_the_end(&self) -> bool {
        self.front.as_ref().is_some_and(Front::has_heard_of_the_end)
    }

    /// A user can't know whether a job was accepted that may not be; it ends with the user.
    fn asks_again(&self) -> bool {
        match &self.wanted {
            Wanted::Submit(..) => true,
            Wanted::Run(_) => self.job.is_some(),
            Wanted::Command(_) => false,
        }
    }

    fn dial(&self) -> Option<Link> {
        let stream =
            with_here(|machine, _| machine.connect(Path::new("/world/controller")))?.ok()?;
        let mut link = Link::new(stream).ok()?;
        link.greet(Role::Client);
        link.send(&match (&self.wanted, self.job) {
            (Wanted::Submit(plan, key), _) => Request::Submit(request(*plan), *key),
            (Wanted::Run(_), Some(job)) => Request::Return { job },
            (Wanted::Run(plan), None) => Request::Run(request(*plan)),
            (Wanted::Command(request), _) => Request::clone(request),
        });
        link.flush().ok()?;
        Some(link)
    }

    /// Whether there is more to come.
    fn on_reply(&mut self, reply: Reply, users: &mut Users, now_ns: u64) -> bool {
        match (&self.wanted, reply) {
            (Wanted::Submit(plan, _), Reply::Accepted { job, .. }) => {
                users.accepted.insert(job, *plan);
                false
            }
            (Wanted::Run(plan), Reply::Accepted { job, waits }) => {
                self.job = Some(job);
                users.accepted.insert(job, *plan);
                let front = self.front.get_or_insert_with(|| Front::new(job, *plan));
                front.on_accepted(&waits);
                true
            }
            (Wanted::Run(plan), Reply::Starting { job, attach }) => {
                self.job = Some(job);
                users.accepted.insert(job, *plan);
                let front = self.front.get_or_insert_with(|| Front::new(job, *plan));
                front.start(attach, now_ns);
                true
            }
            (Wanted::Run(_), Reply::Ended { outcome, .. }) => {
                if let Some(front) = &mut self.front {
                    front.on_end(outcome, now_ns);
                }
                self.front.is_some()
            }
            (Wanted::Command(_), Reply::Failed { reason, .. }) => {
                debug!("a command is refused: {reason}");
                false
            }
            (Wanted::Command(_), _) => false,
            (_, Reply::Declined { reason, .. } | Reply::Failed { reason, .. }) => {
                debug!("a job is refused: {reason}");
                users.refused += 1;
                // The user that waits for it has been told.
                self.job.map(|job| users.accepted.remove(&job));
                if let Some(front) = &mut self.front {
                    front.on_lost(now_ns);
                }
                false
            }
            (_, other) => {
                users.wrong.push(format!("unexpected answer: {other:?}"));
                false
            }
        }
    }
}
