//! What a job of the Slurm face has in its environment before it is submitted, and where the face's
//! names lie.
//!
//! The names of Slurm's commands are links to the one executable, in a directory of their own. They
//! are first in the `PATH` only of jobs that were submitted by one of them, or with `--slurm`:
//! elsewhere `mpirun` would take itself to be under Slurm.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tutti_types::StepId;

/// The names of Slurm's commands that the executable answers to.
pub const NAMES: [&str; 11] = [
    "sbatch", "srun", "salloc", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr",
    "sshare", "sstat",
];

/// The names of MPI's starters, which are links too, in a directory beside these: inside a job they
/// must not come before those of MPI libraries.
pub const MPI_NAMES: [&str; 2] = ["mpiexec", "mpirun"];

/// The cluster's name in Slurm's words, where it has no other.
pub const CLUSTER: &str = "tutti";

/// The one account that jobs have, and the one QOS.
pub const ACCOUNT: &str = "tutti";
/// See [`ACCOUNT`].
pub const QOS: &str = "normal";

/// Where a package lays the names.
const OF_PACKAGE: &str = "/usr/lib/tutti/slurm";

/// Whether this process runs in a job that has Slurm's variables.
pub fn is_inside() -> bool {
    std::env::var_os("TUTTI_SLURM").is_some()
}

/// The number that a step of this job has in Slurm, where no batch script counts. A process of a
/// script has no `SLURM_STEP_ID`.
pub(super) fn number_of_step(step: StepId) -> u32 {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let not_counted = match (number("TUTTI_STEP"), number("SLURM_STEP_ID")) {
        (Some(own), Some(shown)) => own.saturating_sub(shown),
        (Some(_), None) => 1,
        (None, _) => 0,
    };
    step.0.saturating_sub(not_counted)
}

/// The directory of the face's names: that of the name by which this process was started, or the
/// package's, or the user's own. It may not exist. `None` if the user has no home.
pub fn directory() -> Option<PathBuf> {
    let started_by = std::env::args_os().next().and_then(|name| directory_of(&name));
    let of_package = Path::new(OF_PACKAGE);
    started_by
        .or_else(|| of_package.join("sbatch").exists().then(|| of_package.to_owned()))
        .or_else(own_directory)
}

/// The user's own directory of the names.
pub fn own_directory() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| value.as_bytes().starts_with(b"/"));
    let data = set("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/share")))?;
    Some(data.join("tutti/slurm"))
}

/// Where one of the names lies by which a process was started.
fn directory_of(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    let is_name = path.file_name().is_some_and(|file| NAMES.iter().any(|name| file == *name));
    if !is_name {
        return None;
    }
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(path.parent()?).ok();
    }
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).find(|place| place.is_absolute() && place.join(name).exists())
}

/// The name of the cluster, in Slurm's words.
pub fn cluster_name() -> String {
    let set = std::env::var("TUTTI_CLUSTER").ok().filter(|name| !name.is_empty());
    set.unwrap_or_else(|| CLUSTER.to_owned())
}

/// This environment, as a job gets it that finds Slurm's variables (`slurm`) or not. `inner`: it
/// runs inside another job, whose number it keeps.
pub(super) fn environment(slurm: bool, inner: bool) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let keeps_outer = slurm && inner && is_inside();
    if (is_inside() || slurm) && !keeps_outer {
        all.retain(|(name, _)| !is_of_a_job(name));
    }
    if slurm && !keeps_outer {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_default();
        all.push(("SLURM_SUBMIT_DIR".into(), here.into_os_string()));
        all.push(("SLURM_SUBMIT_HOST".into(), host));
        all.push(("SLURM_CLUSTER_NAME".into(), cluster_name().into()));
        all.push(("SLURM_JOB_ACCOUNT".into(), ACCOUNT.into()));
        all.push(("SLURM_JOB_QOS".into(), QOS.into()));
        all.push(("SLURM_JOB_GID".into(), nix::unistd::getegid().to_string().into()));
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        all.extend(user.map(|user| ("SLURM_JOB_USER".into(), user.name.into())));
        if let Some(directory) = directory() {
            put_first_in_path(&mut all, &directory);
        }
    }
    all
}

/// Whether a variable says something of one job of Slurm's: one job's must not be another's.
fn is_of_a_job(name: &OsStr) -> bool {
    const OTHERS: [&[u8]; 3] = [b"SLURM_CONF", b"SLURM_TIME_FORMAT", b"SLURM_CLUSTERS"];
    let name = name.as_bytes();
    (name.starts_with(b"SLURM_") || name.starts_with(b"SLURMD_")) && !OTHERS.contains(&name)
}

fn put_first_in_path(all: &mut Vec<(OsString, OsString)>, directory: &Path) {
    let old = all.iter().position(|(name, _)| name == "PATH").map(|at| all.remove(at).1);
    let old = old.unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&old).collect();
    places.retain(|place| place != directory);
    places.insert(0, directory.to_owned());
    // A directory with a colon in it can't stand in a PATH.
    all.push(("PATH".into(), std::env::join_paths(places).unwrap_or(old)));
}

/// `NAME=value` of a variable.
pub(super) fn pair((name, value): (OsString, OsString)) -> Vec<u8> {
    let mut pair = name.into_vec();
    pair.push(b'=');
    pair.extend_from_slice(value.as_bytes());
    pair
}

#[cfg(test)]
mod tests {
    use super::{directory_of, is_of_a_job, put_first_in_path};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn the_directory_of_a_name_is_found_and_of_nothing_else() {
        assert_eq!(directory_of(OsStr::new("/opt/s/sbatch")).unwrap(), Path::new("/opt/s"));
        assert_eq!(directory_of(OsStr::new("/opt/s/tutti")), None);
    }

    #[test]
    fn variables_of_another_job_go_and_settings_stay() {
        for name in ["SLURM_JOB_ID", "SLURM_NTASKS", "SLURMD_NODENAME"] {
            assert!(is_of_a_job(OsStr::new(name)), "{name}");
        }
        for name in ["SLURM_CONF", "SLURM_TIME_FORMAT", "SBATCH_ACCOUNT", "PATH"] {
            assert!(!is_of_a_job(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_face_is_first_in_the_path_and_stands_there_once() {
        let mut all = vec![("PATH".into(), "/bin:/face:/usr/bin".into())];
        put_first_in_path(&mut all, Path::new("/face"));
        assert_eq!(all, [("PATH".into(), "/face:/bin:/usr/bin".into())]);
    }
}
