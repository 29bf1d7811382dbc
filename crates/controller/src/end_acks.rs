//! Nodes keep how their parts of a job have ended until they are told to forget it: not before the job's own
//! end is on disk. A controller that took over without knowing of that end would begin the job once more where
//! no other remembers it either.
//!
//! A controller that takes over knows ends of which that is not known, and brings them to disk first.
//!
//! Nothing waits for that, so the disk is not asked each time: what happens in a second goes there
//! together. So do new jobs that no client was told will be there after a loss of power: their
//! numbers must not be given once more while nodes still have them; and what a client has set or
//! asked for, since it was told that it is done. All else that happens may wait longer
//! ([`patience`]), and comes to disk with that, or by itself.

use super::agents::NodeEntry;
use super::driver::Driver;
use std::collections::VecDeque;
use tutti_core::Event;
use tutti_journal::Number;
use tutti_types::{ClusterTime, JobId, LaunchId, Nanos, NodeId};
use tutti_wire::tree::ToAgent;

/// How long beginnings and ends gather.
const GATHER: Nanos = Nanos::from_secs(1);

/// The same for what nodes say again, or what can be found out again: so that time, which goes on after the last entry
/// that is there, does not go back by more than that and the age of that entry.
const GATHER_LONGER: Nanos = Nanos::from_secs(10);

/// Jobs that have ended, of which nodes still know.
#[derive(Debug)]
pub(super) struct Forgetting {
    /// Each with the entry of the journal that says so.
    jobs: VecDeque<(Number, JobId)>,
    /// When the disk is asked.
    due: ClusterTime,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), due: ClusterTime::NEVER }
    }
}

impl Forgetting {
    /// When [`Driver::ask_disk`] has something to do.
    pub(super) const fn due(&self) -> ClusterTime {
        self.due
    }
}

impl Driver {
    /// A job has ended: its nodes forget it when that is on disk.
    pub(super) fn forget_later(&mut self, job: JobId) {
        for entry in self.cluster.nodes.values_mut() {
            entry.has_ended(job);
        }
        self.ends.forgetting.jobs.push_back((self.memory.journal.noted(), job));
        self.ask_disk_soon();
    }

    /// A node has joined that holds these. What has ended is kept there until that is on disk, whether it has ended
    /// by our word or by that of an earlier controller; which is why it is asked for all that is noted by now.
    pub(super) fn keep_ended(&mut self, node: NodeId, held: &[LaunchId]) {
        let number = self.memory.journal.noted();
        let is_unsafe_yet = self.memory.is_unsafe_yet();
        let (ended, waiting) = (&self.ends.ended, &self.ends.forgetting.jobs);
        let is_kept = |launch: &&LaunchId| match is_unsafe_yet {
            true => ended.get(launch.job).is_some(),
            false => waiting.iter().any(|(_, job)| *job == launch.job),
        };
        let kept: Vec<LaunchId> = held.iter().filter(is_kept).copied().collect();
        let Some(entry) = self.cluster.nodes.get_mut(&node).filter(|_| !kept.is_empty()) else {
            return;
        };
        for launch in kept {
            entry.launches.launched.insert(launch);
            self.ends.forgetting.jobs.push_back((number, launch.job));
        }
        self.ask_disk_soon();
    }

    /// What is noted now is to be on disk before long, though nothing waits for it.
    pub(super) fn ask_disk_soon(&mut self) {
        self.ask_disk_within(GATHER);
    }

    /// What is noted now is to be on disk as soon as it is stored.
    pub(super) fn ask_disk_now(&mut self) {
        self.ask_disk_within(Nanos::ZERO);
    }

    /// An event is to be there as soon as its kind demands.
    pub(super) fn ask_disk_for(&mut self, event: &Event) {
        self.ask_disk_within(patience(event));
    }

    fn ask_disk_within(&mut self, patience: Nanos) {
        self.ends.forgetting.due = self.ends.forgetting.due.min(self.now() + patience);
    }

    /// Asks the disk, when it is time to; to be called when all is stored that is to be there.
    pub(super) fn ask_disk(&mut self, now: ClusterTime) {
        if now < self.ends.forgetting.due {
            return;
        }
        self.memory.journal.want_on_disk();
        let waits = self.memory.journal.failure().is_some();
        self.ends.forgetting.due = if waits { now + GATHER } else { ClusterTime::NEVER };
    }

    /// What has ended by this entry is on disk.
    pub(super) fn forget_up_to(&mut self, reached: Number) {
        while let Some(&(number, job)) = self.ends.forgetting.jobs.front()
            && number <= reached
        {
            self.ends.forgetting.jobs.pop_front();
            self.forget_on_nodes(job);
        }
        if !self.ends.forgetting.jobs.is_empty() {
            self.ask_disk_soon();
        }
    }

    /// Nodes need keep nothing of a job any more.
    pub(super) fn forget_on_nodes(&mut self, job: JobId) {
        for node in self.cluster.nodes.keys().copied().collect::<Vec<NodeId>>() {
            if let Some(launch) =
                self.cluster.nodes.get_mut(&node).and_then(|node| node.forget(job))
            {
                self.tell_node(node, ToAgent::Forget { launch });
            }
        }
    }
}

/// How long what has happened may wait until it is brought to disk.
#[expect(clippy::too_many_lines, reason = "one line for each event")]
const fn patience(event: &Event) -> Nanos {
    match event {
        // A client was told that it is done.
        Event::SetParams { .. }
        | Event::SetClass { .. }
        | Event::ForgetClass { .. }
        | Event::SetPeriod { .. }
        | Event::SetResource { .. }
        | Event::SetDevice { .. }
        | Event::SetBank { .. }
        | Event::SetWeight { .. }
        | Event::SetAccess { .. }
        | Event::SetQueue { .. }
        | Event::SetClassUsers { .. }
        | Event::SetClassAfter { .. }
        | Event::SetBankPeriod { .. }
        | Event::BankPeriod { .. }
        | Event::SetNodeSet { .. }
        | Event::SetDrained { .. }
        | Event::NodeRemoved { .. }
        | Event::NodeMeasured { .. }
        | Event::NetworkMeasured { .. }
        | Event::NodeFeatures { .. }
        | Event::Cancel { .. }
        | Event::RollOut { .. }
        | Event::RollIn
        | Event::Checkpoint { .. }
        | Event::Suspend { .. }
        | Event::Resume { .. }
        | Event::Hold { .. }
        | Event::Release { .. }
        | Event::Elements { .. }
        | Event::SetJobClass { .. }
        | Event::SetTimeLimit { .. }
        | Event::SetPolicyProgram { .. }
        | Event::SetTimed { .. }
        | Event::TimedDue { .. }
        | Event::MoveJob { .. } => GATHER,
        // Jobs that begin and end are noted by themselves, and have the disk asked then.
        Event::Submit { .. }
        | Event::SubmitWith { .. }
        | Event::SubmitArray { .. }
        | Event::SubmitStep { .. }
        | Event::StepTasksEnded { .. }
        | Event::StepCleared { .. }
        | Event::CancelStep { .. }
        | Event::StepFrontEndLost { .. }
        | Event::JobsEnded { .. }
        | Event::TasksEnded { .. }
        | Event::JobCleared { .. }
        | Event::FrontEndLost { .. }
        | Event::MovedOut { .. }
        | Event::MovedIn { .. }
        | Event::Swapped { .. }
        | Event::NodeSwap { .. }
        | Event::ImagePlace { .. }
        | Event::Lend { .. }
        // A signal was sent, and leaves nothing.
        | Event::Signal { .. }
        // Nodes say again what they have, and which are there shows.
        | Event::NodeJoined { .. }
        | Event::DevicesFound { .. }
        | Event::NodeOutOfReach { .. }
        | Event::NodeLost { .. }
        | Event::NodeLoad { .. }
        | Event::Foreign { .. }
        | Event::Held { .. }
        // The next controller does that, too.
        | Event::Began
        | Event::Forgot { .. }
        | Event::Calendar { .. }
        | Event::SetBegin { .. }
        | Event::SetTimedMoment { .. }
        | Event::PolicyInCharge { .. }
        | Event::PolicyOrder { .. }
        | Event::Tick
        | Event::ShutDown
        | Event::GoDown => GATHER_LONGER,
    }
}

impl NodeEntry {
    /// Nothing more is expected of the job there.
    fn has_ended(&mut self, job: JobId) {
        self.launches.unconfirmed.retain(|launch, _| launch.job != job);
        self.launches.remembered.retain(|launch| launch.job != job);
    }
}
