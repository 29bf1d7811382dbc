//! A scratch instance: an instance in a directory of its own, that ends with the verb or benchmark
//! that started it.

use crate::ask::{pages_of_jobs, unexpected};
use crate::connect::start_daemon_that_ends_with_this;
use crate::{dial, job_request};
use anyhow::{Context, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use tutti_linux::cgroup::Hierarchy;
use tutti_linux::disposition::is_ignored;
use tutti_linux::proc::{ProcessStat, descendants};
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_node::link::Link;
use tutti_node::service;
use tutti_types::{JobId, NodeId, Outcome};
use tutti_wire::launch::{OpenMode, Stdio};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, SwitchRecord};

/// A running private instance, ended when dropped.
pub struct ScratchInstance {
    instance: Instance,
    ended: bool,
}

impl ScratchInstance {
    /// Starts one for this purpose.
    pub fn start(purpose: &str) -> anyhow::Result<Self> {
        Self::prepared(purpose, |_| Ok(()))
    }

    /// Starts one for this purpose, when its directory has been prepared.
    pub fn prepared(
        purpose: &str,
        prepare: impl FnOnce(&Instance) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let name = format!("tutti-{purpose}-{}", std::process::id());
        let instance = Instance::at(std::env::temp_dir().join(name));
        end_on_signals()?;
        let directory = Leftover::Directory(instance.directory().to_owned());
        leftovers().extend([directory, Leftover::Instance(instance.clone())]);
        instance.prepare()?;
        prepare(&instance)?;
        start_daemon_that_ends_with_this(&instance)?;
        Ok(Self { instance, ended: false })
    }

    /// Its state directory: the `TUTTI_DIR` of verbs that are to use it.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// Asks it one thing.
    pub fn ask(&self, request: &Request) -> anyhow::Result<Reply> {
        let mut link = self.connect()?;
        link.send(request);
        match link.call().context("the controller went away")? {
            Reply::Failed { reason, code } | Reply::Declined { reason, code } => {
                Err(coded(code, reason))
            }
            reply => Ok(reply),
        }
    }

    /// A connection to its controller.
    pub fn connect(&self) -> anyhow::Result<Link> {
        dial(&self.instance)
    }

    /// Sets a parameter.
    pub fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        self.ask(&Request::SetParams { settings: vec![(name.into(), value.into())] }).map(drop)
    }

    /// Submits a job without output.
    pub fn submit(&self, options: &crate::JobOptions, argv: &[OsString]) -> anyhow::Result<JobId> {
        let null = || serde_bytes::ByteBuf::from(&b"/dev/null"[..]);
        let stdio =
            Stdio::Files { input: None, output: null(), error: None, mode: OpenMode::Append };
        let request = job_request(options, "production", argv, None, stdio)?;
        match self.ask(&Request::Submit(request, crate::new_key()?))? {
            Reply::Accepted { job, .. } => Ok(job),
            _ => unexpected(),
        }
    }

    /// Waits for a job to end.
    pub fn wait(&self, job: JobId) -> anyhow::Result<Outcome> {
        match self.ask(&Request::Wait { job })? {
            Reply::Ended { outcome, detail, .. } if outcome.exit_code != 0 => {
                bail!("job {job} failed with exit code {}: {detail}", outcome.exit_code)
            }
            Reply::Ended { outcome, .. } => Ok(outcome),
            _ => unexpected(),
        }
    }

    /// The jobs that have not ended.
    pub fn jobs(&self) -> anyhow::Result<Vec<JobReport>> {
        pages_of_jobs(|from| self.ask(&Request::Jobs { ended: false, from }))
    }

    /// The latest switches of its one node, oldest first.
    pub fn switches(&self, count: u32) -> anyhow::Result<Vec<SwitchRecord>> {
        match self.ask(&Request::Switches { count, from: NodeId(0) })? {
            Reply::Switches { nodes, .. } => {
                Ok(nodes.into_iter().flat_map(|(_, records)| records).collect())
            }
            _ => unexpected(),
        }
    }

    /// Ends it and waits until nothing of it is left.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.ended = true;
        self.ask(&Request::Down { roll_out: None })?;
        wait_until_gone(&self.instance);
        // What it was prepared with is not its own to remove.
        let _ = std::fs::remove_dir_all(self.instance.directory());
        Ok(())
    }
}

fn wait_until_gone(instance: &Instance) {
    while instance.lock_file().exists() && tutti_node::presence::is_supervised(instance) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

impl Drop for ScratchInstance {
    fn drop(&mut self) {
        while SIGNALLED.load(Ordering::SeqCst) {
            // The thread below cleans up and ends the process; what failed failed because of it.
            std::thread::park();
        }
        if !self.ended {
            // On the way out because of another error, which is the one to tell; perhaps that there
            // is no controller.
            if self.ask(&Request::Down { roll_out: None }).is_err() {
                let _ = tutti_node::presence::end(&self.instance);
            }
        }
    }
}

/// What a signal must not leave behind.
enum Leftover {
    Instance(Instance),
    /// With all in it.
    Directory(PathBuf),
    /// With all processes in it.
    Groups(Arc<Hierarchy>),
}

impl Leftover {
    fn remove(&self) {
        match self {
            Self::Instance(instance) => {
                if let Ok(mut link) = dial(instance) {
                    link.send(&Request::Down { roll_out: None });
                    let _ = link.call::<Reply>();
                }
                wait_until_gone(instance);
            }
            Self::Directory(path) => drop(std::fs::remove_dir_all(path)),
            Self::Groups(subtree) => drop(subtree.remove()),
        }
    }
}

/// What came later may be in what was there before.
static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());
static SIGNALLED: AtomicBool = AtomicBool::new(false);

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A signal that ends this process removes the directory as well.
///
/// # Errors
/// If the thread that waits for signals can't be started.
pub fn remove_on_signal(directory: &Path) -> std::io::Result<()> {
    leftovers().push(Leftover::Directory(directory.to_owned()));
    end_on_signals()
}

/// Makes a subtree of groups that a signal which ends this process removes as well.
///
/// # Errors
/// If there can be none, or the thread that waits for signals can't be started.
pub fn groups_until_signal(name: &str) -> anyhow::Result<Arc<Hierarchy>> {
    end_on_signals()?;
    // Where a service manager runs, only below a unit of its making.
    if let Err(error) = service::enter(name, false, None, None) {
        say!("tutti: {error:#}");
    }
    // Held meanwhile: it takes a while to make one, and a signal may come in between.
    let mut leftovers = leftovers();
    let subtree = Arc::new(Hierarchy::find(name)?);
    leftovers.push(Leftover::Groups(Arc::clone(&subtree)));
    Ok(subtree)
}

/// From now on SIGINT, SIGTERM and SIGHUP end the children of this process and remove what it must
/// not leave behind before they end the process. To be called before any other thread exists.
fn end_on_signals() -> std::io::Result<()> {
    static STARTED: Once = Once::new();
    if STARTED.is_completed() {
        return Ok(());
    }
    let mut set = SigSet::empty();
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    // What is ignored at the start stays so.
    for signal in signals.into_iter().filter(|&signal| !is_ignored(signal as i32)) {
        set.add(signal);
    }
    set.thread_block()?;
    std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(move || {
        if let Ok(signal) = set.wait() {
            SIGNALLED.store(true, Ordering::SeqCst);
            // Held to the end: no other process makes anything meanwhile.
            let _leftovers = clean_up();
            std::process::exit(128 + signal as i32);
        }
    })?;
    STARTED.call_once(|| ());
    Ok(())
}

fn clean_up() -> MutexGuard<'static, Vec<Leftover>> {
    let own = std::process::id().cast_signed();
    for pid in descendants(own).unwrap_or_default() {
        // Only children: they end what is theirs, as the supervisor of an instance does.
        if ProcessStat::read(pid).is_ok_and(|child| child.ppid == own) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
    let leftovers = leftovers();
    leftovers.iter().rev().for_each(Leftover::remove);
    leftovers
}

/// The value at a fraction (in percent) of sorted values; the default of nothing.
pub fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}
