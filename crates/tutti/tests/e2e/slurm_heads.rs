//! Heads of published scripts, asked with `sbatch --test-only` of a cluster of 64 nodes that has 64
//! processors and 8 GPUs on each.

use crate::harness::{Instance, PATIENCE, needs_root};

const HEADS: &str = include_str!("../../src/slurm/heads.txt");

/// What runs beside the cluster: each head as a script, and what sbatch says of it.
const TRY_ALL: &str = "\
    tutti slurm link face >/dev/null
    tutti queue short default_class=production; tutti queue gpu default_class=production
    tutti resource matlab=4
    tutti nodes set 'haswell=m[0-7]' 'skylake=m[8-15]'
    for script in heads/*; do
        echo \"script $script\"
        face/sbatch -Q --test-only $script 2>&1 >/dev/null
        echo \"exit $?\"
    done";

/// What is asked for, as the list of heads has it: `None`, if it is an option that is not there.
fn wanted(expected: &str) -> Option<(u32, String)> {
    if expected == "refused" {
        return None;
    }
    let value = |key: &str| expected.split(' ').find_map(|word| word.strip_prefix(key));
    let count = |key: &str| value(key).map_or(1, |count| count.parse::<u32>().unwrap());
    let partition = value("q=").or_else(|| value("k=")).unwrap_or("production");
    Some((count("n=") * count("c="), partition.to_owned()))
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn heads_of_scripts_are_accepted_by_a_cluster_with_what_they_ask_for() {
    needs_root("a head with members");
    let instance = Instance::alone();
    let heads: Vec<(&str, &str)> = HEADS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(" => "))
        .collect();
    std::fs::create_dir(instance.work.join("heads")).unwrap();
    for (number, (head, _)) in heads.iter().enumerate() {
        let lines =
            head.split("; ").map(|line| format!("#SBATCH {}\n", line.trim_end_matches(';')));
        let script = format!("#!/bin/sh\n{}srun true\n", lines.collect::<String>());
        instance.script(&format!("heads/{number:03}"), &script);
    }
    let words = ["bench", "hollow", "--nodes", "64", "--processors", "64", "--gpus", "8"];
    let words = [&words[..], &["--memory", "1T", "--", "sh", "-c", TRY_ALL]].concat();
    let mut command = instance.command(&words);
    let beside = instance.program.parent().unwrap().display();
    command.env("PATH", format!("{beside}:{}", std::env::var("PATH").unwrap()));
    let done = crate::harness::Running::start(command).wait_within(PATIENCE * 5).expect(0);
    let text = done.text();
    let said: Vec<&str> = text.split("script heads/").skip(1).collect();
    assert_eq!(said.len(), heads.len(), "{text}");
    let (mut of_slurm, mut accepted, mut others) = (0, 0, String::new());
    for ((head, expected), said) in heads.into_iter().zip(said) {
        let Some((processors, partition)) = wanted(expected) else {
            assert!(!said.contains("exit 0"), "{head}: {said}");
            continue;
        };
        of_slurm += 1;
        let words = format!("using {processors} processors in partition {partition}");
        match said.contains("exit 0") {
            true => {
                assert!(said.contains(&words), "{head}: not {words}, but {said}");
                accepted += 1;
            }
            false => others.push_str(&format!("{head}: {said}\n")),
        }
    }
    assert!(
        of_slurm >= 130 && accepted * 100 >= of_slurm * 95,
        "{accepted} of {of_slurm}: {others}"
    );
    println!("{accepted} of {of_slurm} are accepted; the others: {others}");
}
