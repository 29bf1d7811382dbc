//! A job with tasks on this node, as the agent knows it.

pub(super) mod tasks;

use super::affinity::Confinement;
use super::ipc::IpcBefore;
use super::subtree_control::{Name, Suspended};
use super::suspend::Grip;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tasks::Tasks;
use tracing::warn;
use tutti_linux::signal::Root;
use tutti_node::layout;
use tutti_node::platform::groups::Cgroup;
use tutti_types::{ControlMethod, JobId, LaunchId, Rank};
use tutti_wire::code::Code;
use tutti_wire::launch::Usage;
use tutti_wire::tree::FromAgent;

/// A job with tasks on this node, until the controller says that its end is known.
pub(super) struct Job {
    pub(super) launch: LaunchId,
    pub(super) control: ControlMethod,
    /// Its user; unknown to an agent that did not launch it.
    pub(super) owner: Option<u32>,
    /// What there was before it, if what it leaves can be told by that.
    pub(super) ipc_before: Option<IpcBefore>,
    pub(super) group: Option<Arc<Cgroup>>,
    /// Where the groups of its tasks are.
    pub(super) step: PathBuf,
    pub(super) confinement: Confinement,
    pub(super) tasks: Tasks,
    /// The minders of its tasks, where it has no group.
    pub(super) minders: BTreeMap<Rank, Name>,
    /// The processes that it began with, if it was adopted.
    pub(super) adopted: Vec<Name>,
    pub(super) suspended: Suspended,
    /// How often it was switched.
    pub(super) switches: Arc<AtomicU64>,
    /// What the keeper has said that it used, once no further step of it may begin.
    pub(super) clearing: Option<Usage>,
    pub(super) findings: Findings,
    /// The controller never heard of it, so no `Forget` will come.
    pub(super) strange: bool,
}

/// What the controller hears of a job beside what became of its tasks.
#[derive(Default)]
pub(super) struct Findings {
    /// Whether there is an image of its processes, made while they went on.
    has_image: bool,
    /// What of its output is not in its files.
    output_lost: String,
    /// The first time that it was not ready when its slot ended, in words.
    not_vacated: String,
}

impl Findings {
    /// Those that the keeper remembers.
    pub(super) fn of_before(has_image: bool) -> Self {
        Self { has_image, ..Self::default() }
    }

    pub(super) const fn note_image(&mut self) {
        self.has_image = true;
    }

    pub(super) fn note_output_lost(&mut self, what: &str) {
        what.clone_into(&mut self.output_lost);
    }

    pub(super) fn note_not_vacated(&mut self, what: &str) {
        what.clone_into(&mut self.not_vacated);
    }
}

impl Job {
    /// Falls back to the freezer where processor time can't be weighed.
    pub(super) fn check_control(&mut self, id: JobId) {
        if let (Some(group), ControlMethod::Priority) = (&self.group, self.control)
            && let Err(error) = group.prepare_to_yield()
        {
            warn!(code = %Code::GoesWithout, "job {id} is frozen, since it can't yield: {error}");
            self.control = ControlMethod::Freeze;
        }
    }

    pub(super) const fn is_adopted(&self) -> bool {
        !self.adopted.is_empty()
    }

    /// All that a controller may not know of it, in the order in which it happened.
    pub(super) fn report_again(&self) -> Vec<FromAgent> {
        let (launch, found) = (self.launch, &self.findings);
        let mut messages: Vec<FromAgent> = self.tasks.report_begins(launch).collect();
        // Before the end of a task: what the next run finds then.
        messages.extend(found.has_image.then_some(FromAgent::HasImage { launch }));
        messages.extend(self.tasks.report_ends(launch));
        if !found.output_lost.is_empty() {
            messages.push(FromAgent::OutputLost { launch, what: found.output_lost.clone() });
        }
        if !found.not_vacated.is_empty() {
            messages.push(FromAgent::NotVacated { launch, what: found.not_vacated.clone() });
        }
        messages.extend(self.tasks.report_cleared(launch));
        messages
    }

    /// Where the group of one of its tasks is.
    pub(super) fn group_of(&self, rank: Rank) -> PathBuf {
        self.step.join(layout::group_of_task(rank))
    }

    /// Whether its cgroup is all that the switch thread needs.
    pub(super) fn is_frozen_as_one(&self) -> bool {
        self.group.is_some() && self.control != ControlMethod::Signal
    }

    /// What is stopped and continued of a task where there is no cgroup. A minder must go on itself: it reaps.
    pub(super) fn trees(&self, rank: Rank) -> Vec<Root> {
        match self.adopted.as_slice() {
            [] => {
                self.minders.get(&rank).map(|&name| Root::below_named(name)).into_iter().collect()
            }
            adopted => adopted.iter().map(|&name| Root::from(name)).collect(),
        }
    }
}

/// How its processes are reached.
pub(super) fn grip(job: &Job) -> Grip {
    match (&job.group, job.control) {
        (Some(group), ControlMethod::Freeze) => Grip::Freeze(Arc::clone(group)),
        (Some(group), ControlMethod::Signal) => Grip::SignalGroup(Arc::clone(group)),
        (Some(group), ControlMethod::Priority) => Grip::Weigh(Arc::clone(group)),
        (None, _) => {
            Grip::SignalTrees(job.tasks.roots().keys().flat_map(|&rank| job.trees(rank)).collect())
        }
    }
}

/// Ends what may be left in a group and removes it; what can't be removed now goes with the
/// subtree at the end.
pub(super) fn remove_group(group: Option<&Cgroup>) {
    let Some(group) = group else { return };
    for attempt in 0..200 {
        match group.remove_around(layout::FIRST_STEP) {
            Ok(true) => return,
            Ok(false) => {
                if attempt == 0 {
                    let _ = group.kill();
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            Err(_) => break,
        }
    }
    warn!(code = %Code::System, "cannot remove {}", group.path().display());
}
