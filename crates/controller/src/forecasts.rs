//! Forecasts: when a job would start, and when those in line will.
//!
//! A forecast is played on a copy of the core ([`Forecast`]), in slices of [`SLICE`] for each round
//! of the loop, so that agents and clients are answered meanwhile. One is played at a time; the
//! others wait in line. All that ask for the line when one begins share it.
//!
//! The copy is the one piece that can't be sliced: some 0.3 us a job, so 30 ms of 100,000 jobs.
//! Copies take at most one part in [`REST`] of the loop's time: the next is made so many times as
//! long later.

use super::driver::Driver;
use super::error::Problem;
use super::report::{NO_SHARE, lacks_share};
use super::waits::Waits;
use std::collections::{BTreeMap, VecDeque};
use tutti_core::{CutShort, Event, Forecast, Foreseen, JobState, Unknown, WaitReason};
use tutti_node::codes::code_of_refusal;
use tutti_node::platform::time as clock;
use tutti_node::platform::time::wall_ms;
use tutti_types::limits::FORECAST_EVENTS_MAX;
use tutti_types::param::Shown;
use tutti_types::{ClusterTime, JobId, JobSpec, Nanos, QueueName};
use tutti_wire::code::Code;
use tutti_wire::local::Reply;
use tutti_wire::report::{ForecastReport, StartReport};
use tutti_wire::units::format_seconds;

/// How long a forecast is played in one round.
const SLICE: Nanos = Nanos::from_millis(3);

/// Moments that are played in one round, whatever the clock says.
const MOMENTS_PER_ROUND: usize = 10_000;

/// How long one forecast may be played in all.
const WORK_MAX: Nanos = Nanos::from_secs(20);

/// How many times as long as a copy took no other is made.
const REST: u64 = 20;

/// Forecasts that one user may wait for at once.
const PER_USER_MAX: usize = 8;

/// Forecasts that all users together may wait for at once.
const ALL_MAX: usize = 64;

/// How long a forecast is kept for its next pages.
const KEPT: Nanos = Nanos::from_secs(10);

/// Jobs on one page.
const PAGE_JOBS: usize = 1000;

const MS: u64 = 1_000_000;

/// The forecasts that clients wait for.
#[derive(Default)]
pub(super) struct Forecasts {
    waiting: VecDeque<Asker>,
    playing: Option<Playing>,
    /// The latest of the line, while further pages of it may be asked for; and until when.
    kept: Option<(Told, ClusterTime)>,
    /// When the next copy may be made.
    rested: ClusterTime,
    /// How many were made.
    made: u64,
    /// Which one each user had last, of the users that wait and the latest.
    had: BTreeMap<u32, u64>,
}

/// A client that waits.
struct Asker {
    token: u64,
    uid: u32,
    asks: Asks,
}

/// What it asks.
enum Asks {
    /// When a job would start.
    Job(Box<Wanted>),
    /// When those in line start, from this one on.
    Line(JobId),
}

/// A job that is only asked about.
struct Wanted {
    name: String,
    spec: JobSpec,
    /// What would submit it.
    submit: Event,
}

/// A forecast that is played.
struct Playing {
    askers: Vec<Asker>,
    told: Told,
    work: Nanos,
}

/// A forecast, and what its answers need.
struct Told {
    number: u64,
    forecast: Forecast,
    /// The job that is only asked about.
    job: Option<JobId>,
    /// When it was asked for, in milliseconds since 1970.
    asked_ms: u64,
}

impl Forecasts {
    /// Whether this client waits for a forecast.
    pub(super) fn is_open_for(&self, client: u64) -> bool {
        let playing = self.playing.iter().flat_map(|playing| &playing.askers);
        playing.chain(&self.waiting).any(|asker| asker.token == client)
    }

    /// The next that waits. Users take turns, so that no user waits for all forecasts of another.
    fn next(&mut self) -> Option<Asker> {
        let had = |asker: &Asker| self.had.get(&asker.uid).copied().unwrap_or(0);
        let at = (0..self.waiting.len()).min_by_key(|&at| had(&self.waiting[at]))?;
        let next = self.waiting.remove(at)?;
        self.made += 1;
        self.had.insert(next.uid, self.made);
        let waits = |uid: u32| self.waiting.iter().any(|asker| asker.uid == uid);
        self.had.retain(|&uid, _| uid == next.uid || waits(uid));
        Some(next)
    }

    fn open_for(&self, uid: u32) -> (usize, usize) {
        let playing = self.playing.iter().flat_map(|playing| &playing.askers);
        playing
            .chain(&self.waiting)
            .fold((0, 0), |(theirs, all), asker| (theirs + usize::from(asker.uid == uid), all + 1))
    }
}

impl Driver {
    /// When a job would start that has passed all checks.
    pub(super) fn foretell_job(
        &mut self,
        (token, uid): (u64, u32),
        name: String,
        spec: JobSpec,
        submit: Event,
    ) {
        let asks = Asks::Job(Box::new(Wanted { name, spec, submit }));
        self.wait_for_forecast(Asker { token, uid, asks });
    }

    /// A page of when the jobs in line start.
    pub(super) fn on_starts(&mut self, token: u64, uid: u32, from: JobId, number: u64) {
        let until = self.now() + KEPT;
        if let Some((told, _)) = self.pending.forecasts.kept.take_if(|it| it.0.number == number) {
            let (reply, has_more) = self.page_of_starts(&told, from);
            self.reply(token, &reply);
            self.pending.forecasts.kept = has_more.then_some((told, until));
            return;
        }
        self.wait_for_forecast(Asker { token, uid, asks: Asks::Line(from) });
    }

    fn wait_for_forecast(&mut self, asker: Asker) {
        let connections = &self.intake.connections;
        self.pending.forecasts.waiting.retain(|asker| connections.contains_key(&asker.token));
        let (theirs, all) = self.pending.forecasts.open_for(asker.uid);
        if theirs >= PER_USER_MAX || all >= ALL_MAX {
            let reason = match theirs >= PER_USER_MAX {
                true => format!("{theirs} forecasts of yours are being made"),
                false => format!("{all} forecasts are being made"),
            };
            let reason = format!("{reason}, and no more are possible; try again in some seconds");
            return self.fail(asker.token, Problem::new(Code::TooMuchAsked, reason));
        }
        self.pending.forecasts.waiting.push_back(asker);
    }

    /// Whether a forecast is played, or may begin: the loop goes on at once.
    pub(super) fn is_foretelling(&self) -> bool {
        self.pending.forecasts.playing.is_some() || (self.forecasts_wait() && self.has_rested())
    }

    fn has_rested(&self) -> bool {
        self.pending.forecasts.rested <= self.now()
    }

    /// Whether any waits that may begin: not before the first node is there.
    fn forecasts_wait(&self) -> bool {
        !self.pending.forecasts.waiting.is_empty() && !self.pending.waits_for_nodes
    }

    /// When forecasts have something to do next.
    pub(super) fn forecasts_due(&self) -> ClusterTime {
        let due = self.pending.forecasts.kept.as_ref().map_or(ClusterTime::NEVER, |it| it.1);
        match self.pending.forecasts.waiting.is_empty() {
            true => due,
            false if self.pending.waits_for_nodes => due.min(self.nodes_due()),
            false => due.min(self.pending.forecasts.rested),
        }
    }

    /// Goes on with the forecasts, for a slice of time.
    pub(super) fn foretell(&mut self) {
        let now = self.now();
        drop(self.pending.forecasts.kept.take_if(|(_, until)| *until <= now));
        if self.pending.forecasts.playing.is_none() && self.forecasts_wait() && self.has_rested() {
            self.begin_forecast();
        }
        let connections = &self.intake.connections;
        let Some(playing) = &mut self.pending.forecasts.playing else { return };
        playing.askers.retain(|asker| connections.contains_key(&asker.token));
        if playing.askers.is_empty() {
            self.pending.forecasts.playing = None;
            return;
        }
        let began = clock::monotonic_ns();
        let mut goes_on = true;
        for _ in 0..MOMENTS_PER_ROUND {
            goes_on = playing.told.forecast.step();
            if !goes_on || clock::monotonic_ns().saturating_sub(began) >= SLICE.0 {
                break;
            }
        }
        playing.work += Nanos(clock::monotonic_ns().saturating_sub(began));
        if goes_on && playing.work >= WORK_MAX {
            playing.told.forecast.cut_short();
            goes_on = false;
        }
        if !goes_on && let Some(playing) = self.pending.forecasts.playing.take() {
            self.answer_forecast(playing);
        }
    }

    /// Copies the core for the first that waits; all that ask for the line share it.
    fn begin_forecast(&mut self) {
        let (now, asked_ms) = (self.now(), wall_ms());
        let connections = &self.intake.connections;
        self.pending.forecasts.waiting.retain(|asker| connections.contains_key(&asker.token));
        let Some(first) = self.pending.forecasts.next() else { return };
        let began = clock::monotonic_ns();
        let made = match &first.asks {
            Asks::Job(wanted) => Forecast::of_job(&self.core, now, wanted.submit.clone())
                .map(|(job, it)| (Some(job), it)),
            Asks::Line(_) => Ok((None, Forecast::of_line(&self.core, now))),
        };
        let copied = clock::monotonic_ns().saturating_sub(began);
        self.pending.forecasts.rested = self.now() + Nanos(copied.saturating_mul(REST));
        let (job, forecast) = match made {
            Ok(made) => made,
            Err(refusal) => {
                let problem = Problem::new(code_of_refusal(&refusal), &refusal);
                return self.reply(first.token, &problem.declined());
            }
        };
        let mut askers = vec![first];
        if job.is_none() {
            let waiting = std::mem::take(&mut self.pending.forecasts.waiting);
            let (line, others): (Vec<Asker>, _) =
                waiting.into_iter().partition(|asker| matches!(asker.asks, Asks::Line(_)));
            askers.extend(line);
            self.pending.forecasts.waiting = others.into();
        }
        let told = Told { number: self.pending.forecasts.made, forecast, job, asked_ms };
        self.pending.forecasts.playing = Some(Playing { askers, told, work: Nanos::ZERO });
    }

    fn answer_forecast(&mut self, playing: Playing) {
        let Playing { askers, told, .. } = playing;
        let mut keeps = false;
        for asker in askers {
            let reply = match asker.asks {
                Asks::Job(wanted) => {
                    let user = self.user_name(wanted.spec.owner.0);
                    self.start_of_job(&told, *wanted, user)
                }
                Asks::Line(from) => {
                    let (reply, has_more) = self.page_of_starts(&told, from);
                    keeps |= has_more;
                    reply
                }
            };
            self.reply(asker.token, &reply);
        }
        if keeps {
            self.pending.forecasts.kept = Some((told, self.now() + KEPT));
        }
    }

    fn start_of_job(&self, told: &Told, wanted: Wanted, user: String) -> Reply {
        let Wanted { name, spec, submit } = wanted;
        let queue = match &submit {
            Event::SubmitWith { options, .. } => options.queue.as_ref(),
            _ => None,
        };
        let job = told.job.unwrap_or_default();
        let foreseen = told.forecast.jobs(job).next().map(|it| it.1.clone()).unwrap_or_default();
        let mut start =
            self.start_report(told, job, (&foreseen, told.forecast.waits()), (&spec, queue));
        (start.job, start.name, start.user) = (None, name, user);
        let report = self.forecast_report(told, vec![start]);
        Reply::Starts { report, next: None, forecast: told.number }
    }

    /// A page, and whether others follow.
    fn page_of_starts(&self, told: &Told, from: JobId) -> (Reply, bool) {
        let (mut jobs, mut next) = (Vec::new(), None);
        for (job, foreseen) in told.forecast.jobs(from) {
            // It may have ended since.
            let Some(view) = self.core.job(job, told.forecast.asked()) else { continue };
            if jobs.len() >= PAGE_JOBS {
                next = Some(job);
                break;
            }
            let why = match &view.state {
                JobState::Queued { why, .. } => Some(why),
                JobState::Running { .. } | JobState::Ending { .. } => None,
            };
            jobs.push(self.start_report(told, job, (foreseen, why), (view.spec, view.queue)));
        }
        let has_more = next.is_some();
        let report = self.forecast_report(told, jobs);
        (Reply::Starts { report, next, forecast: told.number }, has_more)
    }

    fn forecast_report(&self, told: &Told, jobs: Vec<StartReport>) -> ForecastReport {
        let value = |name: &str| {
            let mut params = self.core.params().iter();
            let found = params.find(|(param, _)| param.name == name);
            found.map(|(param, value)| Shown(param, value).to_string()).unwrap_or_default()
        };
        let cut_short = told.forecast.cut().map(words_of_cut);
        ForecastReport {
            policy: value("policy"),
            discipline: value("discipline"),
            cut_short: cut_short.unwrap_or_default(),
            jobs,
        }
    }

    fn start_report(
        &self,
        told: &Told,
        job: JobId,
        (foreseen, why): (&Foreseen, Option<&WaitReason>),
        (spec, queue): (&JobSpec, Option<&QueueName>),
    ) -> StartReport {
        let entry = self.jobs.get(&job);
        let asked = told.forecast.asked();
        let within = |at: ClusterTime| at.since(asked).0 / MS;
        let wall = |at: ClusterTime| told.asked_ms.saturating_add(within(at));
        let waits = why.map(|why| Waits::new(self).say((job, spec, queue), why));
        let played = told.forecast.core();
        let has_no_turns = |unknown: &Unknown| {
            *unknown != Unknown::Held
                && played.job(job, played.now()).is_some_and(|view| lacks_share(played, &view))
        };
        let unknown = told.forecast.unknown(job).map(|unknown| match has_no_turns(&unknown) {
            true => NO_SHARE.into(),
            false => self.words_of_unknown((job, spec, queue), &unknown),
        });
        StartReport {
            job: Some(job),
            name: entry.map_or_else(String::new, |entry| entry.terms.name().to_owned()),
            user: entry.map_or_else(String::new, |entry| entry.owner.user.clone()),
            class: spec.class.to_string(),
            tasks: spec.tasks,
            starts_ms: foreseen.starts.map(wall),
            starts_in_ms: foreseen.starts.map(within),
            ends_ms: foreseen.ends.map(wall),
            ends_in_ms: foreseen.ends.map(within),
            promised_ms: foreseen.promised.map(wall),
            rests_on: foreseen.rests_on.clone(),
            rests_on_count: u32::try_from(foreseen.rests_on_count).unwrap_or(u32::MAX),
            unknown: unknown.unwrap_or_default(),
            waits: waits.unwrap_or_default(),
        }
    }

    fn words_of_unknown(
        &self,
        (job, spec, queue): (JobId, &JobSpec, Option<&QueueName>),
        unknown: &Unknown,
    ) -> String {
        match unknown {
            Unknown::OwnLimit => "it has no time limit".into(),
            Unknown::NoLimit(job) => format!("job {job} has no time limit"),
            Unknown::Held => "it is held".into(),
            Unknown::Never => "it starts only if a job before it fails (--after)".into(),
            Unknown::Suspended(job) => format!("job {job} is suspended"),
            Unknown::Waits(why) => Waits::new(self).say((job, spec, queue), why),
            Unknown::CutShort(cut) => words_of_cut(*cut),
        }
    }
}

fn words_of_cut(cut: CutShort) -> String {
    match cut {
        CutShort::Events => format!("the forecast ends after {FORECAST_EVENTS_MAX} events"),
        CutShort::Ahead => "the forecast ends after a year".into(),
        CutShort::Work => {
            let seconds = format_seconds(WORK_MAX.0 / 1_000_000_000);
            format!("the forecast ends after {seconds} of work")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Asks, Forecasts};
    use tutti_types::JobId;

    #[test]
    fn users_that_wait_for_forecasts_take_turns() {
        let mut forecasts = Forecasts::default();
        let asker = |(token, uid)| Asker { token, uid, asks: Asks::Line(JobId(0)) };
        forecasts.waiting.extend([(1, 7), (2, 7), (3, 7), (4, 8), (5, 9), (6, 8)].map(asker));
        let order = || forecasts.next().map(|next| next.token);
        let order: Vec<u64> = std::iter::from_fn(order).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert_eq!(forecasts.had.len(), 1, "nothing is kept of users that do not wait");
    }
}
