//! Counted resources: what a cluster has several of, and admits jobs to by number.
//!
//! A job that asks for a particular number gets that one or waits. Otherwise numbers are given
//! round robin: the next one after the last that was given, if it is free (LLNL paper: barrier
//! circuits). A job gets all that it asks for when it starts, or waits. It has them until it ends,
//! while it is suspended or preempted too. Of a resource that is *lent*, a job that the policy
//! `classes` preempts gives its numbers back. It gets numbers again, perhaps others, with its
//! processors.
//!
//! In line, a resource is like memory: when it comes free can't be counted. So a job with resources
//! is promised no start, and the first in line is passed only by jobs that are gone before it could
//! start. None of these may have any of the resources that it asks for. A job with resources is
//! promised no deadline either.
//!
//! A count that is lowered takes nothing from jobs. What is above it is given to no other job.

use crate::apply::Core;
use crate::policy::{Decision, Preemption, WaitReason};
use crate::state::record::{Record, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::job::JobSpec;
use tutti_types::limits::{RESOURCE_COUNT_MAX, RESOURCES_MAX, RESOURCES_PER_JOB_MAX};
use tutti_types::refusal::Refusal;
use tutti_types::resource::{Amount, Grant, ResourceName, ResourceSpec, ResourceWish};

/// All resources, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Resources {
    kinds: BTreeMap<ResourceName, Kind>,
}

/// One resource. One without numbers is kept while jobs have some of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Kind {
    spec: ResourceSpec,
    /// The number at which the search for a free one begins.
    next: u32,
    /// How many jobs have each number; numbers that no job has are left out.
    users: BTreeMap<u32, u32>,
    /// Whether jobs may have more than there is, since it was lowered.
    lowered: bool,
}

/// A resource as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub name: ResourceName,
    /// How many there are.
    pub spec: ResourceSpec,
    /// How many of the numbers jobs have.
    pub in_use: u32,
}

impl Kind {
    fn is_free(&self, number: u32, given_back: &BTreeMap<u32, u32>) -> bool {
        let users = self.users.get(&number).copied().unwrap_or(0);
        let back = given_back.get(&number).copied().unwrap_or(0);
        number < self.spec.count && users.saturating_sub(back) < self.spec.jobs_each
    }

    /// The numbers for a wish; `None`: not all of them are free.
    fn choose(&self, amount: Amount, given_back: &BTreeMap<u32, u32>) -> Option<Vec<u32>> {
        if let Amount::Number(number) = amount {
            return self.is_free(number, given_back).then(|| [number].into());
        }
        let next = self.next.min(self.spec.count);
        let circle = (next..self.spec.count).chain(0..next);
        let free = circle.filter(|&number| self.is_free(number, given_back));
        let count = amount.count() as usize;
        let numbers: Vec<u32> = free.take(count).collect();
        (numbers.len() == count).then_some(numbers)
    }

    fn is_exceeded(&self) -> bool {
        let mut users = self.users.iter();
        users.any(|(&number, &users)| number >= self.spec.count || users > self.spec.jobs_each)
    }
}

impl Resources {
    /// How many there are from now on. A job with a number that is no more keeps it.
    pub(crate) fn set(&mut self, name: ResourceName, spec: ResourceSpec) {
        let is_known = self.kinds.contains_key(&name);
        let is_removal = spec.count == 0 || spec.jobs_each == 0;
        if spec.count > RESOURCE_COUNT_MAX || (is_removal && !is_known) {
            return;
        }
        if !is_known && self.kinds.len() >= RESOURCES_MAX {
            return;
        }
        let none = Kind { spec, next: 0, users: BTreeMap::new(), lowered: false };
        let kind = self.kinds.entry(name).or_insert(none);
        kind.spec = spec;
        kind.next = 0;
        kind.lowered = kind.is_exceeded();
        self.kinds.retain(|_, kind| !kind.is_gone());
    }

    /// Whether wishes can ever be fulfilled.
    pub(crate) fn admit(&self, wishes: &[ResourceWish]) -> Result<(), Refusal> {
        if wishes.len() > RESOURCES_PER_JOB_MAX {
            let limit = u32::try_from(RESOURCES_PER_JOB_MAX).unwrap_or(u32::MAX);
            return Err(Refusal::TooManyResources { limit });
        }
        let names: BTreeSet<ResourceName> = wishes.iter().map(|wish| wish.name).collect();
        if names.len() < wishes.len() {
            return Err(Refusal::ResourceTwice);
        }
        for ResourceWish { name, amount } in wishes {
            let spec = self.kinds.get(name).map(|kind| kind.spec);
            let count = spec.map_or(0, |spec| if spec.jobs_each == 0 { 0 } else { spec.count });
            let fits = match *amount {
                Amount::One => count > 0,
                Amount::Number(number) => number < count,
                Amount::Count(asked) => asked > 0 && asked <= count,
                // The policy's admission has looked at the nodes.
                Amount::OnNodes { count, .. } => count > 0,
            };
            if !fits {
                return Err(Refusal::NoResource { name: *name, amount: *amount, count });
            }
        }
        Ok(())
    }

    /// Takes a job's numbers off what is in use.
    fn give_back(&mut self, grant: &Grant) {
        let Some(kind) = self.kinds.get_mut(&grant.name) else { return };
        for number in &grant.numbers {
            if let Some(users) = kind.users.get_mut(number) {
                *users -= 1;
                if *users == 0 {
                    kind.users.remove(number);
                }
            }
        }
        kind.lowered &= kind.is_exceeded();
        if kind.is_gone() {
            self.kinds.remove(&grant.name);
        }
    }

    fn is_lent(&self, name: ResourceName) -> bool {
        self.kinds.get(&name).is_some_and(|kind| kind.spec.lent)
    }
}

impl Kind {
    /// Whether there is none of it, and no job has any.
    fn is_gone(&self) -> bool {
        (self.spec.count == 0 || self.spec.jobs_each == 0) && self.users.is_empty()
    }
}

impl Core {
    /// All resources, by name.
    pub fn resources(&self) -> impl Iterator<Item = ResourceView> + '_ {
        self.resources.kinds.iter().map(|(&name, kind)| ResourceView {
            name,
            spec: kind.spec,
            in_use: u32::try_from(kind.users.len()).unwrap_or(u32::MAX),
        })
    }

    pub(crate) fn on_set_resource(&mut self, name: ResourceName, spec: ResourceSpec) {
        self.resources.set(name, spec);
        self.queue.reconsider();
    }

    /// The first resource of which a job that starts now would get too little.
    pub(crate) fn lacks_resource(&self, spec: &JobSpec) -> Option<ResourceName> {
        self.lacks_resource_without(spec, &[], &[])
    }

    /// The same of a job that has some, if jobs were preempted.
    pub(crate) fn lacks_resource_without(
        &self,
        spec: &JobSpec,
        has: &[Grant],
        gone: &[JobId],
    ) -> Option<ResourceName> {
        let missing = spec.counted().filter(|wish| !has.iter().any(|it| it.name == wish.name));
        let mut missing = missing.map(|wish| {
            let kind = self.resources.kinds.get(&wish.name);
            let given_back = self.given_back(wish.name, gone);
            (wish.name, kind.and_then(|kind| kind.choose(wish.amount, &given_back)))
        });
        missing.find(|(_, numbers)| numbers.is_none()).map(|(name, _)| name)
    }

    /// How many jobs would give each number back if these were preempted.
    fn given_back(&self, name: ResourceName, gone: &[JobId]) -> BTreeMap<u32, u32> {
        let mut back = BTreeMap::new();
        if self.resources.is_lent(name) {
            let grants = gone.iter().filter_map(|&job| self.residence(job));
            let grants = grants.flat_map(|residence| &residence.resources);
            for number in grants.filter(|grant| grant.name == name).flat_map(|it| &it.numbers) {
                *back.entry(*number).or_default() += 1;
            }
        }
        back
    }

    /// Whether a resident job lacks some of what it asked for, and needs it to go on.
    pub(crate) fn awaits_resource(&self, record: &Record) -> bool {
        let Some(residence) = record.residence() else { return false };
        residence.resources.len() < record.spec.counted().count() && !residence.ending()
    }

    /// Gives a resident job what it lacks of its resources, all or nothing; whether it has all now.
    pub(crate) fn grant(&mut self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let Some(residence) = record.residence() else { return false };
        if residence.resources.len() == record.spec.counted().count() {
            return true;
        }
        if self.lacks_resource_without(&record.spec, &residence.resources, &[]).is_some() {
            return false;
        }
        let has = |wish: &ResourceWish| residence.resources.iter().any(|it| it.name == wish.name);
        let missing: Vec<ResourceWish> =
            record.spec.counted().filter(|wish| !has(wish)).copied().collect();
        for ResourceWish { name, amount } in missing {
            let Some(kind) = self.resources.kinds.get_mut(&name) else { continue };
            let Some(mut numbers) = kind.choose(amount, &BTreeMap::new()) else { continue };
            if let (Amount::One | Amount::Count(_), Some(last)) = (amount, numbers.last()) {
                kind.next = last + 1;
            }
            for &number in &numbers {
                *kind.users.entry(number).or_default() += 1;
            }
            numbers.sort_unstable();
            if let Some(residence) = self.residence_mut(job) {
                residence.resources.push(Grant { name, numbers });
            }
        }
        true
    }

    /// A job has ended: its numbers are free.
    pub(crate) fn give_back_resources(&mut self, residence: &Residence) {
        for grant in &residence.resources {
            self.resources.give_back(grant);
        }
    }

    /// A job was preempted: what it was lent is free.
    pub(crate) fn give_back_lent(&mut self, job: JobId) {
        if !matches!(self.policy().preemption, Preemption::ByClass) {
            return;
        }
        let Some(residence) = self.residence_mut(job) else { return };
        let grants = core::mem::take(&mut residence.resources);
        let (lent, kept): (Vec<Grant>, Vec<Grant>) =
            grants.into_iter().partition(|grant| self.resources.is_lent(grant.name));
        for grant in &lent {
            self.resources.give_back(grant);
        }
        if let Some(residence) = self.residence_mut(job) {
            residence.resources = kept;
        }
    }

    /// Gives preempted jobs what they gave back under an earlier policy, as far as it is there.
    pub(crate) fn grant_again(&mut self) {
        if self.resources.kinds.is_empty() {
            return;
        }
        for job in self.aside.clone() {
            if self.jobs.get(&job).is_some_and(|record| self.awaits_resource(record)) {
                self.grant(job);
            }
        }
    }

    /// What becomes of the job that is next in line: as the policy says, if its resources are
    /// free.
    pub(crate) fn decide(&self, spec: &JobSpec) -> Option<Decision> {
        let decision = self.policy().decide(self.machine(), spec)?;
        Some(match (decision, self.lacks_resource(spec)) {
            (Decision::Start { .. }, Some(name)) => Decision::Wait(WaitReason::Resource { name }),
            (decision, _) => decision,
        })
    }

    /// Whether two jobs ask for the same resource.
    pub(crate) fn share_a_resource(one: &JobSpec, other: &JobSpec) -> bool {
        one.resources.iter().any(|wish| other.resources.iter().any(|it| it.name == wish.name))
    }

    /// How many jobs have each number, counted anew, and as it is noted; for the invariants.
    pub(crate) fn recount(&self, name: ResourceName) -> (BTreeMap<u32, u32>, BTreeMap<u32, u32>) {
        let mut counted: BTreeMap<u32, u32> = BTreeMap::new();
        let grants = self.jobs.values().filter_map(Record::residence);
        for grant in grants.flat_map(|residence| &residence.resources) {
            for &number in grant.numbers.iter().filter(|_| grant.name == name) {
                *counted.entry(number).or_default() += 1;
            }
        }
        let noted = self.resources.kinds.get(&name).map(|kind| kind.users.clone());
        (counted, noted.unwrap_or_default())
    }

    /// The resources of which jobs have more than there is, though the count was not lowered.
    pub(crate) fn exceeded_resources(&self) -> impl Iterator<Item = ResourceName> + '_ {
        let kinds = self.resources.kinds.iter();
        kinds.filter(|(_, kind)| kind.is_exceeded() && !kind.lowered).map(|(&name, _)| name)
    }
}

/// The circuits of a state of form 4, which were lent.
#[derive(Debug, Deserialize)]
pub(crate) struct FormerCircuits {
    kinds: BTreeMap<ResourceName, FormerKind>,
}

#[derive(Debug, Deserialize)]
struct FormerKind {
    count: u32,
    jobs_each: u32,
    next: u32,
}

impl From<FormerCircuits> for Resources {
    fn from(former: FormerCircuits) -> Self {
        let kind = |former: FormerKind| {
            let FormerKind { count, jobs_each, next } = former;
            let spec = ResourceSpec { count, jobs_each, lent: true };
            Kind { spec, next, users: BTreeMap::new(), lowered: false }
        };
        Self { kinds: former.kinds.into_iter().map(|(name, it)| (name, kind(it))).collect() }
    }
}
