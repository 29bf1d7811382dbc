//! `tutti up` and `tutti down`.

use super::cluster::{address_of_this_machine, invitation, refuse_if_nowhere, with_port};
use super::submit::order;
use super::upgrade::upgrade;
use crate::supervise::{self, SetAside};
use anyhow::Context;
use clap::Args;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tutti_client::output::{counted, print};
use tutti_client::patience::{begins_within, end_silent};
use tutti_client::{dial, duration, start_daemon};
use tutti_node::capability::check_kernel;
use tutti_node::codes::{code_of, coded, is_away};
use tutti_node::executable::own_path;
use tutti_node::exit::Exit;
use tutti_node::instance::{Instance, host_name, said_cluster};
use tutti_node::membership::{Membership, PORT, Place};
use tutti_node::order as tell_supervisor;
use tutti_node::presence;
use tutti_node::service::Service;
use tutti_secure::Admission;
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::units::format_duration_short;

const UP_EXAMPLES: &str = "\
Examples:
  tutti up                             for root the system's, else private
  tutti up --listen 192.0.2.1          the head of a cluster
  tutti up --foreground                for a service manager
  tutti up --fresh                     without the former state: what still
                                       runs of its jobs is external load";

const DOWN_EXAMPLES: &str = "\
Examples:
  tutti down                           asks before it ends jobs
  tutti down --yes                     does not ask, for scripts
  tutti down --leave-jobs              jobs go on without an instance, until the
                                       next `tutti up`
  tutti down --roll-out --grace 10m    jobs save their state, and come back with
                                       `tutti up`";

#[derive(Args, Debug)]
#[command(after_help = UP_EXAMPLES)]
pub(crate) struct UpArgs {
    /// Stay in the foreground; daemons log to standard error
    #[arg(long)]
    foreground: bool,

    /// Be the head of a cluster: listen for other machines at this address of this one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Name of this machine in the cluster [default: its host name]
    #[arg(long, value_name = "NAME", requires = "listen")]
    name: Option<String>,

    /// Let root of other machines be root in the cluster; otherwise root's requests from there are
    /// refused
    #[arg(long, requires = "listen")]
    trust_root: bool,

    /// Lifetime of the machines' certificates; they are renewed after two thirds of it [default: 30
    /// days]
    #[arg(long, value_name = "TIME", requires = "listen", value_parser = duration)]
    certificates: Option<Nanos>,

    /// Begin without the former state: jobs of it that run go on as external load, and its journal
    /// gets another name
    #[arg(long)]
    fresh: bool,

    #[arg(long, hide = true)]
    daemon: bool,

    /// The process that starts it, and with which it ends
    #[arg(long, hide = true, value_name = "PID", requires = "daemon")]
    end_with: Option<u32>,
}

pub(crate) fn up(args: &UpArgs) -> anyhow::Result<Exit> {
    let instance = Instance::to_start();
    if args.daemon {
        return supervise::daemon(&instance, args.end_with);
    }
    check_kernel()?;
    instance.check_owner()?;
    let Standing { membership, is_new } = args.standing(&instance)?;
    args.begin_anew(&instance)?;
    if args.foreground {
        return supervise::foreground(&instance);
    }
    let kind = if instance.private { "private" } else { "system" };
    let directory = instance.directory().display().to_string();
    if let Some(membership) = &membership
        && is_new
        && presence::is_supervised(&instance)
    {
        go_on_as_head(&instance, membership)?;
        print(&format!(
            "the {kind} instance in {directory} is the head of cluster {} now; its jobs run on\n",
            membership.cluster
        ))?;
        return print_invitation(&instance, membership);
    }
    let started = tutti_client::start(&instance)?;
    if let Some(hidden) = instance.hidden() {
        say!("tutti: {}", hidden.hidden_note());
    }
    let Some(started) = started else {
        print(&format!("the {kind} instance in {directory} was up already\n"))?;
        return Ok(Exit::OK);
    };
    let what = match &membership {
        Some(membership) if membership.head.is_empty() => {
            format!("the head of cluster {} is up in {directory}", membership.cluster)
        }
        Some(Membership { name, cluster, is_client, .. }) => {
            let what = if *is_client { "client machine" } else { "node" };
            format!("{name}, a {what} of cluster {cluster}, is up in {directory}")
        }
        None if instance.private => format!(
            "the {kind} instance in {directory} is up, for you alone; it ends by itself when idle"
        ),
        None => {
            format!("the {kind} instance in {directory} is up, for all users of this machine")
        }
    };
    let others = match membership.is_none() && !instance.private {
        true => {
            format!("; `tutti up --listen {}` lets other machines join", address_of_this_machine())
        }
        false => String::new(),
    };
    print(&format!(
        "{what}\nnext: `tutti run -n 2 COMMAND`, `tutti ps`, `tutti doctor`; `tutti down` ends it{others}\n"
    ))?;
    for note in started.notes() {
        print(&format!("{note}\n"))?;
    }
    if let Some(service) = Service::of(&instance) {
        print(&format!(
            "systemd starts it with the machine; what it has to say: `{}`\n",
            service.journal_hint()
        ))?;
    }
    match membership.filter(|membership| membership.head.is_empty()) {
        Some(membership) => print_invitation(&instance, &membership),
        None => Ok(Exit::OK),
    }
}

fn print_invitation(instance: &Instance, membership: &Membership) -> anyhow::Result<Exit> {
    let token = Place::of(instance).invite(Admission::Node, INVITATION)?;
    print(&invitation(membership, "", &token, INVITATION))?;
    Ok(Exit::OK)
}

/// Controller and agent begin anew as those of the cluster that was founded for them, as at an
/// upgrade: jobs run on.
fn go_on_as_head(instance: &Instance, membership: &Membership) -> anyhow::Result<()> {
    let listens = || {
        let address = membership.listen.as_deref().unwrap_or_default();
        TcpStream::connect(address).is_ok()
    };
    let went = own_path().and_then(|program| upgrade(instance, &program));
    if went.is_err() && !listens() {
        // It goes on as it was, and is to begin so again.
        Place::of(instance).forget()?;
    }
    went.map(drop)
}

/// What a machine is in a cluster, and whether it has just become that.
struct Standing {
    membership: Option<Membership>,
    is_new: bool,
}

/// How long the token is good for that is printed at the beginning.
const INVITATION: Duration = Duration::from_secs(3600);

impl UpArgs {
    /// With `--fresh`: sets the former state of an instance aside, and prints where it is.
    fn begin_anew(&self, instance: &Instance) -> anyhow::Result<()> {
        if !self.fresh {
            return Ok(());
        }
        let SetAside { journal, until } = supervise::set_aside(instance)?;
        let kept = journal.map_or_else(
            || "there was no former state".into(),
            |journal| format!("the journal of the former state is {}", journal.display()),
        );
        let released = match until.0 {
            0 => String::new(),
            last => {
                format!(
                    "; jobs up to {last} are released: what still runs of them is external load"
                )
            }
        };
        print(&format!("{kept}{released}\n"))
    }

    /// What the machine is in a cluster, from now on: what it is known to be, or the head of a new
    /// one.
    fn standing(&self, instance: &Instance) -> anyhow::Result<Standing> {
        let place = Place::of(instance);
        let known = place.membership()?;
        let Some(listen) = &self.listen else {
            return Ok(Standing { membership: known, is_new: false });
        };
        refuse_if_nowhere(listen)?;
        let address = match &known {
            Some(known) if is_at(known, listen) => known.listen.clone().unwrap_or_default(),
            _ => free_address(listen)?,
        };
        let wanted = Membership {
            cluster: cluster_name()?,
            name: self.name.clone().unwrap_or_else(host_name),
            listen: Some(address.clone()),
            address: Some(address),
            head: Vec::new(),
            trusts_root: self.trust_root,
            is_client: false,
            certificates_s: self.certificates.map(|lifetime| (lifetime.0 / 1_000_000_000).max(1)),
        };
        match known {
            Some(known) if !known.head.is_empty() => {
                let reason = format!(
                    "this machine is a node of cluster {}; `tutti leave` takes it out",
                    known.cluster
                );
                return Err(coded(Code::Membership, reason));
            }
            Some(known) if known.name != wanted.name => {
                let reason = format!(
                    "this machine is called {} in cluster {}; leave --name out, or `tutti leave` and \
                     begin a new one",
                    known.name, known.cluster
                );
                return Err(coded(Code::Membership, reason));
            }
            Some(known) => {
                let wanted = Membership {
                    cluster: known.cluster.clone(),
                    certificates_s: wanted.certificates_s.or(known.certificates_s),
                    ..wanted.clone()
                };
                if wanted != known {
                    refuse_if_up(instance)?;
                }
                place.keep(&wanted)?;
            }
            None => {
                // By another name its jobs would be those of another machine, which is not there
                // any more.
                if self.foreground || wanted.name != host_name() {
                    refuse_if_up(instance)?;
                }
                instance.prepare()?;
                if !place.found(&wanted)? {
                    // Another process has done so meanwhile, and is believed.
                    return Ok(Standing { membership: place.membership()?, is_new: false });
                }
                return Ok(Standing { membership: Some(wanted), is_new: true });
            }
        }
        Ok(Standing { membership: Some(wanted), is_new: false })
    }
}

/// An instance that runs goes on as it began: what it is to be from now on would be true of none.
fn refuse_if_up(instance: &Instance) -> anyhow::Result<()> {
    if presence::is_supervised(instance) {
        let reason = "the instance runs, and not as that says; end it first with `tutti down`";
        return Err(coded(Code::Membership, reason));
    }
    Ok(())
}

/// Whether a head listens where it is told to already: at the port that it has, if none is named.
fn is_at(known: &Membership, listen: &str) -> bool {
    let at = |address: &str| known.listen.as_deref() == Some(address);
    let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let has_default = with_port(listen) != listen;
    at(&with_port(listen))
        || has_default && known.listen.as_deref().and_then(host) == host(&with_port(listen))
}

/// The address with a free port: the usual one, or one of the next if another cluster has
/// that and none is named.
pub(super) fn free_address(listen: &str) -> anyhow::Result<String> {
    let usual = with_port(listen);
    let ports = match usual == listen {
        true => 0,
        false => PORTS_TRIED,
    };
    let host = usual.strip_suffix(&format!(":{PORT}")).unwrap_or(&usual);
    let others = (PORT + 1..=PORT + ports).map(|port| format!("{host}:{port}"));
    let mut why = None;
    for address in std::iter::once(usual.clone()).chain(others) {
        match TcpListener::bind(&address) {
            Ok(_) => return Ok(address),
            Err(error) if error.kind() == ErrorKind::AddrInUse => why = Some(error),
            Err(error) => {
                why = Some(error);
                break;
            }
        }
    }
    let why = why.map_or_else(String::new, |error| format!(": {error}"));
    let reason =
        format!("cannot listen at {usual}{why}; name another address of this machine, or a port");
    Err(coded(Code::BadValue, reason))
}

/// So many clusters may have a head on one machine without a word about ports.
const PORTS_TRIED: u16 = 100;

fn cluster_name() -> anyhow::Result<String> {
    Ok(said_cluster()?.map_or_else(|| "tutti".into(), |name| name.to_string()))
}

#[derive(Args, Debug)]
#[command(after_help = DOWN_EXAMPLES)]
pub(crate) struct DownArgs {
    /// Do not ask before jobs are ended
    #[arg(short, long)]
    yes: bool,

    /// Roll jobs out before: they save their state or start again after `tutti up`, as each can
    #[arg(long, conflicts_with = "forget")]
    roll_out: bool,

    /// How long that may take; jobs that are left are ended then
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    #[arg(requires = "roll_out")]
    grace: Nanos,

    /// Leave running jobs running, without an instance: `tutti up` goes on with them, `tutti up
    /// --fresh` starts without them
    #[arg(long, conflicts_with_all = ["roll_out", "forget"])]
    leave_jobs: bool,

    /// Delete queued jobs, history and parameters of your private instance, also after it has ended
    #[arg(long)]
    forget: bool,
}

pub(crate) fn down(args: &DownArgs) -> anyhow::Result<Exit> {
    let instance = Instance::locate();
    if args.forget && !instance.private {
        let reason = format!(
            "--forget is for a private instance; the journal of this one is {}",
            instance.journal_path().display()
        );
        return Err(coded(Code::NotAllowed, reason));
    }
    if args.leave_jobs {
        return leave_jobs(&instance);
    }
    let loses_queue = args.forget || !instance.keeps_journal();
    if !args.yes && !args.roll_out && !may_end(&instance, loses_queue)? {
        say!("tutti: nothing was ended");
        return Ok(Exit::FAILED);
    }
    let roll_out = args.roll_out.then_some(args.grace);
    let exit = end(&instance, loses_queue, roll_out)?;
    if roll_out.is_some() {
        // A machine that starts again is to have its jobs again.
        return Ok(exit);
    }
    if args.forget {
        supervise::forget(&instance)?;
    }
    // One that failed, and is started again and again, has no socket to be found by.
    let service = Service::of(&instance).or_else(|| Service::of(&Instance::to_start()));
    if let Some(service) = service {
        service.stop()?;
    }
    Ok(exit)
}

/// Ends an instance but for its keeper and its jobs.
fn leave_jobs(instance: &Instance) -> anyhow::Result<Exit> {
    instance.open()?;
    instance.check_owner()?;
    tell_supervisor::leave(instance).context("the instance goes on")?;
    let patience = Instant::now() + PATIENCE;
    while presence::is_supervised(instance) {
        anyhow::ensure!(Instant::now() < patience, "the supervisor does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    print(&format!(
        "the instance in {} is down, and its jobs go on; `tutti up` goes on with them, `tutti up --fresh` starts \
         without them\n",
        instance.directory().display()
    ))?;
    Ok(Exit::OK)
}

/// Asks on a terminal whether the jobs of an instance may be ended, if it has any.
fn may_end(instance: &Instance, loses_queue: bool) -> anyhow::Result<bool> {
    use std::io::IsTerminal;
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(true);
    }
    instance.open()?;
    let jobs = jobs_of(instance);
    let Some(what) = jobs.and_then(|jobs| jobs.named(loses_queue)) else { return Ok(true) };
    say!("tutti: this ends {what}; go on? [y/N]");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// How long a daemon may take for an answer before it is taken to hang.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Ends a daemon that takes questions and answers none: its supervisor starts another.
fn replace_silent(instance: &Instance) {
    let Ok(mut link) = dial(instance) else { return };
    // Any question that is answered without others.
    link.send(&Request::Weights);
    if begins_within(&mut link, ANSWERS_WITHIN) || !presence::is_supervised(instance) {
        return;
    }
    if let Some(daemon) = end_silent(&link) {
        let seconds = ANSWERS_WITHIN.as_secs();
        say!("tutti: {daemon} did not answer for {seconds} s and is ended; another one starts");
    }
}

/// How many jobs an instance has.
#[derive(Clone, Copy)]
struct Jobs {
    /// Those that have processors.
    resident: u32,
    queued: u32,
}

/// The jobs of an instance, if it answers.
fn jobs_of(instance: &Instance) -> Option<Jobs> {
    let mut link = dial(instance).ok()?;
    link.send(&Request::Status);
    if !begins_within(&mut link, ANSWERS_WITHIN) {
        return None;
    }
    match link.call() {
        Ok(Reply::Status(status)) => {
            Some(Jobs { resident: status.resident, queued: status.queued })
        }
        _ => None,
    }
}

impl Jobs {
    /// What goes with the instance: queued jobs stay in a journal that is kept.
    fn named(self, loses_queue: bool) -> Option<String> {
        let queued = if loses_queue { self.queued } else { 0 };
        let counted = |count: u32, what: &str| {
            (count > 0).then(|| counted(u64::from(count), &format!("{what} job")))
        };
        let all = [counted(self.resident, "running"), counted(queued, "queued")];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }
}

/// How long a controller that has just failed may take to be there again, if it can begin at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for a controller that has just failed, if it is started again; false if that still goes on
/// by then.
fn await_controller(instance: &Instance, patience: Instant) -> bool {
    while !instance.answers() && presence::is_supervised(instance) {
        if Instant::now() >= patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Something keeps it from beginning, such as a journal that is damaged: the supervisor ends the
/// others. What waits stays in the journal.
fn end_without_controller(instance: &Instance) -> anyhow::Result<Exit> {
    presence::end(instance)?;
    print(&format!(
        "the instance in {} is down; its controller could not begin: see what it had to say\n",
        instance.directory().display()
    ))?;
    Ok(Exit::OK)
}

/// There was no instance; or it has died, and jobs that were to be rolled out may be lost.
fn end_without_instance(
    instance: &Instance,
    before: Option<Jobs>,
    rolls_out: bool,
) -> anyhow::Result<Exit> {
    let had_jobs = match before {
        Some(jobs) => jobs.resident > 0,
        // One that ended as it should has removed it.
        None => instance.controller_socket().exists() && instance.jobs_left() > 0,
    };
    // A client that finds its sockets would wait for it.
    let has_ended_jobs = supervise::clean_up_for_dead(instance);
    let directory = instance.directory().display();
    if rolls_out && had_jobs {
        let reason = format!(
            "the instance in {directory} died before its jobs were rolled out, and what became of them is not \
             known; `{}` goes on with those that are left, and `tutti ps` and `tutti history` show the others",
            instance.up_command()
        );
        return Err(coded(Code::NoInstance, reason));
    }
    let ended = match has_ended_jobs {
        true => "; ended what jobs its daemons had left when they were killed",
        false => "",
    };
    print(&format!("no instance runs in {directory}{ended}\n"))?;
    Ok(Exit::OK)
}

/// What is said before jobs are rolled out.
fn say_roll_out(before: Option<Jobs>, patience: Nanos) {
    let running = before.map_or(0, |jobs| jobs.resident);
    if running > 0 {
        say!(
            "tutti: {} rolled out, within {}; `tutti ps` shows those that are left",
            counted_are(running),
            format_duration_short(patience)
        );
    }
}

fn counted_are(running: u32) -> String {
    let verb = if running == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(u64::from(running), "running job"))
}

/// What became of the jobs that ran.
fn rolled_out(before: Option<Jobs>, left: u64) -> Option<String> {
    let Jobs { resident, queued } = before?;
    let out = left.saturating_sub(u64::from(queued)).min(u64::from(resident));
    let ended = u64::from(resident) - out;
    let ended = (ended > 0).then(|| format!("{} ended", counted(ended, "job")));
    let out = (out > 0).then(|| format!("{} rolled out", counted(out, "job")));
    let all: Vec<String> = out.into_iter().chain(ended).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn end(instance: &Instance, loses_queue: bool, roll_out: Option<Nanos>) -> anyhow::Result<Exit> {
    // What lies in another's directory says nothing of processes of ours.
    instance.open()?;
    if !instance.answers() {
        instance.check_owner()?;
    }
    replace_silent(instance);
    if Place::of(instance).membership()?.is_some_and(|membership| !membership.head.is_empty()) {
        await_controller(instance, Instant::now() + PATIENCE);
        if !presence::is_supervised(instance) && presence::has_keeper(instance) {
            // Something must end what a supervisor that failed has left.
            start_daemon(instance)?;
        }
        presence::end(instance)?;
        print(&format!("the node in {} is down\n", instance.directory().display()))?;
        return Ok(Exit::OK);
    }
    let before = jobs_of(instance);
    let ended = before.and_then(|jobs| jobs.named(loses_queue)).filter(|_| roll_out.is_none());
    if let Some(patience) = roll_out {
        say_roll_out(before, patience);
    }
    let mut patience = Instant::now() + PATIENCE;
    loop {
        let may_begin = await_controller(instance, patience);
        if !may_begin {
            return end_without_controller(instance);
        }
        if !instance.answers() && presence::has_keeper(instance) {
            // Its jobs are to end as in any other.
            start_daemon(instance)?;
        }
        if !instance.answers() {
            return end_without_instance(instance, before, roll_out.is_some());
        }
        let asked = Instant::now();
        match order(&Request::Down { roll_out }) {
            Ok(()) => break,
            // Jobs are rolled out by the next one: it may take as long to begin.
            Err(error) if is_away(code_of(&error)) && asked.elapsed() > PATIENCE => {
                patience = Instant::now() + PATIENCE;
            }
            // It has died since it was looked at.
            Err(error) if code_of(&error) == Code::NoInstance && Instant::now() < patience => {}
            // One that is being killed, or can't begin, takes connections until it is gone.
            Err(error) if !is_away(code_of(&error)) => return Err(error),
            Err(_) if Instant::now() < patience => {}
            Err(_) => return end_without_controller(instance),
        }
    }
    // The supervisor holds the lock until everything is gone.
    let patience = Instant::now() + Duration::from_secs(20);
    while presence::is_supervised(instance) {
        anyhow::ensure!(Instant::now() < patience, "the jobs are gone, but a daemon still runs");
        std::thread::sleep(Duration::from_millis(2));
    }
    supervise::clean_up_for_dead(instance);
    let ended = ended.map_or_else(String::new, |ended| format!("; ended with it: {ended}"));
    let waiting = if loses_queue { 0 } else { instance.jobs_left() };
    let out = roll_out.and_then(|_| rolled_out(before, waiting));
    let out = out.map_or_else(String::new, |out| format!("; {out}"));
    print(&format!("the instance in {} is down{ended}{out}\n", instance.directory().display()))?;
    if waiting > 0 {
        let waiting = counted(waiting, "job");
        print(&format!("{waiting} queued; `tutti up` goes on with what is left\n"))?;
    }
    if instance.log_file().exists() {
        print(&format!("its log is {}\n", instance.log_file().display()))?;
    }
    Ok(Exit::OK)
}
