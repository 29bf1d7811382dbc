//! What can be said of nodes, on one and on several.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually};

/// The name of the only node.
fn only_node(instance: &Instance) -> String {
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    nodes[0]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_may_say_on_which_nodes_it_wants_to_be() {
    let instance = Instance::new().up();
    let name = only_node(&instance);
    let size = ["sh", "-c", "echo $TUTTI_SIZE"];
    let run = |options: &[&str]| instance.tutti(&[&["run"], options, &["--"], &size].concat());
    assert_eq!(run(&["-N", "1", "--tasks-per-node", "2"]).expect(0).text(), "2\n2\n");
    assert_eq!(run(&["-N", "1", "-n", "2", "--spread", "--exclusive"]).expect(0).text(), "2\n2\n");
    assert_eq!(run(&["--nodes", &name]).expect(0).text(), "1\n");
    let two = run(&["-N", "2"]).expect(120);
    two.says("2 nodes were asked for, and there is only one that takes jobs; ask for -N 1");
    run(&["-N", "2", "-n", "1"]).expect(120).says("ask for at most -N 1");
    let strange = run(&["--nodes", "nowhere[1-2]"]).expect(120);
    strange.says("there is no node nowhere1; the nodes are").says(&name);
    run(&["--nodes", "4"]).expect(120).says("how many nodes is said by -N");
    run(&["--nodes", "set:gpu"]).expect(120).says("there is no set gpu; none is defined");
    run(&["--exclude", &name]).expect(120).says("none of the nodes that the job may be on");
    run(&["--nodes", "a[1-"]).expect(2).says("brackets must be closed");
    let many = run(&["-N", "1", "--tasks-per-node", "2", "-n", "3"]);
    let many = many.expect(125);
    many.says("room for 2 on 1 node with at most 2 each, and 3 were asked for");
}

#[test]
fn a_script_may_say_it_as_for_sbatch() {
    let instance = Instance::new().up();
    let name = only_node(&instance);
    let lines = format!("#SBATCH -N 1 --ntasks-per-node=2 --nodelist={name} --exclusive\n");
    instance.script("job.sh", &format!("#!/bin/sh\n{lines}srun sh -c 'echo $TUTTI_RANK'\n"));
    let job = instance.submit(&["-o", "out", "./job.sh"]).to_string();
    instance.tutti(&["wait", &job]).expect(0);
    let mut ranks: Vec<String> =
        instance.shell("cat out").expect(0).text().lines().map(Into::into).collect();
    ranks.sort();
    assert_eq!(ranks, ["0", "1"]);
}

#[test]
fn sets_of_nodes_have_names() {
    let instance = Instance::new().up();
    let name = only_node(&instance);
    let sets = instance.tutti(&["nodes", "set", &format!("gpu={name}")]).expect(0).text();
    assert!(sets.contains("gpu") && sets.contains(&name), "{sets}");
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    assert_eq!(nodes[0]["sets"][0], "gpu");
    instance.tutti(&["run", "--nodes", "set:gpu", "true"]).expect(0);
    let other = instance.tutti(&["run", "--nodes", "set:cpu", "true"]).expect(120);
    other.says("there is no set cpu; the sets are gpu");
    instance.tutti(&["nodes", "set", "gpu=nowhere"]).expect(1).says("there is no node nowhere");
    instance.tutti(&["nodes", "set", "gpu"]).expect(1).says("write NAME=NODES");
    instance.tutti(&["nodes", "set", "g,p=none"]).expect(1).says("can't be the name of a set");
    instance.tutti(&["nodes", "set", "gpu=none"]).expect(0);
    instance.tutti(&["run", "--nodes", "set:gpu", "true"]).expect(120);
}

#[test]
fn a_job_may_ask_for_what_nodes_have() {
    let instance = Instance::new().up();
    let name = only_node(&instance);
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let found = nodes[0]["features"].as_array().unwrap();
    assert!(found.iter().any(|it| it == std::env::consts::ARCH), "{found:?}");
    let asked = |constraint: &str| instance.tutti(&["run", "-C", constraint, "true"]);
    asked(std::env::consts::ARCH).expect(0);
    asked("abacus").expect(120).says("no node and no set has the feature abacus; there are: ");
    asked("a&&b").expect(2).says("a name is missing at '&b'");
    instance.tutti(&["nodes", "set", &format!("ssd={name}")]).expect(0);
    // One alternative is enough.
    asked(&format!("(abacus|ssd)&{}", std::env::consts::ARCH)).expect(0);
    asked(&format!("(abacus|zither)&{}", std::env::consts::ARCH)).expect(120).says("abacus");
    asked(&format!("ssd,{}", std::env::consts::ARCH)).expect(0);
    let table = instance.tutti(&["nodes", "features"]).expect(0).text();
    assert!(table.contains("ssd") && table.contains(std::env::consts::ARCH), "{table}");
    let script = "#!/bin/sh\n#SBATCH -C ssd\necho here\n";
    instance.script("job.sh", script);
    let job = instance.submit(&["-o", "out", "./job.sh"]).to_string();
    instance.tutti(&["wait", &job]).expect(0);
}

#[test]
fn a_drained_node_takes_no_new_jobs_and_keeps_those_it_has() {
    let instance = Instance::alone().up();
    let name = only_node(&instance);
    let stays = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(stays, "running");
    instance.tutti(&["nodes", "drain", &name, "--reason", "a new fan"]).expect(0);
    // Once more without a reason: the first one stays.
    instance.tutti(&["nodes", "drain", &name]).expect(0);
    let table = instance.tutti(&["nodes"]).expect(0).text();
    assert!(table.contains("drained") && table.contains("a new fan"), "{table}");
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    assert_eq!(
        (&nodes[0]["state"], &nodes[0]["drained"]),
        (&"drained".into(), &"a new fan".into())
    );
    let waits = instance.start(&["run", "echo", "begun"]);
    let why = format!("too few nodes take jobs now: {name} is drained (a new fan)");
    waits.wait_for_err(&format!("is queued: {why}"));
    assert_eq!(instance.job(stays + 1)["reason"], why);
    assert_eq!(instance.job(stays)["state"], "running");
    // What no node could ever do is declined all the same.
    instance.tutti(&["submit", "-c", "4000", "true"]).expect(120);
    instance.tutti(&["nodes", "resume", &name]).expect(0);
    assert_eq!(waits.wait().expect(0).text(), "begun\n");
    instance.tutti(&["run", "true"]).expect(0);
    instance.tutti(&["nodes", "drain", "nowhere"]).expect(1).says("there is no node nowhere");
    instance.tutti(&["nodes", "remove", &name]).expect(1).says("`tutti down` ends it");
    instance.tutti(&["cancel", "--now", &stays.to_string()]).expect(0);
}

#[test]
fn what_is_to_be_when_a_node_is_lost_may_be_said() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "--on-node-loss", "notify=USR1", "true"]).expect(0);
    let job = instance.submit(&["--on-node-loss", "requeue", "-o", "/dev/null", "true"]);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    let run = instance.tutti(&["run", "--on-node-loss", "requeue", "true"]);
    run.expect(125).says("hand it in with `tutti submit`");
    let strange = instance.tutti(&["run", "--on-node-loss", "notify=NOSUCH", "true"]).expect(2);
    strange.says("is no signal");
}

#[test]
fn jobs_get_the_nodes_of_a_cluster_that_they_ask_for() {
    let bed = Bed::up(3, &[0]);
    let hosts = |options: &[&str]| {
        let done = bed.tutti(1, &[&["run"], options, &["--", "hostname"]].concat());
        done.expect(0).sorted().join(" ")
    };
    assert_eq!(hosts(&["-N", "3"]), "n1 n2 n3");
    assert_eq!(hosts(&["-N", "2", "-n", "3", "--exclude", "n1"]), "n2 n2 n3");
    assert_eq!(hosts(&["-n", "2"]), "n1 n1");
    assert_eq!(hosts(&["-n", "2", "--spread", "--nodes", "n[2-3]"]), "n2 n3");
    bed.tutti(1, &["nodes", "set", "far=n[2-3]"]).expect(0);
    assert_eq!(hosts(&["--tasks-per-node", "1", "-n", "2", "--nodes", "set:far"]), "n2 n3");
    assert_eq!(hosts(&["-n", "2", "--spread", "-C", "far"]), "n2 n3");
    let both = format!("far&{}", std::env::consts::ARCH);
    assert_eq!(hosts(&["-n", "1", "--nodes", "n[1-2]", "-C", &both]), "n2");
    let none = bed.tutti(1, &["run", "--nodes", "n1", "-C", &both, "true"]).expect(120);
    none.says("none of the nodes n1 has what --constraint=far&").says("these do: n[2-3]");
    bed.tutti(2, &["run", "-N", "9", "true"]).expect(120).says("ask for -N 3");
    bed.tutti(1, &["run", "--nodes", "n4", "true"]).expect(120).says("the nodes are n[1-3]");
    bed.tutti(1, &["nodes", "drain", "n2"]).expect(0);
    assert_eq!(bed.states()["n2"], "drained");
    let wide = bed.start(1, &["run", "-N", "3", "hostname"]);
    wide.wait_for_err("n2 is drained");
    // As many tasks as there are processors wait for those of the drained node, and do not share
    // the others.
    let each = bed.tutti(1, &["nodes", "--json"]).expect(0).json()[0]["processors"].clone();
    let all = (3 * each.as_u64().unwrap()).to_string();
    let full = bed.start(1, &["run", "-n", &all, "hostname"]);
    full.wait_for_err("n2 is drained");
    assert_eq!(hosts(&["-N", "2"]), "n1 n3");
    bed.tutti(1, &["nodes", "resume", "n2"]).expect(0);
    assert_eq!(wide.wait().expect(0).sorted(), ["n1", "n2", "n3"]);
    assert_eq!(full.wait().expect(0).sorted().len().to_string(), all);
    assert_eq!(hosts(&["-N", "3"]), "n1 n2 n3");
}

#[test]
fn a_job_whose_node_is_lost_does_what_it_asked_for() {
    let bed = Bed::up(3, &[0]);
    let submit = |how: &str, command: &str| {
        let options = ["-N", "2", "--nodes", "n[2-3]", "--on-node-loss", how, "-o", "/dev/null"];
        let verb = ["submit", "--parsable"];
        let done = bed.tutti(1, &[&verb[..], &options, &["sh", "-c", command]].concat());
        done.expect(0).text().trim().to_owned()
    };
    let runs = |rank: u32| {
        let text = std::fs::read_to_string(bed.audit.work.join(format!("runs.{rank}")));
        text.map_or(0, |text| text.lines().count())
    };
    // Sleeps when it is run for the first time only.
    let again = submit(
        "requeue",
        "echo >> runs.$TUTTI_RANK; test $(wc -l < runs.$TUTTI_RANK) = 2 || sleep $NAP",
    );
    let told = submit(
        "notify=USR1",
        "trap 'echo told > told; exit 0' USR1; echo > heeds.$TUTTI_RANK; while :; do sleep 0.1; done",
    );
    let killed = submit("kill", "sleep $NAP");
    eventually("both ranks have begun", || (runs(0) == 1 && runs(1) == 1).then_some(()));
    let heeds = bed.audit.work.join("heeds.0");
    eventually("the other would hear it", || heeds.exists().then_some(()));
    eventually("all run", || {
        let jobs = bed.tutti(1, &["ps", "--json"]).expect(0).json();
        let running = |job: &serde_json::Value| job["state"] == "running";
        jobs.as_array().is_some_and(|jobs| jobs.iter().all(running)).then_some(())
    });
    bed.tutti(3, &["down"]).expect(0);
    bed.tutti(1, &["wait", &killed]).expect(121);
    bed.tutti(1, &["wait", &told]).expect(121);
    assert!(bed.audit.work.join("told").exists());
    eventually("it is queued again", || {
        let jobs = bed.tutti(1, &["ps", "--json", &again]).expect(0).json();
        (jobs[0]["state"] == "queued").then_some(())
    });
    assert_eq!(runs(0), 1);
    bed.tutti(3, &["up"]).expect(0);
    bed.tutti(1, &["wait", &again]).expect(0);
    assert_eq!((runs(0), runs(1)), (2, 2));
    let job = bed.tutti(1, &["ps", "--json", &again]).expect(0).json();
    assert!(job[0]["detail"].as_str().unwrap().contains("queued again once"), "{job}");
}

#[test]
fn a_node_that_is_removed_is_none_of_the_cluster() {
    let bed = Bed::up(3, &[0]);
    bed.tutti(1, &["nodes", "remove", "n1"]).expect(1).says("the one that the controller runs on");
    let busy =
        bed.start(1, &["run", "-N", "2", "--nodes", "n[2-3]", "--", "sleep", &bed.audit.nap]);
    eventually("it runs", || {
        bed.tutti(1, &["ps"]).expect(0).text().contains("running").then_some(())
    });
    bed.tutti(1, &["nodes", "remove", "n2"]).expect(1).says("has jobs: 1; have it take no more");
    bed.tutti(1, &["nodes", "remove", "n2", "--now"]).expect(0);
    // It ends when nothing of it is on the other node either, and there is no n2 any more.
    busy.wait().expect(121).says("node n2 was removed");
    bed.tutti(3, &["down"]).expect(0);
    bed.tutti(1, &["nodes", "remove", "n3"]).expect(0);
    assert_eq!(bed.states().into_keys().collect::<Vec<_>>(), ["n1"]);
    eventually("n2 has ended", || bed.node(2).daemon("agent").is_none().then_some(()));
    bed.tutti(1, &["run", "true"]).expect(0);
}
