//! A script that fails, as short as it can be made: first steps are left out, many at a time and
//! then fewer (delta debugging), then what is left is made simpler, as long as it still fails.

use super::cluster::job;
use super::script::Script;
use super::step::{CLASSES, Step};
use super::{Failure, play};
use tutti_types::{JobSpec, TaskStatus, params};

/// So many scripts are tried at most.
const TRIES_MAX: usize = 5000;

/// A shorter script that fails too, and how; `None` if this one does not fail.
#[must_use]
pub fn shrink(script: &Script) -> Option<(Script, Failure)> {
    let failure = play(script).err()?;
    let mut script = script.clone();
    script.steps.truncate(failure.steps);
    let mut shrinking = Shrinking { script, failure, tries: 0 };
    loop {
        let before = shrinking.script.clone();
        shrinking.leave_out();
        shrinking.simplify();
        if shrinking.script == before || shrinking.tries >= TRIES_MAX {
            return Some((shrinking.script, shrinking.failure));
        }
    }
}

struct Shrinking {
    script: Script,
    failure: Failure,
    tries: usize,
}

impl Shrinking {
    /// Takes a script instead of the one before if it fails too.
    fn offer(&mut self, script: Script) -> bool {
        self.tries += 1;
        if self.tries > TRIES_MAX || script == self.script {
            return false;
        }
        let Err(failure) = play(&script) else { return false };
        self.script = script;
        self.script.steps.truncate(failure.steps);
        self.failure = failure;
        true
    }

    fn leave_out(&mut self) {
        let mut length = self.script.steps.len().div_ceil(2);
        while length > 0 {
            let mut from = 0;
            while from < self.script.steps.len() {
                let mut script = self.script.clone();
                let to = (from + length).min(script.steps.len());
                script.steps.drain(from..to);
                if !self.offer(script) {
                    from += length;
                }
            }
            length /= 2;
        }
    }

    fn simplify(&mut self) {
        let names: Vec<String> = self.script.start.params.keys().cloned().collect();
        for name in names {
            let mut script = self.script.clone();
            script.start.params.remove(&name);
            self.offer(script);
        }
        while self.script.start.nodes.len() > 1 {
            let mut script = self.script.clone();
            script.start.nodes.pop();
            if !self.offer(script) {
                break;
            }
        }
        for place in 0..self.script.start.nodes.len() {
            while self.script.start.nodes[place] > 1 {
                let mut script = self.script.clone();
                script.start.nodes[place] -= 1;
                if !self.offer(script) {
                    break;
                }
            }
        }
        let mut place = 0;
        while let Some(step) = self.script.steps.get(place) {
            let simpler = simpler(step).into_iter().any(|step| {
                let mut script = self.script.clone();
                script.steps[place] = step;
                self.offer(script)
            });
            // What became simpler may become simpler still.
            place += usize::from(!simpler);
        }
    }
}

/// Steps that do less, or say less, the simplest first.
#[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
fn simpler(step: &Step) -> Vec<Step> {
    let mut all = match step.clone() {
        Step::Pass(nanos) => lower(nanos).map(Step::Pass).collect(),
        Step::Submit(spec) => {
            simpler_spec(&spec).into_iter().map(Box::new).map(Step::Submit).collect()
        }
        Step::SubmitTo(queue, spec) => {
            let to = |spec| Step::SubmitTo(queue % 2, Box::new(spec));
            simpler_spec(&spec).into_iter().map(to).collect()
        }
        Step::Limit(queue, name, value) => {
            lower(value).map(|value| Step::Limit(queue % 2, name.clone(), value)).collect()
        }
        Step::EndTask(job, rank, status) => {
            let status = [TaskStatus::Exited(0), status];
            let places =
                |status| [(0, 0), (job % 8, rank % 8)].map(|(j, r)| Step::EndTask(j, r, status));
            status.into_iter().flat_map(places).collect()
        }
        Step::EndTasks(job) => vec![Step::EndTasks(0), Step::EndTasks(job % 8)],
        Step::EndJob(job, status) => {
            let well = TaskStatus::Exited(0);
            vec![Step::EndJob(0, well), Step::EndJob(job, well), Step::EndJob(job % 8, status)]
        }
        Step::Clear(job) => vec![Step::Clear(0), Step::Clear(job % 8)],
        Step::Arrive(place) => vec![Step::Arrive(0), Step::Arrive(place % 8)],
        Step::Cancel(job, at_once) => vec![Step::Cancel(0, true), Step::Cancel(job % 8, at_once)],
        Step::Requeue(job, hold) => vec![Step::Requeue(0, false), Step::Requeue(job % 8, hold)],
        Step::Suspend(job) => vec![Step::Suspend(0), Step::Suspend(job % 8)],
        Step::SubmitHeld(spec, owner) => {
            let simpler = simpler_spec(&spec).into_iter().map(Box::new);
            simpler.map(|spec| Step::SubmitHeld(spec, owner)).collect()
        }
        Step::SubmitBatch(spec) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new).map(Step::SubmitBatch);
            [Step::Submit(spec)].into_iter().chain(fewer).collect()
        }
        Step::SubmitAfter(spec, after, one, stays) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitAfter(spec, after.clone(), one, stays));
            let first = after[..1].to_vec();
            let plain = [Step::Submit(spec.clone()), Step::SubmitAfter(spec, first, false, false)];
            plain.into_iter().chain(fewer).collect()
        }
        Step::SubmitVacating(spec, ns) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitVacating(spec, ns));
            let plain = [Step::Submit(spec.clone()), Step::SubmitVacating(spec, ns / 2)];
            plain.into_iter().chain(fewer).collect()
        }
        Step::SubmitSwapping(spec) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new).map(Step::SubmitSwapping);
            [Step::Submit(spec)].into_iter().chain(fewer).collect()
        }
        Step::SubmitImage(spec, ns) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitImage(spec, ns));
            [Step::Submit(spec)].into_iter().chain(fewer).collect()
        }
        Step::Saver(job, what) => vec![Step::Saver(0, what), Step::Saver(job % 8, what)],
        Step::Lend(job, _) => vec![Step::Lend(job % 8, true)],
        Step::Swapped(place, percent) => {
            vec![Step::Swapped(0, percent), Step::Swapped(place % 8, percent)]
        }
        Step::SubmitLater(spec, ns) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitLater(spec, ns));
            let plain = [Step::Submit(spec.clone()), Step::SubmitLater(spec, ns / 2)];
            plain.into_iter().chain(fewer).collect()
        }
        Step::SubmitWarned(spec, ns, batch, shell) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitWarned(spec, ns, batch, shell));
            let plain =
                [Step::Submit(spec.clone()), Step::SubmitWarned(spec, ns / 2, false, false)];
            plain.into_iter().chain(fewer).collect()
        }
        Step::SubmitSaver(spec, ns, batch, shell, often) => {
            let fewer = simpler_spec(&spec).into_iter().map(Box::new);
            let fewer = fewer.map(|spec| Step::SubmitSaver(spec, ns, batch, shell, often));
            let plain =
                [Step::Submit(spec.clone()), Step::SubmitSaver(spec, ns / 2, false, false, false)];
            plain.into_iter().chain(fewer).collect()
        }
        Step::Checkpoint(job, order) => {
            vec![Step::Checkpoint(0, order), Step::Checkpoint(job % 8, order)]
        }
        Step::RollOut(ns) => vec![Step::RollOut(ns / 2)],
        Step::MoveBegin(job, ns) => vec![Step::MoveBegin(job % 8, ns), Step::MoveBegin(job, 0)],
        Step::StartStep(job, tasks, each, overlap) => {
            vec![Step::StartStep(0, 1, 1, false), Step::StartStep(job % 8, tasks, each, overlap)]
        }
        Step::EndStep(place, status) => {
            let well = TaskStatus::Exited(0);
            vec![Step::EndStep(0, well), Step::EndStep(place % 8, status)]
        }
        Step::EndStepTask(place, rank, status) => {
            vec![Step::EndStep(place, status), Step::EndStepTask(place % 8, rank % 8, status)]
        }
        Step::CancelStep(place, at_once) => {
            vec![Step::CancelStep(0, true), Step::CancelStep(place % 8, at_once)]
        }
        Step::StepFrontEndLost(place) => vec![Step::StepFrontEndLost(place % 8)],
        Step::SubmitArray(spec, count, limit, held, after) => {
            let simpler = simpler_spec(&spec).into_iter().map(Box::new);
            let simpler = simpler.map(|spec| Step::SubmitArray(spec, count, limit, held, after));
            let fewer = [1, 2, count / 2].into_iter().filter(|&fewer| fewer < count);
            let fewer =
                fewer.map(|count| Step::SubmitArray(spec.clone(), count, None, false, None));
            fewer.chain(simpler).collect()
        }
        Step::Elements(array, first, last, order) => {
            vec![
                Step::Elements(0, first, first, order),
                Step::Elements(array % 4, first, last, order),
            ]
        }
        Step::WholeArray(array, order) => vec![Step::WholeArray(array % 4, order)],
        Step::HoldJob(job, owner) => vec![Step::HoldJob(0, owner), Step::HoldJob(job % 8, owner)],
        Step::Release(job, owner) => vec![Step::Release(0, owner), Step::Release(job % 8, owner)],
        Step::JobClass(job, class) => {
            vec![Step::JobClass(0, class), Step::JobClass(job % 8, class % CLASSES.len())]
        }
        Step::JobLimit(job, limit) => vec![Step::JobLimit(0, limit), Step::JobLimit(job % 8, None)],
        Step::AfterUse(class, rule) => {
            let places = CLASSES.len();
            let rule = rule.map(|(used, other)| (used, other % places));
            vec![Step::AfterUse(class % places, None), Step::AfterUse(class % places, rule)]
        }
        Step::Charge(on) => vec![Step::Charge(on)],
        Step::OrderStart(job, row, node, processors) => vec![
            Step::OrderStart(0, 5, 0, 0),
            Step::OrderStart(job % 6, row, 0, 0),
            Step::OrderStart(job % 6, row, node, processors),
        ],
        Step::Order(job, what, other) => {
            vec![Step::Order(0, what, 0), Step::Order(job % 6, what % 8, other % 6)]
        }
        Step::MoveJob(job, before) => {
            vec![Step::MoveJob(job, None), Step::MoveJob(job % 8, before.map(|it| it % 8))]
        }
        Step::Resume(job) => vec![Step::Resume(0), Step::Resume(job % 8)],
        Step::Signal(job, rank, signal) => {
            vec![Step::Signal(0, None, signal), Step::Signal(job % 8, rank, signal)]
        }
        Step::FrontEndLost(job) => vec![Step::FrontEndLost(0), Step::FrontEndLost(job % 8)],
        Step::Set(name, value) => {
            let default = params::TABLE.iter().find(|param| param.name == name);
            let values = default.map(|param| param.default).into_iter().chain(lower(value));
            values.map(|value| Step::Set(name.clone(), value)).collect()
        }
        Step::Rule(class, name, value) => lower(value)
            .map(|value| Step::Rule(class % CLASSES.len(), name.clone(), value))
            .collect(),
        Step::ForgetClass(class) => vec![Step::ForgetClass(class % CLASSES.len())],
        Step::Hold(job) => lower(job).map(Step::Hold).collect(),
        Step::Forget(job) => lower(job).map(Step::Forget).collect(),
        Step::DeliverKills
        | Step::Miss(_)
        | Step::Lose(_)
        | Step::Join(..)
        | Step::Drain(..)
        | Step::Remove(_)
        | Step::Node(..)
        | Step::Foreign(..)
        | Step::Resource(..)
        | Step::Devices(..)
        | Step::Device(..)
        | Step::Bank(..)
        | Step::BankPeriod(..)
        | Step::Day(_)
        | Step::Weight(..)
        | Step::ForgetQueue(_)
        | Step::Timed(..)
        | Step::TimedDue(..)
        | Step::MoveTimed(..)
        | Step::RollIn
        | Step::Nonsense(..) => Vec::new(),
    };
    // Only what comes before the step itself is simpler.
    let same = all.iter().position(|other| other == step).unwrap_or(all.len());
    all.truncate(same);
    all
}

/// Rounder and smaller numbers.
fn lower(number: u64) -> impl Iterator<Item = u64> {
    let rounded = [1_000_000_000, 10_000_000, 1_000_000, 1000].map(|unit| number / unit * unit);
    let all = [0, 1].into_iter().chain(rounded).chain([number / 2, number.saturating_sub(1)]);
    all.filter(move |&other| other < number)
}

fn simpler_spec(spec: &JobSpec) -> Vec<JobSpec> {
    let usual = job(spec.tasks);
    let mut all = vec![job(1), usual.clone()];
    all.push(JobSpec { tasks: spec.tasks - 1, ..spec.clone() });
    all.push(JobSpec { class: usual.class, ..spec.clone() });
    all.push(JobSpec { processors_per_task: usual.processors_per_task, ..spec.clone() });
    all.push(JobSpec { memory_per_task_bytes: None, ..spec.clone() });
    all.push(JobSpec { time_limit: None, ..spec.clone() });
    all.push(JobSpec { grace: usual.grace, ..spec.clone() });
    all.push(JobSpec { attached: false, ..spec.clone() });
    all.push(JobSpec { movable: false, ..spec.clone() });
    all.push(JobSpec { resources: Vec::new(), ..spec.clone() });
    all.push(JobSpec { on_bad_exit: usual.on_bad_exit, ..spec.clone() });
    all.push(JobSpec { on_node_loss: usual.on_node_loss, ..spec.clone() });
    all.push(JobSpec { nodes: usual.nodes, ..spec.clone() });
    all.retain(|other| other != spec && other.tasks > 0);
    all
}
