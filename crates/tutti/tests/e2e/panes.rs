//! Panes (`run --panes`, `attach --panes`), in tmux.

use crate::harness::{Instance, eventually};
use std::process::Command;

/// A rank that says hello and then what it reads; its exit status is its number.
const TALK: &str = "echo hello $TUTTI_RANK; while read l; do echo got $l; \
                    [ $l = over ] && exit $TUTTI_RANK; done";

/// A terminal of tmux, with a shell that has the program as `$T`.
struct Window<'a> {
    instance: &'a Instance,
}

impl<'a> Window<'a> {
    fn open(instance: &'a Instance, columns: &str, rows: &str) -> Self {
        let window = Self { instance };
        let line = format!("PS1='ready> ' T={} sh", instance.program.display());
        window.tmux(&["new-session", "-d", "-x", columns, "-y", rows, &line]);
        window.shows("ready>");
        window
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.instance.work.join("tmux")).args(["-f", "/dev/null"]);
        command.args(words).current_dir(&self.instance.work).env("LC_ALL", "C.UTF-8");
        command.env("TUTTI_DIR", &self.instance.dir).env_remove("TUTTI_CLUSTER");
        let done = command.env_remove("TMUX").output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn picture(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn shows(&self, text: &str) {
        eventually(text, || self.picture().contains(text).then_some(()));
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The two panes, left and right of the line between them.
fn halves(picture: &str) -> [String; 2] {
    let half = |side| picture.lines().filter_map(move |line| line.split('│').nth(side));
    [0, 1].map(|side| half(side).collect::<Vec<_>>().join("\n"))
}

#[test]
fn each_rank_has_a_pane_and_keys_reach_the_focused_rank_all_or_the_one_named() {
    let instance = Instance::new().up();
    let window = Window::open(&instance, "180", "24");
    window.types(&format!("$T run --panes -n 2 sh -c '{TALK}'; echo rc $?\n"));
    window.shows("hello 1");
    let [left, right] = halves(&window.picture());
    assert!(left.contains("hello 0") && !left.contains("hello 1"), "{left}");
    assert!(right.contains("hello 1") && !right.contains("hello 0"), "{right}");
    window.types("one\n");
    window.shows("got one");
    assert!(!halves(&window.picture())[1].contains("one"));
    window.press(&["C-t", "Right"]);
    window.types("two\n");
    window.shows("got two");
    assert!(!halves(&window.picture())[0].contains("two"));
    window.press(&["C-t", "t"]);
    window.types("0: three\n");
    window.shows("got three");
    assert!(!halves(&window.picture())[1].contains("three"));
    window.press(&["C-t", "a"]);
    window.types("all\n");
    eventually("both", || {
        halves(&window.picture()).iter().all(|it| it.contains("got all")).then_some(())
    });
    window.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    window.shows("hello 0");
    window.types("over\n");
    window.shows("exit 1");
    window.shows("has ended, exit code 1; press a key");
    std::thread::sleep(std::time::Duration::from_millis(500));
    window.press(&["x"]);
    window.shows("rc 1");
    // The first screen is back, and the shell reads lines.
    let picture = window.picture();
    assert!(!picture.contains("press a key") && !picture.contains('│'), "{picture}");
    window.types("stty -a | grep -q ' icanon' && stty -a | grep -q ' echo ' && echo li$((1))nes\n");
    window.shows("li1nes");
}

#[test]
fn an_interrupt_ends_the_job_and_a_viewer_detaches() {
    let instance = Instance::new().up();
    let front =
        instance.start_typing(&["run", "-J", "talk", "-n", "2", "-i", "all", "sh", "-c", TALK]);
    front.wait_for("hello 1\n");
    let window = Window::open(&instance, "100", "30");
    window.types("$T attach --panes talk; echo rc $?\n");
    window.shows("keys go to");
    window.types("viewed\n");
    window.shows("got viewed");
    front.wait_for("got viewed\n");
    window.press(&["C-t", "d"]);
    window.shows("detached from job 1; it goes on");
    window.shows("rc 0");
    window.types("clear; $T run --panes -n 2 sleep 100; echo again $?\n");
    window.shows("keys go to rank 0");
    window.press(&["C-c"]);
    std::thread::sleep(std::time::Duration::from_millis(100));
    window.shows("has ended, exit code 130; press a key");
    std::thread::sleep(std::time::Duration::from_millis(500));
    window.press(&["Enter"]);
    window.shows("again 130");
    window.shows("sent SIGINT to job 2");
    // What ends the front end itself does not wait for a key.
    window.types("clear; timeout --foreground 2 $T run --panes -n 2 sleep 100; echo third $?\n");
    window.shows("third 124");
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    instance.tutti(&["run", "--panes", "true"]).expect(125).says("--panes needs a terminal");
    instance.tutti(&["run", "--panes", "--pty", "true"]).expect(2);
    let job = instance.submit(&["-o", "/dev/null", "sleep", &instance.nap]).to_string();
    instance.tutti(&["attach", "--panes", &job]).expect(125).says("writes to files");
}

#[test]
fn panes_that_do_not_fit_are_on_further_pages() {
    let instance = Instance::new().up();
    let window = Window::open(&instance, "74", "13");
    window.types(&format!("$T run --panes -n 12 sh -c '{TALK}'\n"));
    window.shows("page 1/2");
    window.shows("hello 5");
    assert!(!window.picture().contains("hello 6"), "{}", window.picture());
    window.press(&["C-t", "n"]);
    window.shows("page 2/2");
    window.shows("hello 11");
    assert!(!window.picture().contains("hello 0"), "{}", window.picture());
    // The focused rank is on the page that is shown, and a larger terminal needs one page.
    window.press(&["C-t", "2", "Enter"]);
    window.shows("page 1/2");
    window.types("two\n");
    window.shows("got two");
    window.tmux(&["resize-window", "-x", "180", "-y", "50"]);
    window.shows("hello 11");
    assert!(!window.picture().contains("page "), "{}", window.picture());
    window.press(&["C-c"]);
    window.shows("press a key");
}

#[test]
fn no_color_leaves_out_the_colours_of_ranks_and_keeps_bold() {
    let instance = Instance::new().up();
    instance.script("paint", "#!/bin/sh\nprintf '\\033[1;31mhot\\033[m\\n'; exec sleep 100\n");
    let window = Window::open(&instance, "80", "24");
    let line = || {
        let picture = window.tmux(&["capture-pane", "-p", "-e"]);
        picture.lines().find(|line| line.contains("hot")).map(str::to_owned)
    };
    for (variable, is_red) in [("", true), ("NO_COLOR=1 ", false)] {
        window.types(&format!("clear; {variable}$T run --panes ./paint\n"));
        window.shows("hot");
        let line = eventually("the line of the rank", line);
        assert_eq!(line.contains("31m"), is_red, "{line:?}");
        assert!(["[1m", ";1m"].iter().any(|bold| line.contains(bold)), "{line:?}");
        window.press(&["C-c"]);
        window.shows("press a key");
        std::thread::sleep(std::time::Duration::from_millis(500));
        window.press(&["Enter"]);
        eventually("the shell", || (!window.picture().contains("hot")).then_some(()));
    }
}

#[test]
fn panes_that_are_stopped_leave_the_terminal_to_the_shell_until_they_go_on() {
    let instance = Instance::new().up();
    let window = Window::open(&instance, "80", "24");
    window.types(&format!("$T run --panes -n 2 sh -c '{TALK}'\n"));
    window.shows("hello 1");
    window.press(&["C-z"]);
    window.shows("Stopped");
    assert!(!window.picture().contains("hello 1"), "{}", window.picture());
    assert_eq!(instance.job(1)["state"], "running");
    window.types("echo sh$((1))ell\n");
    window.shows("sh1ell");
    window.types("fg\n");
    window.shows("hello 1");
    window.types("back\n");
    window.shows("got back");
    window.press(&["C-c"]);
    window.shows("press a key");
}
