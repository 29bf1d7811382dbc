//! `tutti top` on a terminal, with many jobs and nodes.

use super::super::contend::{median, micros, ms};
use super::super::figures::Figure;
use super::super::tree::{Cluster, make_room, used_ns};
use super::super::{Bench, progress};
use super::load::{quiet_job, submit};
use anyhow::{Context, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tutti_client::scratch::{ScratchInstance, percentile};
use tutti_linux::pty::Pty;
use tutti_node::executable::own_program;
use tutti_types::Params;
use tutti_wire::local::{Reply, Request};

/// How long a picture may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What ends a picture.
const END: &[u8] = b"\x1b[J";

pub(super) fn measure(bench: &Bench, nodes: usize, jobs: usize) -> anyhow::Result<Vec<Figure>> {
    make_room(nodes, u32::try_from(Params::default().fan_out())?)?;
    let cluster = Cluster::found(nodes, true)?;
    progress(&format!("faces: top, {nodes} nodes join, {jobs} jobs are submitted"));
    let own = cluster.head()?;
    let agents = cluster.join(nodes)?;
    let request = quiet_job(&["sleep".into(), "86400".into()])?;
    submit(&mut own.connect()?, &request, jobs)?;
    std::thread::sleep(Duration::from_secs(3));
    let Reply::Status(status) = own.ask(&Request::Status)? else {
        return tutti_client::ask::unexpected();
    };
    progress("faces: top");
    let seconds = if bench.quick { 3 } else { 20 };
    let mut top = Top::start(&own)?;
    // What jobs and nodes have begun is to be over.
    std::thread::sleep(Duration::from_secs(3));
    top.skip()?;
    let keys = if bench.quick { 10 } else { 100 };
    let mut times = (0..keys).map(|_| top.redraw_us()).collect::<anyhow::Result<Vec<u64>>>()?;
    let took_us = median(&mut times);
    let slow_us = percentile(&times, 99);
    let pids = [top.child.id().cast_signed(), status.pid];
    let shares = top.shares(pids, Duration::from_secs(seconds))?;
    let alone = {
        drop(top);
        let begin = used_ns(status.pid)?;
        std::thread::sleep(Duration::from_secs(seconds));
        percent(used_ns(status.pid)? - begin, Duration::from_secs(seconds))
    };
    agents.end()?;
    own.end()?;
    let what = format!("top, {jobs} jobs, {nodes} nodes");
    Ok(vec![
        Figure::goal(
            &format!("{what}: redrawn after a key"),
            format!("median {}, {} at 99 %", ms(took_us), ms(slow_us)),
            "50 ms",
            took_us <= 50_000,
        ),
        Figure::goal(
            &format!("{what}: processor at rest"),
            format!("{:.1} %", shares[0]),
            "1 %",
            shares[0] <= 1.0,
        ),
        Figure::shown(
            &format!("{what}: processor of the controller meanwhile"),
            format!("{:.1} %; {alone:.1} % without top", shares[1]),
        ),
    ])
}

/// Processor time in percent of the time that passed.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a benchmark are below 2^52")]
fn percent(used_ns: u64, passed: Duration) -> f64 {
    used_ns as f64 * 100.0 / passed.as_nanos() as f64
}

/// A running `tutti top`. Ended when dropped.
struct Top {
    child: Child,
    screen: File,
    _terminal: std::os::fd::OwnedFd,
}

impl Top {
    fn start(own: &ScratchInstance) -> anyhow::Result<Self> {
        let Pty { master, slave } = Pty::open((50, 160), None)?;
        let end = || anyhow::Ok(Stdio::from(slave.try_clone()?));
        let mut command = Command::new(own_program()?);
        command.arg("top").env("TUTTI_DIR", own.directory());
        let child = command.stdin(end()?).stdout(end()?).stderr(end()?).spawn()?;
        let mut top = Self { child, screen: master.into(), _terminal: slave };
        top.picture()?;
        Ok(top)
    }

    /// What comes within this time; nothing if nothing does.
    fn read(&mut self, within: Duration) -> anyhow::Result<Vec<u8>> {
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.screen.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout)? == 0 {
            return Ok(Vec::new());
        }
        let mut room = vec![0; 64 << 10];
        let count = self.screen.read(&mut room).context("tutti top has ended")?;
        room.truncate(count);
        Ok(room)
    }

    /// Waits for the end of a picture.
    fn picture(&mut self) -> anyhow::Result<()> {
        let (begin, mut seen) = (Instant::now(), Vec::new());
        while !seen.windows(END.len()).any(|bytes| bytes == END) {
            ensure!(begin.elapsed() < PATIENCE, "tutti top shows nothing");
            seen.extend(self.read(PATIENCE)?);
        }
        Ok(())
    }

    /// Takes what was shown so far.
    fn skip(&mut self) -> anyhow::Result<()> {
        while !self.read(Duration::from_millis(20))?.is_empty() {}
        Ok(())
    }

    /// Presses a key: how long it takes until the next picture is there.
    fn redraw_us(&mut self) -> anyhow::Result<u64> {
        self.skip()?;
        let begin = Instant::now();
        self.screen.write_all(b"\x1b[B")?;
        self.picture()?;
        Ok(micros(begin.elapsed()))
    }

    /// Processor time of these processes while no key is pressed, in percent.
    fn shares(&mut self, pids: [i32; 2], length: Duration) -> anyhow::Result<[f64; 2]> {
        let used = || anyhow::Ok([used_ns(pids[0])?, used_ns(pids[1])?]);
        let (before, begin) = (used()?, Instant::now());
        while begin.elapsed() < length {
            self.read(length.saturating_sub(begin.elapsed()))?;
        }
        let (after, passed) = (used()?, begin.elapsed());
        Ok([0, 1].map(|at: usize| percent(after[at] - before[at], passed)))
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
