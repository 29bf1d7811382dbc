//! Rows that a class keeps for its jobs, beyond the parameter `rows`.
//!
//! A class with the rule `rows` may have that many rows more, which only its jobs open and are at
//! home in; jobs of other classes may be guests there. So a quick test starts at once, whatever is
//! queued and running, and its first turn comes next ([`crate::frame`]).
//!
//! - A job of the class waits in line like all others, and starts from there if it fits an ordinary
//!   row. Otherwise it starts in a kept row with room for it, or opens one. In kept rows only jobs
//!   of its class are before it, in the order of the line.
//! - Memory is allocated over all rows, so a job that lacks memory waits.
//! - When an ordinary row has room for such a job's processors, unification moves it there. When
//!   there are fewer ordinary rows than may be and no job waits, the oldest kept row becomes
//!   ordinary.
//! - Where there is one row only (`rows=1`, `space`) no job takes turns, so no class keeps a row.
//!
//! *Promises.* A job that starts in a kept row takes no processors of ordinary rows, and these are
//! all that promises count. But it makes their turns rarer. So while a class keeps rows, a start in
//! turns is expected and not promised ([`Core::slots_may_change`]): no promise that was made is
//! delayed. With one row, and where no class keeps any, promises are as before. There is a bound on
//! how rare turns may become, and it is far too large to be said:
//! `docs/decisions/0015-shares-of-time.md` has its factors.

use crate::apply::Core;
use crate::event::Event;
use crate::matrix::Owner;
use crate::policy::{Lack, Preemption, WaitReason};
use crate::share;
use crate::state::record::Part;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::class::Classes;
use tutti_types::ids::{ClassName, JobId, RowId, UserId};
use tutti_types::job::JobSpec;
use tutti_types::time::ClusterTime;

/// Jobs of classes that keep rows: all that are in line, and some that no longer are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Quick {
    waiting: BTreeMap<ClassName, BTreeMap<UserId, BTreeSet<JobId>>>,
    /// Jobs may have come into line otherwise than by being submitted.
    look: bool,
}

impl Quick {
    /// None is known yet.
    pub(crate) fn to_look_for() -> Self {
        Self { look: true, ..Self::default() }
    }

    /// A job comes into line.
    pub(crate) fn come(&mut self, job: JobId, spec: &JobSpec, classes: &Classes) {
        if classes.get(&spec.class).is_some_and(|class| class.rows() > 0) {
            let users = self.waiting.entry(spec.class.clone()).or_default();
            users.entry(spec.owner).or_default().insert(job);
        }
    }

    /// Jobs are to be looked for in the whole line.
    pub(crate) const fn look_again(&mut self) {
        self.look = true;
    }

    /// Notes an event that may bring jobs into line or change what classes keep.
    pub(crate) fn note(&mut self, event: &Event) {
        self.look |= matches!(
            event,
            Event::NodeJoined { .. }
                | Event::Forgot { .. }
                | Event::NodeOutOfReach { .. }
                | Event::NodeLost { .. }
                | Event::SetDrained { .. }
                | Event::NodeRemoved { .. }
                | Event::Resume { .. }
                | Event::SetParams { .. }
                | Event::SetClass { .. }
                | Event::ForgetClass { .. }
                | Event::SetPeriod { .. }
                | Event::Calendar { .. }
        );
    }
}

impl Core {
    /// Whether classes may keep rows: jobs take turns, and there is a line.
    pub(crate) fn may_keep_rows(&self) -> bool {
        self.machine().rows > 1
            && !self.policy().has_levels
            && matches!(self.policy().preemption, Preemption::Nobodys(_))
    }

    /// Whether slots may become others by a job that comes or ends, so that no start in turns can
    /// be promised.
    pub(crate) fn slots_may_change(&self) -> bool {
        if self.machine().rows <= 1 && self.matrix.row_count() <= 1 {
            return false;
        }
        if self.may_keep_rows() && self.classes.values().any(|class| class.rows() > 0) {
            return true;
        }
        let mut sharers = self.matrix.rows().flat_map(|(_, row)| row.owners.keys());
        let of = |(class, owner): &(ClassName, Owner)| {
            (share::sharers(&self.classes, class), owner.user)
        };
        let first = sharers.next().map(of);
        sharers.any(|it| Some(of(it)) != first)
    }

    /// Starts jobs in rows that their classes keep. Whether any did.
    pub(crate) fn seat_in_kept_rows(&mut self, now: ClusterTime) -> bool {
        if !self.may_keep_rows() {
            return false;
        }
        if core::mem::take(&mut self.quick.look) {
            self.look_for_quick();
        }
        let classes: Vec<ClassName> = self.quick.waiting.keys().cloned().collect();
        let mut any = false;
        for class in classes {
            while let Some(job) = self.first_quick(&class)
                && let Ok((row, parts)) = self.fits_kept(&class, job)
            {
                self.start(now, job, row, parts);
                let opened = self.matrix.seat(job).map(|seat| seat.row);
                if let (None, Some(opened)) = (row, opened) {
                    self.matrix.keep_for(opened, &class);
                }
                any = true;
            }
        }
        self.queue.stale |= any;
        any
    }

    /// The first job in line of a class that keeps rows. Those that are no longer there are
    /// dropped.
    fn first_quick(&mut self, class: &ClassName) -> Option<JobId> {
        let Self { quick, queue, jobs, .. } = self;
        let users = quick.waiting.get_mut(class)?;
        users.retain(|_, waiting| {
            while let Some(&job) = waiting.first()
                && !(queue.waiting.contains(&job)
                    && jobs.get(&job).is_some_and(|record| record.spec.class == *class))
            {
                waiting.remove(&job);
            }
            !waiting.is_empty()
        });
        if users.is_empty() {
            quick.waiting.remove(class);
        }
        self.next_quick(class)
    }

    /// The first job in line of a class that keeps rows: with users in turn, that of the user with
    /// the least use.
    pub(crate) fn next_quick(&self, class: &ClassName) -> Option<JobId> {
        let is_there = |job: &JobId| {
            let record = self.jobs.get(job).filter(|_| self.queue.waiting.contains(job));
            record.is_some_and(|record| record.spec.class == *class)
        };
        let line = &self.queue.line;
        let users = self.quick.waiting.get(class)?.iter();
        let firsts = users.filter_map(|(&user, jobs)| {
            let own = |job: &JobId| is_there(job) && line.stand(*job).is_none();
            let first = jobs.iter().copied().find(own)?;
            Some((line.rank_of(first, user), first))
        });
        let moved = line.moved().filter(is_there).map(|job| (line.rank_of(job, UserId(0)), job));
        firsts.chain(moved).min().map(|(_, job)| job)
    }

    /// Jobs that were too large for the nodes come into line again: those of classes that keep rows
    /// are looked for there.
    pub(crate) fn unpark(&mut self) {
        if !self.queue.parked.is_empty() {
            self.queue.unpark();
            self.quick.look_again();
        }
    }

    fn look_for_quick(&mut self) {
        let mut quick = Quick::default();
        if self.classes.values().any(|class| class.rows() > 0) {
            for job in &self.queue.waiting {
                if let Some(record) = self.jobs.get(job) {
                    quick.come(*job, &record.spec, &self.classes);
                }
            }
        }
        self.quick = quick;
    }

    /// Where a job fits rows that its class keeps (`None`: one that it opens), or what is lacking.
    pub(crate) fn fits_kept(
        &self,
        class: &ClassName,
        job: JobId,
    ) -> Result<(Option<RowId>, Vec<Part>), Lack> {
        let record = self.jobs.get(&job).ok_or(Lack::Nodes)?;
        if self.lacks_resource(&record.spec).is_some() {
            // As memory, a resource comes free in whatever row.
            return Err(Lack::Memory);
        }
        let (machine, lay) = (self.machine(), self.policy().placement);
        let mut count = 0;
        for row in self.matrix.kept_by(class) {
            // A row where all are of another class by now keeps none of the class out.
            let classes = self.matrix.row(row).map(|row| &row.classes);
            count += u32::from(classes.is_none_or(|it| it.is_empty() || it.contains_key(class)));
            if let Ok(parts) = lay(machine, &record.spec, Some(row)) {
                return Ok((Some(row), parts));
            }
        }
        let most = self.classes.get(class).map_or(0, |class| class.rows());
        let parts = lay(machine, &record.spec, None)?;
        if count < most { Ok((None, parts)) } else { Err(Lack::Nodes) }
    }

    /// Why a job waits whose class keeps rows; `None` if it keeps none.
    pub(crate) fn why_not_kept(&self, job: JobId) -> Option<WaitReason> {
        let spec = &self.jobs.get(&job)?.spec;
        let class = &spec.class;
        let rows = self.classes.get(class)?.rows();
        if rows == 0 || !self.may_keep_rows() {
            return None;
        }
        if let Some(first) = self.next_quick(class).filter(|&first| first != job) {
            return Some(WaitReason::Behind(first));
        }
        Some(match self.fits_kept(class, job) {
            Err(Lack::Memory) => match self.lacks_resource(spec) {
                Some(name) => WaitReason::Resource { name },
                None => self.machine().lack_beside(spec),
            },
            Ok(_) | Err(Lack::Nodes) => {
                WaitReason::KeptRows { limit: self.machine().rows, kept: rows }
            }
        })
    }

    /// Makes a kept row an ordinary one, if there is room for that and no job waits for it. Whether
    /// one was.
    pub(crate) fn free_kept_row(&mut self) -> bool {
        self.queue.waiting.is_empty()
            && self.matrix.has_kept()
            && self.matrix.ordinary().count() < self.machine().rows as usize
            && self.matrix.make_ordinary()
    }

    /// Where no class may keep a row any more, all rows are ordinary ones.
    pub(crate) fn drop_kept_rows(&mut self) {
        if !self.may_keep_rows() {
            while self.matrix.has_kept() && self.matrix.make_ordinary() {}
        }
    }
}
