//! One delivery, by a process of its own that becomes the job's user first: a command, a mail
//! program, or an HTTP request. It has nothing of the instance.

use super::bounds::Entrance;
use super::message::Message;
use super::webhook;
use anyhow::Context;
use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use tutti_node::exit::Exit;
use tutti_wire::notify::NotifyWay;

/// What came of it: why it failed, and whether no other try can help.
pub(super) type Result = std::result::Result<(), (String, bool)>;

/// The exit code of a failure that every other try would repeat.
pub(super) const FINAL: u8 = 3;

/// The longest order.
const ORDER_BYTES_MAX: u64 = 64 << 10;

/// The most that is kept of what a program says on its standard error, and how long it is waited
/// for that after the program's end: something that it has started may hold the pipe.
const HEARD_BYTES_MAX: u64 = 512;
const LAST_WORDS: Duration = Duration::from_millis(50);

/// The variable that names the mail program of the site.
const MAIL_PROGRAM: &str = "TUTTI_SENDMAIL";

/// Where mail programs are, which all take the options of sendmail.
const MAIL_PROGRAMS: [&str; 2] = ["/usr/sbin/sendmail", "/usr/lib/sendmail"];

/// What a delivery reads from its standard input.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) entrance: Entrance,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) user: String,
    /// Whether this process is root's, and has to become the user.
    pub(super) drops_rights: bool,
    pub(super) way: NotifyWay,
    pub(super) key: Option<Vec<u8>>,
    pub(super) time_ms: u64,
    pub(super) message: Message,
}

/// Does what standard input says.
///
/// # Errors
/// If it is no order.
pub fn deliver() -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    std::io::stdin().take(ORDER_BYTES_MAX).read_to_end(&mut text)?;
    let order: Order = serde_json::from_slice(&text).context("that is no delivery")?;
    let until = Instant::now() + Duration::from_millis(order.time_ms);
    let entered = order.entrance.enter(order.uid).context("cannot limit this delivery");
    let home = match entered.and_then(|()| become_user(&order)) {
        Ok(home) => home,
        Err(error) => return Ok(said(&format!("{error:#}"), FINAL)),
    };
    let result = match &order.way {
        NotifyWay::Command(line) => run_command(line, &order, &home),
        NotifyWay::Mail(address) => send_mail(address, &order, &home),
        NotifyWay::Webhook(url) => webhook::post(url, order.key.as_deref(), &order.message, until),
    };
    Ok(match result {
        Ok(()) => Exit::OK,
        Err(error) => said(&format!("{error:#}"), Exit::FAILED.code()),
    })
}

fn said(why: &str, code: u8) -> Exit {
    say!("{why}");
    Exit::usage(code)
}

/// Gives up all rights but the user's; the user's home directory.
fn become_user(order: &Order) -> anyhow::Result<PathBuf> {
    let (uid, gid) = (Uid::from_raw(order.uid), Gid::from_raw(order.gid));
    let found = User::from_uid(uid).context("the users of this machine can't be looked up")?;
    if order.drops_rights {
        let groups = match &found {
            Some(user) => getgrouplist(&CString::new(user.name.as_bytes())?, gid)?,
            None => vec![gid],
        };
        setgroups(&groups).context("cannot take the user's groups")?;
        setgid(gid).context("cannot take the user's group")?;
        setuid(uid).context("cannot become the user")?;
    }
    anyhow::ensure!(nix::unistd::geteuid() == uid, "the job is of another user");
    anyhow::ensure!(nix::unistd::getuid() == uid, "the job is of another user");
    Ok(found.map_or_else(|| "/".into(), |user| user.dir))
}

/// A program as the user, without anything of the instance's environment.
fn as_user(program: &Path, order: &Order, home: &Path) -> Command {
    let message = &order.message;
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home)
        .env("USER", &order.user)
        .env("LOGNAME", &order.user)
        .env("SHELL", "/bin/sh")
        .env("TUTTI_NOTIFICATION", &message.notification)
        .env("TUTTI_JOB", message.job.to_string())
        .env("TUTTI_JOB_NAME", &message.name)
        .current_dir(if home.is_dir() { home } else { Path::new("/") })
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    if let Some(code) = message.exit_code {
        command.env("TUTTI_EXIT_CODE", code.to_string());
    }
    command
}

fn run_command(line: &str, order: &Order, home: &Path) -> anyhow::Result<()> {
    let mut command = as_user(Path::new("/bin/sh"), order, home);
    command.arg("-c").arg(line);
    run(command, &format!("{}\n", order.message.json()))
}

fn send_mail(address: &str, order: &Order, home: &Path) -> anyhow::Result<()> {
    let program = mail_program()?;
    let mut command = as_user(&program, order, home);
    // In the foreground: what it leaves behind is ended.
    command.args(["-oi", "-odi", "--"]).arg(address);
    run(command, &order.message.mail(address))
        .with_context(|| format!("{} failed", program.display()))
}

/// The mail program: that of the site, or the first that there is.
fn mail_program() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(MAIL_PROGRAM).filter(|it: &OsString| !it.is_empty()) {
        return Ok(named.into());
    }
    let found = MAIL_PROGRAMS.iter().map(Path::new).find(|path| path.exists());
    found.map(Path::to_owned).with_context(|| {
        format!(
            "the controller's machine has no {}: install a mail program, or name one by {MAIL_PROGRAM}",
            MAIL_PROGRAMS[0]
        )
    })
}

/// Runs a program with this input. The notifier ends it if it takes too long.
fn run(mut command: Command, input: &str) -> anyhow::Result<()> {
    let mut child = command.stderr(Stdio::piped()).spawn().context("it can't be started")?;
    let heard = child.stderr.take().map(listen);
    if let Some(mut to) = child.stdin.take() {
        match to.write_all(input.as_bytes()) {
            // It may read nothing.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    let said = heard.and_then(|heard| heard.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    match said.trim() {
        "" => anyhow::bail!("it ended with {status}"),
        said => anyhow::bail!("it ended with {status}: {said}"),
    }
}

/// Reads what a program says on its standard error, for as long as it does; gives the begin of it
/// when it is silent for good, or has said that much.
fn listen(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, heard) = sync_channel(1);
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = from.by_ref().take(HEARD_BYTES_MAX).read_to_end(&mut said);
        let _ = tell.send(said);
        // It must not be stopped by a pipe that is full.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    });
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(line: &str) -> anyhow::Result<()> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(line).stdin(Stdio::piped());
        run(command, "input")
    }

    #[test]
    fn a_program_may_say_much_and_the_begin_of_it_is_kept() {
        run_line("head -c 3000000 /dev/zero | tr '\\0' x >&2").unwrap();
        let said = |line: &str| run_line(line).unwrap_err().to_string();
        let long = said("echo begin >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 3");
        assert!(long.starts_with("it ended with exit status: 3: begin\nxxx"), "{long:.100}");
        assert!(long.len() < 1 << 10, "{}", long.len());
        assert_eq!(said("exit 4"), "it ended with exit status: 4");
    }
}
