//! Devices of nodes: what is shown, which a job gets, what it finds in its environment.

use crate::harness::{Instance, NOBODY, Running, needs_root};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

/// What stands for a device: `/dev/zero` and `/dev/full`, in the directory of a test.
pub(crate) const ZERO: (u64, u64) = (1, 5);
const FULL: (u64, u64) = (1, 7);

/// A device file that all may open.
pub(crate) fn stand_in(instance: &Instance, name: &str, (major, minor): (u64, u64)) -> PathBuf {
    needs_root("to make device files");
    let path = instance.work.canonicalize().unwrap().join(name);
    mknod(&path, SFlag::S_IFCHR, Mode::empty(), makedev(major, minor)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    path
}

pub(crate) fn node_of(instance: &Instance) -> String {
    instance.tutti(&["nodes", "--json"]).expect(0).json()[0]["name"].as_str().unwrap().to_owned()
}

/// Gives the only node two GPUs, and says which files they have.
pub(crate) fn with_two(instance: &Instance) -> (String, [PathBuf; 2]) {
    let node = node_of(instance);
    let files = [("zero", ZERO), ("full", FULL)].map(|(name, it)| stand_in(instance, name, it));
    let setting = format!("gpu:0={},gpu:1={}", files[0].display(), files[1].display());
    instance.tutti(&["nodes", "device", &node, &setting]).expect(0);
    (node, files)
}

pub(crate) fn listed(instance: &Instance) -> Value {
    let all = instance.tutti(&["nodes", "device", "--json"]).expect(0).json();
    all.as_object().unwrap().values().next().unwrap().clone()
}

#[test]
fn a_job_finds_its_devices_and_another_waits_until_they_are_free() {
    let instance = Instance::new().up();
    assert_eq!(listed(&instance), json!([]), "nothing is found where nothing is");
    let (node, files) = with_two(&instance);
    let two = listed(&instance);
    assert_eq!((&two[0]["device"], &two[1]["device"]), (&"gpu:0".into(), &"gpu:1".into()));
    assert_eq!(two[0]["files"], json!([files[0].to_str().unwrap()]));
    assert_eq!((&two[0]["origin"], &two[0]["jobs"]), (&"named".into(), &json!([])));
    let line = "echo got $TUTTI_DEVICES $TUTTI_RESOURCE_GPU; env | grep -c VISIBLE; sleep $NAP";
    let holds = instance.start(&["run", "--gpus", "2", "sh", "-c", line]);
    holds.wait_for(&format!("got {},{} 0,1", files[0].display(), files[1].display()));
    let show = "echo $TUTTI_RESOURCE_GPU > number";
    let waits = instance.submit(&["--device", "gpu:1/task", "sh", "-c", show]);
    let job = instance.job(waits);
    assert_eq!((&job["state"], &job["resources"]), (&"queued".into(), &json!(["gpu:1/task"])));
    assert!(job["reason"].as_str().unwrap().contains("what nodes have of gpu"), "{job}");
    assert_eq!(instance.job(1)["resources"], json!(["gpu=0,1"]));
    assert_eq!(listed(&instance)[1]["jobs"], json!([1]));
    let nodes = instance.tutti(&["nodes"]).expect(0).text();
    assert!(nodes.contains("DEVICES") && nodes.contains("gpu:2/2"), "{nodes}");
    assert!(instance.tutti(&["ps"]).expect(0).text().contains("[gpu=0,1]"));
    assert!(instance.tutti(&["show", "1"]).expect(0).text().contains("gpu:0, gpu:1"));
    // What was named, and what jobs have, outlives the controller.
    let before = listed(&instance);
    crate::recovery::kill_daemon(&instance, "controller");
    assert_eq!(listed(&instance), before);
    // What is taken away stays with the job that has it.
    instance.tutti(&["nodes", "device", &node, "gpu:1=none"]).expect(0);
    assert_eq!(listed(&instance).as_array().unwrap().len(), 1);
    assert_eq!(instance.job(1)["state"], "running");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    holds.wait().expect(137);
    instance.tutti(&["wait", &waits.to_string()]).expect(0);
    assert_eq!(std::fs::read_to_string(instance.work.join("number")).unwrap().trim(), "0");
    instance.tutti(&["run", "--gpus", "2", "true"]).expect(120).says("ask for at most gpu:1");
    instance.tutti(&["run", "--device", "fpga", "true"]).expect(120).says("no node has a device");
    instance.tutti(&["run", "--gpus", "0", "true"]).expect(2).says("write NAME, NAME:COUNT");
}

#[test]
fn tasks_find_the_gpus_of_their_job_in_the_words_of_their_libraries_and_of_slurm() {
    let instance = crate::slurm::faced();
    let (_, _) = with_two(&instance);
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:2 --output=out\n\
                  echo $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE $CUDA_DEVICE_ORDER\n\
                  echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $ZE_AFFINITY_MASK\n\
                  srun sh -c 'echo step $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES'\n";
    instance.script("job.sh", script);
    crate::slurm::slurm(&instance, &["sbatch", "--wait", "job.sh"]).expect(0);
    let out = std::fs::read_to_string(instance.work.join("out")).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, ["0,1 2 PCI_BUS_ID", "0,1 0,1 0,1", "step 0,1 0,1"]);
    let gres = crate::slurm::slurm(&instance, &["sinfo", "-h", "-o", "%G"]).expect(0).text();
    assert!(gres.contains("gpu:2"), "{gres}");
    // A job that asked for none finds none of the submitter's.
    let mut command = instance.command(&["run", "sh", "-c", "echo cuda:$CUDA_VISIBLE_DEVICES."]);
    command.env("CUDA_VISIBLE_DEVICES", "7");
    assert_eq!(Running::start(command).wait().expect(0).text(), "cuda:.\n");
}

#[test]
fn only_files_of_devices_that_not_all_need_can_be_named() {
    let instance = Instance::new().up();
    let (node, files) = with_two(&instance);
    let before = listed(&instance);
    let link = files[0].with_file_name("link");
    symlink(&files[0], &link).unwrap();
    let twin = stand_in(&instance, "twin", ZERO);
    let long = format!("/dev/{}", "x".repeat(300));
    let says = |setting: &str, text: &str| {
        instance.tutti(&["nodes", "device", &node, setting]).expect(1).says(text);
    };
    says("gpu:2=/etc/passwd", "is no character device");
    says("gpu:2=/dev/null", "open to every process");
    says("gpu:2=/nowhere", "No such file");
    says("gpu:2=dev/zero", "absolute path");
    says("gpu:2=/dev/../dev/zero", "without '..'");
    says(&format!("gpu:2={long}"), "at most 255 bytes");
    says(&format!("gpu:2={}", link.display()), "is a link");
    says(&format!("gpu:2={}", twin.display()), "as is a file of gpu:0");
    says("gpu:2=acme.example/gpu=7", "is in no file of /var/run/cdi and /etc/cdi");
    says("gpu:2=acme=7", "write VENDOR/CLASS=NAME");
    says("gpu=/dev/zero", "write NAME:NUMBER");
    says("GPU:2=/dev/zero", "invalid name");
    says("gpu:1024=/dev/zero", "a number below 1024");
    says("gpu:2", "sets nothing");
    says("gpu:2=none", "has no device gpu:2");
    says(&format!("gpu:0=none,gpu:2={}", twin.display()), "in two commands");
    says(&format!("gpu:2={0}+{0}", twin.display()), "as is a file of");
    instance.tutti(&["nodes", "device", "nowhere", "gpu:2=/dev/zero"]).expect(1).says("no node");
    assert_eq!(listed(&instance), before);
    // Its own file may be said again, and the other way round.
    let setting = format!("gpu:0={}", twin.display());
    instance.tutti(&["nodes", "device", &node, &setting]).expect(0);
    assert_eq!(listed(&instance)[0]["files"], json!([twin.to_str().unwrap()]));
}

#[test]
fn output_of_several_tasks_goes_to_no_device_that_is_closed_to_their_job() {
    let instance = Instance::new().up();
    let (_, files) = with_two(&instance);
    let file = files[0].to_str().unwrap();
    for tasks in ["1", "2"] {
        let job = instance.submit(&["-n", tasks, "-o", file, "echo", "hi"]).to_string();
        instance.tutti(&["wait", &job]).expect(126).says("cannot open output file");
    }
    let own = instance.submit(&["-n", "2", "--gpus", "2", "-o", file, "echo", "hi"]);
    instance.tutti(&["wait", &own.to_string()]).expect(0);
}

/// A description of devices, which goes with the value.
struct Description(PathBuf);

impl Drop for Description {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        // If it is empty.
        let _ = fs::remove_dir("/run/cdi");
    }
}

#[test]
fn a_name_of_the_container_device_interface_stands_for_the_files_of_a_device() {
    let instance = Instance::new().up();
    let node = node_of(&instance);
    let file = stand_in(&instance, "fpga", ZERO);
    let vendor = format!("tutti-{}.example", std::process::id());
    let text = json!({
        "cdiVersion": "0.6.0",
        "kind": format!("{vendor}/fpga"),
        "devices": [
            {"name": "a", "containerEdits": {"deviceNodes": [{"path": file}]}},
            {"name": "b", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}},
        ],
        "containerEdits": {"deviceNodes": [{"path": "/dev/full"}]},
    });
    fs::create_dir_all("/run/cdi").unwrap();
    let description = Description(PathBuf::from(format!("/run/cdi/{vendor}.json")));
    fs::write(&description.0, text.to_string()).unwrap();
    let name = |setting: &str| instance.tutti(&["nodes", "device", &node, setting]);
    name(&format!("fpga:0={vendor}/fpga=a")).expect(0);
    assert_eq!(listed(&instance)[0]["files"], json!([file]));
    name(&format!("fpga:1={vendor}/fpga=b")).expect(1).says("open to every process");
    name(&format!("fpga:1={vendor}/fpga=c")).expect(1).says(&format!("there are {vendor}/fpga=a"));
    let ran = instance.tutti(&["run", "--device", "fpga", "sh", "-c", "echo $TUTTI_DEVICES"]);
    assert_eq!(ran.expect(0).text().trim(), file.to_str().unwrap());
}

#[test]
fn only_administrators_name_devices() {
    let instance = Instance::of_the_system().up();
    let node = node_of(&instance);
    let own = instance.command_as(Some(NOBODY), &["nodes", "device", &node, "gpu:0=/dev/full"]);
    Running::start(own).wait().expect(1).says("only root").says("[T020]");
}

/// Opens files, and says of each how that went.
const TRY: &str = "for f in $FILES; do if (: < $f) 2>/dev/null; then echo opened $f; \
                   else echo closed $f; fi; done";

/// What a task of a job says that tries to open these files, run with these options.
pub(crate) fn tries(
    instance: &Instance,
    user: Option<u32>,
    options: &[&str],
    files: &[&str],
) -> Vec<String> {
    let line = format!("FILES='{}'; {TRY}", files.join(" "));
    let words = [&["run"], options, &["sh", "-c", &line]].concat();
    let done = Running::start(instance.command_as(user, &words)).wait().expect(0);
    done.text().lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_job_opens_its_own_devices_and_no_others() {
    let instance = Instance::of_the_system().up();
    let before = tries(&instance, None, &[], &["/dev/zero"]);
    assert_eq!(before, ["opened"], "the node has no devices yet");
    let (_, files) = with_two(&instance);
    let [zero, full] = [0, 1].map(|index: usize| files[index].to_str().unwrap());
    for user in [None, Some(NOBODY)] {
        let without = tries(&instance, user, &[], &[zero, full, "/dev/full", "/dev/null"]);
        assert_eq!(
            without,
            ["closed", "closed", "closed", "opened"],
            "by its number, not its path"
        );
        let with_one = tries(&instance, user, &["--gpus", "1"], &[zero, full]);
        assert_eq!(with_one, ["opened", "closed"]);
        let with_both = tries(&instance, user, &["--gpus", "2"], &[zero, full]);
        assert_eq!(with_both, ["opened", "opened"]);
    }
    // Its tasks see it as the first of all.
    let show = "echo $TUTTI_RESOURCE_GPU:$CUDA_VISIBLE_DEVICES";
    let holds = instance.submit(&["--gpus", "1", "sh", "-c", "exec 3<$TUTTI_DEVICES; sleep $NAP"]);
    instance.wait_for_state(holds, "running");
    let shown = instance.tutti(&["run", "--gpus", "1", "sh", "-c", show]).expect(0).text();
    assert_eq!(shown, "1:0\n");
}

#[test]
fn a_device_that_vanishes_and_comes_back_is_closed_to_jobs_that_began_meanwhile() {
    let instance = Instance::new().up();
    let (_, files) = with_two(&instance);
    let [zero, full] = files.each_ref().map(|file| file.to_str().unwrap());
    fs::remove_file(zero).unwrap();
    // The job that gets it finds no file, and the other device is as before.
    let line = "cat $TUTTI_DEVICES";
    instance.tutti(&["run", "--gpus", "1", "sh", "-c", line]).expect(1).says("No such file");
    let line =
        format!("echo began; while ! test -e {zero}; do sleep 0.05; done; sleep 0.1; cat {zero}");
    let without = instance.start(&["run", "sh", "-c", &line]);
    without.wait_for("began");
    instance.tutti(&["run", "--gpus", "2", "test", "-c", full]).expect(0);
    stand_in(&instance, "zero", ZERO);
    without.wait().expect(1).says("Operation not permitted");
    instance.tutti(&["run", "--gpus", "1", "head", "-c", "1", zero]).expect(0);
}

#[test]
fn a_device_that_comes_back_with_other_numbers_is_closed_to_the_jobs_before_it() {
    let instance = Instance::new().up();
    let (_, files) = with_two(&instance);
    let zero = files[0].to_str().unwrap();
    let line = format!("echo began; while ! test -e go; do sleep 0.05; done; : < {zero}");
    let start = |words: &[&str]| {
        let job = instance.start(&[&["run"], words, &["sh", "-c", &line]].concat());
        job.wait_for("began");
        job
    };
    let (without, with) = (start(&[]), start(&["--gpus", "1"]));
    fs::remove_file(zero).unwrap();
    // What the kernel prints: another device, as far as numbers go.
    stand_in(&instance, "zero", (1, 11));
    std::thread::sleep(Duration::from_millis(1500));
    instance.script("go", "");
    without.wait().says("Operation not permitted");
    with.wait().expect(0);
}

#[test]
fn a_device_that_no_agent_has_seen_is_closed_to_the_jobs_before_it_when_it_comes() {
    let instance = Instance::new().up();
    let (_, files) = with_two(&instance);
    let zero = files[0].to_str().unwrap();
    fs::remove_file(zero).unwrap();
    crate::recovery::kill_daemon(&instance, "agent");
    let line =
        format!("echo began; while ! test -e {zero}; do sleep 0.05; done; sleep 0.5; cat {zero}");
    let without = instance.start(&["run", "sh", "-c", &line]);
    without.wait_for("began");
    // Nor has the next one, which takes the job over.
    crate::recovery::kill_daemon(&instance, "agent");
    instance.tutti(&["run", "true"]).expect(0);
    stand_in(&instance, "zero", ZERO);
    without.wait().expect(1).says("Operation not permitted");
    instance.tutti(&["run", "--gpus", "1", "head", "-c", "1", zero]).expect(0);
}

#[test]
fn no_way_around_leads_a_job_to_the_device_of_another() {
    let instance = Instance::of_the_system().up();
    let (_, files) = with_two(&instance);
    let zero = files[0].to_str().unwrap();
    let line = "exec 3<$TUTTI_DEVICES; echo holds $$; sleep $NAP";
    let holds = instance.start(&["run", "--gpus", "1", "sh", "-c", line]);
    holds.wait_for("holds ");
    let pid = holds.out().split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(tries(&instance, None, &[], &[zero, &format!("/proc/{pid}/fd/3")]), ["closed"; 2]);
    // A file of the same device, made by root itself.
    let made = instance.work.join("made");
    let line = format!("mknod {} c 1 5 || echo refused", made.display());
    assert!(instance.tutti(&["run", "sh", "-c", &line]).expect(0).text().contains("refused"));
    assert!(!made.exists());
    // The group of the other job, for a user that may not write there.
    let group = crate::harness::group_of(pid.parse().unwrap());
    let line = format!(
        "echo $$ > /sys/fs/cgroup{group}/cgroup.procs; echo $$ > /sys/fs/cgroup/unified{group}/cgroup.procs; \
         (: < {zero}) || echo refused"
    );
    let own = instance.command_as(Some(NOBODY), &["run", "sh", "-c", &line]);
    assert!(Running::start(own).wait().expect(0).text().contains("refused"));
    // What it makes beside its group, and what it starts.
    let line = format!("setsid sh -c '(: < {zero}) || echo refused'");
    assert!(instance.tutti(&["run", "sh", "-c", &line]).expect(0).text().contains("refused"));
}

#[test]
fn devices_stay_closed_when_the_agent_is_another_and_new_ones_close_at_once() {
    let instance = Instance::of_the_system().up();
    let (node, files) = with_two(&instance);
    let [zero, full] = [0, 1].map(|index: usize| files[index].to_str().unwrap());
    let naps = instance.submit(&["--gpus", "1", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(naps, "running");
    let opened = |file: &str| {
        let line = format!("(: < {file}) 2>/dev/null && echo opened || echo closed");
        let done = instance.tutti(&["exec", &naps.to_string(), "sh", "-c", &line]).expect(0);
        done.text().trim() == "opened"
    };
    assert!(opened(zero) && !opened(full));
    crate::recovery::kill_daemon(&instance, "agent");
    assert!(opened(zero) && !opened(full), "the program is at the group still");
    let cuda = "echo cuda:$CUDA_VISIBLE_DEVICES";
    let step = instance.tutti(&["exec", &naps.to_string(), "sh", "-c", cuda]).expect(0);
    assert_eq!(step.text().trim(), "cuda:0");
    let tty = stand_in(&instance, "loop", (10, 237));
    let setting = format!("disk:0={}", tty.display());
    instance.tutti(&["nodes", "device", &node, &setting]).expect(0);
    let line = format!("(: < {}) 2>&1 || true", tty.display());
    let said = instance.tutti(&["exec", &naps.to_string(), "sh", "-c", &line]).expect(0).text();
    assert!(said.contains("not permitted"), "{said}");
}

#[test]
fn a_node_without_devices_pays_nothing_at_a_launch() {
    let instance = Instance::of_the_system().up();
    let closes = |options: &[&str]| {
        let line = "echo at $$; sleep $NAP";
        let words = [&["run"], options, &["sh", "-c", line]].concat();
        let job = instance.start(&words);
        job.wait_for("at ");
        let pid: i32 = job.out().split_whitespace().nth(1).unwrap().parse().unwrap();
        let group = crate::harness::group_of(pid);
        let top = tutti_linux::cgroup::mount_points();
        let group = top.iter().map(|top| top.join(group.trim_start_matches('/')));
        // The group of the job: above those of its steps and tasks.
        let groups: Vec<_> =
            group.flat_map(|it| it.ancestors().map(Into::into).collect::<Vec<PathBuf>>()).collect();
        let found = groups.iter().filter(|path| {
            let open = tutti_linux::cgroup::Cgroup::open(path);
            open.is_ok_and(|group| group.closes_devices())
        });
        let count = found.count();
        job.signal(nix::sys::signal::Signal::SIGTERM);
        job.wait();
        count
    };
    assert_eq!(closes(&[]), 0);
    with_two(&instance);
    assert_eq!((closes(&[]), closes(&["--gpus", "1"])), (1, 1));
}
