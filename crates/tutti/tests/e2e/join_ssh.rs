//! Machines that the head has join over ssh: with something in the place of `ssh` that goes to the
//! node.

use crate::cluster::Bed;
use crate::harness::{Done, Running, eventually};

/// What stands for `ssh`; nothing answers on n4.
const SSH: &str = r#"#!/bin/sh
echo "$*" >> "$WORK/calls"
while [ "${1#-}" != "$1" ]; do
    case $1 in -o | -l) shift ;; esac
    shift
done
host=$1
shift
if [ "$host" = n4 ]; then
    echo "ssh: connect to host n4 port 22: No route to host" >&2
    exit 255
fi
exec nsenter --net="/run/netns/$(basename "$BED")-$host" unshare --uts \
    sh -c 'hostname "$0"; export TUTTI_DIR="$2"; exec sh -c "$1"' "$host" "$*" "$BED/$host"
"#;

fn join(bed: &Bed, args: &[&str]) -> Done {
    let work = &bed.audit.work;
    let mut command = bed.node(1).tutti(&[&["join"], args].concat());
    let path = format!("{}:{}", work.join("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("WORK", work).env("BED", bed.bed().directory());
    Running::start(command).wait()
}

#[test]
fn machines_join_over_ssh_and_whoever_does_not_is_named() {
    let bed = Bed::of(4, &[0]);
    let work = &bed.audit.work;
    for directory in ["bin", "there"] {
        std::fs::create_dir(work.join(directory)).unwrap();
    }
    bed.audit.script("bin/ssh", SSH);
    join(&bed, &["--ssh", "n2"]).expect(1).says("in no cluster").says("[T060]");
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    // Another build of the same release is there.
    let build = format!("#!/bin/sh\necho tutti {}\n", env!("CARGO_PKG_VERSION"));
    bed.audit.script("there/tutti", &build);
    let there = work.join("there/tutti").display().to_string();
    let none = join(&bed, &["--ssh", "n2", "--program", "/nowhere/tutti", "--no-copy"]);
    none.expect(1).says("n2: ").says("/nowhere/tutti").says("1 of 1 machines did not join");
    let done = join(&bed, &["--ssh", "n[2-4]", "--program", &there, "--ssh-with", "ssh -l root"]);
    assert_eq!(
        done.sorted(),
        ["n2: n2 is a node of cluster tutti", "n3: n3 is a node of cluster tutti"]
    );
    let done = done.expect(1).says("n4: ssh: connect to host n4 port 22: No route to host");
    done.says("1 of 3 machines did not join");
    bed.tutti(3, &["run", "-N", "3", "true"]).expect(0);
    eventually("all are there", || {
        (bed.states().values().filter(|state| *state == "up").count() == 3).then_some(())
    });
    // It was copied, since the build was another, and whole.
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    assert_eq!(size(&there), size(bed.audit.program.to_str().unwrap()));
    let calls = || std::fs::read_to_string(work.join("calls")).unwrap();
    let copies = || calls().matches("cat > ").count();
    let copied = copies();
    assert!(copied > 0, "{}", calls());
    let calls = calls();
    assert!(calls.contains("-l root -o BatchMode=yes -o ConnectTimeout=15 n2"), "{calls}");
    assert!(calls.contains("join '10.77.0.1:7716' -"), "{calls}");
    assert!(!calls.contains("tutti1-"), "a token can be seen: {calls}");
    // A member says so.
    let again = join(&bed, &["--ssh", "n[2-3]", "--program", &there]).expect(0);
    let already =
        ["n2: n2 is a node of cluster tutti already", "n3: n3 is a node of cluster tutti already"];
    assert_eq!(again.sorted(), already);
    assert_eq!(copies(), copied, "the same executable was copied once more");
    // Tokens of machines that did not join are of no use: there is only what `up` has printed.
    let revoked = bed.tutti(1, &["invite", "--revoke"]).expect(0).text();
    assert!(revoked.starts_with("1 token revoked"), "{revoked}");
    join(&bed, &["--ssh", "n[2-"]).expect(1).says("brackets must be closed").says("[T002]");
}
