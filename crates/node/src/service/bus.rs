//! Asking daemons of the machine over D-Bus, by `busctl`, the client that comes with systemd: it is
//! wherever systemd is, and what is asked is asked once, at the start of an instance.

use super::bounded;
use crate::state_dir;
use anyhow::bail;
use nix::unistd::geteuid;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tutti_linux::cgroup::is_systemd_here;
use tutti_linux::peer::peer_credentials;

/// Where the bus of the machine is.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// How long an answer may take, in seconds.
const WITHIN_S: u32 = 5;

/// How long the whole call may take: a bus that hangs takes no connection, and answers nothing.
const WITHIN: Duration = Duration::from_secs(WITHIN_S as u64 + 2);

/// A bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bus {
    /// That of the machine.
    System,
    /// That of this user's session manager, at this socket.
    User(PathBuf),
}

/// A method of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    pub service: &'static str,
    pub object: &'static str,
    pub interface: &'static str,
    pub name: &'static str,
    /// The types of what it takes.
    pub takes: &'static str,
}

impl Bus {
    /// The bus on which this user has a service manager; none where there is no such manager. Found
    /// by where it is, not by what the environment says: sessions of `su` and `cron` have no word
    /// of it.
    pub(super) fn of_manager() -> Option<Self> {
        let uid = geteuid();
        let bus = match uid.is_root() {
            true => Self::System,
            false => Self::User(Path::new("/run/user").join(uid.to_string()).join("bus")),
        };
        (is_systemd_here() && bus.knows_our_numbers()).then_some(bus)
    }

    /// Whether the numbers of processes mean the same at the other end: in a pid namespace of its
    /// own, this process would have another's number. The kernel gives 0 for one that can't be seen
    /// from here.
    fn knows_our_numbers(&self) -> bool {
        let socket = match self {
            Self::System => Path::new(SYSTEM_BUS),
            Self::User(socket) => socket,
        };
        let stream = state_dir::connect_within(socket, i64::from(WITHIN_S));
        stream.is_ok_and(|stream| peer_credentials(&stream).is_ok_and(|peer| peer.pid > 0))
    }

    /// Calls a method with arguments as `busctl` takes them: what it answers, in the same form.
    ///
    /// # Errors
    /// If there is no `busctl`, it does not end in time, or with what it says.
    pub(super) fn call<S: AsRef<str>>(
        &self,
        method: Method,
        arguments: &[S],
    ) -> anyhow::Result<String> {
        let mut command = Command::new("busctl");
        match self {
            Self::System => command.arg("--system"),
            Self::User(socket) => command.arg(format!("--address=unix:path={}", socket.display())),
        };
        let Method { service, object, interface, name, takes } = method;
        command.arg(format!("--timeout={WITHIN_S}")).arg("call").arg("--");
        command.args([service, object, interface, name, takes]);
        command.args(arguments.iter().map(S::as_ref));
        let output = bounded::run(&mut command, WITHIN)?;
        if !output.status.success() {
            bail!("{name} is refused: {}", output.stderr.trim());
        }
        Ok(output.stdout.trim().to_owned())
    }
}
