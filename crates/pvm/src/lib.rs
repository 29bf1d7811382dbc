//! The resource manager of a virtual machine of PVM (`tutti pvm`).
//!
//! It runs beside a job that holds slots, as the command of `tutti alloc` does, so no switch stops
//! it or the daemons. To them it is a task that is resource manager, tasker and hoster at once.
//! What they ask it to start are steps of the job.
//!
//! - [`daemon`]: PVM's daemon, started and ended
//! - [`connection`]: the connection with it
//! - [`manager`], [`hosts`]: what is decided and answered, without I/O
//! - [`steps`]: front ends of what it starts
//! - [`part`], [`node`]: daemon and tasker on another node, seen from here and from there
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

mod collected;
mod complaints;
mod connection;
mod daemon;
mod hosts;
mod manager;
mod node;
mod notices;
mod part;
mod steps;
#[cfg(test)]
mod tests;

use anyhow::Context;
use complaints::Complaints;
use connection::Connection;
use daemon::Daemon;
use hosts::{Host, Hosts, Node};
use manager::{Batch, Manager, Order};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use part::{Part, Said};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};
use steps::{Spot, Step};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::membership::Place;
use tutti_wire::code::Code;
use tutti_wire::pvm::HOST_BITS;

pub use daemon::{NOT_INSTALLED, execute as execute_daemon, find as find_daemon};
pub use node::serve as serve_node;

/// How long steps that were asked to end may take, before the job ends them.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The virtual machine as this process serves it.
struct Machine {
    daemon: Daemon,
    connection: Option<Connection>,
    manager: Manager,
    /// On other nodes.
    parts: Vec<Part>,
    /// The program that starts once all nodes are hosts, and the name of its node.
    waiting: Option<(Vec<OsString>, String)>,
    program: Option<Child>,
    /// Its exit code, once it has ended.
    code: Option<u8>,
    steps: Vec<Step>,
    complaints: Complaints,
    signals: SignalFd,
    /// Since when all is being ended.
    ending: Option<Instant>,
    /// Where tasks start beside this process.
    here: Spot,
}

/// Starts a virtual machine in the job of the environment, and a program in it. Gives the program's
/// exit code when it and the tasks that it has spawned have ended.
///
/// # Errors
/// If PVM is not installed, or its daemon can't be started.
pub fn manage(command: &[OsString]) -> anyhow::Result<Exit> {
    let job = job()?;
    let signals = taken_signals()?;
    let daemon = Daemon::start(command.first().map(OsString::as_os_str), job.address)?;
    let mut connection = Connection::open(daemon.socket(), daemon.directory())?;
    let host = connection.register()?;
    let host = Host { name: job.here, slots: job.slots_here, ..host };
    let first = host.name.clone();
    let variables = daemon.variables();
    let mut machine = Machine {
        here: Spot { node: (!job.others.is_empty()).then_some(first), variables },
        waiting: Some((command.to_vec(), job.program_on)),
        manager: Manager::new(Hosts::new(vec![host], job.others), steps::room()),
        parts: Vec::new(),
        connection: Some(connection),
        daemon,
        program: None,
        code: None,
        steps: Vec::new(),
        complaints: Complaints::default(),
        signals,
        ending: None,
    };
    let orders = machine.manager.begin();
    machine.carry_out(orders);
    machine.serve()
}

/// The job around this process.
struct Job {
    /// The name of this node.
    here: String,
    /// Slots that the job has here.
    slots_here: usize,
    /// Where other nodes reach this one, if the job has others.
    address: Option<Ipv4Addr>,
    /// The node on which the program starts.
    program_on: String,
    /// Its other nodes.
    others: Vec<Node>,
}

/// What the environment tells of the job.
fn job() -> anyhow::Result<Job> {
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let (Some(names), Some(slots)) = (variable("TUTTI_NODELIST"), variable("TUTTI_NODE_SLOTS"))
    else {
        let reason = "there is no job around this process; `tutti pvm` starts one";
        return Err(coded(Code::BadValue, reason));
    };
    let addresses = variable("TUTTI_NODE_ADDRESSES").unwrap_or_default();
    let mut addresses = addresses.split(',');
    let mut nodes = Vec::new();
    for (name, slots) in names.split(',').zip(slots.split(',')) {
        let slots = slots.parse().context("TUTTI_NODE_SLOTS has no numbers")?;
        let address = addresses.next().unwrap_or_default().to_owned();
        nodes.push(Node { name: name.to_owned(), address, slots });
    }
    let here = match Place::of(&Instance::locate()).membership() {
        Ok(Some(membership)) => membership.name,
        Ok(None) => nodes[0].name.clone(),
        // Only root may read it. One of the nodes is here if its address is.
        Err(_) => match nodes.iter().find(|node| is_own(&node.address)) {
            Some(node) => node.name.clone(),
            None => host_name(),
        },
    };
    let own = nodes.iter().position(|node| node.name == here).map(|at| nodes.remove(at));
    let program_on = own.as_ref().or(nodes.first()).map(|node| node.name.clone());
    for node in &mut nodes {
        node.address = resolved(&node.name, &node.address)?.to_string();
    }
    let address = match (&own, nodes.first()) {
        (_, None) => None,
        (Some(own), _) => Some(resolved(&own.name, &own.address)?),
        (None, Some(other)) => Some(own_address(&other.address)?),
    };
    Ok(Job {
        slots_here: own.map_or(0, |node| node.slots),
        address,
        program_on: program_on.unwrap_or_default(),
        others: nodes,
        here,
    })
}

/// Whether an address is one of this machine.
fn is_own(address: &str) -> bool {
    let mut found = (address, 0).to_socket_addrs().into_iter().flatten();
    found.any(|it| UdpSocket::bind((it.ip(), 0)).is_ok())
}

fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The address of a node, as PVM takes it.
fn resolved(node: &str, address: &str) -> anyhow::Result<Ipv4Addr> {
    let found = (address, 0).to_socket_addrs().into_iter().flatten().find_map(|it| match it.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let reason = || format!("PVM needs an IPv4 address of node {node}, which has {address:?}");
    found.ok_or_else(|| coded(Code::BadValue, reason()))
}

/// The address by which this machine reaches another.
fn own_address(other: &str) -> anyhow::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // No message is sent.
    socket.connect((other, 9))?;
    match socket.local_addr()? {
        SocketAddr::V4(address) => Ok(*address.ip()),
        SocketAddr::V6(_) => anyhow::bail!("PVM needs an IPv4 address"),
    }
}

/// Signals that are read instead of heeded. `^C` is for the program.
fn taken_signals() -> anyhow::Result<SignalFd> {
    use Signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let set: SigSet = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD].into_iter().collect();
    set.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&set, flags)?)
}

impl Machine {
    fn serve(mut self) -> anyhow::Result<Exit> {
        while !self.is_over() {
            self.start_if_settled()?;
            self.wait()?;
            self.on_signals()?;
            self.on_messages();
            self.on_parts();
            self.on_steps();
            self.end_if_due();
        }
        if let Some(rest) = self.complaints.rest() {
            say!("tutti: {rest}");
        }
        let ending: Vec<_> = self.parts.into_iter().map(Part::end).collect();
        self.daemon.end();
        ending.into_iter().for_each(|part| drop(part.join()));
        Ok(Exit::of_job(self.code.unwrap_or(1)))
    }

    /// Whether nothing is left to be waited for.
    fn is_over(&self) -> bool {
        let is_late = self.ending.is_some_and(|since| since.elapsed() > END_PATIENCE);
        let is_ended = self.code.is_some() || (self.ending.is_some() && self.program.is_none());
        is_ended && (self.steps.is_empty() || is_late)
    }

    /// Starts the program once all nodes are hosts, or are known not to be.
    fn start_if_settled(&mut self) -> anyhow::Result<()> {
        let is_due = self.manager.is_settled() && self.ending.is_none();
        let Some((command, node)) = self.waiting.take_if(|_| is_due) else { return Ok(()) };
        for name in self.manager.nodes_without() {
            say!("tutti: node {name} is no host of the virtual machine: its slots stay free");
        }
        let host = self.manager.start_program(&node);
        let spot = host.and_then(|host| self.spot(host)).with_context(|| {
            format!("node {node} has no daemon of PVM, so the program can't start there")
        })?;
        self.program = Some(steps::start_program(&command, &spot)?);
        Ok(())
    }

    /// Where tasks of a host start.
    fn spot(&self, host: u32) -> Option<Spot> {
        match self.parts.iter().find(|part| part.host == host) {
            Some(part) => part.spot(),
            None => self.manager.is_first(host).then(|| self.here.clone()),
        }
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.connection.as_ref().map(Connection::poll));
        fds.extend(self.parts.iter().filter_map(Part::poll));
        let open = self.steps.iter().filter(|step| step.is_open());
        fds.extend(open.map(|step| PollFd::new(step.as_fd(), PollFlags::POLLIN)));
        let takes = self.connection.as_ref().is_none_or(Connection::takes_more);
        let outputs = self.steps.iter().filter_map(Step::output).filter(|_| takes);
        fds.extend(outputs.map(|output| PollFd::new(output, PollFlags::POLLIN)));
        let time =
            if self.ending.is_some() { PollTimeout::from(1000u16) } else { PollTimeout::NONE };
        match poll(&mut fds, time) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn on_signals(&mut self) -> anyhow::Result<()> {
        while let Ok(Some(found)) = self.signals.read_signal() {
            let number = i32::try_from(found.ssi_signo).ok();
            match number.and_then(|it| Signal::try_from(it).ok()) {
                Some(Signal::SIGTERM | Signal::SIGHUP) => self.end_all(),
                Some(Signal::SIGCHLD) => self.on_child()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn on_child(&mut self) -> anyhow::Result<()> {
        if let (None, Some(program)) = (self.code, &mut self.program)
            && let Some(status) = program.try_wait()?
        {
            self.code = Some(steps::code_of(status));
            self.manager.on_end_of_program();
        }
        Ok(())
    }

    fn on_messages(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let is_open = connection.receive();
        let mut orders = Vec::new();
        while let Some(message) = connection.next() {
            orders.extend(self.manager.on_message(message));
        }
        self.carry_out(orders);
        let is_open = is_open && self.connection.as_mut().is_some_and(Connection::flush);
        if !is_open {
            // `pvm_halt`, or the daemon has failed.
            self.connection = None;
            if self.ending.is_none() && self.daemon.has_failed() {
                say!("tutti: the virtual machine has ended, since PVM's daemon has failed");
            }
            self.end_steps();
        }
    }

    fn on_parts(&mut self) {
        let mut orders = Vec::new();
        for part in &mut self.parts {
            for said in part.exchange() {
                orders.extend(match said {
                    Said::Line(line) => self.manager.on_line(part.host, Some(line)),
                    Said::Ready(tasker) => self.manager.on_ready(tasker),
                    Said::Heard(message) => self.manager.on_message_of(part.host, &message),
                });
            }
        }
        let ended: Vec<u32> =
            self.parts.iter().filter(|part| !part.is_open()).map(|part| part.host).collect();
        for host in ended {
            self.end_part(host);
            orders.extend(self.manager.on_end_of_host(host));
        }
        self.carry_out(orders);
    }

    fn end_part(&mut self, host: u32) {
        let at = self.parts.iter().position(|part| part.host == host);
        if let Some(part) = at.map(|at| self.parts.swap_remove(at)) {
            drop(part.end());
        }
    }

    fn on_steps(&mut self) {
        let mut orders = Vec::new();
        for step in &mut self.steps {
            if self.connection.as_ref().is_none_or(Connection::takes_more) {
                let lines = step.read_output();
                self.connection
                    .iter_mut()
                    .for_each(|it| lines.iter().for_each(|line| it.send(line)));
            }
            for (task, status) in step.read_ends() {
                orders.extend(self.manager.on_end_of_process(task, status));
            }
            let declined = step.take_declined();
            let line = declined.and_then(|why| self.complaints.line(Instant::now(), &why));
            line.into_iter().for_each(|line| say!("{line}"));
        }
        self.steps.retain_mut(|step| !step.is_over());
        self.carry_out(orders);
        if let Some(connection) = &mut self.connection {
            connection.flush();
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Send(message) => {
                    self.connection.iter_mut().for_each(|it| it.send(&message));
                }
                Order::Report { host, message } => {
                    match self.parts.iter_mut().find(|part| part.host == host) {
                        Some(part) => part.send(&message),
                        None => self.connection.iter_mut().for_each(|it| it.send(&message)),
                    }
                }
                Order::Start(batch) => self.start(&batch),
                Order::Complain(reason) => {
                    let line = self.complaints.line(Instant::now(), &reason);
                    line.into_iter().for_each(|line| say!("{line}"));
                }
                Order::StartHost { host, node, command } => {
                    match Part::start(host & HOST_BITS, node, &command) {
                        Ok(part) => self.parts.push(part),
                        Err(error) => {
                            say!("tutti: cannot start PVM's daemon: {error:#}");
                            let orders = self.manager.on_line(host, None);
                            self.carry_out(orders);
                        }
                    }
                }
                Order::EndHost(host) => {
                    self.end_part(host);
                    let of_host = self.steps.iter_mut().filter(|step| step.host == host);
                    of_host.for_each(Step::ask_to_end);
                }
            }
        }
    }

    fn start(&mut self, batch: &Batch) {
        if self.ending.is_some() {
            // What runs is being ended, and so would this be.
            return;
        }
        let spot = self.spot(batch.host).context("its host is gone");
        match spot.and_then(|spot| steps::start(batch, &spot)) {
            Ok(step) => self.steps.push(step),
            Err(error) => {
                let line = self.complaints.line(Instant::now(), &format!("{error:#}"));
                line.into_iter().for_each(|line| say!("{line}"));
                for &(task, _) in &batch.tasks {
                    let no_output = batch.output.map(|to| manager::output(to, task, None));
                    self.carry_out(no_output.map(Order::Send).into_iter().collect());
                    let end = self.manager.on_end_of_process(task, steps::NOT_STARTED);
                    self.carry_out(end);
                }
            }
        }
    }

    /// Ends what is left once the program has ended: at once if it has failed, and what only
    /// serves the others when those have ended.
    fn end_if_due(&mut self) {
        let Some(code) = self.code else { return };
        let is_done = self.steps.iter().all(Step::is_server);
        if (code != 0 || is_done) && self.ending.is_none() {
            self.end_steps();
        }
    }

    fn end_all(&mut self) {
        if let (None, Some(program)) = (self.code, &self.program) {
            steps::ask_to_end(program);
        }
        self.end_steps();
    }

    fn end_steps(&mut self) {
        self.ending.get_or_insert_with(Instant::now);
        self.steps.iter_mut().for_each(Step::ask_to_end);
    }
}
