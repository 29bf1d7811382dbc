//! Job arrays: one submission, many jobs that differ in an index.

use crate::harness::{Instance, eventually};
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};
use serde_json::Value;
use std::fs;

fn read(instance: &Instance, name: &str) -> String {
    fs::read_to_string(instance.work.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// What `ps` shows of the array itself, or of an element.
fn line_of(instance: &Instance, array: u64, index: Option<u64>) -> Option<Value> {
    let jobs = instance.jobs();
    let is_it = |job: &&Value| {
        job["array"]["job"].as_u64() == Some(array) && job["array"]["index"].as_u64() == index
    };
    jobs.iter().find(is_it).cloned()
}

#[test]
fn each_element_finds_its_index_and_has_its_own_file() {
    let instance = Instance::new().up();
    instance.script(
        "job",
        "#!/bin/sh\n#SBATCH --array=1-5:2%2\n\
         echo $TUTTI_ARRAY_JOB $TUTTI_ARRAY_INDEX $TUTTI_ARRAY_COUNT $TUTTI_ARRAY_MIN \
         $TUTTI_ARRAY_MAX $TUTTI_ARRAY_STEP ${SLURM_ARRAY_TASK_ID}\n\
         exit $TUTTI_ARRAY_INDEX\n",
    );
    let done = instance.tutti(&["batch", "./job"]).expect(0);
    let says = "array 1 is submitted: 3 elements, at most 2 at once\n\
                the output of element 1 goes to tutti-1_1.out\n";
    assert_eq!(done.text(), says);
    instance.tutti(&["wait", "1"]).expect(5);
    for index in [1, 3, 5] {
        let text = read(&instance, &format!("tutti-1_{index}.out"));
        assert_eq!(text, format!("1 {index} 3 1 5 2 {index}\n"));
    }
    let events = instance.tutti(&["events", "--since", "0", "--job", "1"]).expect(0).text();
    for word in ["job_submitted", "job_ended"] {
        assert_eq!(events.matches(word).count(), 1, "of the array: {events}");
    }
    instance.tutti(&["wait", "1_3"]).expect(3);
    instance.tutti(&["wait", "1_[1-3]"]).expect(3);
    let logs = instance.tutti(&["logs", "1_5"]).expect(0);
    assert!(logs.text().contains("1 5 3 1 5 2 5"), "{}", logs.text());
    let shown = instance.tutti(&["show", "1_5"]).expect(0).text();
    assert!(shown.contains("element 1_5"), "{shown}");
    let listed = instance.tutti(&["ps", "1"]).expect(0).text();
    for id in ["1_1", "1_3", "1_5"] {
        assert!(listed.contains(id), "no {id} in: {listed}");
    }
    assert!(listed.contains("0 ended well, 3 failed"), "{listed}");
    instance.tutti(&["wait", "1_2"]).expect(125).says("array 1 has no element 2");
}

#[test]
fn each_line_of_a_file_is_an_element() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("in.txt"), "first line\nsecond  line\r\nthird").unwrap();
    let submitted = instance.tutti(&[
        "submit",
        "--parsable",
        "--each-line",
        "in.txt",
        "-o",
        "o-%a",
        "sh",
        "-c",
        "echo \"$TUTTI_LINE\"; env | grep -c TUTTI_LINES",
    ]);
    let array = submitted.expect(0).text();
    instance.tutti(&["wait", array.trim()]).expect(1);
    let text: Vec<String> = (1..=3).map(|index| read(&instance, &format!("o-{index}"))).collect();
    assert_eq!(text, ["first line\n0\n", "second  line\n0\n", "third\n0\n"]);
    fs::write(instance.work.join("none"), "").unwrap();
    let limited = ["submit", "--each-line", "in.txt", "--at-once", "2", "-o", "/dev/null", "true"];
    let says = instance.tutti(&limited).expect(0).text();
    assert!(says.contains("3 elements, at most 2 at once"), "{says}");
    let twice = ["submit", "--array", "1-3%2", "--at-once", "2", "true"];
    instance.tutti(&twice).expect(1).says("give one");
    instance.tutti(&["submit", "--at-once", "2", "true"]).expect(1).says("--each-line");
    instance.tutti(&["submit", "--at-once", "0", "--array", "1", "true"]).expect(2);
    for file in ["none", "no-such"] {
        instance.tutti(&["submit", "--each-line", file, "true"]).expect(1).says(file);
    }
}

#[test]
fn waiting_elements_have_one_line_and_take_orders() {
    let instance = Instance::new().up();
    let nap = instance.nap.clone();
    let submit =
        ["submit", "--parsable", "--array", "0-99%1", "-o", "/dev/null", "sleep", nap.as_str()];
    let array: u64 = instance.tutti(&submit).expect(0).text().trim().parse().unwrap();
    let whole = array.to_string();
    let first = eventually("the first element", || {
        line_of(&instance, array, Some(0)).filter(|job| job["state"] == "running")
    });
    let listed = instance.tutti(&["ps"]).expect(0).text();
    assert!(listed.contains("1 run, 99 wait: for its limit of 1 elements"), "{listed}");
    assert_eq!(listed.lines().count(), 2, "one line for all: {listed}");
    let listed = instance.tutti(&["ps", &whole]).expect(0).text();
    assert!(listed.contains(&format!("{array}_0")), "{listed}");
    let waits = line_of(&instance, array, None).unwrap();
    assert_eq!(waits["wait"], "array-limit", "{waits}");
    let element = |word: &str| format!("{array}_{word}");
    instance.tutti(&["hold", &element("[1-49]")]).expect(0);
    instance.tutti(&["cancel", &element("[50-98]"), &element("0"), "--now"]).expect(0);
    eventually("the next element that is not held", || {
        line_of(&instance, array, Some(99)).filter(|job| job["state"] == "running")
    });
    let waits = line_of(&instance, array, None).unwrap();
    let elements = &waits["array"]["elements"];
    assert_eq!((&elements["held"], &elements["cancelled"]), (&49.into(), &50.into()), "{waits}");
    assert_eq!(waits["wait"], "held", "{waits}");
    instance.tutti(&["release", &element("[2-3]")]).expect(0);
    instance.tutti(&["cancel", &element("99"), "--now"]).expect(0);
    eventually("a released element", || line_of(&instance, array, Some(2)));
    instance.tutti(&["wait", &element("60")]).expect(143);
    let shown = instance.tutti(&["show", "last"]).expect(0).text();
    assert!(shown.starts_with(&format!("job {array} (")), "the array, not an element: {shown}");
    assert_eq!(first["job"], array + 1, "an element is a job of its own");
    instance.tutti(&["cancel", &whole, "--now"]).expect(0);
    instance.tutti(&["wait", &whole]).expect(143);
    assert!(instance.jobs().iter().all(|job| job["state"] == "ended"));
}

#[test]
fn a_job_starts_after_all_elements_of_an_array() {
    let instance = Instance::new().up();
    let parsable = |words: &[&str]| {
        let words = [&["submit", "--parsable", "-o", "/dev/null"], words].concat();
        instance.tutti(&words).expect(0).text().trim().to_owned()
    };
    let array = parsable(&["--array", "1-4%1", "sh", "-c", "sleep 0.2; echo x >> done"]);
    let after = parsable(&["--after", &array, "sh", "-c", "wc -l < done > seen"]);
    instance.tutti(&["wait", &after]).expect(0);
    assert_eq!(read(&instance, "seen").trim(), "4");
    let failing = parsable(&["--array", "1-2", "false"]);
    instance.tutti(&["wait", &failing]).expect(1);
    instance.tutti(&["submit", "--after", &failing, "true"]).expect(120).says("never");
}

#[test]
fn elements_start_after_those_of_the_same_index() {
    let instance = Instance::new().up();
    let parsable = |words: &[&str]| {
        let words = [&["submit", "--parsable", "-o", "/dev/null"], words].concat();
        instance.tutti(&words).expect(0).text().trim().to_owned()
    };
    let line =
        "while [ ! -e go-$TUTTI_ARRAY_INDEX ]; do sleep 0.05; done; test $TUTTI_ARRAY_INDEX != 2";
    let first = parsable(&["--array", "1-3", "sh", "-c", line]);
    let each = format!("{first}:each");
    let second =
        parsable(&["--array", "1-3", "--after", &each, "sh", "-c", ": > did-$TUTTI_ARRAY_INDEX"]);
    let waits = instance.tutti(&["ps", "--json", &second]).expect(0).text();
    assert!(waits.contains("element by element"), "{waits}");
    let touch = |name: &str| fs::write(instance.work.join(name), "").unwrap();
    let did = |index: u32| instance.work.join(format!("did-{index}")).exists();
    touch("go-3");
    eventually("the third", || did(3).then_some(()));
    assert!(!did(1) && !did(2));
    // The next controller knows what may start.
    kill_daemon(&instance, "controller");
    touch("go-2");
    touch("go-1");
    instance.tutti(&["wait", &second]).expect(120);
    assert!(did(1) && !did(2));
    // It is judged likewise now that the first has ended, from what is stored, too.
    kill_daemon(&instance, "controller");
    let again = ["--array", "1-3", "--after", &each, "sh", "-c", ": > again-$TUTTI_ARRAY_INDEX"];
    let third = parsable(&again);
    instance.tutti(&["wait", &third]).expect(120);
    let again = |index: u32| instance.work.join(format!("again-{index}")).exists();
    assert_eq!([1, 2, 3].map(again), [true, false, true]);
    let keep = ["--array", "2-3", "--after", &each, "--if-never", "keep", "true"];
    let kept = parsable(&keep);
    eventually("the element that may start", || {
        let shown = instance.tutti(&["ps", "--json", &kept]).expect(0).json();
        let elements = &shown[0]["array"]["elements"];
        (elements["ok"] == 1 && elements["unmade"] == 1).then_some(())
    });
    instance.tutti(&["cancel", &kept]).expect(0);
    instance
        .tutti(&["submit", "--array", "2", "--after", &each, "true"])
        .expect(120)
        .says("not all of its elements well");
    instance.tutti(&["submit", "--array", "3-4", "--after", &each, "true"]).expect(120);
    instance.tutti(&["submit", "--after", &each, "true"]).expect(120);
}

#[test]
fn a_killed_controller_knows_each_element_again() {
    let instance = Instance::new().up();
    let array = instance.tutti(&[
        "submit",
        "--parsable",
        "--array",
        "0-19%2",
        "-o",
        "/dev/null",
        "sh",
        "-c",
        "sleep 0.1; echo $TUTTI_ARRAY_INDEX >> done",
    ]);
    let array = array.expect(0).text().trim().to_owned();
    eventually("some elements", || (read_or_empty(&instance).lines().count() > 2).then_some(()));
    let controller = nix::unistd::Pid::from_raw(instance.daemon("controller"));
    nix::sys::signal::kill(controller, nix::sys::signal::Signal::SIGKILL).unwrap();
    instance.tutti(&["wait", &array]).expect(0);
    let mut indices: Vec<u32> =
        read_or_empty(&instance).lines().map(|line| line.parse().unwrap()).collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..20).collect::<Vec<u32>>(), "each once");
}

fn read_or_empty(instance: &Instance) -> String {
    fs::read_to_string(instance.work.join("done")).unwrap_or_default()
}

#[test]
fn wrong_indices_are_rejected() {
    let instance = Instance::new().up();
    for (word, says) in [
        ("5-1", "goes down"),
        ("a", "invalid index"),
        ("", "at least one index"),
        ("0-100000", "at most 100000 elements"),
        ("1,1", "named twice"),
        ("1-3%0", "invalid limit"),
    ] {
        instance.tutti(&["submit", "--array", word, "true"]).expect(2).says(says);
    }
    let both = ["submit", "--array", "1", "--each-line", "x", "true"];
    instance.tutti(&both).expect(2).says("--each-line");
    assert_eq!(instance.jobs().len(), 0);
    let single = instance.submit(&["-o", "/dev/null", "true"]).to_string();
    instance.tutti(&["cancel", &format!("{single}_3")]).expect(1);
}

#[test]
fn names_of_slurm_show_and_take_elements() {
    let instance = faced();
    let slurm = |words: &[&str]| slurm(&instance, words);
    let submitted = slurm(&[
        "sbatch",
        "--parsable",
        "-a",
        "1-9%1",
        "-o",
        "s-%A_%a.%3a",
        "--wrap",
        "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT; sleep 60",
    ]);
    let array = submitted.expect(0).text().trim().to_owned();
    eventually("an element", || {
        let text = slurm(&["squeue", "-h", "-t", "R", "-o", "%i %F %K"]).expect(0).text();
        (text.trim() == format!("{array}_1 {array} 1")).then_some(())
    });
    let text = slurm(&["squeue", "-h", "-t", "PD", "-o", "%i %r"]).expect(0).text();
    assert_eq!(text.trim(), format!("{array}_[2-9%1] JobArrayTaskLimit"));
    // A client asks for one element, whether it is a job yet or not.
    let waits = format!("{array}_7");
    for words in [
        ["squeue", "-h", "-j", &waits, "-o", "%i %T"].as_slice(),
        &["sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", &waits],
    ] {
        let text = slurm(words).expect(0).text();
        let is_pending = text.starts_with(&format!("{array}_[2-9%1]")) && text.contains("PENDING");
        assert!(is_pending, "{words:?}: {text}");
    }
    let file = format!("s-{array}_1.001");
    eventually("its output", || {
        let text = fs::read_to_string(instance.work.join(&file)).ok()?;
        (text == format!("{array} 1 9\n")).then_some(())
    });
    let shown = slurm(&["scontrol", "show", "job", &format!("{array}_1")]).expect(0).text();
    assert!(shown.contains(&format!("ArrayJobId={array} ArrayTaskId=1")), "{shown}");
    slurm(&["scancel", &format!("{array}_[2-8]"), &format!("{array}_1")]).expect(0);
    eventually("the last element", || {
        let text = slurm(&["squeue", "-h", "-t", "R", "-o", "%i"]).expect(0).text();
        (text.trim() == format!("{array}_9")).then_some(())
    });
    slurm(&["scancel", &array]).expect(0);
    instance.tutti(&["wait", &array]);
    let text = slurm(&["sacct", "-X", "-n", "-P", "-o", "JobID", "-j", &array]).expect(0);
    let lines = text.sorted();
    let cancelled = |index: u32| format!("{array}_{index}");
    assert_eq!(lines, [cancelled(1), cancelled(9)], "those that were in line");
}

#[test]
fn orders_reach_the_elements_that_are_meant_and_no_others() {
    let instance = faced();
    let slurm = |words: &[&str]| slurm(&instance, words);
    let submitted = slurm(&[
        "sbatch",
        "--parsable",
        "-a",
        "1-9%1",
        "-o",
        "/dev/null",
        "--wrap",
        "exec sleep 600",
    ]);
    let array = submitted.expect(0).text().trim().to_owned();
    let number: u64 = array.parse().unwrap();
    let element = |word: &str| format!("{array}_{word}");
    let runs = || slurm(&["squeue", "-h", "-t", "R", "-o", "%i"]).expect(0).text();
    eventually("an element", || (runs().trim() == element("1")).then_some(()));
    let elements = || line_of(&instance, number, None).unwrap()["array"]["elements"].clone();
    // The first runs, so neither of these is about it; the others run in no case.
    slurm(&["scancel", "-t", "PENDING", &element("[1-2]")]).expect(0);
    slurm(&["scancel", "-t", "RUNNING", &element("[3-9]")]).expect(0);
    slurm(&["scancel", "-t", "CONFIGURING", &array]).expect(0);
    let found = elements();
    assert_eq!((&found["running"], &found["unmade"]), (&1.into(), &7.into()), "{found}");
    instance.tutti(&["wait", &element("2")]).expect(143);
    slurm(&["scontrol", "hold", &element("[3,5-6]")]).expect(0);
    assert_eq!(elements()["held"], 3);
    let after = ["submit", "--after", &element("[1,3]"), "true"];
    instance.tutti(&after).expect(1).says("only 1 of the elements").says("--after 1 for all");
    instance.tutti(&["signal", "USR1", &format!("{array}.0")]).expect(1).says("is an array");
    let suspended = instance.tutti(&["suspend", &element("[1,3]")]).expect(0);
    suspended.says("1 element of array 1 left out");
    instance.tutti(&["resume", &element("1")]).expect(0);
    slurm(&["scancel", "--me", "-t", "PD"]).expect(0);
    let found = elements();
    assert_eq!((&found["running"], &found["unmade"]), (&1.into(), &0.into()), "{found}");
    slurm(&["scancel", "-t", "RUNNING,SUSPENDED", &array]).expect(0);
    instance.tutti(&["wait", &array]).expect(143);
}
