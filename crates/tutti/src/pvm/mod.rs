//! The resource manager of a virtual machine of PVM (`tutti pvm`).
//!
//! It runs beside a job that holds slots, as the command of `tutti alloc` does, so no switch stops
//! it or the daemons. To them it is a task that is resource manager and tasker at once. What they
//! ask it to start are steps of the job.
//!
//! - [`daemon`]: PVM's daemon, started and ended
//! - [`connection`]: the connection with it
//! - [`manager`]: what is decided and answered, without I/O
//! - [`steps`]: front ends of what it starts

mod connection;
mod daemon;
mod manager;
mod notices;
mod steps;
#[cfg(test)]
mod tests;

use anyhow::Context;
use connection::Connection;
use daemon::Daemon;
use manager::{Host, Manager, Order};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};
use steps::{Program, Step};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::membership::Place;
use tutti_wire::code::Code;

pub(crate) use daemon::{NOT_INSTALLED, execute as execute_daemon, find as find_daemon};

/// How long steps that were asked to end may take, before the job ends them.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The virtual machine as this process serves it.
struct Machine {
    daemon: Daemon,
    connection: Option<Connection>,
    manager: Manager,
    program: Child,
    /// Its exit code, once it has ended.
    code: Option<u8>,
    steps: Vec<Step>,
    signals: SignalFd,
    /// Since when all is being ended.
    ending: Option<Instant>,
}

/// Starts a virtual machine in the job of the environment, and a program in it. Gives the program's
/// exit code when it and the tasks that it has spawned have ended.
///
/// # Errors
/// If PVM is not installed, or its daemon can't be started.
pub(crate) fn manage(command: &[OsString]) -> anyhow::Result<Exit> {
    let (name, slots) = node_of_job()?;
    let daemon = Daemon::start(command.first().map(OsString::as_os_str))?;
    let mut connection = Connection::open(&daemon)?;
    let host = connection.register()?;
    let host = Host { name, slots, ..host };
    let signals = taken_signals()?;
    let program = steps::start_program(&Program { command, daemon: &daemon })?;
    let machine = Machine {
        manager: Manager::new(vec![host]),
        connection: Some(connection),
        daemon,
        program,
        code: None,
        steps: Vec::new(),
        signals,
        ending: None,
    };
    machine.serve()
}

/// The node of the job that the environment tells of, and its slots.
fn node_of_job() -> anyhow::Result<(String, usize)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let (Some(names), Some(slots)) = (variable("TUTTI_NODELIST"), variable("TUTTI_SLOTS")) else {
        let reason = "there is no job around this process; `tutti pvm` starts one";
        return Err(coded(Code::BadValue, reason));
    };
    let here = Place::of(&Instance::locate()).membership()?.map(|it| it.name);
    if names.contains(',') || here.as_ref().is_some_and(|here| *here != names) {
        let here = here.unwrap_or_default();
        let reason = format!(
            "`tutti pvm` works on the node where it is started, {here}; this job has {names}: ask \
             for it by -w {here}"
        );
        return Err(coded(Code::BadValue, reason));
    }
    Ok((names, slots.parse().context("TUTTI_SLOTS is no number")?))
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
            self.wait()?;
            self.on_signals()?;
            self.on_messages();
            self.on_steps();
            self.end_if_due();
        }
        self.daemon.end();
        Ok(Exit::of_job(self.code.unwrap_or(1)))
    }

    /// Whether nothing is left to be waited for.
    fn is_over(&self) -> bool {
        let is_late = self.ending.is_some_and(|since| since.elapsed() > END_PATIENCE);
        self.code.is_some() && (self.steps.is_empty() || is_late)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.connection.as_ref().map(Connection::poll));
        let open = self.steps.iter().filter(|step| step.is_open());
        fds.extend(open.map(|step| PollFd::new(step.as_fd(), PollFlags::POLLIN)));
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
        if self.code.is_none()
            && let Some(status) = self.program.try_wait()?
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

    fn on_steps(&mut self) {
        let mut orders = Vec::new();
        for step in &mut self.steps {
            for (task, status) in step.read_ends() {
                orders.extend(self.manager.on_end_of_process(task, status));
            }
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
                Order::Start(batch) => match steps::start(&batch, &self.daemon) {
                    Ok(step) => self.steps.push(step),
                    Err(error) => {
                        say!("tutti: cannot start tasks of PVM: {error:#}");
                        for (task, _) in batch.tasks {
                            let end = self.manager.on_end_of_process(task, steps::NOT_STARTED);
                            self.carry_out(end);
                        }
                    }
                },
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
        if self.code.is_none() {
            steps::ask_to_end(&self.program);
        }
        self.end_steps();
    }

    fn end_steps(&mut self) {
        self.ending.get_or_insert_with(Instant::now);
        self.steps.iter_mut().for_each(Step::ask_to_end);
    }
}
