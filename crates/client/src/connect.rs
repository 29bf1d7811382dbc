//! Finds the instance, or starts a private one.

use crate::output::counted;
use anyhow::Context;
use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tutti_linux::inherited::keep_all_open;
use tutti_node::capability::check_kernel;
use tutti_node::codes::coded;
use tutti_node::executable::own_program;
use tutti_node::instance::Instance;
use tutti_node::link::Link;
use tutti_node::log::text_of;
use tutti_node::membership::Place;
use tutti_node::presence::{has_keeper, is_supervised};
use tutti_node::service::{ENDS_WITH_SESSION, Service, ends_with_session};
use tutti_node::state_dir::{self, NotOurs};
use tutti_wire::Role;
use tutti_wire::code::Code;

/// Connects to a running instance.
///
/// # Errors
/// If there is none; the text says how to start one.
pub fn connect() -> anyhow::Result<Link> {
    let instance = Instance::locate();
    let directory = instance.directory().display();
    dial_patiently(&instance).map_err(|error| {
        if error.is::<NotOurs>() {
            return error;
        }
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        match kind {
            Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) if is_supervised(&instance) => {
                coded(Code::NoInstance, cannot_begin(&instance))
            }
            Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) if has_keeper(&instance) => {
                coded(
                    Code::NoInstance,
                    format!(
                        "the controller of the instance in {directory} has ended, and no supervisor starts \
                         it again; its jobs run: `tutti up` goes on with them, `tutti down` ends them"
                    ),
                )
            }
            // Nothing there, or a socket without a listener.
            Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                coded(Code::NoInstance, nobody_runs(&instance))
            }
            _ => match instance.check_owner() {
                Err(not_ours) if kind == Some(ErrorKind::PermissionDenied) => not_ours,
                _ => error.context(format!("cannot reach the instance in {directory}")),
            },
        }
    })
}

/// That its controller is started again and again, and why, as far as it is said.
fn cannot_begin(instance: &Instance) -> String {
    let log = std::fs::read_to_string(instance.log_file()).unwrap_or_default();
    // What a daemon that ends says last is an error of its program, not of one of its modules.
    let mut said = log.lines().rev().filter(|line| line.contains(" ERROR tutti: ")).map(text_of);
    let why = said.next().unwrap_or("nothing (see the log of the service)");
    format!(
        "the controller of the instance in {} can't begin, and is tried again and again; its jobs run on. It says: \
         {why}. When that is fixed it goes on by itself; `tutti down` ends the instance with its jobs",
        instance.directory().display(),
    )
}

/// That there is no instance, and what to do about it.
fn nobody_runs(instance: &Instance) -> String {
    let directory = instance.directory().display();
    if let Ok(Some(here)) = Place::of(instance).membership() {
        return format!(
            "this machine is {} of cluster {}, and is down: `{}` brings it back",
            here.name,
            here.cluster,
            instance.up_command()
        );
    }
    let Some((place, jobs)) = Instance::with_jobs_left() else {
        return format!(
            "no instance runs in {directory}; `tutti run` and `tutti submit` start one by themselves, \
             `tutti up` starts one without a job"
        );
    };
    let before = match place == *instance {
        true => "the one before".into(),
        false => format!("one in {}", place.directory().display()),
    };
    format!(
        "no instance runs in {directory}; {before} has left {}: `{}` runs what waited and tells how the \
         rest ended",
        counted(jobs, "job"),
        place.up_command()
    )
}

/// A controller that failed is being started again: it is there in a moment.
fn dial_patiently(instance: &Instance) -> anyhow::Result<Link> {
    let patience = Instant::now() + RESTART_PATIENCE;
    loop {
        match dial(instance) {
            Err(error)
                if error.is::<std::io::Error>()
                    && Instant::now() < patience
                    && is_supervised(instance) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// How long a verb waits for a controller that is being started again.
const RESTART_PATIENCE: Duration = Duration::from_secs(5);

/// Connects to a running instance; starts a private one, and says so, if there is none.
///
/// # Errors
/// If one can't be started.
pub fn connect_or_start() -> anyhow::Result<Link> {
    let instance = Instance::locate();
    match dial(&instance) {
        Ok(link) => return Ok(link),
        Err(error) if error.is::<NotOurs>() => return Err(error),
        Err(_) if instance.private => instance.check_owner()?,
        Err(_) if !instance.private && !nix::unistd::geteuid().is_root() => {
            return wait_for_system(&instance);
        }
        Err(_) => {}
    }
    if let Some(started) = start_again(&instance)? {
        say!("tutti: {}", what_started(&instance));
        for note in started.notes() {
            say!("tutti: {note}");
        }
    }
    dial(&instance).context("the instance started, but does not answer")
}

/// Starts an instance for a job: the system's by systemd, if it is a service already. Otherwise its
/// supervisor would take the place that systemd tries to give to the next one of the service.
fn start_again(instance: &Instance) -> anyhow::Result<Option<Started>> {
    match Service::of(instance).filter(Service::is_installed) {
        Some(service) => service.start_again().map(|()| Some(Started::default())),
        None => start_daemon(instance),
    }
}

/// Which instance was started for a job. Root also starts the system's anew, if its socket was
/// left.
fn what_started(instance: &Instance) -> String {
    let directory = instance.directory().display();
    match instance.private {
        true => format!(
            "started a private instance in {directory} (`tutti down` ends it; it ends by itself when idle)"
        ),
        false => format!(
            "started the system's instance in {directory} again, which had ended (`tutti down` ends it)"
        ),
    }
}

/// Its supervisor starts a controller that failed again.
fn wait_for_system(instance: &Instance) -> anyhow::Result<Link> {
    let patience = Instant::now() + SYSTEM_PATIENCE;
    loop {
        match dial(instance) {
            Err(error) if !error.is::<NotOurs>() && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) if !error.is::<NotOurs>() => {
                let reason = match is_supervised(instance) {
                    true => cannot_begin(instance),
                    false => format!(
                        "the system's instance in {} does not answer ({error:#}); have root start it again \
                         with `tutti up`, or set TUTTI_DIR for one of your own",
                        instance.directory().display()
                    ),
                };
                return Err(coded(Code::NoInstance, reason));
            }
            result => return result,
        }
    }
}

/// How long a system's instance that ought to be there may take to answer.
const SYSTEM_PATIENCE: Duration = Duration::from_secs(10);

/// Connects to this instance.
///
/// # Errors
/// If nothing answers there, or [`NotOurs`].
pub fn dial(instance: &Instance) -> anyhow::Result<Link> {
    let mut link = Link::new(state_dir::connect(&instance.controller_socket())?)?;
    link.greet(Role::Client);
    Ok(link)
}

/// An instance that was started.
#[derive(Debug, Default)]
pub struct Started {
    /// The unit of the service manager in which it is, if it had one made for itself.
    unit: Option<String>,
    /// Why the service manager, which is there, made none.
    refused: Option<String>,
}

impl Started {
    /// Whether its jobs end with the last session of this user.
    fn ends_with_session(&self) -> bool {
        self.unit.is_some() && ends_with_session()
    }

    /// What the user should know of how it was started.
    pub fn notes(&self) -> Vec<String> {
        let ends = self.ends_with_session().then(|| ENDS_WITH_SESSION.to_owned());
        let without = self.refused.as_ref().map(|why| {
            format!(
                "{why}; without a unit of its own, limits may not be enforced and jobs be suspended by signals: \
                 `tutti doctor` shows what works, `tutti down` and the next start try again"
            )
        });
        ends.into_iter().chain(without).collect()
    }
}

/// Starts the instance's supervisor in the background and waits until it takes jobs. Nothing if
/// another process was faster.
///
/// # Errors
/// If it can't be started; the text has what it said.
pub fn start_daemon(instance: &Instance) -> anyhow::Result<Option<Started>> {
    start_with(instance, &[])
}

/// The same for an instance that ends with the thread that calls this, whatever ends it.
///
/// # Errors
/// If it can't be started; the text has what it said.
pub(crate) fn start_daemon_that_ends_with_this(instance: &Instance) -> anyhow::Result<()> {
    start_with(instance, &["--end-with".into(), std::process::id().to_string()]).map(drop)
}

fn start_with(instance: &Instance, options: &[String]) -> anyhow::Result<Option<Started>> {
    check_kernel()?;
    // A lock or a pipe of the shell's that it held would stay held for as long as it lives.
    keep_all_open(false).context("cannot keep descriptors from the instance")?;
    let (mut ready, their_end) = std::io::pipe()?;
    let mut command = Command::new(own_program()?);
    command
        .arg("up")
        .arg("--daemon")
        .args(options)
        .env("TUTTI_DIR", instance.directory())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(their_end))
        // It leaves this session first of all: signals of this terminal are not for it.
        .stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start the instance")?;
    drop(command);
    let mut said = String::new();
    ready.read_to_string(&mut said)?;
    let said = said.trim();
    let (first, refused) = said.split_once('\n').unwrap_or((said, ""));
    let (word, unit) = first.split_once(' ').unwrap_or((first, ""));
    if word != READY {
        let _ = child.wait();
    }
    match word {
        READY => {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Ok(Some(Started { unit: some(unit), refused: some(refused) }))
        }
        RUNNING if unit.is_empty() => Ok(None),
        _ => {
            let said = if said.is_empty() { "it ended without a word" } else { said };
            Err(coded(Code::NotStarted, format!("the instance did not start: {said}")))
        }
    }
}

/// What a supervisor says when the instance takes jobs; its unit follows, if it is in one. The next
/// line says why it is in none, though there is a service manager.
pub const READY: &str = "ready";

/// What it says when another one was there before.
pub const RUNNING: &str = "running";

/// Starts an instance in the background, by systemd where that runs the machine, and waits until it
/// takes jobs. Nothing if it was up already.
///
/// # Errors
/// If it can't be started; the text has the reason.
pub fn start(instance: &Instance) -> anyhow::Result<Option<Started>> {
    match Service::of(instance) {
        Some(service) if !is_supervised(instance) => {
            service.start().map(|()| Some(Started::default()))
        }
        _ => start_daemon(instance),
    }
}
