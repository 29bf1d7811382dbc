//! What a virtual machine has on another node of its job: a daemon of PVM, and this process, which
//! is the daemon's tasker. It decides nothing: it passes messages between the daemon and the
//! manager.
//!
//! It runs outside of the job's group and turns, as the job's user. It becomes that user by itself
//! ([`tutti_node::helper_user`]), so that no process of the user takes it over. The program that it
//! starts is one that this user can't have written, with arguments that are checked.

use super::connection::Connection;
use super::daemon::{Directory, NOT_INSTALLED, PATIENCE, first_line, variables_of};
use anyhow::{Context, bail, ensure};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, geteuid};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};
use tutti_linux::proc::descendants;
use tutti_linux::subreaper::become_subreaper;
use tutti_node::codes::coded;
use tutti_node::helper_user::{become_user, user_of};
use tutti_wire::code::Code;

/// Where a daemon is looked for: places of the system.
const PLACES: [&str; 3] = ["/usr/lib/pvm3/lib/pvmd", "/usr/bin/pvmd", "/usr/local/bin/pvmd"];

/// What is said where the keeper has not started this.
const NOT_FOR_PEOPLE: &str = "this verb is for tutti pvm";

/// Longest directory that leaves room for the name of a socket.
const DIRECTORY_BYTES_MAX: usize = 70;

/// How long the daemon may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Serves as a part of a virtual machine, until the manager or the daemon ends.
///
/// # Errors
/// If the daemon can't be started.
pub fn serve(words: &[String]) -> anyhow::Result<()> {
    let [user, words @ ..] = words else { bail!(NOT_FOR_PEOPLE) };
    let user = user_of(user).context(NOT_FOR_PEOPLE)?;
    become_user(user.as_ref()).context("cannot become the user of the job")?;
    let arguments = arguments_of(words)?;
    let program = find()?;
    let signals: SigSet =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
    signals.thread_block()?;
    become_subreaper()?;
    let directory = Directory::make(Path::new(&usable(std::env::var_os("TMPDIR"))))?;
    let path = directory.path().to_owned();
    std::thread::spawn({
        let path = path.clone();
        move || {
            let _ = signals.wait();
            end(&path);
        }
    });
    let served = pass_on(&program, &arguments, &path);
    if let Err(error) = &served {
        say!("tutti: {error:#}");
    }
    end(&path)
}

/// Where directories are made: that of the job, unless its path is too long.
fn usable(directory: Option<std::ffi::OsString>) -> std::ffi::OsString {
    directory.filter(|it| it.len() <= DIRECTORY_BYTES_MAX).unwrap_or_else(|| "/tmp".into())
}

/// The arguments of the daemon. The manager has passed on what its own daemon has made of them.
fn arguments_of(words: &[String]) -> anyhow::Result<Vec<String>> {
    let is_plain = |word: &&String| {
        word.len() <= 64
            && word.bytes().all(|it| it.is_ascii_alphanumeric() || b":.-_".contains(&it))
    };
    let [slave, debug, name, rest @ ..] = words else { bail!(NOT_FOR_PEOPLE) };
    let is_known = slave == "-s" && debug.starts_with("-d0x") && name.starts_with("-n");
    let are_numbers =
        rest.iter().all(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'));
    let is_all = is_known && are_numbers && rest.len() == 5;
    ensure!(is_all && words.iter().all(|word| is_plain(&word)), "these are no arguments of pvmd");
    // The name is only for its log. The address is the last argument.
    let mut arguments = vec![slave.clone(), debug.clone(), format!("-n{}", address(&rest[4])?)];
    arguments.extend(rest.iter().cloned());
    Ok(arguments)
}

/// The address in `7f000002:0000`.
fn address(text: &str) -> anyhow::Result<std::net::Ipv4Addr> {
    let number = text.split(':').next().unwrap_or_default();
    let number = u32::from_str_radix(number, 16).context("no address of this node")?;
    Ok(number.into())
}

/// A daemon that belongs to the system.
fn find() -> anyhow::Result<PathBuf> {
    let is_the_systems = |path: &PathBuf| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|it| it.is_file() && it.uid() == 0 && it.mode() & 0o022 == 0)
    };
    let found = PLACES.iter().map(PathBuf::from).find(is_the_systems);
    found.ok_or_else(|| coded(Code::BadValue, NOT_INSTALLED))
}

fn start(program: &Path, arguments: &[String], directory: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables_of("/usr/lib/pvm3".into(), directory));
    command.env("PATH", "/usr/bin:/bin").env("HOME", "/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    // It reads its signals itself.
    let held = SigSet::thread_get_mask()?;
    SigSet::empty().thread_set_mask()?;
    let child = command.spawn();
    held.thread_set_mask()?;
    child.context("cannot start PVM's daemon")
}

/// Starts the daemon, becomes its tasker and passes messages on, until one side ends.
fn pass_on(program: &Path, arguments: &[String], directory: &Path) -> anyhow::Result<()> {
    let mut child = start(program, arguments, directory)?;
    let out = child.stdout.take().context("PVM's daemon has no output")?;
    let line = first_line(out)?;
    ensure!(
        line.starts_with(b"ddpro<"),
        "PVM's daemon does not start: {}",
        String::from_utf8_lossy(&line)
    );
    print(&[&line])?;
    // It goes on as a child of its own.
    let _ = child.wait();
    let socket = socket_in(directory)?;
    let mut connection = Connection::open(&socket, directory)?;
    connection.register_tasker()?;
    let tasker = connection.task().to_string();
    let paths = [&socket, directory].map(|path| path.as_os_str().as_encoded_bytes());
    print(&[tasker.as_bytes(), paths[0], paths[1]])?;
    let (mut stream, early) = connection.into_stream()?;
    std::io::stdout().write_all(&early)?;
    std::io::stdout().flush()?;
    let (mut from_manager, path) = (stream.try_clone()?, directory.to_owned());
    std::thread::spawn(move || {
        let _ = copy(&mut std::io::stdin(), &mut from_manager);
        end(&path);
    });
    // What the manager does not take any more ends with it.
    let _ = copy(&mut stream, &mut std::io::stdout());
    Ok(())
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut room = vec![0; 64 << 10];
    loop {
        match from.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&room[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn print(lines: &[&[u8]]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for line in lines {
        ensure!(!line.contains(&b'\n'), "a path has a line break");
        out.write_all(line)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// The path of the daemon's socket, which it has written to a file.
fn socket_in(directory: &Path) -> anyhow::Result<PathBuf> {
    let file = directory.join(format!("pvmd.{}", geteuid()));
    let until = Instant::now() + PATIENCE;
    loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.starts_with('/') => return Ok(PathBuf::from(text.trim_end())),
            _ if Instant::now() > until => bail!("PVM's daemon has no socket"),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Ends all that this process has started, and this process.
fn end(directory: &Path) -> ! {
    let own = std::process::id().cast_signed();
    let until = Instant::now() + END_PATIENCE;
    let send = |signal| {
        for pid in descendants(own).unwrap_or_default() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    };
    send(Signal::SIGTERM);
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if Instant::now() > until => {
                send(Signal::SIGKILL);
                break;
            }
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(2)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let _ = std::fs::remove_dir_all(directory);
    exit(0)
}

#[cfg(test)]
mod tests {
    use super::arguments_of;

    #[test]
    fn only_arguments_of_a_daemon_are_taken() {
        let of = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            arguments_of(&words).ok().map(|it| it.join(" "))
        };
        let good = "-s -d0x0 -nn2 1 0a630001:8a2b 4080 2 0a630002:0000";
        let taken = good.replace("-nn2", "-n10.99.0.2");
        assert_eq!(of(good), Some(taken));
        for bad in [
            "-s -d0x0 -nn2 1 0a630001:8a2b 4080 2",
            "-s -d0x0 -nn2 1 0a630001:8a2b 4080 2 0a630002:0000 -x",
            "-s -d0x0 -nn2 1 0a630001:8a2b 4080 2 /etc/passwd",
            "-S -d0x0 -nn2 1 0a630001:8a2b 4080 2 0a630002:0000",
            "-s -d0x0 -nn;2 1 0a630001:8a2b 4080 2 0a630002:0000",
            "-s",
            "",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
