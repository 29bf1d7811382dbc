//! A hidden verb: a binary tree of processes that are all busy, or all asleep, from one moment on.
//!
//! Each process starts its two subtrees by running this program again. None is busy before all are
//! there: a thousand busy processes would keep the last ones from ever starting. So every process
//! but the root waits on its standard input, a pipe that the root closes when it has read one byte
//! from each of them through the pipe that is their standard output.

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::hint::black_box;
use std::io::{PipeReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tutti_linux::clock::monotonic_ns;
use tutti_node::exit::Exit;

/// What the processes do once all are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Use as much processor time as they get.
    Busy,
    /// Sleep.
    Idle,
}

impl Kind {
    /// As the command line has it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Idle => "idle",
        }
    }

    /// How many a tree may have on this machine.
    pub(super) fn most(self) -> u32 {
        match self {
            Self::Busy => BUSY_MAX_PER_PROCESSOR.saturating_mul(super::processors()),
            Self::Idle => PROCESSES_MAX,
        }
    }

    /// Whether a tree may have so many.
    ///
    /// # Errors
    /// With how many it may have, and what to do instead.
    pub(super) fn allows(self, processes: u32) -> anyhow::Result<()> {
        let most = self.most();
        let instead = match self {
            Self::Busy => {
                ": more would keep all others from running for minutes; \
                 processes that are idle may be more"
            }
            Self::Idle => "",
        };
        let kind = self.word();
        ensure!((1..=most).contains(&processes), "1 to {most} {kind} processes{instead}");
        Ok(())
    }
}

#[derive(Args, Debug)]
pub(super) struct ProcessesArgs {
    /// Processes of the tree
    processes: u32,

    /// What they do
    #[arg(value_enum)]
    kind: Kind,

    /// A file to make when all are there
    #[arg(long)]
    ready: Option<PathBuf>,

    /// A file that another tree makes when it is complete: none is busy before
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,

    /// Not the root
    #[arg(long, hide = true)]
    inner: bool,

    /// Busy ones write when they ran, from when to when in nanoseconds, to files in this directory
    #[arg(long, value_name = "DIR")]
    stretches: Option<PathBuf>,

    /// How long they do it
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

/// As many as a test can want; a slip of the finger must not fill the machine.
const PROCESSES_MAX: u32 = 20_000;

/// Each of so many that are busy gets a processor every other second: with more, the process that
/// is to end them is as slow as they are.
const BUSY_MAX_PER_PROCESSOR: u32 = 500;

/// How often it is looked whether the other tree is complete.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub(super) fn execute(args: &ProcessesArgs) -> anyhow::Result<Exit> {
    if !args.inner {
        args.kind.allows(args.processes)?;
    }
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let children = if args.inner { inner(args)? } else { root(args, end)? };
    match args.kind {
        Kind::Busy => {
            let stretches = spin(end);
            if let Some(directory) = &args.stretches {
                super::switch::write_stretches(directory, &stretches)?;
            }
        }
        Kind::Idle => std::thread::sleep(end.saturating_duration_since(Instant::now())),
    }
    for mut child in children {
        let _ = child.wait();
    }
    Ok(Exit::OK)
}

fn root(args: &ProcessesArgs, end: Instant) -> anyhow::Result<Vec<Child>> {
    let (gun, trigger) = std::io::pipe()?;
    let (mut ready, report) = std::io::pipe()?;
    let children = subtrees(args, || Ok((gun.try_clone()?.into(), report.try_clone()?.into())))?;
    drop(report);
    let mut all = vec![0; args.processes as usize - 1];
    ready.read_exact(&mut all).context("a process of the tree could not be started")?;
    if let Some(path) = &args.ready {
        std::fs::write(path, b"").with_context(|| format!("cannot make {}", path.display()))?;
    }
    while args.beside.as_ref().is_some_and(|file| !file.exists()) && Instant::now() < end {
        std::thread::sleep(LOOK_AGAIN);
    }
    drop(trigger);
    wait_for_the_gun(gun)?;
    Ok(children)
}

fn wait_for_the_gun(mut gun: PipeReader) -> anyhow::Result<()> {
    gun.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn inner(args: &ProcessesArgs) -> anyhow::Result<Vec<Child>> {
    let children = subtrees(args, || Ok((Stdio::inherit(), Stdio::inherit())))?;
    let mut out = std::io::stdout();
    out.write_all(b".")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(children)
}

/// Starts the two halves of what is left below this process.
fn subtrees(
    args: &ProcessesArgs,
    stdio: impl Fn() -> std::io::Result<(Stdio, Stdio)>,
) -> anyhow::Result<Vec<Child>> {
    let below = args.processes - 1;
    let mut children = Vec::new();
    for half in [below.div_ceil(2), below / 2] {
        if half == 0 {
            continue;
        }
        let (stdin, stdout) = stdio()?;
        let mut command = Command::new("/proc/self/exe");
        if let Some(directory) = &args.stretches {
            command.arg("processes").arg("--stretches").arg(directory);
        } else {
            command.args(["processes"]);
        }
        let child = command
            .args(["--inner", "--seconds"])
            .arg(args.seconds.to_string())
            .arg(half.to_string())
            .arg(args.kind.word())
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .context("cannot start a process of the tree")?;
        children.push(child);
    }
    Ok(children)
}

/// A pause this long is one in which another process ran, or none.
const PAUSE_NS: u64 = 20_000;

/// Looks at the clock all the time: a tree must not outlive its purpose for long. Gives the
/// stretches in which it ran.
fn spin(end: Instant) -> Vec<(u64, u64)> {
    let mut state = 1u64;
    let mut stretches = Vec::new();
    let mut begin = monotonic_ns();
    let mut last = begin;
    while Instant::now() < end {
        for step in 0..1_000 {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
        }
        let now = monotonic_ns();
        if now - last > PAUSE_NS {
            stretches.push((begin, last));
            begin = now;
        }
        last = now;
    }
    stretches.push((begin, last));
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_be_idle_but_not_busy() {
        let thousands = BUSY_MAX_PER_PROCESSOR * super::super::processors() + 1;
        assert!(Kind::Busy.allows(thousands - 1).is_ok() && Kind::Busy.allows(0).is_err());
        let refused = Kind::Busy.allows(thousands).unwrap_err().to_string();
        assert!(refused.contains("idle may be more"), "{refused}");
        assert!(Kind::Idle.allows(thousands.min(PROCESSES_MAX)).is_ok());
        assert!(Kind::Idle.allows(PROCESSES_MAX + 1).is_err());
    }
}
