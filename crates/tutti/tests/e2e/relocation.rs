//! Jobs whose image is restored on another node (`TUTTI_IMAGES`), or that wait for their node.
//!
//! The nodes of a test bed have one file system, and keepers, cgroups and networks of their own.

use crate::cluster::Bed;
use crate::harness::{Instance, Running, eventually, within};
use serde_json::Value;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// To find out that a node is lost takes its lease, and more on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Two nodes with CRIU; images are in a directory that both share, or each has its own.
fn bed(shares: bool) -> (Bed, PathBuf) {
    let bed = Bed::of(2, &[0]);
    let criu = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("criu/criu");
    assert!(criu.exists(), "there is no {}: run tests/install-deps --criu", criu.display());
    crate::checkpoint_image::keep_names(&bed.audit.work);
    let shared = bed.audit.work.join("shared");
    DirBuilder::new().mode(0o711).recursive(true).create(&shared).unwrap();
    let start = |number: usize, args: &[&str]| {
        let mut command = bed.node(number).tutti(args);
        command.env("TUTTI_CRIU", &criu).env_remove("TUTTI_IMAGES");
        if shares {
            command.env("TUTTI_IMAGES", &shared);
        }
        Running::start(command).wait().expect(0);
    };
    let address = bed.node(1).address();
    start(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]);
    bed.tutti(1, &["params", "foreign=0%", "lease=2s"]).expect(0);
    let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
    start(2, &["join", &address, token.trim(), "--name", "n2"]);
    bed.audit.script(
        "count.sh",
        "#!/bin/bash\necho mine > $TMPDIR/own; exec 5< $TMPDIR/own; count=0\n\
         while [ ! -e stop ]; do count=$((count + 1)); echo $count; sleep 0.02; done\n\
         read -u 5 own; echo $own; exit 5\n",
    );
    (bed, shared)
}

/// Only this node takes jobs.
fn only(bed: &Bed, name: &str) {
    for (node, verb) in [("n1", "drain"), ("n2", "drain"), (name, "resume")] {
        bed.tutti(1, &["nodes", verb, node]).expect(0);
    }
}

fn submit(bed: &Bed) {
    let words = ["submit", "--checkpoint", "--on-node-loss", "requeue", "-o", "out"];
    let limits = ["-m", "64M", "-t", "1h", "./count.sh"];
    bed.tutti(1, &[&words[..], &limits].concat()).expect(0);
    goes_on(bed);
}

fn out(bed: &Bed) -> String {
    fs::read_to_string(bed.audit.work.join("out")).unwrap_or_default()
}

fn goes_on(bed: &Bed) {
    let before = out(bed).lines().count();
    let shown = || bed.tutti(1, &["show", "1"]).text();
    let until = Instant::now() + LONG;
    while out(bed).lines().count() <= before + 5 {
        assert!(Instant::now() < until, "it does not go on: {}", shown());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn job(bed: &Bed) -> Value {
    bed.tutti(1, &["ps", "--json", "1"]).expect(0).json()[0].clone()
}

fn runs_on(bed: &Bed, node: &str) {
    within(LONG, "it runs there", || {
        let job = job(bed);
        let there = job["placement"].to_string().contains(&format!("\"{node}:"));
        (job["state"] == "running" && there).then_some(())
    });
}

/// It counts to the end, with each number once.
fn ends_well(bed: &Bed) {
    goes_on(bed);
    fs::write(bed.audit.work.join("stop"), "").unwrap();
    bed.tutti(1, &["wait", "1"]).expect(5);
    let text = out(bed);
    let numbers = text.strip_suffix("mine\n").expect(&text);
    let expected: String = (1..=numbers.lines().count()).map(|it| format!("{it}\n")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn a_job_is_restored_on_another_node_when_its_own_is_drained_and_when_that_is_lost() {
    let (bed, shared) = bed(true);
    only(&bed, "n1");
    submit(&bed);
    runs_on(&bed, "n1");
    bed.tutti(1, &["checkpoint", "--hold", "1"]).expect(0);
    only(&bed, "n2");
    bed.tutti(1, &["release", "1"]).expect(0);
    runs_on(&bed, "n2");
    goes_on(&bed);
    let shown = bed.tutti(1, &["show", "1"]).expect(0).text();
    assert!(shown.contains("64M"), "its limit holds there, too: {shown}");
    bed.tutti(1, &["checkpoint", "--keep-running", "1"]).expect(0);
    goes_on(&bed);
    bed.tutti(1, &["nodes", "resume", "n1"]).expect(0);
    bed.bed().kill(bed.node(2)).unwrap();
    runs_on(&bed, "n1");
    ends_well(&bed);
    eventually("its images are removed", || {
        let left: Vec<_> =
            fs::read_dir(&shared).unwrap().flatten().map(|it| it.file_name()).collect();
        (left == ["tutti-images"]).then_some(())
    });
}

#[test]
fn an_image_of_another_kind_of_machine_is_refused_and_kept() {
    let (bed, shared) = bed(true);
    only(&bed, "n1");
    submit(&bed);
    bed.tutti(1, &["checkpoint", "--hold", "1"]).expect(0);
    let mut jobs = fs::read_dir(&shared).unwrap().flatten().map(|it| it.path());
    let image = jobs.find(|it| it.is_dir()).unwrap().join("kept/image");
    let machine = image.join("tutti-machine");
    let own = fs::read_to_string(&machine).unwrap();
    fs::write(&machine, format!("{} avx9\n", own.trim_end())).unwrap();
    only(&bed, "n2");
    bed.tutti(1, &["release", "1"]).expect(0);
    let why = eventually("it is refused", || {
        let shown = bed.tutti(1, &["show", "--json", "1"]).expect(0).json();
        let checkpoint = shown[0]["details"]["checkpoint"].clone();
        (checkpoint["last"] == "not-restored").then(|| checkpoint["why"].to_string())
    });
    assert!(why.contains("a processor that has avx9, and the one here has not"), "{why}");
    eventually("it is held", || (job(&bed)["wait"] == "held").then_some(()));
    fs::write(&machine, own).unwrap();
    // The other node is tried next. An image that is not there is no reason to start anew.
    only(&bed, "n1");
    let elsewhere = image.with_file_name("elsewhere");
    fs::rename(&image, &elsewhere).unwrap();
    bed.tutti(1, &["release", "1"]).expect(0);
    eventually("it is not there", || {
        let shown = bed.tutti(1, &["show", "1"]).expect(0).text();
        shown.contains("there is no whole image in '").then_some(())
    });
    eventually("it is held", || (job(&bed)["wait"] == "held").then_some(()));
    fs::rename(&elsewhere, &image).unwrap();
    bed.tutti(1, &["release", "1"]).expect(0);
    runs_on(&bed, "n1");
    ends_well(&bed);
}

#[test]
fn a_job_whose_image_is_its_nodes_own_waits_for_it_and_says_so() {
    let (bed, _) = bed(false);
    only(&bed, "n1");
    submit(&bed);
    bed.tutti(1, &["checkpoint", "--hold", "1"]).expect(0);
    only(&bed, "n2");
    bed.tutti(1, &["release", "1"]).expect(0);
    let reason = "its image is on n1, and nodes share no directory of images: n1 is drained";
    eventually("it waits", || (job(&bed)["reason"] == reason).then_some(()));
    let start = bed.tutti(1, &["ps", "--start"]).expect(0).text();
    assert!(start.contains(reason), "{start}");
    only(&bed, "n1");
    runs_on(&bed, "n1");
    ends_well(&bed);
}

#[test]
fn a_directory_that_others_could_change_is_no_directory_for_images() {
    let instance = Instance::new();
    let path = |name: &str| instance.work.join(name);
    let up = |images: &Path| {
        let mut command = instance.command(&["up"]);
        command.env("TUTTI_IMAGES", images);
        Running::start(command).wait()
    };
    for (name, mode) in [("open", 0o777), ("images", 0o711)] {
        DirBuilder::new().mode(0o711).create(path(name)).unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    symlink(path("images"), path("link")).unwrap();
    for (name, why) in
        [("open", "only root may write"), ("link", "no link"), ("none", "cannot look")]
    {
        up(&path(name)).expect(1).says(why);
    }
    up(&path("images")).expect(1).says("others than root can put another in its place");
    crate::checkpoint_image::keep_names(&instance.work);
    up(&path("images")).expect(0);
    assert!(path("images/tutti-images").exists());
}
