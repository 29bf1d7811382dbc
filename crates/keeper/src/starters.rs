//! What `mpirun` needs to reach the other nodes of its job: a list of nodes, and a program that it
//! takes for `ssh`. That program starts a daemon of `mpirun` as a step of the job.
//!
//! Files are the keeper's own and lie in the spool, beside the job's script. A job on one node
//! needs none of this.

use super::script;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tracing::warn;
use tutti_types::StepId;
use tutti_wire::code::Code;
use tutti_wire::launch::{JobNode, Launch};

/// The program that stands for `ssh`.
const SHELL: &str = "mpi-shell";
/// The nodes of the job with their slots, for Open MPI and for MPICH.
const HOSTS_OF_OPEN_MPI: &str = "hosts.openmpi";
const HOSTS_OF_MPICH: &str = "hosts.mpich";

/// Whether `mpirun` in a task of this launch here is to reach other nodes. The first node alone has
/// the files.
pub(super) fn is_wanted(launch: &Launch) -> bool {
    launch.nodes.len() > 1
        && launch.share.node_rank == 0
        && launch.step == StepId::FIRST
        && !launch.share.tasks.is_empty()
        && launch.spec.adopt.is_empty()
}

/// Writes the files. Without, `mpirun` starts its processes on the first node.
pub(super) fn prepare(launch: &Launch, spool: &Path) {
    if !is_wanted(launch) {
        return;
    }
    if tutti_node::platform::processes::are_simulated() {
        // Its spool is in no file system.
        return;
    }
    if let Err(error) = write(launch, spool) {
        // The last of them tells that all are there.
        let _ = fs::remove_file(script::directory(spool, launch.job).join(SHELL));
        let job = launch.job;
        warn!(code = %Code::GoesWithout, "mpirun of job {job} reaches no other node: {error}");
    }
}

fn write(launch: &Launch, spool: &Path) -> io::Result<()> {
    let directory = script::directory(spool, launch.job);
    if directory.to_str().is_none_or(|path| path.contains(char::is_whitespace)) {
        // Spaces divide the variables in a list of them.
        let reason = format!("{} has a space, or is not UTF-8", directory.display());
        return Err(io::Error::other(reason));
    }
    if launch.spec.script.is_none() {
        // Left over from a keeper that was killed.
        script::remove(&directory);
        DirBuilder::new().recursive(true).mode(0o711).create(&directory)?;
        // The mode above is less the mask of our parent.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o711))?;
    }
    let hosts = |line: fn(&JobNode) -> String| launch.nodes.iter().map(line).collect::<String>();
    let open_mpi = hosts(|node| format!("{} slots={}\n", node.name, node.slots.max(1)));
    let mpich = hosts(|node| format!("{}:{}\n", node.name, node.slots.max(1)));
    let program = std::env::current_exe()?;
    let files = [
        (HOSTS_OF_OPEN_MPI, open_mpi, 0o444),
        (HOSTS_OF_MPICH, mpich, 0o444),
        (SHELL, shell(launch, &program), 0o555),
    ];
    for (name, text, mode) in files {
        let path = directory.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        file.write_all(text.as_bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A step has a task on each node, and only that on the wanted node goes on. It may run where the
/// job's other tasks do: `mpirun` binds what it starts.
fn shell(launch: &Launch, program: &Path) -> String {
    let nodes = launch.nodes.len();
    let slots = launch.nodes.iter().map(|node| node.slots.max(1)).min().unwrap_or(1);
    let processors = slots.saturating_mul(launch.processors_per_task.max(1));
    let address = launch.nodes.first().map_or("", |node| node.address.as_str());
    let program = program.to_string_lossy().replace('\'', "'\\''");
    let mut text = format!(
        "#!/bin/sh\n# Starts a daemon of mpirun as a step of job {}: {SHELL} [-x] NODE COMMAND...\n\
         [ \"$1\" = -x ] && shift\nnode=$1\nshift\nline=$*\n",
        launch.job
    );
    if !address.is_empty() {
        // MPICH's names this node by its host name, which others need not know.
        text.push_str(&format!(
            "line=$(printf '%s' \"$line\" | sed \"s/--control-port $(uname -n):/--control-port {address}:/\")\n"
        ));
    }
    text.push_str(&format!(
        "exec '{program}' run --overlap -N {nodes} -n {nodes} -c {processors} sh -c '\n\
         me=$(echo \"$TUTTI_NODELIST\" | cut -d, -f$((TUTTI_NODE_RANK + 1)))\n\
         [ \"$me\" = \"$0\" ] || exit 0\nexec sh -c \"$1\"' \"$node\" \"$line\" </dev/null\n"
    ));
    text
}

/// The variables that name the files, if these were written. No value has a space in it.
pub(super) fn variables(launch: &Launch, spool: Option<&Path>) -> Vec<(&'static str, String)> {
    let Some(spool) = spool.filter(|_| is_wanted(launch)) else { return Vec::new() };
    let directory = script::directory(spool, launch.job);
    if !directory.join(SHELL).is_file() {
        return Vec::new();
    }
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let text = str::to_owned;
    vec![
        ("OMPI_MCA_plm", text("^slurm")),
        ("OMPI_MCA_ras", text("^slurm")),
        ("OMPI_MCA_plm_rsh_agent", file(SHELL)),
        ("OMPI_MCA_plm_rsh_no_tree_spawn", text("1")),
        ("OMPI_MCA_orte_leave_session_attached", text("1")),
        ("OMPI_MCA_orte_default_hostfile", file(HOSTS_OF_OPEN_MPI)),
        // Those of Open MPI 5.
        ("PRTE_MCA_plm", text("ssh")),
        ("PRTE_MCA_ras", text("^slurm")),
        ("PRTE_MCA_prte_ssh_agent", file(SHELL)),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", text("1")),
        ("PRTE_MCA_prte_leave_session_attached", text("1")),
        ("PRTE_MCA_prte_default_hostfile", file(HOSTS_OF_OPEN_MPI)),
        ("HYDRA_LAUNCHER", text("ssh")),
        ("HYDRA_LAUNCHER_EXEC", file(SHELL)),
        ("HYDRA_HOST_FILE", file(HOSTS_OF_MPICH)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{launch, node};

    #[test]
    fn a_job_on_several_nodes_has_files_that_go_with_it() {
        let spool = std::env::temp_dir().join(format!("tutti-starters-{}", std::process::id()));
        let mut launch = launch(7, 3, &["true"]);
        prepare(&launch, &spool);
        assert!(!spool.exists() && variables(&launch, Some(&spool)).is_empty(), "one node");
        launch.nodes = vec![node("a", 2), node("b", 1)];
        assert!(variables(&launch, Some(&spool)).is_empty(), "nothing was written");
        let spaced = spool.with_extension("of a user");
        prepare(&launch, &spaced);
        assert!(variables(&launch, Some(&spaced)).is_empty(), "a space divides variables");
        prepare(&launch, &spool);
        let directory = script::directory(&spool, launch.job);
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(read(HOSTS_OF_OPEN_MPI), "a slots=2\nb slots=1\n");
        assert_eq!(read(HOSTS_OF_MPICH), "a:2\nb:1\n");
        assert!(read(SHELL).contains("run --overlap -N 2 -n 2 -c 1 sh"), "{}", read(SHELL));
        assert!(!variables(&launch, Some(&spool)).is_empty());
        for (name, value) in variables(&launch, Some(&spool)) {
            assert!(!value.contains(' '), "{name}={value}");
            assert!(!value.starts_with('/') || Path::new(&value).is_file(), "{name}={value}");
        }
        script::remove(&directory);
        std::fs::remove_dir(&spool).unwrap();
    }
}
