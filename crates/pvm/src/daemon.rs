//! PVM's daemon (`pvmd`) on this machine: found, started, ended.
//!
//! It listens on the loopback address, and in a directory of its own that is removed with it. So
//! any number of virtual machines stand beside each other, of one user too.

use anyhow::{Context, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::{Pid, geteuid, mkdtemp};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tutti_node::codes::coded;
use tutti_wire::code::Code;

/// Where Debian has PVM, for programs that look for parts of it.
const ROOT: &str = "/usr/lib/pvm3";

/// What is said where there is no PVM.
pub const NOT_INSTALLED: &str =
    "PVM is not installed: there is no pvmd; on Debian 12: apt-get install pvm";

/// How long the daemon may take to start, and to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum length of the path of its socket.
const SOCKET_BYTES_MAX: usize = 107;

/// Where the daemon looks for programs that are named without a path, after directories of the
/// user's program and of this process. The first two are PVM's own.
const SEARCHED: &str = "$HOME/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH:$PVM_ROOT/lib";

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    directory: Directory,
    socket: PathBuf,
}

/// A directory that is removed with what is in it.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    /// Makes one that no other user may enter.
    ///
    /// # Errors
    /// If there can be none.
    pub(super) fn make(within: &Path) -> anyhow::Result<Self> {
        let made = mkdtemp(&within.join("tutti-pvm-XXXXXX"));
        Ok(Self(made.context("no directory for PVM")?))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of the daemon, if PVM is installed.
pub fn find() -> Option<PathBuf> {
    let root = std::env::var_os("PVM_ROOT").map(|root| PathBuf::from(root).join("lib/pvmd"));
    let root = root.filter(|path| path.is_file());
    let usual = || Some(Path::new(ROOT).join("lib/pvmd")).filter(|path| path.is_file());
    root.or_else(|| in_path(OsStr::new("pvmd"))).or_else(usual)
}

/// The path of a program that is named without one.
fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|it| it.is_file())
}

impl Daemon {
    /// Starts it. Other daemons are to reach it at this address; without, it is alone.
    ///
    /// # Errors
    /// If PVM is not installed, or the daemon says that it can't start.
    pub(super) fn start(
        program: Option<&OsStr>,
        address: Option<Ipv4Addr>,
    ) -> anyhow::Result<Self> {
        let Some(path) = find() else {
            return Err(coded(Code::BadValue, NOT_INSTALLED));
        };
        let directory = Directory::make(Path::new("/tmp"))?;
        let hosts = directory.0.join("hosts");
        std::fs::write(&hosts, host_file(program))?;
        let mut command = Command::new(std::env::current_exe()?);
        let address = address.unwrap_or(Ipv4Addr::LOCALHOST);
        command.arg("pvm-daemon").arg(path).arg(format!("-n{address}")).arg(&hosts);
        command.envs(variables_at(&directory.0));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot start PVM's daemon")?;
        let out = child.stdout.take().context("PVM's daemon has no output")?;
        let socket = match first_line(out) {
            Ok(line) if line.starts_with(b"/") && line.len() <= SOCKET_BYTES_MAX => line,
            other => {
                let _ = child.kill();
                let _ = child.wait();
                let line = other.unwrap_or_default();
                bail!("PVM's daemon does not start: {}", String::from_utf8_lossy(&line));
            }
        };
        Ok(Self { child, directory, socket: PathBuf::from(OsString::from_vec(socket)) })
    }

    /// The socket at which tasks find it.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its directory, which no other user may enter.
    pub(super) fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// What its tasks have in their environment.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = variables_at(&self.directory.0);
        variables.push(("PVMSOCK".into(), self.socket.clone().into_os_string()));
        variables
    }

    /// Whether it has ended otherwise than by `pvm_halt`. Its connection has been closed before.
    pub(super) fn has_failed(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return !status.success(),
                Err(_) => return true,
            }
        }
        true
    }

    /// Ends it, and removes its directory.
    pub(super) fn end(mut self) {
        let until = Instant::now() + PATIENCE;
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Executes the daemon in this process, which ends with the one that has started it.
///
/// # Errors
/// If it can't be executed.
pub fn execute(command: &[OsString]) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("cannot hear of the end of the parent process")?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    let (program, arguments) = command.split_first().context("no program")?;
    Err(Command::new(program).args(arguments).exec().into())
}

/// What the daemon of this directory and its tasks have in their environment.
pub(super) fn variables_at(directory: &Path) -> Vec<(OsString, OsString)> {
    let root = std::env::var_os("PVM_ROOT").unwrap_or_else(|| ROOT.into());
    variables_of(root, directory)
}

/// The same, where PVM's own files are in another directory.
pub(super) fn variables_of(root: OsString, directory: &Path) -> Vec<(OsString, OsString)> {
    let mut variables =
        vec![("PVM_ROOT".into(), root), ("PVM_TMP".into(), directory.as_os_str().to_owned())];
    if geteuid().is_root() {
        // It is reached by this user alone.
        variables.push(("PVM_ALLOW_ROOT".into(), "1".into()));
    }
    variables
}

/// A host file of one line: where each daemon looks for programs.
fn host_file(program: Option<&OsStr>) -> Vec<u8> {
    let here = std::env::current_dir().ok();
    let program = program.and_then(|name| match name.as_bytes().contains(&b'/') {
        true => Path::new(name).canonicalize().ok(),
        false => in_path(name),
    });
    let of_program = program.as_deref().and_then(Path::parent);
    let mut line = b"* ep=".to_vec();
    for directory in of_program.into_iter().chain(here.as_deref()) {
        let bytes = directory.as_os_str().as_bytes();
        // Words of the file end at spaces, and `$` begins a variable.
        if !bytes.iter().any(|byte| byte.is_ascii_whitespace() || b":$#\\\"".contains(byte)) {
            line.extend_from_slice(bytes);
            line.push(b':');
        }
    }
    line.extend_from_slice(SEARCHED.as_bytes());
    line.push(b'\n');
    line
}

/// The first line, without its end.
pub(super) fn first_line(mut out: ChildStdout) -> anyhow::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= SOCKET_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        let millis = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let ready = poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLIN)], millis)?;
        if ready == 0 || out.read(&mut byte)? == 0 || byte == *b"\n" {
            break;
        }
        line.push(byte[0]);
    }
    Ok(line)
}
