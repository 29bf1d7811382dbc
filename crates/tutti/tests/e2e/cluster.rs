//! A cluster: nodes with networks, host names and clocks of their own, on one machine.

use crate::harness::{Done, Instance, Running, compile, eventually, needs_root, status_of};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{Permissions, set_permissions};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tutti_testbed::{Node, Options, Testbed};

static BEDS: AtomicU32 = AtomicU32::new(0);

/// A test bed, and an instance that is never started: it keeps tests that measure away, and its
/// audit finds what the test bed leaves.
pub(crate) struct Bed {
    bed: Option<Testbed>,
    pub(crate) audit: Instance,
}

impl Bed {
    /// Namespaces, and nothing in them.
    pub(crate) fn of(nodes: usize, clocks_ahead_s: &[i64]) -> Self {
        Self::with(nodes, clocks_ahead_s, &[])
    }

    /// A cluster whose last node reaches the head over a slow way, with other parameters than usual
    /// before it comes.
    pub(crate) fn up_slow(nodes: usize, slow: Duration, params: &[&str]) -> Self {
        let params = params.iter().map(|&param| param.to_owned()).collect();
        let bed = Self::made(nodes, |options| Options { slow: Some(slow), params, ..options });
        bed.bed().up().unwrap();
        bed
    }

    /// Namespaces with so many of the machine's processors each, and nothing in them.
    pub(crate) fn of_with_processors(nodes: usize, each: usize) -> Self {
        let processors = NonZero::new(each);
        Self::made(nodes, |options| Options { processors, ..options })
    }

    /// A cluster of such nodes.
    pub(crate) fn up_with_processors(nodes: usize, each: usize) -> Self {
        let bed = Self::of_with_processors(nodes, each);
        bed.bed().up().unwrap();
        bed
    }

    fn with(nodes: usize, clocks_ahead_s: &[i64], params: &[&str]) -> Self {
        let params = params.iter().map(|&param| param.to_owned()).collect();
        let clocks_ahead_s = clocks_ahead_s.to_vec();
        Self::made(nodes, |options| Options { clocks_ahead_s, params, ..options })
    }

    fn made(nodes: usize, like: impl FnOnce(Options) -> Options) -> Self {
        needs_root("network namespaces");
        let audit = Instance::new();
        let number = crate::harness::next_of(&BEDS);
        let options = like(Options {
            name: format!("{}-{number}", std::process::id()),
            program: audit.program.clone(),
            directory: std::env::temp_dir(),
            nodes,
            clocks_ahead_s: Vec::new(),
            slow: None,
            params: Vec::new(),
            processors: None,
        });
        Self { bed: Some(Testbed::new(&options).unwrap()), audit }
    }

    /// A cluster.
    pub(crate) fn up(nodes: usize, clocks_ahead_s: &[i64]) -> Self {
        let bed = Self::of(nodes, clocks_ahead_s);
        bed.bed().up().unwrap();
        bed
    }

    /// A cluster with other parameters than usual from its beginning.
    pub(crate) fn up_with(nodes: usize, clocks_ahead_s: &[i64], params: &[&str]) -> Self {
        let bed = Self::with(nodes, clocks_ahead_s, params);
        bed.bed().up().unwrap();
        bed
    }

    pub(crate) fn bed(&self) -> &Testbed {
        self.bed.as_ref().unwrap()
    }

    /// The node of this number, from 1.
    pub(crate) fn node(&self, number: usize) -> &Node {
        &self.bed().nodes()[number - 1]
    }

    /// How many timetables came late to a node, as it says.
    #[track_caller]
    pub(crate) fn late_timetables(&self, node: &Node) -> u64 {
        eventually("it says how many timetables came late", || {
            let nodes = self.tutti(1, &["nodes", "--json"]).expect(0).json();
            let found = nodes.as_array()?.iter().find(|it| it["name"] == node.name())?;
            found["late_timetables"].as_u64()
        })
    }

    /// Users of a node reach its instance from now on, as one for all users.
    pub(crate) fn open_to_all(&self, number: usize) {
        let directory = self.node(number).directory();
        set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        for socket in ["controller.sock", "gate.sock", "keeper.sock"] {
            set_permissions(directory.join(socket), Permissions::from_mode(0o666)).unwrap();
        }
    }

    #[track_caller]
    pub(crate) fn start(&self, number: usize, args: &[&str]) -> Running {
        let mut command = self.node(number).tutti(args);
        command.current_dir(&self.audit.work).env("NAP", &self.audit.nap);
        Running::start(command)
    }

    #[track_caller]
    pub(crate) fn tutti(&self, number: usize, args: &[&str]) -> Done {
        self.start(number, args).wait()
    }

    #[track_caller]
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let Value::Array(nodes) = self.tutti(1, &["nodes", "--json"]).expect(0).json() else {
            panic!("no list of nodes")
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        nodes.iter().map(|node| (text(&node["name"]), text(&node["state"]))).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(bed) = &self.bed
        {
            for node in bed.nodes() {
                let log = std::fs::read_to_string(node.directory().join("log"));
                eprintln!("---- log of {} ----\n{}----", node.name(), log.unwrap_or_default());
            }
        }
        self.bed = None;
    }
}

#[test]
fn a_job_runs_on_all_nodes_and_is_served_from_any() {
    let bed = Bed::up(4, &[0, 3600, -900, 86_400]);
    let hosts: Vec<String> = (0..8).map(|rank| format!("{rank}: n{}", rank / 2 + 1)).collect();
    for number in [1, 3] {
        let done = bed.tutti(number, &["run", "-n", "8", "--label", "--", "hostname"]).expect(0);
        assert_eq!(done.sorted(), hosts, "from n{number}");
    }
    // Input to a rank far away, and its answer.
    let mut command = bed.node(4).tutti(&["run", "-n", "8", "-i", "2", "--", "wc", "-l"]);
    command.stdin(Stdio::piped());
    let mut counting = Running::start(command);
    counting.type_in("a line\n".repeat(100_000).as_bytes());
    let said = counting.wait().expect(0).text();
    let mut counts: Vec<&str> = said.lines().collect();
    counts.sort_unstable();
    assert_eq!(counts, ["0", "0", "0", "0", "0", "0", "0", "100000"]);
    // How a rank far away ended.
    let fails = "test $TUTTI_NODE_RANK = 3 && exit 7; sleep $NAP";
    bed.tutti(
        2,
        &["run", "-n", "8", "--kill-on-bad-exit", "--grace", "100ms", "--", "sh", "-c", fails],
    )
    .expect(7)
    .says("rank");
}

#[test]
fn eight_nodes_run_what_they_are_told_also_after_one_has_lost_its_agent() {
    let bed = Bed::up_with_processors(8, 2);
    let hosts: Vec<String> = (0..16).map(|rank| format!("{rank:>2}: n{}", rank / 2 + 1)).collect();
    let line = ["run", "-N", "8", "-n", "16", "--label", "--", "hostname"];
    for number in [1, 8] {
        assert_eq!(bed.tutti(number, &line).expect(0).sorted(), hosts, "from n{number}");
    }
    let agent = bed.node(5).daemon("agent").unwrap();
    bed.node(5).signal("agent", Signal::SIGKILL).unwrap();
    assert_eq!(bed.tutti(1, &line).expect(0).sorted(), hosts);
    assert_ne!(bed.node(5).daemon("agent"), Some(agent));
}

#[test]
fn output_in_bulk_of_many_nodes_is_whole() {
    let bed = Bed::up(3, &[0]);
    let print =
        "i=0; while [ $i -lt 300 ]; do echo $TUTTI_RANK $i $(printf '%02000d' 0); i=$((i+1)); done";
    let done = bed.tutti(2, &["run", "-n", "6", "--", "sh", "-c", print]).expect(0);
    let text = done.text();
    let mut next = [0_u32; 6];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (rank, number): (usize, u32) = (words[0].parse().unwrap(), words[1].parse().unwrap());
        assert_eq!(words[2].len(), 2000, "a line was cut");
        assert_eq!(number, next[rank], "rank {rank}: lines lost or out of order");
        next[rank] += 1;
    }
    assert_eq!(next, [300; 6]);
}

/// What switches each node made: when due, which job left, which came.
pub(crate) fn switches(bed: &Bed) -> BTreeMap<String, BTreeSet<(u64, String, String)>> {
    let Value::Array(nodes) = bed.tutti(2, &["switches", "-n", "1000", "--json"]).expect(0).json()
    else {
        panic!("no list of switches")
    };
    let is_both = |record: &&Value| {
        ["left", "came"].iter().all(|who| record[*who].as_array().is_some_and(|w| !w.is_empty()))
    };
    let entry = |record: &Value| {
        (record["due_ns"].as_u64().unwrap(), record["left"].to_string(), record["came"].to_string())
    };
    nodes
        .iter()
        .map(|node| {
            let records = node[1].as_array().unwrap().iter().filter(is_both).map(entry);
            (node[0].as_str().unwrap().to_owned(), records.collect())
        })
        .collect()
}

/// The switches that so many nodes have all made: the same moments, by the same clock, with the
/// same jobs.
pub(crate) fn common_switches(bed: &Bed, count: usize) -> Option<BTreeSet<(u64, String, String)>> {
    let nodes = switches(bed);
    let mut all = nodes.values();
    let mut common = all.next()?.clone();
    for of_node in all {
        common.retain(|record| of_node.contains(record));
    }
    (nodes.len() == count).then_some(common)
}

/// The monotonic clock of this machine.
fn clock_ns() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    now.as_nanos().try_into().unwrap()
}

#[test]
fn gangs_switch_at_the_same_instants_on_nodes_whose_clocks_differ() {
    let bed = Bed::up(3, &[9000, 16_200, 0]);
    bed.tutti(1, &["params", "quantum=20ms"]).expect(0);
    for _ in 0..2 {
        bed.tutti(1, &["submit", "-n", "6", "-o", "/dev/null", "--", "sleep", &bed.audit.nap])
            .expect(0);
    }
    eventually("thirty switches together", || {
        (common_switches(&bed, 3)?.len() >= 30).then_some(())
    });
    // The controller has no part in it. Its machine's clock is the cluster's.
    let cluster_ns = || clock_ns() + 9000 * 1_000_000_000;
    bed.node(1).signal("controller", Signal::SIGSTOP).unwrap();
    let stopped = cluster_ns();
    std::thread::sleep(Duration::from_secs(1));
    let goes_on = cluster_ns();
    bed.node(1).signal("controller", Signal::SIGCONT).unwrap();
    // Of the fifty that were due; each node must have answered the controller again.
    eventually("ten switches meanwhile", || {
        let common = common_switches(&bed, 3)?;
        let meanwhile = common.iter().filter(|record| (stopped..goes_on).contains(&record.0));
        (meanwhile.count() >= 10).then_some(())
    });
    bed.tutti(1, &["cancel", "--now", "1", "2"]).expect(0);
}

#[test]
fn agents_that_end_cost_no_job() {
    let bed = Bed::up(3, &[0, 100]);
    let job =
        bed.tutti(1, &["submit", "--parsable", "-n", "6", "-o", "/dev/null", "--", "sleep", "2"]);
    let job = job.expect(0).text().trim().to_owned();
    let waiting = bed.start(3, &["wait", &job]);
    for number in [2, 1, 3] {
        let node = bed.node(number);
        let agent = node.daemon("agent").unwrap();
        node.signal("agent", Signal::SIGKILL).unwrap();
        eventually("another agent", || node.daemon("agent").filter(|&new| new != agent));
    }
    // The client that waited was connected through one of them, and is told that it is not any
    // more.
    drop(waiting);
    eventually("all nodes back", || bed.states().values().all(|state| state == "up").then_some(()));
    bed.tutti(1, &["wait", &job]).expect(0);
    bed.tutti(2, &["run", "-n", "6", "true"]).expect(0);
    // A front end whose way to a node breaks finds another.
    let talking =
        bed.start(1, &["run", "-n", "6", "--", "sh", "-c", "echo begun; sleep 2; echo end"]);
    eventually("all have begun", || (talking.out().lines().count() == 6).then_some(()));
    bed.node(2).signal("agent", Signal::SIGKILL).unwrap();
    assert_eq!(talking.wait().expect(0).text().lines().count(), 12);
}

#[test]
fn nobody_joins_without_a_good_token() {
    let bed = Bed::of(3, &[0]);
    let (head, address) = (bed.node(1).name().to_owned(), bed.node(1).address());
    bed.tutti(1, &["up", "--listen", &address, "--name", &head]).expect(0);
    let invite = |args: &[&str]| {
        let done = bed.tutti(1, &[&["invite", "--parsable"], args].concat()).expect(0);
        done.text().trim().to_owned()
    };
    let join = |number: usize, token: &str, name: &str| {
        bed.tutti(number, &["join", &address, token, "--name", name])
    };
    let token = invite(&[]);
    let typo =
        format!("{}{}", &token[..token.len() - 1], if token.ends_with('a') { 'b' } else { 'a' });
    join(2, &typo, "n2").expect(1).says("mistyped");
    join(2, "tutti1", "n2").expect(1).says("token");
    let withdrawn = invite(&["--admin"]);
    bed.tutti(1, &["invite", "--revoke", "--admin"]).expect(2).says("can't go with");
    let revoked = bed.tutti(1, &["invite", "--revoke"]).expect(0).text();
    assert!(revoked.starts_with("3 tokens revoked"), "{revoked}");
    for gone in [&token, &withdrawn] {
        join(2, gone, "n2").expect(1).says("does not know this token").says("[T061]");
    }
    let token = invite(&[]);
    join(2, &token, "n1").expect(1).says("has a node named n1");
    join(2, &token, "no/name").expect(1).says("is no name");
    // No user is there, or none of that name.
    for (head, says) in [
        (address.replace(":7716", ":9"), "`tutti up --listen ADDRESS`"),
        ("nosuch.invalid".into(), "no such machine: nosuch.invalid"),
    ] {
        let lost = bed.tutti(2, &["join", &head, &token, "--name", "n2"]).expect(1).says(says);
        assert!(lost.err.trim_end().ends_with("[T062]"), "{}", lost.err);
    }
    let nowhere = ["join", &address, &token, "--name", "n2", "--listen", "10.99.1.1"];
    bed.tutti(2, &nowhere).expect(1).says("cannot listen at 10.99.1.1:7716").says("[T002]");
    // None of that has cost the token, but using it does.
    join(2, &token, "n2").expect(0);
    join(3, &token, "n3").expect(1).says("used already");
    // Its root is not root here unless the head says so.
    bed.tutti(2, &["nodes"]).expect(1).says("is not root in the cluster").says("[T020]");
    bed.tutti(2, &["run", "true"]).expect(125).says("is not root in the cluster").says("[T020]");
    let findings = bed.tutti(2, &["doctor"]).text();
    assert!(findings.contains("is not root in the cluster"), "{findings}");
    assert!(!findings.contains("tutti down"), "nothing is to be mended: {findings}");
    let short = invite(&["--for", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    join(3, &short, "n3").expect(1).says("expired");
    bed.tutti(1, &["invite", "--for", "0s"]).expect(1).says("1s or more");
    // A removed machine does not come back, and its name can be taken again.
    bed.tutti(1, &["nodes", "remove", "n9"]).expect(1).says("there is no node n9");
    bed.tutti(1, &["nodes", "remove", "n1"]).expect(1).says("the controller runs on");
    bed.tutti(2, &["nodes", "remove", "n2"]).expect(1).says("root of this machine is not root");
    bed.tutti(2, &["down"]).expect(0);
    bed.tutti(1, &["nodes", "remove", "n2"]).expect(0);
    bed.tutti(2, &["leave"]).expect(0);
    join(2, &invite(&[]), "n2").expect(0);
    // The same words at another cluster are a stranger's.
    let other = bed.node(3).address();
    bed.tutti(3, &["up", "--listen", &other, "--name", "n3"]).expect(0);
    let token = bed.tutti(3, &["invite", "--parsable"]).expect(0).text();
    bed.tutti(2, &["down"]).expect(0);
    bed.tutti(2, &["leave"]).expect(0).text();
    join(2, token.trim(), "n4").expect(1);
    bed.tutti(3, &["down"]).expect(0);
}

#[test]
fn certificates_are_renewed_by_themselves_and_cost_no_job() {
    let bed = Bed::of(4, &[0]);
    let (head, address) = (bed.node(1).name().to_owned(), bed.node(1).address());
    let up = ["up", "--listen", &address, "--name", &head, "--trust-root", "--certificates", "6s"];
    bed.tutti(1, &up).expect(0);
    bed.tutti(1, &["params", "fan_out=2"]).expect(0);
    for number in 2..=4 {
        bed.bed().join(bed.node(number)).unwrap();
    }
    let job = ["submit", "--parsable", "-N", "4", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    let job = bed.tutti(1, &job).expect(0).text().trim().to_owned();
    let certificate = |number: usize| {
        let file = bed.node(number).directory().join("cluster/credentials.pem");
        std::fs::read_to_string(file).unwrap()
    };
    // Three times, so that the first two have run out; also of the one that is below another.
    for _ in 0..3 {
        let before = [1, 2, 3, 4].map(certificate);
        for (number, before) in (1..=4).zip(before) {
            eventually("another certificate", || (certificate(number) != before).then_some(()));
        }
    }
    let jobs = bed.tutti(1, &["ps", "--json", &job]).expect(0).json();
    assert_eq!(jobs[0]["state"], "running");
    // A machine that connects anew shows the new one, and is shown it.
    for number in [4, 1] {
        let agent = bed.node(number).daemon("agent").unwrap();
        bed.node(number).signal("agent", Signal::SIGKILL).unwrap();
        let node = bed.node(number);
        eventually("another agent", || node.daemon("agent").filter(|&new| new != agent));
        bed.tutti(1, &["run", "-N", "4", "--", "true"]).expect(0);
    }
    bed.tutti(1, &["cancel", "--now", &job]).expect(0);
}

#[test]
fn noise_at_the_port_costs_only_its_own_connection() {
    let bed = Bed::up(2, &[0]);
    let job = bed.start(2, &["run", "-n", "4", "--", "sh", "-c", "sleep 1; hostname"]);
    for noise in [
        "head -c 300000 /dev/urandom",
        "printf 'GET / HTTP/1.1\\r\\n\\r\\n'",
        "printf '\\026\\003\\001\\377\\377'",
    ] {
        let line = format!("{noise} > /dev/tcp/10.77.0.1/7716");
        let mut command = bed.node(2).command("bash");
        command.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::null());
        // That its connection is closed is its own affair.
        let _ = command.status().unwrap();
    }
    let mut idle: Command = bed.node(2).command("bash");
    idle.args(["-c", "exec 3<>/dev/tcp/10.77.0.1/7716; sleep 3"]);
    let mut idle = idle.spawn().unwrap();
    assert_eq!(job.wait().expect(0).sorted(), ["n1", "n1", "n2", "n2"]);
    bed.tutti(2, &["run", "-n", "4", "true"]).expect(0);
    idle.kill().unwrap();
    idle.wait().unwrap();
}

#[test]
fn mpi_programs_find_each_other_across_nodes() {
    let bed = Bed::up(4, &[0, 50]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi");
    for (name, args, says) in
        [("ring", &["50"][..], "8 ranks, 50 rounds, ok"), ("alltoall", &["100", "3"], "ok")]
    {
        let program =
            compile("mpicc.mpich", &sources.join(format!("{name}.c")), &format!("{name}-far"));
        let program = program.display().to_string();
        let done = bed.tutti(3, &[&["run", "-n", "8", &program], args].concat()).expect(0);
        assert!(done.text().contains(says), "{name}: {}", done.text());
    }
}

/// What a node has received through its network, in bytes.
fn received(bed: &Bed, number: usize) -> u64 {
    let line = "ip -s link show eth0 | awk '/RX:/ { getline; print $1 }'";
    let said = bed.node(number).command("sh").args(["-c", line]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn mpi_jobs_over_all_nodes_take_turns_and_agree() {
    let _alone = Instance::alone();
    let bed = Bed::up_with_processors(2, 1);
    bed.tutti(1, &["params", "quantum=20ms"]).expect(0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/solver.c");
    let solver = compile("mpicc.mpich", &source, "solver-turns").display().to_string();
    let options = ["submit", "--parsable", "-N", "2", "-n", "2", "--exclusive", "-o", "said-%j"];
    let jobs = [1, 2].map(|_| {
        let done = bed.tutti(1, &[&options[..], &[&solver, "2000", "400000"]].concat()).expect(0);
        done.text().trim().to_owned()
    });
    let [one, other] = jobs.each_ref().map(|job| format!("[{job}]"));
    eventually("ten turns of both", || {
        let common = common_switches(&bed, 2)?;
        let between = |(_, left, came): &&(u64, String, String)| {
            [left, came] == [&one, &other] || [left, came] == [&other, &one]
        };
        (common.iter().filter(between).count() >= 10).then_some(())
    });
    let said = jobs.each_ref().map(|job| {
        bed.tutti(1, &["wait", job]).expect(0);
        std::fs::read_to_string(bed.audit.work.join(format!("said-{job}"))).unwrap()
    });
    assert!(said[0].contains("2 ranks, 2000 iterations") && said[0].contains("ok"), "{}", said[0]);
    assert_eq!(said[0], said[1]);
}

#[test]
fn mpi_programs_talk_through_the_network() {
    let bed = Bed::up(2, &[0]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/alltoall.c");
    let program = compile("mpicc.mpich", &source, "alltoall-tcp").display().to_string();
    // Otherwise two ranks on one kernel find each other's memory. Two, since Debian's UCX may wait
    // for ever in MPI_Finalize with more of them over TCP, however they are started.
    let words = ["env", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0", &program, "1000", "50"];
    let before = received(&bed, 2);
    let done = bed.tutti(1, &[&["run", "-N", "2", "-n", "2"], &words[..]].concat()).expect(0);
    assert!(done.text().contains("2 ranks, 1000 numbers a pair, 50 times, ok"), "{}", done.text());
    // Fifty times a thousand numbers of four bytes at least.
    let through = received(&bed, 2) - before;
    assert!(through > 200_000, "only {through} bytes came through the network");
}

#[test]
fn nodes_of_a_test_bed_may_have_processors_of_their_own() {
    let bed = Bed::up_with_processors(2, 1);
    let own = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"];
    let done = bed.tutti(1, &[&["run", "-N", "2", "-n", "2", "--"], &own[..]].concat()).expect(0);
    let lists: BTreeSet<String> = done.sorted().into_iter().collect();
    let machine = std::thread::available_parallelism().unwrap().get();
    assert_eq!(lists.len(), machine.min(2), "{lists:?}");
}

#[test]
fn a_node_goes_down_and_comes_back_and_leaves() {
    let bed = Bed::up(3, &[0]);
    // Jobs there end with the reason, at once.
    let running = bed.start(1, &["run", "-n", "6", "--", "sleep", &bed.audit.nap]);
    eventually("it runs", || {
        bed.tutti(1, &["ps"]).expect(0).text().contains("running").then_some(())
    });
    bed.tutti(3, &["down"]).expect(0);
    running.wait().expect(121).says("node n3 was taken down");
    assert_eq!(bed.states()["n3"], "down");
    assert!(!bed.node(3).directory().join("lock").exists());
    let down =
        bed.tutti(3, &["ps"]).expect(1).says("this machine is n3 of cluster tutti, and is down");
    down.says(" up` brings it back").says("[T010]");
    bed.tutti(3, &["leave"]).expect(0);
    let other = Bed::of(1, &[0]);
    other.tutti(1, &["invite"]).expect(1).says("in no cluster");
    bed.tutti(2, &["invite"]).expect(1).says("at the head");
    bed.tutti(2, &["down"]).expect(0);
    bed.tutti(2, &["up"]).expect(0);
    eventually("n2 is back", || (bed.states().get("n2")? == "up").then_some(()));
    let done = bed.tutti(2, &["run", "-n", "4", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted(), ["n1", "n1", "n2", "n2"]);
}

#[test]
fn a_node_whose_supervisor_was_killed_can_be_taken_down() {
    let bed = Bed::up(2, &[0]);
    let (keeper, agent) = (bed.node(2).daemon("keeper"), bed.node(2).daemon("agent"));
    let supervisor: i32 = status_of(keeper.unwrap(), "PPid").unwrap().parse().unwrap();
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    bed.tutti(2, &["leave"]).expect(1).says("`tutti down`");
    bed.tutti(2, &["down"]).expect(0);
    for daemon in [keeper, agent].into_iter().flatten() {
        eventually("its end", || status_of(daemon, "State").is_none().then_some(()));
    }
    assert_eq!((bed.node(2).daemon("keeper"), bed.node(2).daemon("agent")), (None, None));
}

#[test]
fn a_node_that_is_taken_down_is_out_of_service_at_once() {
    let bed = Bed::up(3, &[0]);
    let sleep = ["sleep", bed.audit.nap.as_str()];
    let far = bed.start(1, &[&["run", "-n", "6", "--"][..], &sleep].concat());
    let running = |jobs: usize| {
        let Value::Array(found) = bed.tutti(1, &["ps", "--json"]).expect(0).json() else {
            panic!("no list of jobs")
        };
        let all = found.len() == jobs && found.iter().all(|job| job["state"] == "running");
        all.then_some(())
    };
    eventually("it runs", || running(1));
    let near = ["submit", "--parsable", "-n", "2", "-o", "/dev/null", "--"];
    let near = bed.tutti(1, &[&near[..], &sleep].concat()).expect(0).text();
    eventually("two jobs on it", || running(2));
    let begun = std::time::Instant::now();
    bed.tutti(3, &["down"]).expect(0);
    assert_eq!(bed.states()["n3"], "down");
    // The job is not said to have failed by what was done to its tasks there.
    far.wait().expect(121).says("node n3 was taken down");
    bed.tutti(1, &["wait", "1"]).expect(121).says("node n3 was taken down");
    // Long before anybody would miss it, and others are not placed there.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let done = bed.tutti(1, &["run", "-n", "6", "--", "hostname"]).expect(0);
    assert_eq!(done.sorted(), ["n1", "n1", "n1", "n2", "n2", "n2"]);
    bed.tutti(1, &["cancel", "--now", near.trim()]).expect(0);
    bed.tutti(3, &["up"]).expect(0);
    eventually("n3 is back", || (bed.states().get("n3")? == "up").then_some(()));
}
