//! The writer: the process that writes the files which several tasks of a submitted job share.
//!
//! The keeper of the job's first node starts it ([`tutti_wire::writer`]), as the job's user. It
//! takes the job's output from all keepers as `tutti run` does, and ends when everything is
//! written. Its exit code tells its keeper whether it is. What it has to say goes to its keeper: it
//! has no terminal.

use super::intake::{Intake, Trouble};
use super::keeper::{Keeper, RETRY, dial};
use super::run::{have_descriptors, shortest};
use super::sink::{Output, OutputError};
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_linux::inherited::Inherited;
use tutti_node::exit::Exit;
use tutti_node::helper_user::become_user;
use tutti_node::link::Link;
use tutti_types::{JobId, NodeId, StepKey};
use tutti_wire::Role;
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::launch::cut;
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::local::KeeperAt;
use tutti_wire::writer::{WRITER_FD, WriterOrder};

/// How long other nodes are tried that must learn that the files can't be written.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(20);

/// How long one of them may take to answer, in milliseconds.
const ANSWER_WAIT: u16 = 5_000;

/// Shortest time between two reports to a keeper that output of a killed job was written.
const PROGRESS: Duration = Duration::from_secs(1);

/// See the head of the file.
struct Writer {
    order: WriterOrder,
    intake: Intake,
    killed: Option<Instant>,
    /// How much was written, and when, when the keeper was told of it last.
    told: (u64, Instant),
    failure: Option<String>,
}

/// Does what the keeper orders that has started this process.
///
/// # Errors
/// If there is no such keeper.
pub fn write() -> anyhow::Result<Exit> {
    let mut inherited = Inherited::take_all().context("cannot see what was handed over")?;
    let socket = inherited.take(WRITER_FD).context("this verb is for the keeper")?;
    let mut link = Link::new(UnixStream::from(socket))?;
    let order: WriterOrder = link.call().context("the keeper gives no order")?;
    become_user(order.identity.as_ref()).context("cannot become the user of the job")?;
    if let Some(reason) = &order.gives_up {
        tell_others(order.job, &order.nodes, reason);
        return Ok(Exit::OK);
    }
    link.take_descriptors();
    link.greet(Role::FrontEnd);
    have_descriptors();
    let files = open(order.output.as_ref(), &order).and_then(|output| {
        let error = open(order.error.as_ref(), &order)?;
        Ok([output, error])
    });
    match files {
        Ok(files) => Writer::new(order, files, link).serve(),
        Err(reason) => {
            let (job, reason) = (order.job, cut(reason, TASK_DETAIL_BYTES_MAX));
            link.send(&FromFrontEnd::GiveUp { job, reason: reason.clone() });
            let _ = link.flush();
            tell_others(job, &order.nodes, &reason);
            Ok(Exit::FAILED)
        }
    }
}

type NamedFile = (Vec<u8>, File);

fn open(
    path: Option<&serde_bytes::ByteBuf>,
    order: &WriterOrder,
) -> Result<Option<NamedFile>, String> {
    let Some(path) = path else { return Ok(None) };
    let name = Path::new(OsStr::from_bytes(path));
    let mut options = OpenOptions::new();
    // Others may write there too.
    options.append(true).create(true);
    // Before it is opened, which alone may do something; and after, in case it was exchanged.
    let opened = name.metadata().map_or(Ok(()), |it| may_open(&it, &order.closed));
    let opened = opened.and_then(|()| options.open(name)).and_then(|file| {
        may_open(&file.metadata()?, &order.closed)?;
        // Of what is no file, nothing can be cut off.
        if order.truncates && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(file)
    });
    match opened {
        Ok(file) => Ok(Some((path.to_vec(), file))),
        Err(error) => {
            let why = match error.raw_os_error() {
                Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
                None => error.to_string(),
            };
            Err(format!("cannot open output file '{}': {why}", name.display()))
        }
    }
}

/// As the kernel answers a task of the job that opens one of these device files.
fn may_open(file: &Metadata, closed: &[String]) -> std::io::Result<()> {
    let kind = file.file_type();
    let is_closed = |it: &String| {
        std::fs::metadata(it).is_ok_and(|it| it.file_type() == kind && it.rdev() == file.rdev())
    };
    let is_device = kind.is_char_device() || kind.is_block_device();
    match is_device && closed.iter().any(is_closed) {
        true => Err(nix::errno::Errno::EPERM.into()),
        false => Ok(()),
    }
}

/// Tells keepers of other nodes that nothing is written. One that does not have the job yet will.
fn tell_others(job: JobId, nodes: &[NodeId], reason: &str) {
    let begin = Instant::now();
    let mut left = nodes.to_vec();
    while !left.is_empty() && begin.elapsed() < GIVE_UP_PATIENCE {
        left.retain(|node| !tell_other(job, *node, reason));
        if !left.is_empty() {
            std::thread::sleep(RETRY);
        }
    }
}

fn tell_other(job: JobId, node: NodeId, reason: &str) -> bool {
    let Ok(mut link) = dial(&KeeperAt::Node(node)) else { return false };
    link.send(&FromFrontEnd::GiveUp { job, reason: reason.to_owned() });
    loop {
        match answer(&mut link) {
            Ok(Some(answer)) => return answer == ToFrontEnd::Finished,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
}

/// What has come from a keeper, after a wait.
fn answer(link: &mut Link) -> anyhow::Result<Option<ToFrontEnd>> {
    link.flush()?;
    if poll(&mut [PollFd::new(link.as_fd(), PollFlags::POLLIN)], ANSWER_WAIT)? == 0 {
        anyhow::bail!("the keeper does not answer");
    }
    let received = link.receive();
    match link.next()? {
        None => Ok(received.map(|()| None)?),
        some => Ok(some),
    }
}

impl Writer {
    fn new(order: WriterOrder, files: [Option<NamedFile>; 2], link: Link) -> Self {
        let output = Output::into_files(files, order.size, order.job);
        let mut intake = Intake::new(StepKey::first(order.job), output);
        intake.asks_again = true;
        intake.keepers.push(Keeper::over(link, StepKey::first(order.job)));
        Self { order, intake, killed: None, told: (0, Instant::now()), failure: None }
    }

    fn serve(mut self) -> anyhow::Result<Exit> {
        for &node in &self.order.nodes {
            let keeper =
                Keeper::attach(&KeeperAt::Node(node), StepKey::first(self.order.job), None)?;
            self.intake.keepers.push(keeper);
        }
        while self.failure.is_none() {
            self.intake.send_all();
            self.take_in();
            self.tell_progress();
            if self.intake.keepers.iter().all(|keeper| keeper.finished) {
                break;
            }
            self.intake.send_all();
            self.wait()?;
        }
        if let Err(error) = self.intake.output.finish() {
            self.on_output_error(&error);
        }
        self.look_for_missed();
        Ok(self.finish())
    }

    fn take_in(&mut self) {
        let mut troubles = Vec::new();
        self.intake.take_in(self.killed, &mut troubles);
        for trouble in troubles {
            self.on_trouble(trouble);
        }
        if let Err(error) = self.intake.output.write_due() {
            self.on_output_error(&error);
        }
        // Without its keeper the job is over, or will be.
        if let Some(keeper) = self.intake.keepers.first()
            && keeper.link.is_none()
        {
            self.failure.get_or_insert_with(|| "the keeper is gone".into());
        }
    }

    fn on_trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Output(error) => self.on_output_error(&error),
            Trouble::NodeLost(node) => {
                self.lose(format!(
                    "lost the connection with node {node}: what its tasks wrote last, or still write, is \
                     not in the output"
                ));
            }
            Trouble::Refused { reason, .. } => self.lose(format!("no output of a node: {reason}")),
            Trouble::KeeperLost(error) => self.lose(format!("no output of a node: {error}")),
            Trouble::Killed => self.killed = Some(Instant::now()),
            // It gets no input.
            Trouble::InputLost | Trouble::TaskEnded(..) => {}
        }
    }

    fn on_output_error(&mut self, error: &OutputError) {
        let reason = match error {
            OutputError::Failed(error) => format!("{error:#}"),
            OutputError::ReaderGone => "the output file is closed".into(),
        };
        self.failure.get_or_insert(reason);
    }

    /// Some of the output did not come: its keeper reports it with the end of the job.
    fn lose(&mut self, what: String) {
        if let Some(keeper) = self.intake.keepers.first_mut() {
            keeper.send(&FromFrontEnd::OutputLost { what });
        }
        self.intake.send_all();
    }

    /// A node that has never taken us in has begun no task.
    fn look_for_missed(&mut self) {
        let is_missed = |keeper: &&Keeper| keeper.far.is_some() && !keeper.attached;
        let missed = self.intake.keepers.iter().find(is_missed).and_then(|keeper| keeper.far);
        if let Some(node) = missed.filter(|_| self.killed.is_none()) {
            self.lose(format!("node {node} did not pass on what its tasks wrote"));
        }
    }

    fn tell_progress(&mut self) {
        let written = self.intake.output.written();
        let (before, at) = self.told;
        if self.killed.is_some() && written > before && at.elapsed() > PROGRESS {
            self.told = (written, Instant::now());
            if let Some(keeper) = self.intake.keepers.first_mut() {
                keeper.send(&FromFrontEnd::Progress);
            }
        }
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let (mut fds, pipes) = self.intake.poll();
        let pipes_at = fds.len();
        fds.extend(pipes);
        let of_keepers = self.intake.wait_at_most(self.killed.is_some());
        match poll(&mut fds, shortest([of_keepers, self.intake.output.due_in()])) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        self.intake.note(ready[pipes_at..].iter().copied());
        Ok(())
    }

    /// A file that can't be closed well lacks something: some file systems say only then that they
    /// are full.
    fn finish(mut self) -> Exit {
        let mut failure = self.failure.take();
        let Intake { mut keepers, output, .. } = self.intake;
        for (path, file) in output.into_open_files() {
            if let Err(error) = close(file) {
                let path = String::from_utf8_lossy(&path).into_owned();
                failure.get_or_insert(format!("cannot write the output file {path}: {error}"));
            }
        }
        let Some(reason) = failure else { return Exit::OK };
        let reason = cut(reason, TASK_DETAIL_BYTES_MAX);
        let job = self.order.job;
        if let Some(keeper) = keepers.first_mut() {
            keeper.send(&FromFrontEnd::GiveUp { job, reason: reason.clone() });
            // It hangs up when it has heard it.
            if let Some(link) = &mut keeper.link {
                while link.call::<ToFrontEnd>().is_ok() {}
            }
        }
        let far = keepers.iter().filter(|keeper| !keeper.finished).filter_map(|keeper| keeper.far);
        let far: Vec<NodeId> = far.collect();
        drop(keepers);
        tell_others(job, &far, &reason);
        Exit::FAILED
    }
}

fn close(file: File) -> nix::Result<()> {
    nix::unistd::close(OwnedFd::from(file))
}
