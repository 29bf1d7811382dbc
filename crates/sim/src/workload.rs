//! From the lines of a trace, or the jobs of a model, to what is simulated.
//!
//! Of a line count: number, submit time, run time, processors (those asked for, else those it had),
//! requested time, user, queue; and the preceding job with the think time, which the simulation may
//! leave aside ([`Feedback`](crate::Feedback)). A job's class is its queue's name in the header,
//! where a class has that name; else queue 0 is interactive, by the custom of the format; else it
//! is production.

use crate::feedback::Follows;
use crate::jobs::Job;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tutti_trace::{Header, Job as Record};
use tutti_types::{ClassName, ClusterTime, Nanos, QueueSpec};

/// The run times that the core gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Estimates {
    /// The requested time; of jobs without, the run time.
    #[default]
    Trace,
    /// The run time.
    Exact,
    /// So many times what [`Estimates::Trace`] says.
    Factor(f64),
}

/// By when jobs must be done; traces do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Deadlines {
    /// Whenever.
    #[default]
    None,
    /// So many times their estimates after their submission.
    Factor(f64),
}

/// What a line must tell so that its job can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Field 2.
    #[error("it has no submit time (field 2)")]
    Submit,
    /// Field 4.
    #[error("it has no run time (field 4)")]
    Run,
    /// Fields 8 and 5.
    #[error("it has no processors (fields 8 and 5)")]
    Processors,
}

/// A field of a trace that tells kinds of jobs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Field 15.
    Queue,
    /// Field 16.
    Partition,
}

/// What a job of a trace becomes a job of, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapTo {
    /// A class of the settings.
    Class(u16),
    /// A queue of the site.
    Queue(u16),
}

/// Which jobs of a trace belong to which class or queue here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRule {
    /// The field that is looked at, and its value; `None`: all jobs.
    pub from: Option<(Field, u64)>,
    /// Class or queue.
    pub to: MapTo,
}

/// What a job gets of a queue unless it says otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    class: Option<u16>,
    time: Option<Nanos>,
    memory: Option<u64>,
}

/// Makes jobs of lines.
#[derive(Clone, Debug)]
pub struct Workload {
    estimates: Estimates,
    deadlines: Deadlines,
    /// The class of each queue that the header names.
    queues: BTreeMap<u64, u16>,
    interactive: u16,
    others: u16,
    /// Classes that count as another.
    counts_as: BTreeMap<u16, u16>,
    rules: Vec<MapRule>,
    /// Which rules a job has fitted so far.
    fitted: Arc<[AtomicBool]>,
    /// By the index of the queue.
    defaults: Vec<Defaults>,
}

impl Workload {
    /// For a trace with this header, and a core with these classes.
    #[must_use]
    pub fn new(header: &Header, estimates: Estimates, classes: &[ClassName]) -> Self {
        let class = |name: &str| {
            let index = classes.iter().position(|class| class.0.eq_ignore_ascii_case(name))?;
            u16::try_from(index).ok()
        };
        let named = header.queues().into_iter();
        let queues = named.filter_map(|(queue, name)| Some((queue, class(&name)?))).collect();
        let others = class("production").unwrap_or(0);
        Self {
            estimates,
            deadlines: Deadlines::None,
            queues,
            interactive: class("interactive").unwrap_or(others),
            others,
            counts_as: BTreeMap::new(),
            rules: Vec::new(),
            fitted: Arc::default(),
            defaults: Vec::new(),
        }
    }

    /// The same with deadlines.
    #[must_use]
    pub const fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The same with jobs that belong to classes and queues by their fields: of the rules that
    /// apply to a job, the first for a class and the first for a queue count. `queues` has the
    /// queues and `classes` the classes by their indices.
    #[must_use]
    pub fn mapped<'a>(
        mut self,
        rules: Vec<MapRule>,
        queues: impl Iterator<Item = &'a QueueSpec>,
        classes: &[ClassName],
    ) -> Self {
        let class = |name: &ClassName| {
            let index = classes.iter().position(|class| class == name)?;
            u16::try_from(index).ok()
        };
        let defaults = |spec: &QueueSpec| Defaults {
            class: spec.class.as_ref().and_then(class),
            time: spec.time,
            memory: spec.memory,
        };
        self.defaults = queues.map(defaults).collect();
        self.fitted = rules.iter().map(|_| AtomicBool::new(false)).collect();
        self.rules = rules;
        self
    }

    /// For each rule whether a job has fitted it. It changes as jobs are made.
    #[must_use]
    pub fn fitted(&self) -> Arc<[AtomicBool]> {
        Arc::clone(&self.fitted)
    }

    /// Jobs of one class count as another's from now on, both by their index.
    #[must_use]
    pub fn counting(mut self, class: u16, other: u16) -> Self {
        self.counts_as.insert(class, other);
        self
    }

    /// The job of a line.
    ///
    /// # Errors
    /// If the line does not tell what is needed.
    pub fn job(&self, record: &Record, line: u64) -> Result<Job, Missing> {
        let above_0 = |count: &u32| *count > 0;
        let requested = record.requested_processors.filter(above_0);
        let processors = requested.or(record.allocated_processors.filter(above_0));
        let submit = record.submit_ns.ok_or(Missing::Submit)?;
        let think = Nanos(record.think_ns.unwrap_or(0));
        let run_ns = record.run_ns.ok_or(Missing::Run)?;
        let (class, queue) = self.place(record);
        let defaults = queue.and_then(|queue| self.defaults.get(usize::from(queue)).copied());
        let estimate_ns = self.estimate_ns(record, defaults.and_then(|it| it.time), run_ns);
        Ok(Job {
            number: record.number,
            line,
            submit: ClusterTime(submit),
            run: Nanos(run_ns),
            estimate: Nanos(estimate_ns),
            deadline: match self.deadlines {
                Deadlines::None => None,
                Deadlines::Factor(factor) => Some(Nanos(times(estimate_ns, factor))),
            },
            processors: processors.ok_or(Missing::Processors)?,
            class,
            queue,
            memory: defaults.and_then(|defaults| {
                // Traces rarely tell it in a way that could be relied on: only queues count it.
                let asked = record.requested_memory_kb.map(|kb| kb.saturating_mul(1024));
                asked.or(defaults.memory)
            }),
            user: record.user.and_then(|user| u32::try_from(user).ok()).unwrap_or(0),
            group: record.group.and_then(|group| u32::try_from(group).ok()).unwrap_or(0),
            follows: record.preceding_job.map(|job| Follows { job, think }),
        })
    }

    /// The class and the queue of a line's job.
    fn place(&self, record: &Record) -> (u16, Option<u16>) {
        let applies = |rule: &&MapRule| {
            rule.from.is_none_or(|(field, value)| match field {
                Field::Queue => record.queue == Some(value),
                Field::Partition => record.partition == Some(value),
            })
        };
        let rules = || self.rules.iter().filter(applies);
        for (rule, fitted) in self.rules.iter().zip(&*self.fitted) {
            if applies(&rule) {
                fitted.store(true, Ordering::Relaxed);
            }
        }
        let queue = rules().find_map(|rule| match rule.to {
            MapTo::Queue(queue) => Some(queue),
            MapTo::Class(_) => None,
        });
        let class = rules().find_map(|rule| match rule.to {
            MapTo::Class(class) => Some(class),
            MapTo::Queue(_) => None,
        });
        let of_queue = queue.and_then(|queue| self.defaults.get(usize::from(queue))?.class);
        let class = class.or(of_queue).unwrap_or_else(|| self.class(record.queue));
        (self.counts_as.get(&class).copied().unwrap_or(class), queue)
    }

    fn class(&self, queue: Option<u64>) -> u16 {
        let named = queue.and_then(|queue| self.queues.get(&queue)).copied();
        named.unwrap_or(if queue == Some(0) { self.interactive } else { self.others })
    }

    fn estimate_ns(&self, record: &Record, default: Option<Nanos>, run_ns: u64) -> u64 {
        let asked = record.requested_ns.filter(|&ns| ns > 0);
        let told_ns = asked.unwrap_or(default.map_or(run_ns, |default| default.0));
        match self.estimates {
            Estimates::Trace => told_ns,
            Estimates::Exact => run_ns,
            Estimates::Factor(factor) => times(told_ns, factor),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
#[expect(clippy::cast_sign_loss, reason = "the conversion saturates")]
fn times(ns: u64, factor: f64) -> u64 {
    (ns as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::{Deadlines, Estimates, Field, MapRule, MapTo, Missing, Workload};
    use tutti_trace::{Header, Job as Record};
    use tutti_types::{ClassName, Nanos, QueueSpec};

    const CLASSES: [&str; 3] = ["benchmark", "interactive", "production"];

    fn workload(header: &Header, estimates: Estimates) -> Workload {
        Workload::new(header, estimates, &CLASSES.map(ClassName::new))
    }

    fn record() -> Record {
        let (submit_ns, run_ns, requested_ns) = (Some(5), Some(100), Some(300));
        let allocated_processors = Some(4);
        Record {
            number: 7,
            submit_ns,
            run_ns,
            requested_ns,
            allocated_processors,
            ..Record::default()
        }
    }

    #[test]
    fn a_line_that_lacks_something_is_no_job() {
        let workload = workload(&Header::default(), Estimates::Trace);
        let missing = |record: Record| workload.job(&record, 1).err();
        assert_eq!(missing(Record { submit_ns: None, ..record() }), Some(Missing::Submit));
        assert_eq!(missing(Record { run_ns: None, ..record() }), Some(Missing::Run));
        assert_eq!(
            missing(Record { allocated_processors: Some(0), ..record() }),
            Some(Missing::Processors)
        );
        assert_eq!(missing(record()), None);
    }

    #[test]
    fn estimates_come_from_the_trace_or_from_the_run_time() {
        let estimate = |estimates, record: Record| {
            workload(&Header::default(), estimates).job(&record, 1).unwrap().estimate
        };
        let untold = || Record { requested_ns: None, ..record() };
        assert_eq!(estimate(Estimates::Trace, record()), Nanos(300));
        assert_eq!(estimate(Estimates::Trace, untold()), Nanos(100));
        assert_eq!(estimate(Estimates::Exact, record()), Nanos(100));
        assert_eq!(estimate(Estimates::Factor(2.0), record()), Nanos(600));
        assert_eq!(estimate(Estimates::Factor(2.0), untold()), Nanos(200));
    }

    #[test]
    fn deadlines_are_so_many_estimates() {
        let workload = workload(&Header::default(), Estimates::Trace);
        assert_eq!(workload.job(&record(), 1).unwrap().deadline, None);
        let workload = workload.with_deadlines(Deadlines::Factor(1.5));
        assert_eq!(workload.job(&record(), 1).unwrap().deadline, Some(Nanos(450)));
    }

    #[test]
    fn fields_become_classes_and_queues_by_rules() {
        let queue = |class: &str, hours: u64| QueueSpec {
            class: (!class.is_empty()).then(|| ClassName::new(class)),
            time: Some(Nanos::from_secs(hours * 3600)),
            memory: Some(7),
            ..QueueSpec::default()
        };
        let queues = [queue("", 1), queue("benchmark", 2)];
        let classes: Vec<ClassName> = CLASSES.iter().map(|name| ClassName::new(name)).collect();
        let rule = |from, to| MapRule { from, to };
        let rules = vec![
            rule(Some((Field::Queue, 3)), MapTo::Queue(1)),
            rule(Some((Field::Partition, 2)), MapTo::Class(2)),
            rule(None, MapTo::Queue(0)),
        ];
        let workload = workload(&Header::default(), Estimates::Trace);
        let workload = workload.mapped(rules, queues.iter(), &classes);
        let place = |queue, partition| {
            let record = Record { queue, partition, ..record() };
            let job = workload.job(&record, 1).unwrap();
            (CLASSES[usize::from(job.class)], job.queue)
        };
        assert_eq!(place(Some(3), None), ("benchmark", Some(1)));
        assert_eq!(place(Some(3), Some(2)), (CLASSES[2], Some(1)));
        assert_eq!(place(Some(0), Some(1)), ("interactive", Some(0)));
        let untold = Record { requested_ns: None, ..record() };
        let job = workload.job(&untold, 1).unwrap();
        assert_eq!((job.estimate, job.memory), (Nanos::from_secs(3600), Some(7)));
        let asks = Record { requested_memory_kb: Some(2), ..record() };
        let job = workload.job(&asks, 1).unwrap();
        assert_eq!((job.estimate, job.memory), (Nanos(300), Some(2048)));
    }

    #[test]
    fn queues_become_classes_by_their_names() {
        let header = Header::of(&[("Queue", "3 Benchmark"), ("Queue", "4 large")]);
        let workload = workload(&header, Estimates::Trace);
        let class = |queue| {
            let job = workload.job(&Record { queue, ..record() }, 1).unwrap();
            CLASSES[usize::from(job.class)]
        };
        assert_eq!(class(Some(3)), "benchmark");
        assert_eq!(class(Some(4)), "production");
        assert_eq!(class(Some(0)), "interactive");
        assert_eq!(class(None), "production");
    }
}
