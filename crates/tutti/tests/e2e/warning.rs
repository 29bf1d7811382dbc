//! Signals before time limits (`--signal`).

use crate::harness::Instance;
use std::fs;

fn output(instance: &Instance, job: &str) -> String {
    fs::read_to_string(instance.work.join(format!("out-{job}"))).unwrap_or_default()
}

#[test]
fn the_shell_of_a_script_or_its_steps_get_a_signal_before_the_limit() {
    let instance = Instance::new().up();
    let program = instance.program.display();
    let step = "trap 'echo step warned; exit 0' USR2; while :; do sleep 0.1; done";
    let text = format!(
        "#!/bin/sh\ntrap 'echo shell warned' USR1 USR2\n\
         {program} run sh -c \"{step}\" &\nwait $!; wait $!; echo over\n"
    );
    instance.script("job.sh", &text);
    let submit = |signal: &str| {
        let options = ["batch", "--parsable", "-t", "6s", "--signal", signal, "-o", "out-%j"];
        let done = instance.tutti(&[&options[..], &["job.sh"]].concat()).expect(0);
        done.text().trim().to_owned()
    };
    let steps = submit("USR2@4");
    instance.tutti(&["wait", &steps]).expect(0);
    let said = output(&instance, &steps);
    let has = |line: &str| said.lines().any(|it| it == line);
    assert!(has("step warned") && has("over") && !said.contains("shell"), "{said}");
    let shell = submit("B:USR1@4s");
    instance.tutti(&["wait", &shell]).expect(124);
    let said = output(&instance, &shell);
    assert!(said.starts_with("shell warned\n") && !said.contains("step"), "{said}");
}

#[test]
fn all_tasks_of_a_run_get_it_and_what_is_no_signal_is_refused() {
    let instance = Instance::new().up();
    let task = "trap 'echo warned; exit 7' USR1; while :; do sleep 0.1; done";
    let run = ["run", "-n", "2", "-t", "4s", "--signal", "SIGUSR1@3", "sh", "-c", task];
    assert_eq!(instance.tutti(&run).expect(7).text(), "warned\nwarned\n");
    for bad in ["NOSUCH@3", "USR1@soon", "@3", "B:", "99@1", ""] {
        let flag = format!("--signal={bad}");
        instance.tutti(&["submit", "-t", "1m", &flag, "true"]).expect(2).says("--signal");
    }
}
