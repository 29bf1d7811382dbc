//! Terminals of tasks (`--pty`), in front of a real one.

use crate::harness::{Instance, NOBODY, copy_program, eventually, own_processors, status_of};
use crate::recovery::kill_daemon;
use crate::slurm::faced;
use crate::top::Watched;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Command;

/// A command with a terminal of its session, of 30 rows and 100 columns.
fn on_terminal(command: &Command) -> Watched {
    let mut session = Command::new("setsid");
    session.arg("--ctty").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => session.env(name, value),
            None => session.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        session.current_dir(directory);
    }
    Watched::of(session)
}

fn typing(instance: &Instance, words: &[&str]) -> Watched {
    on_terminal(&instance.command(words))
}

fn shows(front: &Watched, text: &str) {
    eventually(text, || front.text().contains(text).then_some(()));
}

fn send(front: &Watched, signal: Signal) {
    kill(Pid::from_raw(front.pid().cast_signed()), signal).unwrap();
}

/// What a shell says about its terminal.
const ABOUT: &str = "stty size; test -t 0 && test -t 1 && test -t 2 && echo all three; \
                     stat -c '%u %G %a' \"$(tty)\"";

#[test]
fn rank_0_has_a_terminal_of_the_users_size_which_belongs_to_the_user() {
    let of_user = Instance::new().up();
    let of_system = Instance::of_the_system().up();
    for (instance, user, uid) in [(&of_user, None, 0), (&of_system, Some(NOBODY), NOBODY)] {
        let words = ["run", "--pty", "sh", "-c", ABOUT];
        let mut front = on_terminal(&instance.command_as(user, &words));
        front.expect_code(0);
        shows(&front, &format!("30 100\r\nall three\r\n{uid} tty 620\r\n"));
        assert!(!front.is_raw());
    }
}

#[test]
fn keys_go_to_the_task_and_an_interrupt_ends_what_is_in_its_foreground() {
    let instance = Instance::new().up();
    let mut front = typing(&instance, &["run", "--pty", "sh", "-i"]);
    front.type_in("PS1='re''ady> '\r");
    shows(&front, "ready> ");
    assert!(front.is_raw());
    front.type_in("sleep $NAP\r");
    eventually("the sleep", || (instance.nappers().len() == 1).then_some(()));
    front.type_in("\x03");
    front.type_in("echo rc $((100 + $?))\r");
    shows(&front, "rc 230\r\n");
    instance.expect_no_nappers();
    // A stopped program is the shell's, and not that of the terminal in front.
    front.type_in("sleep $NAP\r");
    eventually("the sleep", || (instance.nappers().len() == 1).then_some(()));
    front.type_in("\x1a");
    front.type_in("jobs\r");
    shows(&front, "Stopped");
    front.resize(33, 44);
    let has_size = || {
        front.type_in("stty size\r");
        std::thread::sleep(std::time::Duration::from_millis(50));
        front.text().contains("33 44\r\n").then_some(())
    };
    eventually("the other size", has_size);
    front.type_in("kill %1\rexit 9\r");
    front.type_in("exit 9\r");
    front.expect_code(9);
    assert!(!front.is_raw());
}

#[test]
fn the_terminal_is_given_back_on_every_way_out() {
    let instance = Instance::alone().up();
    instance.tutti(&["params", "front_end_grace=100ms"]).expect(0);
    let begin = || {
        let words = ["run", "--grace", "100ms", "--pty", "sh", "-c", "echo up; sleep $NAP"];
        let front = typing(&instance, &words);
        shows(&front, "up\r\n");
        eventually("raw mode", || front.is_raw().then_some(()));
        front
    };
    type Way<'a> = (&'a str, i32, &'a dyn Fn(&Watched));
    let ways: [Way; 6] = [
        ("cancel", 143, &|_| drop(instance.tutti(&["cancel", "last"]).expect(0))),
        ("cancel --now", 137, &|_| drop(instance.tutti(&["cancel", "--now", "last"]).expect(0))),
        ("SIGTERM", 143, &|front| send(front, Signal::SIGTERM)),
        ("SIGHUP", 143, &|front| send(front, Signal::SIGHUP)),
        ("~.", 143, &|front| front.type_in("~.")),
        ("a lost keeper", 121, &|_| kill_daemon(&instance, "keeper")),
    ];
    for (way, code, end) in ways {
        let mut front = begin();
        end(&front);
        front.expect_code(code);
        assert!(!front.is_raw(), "{way}: {}", front.text());
        let said = front.text();
        let after = said.split("up\r\n").nth(1).unwrap().replace("\r\n", "");
        assert!(!after.contains('\n'), "{way}: a line without a return: {said:?}");
    }
    instance.expect_no_nappers();
}

#[test]
fn a_stopped_front_end_has_the_former_mode_and_sets_its_own_again() {
    let instance = Instance::new().up();
    let mut front = typing(&instance, &["run", "--pty", "sh", "-c", "echo up; cat; exit 4"]);
    shows(&front, "up\r\n");
    for _ in 0..2 {
        eventually("raw mode", || front.is_raw().then_some(()));
        send(&front, Signal::SIGTSTP);
        let state = || status_of(front.pid().cast_signed(), "State");
        eventually("a stop", || state().is_some_and(|it| it.starts_with('T')).then_some(()));
        assert!(!front.is_raw());
        send(&front, Signal::SIGCONT);
    }
    eventually("raw mode", || front.is_raw().then_some(()));
    front.type_in("typed\r\x04");
    front.expect_code(4);
    shows(&front, "typed\r\ntyped\r\n");
}

#[test]
fn the_terminal_hangs_up_when_its_front_end_dies() {
    let instance = Instance::new().up();
    let line = "trap 'echo hup > heard; exit' HUP; echo up; while :; do sleep 0.05; done";
    let front = typing(&instance, &["run", "--pty", "sh", "-c", line]);
    shows(&front, "up\r\n");
    send(&front, Signal::SIGKILL);
    let heard = instance.work.join("heard");
    eventually("SIGHUP", || {
        std::fs::read_to_string(&heard).is_ok_and(|it| it == "hup\n").then_some(())
    });
}

#[test]
fn a_terminal_outlives_an_upgrade_and_restarts_of_controller_and_agent() {
    let instance = Instance::alone().up();
    let mut front = typing(&instance, &["run", "--pty", "sh"]);
    front.type_in("echo be$((1))fore\r");
    shows(&front, "be1fore");
    let copy = instance.work.join("another");
    copy_program(&instance.program, &copy);
    instance.shell("chmod 755 another").expect(0);
    instance.tutti(&["upgrade", copy.to_str().unwrap()]).expect(0);
    front.type_in("echo be$((2))hind\r");
    shows(&front, "be2hind");
    kill_daemon(&instance, "controller");
    kill_daemon(&instance, "agent");
    front.resize(12, 34);
    front.type_in("sleep 0.3; stty size; test -t 0; exit $((3 + $?))\r");
    front.expect_code(3);
    shows(&front, "12 34\r\n");
}

#[test]
fn other_ranks_have_pipes_and_their_lines_are_shown_whole() {
    let instance = Instance::new().up();
    let line = "if [ -t 1 ]; then echo rank $TUTTI_RANK; sleep 0.3; \
                else echo no terminal; echo none >&2; fi";
    let count = own_processors().len().to_string();
    let mut front = typing(&instance, &["run", "-n", &count, "--pty", "sh", "-c", line]);
    front.expect_code(0);
    let said = front.text();
    assert!(said.contains("rank 0\r\n") && !said.contains("rank 1"), "{said:?}");
    let others = own_processors().len() - 1;
    for line in ["no terminal\r\n", "none\r\n"] {
        assert_eq!(said.matches(line).count(), others, "{said:?}");
    }
    let words = ["run", "--pty", "-l", "true"];
    instance.tutti(&words).expect(2);
    instance.tutti(&["run", "--pty", "-i", "all", "true"]).expect(2).says("rank 0");
}

#[test]
fn without_a_terminal_in_front_a_task_has_one_of_80_columns_and_input_has_an_end() {
    let instance = Instance::new().up();
    let line = "printf 'stty size\\nexit 5\\n' | $T run --pty sh -s | cat; \
                printf 'half' | $T run --pty cat > out; echo rc $?; \
                $T run --pty sh -c 'stty size' < /dev/null";
    let line = format!("T={}; {line}", instance.program.display());
    let text = instance.shell(&line).expect(0).text();
    assert!(text.contains("24 80\r\n") && text.contains("rc 0\n"), "{text:?}");
    assert!(text.ends_with("24 80\r\n"), "{text:?}");
    let shown = std::fs::read_to_string(instance.work.join("out")).unwrap();
    assert!(shown.contains("halfhalf"), "{shown:?}");
    let program = instance.program.display();
    let line = format!("set -m; {program} run --pty true & wait $!; echo rc $?");
    let mut command = instance.shell_command(&line);
    command.stdin(std::process::Stdio::inherit());
    let mut front = on_terminal(&command);
    front.expect_code(0);
    shows(&front, "--pty needs the foreground of the terminal");
    shows(&front, "rc 125");
}

#[test]
fn a_flood_of_output_is_bounded_while_the_front_end_is_stopped() {
    let instance = Instance::new().up();
    let front = typing(&instance, &["run", "--pty", "sh", "-c", "echo up; exec yes"]);
    shows(&front, "y\r\ny\r\n");
    send(&front, Signal::SIGSTOP);
    let keeper = instance.daemon("keeper");
    let size = || -> u64 {
        let text = status_of(keeper, "VmRSS").unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = size();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(size() < before + (16 << 10), "{before} KiB, then {} KiB", size());
    send(&front, Signal::SIGCONT);
    front.type_in("\x03");
    let mut front = front;
    front.expect_code(130);
}

#[test]
fn a_second_shell_is_opened_in_a_running_job_and_by_srun_and_inside_alloc() {
    let instance = faced();
    let job = instance.submit(&["-n", "2", "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(job, "running");
    let line = "echo $TUTTI_JOB.$TUTTI_RANK; echo term $TERM; stty size";
    let mut command = instance.command(&["exec", "--pty", "1.1", "sh", "-c", line]);
    command.env("TERM", "screen");
    let mut front = on_terminal(&command);
    front.expect_code(0);
    shows(&front, "1.1\r\nterm screen\r\n30 100\r\n");
    let mut srun = Command::new(instance.work.join("face/srun"));
    srun.args(["--jobid=1", "--pty", "stty", "size"]).current_dir(&instance.work);
    for (name, value) in instance.command(&[]).get_envs() {
        srun.env(name, value.unwrap_or_default());
    }
    let mut front = on_terminal(&srun);
    front.expect_code(0);
    shows(&front, "30 100\r\n");
    let program = instance.program.display();
    let line = format!("{program} run --pty sh -c 'echo step $TUTTI_STEP; stty size'");
    instance.tutti(&["cancel", "1"]).expect(0);
    let mut front = typing(&instance, &["alloc", "-n", "1", "sh", "-c", &line]);
    front.expect_code(0);
    shows(&front, "step 1\r\n30 100\r\n");
}

#[test]
fn a_shell_in_tmux_is_drawn_and_follows_the_size_of_its_window() {
    let instance = Instance::new().up();
    let socket = instance.work.join("tmux");
    let tmux = |words: &[&str]| {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&socket).args(["-f", "/dev/null"]).args(words);
        command.env("TUTTI_DIR", &instance.dir).env_remove("TUTTI_CLUSTER").env_remove("TMUX");
        command.current_dir(&instance.work).env("LC_ALL", "C.UTF-8");
        let done = command.output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let line =
        format!("PS1='ready> ' {} run --pty sh; echo over; sleep 60", instance.program.display());
    tmux(&["new-session", "-d", "-x", "70", "-y", "20", &line]);
    let shows = |text: &str| {
        eventually(text, || tmux(&["capture-pane", "-p"]).contains(text).then_some(()));
    };
    shows("ready>");
    tmux(&["send-keys", "stty size", "Enter"]);
    shows("20 70");
    tmux(&["resize-window", "-x", "90", "-y", "25"]);
    eventually("the other size", || {
        tmux(&["send-keys", "stty size", "Enter"]);
        tmux(&["capture-pane", "-p"]).contains("25 90").then_some(())
    });
    tmux(&["send-keys", "exit", "Enter"]);
    shows("over");
    tmux(&["kill-server"]);
}
