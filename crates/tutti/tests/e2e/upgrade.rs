//! `tutti upgrade`: the instance upgrades to another executable, and jobs do not notice.

use crate::cluster::Bed;
use crate::harness::{
    Instance, PATIENCE, Running, compile, copy_program, eventually, player, within,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Another executable: the same program at another place, as a package would put it there.
fn another(instance: &Instance, name: &str) -> PathBuf {
    let copy = instance.work.join(name);
    copy_program(&instance.program, &copy);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

/// An executable that does what this shell line does, with the real one's path in `$TUTTI`.
fn wrapper(instance: &Instance, name: &str, line: &str) -> PathBuf {
    let text = format!("#!/bin/sh\nTUTTI='{}'\n{line}\n", instance.program.display());
    instance.script(name, &text);
    instance.work.join(name)
}

fn upgrade(instance: &Instance, to: &Path) -> crate::harness::Done {
    instance.tutti(&["upgrade", to.to_str().unwrap()])
}

pub(crate) fn supervisor(instance: &Instance) -> i32 {
    std::fs::read_to_string(instance.dir.join("lock")).unwrap().trim().parse().unwrap()
}

/// What a process executes now.
fn executable(pid: i32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

/// Fails unless all daemons run this executable, the keeper and the supervisor in the processes
/// they had.
#[track_caller]
fn expect_all_on(instance: &Instance, program: &Path, before: (i32, i32)) {
    assert_eq!((supervisor(instance), instance.daemon("keeper")), before, "another process");
    for role in ["keeper", "controller", "agent"] {
        assert_eq!(executable(instance.daemon(role)), program, "{role}");
    }
    assert_eq!(executable(before.0), program, "supervisor");
}

fn mpi_solver() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/solver.c");
    compile("mpicc.mpich", &source, "solver-upgrade")
}

#[test]
fn no_job_fails_and_no_byte_is_lost_or_doubled_while_all_parts_upgrade_twice() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "quantum=10ms"]).expect(0);
    let before = (supervisor(&instance), instance.daemon("keeper"));
    let (player, solver) = (player().display().to_string(), mpi_solver().display().to_string());
    let begun = |args: &[&str]| instance.start(args);
    let solving = begun(&["run", "-n", "2", &solver, "300", "20000"]);
    let lines = begun(&["run", "-n", "2", "-l", &player, "lines", "60000"]);
    let slowly = "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); sleep 0.005; done; exit 3";
    let slow = begun(&["run", "-n", "2", "sh", "-c", slowly]);
    let mut typed = instance.start_typing(&["run", "-n", "2", "-i", "all", "cat"]);
    let filed = instance.submit(&["-o", "numbers", "sh", "-c", slowly]);
    let shared = instance.submit(&["-n", "2", "-o", "shared", "sh", "-c", slowly]);
    slow.wait_for("\n5\n");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let short: Vec<_> = (0..3)
            .map(|user| {
                let (instance, done) = (&instance, &done);
                scope.spawn(move || {
                    let mut count = 0;
                    while !done.load(Ordering::SeqCst) {
                        let text = format!("{user} {count}");
                        let ran = instance.tutti(&["run", "-n", "2", "echo", &text]).expect(0);
                        assert_eq!(ran.text(), format!("{text}\n{text}\n"));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for round in 0..2 {
            let to = another(&instance, &format!("release-{round}"));
            typed.type_in(format!("before {round}\n").as_bytes());
            upgrade(&instance, &to).expect(0);
            typed.type_in(format!("after {round}\n").as_bytes());
            expect_all_on(&instance, &to, before);
        }
        done.store(true, Ordering::SeqCst);
        let counts: Vec<i32> = short.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    });
    let solved = solving.wait_within(PATIENCE * 3).expect(0).text();
    assert!(solved.contains("300 iterations") && solved.contains("ok"), "{solved}");
    let typed = typed.wait().expect(0).sorted();
    assert_eq!(typed, ["after 0", "after 1", "before 0", "before 1"].map(|it| [it; 2]).concat());
    let numbers = |times: usize| {
        let mut all: Vec<String> = (0..400).map(|n| n.to_string()).collect();
        all = all.iter().flat_map(|n| std::iter::repeat_n(n.clone(), times)).collect();
        all.sort();
        all
    };
    assert_eq!(slow.wait().expect(3).sorted(), numbers(2));
    instance.tutti(&["wait", &filed.to_string()]).expect(3);
    let filed = std::fs::read_to_string(instance.work.join("numbers")).unwrap();
    assert_eq!(filed.lines().map(str::to_owned).collect::<Vec<_>>(), {
        (0..400).map(|n| n.to_string()).collect::<Vec<_>>()
    });
    instance.tutti(&["wait", &shared.to_string()]).expect(3);
    let shared = std::fs::read_to_string(instance.work.join("shared")).unwrap();
    let mut shared: Vec<String> = shared.lines().map(str::to_owned).collect();
    shared.sort();
    assert_eq!(shared, numbers(2));
    expect_whole_lines(&lines.wait_within(PATIENCE * 3).expect(0).text(), 2, 60000);
    for job in instance.jobs() {
        assert!(job["code"].is_null(), "{job}");
    }
    let report = instance.tutti(&["replay", "--json"]).expect(0).json();
    assert!(report["agrees"] == true, "{report}");
}

/// Each rank's lines, "RANK: RANK NUMBER LENGTH xxx", all there, once, in order.
#[track_caller]
fn expect_whole_lines(text: &str, ranks: usize, each: usize) {
    let mut next = vec![0; ranks];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let rank: usize = words[1].parse().unwrap();
        assert_eq!(words[0], format!("{rank}:"), "{line}");
        assert_eq!(words[2].parse::<usize>().unwrap(), next[rank], "rank {rank}");
        assert_eq!(
            words.get(4).map_or(0, |x| x.len()),
            words[3].parse::<usize>().unwrap(),
            "{line}"
        );
        next[rank] += 1;
    }
    assert_eq!(next, vec![each; ranks]);
}

#[test]
fn jobs_without_cgroups_survive_an_upgrade_too() {
    let instance = Instance::of_nobody().up();
    instance.tutti(&["params", "quantum=50ms"]).expect(0);
    let line = "setsid sleep $NAP & echo up; cat; exit 6";
    let mut typed = instance.start_typing(&["run", "-n", "2", "-i", "all", "sh", "-c", line]);
    typed.wait_for("up\nup\n");
    let nappers = eventually("both", || Some(instance.nappers()).filter(|found| found.len() == 2));
    let before = (supervisor(&instance), instance.daemon("keeper"));
    for round in 0..2 {
        let to = another(&instance, &format!("release-{round}"));
        upgrade(&instance, &to).expect(0);
        expect_all_on(&instance, &to, before);
        assert_eq!(instance.nappers(), nappers);
        instance.tutti(&["run", "-n", "2", "true"]).expect(0);
    }
    typed.type_in(b"still\n");
    typed.close_input();
    let done = typed.wait().expect(6);
    assert_eq!(done.text(), "up\nup\nstill\nstill\n");
    instance.expect_no_nappers();
}

#[test]
fn turns_go_on_and_who_was_suspended_stays_so() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "quantum=20ms"]).expect(0);
    let all = std::thread::available_parallelism().unwrap().to_string();
    let jobs = [0, 1].map(|_| instance.submit_spinner(all.parse().unwrap()));
    let third = instance.submit(&["-o", "/dev/null", "sh", "-c", "sleep $NAP"]);
    instance.wait_for_state(third, "running");
    instance.tutti(&["suspend", &third.to_string()]).expect(0);
    let to = another(&instance, "release");
    upgrade(&instance, &to).expect(0);
    within(Duration::from_secs(20), "turns by the new agent", || {
        let taken = |job| instance.switches().iter().filter(|it| it.came.contains(&job)).count();
        jobs.iter().all(|&job| taken(job) > 3).then_some(())
    });
    instance.wait_for_state(third, "suspended");
    for job in jobs.into_iter().chain([third]) {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
    instance.expect_no_nappers();
}

#[test]
fn an_executable_that_is_no_good_is_refused_and_nothing_happens() {
    let instance = Instance::new().up();
    let running = instance.start_typing(&["run", "cat"]);
    let pids =
        |instance: &Instance| ["keeper", "controller", "agent"].map(|role| instance.daemon(role));
    eventually("the job", || {
        instance.jobs().iter().any(|it| it["state"] == "running").then_some(())
    });
    let before = (supervisor(&instance), pids(&instance));
    let garbage = instance.work.join("garbage");
    std::fs::write(&garbage, "\x7fELF and no more").unwrap();
    std::fs::set_permissions(&garbage, std::fs::Permissions::from_mode(0o755)).unwrap();
    let older = "echo 'tutti: the keeper that runs would hand over form 9; tutti 0.0.1 understands form 8' >&2; exit 1";
    let shell = |name, line| wrapper(&instance, name, line);
    for (to, says) in [
        (garbage, "cannot execute"),
        (instance.work.join("nothing"), "No such file"),
        (PathBuf::from("/bin/true"), "is no tutti"),
        (shell("broken", "exit 3"), "exit status: 3"),
        (shell("older", older), "form 9; tutti 0.0.1 understands form 8"),
        (shell("hangs", "exec sleep 100"), "did not say within"),
        // It can take over, and what runs here would not understand it.
        (
            shell("newer", "echo protocol 999"),
            "version 999 of the protocol, and what takes the output of job 1",
        ),
    ] {
        upgrade(&instance, &to).expect(1).says(says).says("[T015]");
        assert_eq!((supervisor(&instance), pids(&instance)), before, "{says}");
    }
    // It says what it needs to, and can't be executed by the time that it is to be.
    let vanishing = instance.work.join("vanishing");
    let line = format!("echo protocol 4; rm -f '{}'", vanishing.display());
    let line =
        line.replace("protocol 4", &format!("protocol {}", tutti_wire::limits::PROTOCOL_VERSION));
    shell("vanishing", &line);
    upgrade(&instance, &vanishing).expect(1).says("cannot execute").says("[T015]");
    assert_eq!((supervisor(&instance), pids(&instance)), before);
    instance.tutti(&["upgrade", "--no-such-option"]).expect(2);
    instance.tutti(&["run", "true"]).expect(0);
    running.wait().expect(0);
    // The journal lacks what the controller alone knows: so a controller says that it could not
    // write it.
    let gap = instance.dir.join("clock.gap");
    std::fs::write(&gap, "").unwrap();
    let good = another(&instance, "good");
    let pids_before = pids(&instance);
    upgrade(&instance, &good).expect(1).says("the journal can't be written").says("[T015]");
    assert_eq!(pids(&instance), pids_before);
    std::fs::remove_file(&gap).unwrap();
    // It is asked which journals it reads.
    let handover = tutti_wire::handover::FORM.to_string();
    let directory = instance.dir.display().to_string();
    let reads = |form: u32| {
        let asked = ["keeper", "--can-take-over", &handover, "--reads-journal", &form.to_string()];
        instance.tutti(&[&asked[..], &["--directory", &directory]].concat())
    };
    reads(tutti_journal::SCHEMA_VERSION).expect(0);
    reads(tutti_journal::SCHEMA_VERSION + 1).expect(1).says("reads forms up to");
    let asks = "case \"$*\" in *--reads-journal*) exit 7;; esac; echo protocol 999";
    upgrade(&instance, &shell("asked", asks)).expect(1).says("exit status: 7");
    // With no peer of our version, it may be.
    let line =
        "[ \"$2\" = --can-take-over ] && { echo protocol 999; exit; }\nexec \"$TUTTI\" \"$@\"";
    upgrade(&instance, &shell("newer", line)).expect(0);
    instance.tutti(&["run", "true"]).expect(0);
    drop(instance);
    let none = Instance::new();
    none.tutti(&["upgrade"]).expect(1).says("no instance runs").says("[T010]");
}

#[test]
fn only_the_owner_or_root_may_say_so() {
    let instance = Instance::of_the_system_alone().up();
    let program = instance.share(&instance.program.clone()).display().to_string();
    let as_nobody = instance.command_as(Some(crate::harness::NOBODY), &["upgrade", &program]);
    Running::start(as_nobody).wait().expect(1).says("[T020]");
    // A connection that says nothing, or anything else, holds up none.
    let path = instance.dir.join("supervisor.sock");
    let mute = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut noise = std::os::unix::net::UnixStream::connect(&path).unwrap();
    std::io::Write::write_all(&mut noise, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let to = another(&instance, "release");
    upgrade(&instance, &to).expect(0);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut noise, &mut said).unwrap();
    assert!(said.starts_with("refused "), "{said}");
    drop(mute);
    instance.tutti(&["run", "true"]).expect(0);
}

/// A part that ends while it is upgraded has ended as ever: jobs of a keeper are lost, and
/// reported.
#[test]
fn a_part_that_ends_on_the_way_is_started_again() {
    let check = "case \"$*\" in *--can-take-over*) exec \"$TUTTI\" \"$@\";; esac\n";
    // The keeper does not get through: its jobs are lost, the instance goes on with what it had.
    let instance = Instance::new().up();
    let running = instance.start_typing(&["run", "sh", "-c", "echo up; sleep $NAP"]);
    running.wait_for("up");
    let to = wrapper(&instance, "keeper-ends", &format!("{check}exit 1"));
    upgrade(&instance, &to).expect(1).says("the keeper ended");
    running.wait().expect(121).says("[T040]");
    instance.expect_no_nappers();
    instance.tutti(&["run", "echo", "works"]).expect(0);
    assert_eq!(executable(instance.daemon("keeper")), instance.program);
    // The supervisor does not: what it supervised runs on, as after any end of it.
    let mut running = instance.start_typing(&["run", "sh", "-c", "echo up; cat; exit 4"]);
    running.wait_for("up");
    let line = format!("{check}[ \"$1\" = keeper ] && exec \"$TUTTI\" \"$@\"\nexit 1");
    let to = wrapper(&instance, "supervisor-ends", &line);
    upgrade(&instance, &to).expect(1).says("the supervisor went away");
    running.type_in(b"still\n");
    assert_eq!(running.wait().expect(4).text(), "up\nstill\n");
}

#[test]
fn a_part_that_is_killed_at_any_moment_of_it_costs_what_it_costs_at_any_other() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for (role, rounds) in [("keeper", 6), ("controller", 3), ("agent", 3)] {
        let instance = Instance::new().up();
        let to = another(&instance, "release");
        for _ in 0..rounds {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let running = instance.start_typing(&["run", "sh", "-c", "echo up; cat; exit 4"]);
            running.wait_for("up");
            let victim = instance.daemon(role);
            let upgrading = {
                let mut command = instance.command(&["upgrade", to.to_str().unwrap()]);
                command.stdin(Stdio::null());
                Running::start(command)
            };
            let until = Instant::now() + Duration::from_micros(state % 60_000);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
            // Done, or refused with the reason; never without an answer.
            let upgraded = upgrading.wait();
            assert!([0, 1].contains(&upgraded.code), "{upgraded:?}");
            let done = running.wait();
            let expected: &[i32] = if role == "keeper" { &[121] } else { &[4] };
            assert!(expected.contains(&done.code), "{role}: {done:?}");
            within(PATIENCE, "an instance that runs jobs", || {
                (instance.tutti(&["run", "true"]).code == 0).then_some(())
            });
        }
        upgrade(&instance, &to).expect(0);
        instance.tutti(&["run", "true"]).expect(0);
    }
}

#[test]
fn the_machines_of_a_cluster_upgrade_one_after_the_other() {
    let bed = Bed::up(3, &[0]);
    let line =
        "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.005; done; exit $TUTTI_RANK";
    // From the head, with ranks far away; and from a member, so that all of it passes its agent.
    let runs = [1, 3].map(|from| bed.start(from, &["run", "-N", "3", "-n", "3", "sh", "-c", line]));
    for run in &runs {
        run.wait_for("\n9\n");
    }
    let to = another(&bed.audit, "release").display().to_string();
    for node in 1..=3 {
        bed.tutti(node, &["upgrade", &to]).expect(0);
    }
    let mut expected: Vec<String> = (0..300).flat_map(|n| [n; 3]).map(|n| n.to_string()).collect();
    expected.sort();
    for run in runs {
        assert_eq!(run.wait_within(PATIENCE * 2).expect(2).sorted(), expected);
    }
    eventually("all nodes", || bed.states().values().all(|state| state == "up").then_some(()));
    bed.tutti(2, &["run", "-N", "3", "-n", "3", "true"]).expect(0);
}

#[test]
fn what_waits_for_a_reader_waits_on() {
    let instance = Instance::new().up();
    let go = "while [ ! -e go ]; do sleep 0.01; done";
    // A task that does not read yet what was typed for it: more than pipes and sockets hold.
    let line = format!("echo up; {go}; cksum");
    let mut typed = instance.start_typing(&["run", "sh", "-c", &line]);
    typed.wait_for("up");
    let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let told = text.clone();
    let typed = std::thread::spawn(move || {
        typed.type_in(&told);
        typed.close_input();
        typed.wait().expect(0).text()
    });
    // Readers that do not read yet what tasks print: fewer lines than the front end would fetch
    // itself, and more.
    let player = player().display().to_string();
    let stalled = [500, 20_000].map(|lines| {
        let run = format!("tutti run -n 2 -l {player} lines {lines}");
        let reader = format!("{{ {go}; cat; }}");
        (
            lines,
            std::thread::spawn({
                let mut command = instance.shell_command(&format!("{run} | {reader}"));
                move || {
                    command.stdin(Stdio::null());
                    Running::start(command).wait().expect(0).text()
                }
            }),
        )
    });
    eventually("all three", || {
        let running = instance.jobs().iter().filter(|job| job["state"] == "running").count();
        let ended = instance.jobs().iter().filter(|job| job["state"] == "ended").count();
        (running + ended == 3).then_some(())
    });
    for round in 0..2 {
        upgrade(&instance, &another(&instance, &format!("release-{round}"))).expect(0);
    }
    std::fs::write(instance.work.join("go"), "").unwrap();
    let mut sum = std::process::Command::new("cksum");
    let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut sum.stdin.take().unwrap(), &text).unwrap();
    let expected = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(typed.join().unwrap(), format!("up\n{expected}"));
    for (lines, run) in stalled {
        expect_whole_lines(&run.join().unwrap(), 2, lines);
    }
}
