//! The processes that deliver, at most a few of each user at a time.
//!
//! Each is `tutti notifier --deliver`, which becomes the job's user and does one delivery. It has a
//! group of its own ([`mod@super::bounds`]), also as a process, and its time. Processes that leave
//! the latter become children of the notifier when their parents end, and are killed then: a
//! command of a user can't stay behind.
//!
//! The notifier reaps all of them as long as there are any, and does not rest before.

use super::bounds::{self, Groups};
use super::deliver::{Order, Result as Delivered};
use super::outstanding::Delivery;
use super::place::Key;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tutti_linux::cgroup::Cgroup;
use tutti_linux::proc;
use tutti_linux::reap::{ended_child, reap};
use tutti_node::executable::own_program;

/// Deliveries at once: in all, and of one user.
const AT_ONCE: usize = 16;
const OF_USER: usize = 2;

/// Processes that are reaped before deliveries are started again.
const REAPED_AT_ONCE: usize = 10_000;

/// How often it is looked for what deliveries have left, at once, and the pause before each time.
const STRAY_LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The most of what a delivery says that is logged.
const SAID_BYTES_MAX: u64 = 300;

/// How often it is looked for them, so many times, when the notifier ends.
const LAST_LOOKS: u32 = 100;

/// A delivery in progress.
struct Running {
    uid: u32,
    child: Child,
    group: Option<Cgroup>,
    said: File,
    until: Instant,
    is_late: bool,
}

/// All in progress.
#[derive(Default)]
pub(super) struct Children {
    all: BTreeMap<Key, Running>,
    groups: Groups,
    /// Whether there may be processes that were not reaped.
    has_more: bool,
}

impl Children {
    /// None; `subtree`: the name of the instance's groups.
    pub(super) fn new(subtree: String) -> Self {
        Self { all: BTreeMap::new(), groups: Groups::new(subtree), has_more: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is nothing to look at: no process, and no group of one.
    pub(super) fn are_at_rest(&self) -> bool {
        self.all.is_empty() && !self.has_more && !self.groups.has_ended()
    }

    /// Whether another delivery of a user may begin.
    pub(super) fn has_room(&self, uid: u32) -> bool {
        let of_user = self.all.values().filter(|it| it.uid == uid).count();
        self.all.len() < AT_ONCE && of_user < OF_USER
    }

    /// Starts a delivery, which may take so long.
    pub(super) fn start(
        &mut self,
        key: Key,
        delivery: &Delivery,
        time: Duration,
    ) -> std::io::Result<()> {
        let (group, entrance) = self.groups.make(key);
        let order = Order {
            entrance,
            uid: delivery.uid,
            gid: delivery.gid,
            user: delivery.user.clone(),
            drops_rights: geteuid().is_root(),
            way: delivery.way.clone(),
            key: delivery.key.clone(),
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            message: delivery.message.clone(),
        };
        self.has_more = true;
        match spawn(&order) {
            Ok((child, said)) => {
                let until = Instant::now() + time;
                let uid = delivery.uid;
                self.all.insert(key, Running { uid, child, group, said, until, is_late: false });
                Ok(())
            }
            Err(error) => {
                group.into_iter().for_each(|group| self.groups.end(group));
                Err(error)
            }
        }
    }

    /// Those that have ended, each with its result. Reaps what they have left, too.
    pub(super) fn reap(&mut self) -> Vec<(Key, Delivered)> {
        for running in self.all.values_mut() {
            if !running.is_late && Instant::now() >= running.until {
                running.is_late = true;
                running.end();
            }
        }
        let mut results = Vec::new();
        self.reap_ended(&mut results);
        for look in 0..STRAY_LOOKS {
            if look > 0 {
                std::thread::sleep(LOOK_AGAIN);
                self.reap_ended(&mut results);
            }
            if !self.end_strays() {
                break;
            }
        }
        self.groups.remove();
        results
    }

    /// Reaps all that have ended, and takes note of the deliveries among them.
    fn reap_ended(&mut self, results: &mut Vec<(Key, Delivered)>) {
        for _ in 0..REAPED_AT_ONCE {
            let Some(pid) = ended_child() else { return };
            let Some(key) = self.all.iter().find(|it| it.1.pid() == pid).map(|(key, _)| *key)
            else {
                let _ = reap(pid);
                continue;
            };
            let Some(mut running) = self.all.remove(&key) else { continue };
            // Not reaped, so the number is still that of its group.
            running.end();
            let status = running.child.wait();
            running.group.take().into_iter().for_each(|group| self.groups.end(group));
            if let Ok(status) = status {
                results.push((key, result_of(running, status)));
            }
        }
    }

    /// Kills the children that are no deliveries: what these have left. Whether there were some.
    fn end_strays(&mut self) -> bool {
        let own = std::process::id().cast_signed();
        let mut strays = proc::children(own).unwrap_or_default();
        self.has_more = !strays.is_empty();
        strays.retain(|&pid| !self.all.values().any(|it| it.pid() == pid));
        // They are children of this process until it reaps them.
        for &pid in &strays {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        !strays.is_empty()
    }

    /// Kills all that is left.
    pub(super) fn end_all(&mut self) {
        for running in self.all.values_mut() {
            running.is_late = true;
            running.end();
        }
        for _ in 0..LAST_LOOKS {
            self.reap();
            if self.are_at_rest() {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Running {
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Kills it, and all that is in its groups.
    fn end(&self) {
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        if let Some(group) = &self.group {
            let _ = group.kill_at_once();
        }
    }
}

/// Starts the process of a delivery, with the file that has what it says.
fn spawn(order: &Order) -> std::io::Result<(Child, File)> {
    // Files without a name: a pipe would have to be read and written meanwhile.
    let (input, said) = (bounds::with_text(&serde_json::to_vec(order)?)?, bounds::for_words()?);
    let program = own_program().map_err(std::io::Error::other)?;
    let child = Command::new(program)
        .args(["notifier", "--deliver"])
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(said.try_clone()?)
        .process_group(0)
        .spawn()?;
    Ok((child, said))
}

fn result_of(mut running: Running, status: ExitStatus) -> Delivered {
    if running.is_late {
        return Err(("it took too long and was ended".into(), false));
    }
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    let _ = running.said.seek(SeekFrom::Start(0));
    let _ = (&running.said).take(SAID_BYTES_MAX).read_to_end(&mut said);
    // What it has not written is zero.
    let said = String::from_utf8_lossy(said.split(|byte| *byte == 0).next().unwrap_or_default());
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let said: String = said.trim().chars().map(shown).collect();
    let why = if said.is_empty() { status.to_string() } else { said };
    Err((why, status.code() == Some(super::deliver::FINAL.into())))
}
