//! What tasks print and read.

use crate::harness::{Instance, Running, eventually, player};
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// Bytes that look like nothing in particular, the same each time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Checks that all lines of `player lines` came whole, each rank's in order; `label` strips what
/// stands before each.
fn check_lines(out: &str, ranks: u32, count: u32, label: bool) {
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    for line in out.lines() {
        let line = if label {
            let (rank, rest) = line.split_once(": ").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(rest.starts_with(rank.trim()), "wrong label: {}", &line[..line.len().min(80)]);
            rest
        } else {
            line
        };
        let shown = &line[..line.len().min(80)];
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [rank, number, length, text] = words[..] else { panic!("a cut line: {shown}") };
        let rank: u32 = rank.parse().unwrap_or_else(|_| panic!("a cut line: {shown}"));
        let expected = next.entry(rank).or_default();
        assert_eq!(number.parse(), Ok(*expected), "out of order: {shown}");
        assert_eq!(length.parse(), Ok(text.len()), "a cut line: {shown}");
        let letter = char::from(b'a' + u8::try_from(rank).unwrap());
        assert!(text.chars().all(|c| c == letter), "mixed lines: {shown}");
        *expected += 1;
    }
    assert_eq!(next, (0..ranks).map(|rank| (rank, count)).collect(), "lines are missing");
}

#[test]
fn lines_of_eight_ranks_are_never_cut_or_lost() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let plain = instance.tutti(&["run", "-n", "8", &player, "lines", "4000"]).expect(0);
    check_lines(&plain.text(), 8, 4000, false);
    let labelled =
        instance.tutti(&["run", "-n", "8", "--label", &player, "lines", "2000"]).expect(0);
    check_lines(&labelled.text(), 8, 2000, true);
}

/// A reader that begins late makes pieces large: the front end reads the tasks' pipes itself then.
#[test]
fn lines_in_bulk_are_never_cut_or_lost() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    let line = format!("tutti run -n 8 {player} lines 20000 | (sleep 1; cat)");
    check_lines(&instance.shell(&line).expect(0).text(), 8, 20_000, false);
    let line = format!("tutti run -n 8 --label {player} lines 5000 | (sleep 1; cat)");
    check_lines(&instance.shell(&line).expect(0).text(), 8, 5_000, true);
    // Where descriptors are short, some or all of it comes from the keeper.
    for descriptors in [12, 24, 28] {
        let run = format!("ulimit -n {descriptors}; exec tutti run -n 8 {player} lines 5000");
        let done = instance.shell(&format!("({run}) | (sleep 1; cat)")).expect(0);
        check_lines(&done.text(), 8, 5_000, false);
    }
    // Where there is none for the keeper, that is said at once, and the job is ended.
    let done = instance.shell("ulimit -n 4; exec tutti run -n 8 sleep 1000").expect(125);
    done.says("this process may not have as many files open").says("ulimit -n");
    // Bytes that are no lines go the same way.
    let bytes = "head -c 30000000 /dev/zero";
    let line = format!("tutti run -n 2 {bytes} | (sleep 1; cat) | tr -d '\\n' | wc -c");
    assert_eq!(instance.shell(&line).expect(0).text(), "60000000\n");
}

/// As above, into one file, and from one rank alone.
#[test]
fn bulk_reaches_files_and_goes_untouched_from_one_rank() {
    let instance = Instance::new().up();
    let player = player().display().to_string();
    instance.tutti(&["run", "-n", "4", "-o", "shared", &player, "lines", "20000"]).expect(0);
    let shared = fs::read_to_string(instance.work.join("shared")).unwrap();
    check_lines(&shared, 4, 20_000, false);
    let bytes = noise(20 << 20);
    fs::write(instance.work.join("noise"), &bytes).unwrap();
    let done = instance.shell("tutti run cat noise | (sleep 1; cat)").expect(0);
    assert!(done.out == bytes, "output differs: {} bytes", done.out.len());
    let done = instance
        .shell("tutti run sh -c 'cat noise >&2' 2>&1 >/dev/null | (sleep 1; cat)")
        .expect(0);
    assert!(done.out == bytes, "errors differ: {} bytes", done.out.len());
}

#[test]
fn labels_are_aligned_and_the_last_line_needs_no_end() {
    let instance = Instance::new().up();
    let line = "printf $TUTTI_RANK; printf e$TUTTI_RANK >&2";
    let done = instance.tutti(&["run", "-n", "11", "-l", "sh", "-c", line]).expect(0);
    let mut expected: Vec<String> = (0..11).map(|rank| format!("{rank:>2}: {rank}")).collect();
    expected.sort();
    assert_eq!(done.sorted(), expected);
    assert!(done.err.contains(" 3: e3\n") && done.err.contains("10: e10\n"), "{}", done.err);
    let alone = instance.tutti(&["run", "printf", "no end"]).expect(0);
    assert_eq!(alone.text(), "no end", "the output of one task is passed on as it is");
}

#[test]
fn raw_output_is_passed_on_as_it_comes() {
    let instance = Instance::new().up();
    let line = "printf $TUTTI_RANK; sleep 0.2; printf $TUTTI_RANK";
    let done = instance.tutti(&["run", "-n", "2", "--raw", "sh", "-c", line]).expect(0);
    let text = done.text();
    assert_eq!(text.len(), 4, "nothing is added: {text:?}");
    assert_eq!(text.matches('0').count(), 2);
    instance.tutti(&["run", "--raw", "--label", "true"]).expect(2);
}

#[test]
fn each_rank_can_have_a_file_and_errors_another() {
    let instance = Instance::new().up();
    let line = "echo out $TUTTI_RANK; echo err $TUTTI_RANK >&2";
    let run = |options: &[&str]| {
        let args = [&["run", "-n", "2", "-J", "name"], options, &["sh", "-c", line]].concat();
        let done = instance.tutti(&args).expect(0);
        assert_eq!((done.text().as_str(), done.err.as_str()), ("", ""));
    };
    let read = |name: &str| fs::read_to_string(instance.work.join(name)).unwrap();
    run(&["-o", "o-%j-%r-%x", "-e", "e-%j-%3r"]);
    assert_eq!(read("o-1-0-name"), "out 0\n");
    assert_eq!(read("e-1-001"), "err 1\n");
    run(&["-o", "both-%r"]);
    assert_eq!(read("both-1"), "out 1\nerr 1\n");
    run(&["-o", "shared"]);
    let shared = read("shared");
    assert!(shared.contains("out 0\n") && shared.contains("err 1\n"), "{shared}");
}

#[test]
fn a_wrong_pattern_is_refused_with_what_is_known() {
    let instance = Instance::new().up();
    for verb in ["run", "submit"] {
        let known = "%j job, %A array, %a index, %r or %t rank";
        instance.tutti(&[verb, "-o", "x-%q", "true"]).expect(2).says(known);
        instance.tutti(&[verb, "-e", "x-%", "true"]).expect(2).says("ends in '%'");
    }
    assert!(instance.jobs().is_empty());
}

#[test]
fn input_goes_to_whom_it_is_meant_for() {
    let instance = Instance::new().up();
    let cat = "sed \"s/^/$TUTTI_RANK got /\"; echo $TUTTI_RANK ends";
    let run = |who: &str, input: &str| {
        let mut running = instance.start_typing(&["run", "-n", "3", "-i", who, "sh", "-c", cat]);
        running.type_in(input.as_bytes());
        running.close_input();
        running.wait().expect(0)
    };
    let ends = ["0 ends", "1 ends", "2 ends"];
    let expect = |done: crate::harness::Done, lines: &[&str]| {
        let mut expected: Vec<&str> = ends.iter().chain(lines).copied().collect();
        expected.sort_unstable();
        assert_eq!(done.sorted(), expected);
    };
    expect(run("0", "a\n"), &["0 got a"]);
    expect(run("2", "a\nb\n"), &["2 got a", "2 got b"]);
    expect(run("all", "a\n"), &["0 got a", "1 got a", "2 got a"]);
    expect(run("none", ""), &[]);
    let tagged = run("tagged", "1: b\n0: a\n7: x\n1: c\n");
    assert!(tagged.err.contains("line 3 of the input has no rank"), "{}", tagged.err);
    expect(tagged, &["0 got a", "1 got b", "1 got c"]);
}

#[test]
fn twenty_megabytes_come_through_each_way_as_they_were() {
    let instance = Instance::new().up();
    let bytes = noise(20 << 20);
    fs::write(instance.work.join("noise"), &bytes).unwrap();
    let done = instance.tutti(&["run", "cat", "noise"]).expect(0);
    assert!(done.out == bytes, "output differs: {} bytes", done.out.len());
    instance.tutti(&["run", "-o", "copy", "cat", "noise"]).expect(0);
    assert!(fs::read(instance.work.join("copy")).unwrap() == bytes, "the file differs");
    let mut command = instance.command(&["run", "cat"]);
    command.stdin(fs::File::open(instance.work.join("noise")).unwrap());
    let done = Running::start(command).wait().expect(0);
    assert!(done.out == bytes, "input and output differ: {} bytes", done.out.len());
    let job = instance.submit(&["-i", "noise", "-o", "copy2", "cat"]);
    instance.tutti(&["wait", &job.to_string()]).expect(0);
    assert!(fs::read(instance.work.join("copy2")).unwrap() == bytes, "the job's file differs");
}

#[test]
fn a_megabyte_of_input_reaches_every_rank_whole() {
    let instance = Instance::new().up();
    let bytes = noise(1 << 20);
    let sum = instance.work.join("noise");
    fs::write(&sum, &bytes).unwrap();
    let expected = instance.shell("cksum < noise").expect(0).text();
    let mut running = instance.start_typing(&["run", "-n", "4", "-i", "all", "cksum"]);
    running.type_in(&bytes);
    running.close_input();
    assert_eq!(running.wait().expect(0).text(), expected.repeat(4));
}

#[test]
fn a_task_that_reads_nothing_does_not_hold_up_its_job() {
    let instance = Instance::new().up();
    let mut command = instance.command(&["run", "sh", "-c", "exit 4"]);
    command.stdin(Stdio::from(fs::File::open("/dev/zero").unwrap()));
    Running::start(command).wait().expect(4);
}

#[test]
fn a_reader_that_stalls_holds_up_only_its_own_job() {
    let instance = Instance::new().up();
    let (reader, writer) = std::io::pipe().unwrap();
    let flood = "i=0; while [ $i -lt 30000 ]; do echo $i 0123456789012345678901234567890123456789; i=$((i+1)); done";
    let mut command = instance.command(&["run", "-n", "2", "sh", "-c", flood]);
    let mut stalled = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    eventually("a job with a stalled reader", || {
        let tasks = instance.jobs();
        tasks.iter().any(|job| job["job"] == 1 && job["state"] == "running").then_some(())
    });
    // Others go on, again and again.
    for _ in 0..5 {
        let done = instance
            .tutti(&["run", "-n", "2", "--raw", "head", "-c", "500000", "/dev/zero"])
            .expect(0);
        assert_eq!(done.out.len(), 1_000_000);
    }
    assert!(stalled.try_wait().unwrap().is_none(), "its output can't have been taken");
    // Nothing of the stalled one is lost either.
    let mut out = String::new();
    std::io::Read::read_to_string(&mut { reader }, &mut out).unwrap();
    assert!(stalled.wait().unwrap().success());
    assert_eq!(out.lines().count(), 60_000);
}

#[test]
fn output_that_nobody_reads_any_more_ends_the_job_quietly() {
    let instance = Instance::new().up();
    let line = "tutti run --grace 1s sh -c 'while :; do echo y; done' | head -n 3";
    let done = instance.shell(line).expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("y\ny\ny\n", ""));
    // The same in bulk.
    let done = instance.shell("tutti run -n 2 --grace 1s yes | (sleep 0.3; head -n 3)").expect(0);
    assert_eq!((done.text().as_str(), done.err.as_str()), ("y\ny\ny\n", ""));
    eventually("the end of the job", || {
        instance.jobs().iter().all(|job| job["state"] == "ended").then_some(())
    });
}

#[test]
fn output_for_a_closed_stream_is_an_error_and_silence_is_none() {
    let instance = Instance::new().up();
    instance.shell("tutti run echo lost >&-").expect(119).says("standard output is closed");
    instance.shell("tutti run true >&-").expect(0);
    instance.shell("tutti run sh -c 'echo unwanted >&2' 2>&-").expect(0);
    instance.shell("tutti run echo unwanted >/dev/null").expect(0);
}

#[test]
fn a_last_line_stays_as_it_was_printed() {
    let instance = Instance::new().up();
    assert_eq!(instance.tutti(&["run", "printf", "x"]).expect(0).text(), "x");
    let done = instance.tutti(&["run", "-n", "3", "printf", "x"]).expect(0);
    assert_eq!(done.text(), "x\nx\nx");
}
