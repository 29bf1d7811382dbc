//! Output files on a node that has a file system of its own: `tutti logs` gets them from there.

use crate::cluster::Bed;
use crate::harness::{Done, NOBODY, Running};
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Two nodes. In the directory that is given, the second one has files of its own.
fn bed_with_own_files() -> (Bed, PathBuf) {
    let bed = Bed::of(2, &[0]);
    let own = bed.audit.work.join("own");
    fs::create_dir(&own).unwrap();
    for directory in [&bed.audit.work, &own] {
        set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    }
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
    let mut join = bed.node(2).command("unshare");
    join.args(["--mount", "--propagation", "private", "sh", "-c"]);
    join.arg("mount -t tmpfs -o mode=777 own \"$0\" && exec \"$@\"").arg(&own);
    join.arg(&bed.audit.program).args(["join", &address, token.trim(), "--name", "n2"]);
    Running::start(join).wait().expect(0);
    bed.open_to_all(1);
    (bed, own)
}

fn as_nobody(bed: &Bed, args: &[&str]) -> Done {
    let mut command = bed.node(1).command("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
    command.arg(&bed.audit.program).args(args).current_dir("/");
    Running::start(command).wait()
}

/// Submits what writes to this file on the second node; the job's number.
fn submit(bed: &Bed, file: &str, script: &str) -> String {
    let words = ["submit", "--parsable", "-w", "n2", "-o", file, "--", "sh", "-c", script];
    bed.tutti(1, &words).expect(0).text().trim().to_owned()
}

#[test]
fn logs_are_read_by_the_node_that_has_them_while_they_grow_and_when_the_job_has_ended() {
    let (bed, own) = bed_with_own_files();
    let (file, flag) = (own.join("out"), bed.audit.work.join("flag"));
    let (file, flag) = (file.to_str().unwrap(), flag.to_str().unwrap());
    let script = format!(
        "echo one; until test -e {flag}; do sleep 0.05; done; seq 400000; echo last; exit 3"
    );
    let job = submit(&bed, file, &script);
    let following = bed.start(1, &["logs", "-f", &job]);
    following.wait_for("one");
    fs::write(flag, "").unwrap();
    let whole: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    let whole = format!("one\n{whole}last\n");
    assert_eq!(following.wait().expect(3).text(), whole);
    assert!(!std::path::Path::new(file).exists(), "the first node has another file system");
    assert_eq!(bed.tutti(1, &["logs", &job]).expect(0).text(), whole);
    assert_eq!(bed.tutti(1, &["logs", "-n", "2", &job]).expect(0).text(), "400000\nlast\n");
    // From the node that has it, and of a file of this name that is another one.
    fs::write(file, "another\n").unwrap();
    assert_eq!(bed.tutti(1, &["logs", "-n", "1", &job]).expect(0).text(), "last\n");
    bed.tutti(1, &["run", "-w", "n2", "rm", file]).expect(0);
    let gone = bed.tutti(1, &["logs", &job]).expect(0);
    assert_eq!(gone.says("may be another one").says("there is no file").text(), "another\n");
    fs::remove_file(file).unwrap();
    bed.tutti(1, &["logs", &job]).expect(1).says("node n2 wrote").says("[T055]");
}

#[test]
fn files_by_rank_are_shown_from_here_and_from_another_node() {
    let (bed, own) = bed_with_own_files();
    let pattern = own.join("out-%r");
    let words = ["-N", "2", "-n", "2", "-o", pattern.to_str().unwrap(), "--", "sh", "-c"];
    let submit = ["submit", "--parsable", "--spread"];
    let line = [&submit[..], &words, &["echo rank $TUTTI_RANK of $(hostname)"]].concat();
    let job = bed.tutti(1, &line).expect(0).text().trim().to_owned();
    bed.tutti(1, &["wait", &job]).expect(0);
    let text = bed.tutti(1, &["logs", &job]).expect(0).text();
    let file = |rank: u32| own.join(format!("out-{rank}")).display().to_string();
    let part = |rank: u32| format!("==> {} <==\nrank {rank} of n{}\n", file(rank), rank + 1);
    assert_eq!(text, format!("{}\n{}", part(0), part(1)));
    assert_eq!(bed.tutti(1, &["logs", "-r", "1", &job]).expect(0).text(), "rank 1 of n2\n");
}

#[test]
fn a_reader_of_output_gets_no_file_that_the_jobs_owner_may_not_read() {
    let (bed, own) = bed_with_own_files();
    let secret = own.join("secret").display().to_string();
    // What a link leads to, and why it is not shown. The agent itself has the files below /proc.
    let links = [
        (secret.as_str(), "Permission denied"),
        ("/proc/self/maps", "one of the kernel's"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "one of the kernel's"),
        ("/proc/self/fd/1", "symbolic links"),
    ];
    bed.tutti(1, &["run", "-w", "n2", "sh", "-c", &format!("umask 077; echo x > {secret}")])
        .expect(0);
    for (number, (to, why)) in links.into_iter().enumerate() {
        let link = own.join(number.to_string()).display().to_string();
        bed.tutti(1, &["run", "-w", "n2", "ln", "-s", to, &link]).expect(0);
        let line = ["submit", "--parsable", "-w", "n2", "-o", &link, "--", "true"];
        let job = as_nobody(&bed, &line).expect(0).text().trim().to_owned();
        // Most can't be opened by the job either.
        drop(as_nobody(&bed, &["wait", &job]));
        for refused in [as_nobody(&bed, &["logs", &job]), bed.tutti(1, &["logs", &job])] {
            let refused = refused.expect(1).says(why).says("[T055]");
            assert_eq!(refused.text(), "", "{to}");
        }
    }
    let theirs = submit(&bed, own.join("out").to_str().unwrap(), "echo theirs");
    bed.tutti(1, &["wait", &theirs]).expect(0);
    as_nobody(&bed, &["logs", &theirs]).expect(1).says("belongs to root").says("[T020]");
}
