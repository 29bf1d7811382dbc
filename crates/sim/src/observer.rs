//! Observers of a running simulation.

use crate::jobs::{Finished, Job};
use std::io;
use tutti_core::{Core, WaitReason};
use tutti_types::{ClusterTime, JobId};

/// A job that got processors.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// When.
    pub at: ClusterTime,
    /// The job.
    pub job: &'a Job,
    /// Its number in the core.
    pub id: JobId,
    /// The core, which knows where the job is.
    pub core: &'a Core,
}

/// A stretch of time in which nothing happened.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Its begin.
    pub from: ClusterTime,
    /// Its end.
    pub to: ClusterTime,
    /// Processors x ns in which jobs got on.
    pub useful_ns: u128,
    /// Processors x ns that jobs had in their turns: with what switches cost.
    pub held_ns: u128,
    /// How often the machine switched from one slot to another.
    pub switches: u64,
    /// How many jobs waited for processors.
    pub waiting: usize,
}

/// An observer of a running simulation; nothing that it does changes anything.
pub trait Observer {
    /// A job is submitted.
    ///
    /// # Errors
    /// If the observer can't write.
    fn submitted(&mut self, sequence: u64, job: &Job) -> io::Result<()> {
        let _ = (sequence, job);
        Ok(())
    }

    /// The core declined a job, and it is passed over.
    fn declined(&mut self, job: &Job) {
        let _ = job;
    }

    /// A submitted job never runs: a limit keeps it out for good.
    fn not_run(&mut self, job: &Job, why: &WaitReason) {
        let _ = (job, why);
    }

    /// The job that it was to wait for was not simulated, and it comes without waiting.
    fn let_alone(&mut self, job: &Job) {
        let _ = job;
    }

    /// A job got processors.
    ///
    /// # Errors
    /// If the observer can't write.
    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        let _ = start;
        Ok(())
    }

    /// The core has decided; what it says of rows and slots holds from `at` on. Comes after every
    /// event that is not one of several at once.
    fn decided(&mut self, at: ClusterTime, core: &Core) {
        let _ = (at, core);
    }

    /// Time has passed.
    fn passed(&mut self, passed: &Passed) {
        let _ = passed;
    }

    /// A job has ended.
    ///
    /// # Errors
    /// If the observer can't write.
    fn ended(&mut self, id: JobId, job: &Finished) -> io::Result<()> {
        let _ = (id, job);
        Ok(())
    }
}

/// One that looks at nothing.
impl Observer for () {}

/// Two that both look on, the first first.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn submitted(&mut self, sequence: u64, job: &Job) -> io::Result<()> {
        self.0.submitted(sequence, job)?;
        self.1.submitted(sequence, job)
    }

    fn declined(&mut self, job: &Job) {
        self.0.declined(job);
        self.1.declined(job);
    }

    fn not_run(&mut self, job: &Job, why: &WaitReason) {
        self.0.not_run(job, why);
        self.1.not_run(job, why);
    }

    fn let_alone(&mut self, job: &Job) {
        self.0.let_alone(job);
        self.1.let_alone(job);
    }

    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        self.0.started(start)?;
        self.1.started(start)
    }

    fn decided(&mut self, at: ClusterTime, core: &Core) {
        self.0.decided(at, core);
        self.1.decided(at, core);
    }

    fn passed(&mut self, passed: &Passed) {
        self.0.passed(passed);
        self.1.passed(passed);
    }

    fn ended(&mut self, id: JobId, job: &Finished) -> io::Result<()> {
        self.0.ended(id, job)?;
        self.1.ended(id, job)
    }
}

impl<A: Observer + ?Sized> Observer for &mut A {
    fn submitted(&mut self, sequence: u64, job: &Job) -> io::Result<()> {
        (**self).submitted(sequence, job)
    }

    fn declined(&mut self, job: &Job) {
        (**self).declined(job);
    }

    fn not_run(&mut self, job: &Job, why: &WaitReason) {
        (**self).not_run(job, why);
    }

    fn let_alone(&mut self, job: &Job) {
        (**self).let_alone(job);
    }

    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        (**self).started(start)
    }

    fn decided(&mut self, at: ClusterTime, core: &Core) {
        (**self).decided(at, core);
    }

    fn passed(&mut self, passed: &Passed) {
        (**self).passed(passed);
    }

    fn ended(&mut self, id: JobId, job: &Finished) -> io::Result<()> {
        (**self).ended(id, job)
    }
}

impl<A: Observer> Observer for Option<A> {
    fn submitted(&mut self, sequence: u64, job: &Job) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |observer| observer.submitted(sequence, job))
    }

    fn declined(&mut self, job: &Job) {
        if let Some(observer) = self {
            observer.declined(job);
        }
    }

    fn not_run(&mut self, job: &Job, why: &WaitReason) {
        if let Some(observer) = self {
            observer.not_run(job, why);
        }
    }

    fn let_alone(&mut self, job: &Job) {
        if let Some(observer) = self {
            observer.let_alone(job);
        }
    }

    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |observer| observer.started(start))
    }

    fn decided(&mut self, at: ClusterTime, core: &Core) {
        if let Some(observer) = self {
            observer.decided(at, core);
        }
    }

    fn passed(&mut self, passed: &Passed) {
        if let Some(observer) = self {
            observer.passed(passed);
        }
    }

    fn ended(&mut self, id: JobId, job: &Finished) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |observer| observer.ended(id, job))
    }
}
