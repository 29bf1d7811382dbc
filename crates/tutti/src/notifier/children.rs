//! The processes that deliver, at most a few of each user at a time.
//!
//! Each is `tutti notifier --deliver`, which becomes the job's user and does one delivery. It has a
//! process group of its own, and its time. Processes that leave the group become children of the
//! notifier when their parents end, and are killed then: a command of a user can't stay behind.

use super::deliver::{Order, Result as Delivered};
use super::outstanding::Delivery;
use super::place::Key;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, geteuid};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tutti_linux::proc::{self, ProcessStat};
use tutti_node::executable::own_program;

/// Deliveries at once: in all, and of one user.
const AT_ONCE: usize = 16;
const OF_USER: usize = 2;

/// How often it is looked for what deliveries have left, at once.
const STRAY_LOOKS: u32 = 50;

/// The most of what a delivery says that is logged.
const SAID_BYTES_MAX: u64 = 300;

/// A delivery in progress.
struct Running {
    uid: u32,
    child: Child,
    said: File,
    until: Instant,
    is_late: bool,
}

/// All in progress.
#[derive(Default)]
pub(super) struct Children {
    all: BTreeMap<Key, Running>,
}

impl Children {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
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
        let order = Order {
            uid: delivery.uid,
            gid: delivery.gid,
            user: delivery.user.clone(),
            drops_rights: geteuid().is_root(),
            way: delivery.way.clone(),
            key: delivery.key.clone(),
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            message: delivery.message.clone(),
        };
        // Files without a name: a pipe would have to be read and written meanwhile.
        let (mut input, said) = (unnamed()?, unnamed()?);
        input.write_all(&serde_json::to_vec(&order)?)?;
        input.seek(SeekFrom::Start(0))?;
        let program = own_program().map_err(std::io::Error::other)?;
        let child = Command::new(program)
            .args(["notifier", "--deliver"])
            .current_dir("/")
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(said.try_clone()?)
            .process_group(0)
            .spawn()?;
        let until = Instant::now() + time;
        self.all.insert(key, Running { uid: delivery.uid, child, said, until, is_late: false });
        Ok(())
    }

    /// Those that have ended, each with its result.
    pub(super) fn reap(&mut self) -> Vec<(Key, Delivered)> {
        let mut ended = Vec::new();
        for (&key, running) in &mut self.all {
            if !running.is_late && Instant::now() >= running.until {
                running.is_late = true;
                end_group(&running.child);
            }
            if has_ended(&running.child) {
                ended.push(key);
            }
        }
        let results = ended.into_iter().filter_map(|key| {
            let mut running = self.all.remove(&key)?;
            // Not reaped, so the number is still that of its group.
            end_group(&running.child);
            let status = running.child.wait().ok()?;
            Some((key, result_of(running, status)))
        });
        let results = results.collect();
        self.end_strays();
        results
    }

    /// Kills and reaps the children that are no deliveries of ours: what these have left.
    fn end_strays(&self) {
        for _ in 0..STRAY_LOOKS {
            let strays = self.strays();
            if strays.is_empty() {
                return;
            }
            for pid in strays {
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn strays(&self) -> Vec<Pid> {
        let own = std::process::id().cast_signed();
        let is_known = |pid: i32| self.all.values().any(|it| it.child.id().cast_signed() == pid);
        let is_child = |pid: i32| ProcessStat::read(pid).is_ok_and(|stat| stat.ppid == own);
        let all = proc::descendants(own).unwrap_or_default().into_iter();
        all.filter(|&pid| is_child(pid) && !is_known(pid)).map(Pid::from_raw).collect()
    }

    /// Kills all that is left.
    pub(super) fn end_all(&mut self) {
        for (_, mut running) in std::mem::take(&mut self.all) {
            end_group(&running.child);
            let _ = running.child.wait();
        }
        self.end_strays();
    }
}

/// Whether a child has ended; it is not reaped.
fn has_ended(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    let id = Id::Pid(Pid::from_raw(child.id().cast_signed()));
    !matches!(waitid(id, flags), Ok(WaitStatus::StillAlive))
}

fn end_group(leader: &Child) {
    let _ = killpg(Pid::from_raw(leader.id().cast_signed()), Signal::SIGKILL);
}

/// An empty file that no other process can open by name.
fn unnamed() -> std::io::Result<File> {
    let name = c"tutti-notification";
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    Ok(File::from(nix::sys::memfd::memfd_create(name, flags)?))
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
    let said = String::from_utf8_lossy(&said);
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let said: String = said.trim().chars().map(shown).collect();
    let why = if said.is_empty() { status.to_string() } else { said };
    Err((why, status.code() == Some(super::deliver::FINAL.into())))
}
