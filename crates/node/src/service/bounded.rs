//! Programs of the machine that are run with a limit on their time and on what they print.

use anyhow::{Context, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Maximum of what a program may print, on each of its outputs.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The pause between two looks whether a program has ended that has closed its outputs.
const NAP: Duration = Duration::from_millis(2);

/// What a program has printed, and how it ended.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a program without input. It is killed if it has not ended in time, or prints too much.
///
/// # Errors
/// If it can't be started, or had to be killed.
pub(super) fn run(command: &mut Command, within: Duration) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let until = Instant::now() + within;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let result = follow(&mut child, &name, until, within);
    if result.is_err() {
        let _ = child.kill();
        // One that hangs in the kernel is not waited for.
        let _ = child.try_wait();
    }
    result
}

fn follow(
    child: &mut Child,
    name: &str,
    until: Instant,
    within: Duration,
) -> anyhow::Result<Output> {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let mut said = [Vec::new(), Vec::new()];
    if let Some(pipe) = &stdout {
        do_not_wait(pipe)?;
    }
    if let Some(pipe) = &stderr {
        do_not_wait(pipe)?;
    }
    loop {
        if !drain(&mut stdout, &mut said[0])? {
            stdout = None;
        }
        if !drain(&mut stderr, &mut said[1])? {
            stderr = None;
        }
        if said.iter().any(|said| said.len() > OUTPUT_BYTES_MAX) {
            bail!("{name} printed more than {} KiB", OUTPUT_BYTES_MAX >> 10);
        }
        let status = child.try_wait()?;
        if let Some(status) = status {
            drain(&mut stdout, &mut said[0])?;
            drain(&mut stderr, &mut said[1])?;
            let [stdout, stderr] = said.map(|said| String::from_utf8_lossy(&said).into_owned());
            return Ok(Output { status, stdout, stderr });
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("{name} did not answer within {} s", within.as_secs());
        }
        let mut fds = Vec::new();
        fds.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        fds.extend(stderr.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        let pause = if fds.is_empty() { left.min(NAP) } else { left };
        // Too long a time is none; then it is looked again.
        let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut fds, pause);
    }
}

fn do_not_wait(pipe: impl AsFd) -> anyhow::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot read what it prints")?;
    Ok(())
}

/// Reads what there is, of all that is allowed and a little more; whether more may come.
fn drain(pipe: &mut Option<impl Read>, said: &mut Vec<u8>) -> anyhow::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 4096];
    while said.len() <= OUTPUT_BYTES_MAX {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(line: &str, within: Duration) -> anyhow::Result<Output> {
        run(Command::new("sh").args(["-c", line]), within)
    }

    #[test]
    fn what_a_program_prints_and_its_status_are_given() {
        let output = shell("echo one; echo two >&2; sleep 0.05; echo three; exit 3", LONG).unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), ("one\nthree\n", "two\n"));
        assert_eq!(output.status.code(), Some(3));
        // Its outputs are closed long before it ends.
        let output = shell("exec >&- 2>&-; sleep 0.1; exit 4", LONG).unwrap();
        assert_eq!(output.status.code(), Some(4));
    }

    #[test]
    fn a_program_that_does_not_end_or_prints_without_end_is_killed() {
        let short = Duration::from_millis(50);
        for line in ["exec sleep 1000", "echo begun; exec sleep 1000"] {
            let error = shell(line, short).unwrap_err().to_string();
            assert!(error.contains("sh did not answer within"), "{error}");
        }
        let error = shell("exec yes", LONG).unwrap_err().to_string();
        assert_eq!(error, "sh printed more than 64 KiB");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(&mut Command::new("/no/such/program"), LONG).unwrap_err();
        assert!(error.to_string().contains("cannot run /no/such/program"), "{error}");
    }
}
