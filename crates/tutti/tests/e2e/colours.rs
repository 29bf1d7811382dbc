//! Colours of tables and messages: on a terminal, and where they were asked for.

use crate::harness::{Instance, Running, eventually};
use crate::top::{Watched, without_colours};

const GREEN: &str = "\x1b[32mrunning\x1b[0m";

#[test]
fn colours_come_on_a_terminal_or_by_option_and_never_in_json() {
    let instance = Instance::new().up();
    instance.tutti(&["run", "false"]).expect(1);
    let job = instance.submit_spinner(1);
    instance.wait_for_state(job, "running");
    let text = |args: &[&str]| instance.tutti(args).expect(0).text();
    let plain = text(&["ps", "-a"]);
    assert!(!plain.contains('\x1b'), "no terminal, no colour: {plain:?}");
    let painted = text(&["--color=always", "ps", "-a"]);
    assert!(painted.contains(GREEN) && painted.contains("\x1b[31mexit 1"), "{painted:?}");
    // The clock may go on between two calls; columns stay where they are.
    let place = |text: &str| text.lines().next().map(|line| line.find("WHERE"));
    assert_eq!(place(&painted), place(&plain));
    assert_eq!(without_colours(&painted).lines().count(), plain.lines().count());
    for json in [&["ps", "--json"][..], &["nodes", "--json"], &["doctor", "--json"]] {
        let text = text(&[&["--color=always"], json].concat());
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    let shown = text(&["show", "--color", "always", &job.to_string()]);
    assert!(shown.contains(&format!("  state      {GREEN},")), "{shown:?}");
    let mut forced = instance.command(&["nodes"]);
    forced.env("CLICOLOR_FORCE", "1");
    let forced = Running::start(forced).wait().expect(0).text();
    assert!(forced.contains("\x1b[32mup\x1b[0m"), "{forced:?}");
    // What a command of the user's is given is for that command.
    assert_eq!(text(&["run", "echo", "--color=always"]), "--color=always\n");
    instance.tutti(&["ps", "--color=red"]).expect(2).says("always");
    let wrong = instance.tutti(&["--color=always", "show", "99"]).expect(1);
    wrong.says("\x1b[31mtutti:\x1b[0m there is no job 99");
    instance.tutti(&["cancel", "--now", "2"]).expect(0);
    instance.tutti(&["wait", "--color=always", "2"]).says("\x1b[31mtutti:\x1b[0m");
}

#[test]
fn no_color_counts_on_a_terminal() {
    let instance = Instance::new().up();
    let seen = |variables: &[(&str, &str)]| {
        let mut command = instance.command(&["nodes"]);
        command.env("TERM", "xterm").envs(variables.iter().copied());
        let mut shown = Watched::of(command);
        shown.expect_code(0);
        eventually("the table", || shown.text().contains("STATE").then_some(()));
        shown.text()
    };
    let painted = seen(&[]);
    assert!(painted.contains("\x1b[32mup\x1b[0m"), "{painted:?}");
    let plain = seen(&[("NO_COLOR", "1")]);
    assert!(!plain.contains('\x1b'), "{plain:?}");
}
