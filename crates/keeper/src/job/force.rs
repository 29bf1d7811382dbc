//! Ending a job by force, and what has to be seen before.
//!
//! Processes that are killed leave shared memory behind, as MPI libraries use it, and which files it is can only be
//! seen in their maps while they live. How long that takes is in the hands of the user: a fork bomb has hundreds of
//! processes, and the maps of one that is just being copied can't be read. So threads look ([`tutti_node::workers`]),
//! while the group of a job that is to be killed is frozen already; and what was asked for is done when they have
//! looked, or a tenth of a second later.
//!
//! Where no group can be killed as one, processes are stopped and killed one by one, by threads as well.

use super::{Job, Phase, Process, SharedFiles, Task, nap_ns, send_order};
use crate::context::{Context, chain};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;
use tutti_linux::cgroup::processes_of;
use tutti_linux::signal::{Root, kill_forest};
use tutti_linux::{proc, shm};
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::processes::kill;
use tutti_node::platform::time as clock;
use tutti_node::workers::{Bounds, Workers};
use tutti_types::{Rank, TaskStatus};
use tutti_wire::code::Code;
use tutti_wire::keeper::FromKeeper;

/// Processes whose maps are read before a job is ended by force. Ranks share their files, so some of very many tell
/// of all.
const PROCESSES_LOOKED_AT_MAX: usize = 256;

/// How long a job that is to be ended may be looked at.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// Orders that wait for a look. One more ends the wait.
const ORDERS_MAX: usize = 64;

/// How long what was killed may take before it is said that it hangs.
const HANGS_AFTER_NS: u64 = 5_000_000_000;

/// Threads that look, of one user and in all.
const LOOKS: Bounds = Bounds { of_user: 2, all: 32 };

/// Threads that kill. One may be busy for ten seconds with a process that hangs.
const KILLS: Bounds = Bounds { of_user: 8, all: 64 };

/// What waits until it was seen what the processes of a job have mapped.
pub(crate) enum Order {
    /// To end all of it.
    Kill,
    /// To send this signal to these ranks.
    Signal(Vec<Rank>, u8),
}

/// How a job is ended by force.
#[derive(Default)]
pub(super) struct Force {
    /// What looks for shared memory of its processes, and what is to be done then.
    look: Option<Look>,
    /// Ends what is in its group, where that can't be done at once.
    killer: Killer,
}

/// A look that is under way.
struct Look {
    found: Receiver<SharedFiles>,
    until_ns: u64,
    naps: u32,
    orders: Vec<Order>,
}

/// Where the processes of a job are.
enum Places {
    Group(PathBuf),
    Below(Vec<i32>),
}

impl Places {
    fn look(self, until: Instant) -> SharedFiles {
        #[cfg(test)]
        crate::fixture::wait_while_looks_are_held();
        let mut pids = match self {
            Self::Group(path) => processes_of(&path).unwrap_or_default(),
            Self::Below(minders) => {
                let below = |pid| proc::descendants(pid).unwrap_or_default();
                minders.into_iter().flat_map(below).collect()
            }
        };
        pids.truncate(PROCESSES_LOOKED_AT_MAX);
        shm::mapped_files(&pids, until)
    }
}

/// Kills trees of processes beside the loop: one walk at a time, and one more if it was asked for meanwhile.
#[derive(Clone, Default)]
pub(crate) struct Killer(Arc<Mutex<Walks>>);

#[derive(Default)]
struct Walks {
    is_under_way: bool,
    /// What was asked for meanwhile, by what it is to end: each once.
    wanted: Vec<Victims>,
}

/// What a walk is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Victims {
    /// These trees of processes of a user.
    Trees(u32, Vec<Root>),
    /// All in a group. Another may have its name by the time at which the walk begins.
    Group(Arc<tutti_linux::cgroup::Cgroup>),
}

impl Killer {
    fn walks(&self) -> MutexGuard<'_, Walks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a walk has not ended.
    pub(super) fn is_at_work(&self) -> bool {
        self.walks().is_under_way
    }

    /// Has a thread of `user` end these, after those that were asked for before.
    fn start(&self, user: u32, victims: Victims) {
        static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(KILLS));
        {
            let mut walks = self.walks();
            if !walks.wanted.contains(&victims) {
                walks.wanted.push(victims);
            }
            if std::mem::replace(&mut walks.is_under_way, true) {
                return;
            }
        }
        let killer = self.clone();
        WORKERS.start_for_sure(user, Box::new(move || killer.work()));
    }

    fn work(&self) {
        loop {
            let wanted = {
                let mut walks = self.walks();
                walks.is_under_way = !walks.wanted.is_empty();
                std::mem::take(&mut walks.wanted)
            };
            if wanted.is_empty() {
                return;
            }
            wanted.iter().for_each(Victims::kill);
        }
    }

    /// Ends these trees, as far as they are still there.
    pub(crate) fn kill(&self, user: u32, trees: Vec<Root>) {
        // A number must not be another process's by the time at which the thread comes to it.
        let trees: Vec<Root> = trees.into_iter().filter_map(Root::held).collect();
        self.start(user, Victims::Trees(user, trees));
    }

    /// Ends all in a group; on kernels that can't do that at once, beside the loop.
    pub(super) fn kill_group(&self, user: u32, group: &Cgroup) {
        match group.kill_at_once() {
            Ok(true) => {}
            Ok(false) => match tutti_linux::cgroup::Cgroup::open(group.path()) {
                Ok(group) => self.start(user, Victims::Group(Arc::new(group))),
                Err(error) => warn_of_group(group.path(), &error),
            },
            Err(error) => warn_of_group(group.path(), &error),
        }
    }
}

impl Victims {
    fn kill(&self) {
        match self {
            Self::Trees(user, trees) => {
                if let Err(error) = kill_forest(trees) {
                    warn!(code = %Code::ProcessStuck, "cannot kill processes of user {user}: {}", chain(&error));
                }
            }
            Self::Group(group) => {
                if let Err(error) = group.kill() {
                    warn_of_group(group.path(), &error);
                }
            }
        }
    }
}

fn warn_of_group(path: &Path, error: &tutti_linux::Error) {
    if !error.is_gone() {
        let path = path.display();
        warn!(code = %Code::ProcessStuck, "cannot kill what is in {path}: {}", chain(error));
    }
}

impl Job {
    /// Ends every process; tasks that haven't started never will.
    pub(crate) fn kill(&mut self, context: &mut Context) {
        if let Some(usage) = self.life.cleared() {
            // The agent asks again only if it has missed the report.
            context.reports.push(FromKeeper::Cleared { launch: self.launch.id(), usage });
            return;
        }
        self.life.kill();
        self.hurry_writer();
        self.after_a_look(Order::Kill, context);
    }

    /// Carries an order out that may end processes, when it was seen what they have mapped.
    pub(super) fn after_a_look(&mut self, order: Order, context: &mut Context) {
        let is_kill = matches!(order, Order::Kill);
        if self.force.look.is_none() {
            self.force.look = self.begin_look();
        }
        let group = self.cgroup.get().filter(|_| is_kill);
        match &mut self.force.look {
            Some(look) if look.orders.len() < ORDERS_MAX => {
                look.orders.push(order);
                // Nothing is made, and no processor used, while it is looked at.
                let _ = group.map(Cgroup::request_freeze);
                let at_ns = clock::monotonic_ns() + nap_ns(1);
                context.beside.entry(self.key()).or_insert(at_ns);
            }
            _ => {
                self.end_look(context);
                self.carry_out_order(order, context);
            }
        }
    }

    /// Carries an order out behind those that wait already.
    pub(super) fn in_turn(&mut self, order: Order, context: &mut Context) {
        match &self.force.look {
            Some(_) => self.after_a_look(order, context),
            None => self.carry_out_order(order, context),
        }
    }

    /// `None`: there is nothing to look at.
    fn begin_look(&self) -> Option<Look> {
        if tutti_node::platform::processes::are_simulated() {
            return None;
        }
        static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(LOOKS));
        let running = self.tasks.iter().filter_map(|task| match &task.phase {
            Phase::Running(process) => Some(process.pid),
            _ => None,
        });
        let running: Vec<i32> = running.collect();
        let is_adopted = self.tasks.iter().any(|task| matches!(task.phase, Phase::Adopted(_)));
        let places = match self.cgroup.get() {
            Some(group) if is_adopted || !running.is_empty() => {
                Places::Group(group.path().to_owned())
            }
            None if !running.is_empty() => Places::Below(running),
            _ => return None,
        };
        let (tell, found) = sync_channel(1);
        let until = Instant::now() + LOOK_MAX;
        let look = move || drop(tell.send(places.look(until)));
        WORKERS.start(self.launch.credentials.uid, Box::new(look));
        let until_ns = clock::monotonic_ns() + u64::try_from(LOOK_MAX.as_nanos()).unwrap_or(0);
        Some(Look { found, until_ns, naps: 1, orders: Vec::new() })
    }

    /// The time has come to see how far a look is.
    pub(super) fn watch_look(&mut self, context: &mut Context) {
        let key = self.key();
        let Some(look) = &mut self.force.look else { return };
        let now_ns = clock::monotonic_ns();
        let files = match look.found.try_recv() {
            Err(TryRecvError::Empty) if now_ns < look.until_ns => {
                look.naps = look.naps.saturating_add(1);
                context.beside.insert(key, now_ns + nap_ns(look.naps));
                return;
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => SharedFiles::new(),
            Ok(files) => files,
        };
        self.traces.note_shared(files);
        self.end_look(context);
    }

    /// Waits no more for a look, if there is one.
    pub(crate) fn end_look(&mut self, context: &mut Context) {
        let Some(look) = self.force.look.take() else { return };
        for order in look.orders {
            self.carry_out_order(order, context);
        }
    }

    fn carry_out_order(&mut self, order: Order, context: &mut Context) {
        match order {
            Order::Kill => self.kill_now(context),
            Order::Signal(ranks, number) => self.signal_now(&ranks, number, context),
        }
    }

    fn kill_now(&mut self, context: &mut Context) {
        let user = self.launch.credentials.uid;
        if let Some(group) = self.cgroup.get() {
            self.force.killer.kill_group(user, group);
        }
        let hangs_ns = clock::monotonic_ns() + HANGS_AFTER_NS;
        for index in 0..self.tasks.len() {
            if matches!(self.tasks[index].phase, Phase::Running(_) | Phase::Adopted(_)) {
                context.endings.insert((self.key(), index), hangs_ns);
            }
            let task = &self.tasks[index];
            match &task.phase {
                // Processes are moved into its group perhaps: it ends when the answer is there.
                Phase::Waiting if self.is_attaching(index) => {}
                Phase::Waiting => {
                    self.end_unstarted(index, TaskStatus::Signaled(9), String::new(), context);
                }
                Phase::Running(process) if process.minder.is_some() && !self.launch.saves_image => {
                    task.kill_below(process, user);
                }
                // It may be outside of its group, by itself or moved by root.
                Phase::Running(process) => {
                    let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
                }
                Phase::Adopted(adopted) if self.cgroup.get().is_none() => {
                    task.killer.kill(user, adopted.trees());
                }
                _ => {}
            }
        }
        if self.launch.share.held.is_some() && !self.traces.are_swept() {
            // No task that ends from now on may be left to say so.
            self.clear_if_ended(context);
        }
    }

    fn signal_now(&mut self, ranks: &[Rank], number: u8, context: &mut Context) {
        for index in 0..self.tasks.len() {
            if ranks.is_empty() || ranks.contains(&self.tasks[index].rank) {
                send_order(self, index, number, context);
            }
        }
    }

    /// What a program before this one had begun by threads is begun again: those ended with it.
    pub(crate) fn begin_again(&mut self, context: &mut Context) {
        if self.life.is_cleared() {
            return;
        }
        let may_end = self.life.is_killed() || self.launch.share.held.is_none();
        if may_end && self.tasks.iter().all(Task::has_ended) && !self.tasks.is_empty() {
            return self.clear(context);
        }
        if self.life.is_killed() {
            return self.kill(context);
        }
        let waits = self.tasks.iter().position(|task| matches!(task.phase, Phase::Waiting));
        if let Some(index) = waits.filter(|_| self.life.has_started() && self.is_adopted()) {
            // The service manager was being asked for its processes.
            return self.adopt(index, context);
        }
        for task in &self.tasks {
            if let Phase::Running(process) = &task.phase
                && process.minder.as_ref().is_some_and(super::Minder::is_over)
            {
                task.kill_below(process, self.launch.credentials.uid);
            }
        }
    }
}

impl Task {
    /// Ends what is below the minder of a task.
    pub(super) fn kill_below(&self, process: &Process, user: u32) {
        self.killer.kill(user, vec![Root::below(process.pid)]);
    }

    /// Ends the root of a task whose minder has ended: it is a child of this process now, so its number is its own.
    pub(super) fn kill_orphan(&self, root: Option<i32>, user: u32) {
        let us = std::process::id().cast_signed();
        if let Some(root) = root
            && proc::ProcessStat::read(root).is_ok_and(|stat| stat.ppid == us)
        {
            self.killer.kill(user, vec![Root::whole(root)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Root) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let root = Root::whole(child.id().cast_signed()).held().unwrap();
        (child, root)
    }

    #[test]
    fn what_is_to_be_killed_during_a_walk_is_killed_after_it() {
        let killer = Killer::default();
        let (mut one, first) = sleeper();
        let (mut other, second) = sleeper();
        killer.walks().is_under_way = true;
        for tree in [first, second, second] {
            killer.kill(u32::MAX, vec![tree]);
        }
        assert_eq!(killer.walks().wanted.len(), 2, "each once");
        killer.work();
        assert!(!killer.is_at_work());
        one.wait().unwrap();
        other.wait().unwrap();
    }
}
