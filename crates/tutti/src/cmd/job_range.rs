//! Jobs as arguments: by number, a range of numbers, a name, the latest, or all of a user.

use super::all_jobs;
use nix::unistd::{Pid, Uid, User, geteuid, getppid};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;
use tutti_client::output::counted;
use tutti_linux::clock::boottime_ns;
use tutti_linux::proc::ProcessStat;
use tutti_node::codes::coded;
use tutti_types::{Indices, JobId};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, Target};

/// A job or a part of one, or the jobs with these numbers, as far as they are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    One(Target),
    Range(RangeInclusive<u64>),
    /// Elements of an array: `7_3`, `7_[10-20]`.
    Elements {
        array: JobId,
        indices: Indices,
    },
    /// The caller's only job of this name.
    Named(String),
    /// The caller's latest job.
    Last,
}

/// What stands for the caller's latest job.
const LAST: &str = "last";

impl FromStr for Several {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            LAST => return Ok(Self::Last),
            // Numbers and ranges begin with a digit; what begins with a dash is a misspelt option.
            _ if text.starts_with(|c: char| !(c.is_ascii_digit() || c == '-')) => {
                return Ok(Self::Named(text.into()));
            }
            _ => {}
        }
        if let Some(elements) = elements_of(text) {
            return elements;
        }
        if text.contains([',', ' ']) {
            return Err(format!(
                "{text:?} is no job; write several as words of their own, such as 7 9, or as a range, such \
                 as 3-9"
            ));
        }
        let Some((first, last)) = text.split_once('-').filter(|(first, _)| !first.is_empty())
        else {
            return text.parse().map(Self::One).map_err(|error| format!("{error}"));
        };
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self::Range(first..=last)),
            _ => Err(format!(
                "{text:?} is no range of jobs; write the lowest and the highest, as in 3-9"
            )),
        }
    }
}

/// Elements of an array, such as `7_3` or `7_[10-20,30]`; `None`: the text has another form.
fn elements_of(text: &str) -> Option<Result<Several, String>> {
    let (array, indices) = text.split_once('_')?;
    let array = array.parse().ok().map(JobId)?;
    let list = indices.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    let is_plain = list.is_some() || indices.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain {
        return Some(Err(format!(
            "{text:?} is no element of an array; write an index or indices in brackets, such as \
             7_3 or 7_[10-20]"
        )));
    }
    let indices = list.unwrap_or(indices).parse().map_err(|error| format!("{text:?}: {error}"));
    Some(indices.map(|indices| Several::Elements { array, indices }))
}

/// The parts of a list that these characters part; in brackets they part nothing.
pub(crate) fn parted<'a>(list: &'a str, at: &'a [char]) -> impl Iterator<Item = &'a str> {
    let mut is_inside = false;
    list.split(move |c| {
        is_inside = c == '[' || (is_inside && c != ']');
        !is_inside && at.contains(&c)
    })
}

/// What is known of elements of an array.
#[derive(Debug)]
pub(crate) struct Found {
    /// The index of each that is or was a job, and the number of that.
    pub(crate) jobs: Vec<(u32, JobId)>,
    /// How many others are no jobs yet.
    pub(crate) waiting: u32,
    /// The exit code of those that ended before they were jobs.
    pub(crate) never: Option<u8>,
}

/// The jobs that elements of an array are or were, and how many others are no jobs yet.
///
/// # Errors
/// If there is no such array, or no instance that knows.
pub(crate) fn find_elements(array: JobId, indices: Option<Indices>) -> anyhow::Result<Found> {
    match super::ask_of_the_past(&Request::FindElements { array, indices })? {
        Reply::Elements { jobs, waiting, never } => Ok(Found { jobs, waiting, never }),
        _ => tutti_client::ask::unexpected(),
    }
}

/// Says that elements of an array get nothing of an order, as they are no jobs yet.
pub(crate) fn say_left_out(array: JobId, waiting: u32) {
    if waiting > 0 {
        let elements = counted(u64::from(waiting), "element");
        say!("tutti: {elements} of array {array} left out: not in line yet");
    }
}

/// Elements as users name them: `7_3`, `7_[10-20]`.
pub(crate) fn element_word(array: JobId, indices: &Indices) -> String {
    match indices.count() {
        1 => format!("{array}_{indices}"),
        _ => format!("{array}_[{indices}]"),
    }
}

/// An error if a job is an array, of a verb that is about one job.
///
/// # Errors
/// If it is one.
pub(super) fn check_no_array(job: &JobReport) -> anyhow::Result<()> {
    if !job.is_whole_array() {
        return Ok(());
    }
    let reason = format!("job {} is an array; name an element, such as {0}_3", job.job);
    Err(coded(Code::Improper, reason))
}

impl Several {
    /// Whether a job in a list is meant, or is of what is meant.
    pub(super) fn has_report(&self, job: &JobReport) -> bool {
        match self {
            Self::One(target) => job.is_or_is_of(target.job),
            Self::Elements { array, indices } => job.array.as_ref().is_some_and(|it| {
                let index = it.index.and_then(|index| indices.position(index));
                it.job == *array && index.is_some()
            }),
            Self::Range(range) => {
                let array = job.array.as_ref().map(|array| array.job);
                array.into_iter().chain([job.job]).any(|job| range.contains(&job.0))
            }
            Self::Named(_) | Self::Last => false,
        }
    }

    /// Whether a job is meant, or one that it is a part of.
    pub(super) fn has(&self, job: JobId) -> bool {
        match self {
            Self::One(target) => target.job == job,
            Self::Range(range) => range.contains(&job.0),
            // See `by_number`.
            Self::Elements { .. } | Self::Named(_) | Self::Last => false,
        }
    }
}

/// The same jobs, those that are named and the latest by their numbers. With `ended`, a name may
/// also be that of a job that has ended, unless one that lives has it.
///
/// # Errors
/// If the caller has no such job, or several of one name.
pub(super) fn by_number(several: &[Several], ended: bool) -> anyhow::Result<Vec<Several>> {
    if !several.iter().any(|it| matches!(it, Several::Named(_) | Several::Last)) {
        return Ok(several.to_vec());
    }
    let owner = user_name(geteuid());
    let mut own = jobs(true)?;
    own.retain(|job| job.user == owner);
    // Of an array, not its elements are meant.
    own.retain(|job| job.array.is_none() || job.is_whole_array());
    let number = |it: &Several| match it {
        Several::One(_) | Several::Range(_) | Several::Elements { .. } => Ok(it.clone()),
        Several::Named(name) => named(&own, name, ended),
        Several::Last => {
            let latest = own.iter().map(|job| job.job).max();
            let reason = "you have no job; `tutti ps --all` shows those of all users";
            let latest = latest.ok_or_else(|| coded(Code::NoJob, reason))?;
            Ok(Several::One(latest.into()))
        }
    };
    several.iter().map(number).collect()
}

/// The same with all of the caller's live jobs of each name, in place of the name.
///
/// # Errors
/// If there is none of a name, or no instance answers.
pub(super) fn all_of_names(several: &[Several]) -> anyhow::Result<Vec<Several>> {
    if !several.iter().any(|it| matches!(it, Several::Named(_))) {
        return Ok(several.to_vec());
    }
    let owner = user_name(geteuid());
    let mut own = jobs(false)?;
    own.retain(|job| job.user == owner && (job.array.is_none() || job.is_whole_array()));
    let mut all = Vec::new();
    for it in several {
        let Several::Named(name) = it else {
            all.push(it.clone());
            continue;
        };
        let of_name = own.iter().filter(|job| job.name == *name && job.exit_code.is_none());
        let before = all.len();
        all.extend(of_name.map(|job| Several::One(job.job.into())));
        if all.len() == before {
            return Err(none_named(name, false));
        }
    }
    Ok(all)
}

fn none_named(name: &str, ended: bool) -> anyhow::Error {
    let lives = if ended { "" } else { " that has not ended" };
    let reason = format!(
        "you have no job named {name:?}{lives}; `tutti ps` lists jobs; write a number, a range such as 3-9, a \
         name, or `last`"
    );
    coded(Code::NoJob, reason)
}

/// How many jobs of one name an error lists.
const LISTED_MAX: usize = 5;

fn named(own: &[JobReport], name: &str, ended: bool) -> anyhow::Result<Several> {
    let of_name = |lives: bool| -> Vec<JobId> {
        let is_meant = |job: &&JobReport| job.name == name && job.exit_code.is_none() == lives;
        own.iter().filter(is_meant).map(|job| job.job).collect()
    };
    let mut found = of_name(true);
    if found.is_empty() && ended {
        found = of_name(false);
    }
    match found[..] {
        [job] => Ok(Several::One(job.into())),
        [] => Err(none_named(name, ended)),
        [.., latest] => {
            let shown = &found[found.len().saturating_sub(LISTED_MAX)..];
            let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{} jobs of yours are named {name:?}: {}{}; write the number of the one that is meant, such as {latest}",
                found.len(),
                if found.len() > LISTED_MAX { "the latest are " } else { "" },
                shown.join(", ")
            );
            Err(coded(Code::BadValue, reason))
        }
    }
}

/// Checks that each of these names some of the jobs that are there.
///
/// # Errors
/// If one does not; `which` says what these jobs have in common.
pub(super) fn check_found(
    wanted: &[Several],
    there: impl Iterator<Item = JobId> + Clone,
    which: &str,
) -> anyhow::Result<()> {
    let missing = wanted.iter().find(|it| !there.clone().any(|job| it.has(job)));
    let Some(missing) = missing else { return Ok(()) };
    let what = match missing {
        Several::One(target) => format!("job {}", target.job),
        Several::Elements { array, indices } => format!("job {}", element_word(*array, indices)),
        Several::Range(range) => format!("job from {} to {}", range.start(), range.end()),
        Several::Named(name) => format!("job named {name:?}"),
        Several::Last => "job of yours".into(),
    };
    let reason = format!("there is no {what}{which}; `tutti ps --all` shows those that are known");
    Err(coded(Code::NoJob, reason))
}

/// Jobs as a whole, as an argument.
///
/// # Errors
/// If it is none, or a part of one.
pub(crate) fn whole_jobs(text: &str) -> Result<Several, String> {
    match text.parse()? {
        Several::One(target) if target != Target::from(target.job) => {
            Err(format!("{text} is a part of a job; name the whole, such as 7"))
        }
        several => Ok(several),
    }
}

/// What is meant, in the order in which it was typed. Of ranges, those that are there, and unless
/// `ended` have not ended.
///
/// # Errors
/// If there is no job in a range, or no instance that knows.
pub(super) fn targets_of(several: &[Several], ended: bool) -> anyhow::Result<Vec<Target>> {
    let several = by_number(several, ended)?;
    let has_range = several.iter().any(|it| matches!(it, Several::Range(_)));
    let jobs = if has_range { jobs(ended)? } else { Vec::new() };
    let mut targets = Vec::new();
    for it in &several {
        match it {
            Several::One(target) => targets.push(*target),
            // They have their numbers by now.
            Several::Named(_) | Several::Last => {}
            Several::Elements { array, indices } => {
                let Found { jobs, waiting, .. } = find_elements(*array, Some(indices.clone()))?;
                if jobs.is_empty() {
                    let reason = format!(
                        "element {} is not in line yet, or it was cancelled before; \
                         `tutti ps {array}` shows the array",
                        element_word(*array, indices)
                    );
                    return Err(coded(Code::NoJob, reason));
                }
                say_left_out(*array, waiting);
                targets.extend(jobs.into_iter().map(|(_, job)| Target::from(job)));
            }
            Several::Range(range) => {
                // What is done with an array is done with its elements: not twice.
                let is_of = |it: &JobReport| {
                    let array = it.array.as_ref().filter(|_| !ended && !it.is_whole_array());
                    array.is_some_and(|array| range.contains(&array.job.0))
                };
                let among = jobs.iter().filter(|job| range.contains(&job.job.0) && !is_of(job));
                let before = targets.len();
                targets.extend(among.map(|job| Target::from(job.job)));
                if targets.len() == before {
                    let (first, last) = range.clone().into_inner();
                    let what = if ended { "no job" } else { "no job that has not ended" };
                    let reason = format!("there is {what} from {first} to {last}; see `tutti ps`");
                    return Err(coded(Code::NoJob, reason));
                }
            }
        }
    }
    Ok(targets)
}

/// All jobs of a user that have not ended; without one all of this user, or of all users for root.
///
/// # Errors
/// If no instance answers.
pub(super) fn live_jobs(user: Option<&str>) -> anyhow::Result<Vec<Target>> {
    let mut theirs = live_reports(user)?;
    // What is done with an array is done with its elements.
    let arrays: BTreeSet<JobId> =
        theirs.iter().filter(|it| it.is_whole_array()).map(|it| it.job).collect();
    let is_of = |it: &JobReport| it.array.as_ref().is_some_and(|it| arrays.contains(&it.job));
    theirs.retain(|it| it.is_whole_array() || !is_of(it));
    Ok(theirs.iter().map(|job| Target::from(job.job)).collect())
}

/// As [`live_jobs`], with what tables show, arrays and their elements.
///
/// # Errors
/// If no instance answers.
pub(super) fn live_reports(user: Option<&str>) -> anyhow::Result<Vec<JobReport>> {
    of_user(jobs(false)?, user)
}

/// As [`live_jobs`], and those that were submitted in this session and have ended: how they ended
/// counts, too. For the jobs of all users, those of root alone.
///
/// # Errors
/// If no instance answers.
pub(super) fn jobs_to_wait_for(user: Option<&str>) -> anyhow::Result<Vec<Target>> {
    let owner = user_name(geteuid());
    let session_s = session_age_s();
    let counts = |job: &JobReport| {
        let is_asked_for = job.submitted && (user.is_some() || job.user == owner);
        job.exit_code.is_none() || (is_asked_for && is_of_session(job.age_s, session_s))
    };
    let theirs = of_user(jobs(true)?, user)?;
    Ok(theirs.iter().filter(|job| counts(job)).map(|job| Target::from(job.job)).collect())
}

/// Whether a job was submitted since the session began. Its age is in whole seconds: rather one too
/// many.
const fn is_of_session(age_s: u64, session_s: u64) -> bool {
    age_s <= session_s
}

/// How long ago this session began, in seconds, rounded up: the caller's shell, mostly.
fn session_age_s() -> u64 {
    let session = nix::unistd::getsid(None).map_or(0, Pid::as_raw);
    let leader = ProcessStat::read(session).or_else(|_| ProcessStat::read(getppid().as_raw()));
    leader
        .map_or(0, |leader| boottime_ns().saturating_sub(leader.born_ns()).div_ceil(1_000_000_000))
}

/// Those of a user; without one all of this user, or of all users for root.
fn of_user(jobs: Vec<JobReport>, user: Option<&str>) -> anyhow::Result<Vec<JobReport>> {
    let us = geteuid();
    // Reports have names, and a number where there is no name.
    let wanted = match (user, user.and_then(|user| user.parse().ok())) {
        (_, Some(uid)) => Some(user_name(Uid::from_raw(uid))),
        (Some(name), None) => Some(name.into()),
        (None, None) => (!us.is_root()).then(|| user_name(us)),
    };
    let is_theirs = |job: &JobReport| wanted.as_ref().is_none_or(|user| *user == job.user);
    let theirs: Vec<JobReport> = jobs.into_iter().filter(is_theirs).collect();
    if let (Some(name), true) = (user, theirs.is_empty())
        && name.parse::<u32>().is_err()
        && !matches!(User::from_name(name), Ok(Some(_)))
    {
        let reason = format!("there is no user {name}, and no job of one; see `tutti ps`");
        return Err(coded(Code::BadValue, reason));
    }
    Ok(theirs)
}

pub(super) fn user_name(uid: Uid) -> String {
    let found = User::from_uid(uid).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

pub(super) fn jobs(ended: bool) -> anyhow::Result<Vec<JobReport>> {
    all_jobs(ended, |from| Request::Jobs { ended, from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_an_earlier_session_are_not_waited_for() {
        assert!(is_of_session(0, 0) && is_of_session(7, 7) && !is_of_session(8, 7));
        let machine_s = boottime_ns() / 1_000_000_000;
        assert!(session_age_s() <= machine_s + 1, "no session began before the machine");
    }

    #[test]
    fn jobs_are_named_one_by_one_or_as_a_range() {
        assert_eq!("3-9".parse(), Ok(Several::Range(3..=9)));
        assert_eq!("7-7".parse(), Ok(Several::Range(7..=7)));
        let part: Several = "7.0/1234".parse().unwrap();
        assert!(matches!(part, Several::One(target) if target.to_string() == "7.0/1234"));
        assert_eq!("last".parse(), Ok(Several::Last));
        assert_eq!("job.sh".parse(), Ok(Several::Named("job.sh".into())));
        for text in ["9-3", "3-", "3-x", "-3", "3.0-4.0", "", "7x"] {
            assert!(text.parse::<Several>().is_err(), "{text:?}");
        }
        for text in ["1,2", "1, 2", "1 2", "1-2,4"] {
            assert!(
                text.parse::<Several>().unwrap_err().contains("words of their own"),
                "{text:?}"
            );
        }
        assert!(whole_jobs("7").is_ok() && whole_jobs("3-9").is_ok());
        assert!(whole_jobs("7.0").is_err() && whole_jobs("x").is_ok());
    }
}
