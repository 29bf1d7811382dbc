//! Users that wait for a result before they submit more: fields 17 and 18 of a trace.
//!
//! A job that names a preceding job is submitted when that one has ended *in the simulation* and
//! the think time is over, but never before its own submit time. So a user that is served late
//! submits late, and everything that hangs on it is late too; one that is served sooner than in the
//! log submits as in the log. (The format leaves open which of both times counts. Without the
//! submit time the rest of a trace would have to be read ahead, to find the jobs that an end
//! frees.) With [`Feedback::hours`], a job that had to wait comes in these hours of the week only:
//! its user has gone home.
//!
//! The preceding job must stand above in the workload. One that the core declines has ended as soon
//! as it is declined. Of one that was not simulated there is no end to wait for: an error, or the
//! job comes at its own submit time ([`Feedback::lets_alone`]).
//!
//! What is kept: jobs that wait, one entry for each job that others may still wait for, and the
//! ends of the last [`REMEMBERED_MAX`] jobs. Whose preceding job ended before those does not wait.

use crate::jobs::Job;
use std::collections::{BTreeMap, VecDeque};
use tutti_types::{Calendar, ClusterTime, Nanos, Period};

/// How jobs wait for those before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// When users that had to wait for a result submit more; `None`: at any time. Needs
    /// [`Settings::calendar`](crate::Settings::calendar).
    pub hours: Option<Period>,
    /// Whether a job whose preceding job was not simulated comes at its own submit time; otherwise
    /// it is an error.
    pub lets_alone: bool,
}

/// What a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follows {
    /// The number of the preceding job.
    pub job: u64,
    /// From that job's end to the submission of this one.
    pub think: Nanos,
}

/// How many ends are remembered: people think for hours or days, and few machines end more jobs in
/// that time.
const REMEMBERED_MAX: usize = 1 << 16;

/// Jobs that wait for others, and what they wait for.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    rule: Option<Feedback>,
    calendar: &'a [(ClusterTime, Nanos)],
    known: BTreeMap<u64, Known>,
    /// Jobs that have ended, in their order.
    ended: VecDeque<u64>,
    /// The highest number among those that were forgotten.
    forgotten: Option<u64>,
    /// Jobs that wait only for the time, by that and their place in the workload.
    due: BTreeMap<(ClusterTime, u64), Job>,
    places: u64,
}

/// What is known of a job.
#[derive(Debug)]
enum Known {
    /// It has not ended, and these wait for that.
    Coming(Vec<Held>),
    Ended(ClusterTime),
}

/// A job that waits for another's end.
#[derive(Clone, Copy, Debug)]
struct Held {
    place: u64,
    think: Nanos,
    job: Job,
}

/// What becomes of a job whose place in the workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is submitted.
    Now,
    /// It waits.
    Later,
    /// This preceding job is not known.
    Unknown(u64),
}

impl<'a> Waiting<'a> {
    /// Without a rule no job waits.
    pub(crate) const fn new(rule: Option<Feedback>, calendar: &'a [(ClusterTime, Nanos)]) -> Self {
        Self {
            rule,
            calendar,
            known: BTreeMap::new(),
            ended: VecDeque::new(),
            forgotten: None,
            due: BTreeMap::new(),
            places: 0,
        }
    }

    /// A job's place in the workload has come, and its submit time.
    pub(crate) fn arrive(&mut self, job: &Job, now: ClusterTime) -> Arrival {
        if self.rule.is_none() {
            return Arrival::Now;
        }
        self.places += 1;
        let arrival = job.follows.map_or(Arrival::Now, |follows| self.follow(job, follows, now));
        // Of jobs with the same number, the first that ends counts.
        let known = self.known.entry(job.number).or_insert(Known::Coming(Vec::new()));
        if let Known::Ended(_) = known {
            *known = Known::Coming(Vec::new());
        }
        arrival
    }

    fn follow(
        &mut self,
        job: &Job,
        Follows { job: number, think }: Follows,
        now: ClusterTime,
    ) -> Arrival {
        let place = self.places;
        match self.known.get_mut(&number) {
            Some(Known::Coming(waiting)) => {
                waiting.push(Held { place, think, job: *job });
                Arrival::Later
            }
            Some(&mut Known::Ended(end)) if end + think > now => {
                self.due.insert((self.in_hours(end + think), place), *job);
                Arrival::Later
            }
            Some(Known::Ended(_)) => Arrival::Now,
            None if self.forgotten.is_some_and(|highest| number <= highest) => Arrival::Now,
            None => Arrival::Unknown(number),
        }
    }

    /// Whether a job whose preceding job is not known comes nevertheless.
    pub(crate) fn lets_alone(&self) -> bool {
        self.rule.is_some_and(|rule| rule.lets_alone)
    }

    /// A job has ended, or will never run.
    pub(crate) fn ended(&mut self, number: u64, now: ClusterTime) {
        if self.rule.is_none() {
            return;
        }
        if let Some(Known::Coming(waiting)) = self.known.insert(number, Known::Ended(now)) {
            for Held { place, think, job } in waiting {
                self.due.insert((self.in_hours(now + think), place), job);
            }
        }
        self.ended.push_back(number);
        if self.ended.len() > REMEMBERED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && matches!(self.known.get(&oldest), Some(Known::Ended(_)))
        {
            self.known.remove(&oldest);
            self.forgotten = self.forgotten.max(Some(oldest));
        }
    }

    /// When a job is due that waited.
    pub(crate) fn next(&self) -> ClusterTime {
        self.due.first_key_value().map_or(ClusterTime::NEVER, |(&(at, _), _)| at)
    }

    /// The first job that is due by now.
    pub(crate) fn take(&mut self, now: ClusterTime) -> Option<Job> {
        let (&(at, _), _) = self.due.first_key_value()?;
        if at > now {
            return None;
        }
        self.due.pop_first().map(|(_, job)| job)
    }

    /// The first moment from this one on at which people submit jobs.
    fn in_hours(&self, mut at: ClusterTime) -> ClusterTime {
        let Some(hours) = self.rule.and_then(|rule| rule.hours) else { return at };
        // Between two looks the hours begin, or the clocks were put back: more never come together.
        for _ in 0..LOOKS_MAX {
            let past = self.calendar.partition_point(|&(told, _)| told <= at);
            let Some(&(told, week)) = self.calendar.get(past.saturating_sub(1)) else { return at };
            let week = Calendar::new(told, week).week(at);
            match hours.changes_in(week) {
                Some(wait) if !hours.holds(week) => at = at + wait,
                Some(_) | None => return at,
            }
        }
        at
    }
}

const LOOKS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::{Arrival, Feedback, Follows, REMEMBERED_MAX, Waiting};
    use crate::jobs::Job;
    use tutti_types::{ClusterTime, Nanos};

    const HOUR: u64 = 3_600_000_000_000;
    /// From a Monday at midnight on; after two days the clocks are put back by an hour.
    const CALENDAR: [(ClusterTime, Nanos); 2] =
        [(ClusterTime(0), Nanos(0)), (ClusterTime(48 * HOUR), Nanos(47 * HOUR))];

    fn job(number: u64, follows: Option<(u64, u64)>) -> Job {
        let follows = follows.map(|(job, think)| Follows { job, think: Nanos(think) });
        Job { number, follows, ..Job::default() }
    }

    fn waiting(hours: &str) -> Waiting<'static> {
        let hours = (!hours.is_empty()).then(|| hours.parse().unwrap());
        Waiting::new(Some(Feedback { hours, lets_alone: false }), &CALENDAR)
    }

    fn at(hour: u64) -> ClusterTime {
        ClusterTime(hour * HOUR)
    }

    #[test]
    fn a_job_comes_when_the_one_before_it_has_ended_and_its_user_has_thought() {
        let mut waiting = waiting("");
        assert_eq!(waiting.arrive(&job(1, None), at(0)), Arrival::Now);
        assert_eq!(waiting.arrive(&job(2, Some((1, HOUR))), at(1)), Arrival::Later);
        assert_eq!(waiting.arrive(&job(3, Some((2, 0))), at(1)), Arrival::Later);
        assert_eq!((waiting.next(), waiting.take(at(9))), (ClusterTime::NEVER, None));
        waiting.ended(1, at(3));
        assert_eq!((waiting.next(), waiting.take(at(3))), (at(4), None));
        assert_eq!(waiting.take(at(4)).map(|job| job.number), Some(2));
        // A user that comes after the end waits for the rest of the time.
        assert_eq!(waiting.arrive(&job(4, Some((1, 2 * HOUR))), at(4)), Arrival::Later);
        assert_eq!(waiting.arrive(&job(5, Some((1, HOUR))), at(4)), Arrival::Now);
        waiting.ended(2, at(5));
        let due: Vec<u64> =
            std::iter::from_fn(|| waiting.take(at(5))).map(|it| it.number).collect();
        assert_eq!(due, [3, 4], "at one moment as in the workload");
    }

    #[test]
    fn only_what_stands_above_can_be_waited_for() {
        let mut waiting = waiting("");
        assert_eq!(waiting.arrive(&job(1, Some((1, 0))), at(0)), Arrival::Unknown(1));
        assert_eq!(waiting.arrive(&job(2, Some((3, 0))), at(0)), Arrival::Unknown(3));
        assert_eq!(waiting.arrive(&job(3, Some((2, 0))), at(0)), Arrival::Later);
        assert_eq!(waiting.arrive(&job(4, Some((99, 0))), at(0)), Arrival::Unknown(99));
    }

    #[test]
    fn without_the_rule_nobody_waits() {
        let mut waiting = Waiting::new(None, &CALENDAR);
        assert_eq!(waiting.arrive(&job(1, Some((1, 0))), at(0)), Arrival::Now);
        waiting.ended(1, at(1));
        assert!(waiting.known.is_empty() && waiting.ended.is_empty());
    }

    #[test]
    fn ends_are_forgotten_in_their_order() {
        let mut waiting = waiting("");
        let last = REMEMBERED_MAX as u64 + 3;
        for number in 1..=last {
            assert_eq!(waiting.arrive(&job(number, None), at(0)), Arrival::Now);
            waiting.ended(number, at(1));
        }
        assert_eq!(waiting.known.len(), REMEMBERED_MAX);
        assert_eq!(waiting.arrive(&job(last + 1, Some((3, HOUR))), at(1)), Arrival::Now);
        assert_eq!(waiting.arrive(&job(last + 2, Some((4, HOUR))), at(1)), Arrival::Later);
        assert_eq!(
            waiting.arrive(&job(last + 3, Some((last + 9, 0))), at(1)),
            Arrival::Unknown(last + 9)
        );
    }

    #[test]
    fn who_waited_hands_in_during_hours() {
        let moved = |hours: &str, hour| waiting(hours).in_hours(at(hour));
        assert_eq!(moved("", 3), at(3));
        assert_eq!(moved("mon-fri 08:00-18:00", 3), at(8));
        assert_eq!(moved("mon-fri 08:00-18:00", 8), at(8));
        assert_eq!(moved("mon-fri 08:00-18:00", 17), at(17));
        assert_eq!(moved("mon-fri 08:00-18:00", 18), at(32));
        // Wednesday, after the clocks were put back; and across the weekend.
        assert_eq!(moved("mon-fri 08:00-18:00", 42), at(57));
        assert_eq!(moved("mon-fri 08:00-18:00", 4 * 24 + 19), at(7 * 24 + 9));
        assert_eq!(moved("mon-sun", 5), at(5));
    }
}
