//! `--after`: the jobs that a job starts after.

use super::job_range::{
    Several, by_number, element_word, find_elements, parted, targets_of, whole_jobs,
};
use clap::{Args, ValueEnum};
use std::str::FromStr;
use tutti_client::SCHEDULING;
use tutti_node::codes::coded;
use tutti_types::limits::AFTER_MAX;
use tutti_types::{After, AfterJobs, AfterWhat, Nanos};
use tutti_wire::code::Code;
use tutti_wire::local::JobRequest;
use tutti_wire::units::parse_duration;

// No doc comment: clap would show it as the verb's own text.
#[derive(Args, Clone, Debug)]
pub(crate) struct AfterOptions {
    /// Start after jobs, by number or name: each has ended well (ok), failed (notok), ended (any)
    /// or started (start, start+5m: so long ago) [default: ok]. `3,4:any` needs both, `'3|4'` one
    /// of them. Of arrays, `7:each` is for each element: the one of the same index has ended well
    #[arg(long, alias = "dependency", value_name = "JOB[:WHAT]", conflicts_with = "deadline", help_heading = SCHEDULING)]
    after: Vec<AfterWord>,

    /// Start after all jobs of yours with the same name that were submitted before
    #[arg(long, conflicts_with = "deadline", help_heading = SCHEDULING)]
    singleton: bool,

    /// A job that can never start, by what --after asks: end it, or keep it in line
    #[arg(long, value_name = "WHAT", default_value = "end", help_heading = SCHEDULING)]
    if_never: IfNever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IfNever {
    End,
    Keep,
}

/// One `--after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AfterWord {
    jobs: Vec<(Several, AfterWhat)>,
    one: bool,
}

impl FromStr for AfterWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = text.contains('|');
        if one && parted(text, &[',']).count() > 1 {
            return Err("`,` needs all jobs and `|` one of them; use either".into());
        }
        let words = parted(text, if one { &['|'] } else { &[','] });
        let each = words.map(|word| of_sbatch(word).unwrap_or_else(|| Ok(vec![after_of(word)?])));
        let jobs = each.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(Self { jobs, one })
    }
}

/// Several jobs as `sbatch` has them, such as `afterok:3:4`.
fn of_sbatch(word: &str) -> Option<Result<Vec<(Several, AfterWhat)>, String>> {
    let (name, jobs) = word.split_once(':')?;
    let what = match name {
        "afterok" => AfterWhat::Ok,
        "afternotok" => AfterWhat::NotOk,
        "afterany" => AfterWhat::Any,
        "after" => AfterWhat::Start,
        "aftercorr" => AfterWhat::Each,
        _ => return None,
    };
    Some(jobs.split(':').map(|job| with_minutes(job, what)).collect())
}

fn after_of(word: &str) -> Result<(Several, AfterWhat), String> {
    let (job, what) = match word.rsplit_once(':') {
        Some((job, what)) => match start_plus(what).unwrap_or_else(|| what.parse()) {
            Ok(what) => (job, what),
            Err(()) => {
                let known: Vec<&str> = AfterWhat::WORDS.iter().map(|(word, _)| *word).collect();
                return Err(format!("{what:?} is none of: {}, start+5m", known.join(", ")));
            }
        },
        None => (word, AfterWhat::Ok),
    };
    if job.is_empty() {
        return Err("a job is missing; write its number or name, such as 7:any".into());
    }
    Ok((single(job)?, what))
}

/// `start+5m`: so long after it has started.
fn start_plus(what: &str) -> Option<Result<AfterWhat, ()>> {
    let delay = what.strip_prefix("start+")?;
    Some(parse_duration(delay).map(AfterWhat::StartPlus).map_err(|_| ()))
}

/// A job as `sbatch` has it, such as `3+5`: five minutes after its start.
fn with_minutes(job: &str, what: AfterWhat) -> Result<(Several, AfterWhat), String> {
    let Some((job, minutes)) = job.split_once('+').filter(|_| what == AfterWhat::Start) else {
        return Ok((single(job)?, what));
    };
    let count: u32 = minutes
        .parse()
        .map_err(|_| format!("{minutes:?} is no number of minutes, as in after:{job}+5"))?;
    Ok((single(job)?, AfterWhat::StartPlus(Nanos::from_secs(u64::from(count) * 60))))
}

fn single(job: &str) -> Result<Several, String> {
    match whole_jobs(job)? {
        Several::Range(_) => Err(format!("{job} is a range; write each job, such as 7,8,9")),
        job => Ok(job),
    }
}

impl AfterOptions {
    /// Fills in what the options ask.
    ///
    /// # Errors
    /// If a name is no job's, or the options contradict each other.
    pub(super) fn fill(&self, request: &mut JobRequest) -> anyhow::Result<()> {
        request.singleton = self.singleton;
        let words: Vec<&(Several, AfterWhat)> = self.after.iter().flat_map(|it| &it.jobs).collect();
        if words.is_empty() {
            return Ok(());
        }
        let one = self.after.iter().any(|it| it.one);
        if one && self.after.len() > 1 {
            let reason = "`|` in --after stands for all jobs; write one --after with all of them";
            return Err(coded(Code::BadValue, reason));
        }
        if words.len() > AFTER_MAX {
            let reason = format!("a job can start after at most {AFTER_MAX} others (--after)");
            return Err(coded(Code::BadValue, reason));
        }
        let named: Vec<Several> = words.iter().map(|(job, _)| job.clone()).collect();
        let mut jobs = Vec::new();
        for (job, (_, what)) in by_number(&named, true)?.into_iter().zip(words) {
            check_elements(&job)?;
            for target in targets_of(&[job], true)? {
                jobs.push(After { job: target.job, what: *what });
            }
        }
        request.after = Some(AfterJobs { jobs, one, stays: self.if_never == IfNever::Keep });
        Ok(())
    }
}

/// Elements that a job starts after must be jobs: only jobs have an outcome to start after.
fn check_elements(job: &Several) -> anyhow::Result<()> {
    let Several::Elements { array, indices } = job else { return Ok(()) };
    let found = find_elements(*array, Some(indices.clone()))?;
    if found.jobs.len() == indices.count() as usize {
        return Ok(());
    }
    let reason = format!(
        "{} of the elements in {} are jobs, and only those can be started after; write --after \
         {array} for all elements of the array",
        match found.jobs.len() {
            0 => "none".into(),
            some => format!("only {some}"),
        },
        element_word(*array, indices)
    );
    Err(coded(Code::Improper, reason))
}

#[cfg(test)]
mod tests {
    use super::{AfterWord, Several};
    use tutti_types::{AfterWhat, JobId};

    #[test]
    fn jobs_are_needed_together_or_one_of_them() {
        let word: AfterWord = "3,prep:any".parse().unwrap();
        assert!(!word.one);
        let named = Several::Named("prep".into());
        assert_eq!(word.jobs[0], (Several::One(JobId(3).into()), AfterWhat::Ok));
        assert_eq!(word.jobs[1], (named, AfterWhat::Any));
        assert!("3:start|4:notok".parse::<AfterWord>().unwrap().one);
        let word: AfterWord = "7_[1,3-5]:any,8".parse().unwrap();
        let indices = "1,3-5".parse().unwrap();
        let elements = Several::Elements { array: JobId(7), indices };
        assert_eq!(word.jobs[0], (elements, AfterWhat::Any), "commas in brackets part nothing");
        assert_eq!(word.jobs.len(), 2);
        assert_eq!("7:each".parse::<AfterWord>(), "aftercorr:7".parse());
        let word: AfterWord = "afterok:3:4".parse().unwrap();
        assert_eq!(word.jobs[1], (Several::One(JobId(4).into()), AfterWhat::Ok));
        for bad in
            ["afterok:", "afterok:3-5", "3,4|5", "3:soon", ":any", "", "3,", "3-9", "7.1", "3:"]
        {
            assert!(bad.parse::<AfterWord>().is_err(), "{bad}");
        }
    }
}
