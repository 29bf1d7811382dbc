//! Jobs that begin later (`--begin`).

use crate::harness::Instance;
use crate::recovery::kill_daemon;
use crate::slurm::{faced, slurm};

#[test]
fn a_job_begins_later_though_the_controller_is_killed() {
    let instance = Instance::alone().up();
    instance.tutti(&["slurm", "link", "face"]).expect(0);
    let later = instance.tutti(&["submit", "--parsable", "--begin", "+8s", "true"]).expect(0);
    let later = later.text().trim().to_owned();
    let far = ["submit", "--parsable", "--begin", "2030-12-24T20:00", "true"];
    let far = instance.tutti(&far).expect(0).text().trim().to_owned();
    let line = instance.tutti(&["ps", &far]).expect(0).text();
    assert!(line.contains("it begins at 2030-12-24 20:00:00"), "{line}");
    kill_daemon(&instance, "controller");
    let job = &instance.tutti(&["ps", "--json", &far]).expect(0).json()[0];
    assert_eq!((job["state"].as_str(), job["wait"].as_str()), (Some("queued"), Some("begin")));
    let squeue = slurm(&instance, &["squeue", "-h", "-o", "%t %r", "-j", &far]).expect(0);
    assert_eq!(squeue.text(), "PD BeginTime\n");
    instance.tutti(&["wait", &later]).expect(0);
    instance.tutti(&["cancel", &far]).expect(0);
}

#[test]
fn a_front_end_waits_for_the_moment_and_scripts_name_it() {
    let instance = faced();
    let run = instance
        .tutti(&["run", "--begin", "now+2seconds", "echo", "begun"])
        .expect(0)
        .says("is queued: it begins at ");
    assert_eq!(run.text(), "begun\n");
    std::fs::write(instance.work.join("job.sh"), "#!/bin/sh\n#SBATCH -b now+1hour\ntrue\n")
        .unwrap();
    let job = slurm(&instance, &["sbatch", "--parsable", "job.sh"]).expect(0).text();
    let line = instance.tutti(&["ps", job.trim()]).expect(0).text();
    assert!(line.contains("it begins at "), "{line}");
    instance.tutti(&["cancel", job.trim()]).expect(0);
    instance.tutti(&["submit", "--begin", "soon", "true"]).expect(2).says("no time to begin");
    let deadline = ["submit", "--begin", "+1h", "-t", "1m", "--deadline", "1h", "true"];
    instance.tutti(&deadline).expect(2).says("can't go with");
}
