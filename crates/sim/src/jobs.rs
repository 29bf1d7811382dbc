//! Jobs on their way through a simulation.

use crate::feedback::Follows;
use std::collections::VecDeque;
use tutti_types::{ClusterTime, JobId, Nanos};

/// One job of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its number in its workload.
    pub number: u64,
    /// Its line there; 0 if it comes from a model.
    pub line: u64,
    /// When it is submitted.
    pub submit: ClusterTime,
    /// How long its processes compute, on processors of their own.
    pub run: Nanos,
    /// What its user says that it takes: its time limit. A job that needs more is ended there.
    pub estimate: Nanos,
    /// By when it must be done, from its submission on, or else it is not taken on at all.
    pub deadline: Option<Nanos>,
    /// How many processors it needs.
    pub processors: u32,
    /// Its class, as an index into [`Settings::classes`](crate::Settings::classes).
    pub class: u16,
    /// Its user; 0 if not known.
    pub user: u32,
    /// Its group; 0 if not known.
    pub group: u32,
    /// Its queue, as an index into [`Site::queues`](crate::Site::queues); `None`: none.
    pub queue: Option<u16>,
    /// The memory that each of its tasks asks for, in bytes; `None`: as much as there is.
    pub memory: Option<u64>,
    /// The job that it waits for before it is submitted, if jobs wait
    /// ([`Feedback`](crate::Feedback)).
    pub follows: Option<Follows>,
}

impl Job {
    /// How long it will have computed when it ends: it may be ended at its limit.
    #[must_use]
    pub fn need(&self) -> Nanos {
        self.run.min(self.estimate)
    }

    /// Whether it needs all the time that it may have, or more.
    #[must_use]
    pub fn reaches_limit(&self) -> bool {
        self.run >= self.estimate
    }
}

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// As it came.
    pub job: Job,
    /// Its place in the order of submission, from 0.
    pub sequence: u64,
    /// When it got processors: in a row of the matrix, if not at once a turn.
    pub start: ClusterTime,
    /// When it was done.
    pub end: ClusterTime,
    /// How often its turn was over before it was done.
    pub preemptions: u64,
}

impl Finished {
    /// From submission to start.
    #[must_use]
    pub fn wait(&self) -> Nanos {
        self.start.since(self.job.submit)
    }

    /// Whether it was to be done by some time, and if so whether it was.
    #[must_use]
    pub fn in_time(&self) -> Option<bool> {
        self.job.deadline.map(|deadline| self.response() <= deadline)
    }

    /// From submission to end.
    #[must_use]
    pub fn response(&self) -> Nanos {
        self.end.since(self.job.submit)
    }
}

/// The place of a job in [`Jobs`]; used again once the job has ended.
pub(crate) type Index = u32;

/// A job in the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) id: JobId,
    pub(crate) job: Job,
    pub(crate) sequence: u64,
    pub(crate) start: Option<ClusterTime>,
    /// Its place in the order in which jobs started, from 1.
    pub(crate) started: u64,
    /// Whether it is done after those at their limits, at the same moment.
    pub(crate) is_early: bool,
    /// Whether it has processors: it was not preempted since.
    pub(crate) is_seated: bool,
    /// How many processors it has, or will have.
    pub(crate) width: u32,
    /// How long it would run on the mean node, and how long where it is.
    pub(crate) runs: (Nanos, Nanos),
    pub(crate) course: Course,
}

/// How far a started job has got; kept up to date by the code that works out progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course {
    /// What it still needs, in ns, as of when it last joined a group or a slot ended.
    pub(crate) left: u64,
    /// Its group, if it runs in any slot.
    pub(crate) group: Option<u32>,
    /// What the group's clock shows when it is done.
    pub(crate) target: u64,
    /// What the group had counted as ends of turns when it joined.
    pub(crate) turns_before: u64,
    /// How often it was preempted before that.
    pub(crate) preemptions: u64,
}

/// What is left of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// How long it must still compute until something of it is done, in ns.
    pub(crate) left: u64,
    /// On how many processors.
    pub(crate) width: u32,
}

impl Live {
    pub(crate) fn set(&mut self, rest: Rest) {
        self.course.left = rest.left;
        self.width = rest.width;
    }

    /// The order of jobs that are done at the same moment.
    pub(crate) fn place_among_done(&self) -> Place {
        Place { is_early: self.is_early, started: self.started }
    }
}

/// See [`Live::place_among_done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    is_early: bool,
    started: u64,
}

/// The jobs in the system, by the core's numbers.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    slab: Vec<Live>,
    vacant: Vec<Index>,
    /// The place of each job from number `first` on. The core numbers jobs one after the other, so
    /// this is a window: four bytes for each job between the oldest and the newest in the system.
    places: VecDeque<Index>,
    first: u64,
    count: usize,
}

/// In the window: the job has ended.
const NOWHERE: Index = Index::MAX;

impl Jobs {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Takes in a job, whose number is higher than all before.
    pub(crate) fn insert(&mut self, live: Live) {
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slab[index as usize] = live;
                index
            }
            None => {
                self.slab.push(live);
                Index::try_from(self.slab.len() - 1).expect("the core holds fewer jobs")
            }
        };
        if self.places.is_empty() {
            self.first = live.id.0;
        }
        while self.first + (self.places.len() as u64) < live.id.0 {
            self.places.push_back(NOWHERE);
        }
        self.places.push_back(index);
        self.count += 1;
    }

    /// The place of a job; `None` if it isn't in the system.
    pub(crate) fn find(&self, id: JobId) -> Option<Index> {
        let offset = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.places.get(offset).copied().filter(|&index| index != NOWHERE)
    }

    /// The jobs that are in the system.
    pub(crate) fn ids(&self) -> impl Iterator<Item = JobId> + '_ {
        let there = self.places.iter().filter(|&&index| index != NOWHERE);
        there.map(|&index| self.slab[index as usize].id)
    }

    pub(crate) fn get(&self, index: Index) -> &Live {
        &self.slab[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> &mut Live {
        &mut self.slab[index as usize]
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Live> {
        let index = self.find(id)?;
        let offset = usize::try_from(id.0 - self.first).ok()?;
        self.places[offset] = NOWHERE;
        while self.places.front() == Some(&NOWHERE) {
            self.places.pop_front();
            self.first += 1;
        }
        self.vacant.push(index);
        self.count -= 1;
        Some(self.slab[index as usize])
    }
}
