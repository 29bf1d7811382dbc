//! The PMIx server of a job as a process: its group, its limits, its end.
//!
//! These have the machine to themselves, as those of `open_mpi.rs`.

use crate::audit::{cgroup_name, cgroups_named};
use crate::harness::{Instance, PATIENCE, Running, command_line, eventually, group_of};
use crate::open_mpi::{SERVER, STAYS, of_text, servers_of};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tutti_node::link::Link;
use tutti_types::NodeId;
use tutti_wire::Role;
use tutti_wire::pmix::{FromPmix, PMIX_FRAME_BYTES_MAX, PmixNode, PmixOrder, PmixSpace, ToPmix};

/// The groups of that name in the subtrees of an instance.
fn groups_of(instance: &Instance, name: &str) -> Vec<PathBuf> {
    let own = cgroup_name(&instance.dir, instance.user.unwrap_or(0));
    let mut groups = cgroups_named(name);
    groups.retain(|path| path.to_string_lossy().contains(&own));
    groups
}

/// The first of these files that one of the groups has, as a number.
fn number_in(groups: &[PathBuf], files: &[&str]) -> Option<u64> {
    let read =
        |group: &PathBuf| files.iter().find_map(|it| fs::read_to_string(group.join(it)).ok());
    groups.iter().find_map(read)?.trim().parse().ok()
}

/// Starts a job of two tasks that is served and shares no memory; gives its server.
fn served(instance: &Instance) -> (Running, i32) {
    let mut run = instance.command(&["run", "-n", "2", "sh", "-c", "echo up; exec sleep 1000"]);
    run.env("TUTTI_PMIX", "1");
    let run = Running::start(run);
    run.wait_for("up");
    let [server] = servers_of(instance)[..] else { panic!("one job has one server") };
    (run, server)
}

fn is_gone(server: i32) -> bool {
    !command_line(server).contains(&SERVER.into())
}

#[test]
fn a_pmix_server_has_a_limited_group_that_no_switch_freezes_and_that_ends_with_the_job() {
    let instance = Instance::alone().up();
    let stays = of_text(&instance, "stays", STAYS);
    let run = instance.start(&["run", "-n", "2", &stays]);
    run.wait_for("0 is up");
    run.wait_for("1 is up");
    let [server] = servers_of(&instance)[..] else { panic!("one job has one server") };
    let name = "pmix-1-0-0";
    assert!(group_of(server).ends_with(&format!("/{name}")), "it is in {}", group_of(server));
    let groups = groups_of(&instance, name);
    let memory = number_in(&groups, &["memory.max", "memory.limit_in_bytes"]);
    assert!(memory.is_some_and(|it| it > 100 << 20 && it < 300 << 20), "{memory:?}: {groups:?}");
    assert_eq!(number_in(&groups, &["pids.max"]), Some(32), "{groups:?}");
    let used = number_in(&groups, &["memory.current", "memory.usage_in_bytes"]);
    assert!(used.is_some_and(|it| it > 1 << 20), "its memory is not counted: {used:?}");
    // It runs in the turns of other jobs.
    let own = cgroup_name(&instance.dir, instance.user.unwrap_or(0));
    let mut all = cgroups_named(&own);
    all.retain(|path| path.to_string_lossy().ends_with(&format!(".{name}")));
    all.extend(groups.clone());
    let text = |name| all.iter().find_map(|it| fs::read_to_string(it.join(name)).ok());
    let quota = text("cpu.max").or_else(|| text("cpu.cfs_quota_us")).unwrap_or_default();
    assert_eq!(quota.split_whitespace().next(), Some("100000"), "of one processor: {quota}");
    instance.tutti(&["suspend", "1"]).expect(0);
    let job = groups_of(&instance, "job-1");
    let is_frozen = |groups: &[PathBuf]| {
        let read = |it: &PathBuf| fs::read_to_string(it.join("cgroup.events")).ok();
        groups.iter().find_map(read).unwrap().contains("frozen 1")
    };
    eventually("the job stands", || is_frozen(&job).then_some(()));
    assert!(!is_frozen(&groups), "the server stands with its job");
    instance.tutti(&["cancel", "1"]).expect(0);
    run.wait_within(PATIENCE);
    eventually("the end of its groups", || groups_of(&instance, name).is_empty().then_some(()));
    assert!(is_gone(server));
}

/// A stopped process does not see that its connection has ended.
fn a_stopped_server_ends(instance: &Instance) {
    let stop = |server: i32| instance.shell(&format!("kill -STOP {server}")).expect(0);
    let (run, server) = served(instance);
    stop(server);
    instance.tutti(&["cancel", "1"]).expect(0);
    run.wait_within(PATIENCE);
    assert!(is_gone(server), "it outlives its job");
    let (run, server) = served(instance);
    stop(server);
    let keeper = instance.daemon("keeper");
    instance.shell(&format!("kill -KILL {keeper}")).expect(0);
    eventually("the end of the server", || is_gone(server).then_some(()));
    assert_ne!(run.wait_within(PATIENCE * 2).code, 0);
    eventually("the end of its groups", || {
        groups_of(instance, "pmix-2-0-0").is_empty().then_some(())
    });
}

#[test]
fn a_stopped_pmix_server_ends_with_its_job_and_with_its_keeper() {
    a_stopped_server_ends(&Instance::alone().up());
}

#[test]
fn a_stopped_pmix_server_without_a_group_ends_with_its_job_and_with_its_keeper() {
    a_stopped_server_ends(&Instance::of_nobody().up());
}

/// A task that asks for the size of its job, and for the nodes of the first and the last rank.
const ASKS: &str = "#include <pmix.h>\n#include <stdio.h>\n\
    static void ask(pmix_proc_t *who, const char *key) { pmix_value_t *value; \
    pmix_status_t rc = PMIx_Get(who, key, NULL, 0, &value); \
    if (rc) printf(\"error %d\\n\", rc); \
    else if (value->type == PMIX_STRING) printf(\"%s\\n\", value->data.string); \
    else printf(\"%u\\n\", value->data.uint32); }\n\
    int main(void) { pmix_proc_t me, who; int rc = PMIx_Init(&me, NULL, 0); \
    if (rc) { printf(\"error %d\\n\", rc); return 1; } \
    PMIX_LOAD_PROCID(&who, me.nspace, PMIX_RANK_WILDCARD); ask(&who, PMIX_JOB_SIZE); \
    who.rank = 0; ask(&who, PMIX_HOSTNAME); who.rank = 2999; ask(&who, PMIX_HOSTNAME); \
    PMIX_LOAD_PROCID(&who, me.nspace, PMIX_RANK_WILDCARD); ask(&who, PMIX_NODE_LIST); \
    pmix_proc_t *peers; size_t n; rc = PMIx_Resolve_peers(\"n2\", me.nspace, &peers, &n); \
    printf(\"%d %zu\\n\", rc, n); PMIx_Finalize(NULL, 0); return 0; }\n";

#[test]
fn more_ranks_are_served_than_a_short_list_names() {
    const RANKS: u32 = 1_500;
    let instance = Instance::alone();
    let library = tutti_client::pmix_library().unwrap();
    let include = library.parent().unwrap().join("../include");
    fs::write(instance.work.join("asks.c"), ASKS).unwrap();
    let (include, file) = (include.display(), library.display());
    let line =
        format!("cc -I{include} -I/usr/lib/x86_64-linux-gnu/pmix2/include -o asks asks.c {file}");
    instance.shell(&line).expect(0);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut server = Command::new("sh")
        .args(["-c", "exec \"$0\" pmix-server 3<&0"])
        .arg(&instance.program)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let mut link = Link::new(ours).unwrap();
    link.limit(PMIX_FRAME_BYTES_MAX);
    link.greet(Role::Server);
    let node = |(number, name): (u32, &str)| PmixNode {
        node: NodeId(number),
        name: name.into(),
        tasks: RANKS,
    };
    link.send(&ToPmix::Order(PmixOrder {
        space: PmixSpace {
            name: "tutti-1-0-0-0123456789abcdef".into(),
            nodes: [(0, "n1"), (1, "n2")].map(node).to_vec(),
            node: 0,
            universe: 2 * RANKS,
            programs: Vec::new(),
            parent: None,
        },
        libraries: vec![library.into_os_string().into_encoded_bytes().into()],
        directory: instance.work.as_os_str().as_encoded_bytes().to_vec().into(),
        identity: None,
        environment: Vec::new(),
        memory_bytes: 1 << 30,
    }));
    let mut environments = Vec::new();
    loop {
        match link.call::<FromPmix>().unwrap() {
            FromPmix::Environment { variables } => environments.push(variables),
            FromPmix::Ready => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(environments.len(), RANKS as usize);
    let mut task = Command::new(instance.work.join("asks"));
    for variable in &environments[7] {
        let (name, value) = std::str::from_utf8(variable).unwrap().split_once('=').unwrap();
        task.env(name, value);
    }
    let said = task.output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.lines().collect::<Vec<_>>(), ["3000", "n1", "n2", "n1,n2", "0 1500"]);
    drop(link);
    assert!(server.wait().unwrap().success());
}

/// Shares memory by a name, and stays until it is ended.
const SHARES: &str = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/mman.h>\n\
    #include <unistd.h>\n\
    int main(int n, char **a) { int fd = shm_open(a[1], O_CREAT | O_RDWR, 0600); \
    ftruncate(fd, 4096); char *at = mmap(0, 4096, 3, MAP_SHARED, fd, 0); *at = 1; puts(\"up\"); \
    fflush(stdout); sleep(1000); return 0; }\n";

#[test]
fn shared_memory_of_a_job_goes_also_when_its_keeper_is_killed() {
    let instance = Instance::alone().up();
    let shares = of_text(&instance, "shares", SHARES);
    let name = format!("tutti-test-left-{}", std::process::id());
    let file = PathBuf::from("/dev/shm").join(&name);
    // Another's, of before the job: it stays, though the job's process uses it.
    let older = format!("{name}-older");
    let older_file = PathBuf::from("/dev/shm").join(&older);
    fs::write(&older_file, [0; 4096]).unwrap();
    // Times of files and groups are as of a tick of the kernel: what is older by less may be newer.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = instance.start(&["run", &shares, &format!("/{name}")]);
    let other = instance.start(&["run", &shares, &format!("/{older}")]);
    run.wait_for("up");
    other.wait_for("up");
    assert!(file.exists());
    let keeper = instance.daemon("keeper");
    instance.shell(&format!("kill -KILL {keeper}")).expect(0);
    assert_ne!(run.wait_within(PATIENCE * 2).code, 0);
    eventually("the end of the file", || (!file.exists()).then_some(()));
    let stays = older_file.exists();
    let _ = fs::remove_file(&older_file);
    assert!(stays, "a file of before the job was removed");
}
