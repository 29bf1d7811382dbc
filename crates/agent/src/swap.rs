//! The memory of jobs that do not run for long is moved out, and back before they run again.
//!
//! The controller orders it and waits for the answer. A thread beside the loop does the work: it
//! waits until the job is frozen, moves its memory by the best means that there is
//! ([`tutti_linux::swap`]), and measures what has left and how long that took. Until the answer the
//! switch thread does not thaw the job, since no timetable names it. A later order calls an
//! earlier one off, and waits for its end: limits are restored by then.
//!
//! A failure leaves the job where it was: the answer says what is resident, and the controller
//! counts that.

use super::driver::Agent;
use super::job::Job;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tutti_linux::proc::ProcessStat;
use tutti_linux::swap::{Advice, SwapBy, SwapSpace, advise_all, resident_bytes, takes_advice};
use tutti_node::capability::{swap_means, swap_space};
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::workers::{Bounds, Workers};
use tutti_types::{ControlMethod, JobId, LaunchId, Nanos, StepKey};
use tutti_wire::code::Code;
use tutti_wire::report::{NodeSwap, SwapMeans};
use tutti_wire::tree::FromAgent;

/// How many threads move memory in one direction. The order of one user does not wait for those of
/// another.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 8 };

/// How long to wait until a job has stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// The first nap while it has not, and the longest.
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(100);

/// The threads that move memory, and what they do.
pub(super) struct Swaps {
    /// By what memory is moved out here, as it was found at the start.
    by: SwapMeans,
    out: Workers,
    back: Workers,
    under_way: BTreeMap<JobId, UnderWay>,
}

impl Swaps {
    /// Without a thread yet.
    pub(super) fn new(hierarchy: Option<&Hierarchy>) -> Self {
        Self {
            by: swap_means(hierarchy),
            out: Workers::new(BOUNDS),
            back: Workers::new(BOUNDS),
            under_way: BTreeMap::new(),
        }
    }
}

/// The latest order about a job.
struct UnderWay {
    is_off: Arc<AtomicBool>,
    /// Held by the thread that carries out an order about the job.
    turn: Arc<Mutex<()>>,
}

/// The memory of a job on this node.
struct Memory {
    group: Option<Arc<Cgroup>>,
    control: ControlMethod,
    /// The processes of a job without a group.
    processes: Vec<i32>,
    is_off: Arc<AtomicBool>,
}

/// What has become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    resident_bytes: u64,
    left_bytes: u64,
    by: SwapBy,
}

impl Memory {
    fn is_wanted(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    fn list(&self) -> tutti_linux::Result<Vec<i32>> {
        self.group.as_ref().map_or_else(|| Ok(self.processes.clone()), |group| group.processes())
    }

    /// What counts as resident. Without a group no limit holds, so all allocated memory counts.
    fn resident_bytes(&self) -> tutti_linux::Result<u64> {
        self.group.as_ref().map_or(Ok(u64::MAX), |group| group.resident_bytes())
    }

    /// Whether none of its processes runs.
    fn stands(&self) -> tutti_linux::Result<bool> {
        match &self.group {
            Some(group) if self.control != ControlMethod::Signal => group.is_frozen(),
            _ => {
                let stats = self.list()?.into_iter().map(ProcessStat::read);
                let runs = |stat: ProcessStat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X');
                Ok(!stats.flatten().any(runs))
            }
        }
    }

    /// Waits until none of its processes runs, unless that is called off. Whether none does.
    fn await_stop(&self) -> tutti_linux::Result<bool> {
        let (began, mut nap) = (Instant::now(), NAP_MIN);
        while !self.stands()? {
            if !self.is_wanted() || began.elapsed() > STOP_PATIENCE {
                return Ok(false);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(NAP_MAX);
        }
        Ok(true)
    }

    /// Moves it out. A limit that is lowered for it holds back frozen processes only.
    fn swap_out(&self) -> tutti_linux::Result<Moved> {
        let goes_on = || self.is_wanted();
        let by_advice = || {
            let by = if takes_advice() { SwapBy::Advice } else { SwapBy::None };
            advise_all(|| self.list(), Advice::Out, &goes_on).map(|()| by)
        };
        let has = || match &self.group {
            Some(group) => group.resident_bytes(),
            None => self.list().map(|it| resident_bytes(&it)),
        };
        let before = has()?;
        let by = match &self.group {
            Some(group) if group.is_frozen()? => group.swap_out(&goes_on)?,
            _ => by_advice()?,
        };
        let left_bytes = before.saturating_sub(has()?);
        Ok(Moved { resident_bytes: self.resident_bytes()?, left_bytes, by })
    }

    fn swap_in(&self) -> tutti_linux::Result<Moved> {
        let goes_on = || self.is_wanted();
        let by = SwapBy::Advice;
        match &self.group {
            Some(group) => {
                // Before all else: under a lowered limit the job could not run.
                group.restore_limits()?;
                group.swap_in(&goes_on)?;
            }
            None => advise_all(|| self.list(), Advice::Back, &goes_on)?,
        }
        Ok(Moved { resident_bytes: self.resident_bytes()?, left_bytes: 0, by })
    }

    /// Carries out an order; one that is called off has no answer.
    fn carry_out(&self, launch: LaunchId, order: u64, out: bool) -> Option<FromAgent> {
        let job = launch.job;
        let stays = Moved { resident_bytes: u64::MAX, left_bytes: 0, by: SwapBy::None };
        let stands = if out { self.await_stop() } else { Ok(true) };
        let began = Instant::now();
        let outcome = match stands {
            Ok(true) if out => self.swap_out(),
            Ok(true) => self.swap_in(),
            Ok(false) => {
                let seconds = STOP_PATIENCE.as_secs();
                warn!(code = %Code::ProcessStuck,
                    "the memory of job {job} stays: it has not stopped in {seconds} s");
                Ok(stays)
            }
            Err(error) => Err(error),
        };
        let took = began.elapsed();
        if !self.is_wanted() {
            return None;
        }
        let moved = outcome.unwrap_or_else(|error| {
            if !error.is_gone() {
                warn!(code = %Code::System, "the memory of job {job} is not moved: {error}");
            }
            stays
        });
        let (resident_bytes, left_bytes) = (moved.resident_bytes, moved.left_bytes);
        let (mib, ms) = (left_bytes >> 20, took.as_millis());
        if out {
            info!("{mib} MiB of job {job} left in {ms} ms by {}", moved.by.name());
        }
        let took = Nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let space_bytes = SwapSpace::read().usable_bytes();
        Some(FromAgent::Swapped { launch, order, resident_bytes, left_bytes, took, space_bytes })
    }
}

impl Agent {
    /// How the memory of jobs is swapped out here.
    pub(super) fn swap(&self) -> NodeSwap {
        swap_space(self.processes.swaps.by)
    }

    /// Moves the memory of a job out, or back.
    pub(super) fn on_swap(&mut self, launch: LaunchId, order: u64, out: bool) {
        let Some(job) = self.launched(launch).filter(|job| !job.tasks.are_cleared()) else {
            return;
        };
        let (group, control) = (job.group.clone(), job.control);
        let user = job.owner.unwrap_or_default();
        let processes = if group.is_some() { Vec::new() } else { self.processes_here(launch.job) };
        let turn = self.call_off(launch.job).unwrap_or_default();
        let without_thread = (group.clone(), Arc::clone(&turn));
        let is_off = Arc::new(AtomicBool::new(false));
        let under_way = UnderWay { is_off: Arc::clone(&is_off), turn: Arc::clone(&turn) };
        let teller = self.processes.beside.teller();
        let memory = Memory { group, control, processes, is_off };
        let swaps = &mut self.processes.swaps;
        swaps.under_way.insert(launch.job, under_way);
        let workers = if out { &swaps.out } else { &swaps.back };
        let work = move || {
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = memory.is_wanted().then(|| memory.carry_out(launch, order, out));
            drop(turn);
            if let Some(answer) = answer.flatten() {
                teller.tell(Box::new(move |agent| agent.tell_controller(answer)));
            }
        };
        if !workers.start_or_drop(user, Box::new(work)) {
            self.leave_memory(user, (launch, order, out), without_thread);
        }
    }

    /// Answers an order for which there is no thread: nothing has moved. A job that is to run again
    /// has its limits, and reads its memory when it needs it.
    fn leave_memory(
        &self,
        user: u32,
        (launch, order, out): (LaunchId, u64, bool),
        (group, turn): (Option<Arc<Cgroup>>, Arc<Mutex<()>>),
    ) {
        let job = launch.job;
        warn!(code = %Code::System, "no thread can be made that moves the memory of job {job}");
        self.processes.beside.start(user, move || {
            // The thread of an order before this one ends soon: that is called off.
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let limits = group.filter(|_| !out).map_or(Ok(()), |group| group.restore_limits());
            drop(turn);
            if let Err(error) = limits {
                warn!(code = %Code::System, "the limits of job {job} are not restored: {error}");
            }
            let space_bytes = SwapSpace::read().usable_bytes();
            let (resident_bytes, left_bytes, took) = (u64::MAX, 0, Nanos::ZERO);
            let answer =
                FromAgent::Swapped { launch, order, resident_bytes, left_bytes, took, space_bytes };
            Box::new(move |agent| agent.tell_controller(answer))
        });
    }

    /// Nothing of the memory of a job is moved any more.
    pub(super) fn end_swap(&mut self, job: JobId) {
        drop(self.call_off(job));
    }

    /// A controller that takes over orders anew what is to be moved.
    pub(super) fn end_swaps(&mut self) {
        // They stay: the next order about a job waits for the end of the one before.
        for under_way in self.processes.swaps.under_way.values() {
            under_way.is_off.store(true, Ordering::Relaxed);
        }
    }

    fn call_off(&mut self, job: JobId) -> Option<Arc<Mutex<()>>> {
        let under_way = self.processes.swaps.under_way.remove(&job)?;
        under_way.is_off.store(true, Ordering::Relaxed);
        Some(under_way.turn)
    }

    /// The processes of a job without a group.
    fn processes_here(&mut self, id: JobId) -> Vec<i32> {
        let ranks = |job: &Job| job.tasks.roots().keys().copied().collect();
        let ranks: Vec<_> = self.jobs.get(&id).map(ranks).unwrap_or_default();
        let tracker = &mut self.processes.tracker;
        let members =
            ranks.into_iter().flat_map(|rank| tracker.members((StepKey::first(id), rank)));
        members.map(|member| member.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const LAUNCH: LaunchId = LaunchId::first(JobId(7));

    /// A process, and its memory without a group.
    fn process() -> (Child, Memory) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        let (control, is_off) = (ControlMethod::Signal, Arc::new(AtomicBool::new(false)));
        (child, Memory { group: None, control, processes: vec![pid], is_off })
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_no_group_holds_counts_whole_though_its_memory_leaves() {
        let (child, memory) = process();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        for out in [true, false] {
            match memory.carry_out(LAUNCH, 3, out) {
                Some(FromAgent::Swapped { launch, order: 3, resident_bytes: u64::MAX, .. }) => {
                    assert_eq!(launch, LAUNCH);
                }
                other => panic!("{other:?}"),
            }
        }
        end(child);
    }

    #[test]
    fn an_order_that_is_called_off_waits_no_longer_for_a_process_that_runs() {
        let (child, memory) = process();
        assert!(!memory.stands().unwrap());
        let is_off = Arc::clone(&memory.is_off);
        let caller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            is_off.store(true, Ordering::Relaxed);
        });
        assert_eq!(memory.carry_out(LAUNCH, 3, true), None);
        caller.join().unwrap();
        end(child);
    }
}
