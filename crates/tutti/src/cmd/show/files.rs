//! The files that a submitted job writes, by the patterns of their names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tutti_node::codes::coded;
use tutti_types::Rank;
use tutti_wire::code::Code;
use tutti_wire::launch::{NULL_DEVICE, Stdio};
use tutti_wire::pattern::{PatternError, PatternValues, expand, names_node, names_rank};
use tutti_wire::report::JobReport;
use tutti_wire::show::JobDetails;

/// Which output of a job is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// A file that a job writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFile {
    /// Its path from the root.
    pub(crate) path: PathBuf,
    /// The node on which it is written.
    pub(crate) node: String,
    /// The tasks that write to it: the lowest rank, and how many there are.
    pub(crate) writers: (u32, u32),
}

/// A file's name for people: filled in, unless each rank or node has its own.
pub(crate) fn file_name(pattern: &[u8], job: &JobReport, details: &JobDetails) -> String {
    if job.is_whole_array() {
        return directory(details).join(OsStr::from_bytes(pattern)).to_string_lossy().into_owned();
    }
    let is_one = job.tasks == 1 || !(names_rank(pattern) || names_node(pattern));
    let node = details.nodes.first().map(|share| share.node.as_str());
    let filled = match (is_one, node, names_node(pattern)) {
        (true, Some(node), _) => path_of(pattern, job, details, (0, node)).ok(),
        (true, None, false) => path_of(pattern, job, details, (0, "")).ok(),
        _ => None,
    };
    let path = filled.unwrap_or_else(|| directory(details).join(OsStr::from_bytes(pattern)));
    path.to_string_lossy().into_owned()
}

fn directory(details: &JobDetails) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&details.directory))
}

fn path_of(
    pattern: &[u8],
    job: &JobReport,
    details: &JobDetails,
    (rank, node): (u32, &str),
) -> Result<PathBuf, PatternError> {
    let values = PatternValues {
        job: job.job,
        rank: Rank(rank),
        name: &job.name,
        node,
        user: &details.user_in_names,
    };
    let name = expand(pattern, &values)?;
    Ok(directory(details).join(OsStr::from_bytes(&name)))
}

/// The files of one stream of a job: of one rank, or of all of them by rank.
///
/// # Errors
/// If the job writes no files, has no such rank, or its nodes are not known.
pub(crate) fn files_of(
    job: &JobReport,
    details: &JobDetails,
    stream: Stream,
    rank: Option<u32>,
) -> anyhow::Result<Vec<LogFile>> {
    let number = job.job;
    let none = |reason: String| Err(coded(Code::NoOutput, reason));
    let (output, error) = match &details.stdio {
        Stdio::Files { output, error, .. } => (output, error.as_ref().unwrap_or(output)),
        Stdio::FrontEnd { .. } => {
            return none(format!(
                "job {number} has no output file: a `tutti run` shows its output where it was started; `tutti \
                 submit` writes files"
            ));
        }
        Stdio::Kept => {
            return none(format!(
                "job {number} has no output file that Tutti knows: its processes were adopted, and write where they \
                 wrote before"
            ));
        }
    };
    let pattern = match stream {
        Stream::Output => output,
        Stream::Error => error,
    };
    if pattern.as_slice() == NULL_DEVICE {
        return none(format!("the output of job {number} goes to /dev/null, and is not kept"));
    }
    if let Some(rank) = rank.filter(|rank| *rank >= job.tasks) {
        let last = job.tasks.saturating_sub(1);
        let reason = format!("job {number} has no rank {rank}; its ranks are 0 to {last}");
        return Err(coded(Code::NoPart, reason));
    }
    let mut files: Vec<LogFile> = Vec::new();
    for (first, count, node) in groups(job, details, pattern) {
        let has_rank = |rank: u32| (first..first.saturating_add(count)).contains(&rank);
        if rank.is_none_or(has_rank) {
            let path = path_of(pattern, job, details, (first, node))
                .map_err(|error| coded(Code::BadFile, error.to_string()))?;
            files.push(LogFile { path, node: node.to_owned(), writers: (first, count) });
        }
    }
    if files.is_empty() {
        return none(format!(
            "the nodes of job {number} are not known, and so the names of its files; `tutti show {number}` has their \
             pattern"
        ));
    }
    Ok(files)
}

/// The tasks that share each file: the lowest rank, how many, and the node that writes it.
fn groups<'a>(
    job: &JobReport,
    details: &'a JobDetails,
    pattern: &[u8],
) -> Vec<(u32, u32, &'a str)> {
    let (by_rank, by_node) = (names_rank(pattern), names_node(pattern));
    let first_node = details.nodes.first().map_or("", |share| share.node.as_str());
    if !by_rank && !by_node {
        return vec![(0, job.tasks, first_node)];
    }
    let mut groups = Vec::new();
    let mut first = 0_u32;
    for share in &details.nodes {
        let node = share.node.as_str();
        match by_rank {
            true => groups.extend((first..first + share.tasks).map(|rank| (rank, 1, node))),
            false => groups.push((first, share.tasks, node)),
        }
        first = first.saturating_add(share.tasks);
    }
    // Behind the nodes that are listed, names with a node in them are not known.
    if !by_node {
        groups.extend((first..job.tasks).map(|rank| (rank, 1, "")));
    }
    groups
}
