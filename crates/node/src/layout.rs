//! How the groups of an instance lie within each other, by their names.
//!
//! ```text
//! job-7           suspended and resumed as one; has the job's processors
//!   step-0        tasks that were launched together
//!     rank-3      a task; has its limits, and its own processors
//! pmix-7-1-0      the PMIx server of launch 1 of job 7, step 0; is never suspended
//! notify-41-0     the first way in which the notification of event 41 is delivered
//! server-7-1-3    step 3 of launch 1 of job 7, which serves its other tasks; likewise
//! ```
//!
//! What is to run on while a job is suspended lies beside the job's group, not in it. Earlier
//! releases had tasks directly in the group of their job: of jobs that they began, that is how it
//! stays.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use tutti_types::{JobId, LaunchId};

/// How the names of jobs' groups begin.
const JOB: &str = "job-";
/// How those of tasks' groups do.
const TASK: &str = "rank-";

/// How those of PMIx servers do.
const PMIX: &str = "pmix-";

/// How those of notifications do.
const NOTIFY: &str = "notify-";

/// How those of steps do that serve the other tasks of their job.
const SERVER: &str = "server-";

/// The group of the tasks that a job begins with.
pub const FIRST_STEP: &str = "step-0";

/// Where processes of jobs register for notice before their slots end, in the directory of the
/// instance.
pub fn vacate_socket(directory: &Path) -> PathBuf {
    directory.join("vacate.sock")
}

/// The name of the group of a further step, in that of its job.
pub fn group_of_step(step: impl Display) -> String {
    format!("step-{step}")
}

/// The name of a job's group.
pub fn group_of_job(job: impl Display) -> String {
    format!("{JOB}{job}")
}

/// Whether a job's group has this name.
pub fn is_of_a_job(name: &str) -> bool {
    name.starts_with(JOB)
}

/// The name of the group of a PMIx server.
pub fn group_of_pmix(launch: LaunchId) -> String {
    format!("{PMIX}{}-{}-{}", launch.job, launch.number, launch.step)
}

/// The name of the group of a step that serves the other tasks of its job.
pub fn group_of_server(launch: LaunchId) -> String {
    format!("{SERVER}{}-{}-{}", launch.job, launch.number, launch.step)
}

/// Whether the group of a process that serves a job has this name.
pub fn is_of_a_helper(name: &str) -> bool {
    name.starts_with(PMIX) || name.starts_with(SERVER)
}

/// The job that a group belongs to, by its name: that of the job, or of what serves it.
pub fn job_of(name: &str) -> Option<JobId> {
    let rest = [JOB, PMIX, SERVER].into_iter().find_map(|kind| name.strip_prefix(kind))?;
    rest.split('-').next()?.parse().ok().map(JobId)
}

/// Whether the group is that of a released job, or of what serves one: the instance has released
/// its jobs up to this number.
pub fn is_released(name: &str, until: JobId) -> bool {
    job_of(name).is_some_and(|job| job <= until)
}

/// The name of the group of a notification's delivery: the number of its event, and which of the
/// event's ways it is.
pub fn group_of_notification(event: u64, way: u8) -> String {
    format!("{NOTIFY}{event}-{way}")
}

/// Whether the group of a notification's delivery has this name.
pub fn is_of_a_notification(name: &str) -> bool {
    name.starts_with(NOTIFY)
}

/// The name of a task's group.
pub fn group_of_task(rank: impl Display) -> String {
    format!("{TASK}{rank}")
}

/// Where the groups of tasks are that run already, given that of their job.
pub fn step_of(job: &Path) -> PathBuf {
    let step = job.join(FIRST_STEP);
    let is_task = |entry: &std::fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(TASK.as_bytes())
    };
    let has_tasks =
        || job.read_dir().is_ok_and(|mut all| all.any(|it| it.is_ok_and(|it| is_task(&it))));
    if !step.is_dir() && has_tasks() { job.to_owned() } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::StepId;

    #[test]
    fn a_group_of_a_helper_is_none_of_a_job() {
        let launch = LaunchId { job: JobId(7), number: 1, step: StepId(2) };
        let name = group_of_pmix(launch);
        assert_eq!(name, "pmix-7-1-2");
        assert!(is_of_a_helper(&name) && !is_of_a_job(&name));
        let name = group_of_server(launch);
        assert_eq!(name, "server-7-1-2");
        assert!(is_of_a_helper(&name) && !is_of_a_job(&name));
        assert!(!is_of_a_helper(&group_of_job(7)));
        let name = group_of_notification(41, 0);
        assert!(is_of_a_notification(&name) && !is_of_a_helper(&name) && !is_of_a_job(&name));
    }

    #[test]
    fn groups_of_jobs_up_to_a_number_are_released() {
        let of =
            ["job-7", "pmix-7-1-0", "server-7-1-3", "notify-7-0", "job-", "rank-7"].map(job_of);
        let job = Some(JobId(7));
        assert_eq!(of, [job, job, job, None, None, None]);
        assert!(is_released("job-7", JobId(7)) && !is_released("job-8", JobId(7)));
        assert!(!is_released("job-1", JobId(0)) && !is_released("notify-1-0", JobId(7)));
    }

    #[test]
    fn tasks_are_found_in_their_step_or_where_an_earlier_release_had_them() {
        let job = std::env::temp_dir().join(format!("tutti-layout-{}", std::process::id()));
        std::fs::create_dir_all(&job).unwrap();
        assert_eq!(step_of(&job), job.join("step-0"), "none has begun");
        std::fs::create_dir(job.join("rank-0")).unwrap();
        assert_eq!(step_of(&job), job);
        std::fs::create_dir(job.join("step-0")).unwrap();
        assert_eq!(step_of(&job), job.join("step-0"));
        std::fs::remove_dir_all(&job).unwrap();
    }
}
