//! Output files that several tasks of a submitted job share: complete, in order for each rank, and
//! in whole lines, also over nodes with a shared directory.

use crate::cluster::Bed;
use crate::harness::{Instance, eventually, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// To find out that a node is gone, and to start its job elsewhere.
const LONG: Duration = Duration::from_secs(60);

/// Writes numbered lines, each in several pieces, and some without end of a line for a while.
fn writer(lines: u32, pause: &str) -> String {
    format!(
        "i=0; while [ $i -lt {lines} ]; do printf 'rank '; printf \"$TUTTI_RANK line \"; \
         printf \"$i of {lines}\\n\"; i=$((i+1)); {pause} done"
    )
}

/// Checks that a file has all the lines of each of so many ranks, in order, and nothing else.
/// `from`: the first line that must be there; earlier ones may be.
#[track_caller]
fn check(file: &Path, ranks: usize, lines: u32) {
    let text = fs::read_to_string(file).unwrap();
    let mut next = vec![0; ranks];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["rank", rank, "line", number, "of", _] = words[..] else { panic!("torn: {line:?}") };
        let rank: usize = rank.parse().unwrap();
        assert_eq!(number, next[rank].to_string(), "rank {rank}: lost or out of order");
        next[rank] += 1;
    }
    assert_eq!(next, vec![lines; ranks], "not complete");
}

fn submit(bed: &Bed, options: &[&str], program: &str) -> String {
    let words = [&["submit", "--parsable"], options, &["sh", "-c", program]].concat();
    bed.tutti(1, &words).expect(0).text().trim().to_owned()
}

#[test]
fn lines_of_ranks_on_one_node_are_whole() {
    let instance = Instance::new().up();
    let job = instance.submit(&["-n", "3", "-o", "out", "sh", "-c", &writer(500, "")]);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    check(&instance.work.join("out"), 3, 500);
    // Both streams in one file, each in its own, and one of them a file for each rank.
    let both = "echo out $TUTTI_RANK; echo err $TUTTI_RANK >&2";
    let files = |options: &[&str], names: &[&str]| {
        let words = [&["-n", "2"], options, &["sh", "-c", both]].concat();
        let job = instance.submit(&words);
        instance.tutti(&["wait", &job.to_string()]).expect(0);
        let read = |name: &&str| {
            let text = fs::read_to_string(instance.work.join(name)).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines.join(",")
        };
        names.iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(files(&["-o", "all"], &["all"]), ["err 0,err 1,out 0,out 1"]);
    assert_eq!(files(&["-o", "o", "-e", "e"], &["o", "e"]), ["out 0,out 1", "err 0,err 1"]);
    assert_eq!(
        files(&["-o", "p%%", "-e", "e%r"], &["p%", "e0", "e1"]),
        ["out 0,out 1", "err 0", "err 1"]
    );
}

#[test]
fn the_file_of_all_nodes_is_complete() {
    let bed = Bed::up(4, &[0]);
    for round in 0..3 {
        let name = format!("out-{round}");
        let job = submit(&bed, &["-N", "4", "-n", "8", "-o", &name], &writer(200, ""));
        bed.tutti(2, &["wait", &job]).expect(0);
        check(&bed.audit.work.join(&name), 8, 200);
    }
    // A file for each node is written there, line by line too.
    let job = submit(&bed, &["-N", "2", "-n", "4", "-o", "on-%N"], "echo $TUTTI_RANK");
    bed.tutti(1, &["wait", &job]).expect(0);
    let lines = |host: &str| {
        let text = fs::read_to_string(bed.audit.work.join(format!("on-{host}"))).unwrap();
        text.lines().count()
    };
    let jobs = bed.tutti(1, &["history", "--json", &job]).expect(0).text();
    let hosts = (1..=4).map(|number| bed.node(number).name().to_owned());
    let used: Vec<String> =
        hosts.filter(|host| bed.audit.work.join(format!("on-{host}")).exists()).collect();
    assert_eq!(used.len(), 2, "{jobs}");
    assert_eq!(used.iter().map(|host| lines(host)).sum::<usize>(), 4);
}

#[test]
fn a_file_that_cannot_be_opened_ends_the_job_on_all_nodes() {
    let bed = Bed::up(2, &[0]);
    let job = submit(&bed, &["-N", "2", "--keep-going", "-o", "%j/out"], "touch ran-$TUTTI_RANK");
    bed.tutti(1, &["wait", &job]).expect(126).says("cannot open output file");
    for rank in 0..2 {
        assert!(!bed.audit.work.join(format!("ran-{rank}")).exists());
    }
}

#[test]
fn output_of_all_nodes_survives_agents_that_are_killed_and_networks_that_break() {
    let bed = Bed::up_with(3, &[0], &["lease=25s"]);
    let file = bed.audit.work.join("out");
    let job = submit(&bed, &["-N", "3", "-o", "out"], &writer(400, "sleep 0.01;"));
    let lines = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    let grows = || {
        let before = lines();
        eventually("the file grows", || (lines() > before + 20).then_some(()));
    };
    grows();
    bed.node(1).signal("agent", Signal::SIGKILL).unwrap();
    grows();
    bed.node(2).signal("agent", Signal::SIGKILL).unwrap();
    grows();
    bed.bed().cut(bed.node(3)).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    bed.bed().heal(bed.node(3)).unwrap();
    within(LONG, "the job ends", || {
        let shown = bed.tutti(1, &["ps", "--json"]).expect(0).text();
        (!shown.contains("running")).then_some(())
    });
    bed.tutti(1, &["wait", &job]).expect(0);
    check(&file, 3, 400);
}

#[test]
fn a_job_that_is_queued_again_appends() {
    let bed = Bed::up_with(4, &[0], &["lease=2s"]);
    let file = bed.audit.work.join("out");
    fs::write(&file, "of another job\n").unwrap();
    let program =
        "echo begin $TUTTI_RANK; while ! test -e stop; do sleep 0.05; done; echo end $TUTTI_RANK";
    let options = ["-N", "2", "--nodes", "n[2-4]", "--on-node-loss", "requeue", "-o", "out"];
    let job = submit(&bed, &options, program);
    let count = |word: &str| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(word)).count()
    };
    eventually("both began", || (count("begin") == 2).then_some(()));
    // Its first node, where the writer is.
    let shown = bed.tutti(1, &["ps", "--json", &job]).expect(0).text();
    let first = (2..=4).find(|number| shown.contains(bed.node(*number).name())).unwrap();
    bed.bed().kill(bed.node(first)).unwrap();
    within(LONG, "both began again", || (count("begin") == 4).then_some(()));
    fs::write(bed.audit.work.join("stop"), "").unwrap();
    bed.tutti(1, &["wait", &job]).expect(0);
    assert_eq!([count("of another"), count("begin"), count("end")], [0, 4, 2]);
}

#[test]
fn a_job_whose_writer_is_killed_says_that_output_is_lost() {
    let instance = Instance::new().up();
    let program =
        "trap '' PIPE; echo begin; while ! test -e stop; do sleep 0.05; done; echo more; exit 0";
    let job = instance.submit(&["-n", "2", "-o", "out", "sh", "-c", program]).to_string();
    let begun = || fs::read_to_string(instance.work.join("out")).unwrap_or_default();
    eventually("both began", || (begun().lines().count() == 2).then_some(()));
    let keeper = instance.daemon("keeper");
    let is_writer = |pid: &i32| {
        crate::harness::command_line(*pid) == ["tutti", "writer"]
            && tutti_linux::proc::ProcessStat::read(*pid).is_ok_and(|stat| stat.ppid == keeper)
    };
    let writer = crate::harness::processes().into_iter().find(is_writer).unwrap();
    kill(Pid::from_raw(writer), Signal::SIGKILL).unwrap();
    fs::write(instance.work.join("stop"), "").unwrap();
    instance.tutti(&["wait", &job]).expect(119).says("signal 9");
}

/// The tasks of other nodes would find their output open until their keepers miss the writer, after
/// two minutes.
#[test]
fn a_writer_that_is_killed_is_missed_on_all_nodes_at_once() {
    let bed = Bed::up(2, &[0]);
    let file = bed.audit.work.join("out");
    let program =
        "trap '' PIPE; echo begin; while echo more; do sleep 0.1; done 2>/dev/null; exit 0";
    let job = submit(&bed, &["-N", "2", "-n", "2", "--keep-going", "-o", "out"], program);
    let begun = || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        (text.lines().filter(|line| *line == "begin").count() == 2).then_some(())
    };
    within(LONG, "both began", begun);
    let has_file = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == file))
    };
    let writer = crate::harness::processes().into_iter().find(has_file).unwrap();
    kill(Pid::from_raw(writer), Signal::SIGKILL).unwrap();
    within(LONG, "both find their output closed", || {
        let shown = bed.tutti(1, &["ps", "--json"]).expect(0).text();
        (!shown.contains("running")).then_some(())
    });
    bed.tutti(1, &["wait", &job]).expect(119).says("signal 9");
}
