//! What the controller asks: what there is, and orders about parts of jobs.

use super::driver::Agent;
use super::job::Job;
use super::orders::Kind;
use super::process_report::{self, Stands};
use super::subtree_control::PartError;
use super::upgrade::{path_of, runs};
use super::vacate::Vacate;
use std::sync::atomic::Ordering;
use tutti_linux::proc;
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{JobId, Rank, StepKey};
use tutti_wire::keeper::ToKeeper;
use tutti_wire::limits::PROCESSES_REPORTED_MAX;
use tutti_wire::report::{AgentStatus, Target, TimetableReport};
use tutti_wire::tree::{Alive, Answer, Fares, FromAgent, Question};

/// Questions for a sign of life of the keeper that wait for it.
const LIFE_QUERIES_MAX: usize = 64;

/// The most memory that any living task of a job had at once; `None` where it is not counted for
/// all of them.
fn memory_peak(job: &Job) -> Option<u64> {
    let group = job.group.as_ref()?;
    if job.tasks.ranks().len() == 1
        && let Some(peak) = group.memory_peak()
    {
        return Some(peak);
    }
    let of_task = |&rank: &Rank| Cgroup::open(&job.group_of(rank)).ok();
    let groups = job.tasks.roots().keys().filter_map(of_task);
    let peaks: Option<Vec<u64>> = groups.map(|group| group.memory_peak()).collect();
    Some(peaks?.into_iter().max().unwrap_or(0))
}

impl Agent {
    /// Answers what the controller asks; `None`: later, if at all.
    pub(super) fn answer(&mut self, query: u64, question: &Question) -> Option<Answer> {
        Some(match *question {
            Question::Upgrade { ref program } => return self.upgrade(query, &path_of(program)),
            Question::Runs { ref program } => runs(&path_of(program)),
            Question::Switches { count } => {
                Answer::Switches(self.switch.report(count as usize).records)
            }
            Question::Devices { ref devices, ref others } => self.look_at(devices, others),
            Question::Output { ref path, uid, from } => {
                return self.read_output(query, path, uid, from);
            }
            Question::Status => Answer::Status(Box::new(self.status())),
            Question::SignOfLife { of_keeper: true } => return self.ask_keeper_for_life(query),
            Question::SignOfLife { of_keeper: false } => Answer::Alive(Alive {
                after_ns: self.switch.answers_after_ns(),
                has_supervisor: self.has_supervisor(),
            }),
            Question::Timetable => {
                let report = self.switch.timetable_report();
                let node = self.options.node.clone();
                Answer::Timetable(Box::new(TimetableReport { node, ..report }))
            }
            Question::Usages => self.usages(),
            Question::Fares => Answer::Fares(self.fares()),
            Question::Processes(target) => self.processes(target),
            Question::SuspendPart(target) => return self.order(query, Kind::Suspend, target),
            Question::ResumePart(target) => return self.order(query, Kind::Resume, target),
            Question::SignalPart { target, signal } => {
                return self.order(query, Kind::Signal(signal), target);
            }
            Question::EndPart { target, grace } => {
                return self.order(query, Kind::End(grace), target);
            }
        })
    }

    /// Asks the keeper for a sign of life; the controller gets an answer when the keeper has given
    /// it.
    fn ask_keeper_for_life(&mut self, query: u64) -> Option<Answer> {
        if self.keeping.keeper.is_none() {
            return Some(Answer::Failed("the agent has no keeper now".into()));
        }
        // One that stands still for long is not asked for ever.
        if self.keeping.asked_for_life.len() == LIFE_QUERIES_MAX {
            self.keeping.asked_for_life.pop_front();
        }
        self.keeping.asked_for_life.push_back((query, monotonic_ns()));
        self.tell_keeper(&ToKeeper::SignOfLife);
        None
    }

    /// The keeper lives: all that asked for a sign of it get their answer.
    pub(super) fn on_keeper_alive(&mut self) {
        let now_ns = monotonic_ns();
        let has_supervisor = self.has_supervisor();
        for (query, asked_ns) in std::mem::take(&mut self.keeping.asked_for_life) {
            let after_ns = Some(now_ns.saturating_sub(asked_ns));
            let answer = Answer::Alive(Alive { after_ns, has_supervisor });
            self.tell_controller(FromAgent::Answer { query, answer });
        }
    }

    fn has_supervisor(&self) -> bool {
        nix::unistd::getppid() == self.service.parent
    }

    /// What the kernel has counted until now. Where it counts nothing, only what the ended tasks
    /// used is known.
    fn usages(&mut self) -> Answer {
        self.processes.tracker.catch_up();
        let usage = |(&id, job): (&JobId, &Job)| {
            if let Some(usage) = job.tasks.cleared() {
                return (id, usage);
            }
            let mut usage = *job.tasks.counted();
            self.processes.tracker.count(StepKey::first(id)).add_to(&mut usage);
            usage.switches = job.switches.load(Ordering::Relaxed);
            match job.group.as_ref().and_then(|group| group.cpu_usage().ok()) {
                Some(cpu) => {
                    (usage.user_us, usage.system_us, usage.cpu_whole) =
                        (cpu.user_us, cpu.system_us, true);
                }
                None => usage.cpu_whole = false,
            }
            match job.group.as_ref().and_then(|group| group.io_bytes()) {
                Some((read, written)) => {
                    (usage.read_bytes, usage.written_bytes, usage.io_whole) = (read, written, true);
                }
                None => usage.io_whole = false,
            }
            let peak = memory_peak(job);
            usage.memory_whole &= peak.is_some() && !job.is_adopted();
            usage.memory_peak_bytes = usage.memory_peak_bytes.max(peak.unwrap_or(0));
            (id, usage)
        };
        Answer::Usages(self.jobs.iter().map(usage).collect())
    }

    fn processes(&mut self, target: Target) -> Answer {
        let Some(job) = self.jobs.get(&target.job) else {
            return Answer::Failed(format!("job {} has no task on this node", target.job));
        };
        let stopped = job.suspended.processes();
        let wanted = |rank: &&Rank| target.rank.is_none_or(|wanted| **rank == wanted);
        let mut tasks = Vec::new();
        let mut room = PROCESSES_REPORTED_MAX;
        for rank in job.tasks.roots().keys().filter(wanted).copied().collect::<Vec<_>>() {
            let task = (StepKey::first(target.job), rank);
            let members = match target.pid {
                Some(pid) => self.processes.tracker.subtree(task, pid),
                None => self.processes.tracker.members(task),
            };
            if let Some(pid) = target.pid.filter(|_| members.is_empty()) {
                return Answer::Failed(PartError::NotInTask { pid, target }.to_string());
            }
            let stands = Stands { frozen: self.is_frozen(task), stopped: &stopped };
            tasks.push(process_report::report(
                task,
                &self.options.node,
                &members,
                &stands,
                &mut room,
            ));
        }
        Answer::Tasks(tasks)
    }

    fn fares(&mut self) -> Fares {
        let (nodes, jobs) = self.tree.branch();
        let own = self.groups.own();
        Fares {
            foreign_milli: self.external.foreign.share(monotonic_ns(), own),
            load_averages_milli: proc::load_averages().ok(),
            memory_free_bytes: proc::memory_available_bytes().ok(),
            swap: self.swap(),
            processes: u32::try_from(proc::all().len()).unwrap_or(u32::MAX),
            branch_nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            branch_jobs: u32::try_from(jobs).unwrap_or(u32::MAX),
            clock_ahead_ns: self.tree.ahead_ns(),
            late_timetables: self.switch.report(0).late,
        }
    }

    fn status(&self) -> AgentStatus {
        let report = self.switch.report(0);
        let own = tutti_node::capability::of_this_process(self.groups.hierarchy.as_ref());
        AgentStatus {
            node: self.options.node.clone(),
            pid: std::process::id().cast_signed(),
            keeper_pid: self.keeping.keeper_pid,
            cgroup: match self.groups.hierarchy {
                Some(_) => own.cgroup,
                None => self.groups.no_cgroup.clone(),
            },
            process_events: self.processes.tracker.process_events(),
            io_counted: own.io_counted || self.processes.tracker.counts_io(),
            realtime: report.realtime,
            switches: report.switches,
            stragglers: report.stragglers,
            late_timetables: report.late,
            switch_times: report.times,
            switch_delays: report.delays,
            notices: self.processes.vacate.as_ref().map_or_else(Default::default, Vacate::counts),
            cpu_pressure_us: proc::cpu_pressure_us(),
            ..own
        }
    }
}
