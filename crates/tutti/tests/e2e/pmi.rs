//! Programs that store much through PMI, or say it badly: they work or are ended, and no other job
//! is touched.

use crate::cluster::Bed;
use crate::harness::{Instance, compile, eventually, status_of};
use std::fs;
use std::path::Path;

/// The program that speaks PMI.
pub(crate) fn program() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/pmi.c");
    let of_test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    compile("cc", &source, &format!("pmi-{of_test}")).display().to_string()
}

/// The library of PMI-2 that Slurm brings along, and MPI libraries are built against.
fn program_of_pmi_2() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/pmi2.c");
    let of_test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    let name = format!("pmi2-{of_test}");
    let options = ["-Wl,--no-as-needed", "-lpmi2"];
    crate::harness::compile_with(&options, "cc", &source, &name).display().to_string()
}

#[test]
fn clients_of_pmi_2_meet_on_a_node_and_over_nodes() {
    let program = program_of_pmi_2();
    let instance = Instance::new().up();
    let lines = |ranks: &[(u32, u32)], size: u32| -> Vec<String> {
        let line = |&(rank, first): &(u32, u32)| format!("rank {rank} of {size}, left by {first}");
        ranks.iter().map(line).collect()
    };
    let done = instance.tutti(&["run", "-n", "3", &program]).expect(0);
    assert_eq!(done.sorted(), lines(&[(0, 0), (1, 0), (2, 0)], 3));
    let bed = Bed::up(2, &[]);
    let done = bed.tutti(1, &["run", "-N", "2", "-n", "4", &program]).expect(0);
    assert_eq!(done.sorted(), lines(&[(0, 0), (1, 0), (2, 2), (3, 2)], 4));
}

#[test]
fn an_abort_by_pmi_2_ends_the_job_with_its_words() {
    let instance = Instance::new().up();
    let done = instance.tutti(&["run", "-n", "3", &program_of_pmi_2(), "fails"]).expect(1);
    assert!(done.err.contains("the result is wrong; it ends"), "{}", done.err);
}

/// Asks for many things at once, and reads the answers later; the last of it is an abort.
const HASTY: &str = "import os, socket, time
pmi = socket.socket(fileno=int(os.environ['PMI_FD']))
heard = b''
def hear(count):
    global heard
    while heard.count(b'\\n') < count: heard += pmi.recv(65536)
    lines, heard = heard.splitlines(), b''
    return lines
pmi.sendall(b'cmd=init pmi_version=1 pmi_subversion=1\\n')
hear(1)
pmi.sendall(b''.join(b'cmd=put key=k%04d value=\\n' % n for n in range(1500)))
hear(1500)
for first in range(0, 1500, 300):
    asked = range(first, first + 300)
    pmi.sendall(b''.join(b'cmd=getbyidx idx=%d\\n' % n for n in asked))
    found = hear(300)
    assert all(b' key=k%04d ' % n in line for n, line in zip(asked, found)), found
pmi.sendall(b'cmd=getbyidx idx=700\\n')
print(hear(1)[0].decode(), flush=True)
pmi.sendall(b'cmd=put key=again value=\\n' * 100 + b'cmd=abort exitcode=9\\n')
time.sleep(60)
";

#[test]
fn what_a_task_asks_at_once_is_answered_in_order_over_several_rounds() {
    let instance = Instance::new().up();
    fs::write(instance.work.join("hasty.py"), HASTY).unwrap();
    let done = instance.tutti(&["run", "-n", "1", "python3", "hasty.py"]).expect(9);
    assert!(done.text().contains("rc=-2 reason=no_more_keyvals"), "{}", done.text());
}

/// What a process has in memory, in KiB.
fn resident(pid: i32) -> u64 {
    status_of(pid, "VmRSS").unwrap().trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn more_than_a_frame_of_cards_reaches_the_tasks_of_other_nodes() {
    let bed = Bed::up(3, &[]);
    let program = program();
    let job = ["run", "-N", "3", "-n", "3", &program, "cards", "20000"];
    let done = bed.start(1, &job).wait_within(crate::harness::PATIENCE * 3).expect(0);
    assert_eq!(done.sorted(), ["rank 0 has all", "rank 1 has all", "rank 2 has all"]);
}

/// As MPI libraries store the addresses of a rank. TUTTI_RANKS of 4,096 needs 64 Ki descriptors.
#[test]
fn many_ranks_of_a_node_have_cards_of_four_kib() {
    let ranks: usize = std::env::var("TUTTI_RANKS").map_or(256, |it| it.parse().unwrap());
    let instance = Instance::new().up();
    let run = ["run", "-n", &ranks.to_string(), &program(), "ring", "4"];
    let done = instance.start(&run).wait_within(crate::harness::PATIENCE * 6).expect(0);
    assert_eq!(done.text().matches(" has all").count(), ranks);
    instance.tutti(&["run", "-n", "2", &program(), "ring", "4"]).expect(0);
}

#[test]
fn a_job_that_stores_too_much_ends_and_no_other_job_does() {
    let bed = Bed::up(2, &[]);
    let program = program();
    let other = bed.start(
        1,
        &[
            "run",
            "-N",
            "2",
            "-n",
            "2",
            "sh",
            "-c",
            "while [ ! -e go ]; do sleep 0.1; done; echo on",
        ],
    );
    let flood = bed.start(1, &["run", "-N", "2", "-n", "2", &program, "flood"]);
    let done = flood.wait_within(crate::harness::PATIENCE * 3).expect(1);
    assert!(done.err.contains("rank 0") && done.err.contains("[T048]"), "{}", done.err);
    std::fs::write(bed.audit.work.join("go"), "").unwrap();
    assert_eq!(other.wait().expect(0).sorted(), ["on", "on"]);
    bed.tutti(2, &["run", "-N", "2", "-n", "2", &program, "cards", "10"]).expect(0);
}

#[test]
fn what_one_job_makes_the_keeper_keep_is_bounded_and_given_back() {
    let instance = Instance::new().up();
    let (program, keeper) = (program(), instance.daemon("keeper"));
    instance.tutti(&["run", "-n", "2", &program, "cards", "10"]).expect(0);
    let before = resident(keeper);
    let same = instance.start(&["run", "-n", "2", &program, "same", "50000"]);
    same.wait_for("put");
    let grown = resident(keeper) - before;
    assert!(grown < 16 << 10, "{grown} KiB more for one key");
    std::fs::write(instance.work.join("listen"), "").unwrap();
    same.wait().expect(0);
    instance.start(&["run", "-n", "2", &program, "flood"]).wait().expect(1);
    let is_back = || (resident(keeper) < before + (24 << 10)).then_some(());
    eventually("its memory is given back", is_back);
}

#[test]
fn answers_that_a_task_does_not_read_wait_for_it_in_bounds() {
    let instance = Instance::new().up();
    let (program, keeper) = (program(), instance.daemon("keeper"));
    let before = resident(keeper);
    let mute = instance.start(&["run", &program, "mute", "3000"]);
    mute.wait_for("said");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let grown = resident(keeper).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more of 180 MB of answers");
    std::fs::write(instance.work.join("listen"), "").unwrap();
    assert!(mute.wait().expect(0).text().contains("heard"));
}

#[test]
fn a_rank_that_ends_before_it_finalizes_ends_the_job_after_its_grace() {
    let bed = Bed::up(2, &[]);
    let program = program();
    for (status, code) in [("0", 1), ("3", 3)] {
        let job = ["run", "-N", "2", "-n", "4", "--grace", "300ms", &program, "leave", status];
        let words = format!("rank 0 ended with exit status {status} before MPI_Finalize");
        bed.tutti(1, &job).expect(code).says(&words).says("[T049]");
    }
    let ended = bed.tutti(1, &["ps", "-a", "--json"]).expect(0).json();
    let ended = ended.as_array().unwrap();
    assert!(
        ended.iter().all(|job| job["reason"] == "a task failed" && job["code"] == "T049"),
        "{ended:?}"
    );
}

#[test]
fn ranks_do_not_wait_for_ever_for_a_rank_that_has_finalized_and_ended() {
    let bed = Bed::up(2, &[]);
    let program = program();
    let run = |words: &[&str]| bed.tutti(1, &[&["run"], words, &[&program, "gone"]].concat());
    run(&["-n", "3"]).expect(9);
    let words = "ranks waited in an MPI barrier for ranks that had ended";
    run(&["-N", "2", "-n", "2", "--grace", "300ms"]).expect(143).says(words);
}

#[test]
fn ranks_of_a_further_step_do_not_wait_for_ever_either() {
    let bed = Bed::up(2, &[]);
    let line =
        format!("{} run -N 2 -n 2 {} gone; echo rc $?", bed.audit.program.display(), program());
    let submit = ["-N", "2", "-n", "2", "--grace", "300ms", "-o", "out", "--wrap", &line];
    let submit = [&["batch", "--parsable"], &submit[..]].concat();
    let job = bed.tutti(1, &submit).expect(0).text().trim().to_owned();
    bed.tutti(1, &["wait", &job]).expect(0);
    let said = fs::read_to_string(bed.audit.work.join("out")).unwrap();
    for words in ["ranks waited in an MPI barrier for ranks that had ended", "rc 143"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn ranks_that_all_end_before_they_finalize_are_not_touched() {
    let instance = Instance::new().up();
    let program = program();
    let run = |words: &[&str]| instance.tutti(&[&["run"], words].concat());
    let done = run(&["-n", "3", &program, "all", "0"]).expect(0);
    assert_eq!(done.err, "");
    let done = run(&["-n", "3", &program, "all", "5"]).expect(5);
    assert!(!done.err.contains("MPI_Finalize"), "{}", done.err);
    // One task waits for no other.
    run(&["-n", "1", "--grace", "0s", &program, "all", "4"]).expect(4);
}

#[test]
fn several_mpi_programs_of_a_task_may_follow_each_other() {
    let instance = Instance::new().up();
    let line =
        format!("for i in 1 2 3; do {0} cards 2 || exit; done; sleep $TUTTI_RANK", program());
    instance.tutti(&["run", "-n", "2", "--grace", "0s", "sh", "-c", &line]).expect(0);
    // A library that shuts the socket down leaves none to the next: that is said.
    let line = format!("{0} shut 2 && exec {0} cards 2", program());
    let shut = ["run", "-n", "2", "--keep-going", "sh", "-c", &line];
    let words = "an earlier MPI program of this task had shut down its PMI connection";
    instance.tutti(&shut).expect(141).says(words);
}

/// Says the name of its key-value space.
const SPACE: &str = "
say() { echo \"cmd=$*\" >&$PMI_FD; read -r answer <&$PMI_FD; }
say init pmi_version=1 pmi_subversion=1
say get_my_kvsname
echo ${answer##*=}
";

/// MPICH 5 names a file in /dev/shm by a hash of it, and fails if there is one of another job, or
/// of an earlier launch that was killed.
#[test]
fn no_two_launches_of_a_machine_have_a_key_value_space_of_the_same_name() {
    let one = Instance::new().up();
    let two = Instance::new().up();
    let again = format!("{SPACE}[ $TUTTI_RESTARTS = 1 ] || sleep {}", one.nap);
    one.tutti(&["batch", "-o", "names", "--wrap", &again]).expect(0);
    let names = || fs::read_to_string(one.work.join("names")).unwrap_or_default();
    eventually("it runs", || (names().lines().count() == 1).then_some(()));
    one.tutti(&["requeue", "1"]).expect(0);
    one.tutti(&["wait", "1"]).expect(0);
    two.script("space", &format!("#!/bin/bash{SPACE}"));
    let steps = "./space; tutti run -n 1 ./space";
    let said = names() + &two.shell(&format!("tutti run -n 1 sh -c '{steps}'")).expect(0).text();
    let names: std::collections::BTreeSet<&str> = said.lines().collect();
    assert_eq!(names.len(), 4, "{said}");
    assert!(names.iter().all(|name| name.starts_with("kvs_1_")), "{said}");
}
