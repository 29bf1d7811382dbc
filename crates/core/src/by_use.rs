//! Rules by use: a job of a class that has used so much processor time becomes one of another
//! class.
//!
//! What counts is the time of the job's turns times its processors, from its start on, in whatever
//! class it was. So a user who gives the job its former class back gains nothing: the rule holds
//! again at once. Rules may form a chain, and never a circle. While the owner's allowance is spent
//! the job counts as standby, and the rule changes the class that it goes back to.
//!
//! With rules, each event looks at all resident jobs, as it does with accounts ([`crate::bank`]).

use crate::action::Action;
use crate::apply::Core;
use crate::state::record::Record;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::class::{AfterUse, AfterUseError};
use tutti_types::ids::{ClassName, JobId};
use tutti_types::time::{ClusterTime, Nanos};

/// The rules, by the class that they are about.
pub(crate) type RulesByUse = BTreeMap<ClassName, AfterUse>;

/// Whether a class may have a rule beside these.
///
/// # Errors
/// If the other class is unknown, or the rules would form a circle.
pub fn check_rule_by_use<'a>(
    class: &ClassName,
    rule: &AfterUse,
    known: impl Fn(&ClassName) -> bool,
    rules: impl Fn(&ClassName) -> Option<&'a AfterUse>,
) -> Result<(), AfterUseError> {
    if !known(&rule.class) {
        return Err(AfterUseError::Unknown(rule.class.clone()));
    }
    let mut chain = alloc::vec![class.clone()];
    let mut next = Some(&rule.class);
    while let Some(class) = next {
        chain.push(class.clone());
        if chain[..chain.len() - 1].contains(class) {
            return Err(AfterUseError::Circle(chain));
        }
        next = rules(class).map(|rule| &rule.class);
    }
    Ok(())
}

/// The class that a job has, or goes back to when its owner's allowance is not spent any more.
pub(crate) const fn own_class(record: &Record) -> &ClassName {
    match &record.former {
        Some(former) => former,
        None => &record.spec.class,
    }
}

impl Core {
    /// The rules by use, by the class that they are about.
    #[must_use]
    pub const fn rules_by_use(&self) -> &BTreeMap<ClassName, AfterUse> {
        &self.by_use
    }

    /// An administrator sets a rule by use, or drops it.
    pub(crate) fn on_set_class_after(&mut self, class: &ClassName, rule: Option<&AfterUse>) {
        let known = |class: &ClassName| self.settings.classes.contains_key(class);
        match rule {
            Some(rule) if known(class) => {
                let others = |class: &ClassName| self.by_use.get(class);
                if check_rule_by_use(class, rule, known, others).is_ok() {
                    self.by_use.insert(class.clone(), rule.clone());
                }
            }
            Some(_) => {}
            None => drop(self.by_use.remove(class)),
        }
    }

    /// How long a job must have had its processors until its class's rule holds, and the class that
    /// it gets then; `None`: no rule is about it, or it has none.
    fn rule_for(&self, record: &Record) -> Option<(Nanos, &ClassName)> {
        let rule = self.by_use.get(own_class(record))?;
        let parts = &record.residence()?.parts;
        let processors: u64 = parts.iter().map(|part| u64::from(part.processors.count())).sum();
        Some((Nanos(rule.used.0.div_ceil(processors.max(1))), &rule.class))
    }

    /// The class of a job by the rules, if they give it another one now.
    fn class_by_use(&self, job: JobId) -> Option<ClassName> {
        let record = self.jobs.get(&job).filter(|_| !self.is_overrun(job))?;
        let (need, class) = self.rule_for(record)?;
        (self.ledger.turns(job, self.now) >= need).then(|| class.clone())
    }

    /// The jobs that have processors, or have them given up: what is used is theirs.
    fn resident(&self) -> Vec<JobId> {
        self.matrix.seats().map(|(job, _)| job).chain(self.aside.iter().copied()).collect()
    }

    /// Gives jobs that have used so much the class that the rules name, and names them.
    pub(crate) fn follow_rules_by_use(&mut self, actions: &mut Vec<Action>) {
        if self.by_use.is_empty() {
            return;
        }
        for job in self.resident() {
            let mut changed = None;
            // A chain of rules ends, since none is a circle.
            while let Some(class) = self.class_by_use(job) {
                self.on_set_job_class(job, &class);
                changed = Some(class);
            }
            if let Some(class) = changed {
                actions.push(Action::Reclassed { job, class });
            }
        }
    }

    /// When a rule could hold for a job at the earliest, as the slots are now.
    pub(crate) fn next_by_use(&self) -> ClusterTime {
        if self.by_use.is_empty() {
            return ClusterTime::NEVER;
        }
        let rule = |(job, record): (JobId, &Record)| Some((job, self.rule_for(record)?.0));
        let jobs = self.resident().into_iter().filter(|job| !self.is_overrun(*job));
        let jobs = jobs.filter_map(|job| Some((job, self.jobs.get(&job)?)));
        let reached = jobs.filter_map(rule);
        let mut any = false;
        let reached = reached.map(|(job, need)| {
            any = true;
            self.ledger.reaches_in_turns(job, need)
        });
        let at = reached.min().unwrap_or(ClusterTime::NEVER);
        // When a timetable activates, this must be foretold anew.
        if any { at.min(self.ledger.next_stage()) } else { at }
    }

    /// A class with a rule that names this one.
    pub(crate) fn rule_that_names(&self, class: &ClassName) -> Option<&ClassName> {
        self.by_use.iter().find(|(_, rule)| rule.class == *class).map(|(of, _)| of)
    }

    /// A job that should have another class by the rules.
    pub(crate) fn wrong_class_by_use(&self) -> Option<JobId> {
        let mut jobs = self.resident().into_iter();
        jobs.find(|&job| !self.by_use.is_empty() && self.class_by_use(job).is_some())
    }
}
