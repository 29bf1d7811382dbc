//! What a started process finds.

use crate::support::{Directory, Launch, NOBODY, Subtree, c_string, each_way, need_root, open};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use tutti_linux::proc::{ProcessStat, online_processors};
use tutti_linux::rt;
use tutti_linux::spawn::{Identity, StdioFd};

#[test]
fn the_identity() {
    each_way("the_identity", |group| {
        need_root();
        let mut launch = Launch::sh("id -u; id -ru; id -G; grep CapEff /proc/self/status");
        launch.identity = Some(Identity { uid: NOBODY, gid: 12, groups: vec![12, 34, 56] });
        let expected = "65534\n65534\n12 34 56\nCapEff:\t0000000000000000\n";
        assert_eq!(launch.output(group), expected);
    });
}

#[test]
fn directory_mask_arguments_and_environment() {
    each_way("directory_mask_argum", |group| {
        let mut launch =
            Launch::program(&["sh", "-c", "pwd; umask; echo $0 $1; env", "zero", "o n e"]);
        launch.cwd = c"/usr".to_owned();
        launch.env.push(c_string("ANSWER=42"));
        let output = launch.output(group);
        let mut lines = output.lines();
        assert_eq!([lines.next(), lines.next()], [Some("/usr"), Some("0027")]);
        assert_eq!(lines.next(), Some("zero o n e"));
        let mut env: Vec<&str> = lines.filter(|line| !line.starts_with("_=")).collect();
        env.sort_unstable();
        assert_eq!(env[0], "ANSWER=42");
        assert!(env[1..].iter().all(|line| line.starts_with("PATH=") || line.starts_with("PWD=")));
    });
}

#[test]
fn limits() {
    each_way("limits", |group| {
        need_root();
        let mut launch = Launch::sh("ulimit -n; ulimit -Hn; ulimit -c");
        // Fewer descriptors than this process has open: those must be gone before.
        let infinity = libc::RLIM_INFINITY;
        launch.rlimits = vec![
            (libc::RLIMIT_NOFILE.cast_signed(), 7, 11),
            (libc::RLIMIT_CORE.cast_signed(), 0, infinity),
        ];
        launch.stdin = open(c"/dev/zero", libc::O_RDONLY);
        assert_eq!(launch.output(group), "7\n11\n0\n");
    });
}

#[test]
fn processors() {
    each_way("processors", |group| {
        let last = *online_processors().last().unwrap();
        let mut launch = Launch::sh("grep Cpus_allowed_list /proc/self/status");
        launch.processors = Some(vec![last]);
        assert_eq!(launch.output(group), format!("Cpus_allowed_list:\t{last}\n"));
    });
}

#[test]
fn signals_are_as_in_a_fresh_process() {
    each_way("signals_are_as_in_a_", |group| {
        // The test harness ignores SIGPIPE, as programs in Rust do.
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(own.lines().any(|line| line.starts_with("SigIgn:") && !line.ends_with("000000")));
        let output = Launch::program(&["cat", "/proc/self/status"]).output(group);
        for name in ["SigBlk", "SigIgn", "SigCgt"] {
            assert!(output.contains(&format!("{name}:\t0000000000000000\n")), "{output}");
        }
    });
}

#[test]
fn a_session_of_its_own() {
    each_way("a_session_of_its_own", |group| {
        let output = Launch::program(&["cat", "/proc/self/stat"]).output(group);
        let stat = ProcessStat::parse(output.as_bytes()).unwrap();
        assert_eq!((stat.session, stat.pgrp), (stat.pid, stat.pid));
    });
}

#[test]
fn scheduling_is_ordinary() {
    each_way("scheduling_is_ordina", |group| {
        need_root();
        let script = "cat /proc/self/stat /proc/self/oom_score_adj /proc/$$/timerslack_ns";
        // Priorities belong to a thread, so that other tests don't notice.
        let start = || {
            rt::become_realtime(5).unwrap();
            rt::set_timer_slack(1);
            // SAFETY: takes no pointer; 0 is this thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -5) };
            Launch::sh(script).output(group)
        };
        let output = std::thread::scope(|scope| scope.spawn(start).join()).unwrap();
        let (stat, rest) = output.split_once('\n').unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let (nice, rt_priority, policy) = (fields[19 - 3], fields[40 - 3], fields[41 - 3]);
        assert_eq!((nice, rt_priority, policy), ("0", "0", "0"), "{stat}");
        assert_eq!(rest, "0\n50000\n");
    });
}

#[test]
fn only_what_is_handed_over_is_open() {
    each_way("only_what_is_handed_", |group| {
        // One that would survive exec.
        let leak = fs::File::open("/dev/null").unwrap();
        // SAFETY: takes no pointer.
        assert_eq!(unsafe { libc::fcntl(leak.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        let mut launch = Launch::sh("echo /proc/$$/fd/*");
        launch.pass = vec![(leak.as_raw_fd(), 3), (leak.as_raw_fd(), 9)];
        let output = launch.output(group);
        let open: Vec<&str> =
            output.split_whitespace().map(|path| path.rsplit('/').next().unwrap()).collect();
        // The shell's own, for reading the directory, may be among them; it closes by itself.
        let expected = ["0", "1", "2", "3", "9"];
        assert!(expected.iter().all(|fd| open.contains(fd)), "{open:?}");
        assert!(open.len() <= expected.len() + 1, "{open:?}");
    });
}

#[test]
fn sources_may_be_the_targets_of_others() {
    each_way("sources_may_be_the_t", |group| {
        let file = |name: &str, text: &str, directory: &Directory| -> OwnedFd {
            fs::write(directory.0.join(name), text).unwrap();
            fs::File::open(directory.0.join(name)).unwrap().into()
        };
        let directory = Directory::new("swap");
        let (one, two) = (file("one", "1", &directory), file("two", "2", &directory));
        let (a, b) = (one.as_raw_fd(), two.as_raw_fd());
        let mut launch = Launch::sh(&format!("cat /proc/self/fd/{a} /proc/self/fd/{b}"));
        launch.pass = vec![(a, b), (b, a)];
        assert_eq!(launch.output(group), "21");
    });
}

#[test]
fn streams() {
    each_way("streams", |group| {
        need_root();
        let directory = Directory::new("streams");
        std::os::unix::fs::chown(&directory.0, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut launch = Launch::sh("cat; echo out; echo err >&2; echo more").nobody();
        launch.cwd = c_string(directory.0.to_str().unwrap());
        launch.stdout = Some(open(c"both", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
        launch.stderr = StdioFd::Stdout;
        launch.output(group);
        let path = directory.0.join("both");
        assert_eq!(fs::read_to_string(&path).unwrap(), "out\nerr\nmore\n");
        let made = fs::metadata(&path).unwrap();
        // 0666 without what the mask takes.
        assert_eq!((made.uid(), made.mode() & 0o777), (NOBODY, 0o640));
    });
}

#[test]
fn the_group_and_nothing_outside_of_it() {
    let subtree = Subtree::new("into");
    let group = subtree.group("g");
    let output = Launch::sh("cat /proc/self/cgroup | grep ^0::").output(Some(&group));
    let path = output.trim().trim_start_matches("0::/");
    assert!(group.path().ends_with(path) && path.ends_with("/g"), "{output}");
}
