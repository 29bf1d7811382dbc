//! `tutti top`, on a terminal and without one.

use crate::harness::{Instance, PATIENCE, eventually, status_of};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A verb on a terminal of its own.
pub(crate) struct Watched {
    child: Child,
    keys: File,
    /// The other end, as the program has it.
    terminal: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Watched {
    /// `tutti top`.
    fn start(instance: &Instance, words: &[&str]) -> Self {
        Self::of(instance.command(&[&["top"], words].concat()))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(pair.slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut screen = File::from(pair.master.try_clone().unwrap());
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                into.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { child, keys: pair.master.into(), terminal: pair.slave, shown }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that came so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Types this.
    pub(crate) fn type_in(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the program gets keys one by one, and none of them is a signal.
    pub(crate) fn is_raw(&self) -> bool {
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        !flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows, "columns", &columns]);
        let status = stty.stdin(self.terminal.try_clone().unwrap()).status();
        assert!(status.unwrap().success());
    }

    /// The latest picture, without colours.
    fn picture(&self) -> String {
        without_colours(self.text().rsplit("\x1b[H").next().unwrap_or_default())
    }

    fn wait_for(&self, what: &str) {
        eventually(what, || self.picture().contains(what).then_some(()));
    }

    /// Waits until it has ended, and fails unless with this code.
    pub(crate) fn expect_code(&mut self, code: i32) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on: {}", self.text());
            std::thread::sleep(std::time::Duration::from_millis(3));
        };
        assert_eq!(status.code(), Some(code), "{}", self.text());
    }

    /// It has ended so, and the terminal is as it was.
    fn expect_end(mut self, code: i32) {
        self.expect_code(code);
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "{flags:?}");
        eventually("the other screen", || self.text().ends_with("\x1b[?1049l").then_some(()));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A text without what sets colours.
pub(crate) fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(|it| it.is_ascii_digit() || *it == b';').count();
        match part[digits..].strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => plain.push_str(&format!("\x1b[{part}")),
        }
    }
    plain
}

#[test]
fn the_matrix_jobs_and_processes_are_shown_live_until_q() {
    let instance = Instance::new().up();
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    let mut top = Watched::start(&instance, &["-d", "100ms", "2.1"]);
    for line in
        ["row 1/2   50 %  AA", "row 2/2   50 %  BB", "jobs: 2 running; policy gang", "2.1 on "]
    {
        top.wait_for(line);
    }
    // What was used since the look before; both have half of two processors.
    eventually("processor time", || {
        let picture = top.picture();
        let of_first = picture.lines().find(|line| line.starts_with("A "))?;
        let percent =
            of_first.split(" %").nth(1)?.split_whitespace().last()?.parse::<u64>().ok()?;
        (percent > 20).then_some(())
    });
    let while_shown = tcgetattr(&top.terminal).unwrap().local_flags;
    assert!(!while_shown.contains(LocalFlags::ICANON), "{while_shown:?}");
    // A job that ends is gone from the next picture, and the rest goes on; so does a controller
    // that ends.
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    top.wait_for("row 1/1");
    top.wait_for("always");
    assert!(!top.picture().contains("A    1"), "{}", top.picture());
    crate::recovery::kill_daemon(&instance, "controller");
    instance.tutti(&["params", "quantum=30ms"]).expect(0);
    top.wait_for("quantum 30ms");
    instance.tutti(&["cancel", "--now", "2"]).expect(0);
    top.wait_for("job 2 has ended");
    top.keys.write_all(b"q").unwrap();
    top.expect_end(0);
}

#[test]
fn jobs_are_shown_and_ordered_about_by_keys() {
    let instance = Instance::new().up();
    let line = "echo from rank $TUTTI_RANK; exec sleep $NAP";
    let talker = ["-J", "talker", "-n", "2", "-o", "%j-%r", "sh", "-c", line];
    let jobs = [instance.submit(&talker), instance.submit(&["-J", "other", "sleep", "1000"])];
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    let mut top = Watched::start(&instance, &["-d", "100ms"]);
    top.wait_for("jobs: 2 running");
    let press = |top: &mut Watched, keys: &str, shows: &str| {
        top.keys.write_all(keys.as_bytes()).unwrap();
        top.wait_for(shows);
    };
    press(&mut top, "c", "choose a job first");
    press(&mut top, "?", "Keys while a job is shown");
    press(&mut top, "x/talk", "filter: talk_");
    eventually("the other job is not listed", || (!top.picture().contains("other")).then_some(()));
    press(&mut top, "\r\x1b[B\r", "from rank 1");
    press(&mut top, "n", "output of rank 0 of 2");
    eventually("only its output", || {
        let picture = top.picture();
        (picture.contains("from rank 0") && !picture.contains("from rank 1")).then_some(())
    });
    // Nothing happens before it is confirmed.
    press(&mut top, "s", "suspend job 1 (talker)");
    press(&mut top, "n", "escape back");
    assert_eq!(instance.job(jobs[0])["state"], "running");
    press(&mut top, "sy", "done: 1 job");
    instance.wait_for_state(jobs[0], "suspended");
    // The answer to the former order is gone, so that of this one is waited for.
    press(&mut top, "r", "resume job 1");
    press(&mut top, "y", "done: 1 job");
    top.wait_for("state      running");
    press(&mut top, "\x1b", "enter show");
    // Escape once more takes the filter away; both are marked and end.
    press(&mut top, "\x1b", "other");
    press(&mut top, "j  ", "2 marked");
    press(&mut top, "C", "kill 2 jobs at once?");
    press(&mut top, "y", "jobs: none");
    // The answer to the order may come behind its effect, and stays until a key is pressed.
    eventually("the line of keys", || {
        top.keys.write_all(b"g").unwrap();
        top.picture().contains("enter show").then_some(())
    });
    top.keys.write_all(b"q").unwrap();
    top.expect_end(0);
}

#[test]
fn nodes_are_shown_by_a_key_with_their_load_and_turn() {
    let instance = Instance::new().up();
    let jobs = [instance.submit_spinner(2), instance.submit_spinner(2)];
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    let name = nodes[0]["name"].as_str().unwrap();
    let top = Watched::start(&instance, &["-d", "100ms"]);
    top.wait_for("n nodes");
    top.type_in("n");
    top.wait_for("nodes 1 to 1 of 1, by number");
    let line = eventually("load and turn", || {
        let picture = top.picture();
        let line = picture.lines().find(|line| line.contains(name))?.to_owned();
        let has_load = line.split_whitespace().nth(3)?.parse::<f32>().is_ok();
        (has_load && line.contains("row ")).then_some(line)
    });
    let used = format!("{0}/{0} ", nodes[0]["processors"]);
    assert!(line.contains(" up ") && line.contains(&used), "{line}");
    top.type_in("oooo");
    top.wait_for("by load");
    // No order is given about a job that is not on the screen.
    top.type_in("c");
    top.wait_for("keys about jobs need their list");
    top.type_in("?");
    top.wait_for("Keys while nodes are shown");
    top.type_in("xn");
    top.wait_for("row 1/2   50 %");
    instance.tutti(&["cancel", "--now", "1-2"]).expect(0);
    top.wait_for("jobs: none");
    top.type_in("q");
    top.expect_end(0);
}

#[test]
fn an_interrupt_gives_the_terminal_back() {
    let instance = Instance::new().up();
    let top = Watched::start(&instance, &[]);
    top.wait_for("jobs: none");
    kill(Pid::from_raw(top.child.id().cast_signed()), Signal::SIGINT).unwrap();
    top.expect_end(0);
}

#[test]
fn a_shell_has_the_terminal_while_it_is_stopped() {
    let instance = Instance::new().up();
    let mut top = Watched::start(&instance, &[]);
    top.wait_for("jobs: none");
    let pid = Pid::from_raw(top.child.id().cast_signed());
    let mut shells = tcgetattr(&top.terminal).unwrap();
    let has_keys =
        |top: &Watched| !tcgetattr(&top.terminal).unwrap().local_flags.contains(LocalFlags::ICANON);
    let stands = || status_of(pid.as_raw(), "State").is_some_and(|state| state.starts_with('T'));
    // It is asked to stop, as by ^Z, and then stopped without being asked.
    for signal in [Signal::SIGTSTP, Signal::SIGSTOP] {
        eventually("its keys", || has_keys(&top).then_some(()));
        kill(pid, signal).unwrap();
        eventually("it stands", || stands().then_some(()));
        if signal == Signal::SIGTSTP {
            assert!(!has_keys(&top), "the shell's own keys");
            eventually("the other screen", || top.text().ends_with("\x1b[?1049l").then_some(()));
        }
        shells.local_flags |= LocalFlags::ICANON | LocalFlags::ECHO;
        tcsetattr(&top.terminal, SetArg::TCSANOW, &shells).unwrap();
        let seen = top.text().len();
        kill(pid, Signal::SIGCONT).unwrap();
        eventually("a picture", || {
            let text = top.text();
            text[seen..].contains("\x1b[2J\x1b[H").then_some(())
        });
        top.wait_for("jobs: none");
    }
    eventually("its keys", || has_keys(&top).then_some(()));
    top.keys.write_all(b"q").unwrap();
    top.expect_end(0);
}

#[test]
fn without_a_terminal_each_look_is_text_or_json() {
    let instance = Instance::new().up();
    let job = instance.submit_spinner(2);
    instance.wait_for_state(job, "running");
    let text = instance.tutti(&["top", "-d", "100ms", "-n", "2"]).expect(0).text();
    assert!(!text.contains('\x1b') && text.matches("row 1/1").count() == 2, "{text}");
    let lines =
        instance.tutti(&["top", "--json", "-d", "100ms", "-n", "3", "1.0"]).expect(0).text();
    assert_eq!(lines.lines().count(), 3);
    for line in lines.lines() {
        let look: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&look["jobs"][0]["job"], &look["nodes"][0]["state"]),
            (&1.into(), &"up".into())
        );
        assert_eq!(look["tasks"][0]["rank"], 0);
        assert!(look["time_ms"].as_u64() > Some(0), "{look}");
    }
    let others = instance.tutti(&["top", "-n", "1", "--user", "nobody"]).expect(0).text();
    assert!(others.contains("row 1/1  100 %  AA") && !others.contains("production"), "{others}");
    instance.tutti(&["top", "-n", "1", "99"]).expect(1).says("there is no job 99");
    instance.tutti(&["top", "-d", "1ms"]).expect(2).says("the least is 100ms");
    let endless = instance.start(&["top", "--json", "-d", "100ms"]);
    endless.wait_for("\n");
    // Our parent may have interrupts ignored.
    endless.signal(Signal::SIGTERM);
    endless.wait().expect(143);
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
}
