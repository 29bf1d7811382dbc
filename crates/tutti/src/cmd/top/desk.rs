//! What keys do in `tutti top`: jobs are chosen, marked, filtered, sorted, and ordered about.

use std::collections::{BTreeMap, BTreeSet};
use tutti_client::keys::Press;
use tutti_client::output::{counted, plain};
use tutti_types::{ClassName, JobId};
use tutti_wire::local::Request;
use tutti_wire::report::{JobReport, Target};

/// Lines of a page.
const PAGE: isize = 10;

/// Characters that may be typed for a filter or a class.
const TYPED_MAX: usize = 64;

/// By what jobs are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// By their numbers.
    #[default]
    Number,
    /// Those that use most processor time now first.
    Processor,
    /// Those that had most time first.
    Service,
    /// By user.
    User,
    /// By state.
    State,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Number => Self::Processor,
            Self::Processor => Self::Service,
            Self::Service => Self::User,
            Self::User => Self::State,
            Self::State => Self::Number,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Processor => "CPU",
            Self::Service => "service",
            Self::User => "user",
            Self::State => "state",
        }
    }
}

/// What is done to jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// They end, with their grace.
    Cancel,
    /// They end at once.
    Kill,
    /// They get no turns.
    Suspend,
    /// They get turns again.
    Resume,
    /// They do not begin.
    Hold,
    /// They are in line again.
    Release,
    /// They get another class.
    Class(ClassName),
}

impl Deed {
    fn of(key: char) -> Option<Self> {
        Some(match key {
            'c' => Self::Cancel,
            'C' => Self::Kill,
            's' => Self::Suspend,
            'r' => Self::Resume,
            'h' => Self::Hold,
            'u' => Self::Release,
            _ => return None,
        })
    }

    fn question(&self, of: &str) -> String {
        match self {
            Self::Cancel => format!("cancel {of}?"),
            Self::Kill => format!("kill {of} at once?"),
            Self::Suspend => format!("suspend {of}?"),
            Self::Resume => format!("resume {of}?"),
            Self::Hold => format!("hold {of}?"),
            Self::Release => format!("release {of}?"),
            Self::Class(class) => format!("give {of} class {class}?"),
        }
    }

    /// What the controller is asked to do.
    pub(super) fn request(&self, job: JobId) -> Request {
        let target = Target::from(job);
        match self {
            Self::Cancel => Request::Cancel { target, at_once: false },
            Self::Kill => Request::Cancel { target, at_once: true },
            Self::Suspend => Request::Suspend { target },
            Self::Resume => Request::Resume { target },
            Self::Hold => Request::Hold { job },
            Self::Release => Request::Release { job },
            Self::Class(class) => Request::SetJobClass { job, class: class.clone() },
        }
    }
}

/// What keys are for at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Watch,
    Help,
    /// Whether this is to be done.
    Confirm(Deed, Vec<JobId>),
    /// A filter is typed; what it was before.
    Filter(String),
    /// A class is typed, for these jobs.
    Class(String, Vec<JobId>),
}

/// What is to be done after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing but a new picture.
    None,
    /// It is over.
    End,
    /// Look again at once.
    Look,
    /// This, to these jobs.
    Do(Deed, Vec<JobId>),
    /// Show this job alone.
    Open(JobId),
    /// Show nodes.
    Nodes,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Desk {
    mode: Mode,
    /// The job that keys are about.
    chosen: Option<JobId>,
    /// Jobs that keys are about instead, if there are any.
    marked: BTreeSet<JobId>,
    filter: String,
    order: Order,
    reverse: bool,
    /// What the last line says until the next key.
    said: Option<String>,
}

impl Desk {
    pub(super) const fn chosen(&self) -> Option<JobId> {
        self.chosen
    }

    pub(super) fn is_marked(&self, job: JobId) -> bool {
        self.marked.contains(&job)
    }

    pub(super) fn shows_help(&self) -> bool {
        self.mode == Mode::Help
    }

    /// Whether keys are for what is shown, and no question or word is open.
    pub(super) fn is_watched(&self) -> bool {
        self.mode == Mode::Watch
    }

    /// Tells this in the last line.
    pub(super) fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    /// What the last line tells, if there is news.
    pub(super) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// Tells nothing of what was done before.
    pub(super) fn say_nothing(&mut self) {
        self.said = None;
    }

    /// The jobs that pass the filter, sorted. Jobs that are gone are neither chosen nor marked any
    /// more.
    pub(super) fn arrange<'a>(
        &mut self,
        all: impl Iterator<Item = &'a JobReport>,
        rates: &BTreeMap<JobId, u64>,
    ) -> Vec<&'a JobReport> {
        let wanted = self.filter.to_lowercase();
        let passes = |job: &&JobReport| {
            let number = job.job.to_string();
            let texts = [&job.name, &job.user, &job.class, &job.state, &number];
            wanted.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        let mut jobs: Vec<&JobReport> = all.filter(passes).collect();
        let rate = |job: &JobReport| rates.get(&job.job).copied().unwrap_or(0);
        match self.order {
            Order::Number => jobs.sort_by_key(|job| job.job),
            Order::Processor => jobs.sort_by_key(|job| std::cmp::Reverse(rate(job))),
            Order::Service => jobs.sort_by_key(|job| std::cmp::Reverse(job.service_ms)),
            Order::User => jobs.sort_by(|a, b| (&a.user, a.job).cmp(&(&b.user, b.job))),
            Order::State => jobs.sort_by(|a, b| (&a.state, a.job).cmp(&(&b.state, b.job))),
        }
        if self.reverse {
            jobs.reverse();
        }
        let is_there = |job: JobId| jobs.iter().any(|other| other.job == job);
        self.chosen = self.chosen.filter(|&job| is_there(job));
        self.marked.retain(|&job| is_there(job));
        jobs
    }

    /// The last line: a question, what is typed, what was said, or keys.
    pub(super) fn bar(&self, jobs: &[&JobReport], is_page: bool) -> String {
        match &self.mode {
            Mode::Confirm(deed, of) => {
                format!("{}  y: yes, other keys: no", deed.question(&named(of, jobs)))
            }
            Mode::Filter(_) => format!("filter: {}_  enter: keep, escape: none", self.filter),
            Mode::Class(typed, _) => format!("class: {typed}_  enter: go on, escape: leave it"),
            Mode::Help => "any key: back".into(),
            Mode::Watch if self.said.is_some() => self.said.clone().unwrap_or_default(),
            Mode::Watch if is_page => {
                "escape back  e errors  n p rank  c cancel  s suspend  r resume  h hold  u release  \
                 l class"
                    .into()
            }
            Mode::Watch => {
                let mut told = Vec::new();
                if !self.filter.is_empty() {
                    told.push(format!("filter {}", self.filter));
                }
                if self.order != Order::Number || self.reverse {
                    let reverse = if self.reverse { ", reversed" } else { "" };
                    told.push(format!("by {}{reverse}", self.order.name()));
                }
                if !self.marked.is_empty() {
                    told.push(format!("{} marked", self.marked.len()));
                }
                told.push(
                    "enter show  space mark  c cancel  s suspend  / filter  o order  n nodes  \
                     ? help  q end"
                        .into(),
                );
                told.join("  ")
            }
        }
    }

    /// What a key does, with these jobs on the screen; on the page of a job it is about that one.
    pub(super) fn press(&mut self, press: Press, jobs: &[&JobReport], page: Option<JobId>) -> Step {
        self.say_nothing();
        match std::mem::take(&mut self.mode) {
            Mode::Watch => self.watch(press, jobs, page),
            Mode::Help => Step::None,
            Mode::Confirm(deed, of) => match press {
                Press::Char('y' | 'Y') => {
                    self.marked.clear();
                    Step::Do(deed, of)
                }
                _ => Step::None,
            },
            Mode::Filter(before) => {
                match press {
                    Press::Enter => return Step::None,
                    Press::Escape => {
                        self.filter.clear();
                        return Step::None;
                    }
                    _ => edit(&mut self.filter, press),
                }
                self.mode = Mode::Filter(before);
                Step::None
            }
            Mode::Class(mut typed, of) => {
                match press {
                    Press::Escape => return Step::None,
                    Press::Enter if typed.is_empty() => return Step::None,
                    Press::Enter => {
                        self.mode = Mode::Confirm(Deed::Class(ClassName::new(&typed)), of);
                        return Step::None;
                    }
                    _ => edit(&mut typed, press),
                }
                self.mode = Mode::Class(typed, of);
                Step::None
            }
        }
    }

    fn watch(&mut self, press: Press, jobs: &[&JobReport], page: Option<JobId>) -> Step {
        match press {
            Press::Char('q' | 'Q') => return Step::End,
            Press::Char('?') => self.mode = Mode::Help,
            Press::Char('g') => return Step::Look,
            Press::Char('l') => {
                let of = self.meant(page);
                if of.is_empty() {
                    self.say(NONE_CHOSEN.into());
                } else {
                    self.mode = Mode::Class(String::new(), of);
                }
            }
            Press::Char(key) if Deed::of(key).is_some() => {
                let (of, deed) = (self.meant(page), Deed::of(key));
                match deed.filter(|_| !of.is_empty()) {
                    Some(deed) => self.mode = Mode::Confirm(deed, of),
                    None => self.say(NONE_CHOSEN.into()),
                }
            }
            _ if page.is_some() => {}
            _ => return self.choose(press, jobs),
        }
        Step::None
    }

    /// Keys of the list.
    fn choose(&mut self, press: Press, jobs: &[&JobReport]) -> Step {
        match press {
            Press::Up | Press::Char('k') => self.go(-1, jobs),
            Press::Down | Press::Char('j') => self.go(1, jobs),
            Press::PageUp => self.go(-PAGE, jobs),
            Press::PageDown => self.go(PAGE, jobs),
            Press::Home => self.chosen = jobs.first().map(|job| job.job),
            Press::End => self.chosen = jobs.last().map(|job| job.job),
            Press::Char(' ') => {
                if let Some(job) = self.chosen {
                    if !self.marked.remove(&job) {
                        self.marked.insert(job);
                    }
                    self.go(1, jobs);
                } else {
                    self.say(NONE_CHOSEN.into());
                }
            }
            Press::Char('/') => self.mode = Mode::Filter(self.filter.clone()),
            Press::Char('o') => self.order = self.order.next(),
            Press::Char('O') => self.reverse = !self.reverse,
            Press::Char('n') => return Step::Nodes,
            Press::Enter => match self.chosen {
                Some(job) => return Step::Open(job),
                None => self.say(NONE_CHOSEN.into()),
            },
            Press::Escape => {
                if self.marked.is_empty() {
                    self.chosen = None;
                    self.filter.clear();
                }
                self.marked.clear();
            }
            Press::Char(_) | Press::Backspace | Press::Left | Press::Right | Press::Tab => {}
        }
        Step::None
    }

    /// The jobs that an order is about: that of the page, those that are marked, the chosen one.
    fn meant(&self, page: Option<JobId>) -> Vec<JobId> {
        match page {
            Some(job) => vec![job],
            None if self.marked.is_empty() => self.chosen.into_iter().collect(),
            None => self.marked.iter().copied().collect(),
        }
    }

    fn go(&mut self, by: isize, jobs: &[&JobReport]) {
        let at = self.chosen.and_then(|chosen| jobs.iter().position(|job| job.job == chosen));
        let last = jobs.len().saturating_sub(1);
        let to = match at {
            Some(at) => at.saturating_add_signed(by).min(last),
            None if by < 0 => last,
            None => 0,
        };
        self.chosen = jobs.get(to).map(|job| job.job);
    }
}

const NONE_CHOSEN: &str = "choose a job first: up, down";

fn edit(text: &mut String, press: Press) {
    match press {
        Press::Char(character) if text.chars().count() < TYPED_MAX => text.push(character),
        Press::Backspace => drop(text.pop()),
        _ => {}
    }
}

/// These jobs in words.
fn named(of: &[JobId], jobs: &[&JobReport]) -> String {
    let [job] = of else { return counted(of.len() as u64, "job") };
    match jobs.iter().find(|other| other.job == *job) {
        Some(found) => format!("job {job} ({}) of {}", plain(&found.name), found.user),
        None => format!("job {job}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::job;
    use super::*;

    fn numbers(jobs: &[&JobReport]) -> Vec<u64> {
        jobs.iter().map(|job| job.job.0).collect()
    }

    #[test]
    fn jobs_are_chosen_marked_and_ordered_about_once_that_is_confirmed() {
        let all: Vec<JobReport> = (1..=3).map(|number| job(number, 1, 1, &["n1:0"])).collect();
        let (mut desk, rates) = (Desk::default(), BTreeMap::new());
        let jobs = desk.arrange(all.iter(), &rates);
        assert_eq!(desk.press(Press::Char('c'), &jobs, None), Step::None);
        assert_eq!(desk.bar(&jobs, false), NONE_CHOSEN);
        desk.press(Press::Down, &jobs, None);
        desk.press(Press::Char(' '), &jobs, None);
        desk.press(Press::Char(' '), &jobs, None);
        assert_eq!((desk.chosen(), desk.is_marked(JobId(2))), (Some(JobId(3)), true));
        desk.press(Press::Char('c'), &jobs, None);
        assert!(desk.bar(&jobs, false).starts_with("cancel 2 jobs?"));
        assert_eq!(desk.press(Press::Char('n'), &jobs, None), Step::None);
        desk.press(Press::Char('c'), &jobs, None);
        let done = Step::Do(Deed::Cancel, vec![JobId(1), JobId(2)]);
        assert_eq!(desk.press(Press::Char('y'), &jobs, None), done);
        // Marks are gone, and a page is about its own job.
        desk.press(Press::Char('l'), &jobs, Some(JobId(1)));
        "fast".chars().for_each(|c| drop(desk.press(Press::Char(c), &jobs, Some(JobId(1)))));
        desk.press(Press::Enter, &jobs, Some(JobId(1)));
        assert!(desk.bar(&jobs, true).starts_with("give job 1 (name1) of ada class fast?"));
        let done = Step::Do(Deed::Class(ClassName::new("fast")), vec![JobId(1)]);
        assert_eq!(desk.press(Press::Char('y'), &jobs, Some(JobId(1))), done);
        assert_eq!(desk.press(Press::Enter, &jobs, None), Step::Open(JobId(3)));
        // A job that is gone is not chosen any more.
        let jobs = desk.arrange(all[..2].iter(), &rates);
        assert_eq!(desk.chosen(), None);
        assert_eq!(desk.press(Press::Char('q'), &jobs, None), Step::End);
    }

    #[test]
    fn jobs_are_filtered_and_sorted() {
        let mut all: Vec<JobReport> = (1..=12).map(|number| job(number, 1, 1, &["n1:0"])).collect();
        (all[4].user, all[6].state) = ("Eve".into(), "queued".into());
        let (mut desk, mut rates) = (Desk::default(), BTreeMap::new());
        rates.insert(JobId(3), 150);
        let type_in = |desk: &mut Desk, text: &str| {
            desk.press(Press::Char('/'), &[], None);
            text.chars().for_each(|c| drop(desk.press(Press::Char(c), &[], None)));
        };
        type_in(&mut desk, "evx");
        desk.press(Press::Backspace, &[], None);
        desk.press(Press::Enter, &[], None);
        assert_eq!(numbers(&desk.arrange(all.iter(), &rates)), [5]);
        desk.press(Press::Escape, &[], None);
        type_in(&mut desk, "queue");
        assert_eq!(numbers(&desk.arrange(all.iter(), &rates)), [7]);
        desk.press(Press::Escape, &[], None);
        desk.press(Press::Char('o'), &[], None);
        assert_eq!(numbers(&desk.arrange(all.iter(), &rates))[..2], [3, 1]);
        (0..3).for_each(|_| drop(desk.press(Press::Char('o'), &[], None)));
        assert_eq!(numbers(&desk.arrange(all.iter(), &rates))[0], 7);
        desk.press(Press::Char('O'), &[], None);
        assert_eq!(numbers(&desk.arrange(all.iter(), &rates))[0], 12);
        assert!(desk.bar(&[], false).starts_with("by state, reversed"));
    }
}
