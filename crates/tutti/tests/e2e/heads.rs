//! An instance that runs becomes the head of a cluster.

use crate::by_hand::{invitation, type_in};
use crate::cluster::Bed;
use crate::harness::{Instance, eventually};

fn state(bed: &Bed, job: &str) -> String {
    let job = bed.tutti(1, &["ps", "--json", job]).expect(0).json();
    job[0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn an_instance_that_runs_lets_others_join_and_its_jobs_run_on() {
    let bed = Bed::of_with_processors(2, 2);
    bed.tutti(1, &["up"]).expect(0);
    let count = "i=0; while [ $i -lt 600 ]; do echo $i; i=$((i+1)); sleep 0.005; done; exit 3";
    let counting = bed.start(1, &["run", "-n", "2", "-l", "--", "sh", "-c", count]);
    counting.wait_for("0: 5\n");
    let sleep = ["submit", "--parsable", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    let job = bed.tutti(1, &sleep).expect(0).text().trim().to_owned();
    eventually("it runs", || (state(&bed, &job) == "running").then_some(()));
    let keeper = bed.node(1).daemon("keeper");

    let up = bed.tutti(1, &["up", "--listen", bed.node(1).host()]).expect(0);
    assert!(up.text().contains("is the head of cluster tutti now; its jobs run on"));
    type_in(&bed, 2, &invitation(&up)).expect(0);
    assert_eq!(state(&bed, &job), "running");
    assert_eq!(bed.node(1).daemon("keeper"), keeper);
    let hosts = bed.tutti(1, &["run", "-N", "2", "-n", "2", "--", "hostname"]).expect(0);
    assert_eq!(hosts.sorted(), ["n1", "n2"]);
    let lines = counting.wait().expect(3).text();
    for rank in 0..2 {
        let of_rank = lines.lines().filter_map(|line| line.strip_prefix(&format!("{rank}: ")));
        let numbers: Vec<usize> = of_rank.map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers, (0..600).collect::<Vec<_>>(), "rank {rank}");
    }
    bed.tutti(1, &["cancel", &job]).expect(0);
}

#[test]
fn an_instance_that_can_not_become_a_head_goes_on_as_it_was() {
    let bed = Bed::of(1, &[0]);
    let host = bed.node(1).host();
    bed.tutti(1, &["up"]).expect(0);
    let sleep = ["submit", "--parsable", "-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    let job = bed.tutti(1, &sleep).expect(0).text().trim().to_owned();
    eventually("it runs", || (state(&bed, &job) == "running").then_some(()));
    // Its jobs are those of the machine that it is called.
    let named = bed.tutti(1, &["up", "--listen", host, "--name", "other"]).expect(1);
    named.says("end it first with `tutti down`").says("[T060]");
    let foreground = bed.tutti(1, &["up", "--listen", host, "--foreground"]).expect(1);
    foreground.says("end it first with `tutti down`");
    // The supervisor sees nothing where this one lies.
    let elsewhere = format!(
        "unshare -m sh -ec 'mount -t tmpfs none /mnt; cp {} /mnt/tutti; /mnt/tutti up --listen {host}'",
        bed.audit.program.display()
    );
    type_in(&bed, 1, &elsewhere).expect(1).says("cannot execute /mnt/tutti").says("[T015]");
    bed.tutti(1, &["invite"]).expect(1).says(&format!("`tutti up --listen {host}`"));
    assert_eq!(state(&bed, &job), "running");
    invitation(&bed.tutti(1, &["up", "--listen", host]).expect(0));
    assert_eq!(state(&bed, &job), "running");
    bed.tutti(1, &["cancel", &job]).expect(0);
}

#[test]
fn what_was_recorded_outlives_a_cluster_that_could_not_begin_and_one_that_was_left() {
    let instance = Instance::of_the_system();
    instance.tutti(&["up"]).expect(0);
    instance.tutti(&["run", "-J", "kept", "true"]).expect(0);
    let is_known = || {
        let known = instance.tutti(&["history", "--json"]).expect(0).json();
        assert_eq!(known[0]["name"], "kept", "{known}");
    };
    let elsewhere = format!(
        "unshare -m sh -ec 'mount -t tmpfs none /mnt; cp {} /mnt/tutti; /mnt/tutti up --listen 127.0.0.1'",
        instance.program.display()
    );
    instance.shell(&elsewhere).expect(1).says("cannot execute /mnt/tutti");
    is_known();
    for verb in [&["up", "--listen", "127.0.0.1"][..], &["down"], &["leave"], &["up"]] {
        instance.tutti(verb).expect(0);
    }
    is_known();
    instance.tutti(&["down"]).expect(0);
}

#[test]
fn one_of_several_makes_a_head_that_others_can_join_and_what_was_interrupted_is_begun_anew() {
    let bed = Bed::of(2, &[0]);
    let up = ["up", "--listen", bed.node(1).host()];
    bed.tutti(1, &["up"]).expect(0);
    // As one leaves it that is killed while it founds the cluster.
    let cluster = bed.node(1).directory().join("cluster");
    std::fs::create_dir(&cluster).unwrap();
    for file in ["authority.pem", "credentials.new", "register.json"] {
        std::fs::write(cluster.join(file), "half").unwrap();
    }
    let several: Vec<_> = (0..4).map(|_| bed.start(1, &up)).collect();
    let said: Vec<String> = several.into_iter().map(|it| it.wait().expect(0).text()).collect();
    let founded = said.iter().filter(|said| said.contains("is the head of cluster tutti now"));
    assert_eq!(founded.count(), 1, "{said:?}");
    let others = said.iter().filter(|said| said.contains("was up already")).count();
    assert_eq!(others, 3, "{said:?}");
    type_in(&bed, 2, &invitation(&bed.tutti(1, &["invite"]))).expect(0);
    bed.tutti(1, &["run", "-N", "2", "true"]).expect(0);
}
