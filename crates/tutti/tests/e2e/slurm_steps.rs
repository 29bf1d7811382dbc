//! Steps of jobs as Slurm's users know them: their numbers, lists, ends and signals.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};
use std::fs;

/// Starts a script of two slots, which is job 1. It writes to `out`.
fn script(instance: &Instance, text: &str) {
    instance.script("steps.sh", &format!("#!/bin/bash\n#SBATCH -n 2 -o out\n{text}\n"));
    slurm(instance, &["sbatch", "steps.sh"]).expect(0);
}

fn lines(instance: &Instance, words: &[&str]) -> Vec<String> {
    slurm(instance, words).expect(0).text().lines().map(str::to_owned).collect()
}

fn output(instance: &Instance) -> String {
    fs::read_to_string(instance.work.join("out")).unwrap_or_default()
}

#[test]
fn the_first_srun_of_a_script_is_step_0_and_the_script_is_no_numbered_step() {
    let instance = faced();
    let says = "$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_STEPID $SLURM_STEP_NUM_TASKS \
                $SLURM_STEP_NUM_NODES $SLURM_STEP_TASKS_PER_NODE $SLURM_NTASKS \
                $SLURM_JOB_NUM_NODES";
    script(
        &instance,
        &format!(
            "echo ${{SLURM_STEP_ID-absent}} ${{SLURM_STEP_NODELIST-absent}} $SLURM_NTASKS\n\
             srun -n 1 sh -c 'echo {says}'; srun sh -c 'echo {says}'\n\
             srun -n 1 sh -c '[ $SLURM_STEP_NODELIST.$SLURM_JOB_NAME = $SLURM_JOB_NODELIST.steps.sh ]' && echo same\n"
        ),
    );
    instance.tutti(&["wait", "1"]).expect(0);
    let wanted = ["absent absent 2", "1.0.0 1 1 1 1 1", "1.1.1 2 1 2 2 1", "1.1.1 2 1 2 2 1"];
    let said = output(&instance);
    assert_eq!(said.lines().collect::<Vec<_>>(), [&wanted[..], &["same"]].concat());
    // Without a script, the tasks of the job are its step 0.
    let line = "echo $SLURM_STEP_ID $SLURM_STEP_NUM_TASKS";
    assert_eq!(slurm(&instance, &["srun", "sh", "-c", line]).expect(0).text(), "0 1\n");
}

#[test]
fn steps_are_listed_and_one_of_them_is_ended_alone() {
    let instance = faced();
    script(
        &instance,
        "srun -n 1 -J left sleep $NAP & one=$!; sleep 0.2; srun -n 1 -J right sleep $NAP & two=$!\n\
         wait $one; echo left $?; wait $two; echo right $?; sleep $NAP; echo never",
    );
    let listed = |words: &[&str]| lines(&instance, &[&["squeue", "-h", "-s"], words].concat());
    let all = ["1.batch batch 1", "1.0 left 1", "1.1 right 1"];
    eventually("two steps", || (listed(&["-o", "%i %j %A"]) == all).then_some(()));
    assert_eq!(listed(&["-j", "1", "-o", "%i"]), ["1.batch", "1.0", "1.1"]);
    assert_eq!(listed(&["-j", "2", "-o", "%i"]), [""; 0]);
    assert_eq!(listed(&["1.1", "-o", "%i"]), ["1.1"]);
    let table = lines(&instance, &["squeue", "-s"]);
    let heading: Vec<&str> = table[0].split_whitespace().collect();
    assert_eq!(heading, ["STEPID", "NAME", "PARTITION", "USER", "TIME", "NODELIST"]);
    assert_eq!(table[2].split_whitespace().count(), 6, "{}", table[2]);
    let shown = lines(&instance, &["scontrol", "-o", "show", "step", "1.0"]);
    assert_eq!(shown.len(), 1, "{shown:?}");
    for says in ["StepId=1.0 ", "State=RUNNING", "CPUs=1 Tasks=1 Name=left "] {
        assert!(shown[0].contains(says), "no {says} in: {}", shown[0]);
    }
    assert_eq!(lines(&instance, &["scontrol", "-o", "show", "step", "1"]).len(), 3);
    slurm(&instance, &["scontrol", "show", "step", "1.7"]).expect(1).says("Invalid job id");
    slurm(&instance, &["scancel", "1.7"]).expect(1).says("job 1 has no step 7");
    slurm(&instance, &["scancel", "1.extern"]).expect(1).says("Invalid job id 1.extern");
    slurm(&instance, &["scancel", "1.0"]).expect(0);
    eventually("its end", || output(&instance).contains("left 143\n").then_some(()));
    assert_eq!(listed(&["-o", "%i"]), ["1.batch", "1.1"], "the job and the other step go on");
    slurm(&instance, &["scancel", "1.0"]).expect(0);
    slurm(&instance, &["scancel", "-s", "KILL", "1.1"]).expect(0);
    eventually("its end", || output(&instance).contains("right 137\n").then_some(()));
    slurm(&instance, &["scancel", "1.batch"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(143);
    assert!(!output(&instance).contains("never"), "the script ended, too");
    instance.expect_no_nappers();
}

#[test]
fn a_step_of_an_element_of_an_array_is_named_by_its_index() {
    let instance = faced();
    instance.script(
        "each.sh",
        "#!/bin/bash\nsrun sleep $NAP; echo ended $? > end-$SLURM_ARRAY_TASK_ID\nsleep $NAP\n",
    );
    slurm(&instance, &["sbatch", "-o", "/dev/null", "-a", "3", "each.sh"]).expect(0);
    let listed = || lines(&instance, &["squeue", "-h", "-s", "-o", "%i"]);
    eventually("a step", || (listed() == ["1_3.batch", "1_3.0"]).then_some(()));
    slurm(&instance, &["scancel", "1_3.0"]).expect(0);
    let end = instance.work.join("end-3");
    eventually("its end", || end.exists().then_some(()));
    eventually("its line", || (listed() == ["1_3.batch"]).then_some(()));
    slurm(&instance, &["scancel", "1"]).expect(0);
}

#[test]
fn a_signal_goes_to_steps_or_to_the_script_alone_as_scancel_is_asked() {
    let instance = faced();
    instance.script(
        "listen.sh",
        "trap 'echo $1 one' USR1; trap 'echo $1 two' USR2; trap 'echo $1 three' URG; touch $1\n\
         while [ ! -e stop ]; do sleep 0.05; done\n",
    );
    script(
        &instance,
        "bash listen.sh child & srun -n 1 bash listen.sh step &\nset script; . ./listen.sh; wait",
    );
    let listens = |it: &&str| instance.work.join(it).exists();
    eventually("all", || (["child", "step", "script"].iter().all(listens)).then_some(()));
    let heard = |word: &str, wanted: &[&str]| {
        let heard = || {
            let said = output(&instance);
            let mut all: Vec<String> =
                said.lines().filter(|it| it.ends_with(word)).map(str::to_owned).collect();
            all.sort();
            all
        };
        let wanted: Vec<String> = wanted.iter().map(|it| format!("{it} {word}")).collect();
        eventually(word, || (heard() == wanted).then_some(()));
    };
    slurm(&instance, &["scancel", "-s", "USR1", "1"]).expect(0);
    heard("one", &["step"]);
    slurm(&instance, &["scancel", "-b", "--signal=USR2", "1"]).expect(0);
    heard("two", &["script"]);
    slurm(&instance, &["scancel", "-f", "-s", "URG", "1"]).expect(0);
    heard("three", &["child", "script", "step"]);
    heard("one", &["step"]);
    heard("two", &["script"]);
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", "1"]).expect(0);
    // Without a script, the job's tasks are its step.
    let nap = ["run", "sh", "-c", "trap 'exit 9' USR1; touch up; while :; do sleep 0.05; done"];
    let job = instance.start(&nap);
    eventually("it runs", || instance.work.join("up").exists().then_some(()));
    slurm(&instance, &["scancel", "-s", "USR1", "2"]).expect(0);
    job.wait().expect(9);
    // To end the script is to end the job.
    slurm(&instance, &["sbatch", "-o", "/dev/null", "--wrap", "sleep $NAP; exit 0"]).expect(0);
    eventually("it runs", || (!instance.nappers().is_empty()).then_some(()));
    slurm(&instance, &["scancel", "-b", "3"]).expect(0);
    instance.tutti(&["wait", "3"]).expect(143);
    instance.expect_no_nappers();
}

#[test]
fn steps_that_have_ended_have_rows_also_when_their_job_has_ended() {
    let instance = faced();
    script(
        &instance,
        "srun -n 1 -J well true; srun -n 2 -J ill sh -c 'exit 3'\n\
         srun -n 1 sleep $NAP & sleep 0.2; touch ready; wait; exit 4",
    );
    eventually("the third", || instance.work.join("ready").exists().then_some(()));
    let fields = "JobID,JobName,NTasks,State,ExitCode";
    let rows = |more: &[&str]| {
        lines(&instance, &[&["sacct", "-n", "-P", "-j", "1", "-o", fields], more].concat())
    };
    let ended = ["1.0|well|1|COMPLETED|0:0", "1.1|ill|2|FAILED|3:0"];
    let running = ["1|steps.sh||RUNNING|0:0", "1.batch|batch|1|RUNNING|0:0"];
    let wanted = [&running[..], &ended, &["1.2|sleep|1|RUNNING|0:0"]].concat();
    eventually("rows", || (rows(&[]) == wanted).then_some(()));
    slurm(&instance, &["scancel", "1.2"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(4);
    // What is kept of it outlives the controller.
    kill_daemon(&instance, "controller");
    eventually("it answers", || (instance.tutti(&["ps"]).code == 0).then_some(()));
    let rows_now = rows(&[]);
    let cancelled = "1.2|sleep|1|CANCELLED|0:15";
    let first = ["1|steps.sh||FAILED|4:0", "1.batch|batch|1|FAILED|4:0"];
    assert_eq!(rows_now, [&first[..], &ended, &[cancelled]].concat());
    assert_eq!(rows(&["-X"]), ["1|steps.sh||FAILED|4:0"]);
    let shown = instance.tutti(&["show", "--json", "1"]).expect(0).json();
    assert_eq!(shown[0]["steps"][1]["exit_code"], 3, "{shown}");
    // The same in JSON.
    let json = slurm(&instance, &["sacct", "--json", "-j", "1"]).expect(0).json();
    let job = &json["jobs"][0];
    assert_eq!(job["state"]["current"][0], "FAILED");
    assert_eq!(job["exit_code"]["return_code"]["number"], 4);
    let names: Vec<_> =
        job["steps"].as_array().unwrap().iter().map(|it| it["step"]["id"].as_str()).collect();
    assert_eq!(names, [Some("1.batch"), Some("1.0"), Some("1.1"), Some("1.2")]);
    assert_eq!(job["steps"][3]["state"][0], "CANCELLED");
    let json = slurm(&instance, &["sacct", "--json", "-X", "-j", "1"]).expect(0).json();
    assert_eq!(json["jobs"][0]["steps"].as_array().unwrap().len(), 0);
}

/// More than are asked for at a time, over one connection.
#[test]
fn the_steps_of_many_jobs_are_listed_each_with_its_job() {
    let instance = faced();
    let wrap = "srun -n 1 sh -c 'exit $SLURM_ARRAY_TASK_ID'";
    slurm(&instance, &["sbatch", "-W", "-a", "0-69", "-o", "/dev/null", "--wrap", wrap]);
    let rows = lines(&instance, &["sacct", "-n", "-P", "-o", "JobID,ExitCode"]);
    let of_each = |element: u32| {
        [
            format!("1_{element}|{element}:0"),
            format!("1_{element}.batch|{element}:0"),
            format!("1_{element}.0|{element}:0"),
        ]
    };
    assert_eq!(rows, (0..70).flat_map(of_each).collect::<Vec<_>>());
    // In the order of their numbers, and each once.
    let json = slurm(&instance, &["sacct", "--json"]).expect(0).json();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 70);
}

/// A job that a script of Slurm's names starts on two nodes; what its script writes.
fn on_two_nodes(bed: &Bed, tasks: &str, line: &str) -> Vec<String> {
    let face = bed.audit.work.join("face");
    bed.tutti(1, &["slurm", "link", face.to_str().unwrap()]).expect(0);
    let wrap = format!("PATH={}:$PATH; {line}", face.display());
    let submit = ["batch", "--slurm", "--parsable", "-n", tasks, "-N", "2", "-o", "out", "--wrap"];
    let job = bed.tutti(1, &[&submit[..], &[&wrap]].concat()).expect(0).text().trim().to_owned();
    bed.tutti(1, &["wait", &job]).expect(0);
    let said = fs::read_to_string(bed.audit.work.join("out")).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn a_step_has_the_nodes_of_its_job_or_the_one_that_it_names() {
    let bed = Bed::up(2, &[]);
    let line = "srun --ntasks-per-node=1 hostname | sort; srun hostname | sort; \
                srun --nodes=1 --ntasks=1 -w n2 hostname; srun -N 1 -r 1 hostname; \
                srun -n 1 -w n9 true 2>&1; echo rc $?";
    let said = on_two_nodes(&bed, "2", line);
    assert_eq!(said[..6], ["n1", "n2", "n1", "n2", "n2", "n2"], "{said:?}");
    assert!(said[6].starts_with("srun: error: --nodelist=n9: Requested node"), "{said:?}");
    assert_eq!(said[7..], ["rc 1"]);
    // Fewer tasks than slots are on all nodes as well.
    let line = "srun -n 2 hostname | sort; srun -N 2 hostname | sort";
    assert_eq!(on_two_nodes(&bed, "4", line), ["n1", "n2", "n1", "n1", "n2", "n2"]);
}

#[test]
fn each_step_of_a_job_has_an_output_file_of_its_own_by_its_number() {
    let instance = faced();
    script(
        &instance,
        "srun -n 1 -o x-%J echo first; srun -n 1 -o x-%J echo second; srun -n 1 -o s-%2s echo third",
    );
    instance.tutti(&["wait", "1"]).expect(0);
    let read = |name: &str| fs::read_to_string(instance.work.join(name)).unwrap();
    assert_eq!([read("x-1.0"), read("x-1.1"), read("s-02")], ["first\n", "second\n", "third\n"]);
    // The tasks of an srun outside of a job are its step 0.
    slurm(&instance, &["srun", "-o", "x-%J", "echo", "alone"]).expect(0);
    assert_eq!(read("x-2.0"), "alone\n");
    let alone = ["run", "-o", "t-%j.%s", "echo", "own"];
    instance.tutti(&alone).expect(0);
    assert_eq!(read("t-3.0"), "own\n");
}

#[test]
fn what_is_refused_of_srun_and_salloc_is_an_error_of_theirs() {
    let instance = faced();
    script(
        &instance,
        "exec 2>&1; srun -n 4 true; echo rc $?; srun -n 1 --mem=900T true; echo rc $?",
    );
    instance.tutti(&["wait", "1"]).expect(0);
    let said = output(&instance);
    let said: Vec<&str> = said.lines().collect();
    let begins = "srun: error: Unable to create step for job 1: job 1 has ";
    assert!(said[0].starts_with(&format!("{begins}2 processors on 1 node")), "{said:?}");
    assert!(said[2].starts_with(begins) && said[2].contains("memory"), "{said:?}");
    assert_eq!((said[1], said[3], said.len()), ("rc 1", "rc 1", 4));
    assert!(!said.concat().contains("--outside"), "{said:?}");
    let nowhere = ["-w", "nosuch", "true"];
    slurm(&instance, &[&["srun"], &nowhere[..]].concat())
        .expect(1)
        .says("srun: error: Unable to allocate resources: ");
    slurm(&instance, &[&["salloc"], &nowhere[..]].concat())
        .expect(1)
        .says("salloc: error: Job submit/allocate failed: ");
    let missing = slurm(&instance, &["srun", "nosuch"]).expect(2);
    assert!(missing.err.starts_with("srun: error: "), "{}", missing.err);
}
