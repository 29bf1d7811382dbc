//! On which processors the processes of jobs run, whatever they ask for.

use crate::harness::{Done, Instance, NOBODY, Running, compile, eventually, own_processors};
use crate::steps::batch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program that tries to run on every processor.
fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/affinity.c");
            compile("cc", &source, "affinity")
        })
        .clone()
}

/// What it said: its name, on which processors it could run, and where it may in the end.
fn attempts(text: &str) -> Vec<[String; 3]> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    text.lines().map(|line| words(line).try_into().unwrap_or_else(|_| panic!("{text}"))).collect()
}

/// Everyone of it could run on these processors alone.
fn expect_only(done: &Done, processors: &str) {
    let attempts = attempts(&done.text());
    let names: Vec<&str> = attempts.iter().map(|attempt| attempt[0].as_str()).collect();
    assert_eq!(names, ["process", "thread", "child", "daemon"], "{}", done.text());
    for [who, could, may] in &attempts {
        assert_eq!([could, may], [processors; 2], "{who}");
    }
}

fn need_two() -> Vec<usize> {
    let all = own_processors();
    assert!(all.len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
    all
}

#[test]
fn a_job_of_one_processor_can_bind_itself_to_no_other() {
    need_two();
    let instance = Instance::of_the_system_alone().up();
    let doctor = instance.tutti(&["doctor"]).text();
    assert!(doctor.contains("CPU binding"), "{doctor}");
    let program = instance.share(&program()).display().to_string();
    // Beside one that has another.
    let other = instance.submit_spinner(1);
    let others = instance.wait_for_state(other, "running")["placement"][0].to_string();
    for user in [None, Some(NOBODY)] {
        let line = format!("echo $TUTTI_PROCESSORS; exec {program}");
        let command = instance.command_as(user, &["run", "sh", "-c", &line]);
        let mut done = Running::start(command).wait().expect(0);
        let text = done.text();
        let (own, rest) = text.split_once('\n').unwrap();
        done.out = rest.as_bytes().to_vec();
        assert!(!others.contains(&format!(":{own}\"")), "{others} is another job's");
        expect_only(&done, own);
    }
    instance.tutti(&["cancel", "--now", &other.to_string()]).expect(0);
}

#[test]
fn tasks_with_own_processors_can_bind_themselves_to_none_of_each_others() {
    need_two();
    let instance = Instance::of_the_system_alone().up();
    let program = program().display().to_string();
    let line = format!("echo $TUTTI_PROCESSORS >own-$TUTTI_RANK; exec {program} >said-$TUTTI_RANK");
    instance.tutti(&["run", "-n", "2", "sh", "-c", &line]).expect(0);
    let read = |name: &str, rank| {
        std::fs::read_to_string(instance.work.join(format!("{name}-{rank}"))).unwrap()
    };
    for rank in 0..2 {
        let own = read("own", rank);
        for [who, could, may] in attempts(&read("said", rank)) {
            assert_eq!([could, may], [own.trim(); 2], "rank {rank}: {who}");
        }
    }
    assert_ne!(read("own", 0), read("own", 1));
}

#[test]
fn tasks_of_steps_can_bind_themselves_to_no_processor_of_another() {
    need_two();
    let instance = Instance::of_the_system_alone().up();
    let program = program().display().to_string();
    let task = |name: &str| {
        let own = format!("own-{name}-$TUTTI_RANK");
        format!("echo $TUTTI_PROCESSORS >{own}; exec {program} >said-{name}-$TUTTI_RANK")
    };
    // First one step of two tasks, then two of one beside each other.
    let text = format!(
        "$T run -n 2 sh -c '{}'\n\
         $T run -n 1 sh -c 'sleep 1; {}' &\n$T run -n 1 sh -c 'sleep 1; {}' &\nwait",
        task("wide"),
        task("one"),
        task("other")
    );
    let job = batch(&instance, "steps", &text);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    let read = |name: String| std::fs::read_to_string(instance.work.join(name)).unwrap();
    let mut owns = Vec::new();
    for task in ["wide-0", "wide-1", "one-0", "other-0"] {
        let own = read(format!("own-{task}"));
        for [who, could, may] in attempts(&read(format!("said-{task}"))) {
            assert_eq!([could, may], [own.trim(); 2], "{task}: {who}");
        }
        owns.push(own);
    }
    assert_ne!(owns[0], owns[1]);
    assert_ne!(owns[2], owns[3]);
    assert!(!instance.log().contains("T073"), "{}", instance.log());
}

#[test]
fn tasks_that_share_processors_can_use_all_of_their_job() {
    let all = need_two();
    let instance = Instance::of_the_system_alone().up();
    let program = program().display().to_string();
    let tasks = (all.len() * 2).to_string();
    let done = instance.tutti(&["run", "-n", &tasks, &program]).expect(0);
    let list: Vec<String> = all.iter().map(usize::to_string).collect();
    for [who, could, _] in attempts(&done.text()) {
        assert_eq!(could, list.join(","), "{who}");
    }
}

/// Where a process may run, as the kernel writes it.
fn mask(pid: i32) -> String {
    crate::harness::status_of(pid, "Cpus_allowed_list").unwrap_or_default()
}

fn bind(pid: i32, processors: &str) {
    let mut taskset = Command::new("taskset");
    let set = taskset.args(["-pc", processors, &pid.to_string()]).output().unwrap();
    assert!(set.status.success(), "{set:?}");
}

#[test]
fn where_nothing_holds_them_processes_are_brought_back() {
    let all = need_two();
    let instance = Instance::of_nobody().up();
    let doctor = instance.tutti(&["doctor", "-v"]).text();
    assert!(doctor.contains("brought back only within a second"), "{doctor}");
    let line = "sleep $NAP & echo $TUTTI_PROCESSORS $$ $! up; wait";
    let running = instance.start(&["run", "-n", "1", "-c", "1", "sh", "-c", line]);
    running.wait_for("up");
    let out = running.out();
    let [own, pids @ ..] = &*out.split_whitespace().collect::<Vec<_>>() else { panic!("{out}") };
    let away = all.iter().map(usize::to_string).find(|it| it != own).unwrap();
    // The root and a child of it, alone and beside its own processor.
    let both: Vec<i32> = pids.iter().filter_map(|pid| pid.parse().ok()).collect();
    bind(both[0], &away);
    bind(both[1], &format!("{own},{away}"));
    for pid in both {
        eventually("it is brought back", || (mask(pid) == *own).then_some(()));
    }
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    running.wait().expect(137);
    // A task of a further step too.
    let program = instance.program.display();
    let task = "echo $TUTTI_PROCESSORS $$ >it; mv it is; exec sleep $NAP";
    let line = format!("{program} run -n 1 sh -c '{task}'");
    let done = instance.tutti(&["batch", "--parsable", "-n", "1", "--wrap", &line]).expect(0);
    let job = done.text();
    let said = instance.work.join("is");
    let said = eventually("a step", || std::fs::read_to_string(&said).ok());
    let (own, pid) = said.trim().split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    let away = all.iter().map(usize::to_string).find(|it| it != own).unwrap();
    bind(pid, &away);
    eventually("it is brought back", || (mask(pid) == *own).then_some(()));
    instance.tutti(&["cancel", "--now", job.trim()]).expect(0);
}

#[test]
fn ranks_of_two_mpiruns_side_by_side_have_different_processors() {
    need_two();
    let version = Command::new("mpirun.openmpi").arg("--version").output();
    version.expect("this test needs mpirun.openmpi of Open MPI: run tests/install-deps");
    let instance = Instance::of_the_system_alone().up();
    let line = "mpirun.openmpi -n 1 sh -c 'echo up; exec sleep $NAP'";
    let jobs: Vec<Running> = (0..2)
        .map(|_| {
            let mut command = instance.command(&["run", "-n", "1", "-c", "1", "sh", "-c", line]);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            Running::start(command)
        })
        .collect();
    jobs.iter().for_each(|job| job.wait_for("up"));
    let sleeps: Vec<i32> = instance
        .nappers()
        .into_iter()
        .filter(|&pid| crate::harness::status_of(pid, "Name").as_deref() == Some("sleep"))
        .collect();
    let masks: Vec<String> = sleeps.iter().map(|&pid| mask(pid)).collect();
    assert!(masks.len() == 2 && masks[0] != masks[1], "{masks:?}");
    assert!(masks.iter().all(|mask| mask.parse::<u32>().is_ok()), "{masks:?}");
    // Either may have become job 1.
    instance.tutti(&["cancel", "--now", "1", "2"]).expect(0);
    for running in jobs {
        running.wait().expect(137);
    }
}
