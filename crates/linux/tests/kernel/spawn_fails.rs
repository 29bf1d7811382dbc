//! What cannot be started is reported with the step and the error number.

use crate::support::{
    Directory, Forked, LATE, Launch, NOBODY, c_string, each_way, need_root, open,
};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use tutti_linux::spawn::{Identity, Nursery, Report, Spawn, StdioFd, Step, Unwanted, read_report};

fn check(launch: &Launch, step: Step, errno: i32) {
    let name = format!("fails-{step:?}-{errno}-{}", launch.argv[0].to_bytes().len());
    each_way(&name, |group| {
        let mut process = launch.start(group);
        assert_eq!(process.report(), Report::Failed { step, errno });
        let pid = Pid::from_raw(process.pid());
        assert_eq!(process.wait(), WaitStatus::Exited(pid, 127));
    });
}

fn candidates(files: &[&str]) -> Launch {
    let mut launch = Launch::program(&[files[0]]);
    launch.env = vec![c_string(&format!("PATH={}", files.join(":")))];
    launch
}

#[test]
fn programs_that_do_not_exist_or_may_not_be_executed() {
    let directory = Directory::new("programs");
    let at = |name: &str| directory.0.join(name);
    fs::create_dir_all(at("first")).unwrap();
    fs::create_dir_all(at("second")).unwrap();
    fs::write(at("first/tool"), "#!/bin/sh\n").unwrap();
    let text = |name: &str| at(name).to_str().unwrap().to_owned();

    check(&Launch::program(&["no-such-program"]), Step::Execute, libc::ENOENT);
    check(&Launch::program(&["/no/such/program"]), Step::Execute, libc::ENOENT);
    check(&Launch::program(&[""]), Step::Execute, libc::ENOENT);
    check(&Launch::program(&[&text("first/tool")]), Step::Execute, libc::EACCES);
    check(&Launch::program(&["/"]), Step::Execute, libc::EACCES);
    check(&Launch::program(&[&text("first/tool/x")]), Step::Execute, libc::ENOENT);

    let mut searched = candidates(&[&text("first"), &text("second")]);
    searched.argv = vec![c"tool".to_owned()];
    check(&searched, Step::Execute, libc::EACCES);

    // The second candidate is tried after the first may not be executed.
    fs::write(at("second/tool"), "echo $0 $1\n").unwrap();
    fs::set_permissions(at("second/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    searched.argv.push(c"argument".to_owned());
    // And a script without `#!` is run by the shell.
    assert_eq!(searched.output(None), format!("{} argument\n", text("second/tool")));
}

#[test]
fn what_cannot_be_executed_may_complain_where_its_errors_go() {
    let mut launch = Launch::program(&["/no/such/program"]);
    launch.stderr = StdioFd::Stdout;
    launch.complaint = Some(c"cannot execute it: ".to_owned());
    let mut process = launch.start(None);
    assert_eq!(process.read_all(), "cannot execute it: No such file or directory\n");
    assert_eq!(
        process.report(),
        Report::Failed { step: Step::Execute, errno: libc::ENOENT },
        "the report comes all the same"
    );
    process.wait();
    // Not for other failures: the errors may have no place yet.
    launch.cwd = c"/no/such".to_owned();
    assert_eq!(launch.start(None).read_all(), "");
}

#[test]
fn directories_that_cannot_be_entered() {
    need_root();
    let directory = Directory::new("directories");
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o700)).unwrap();
    let check_cwd = |launch: Launch, cwd: &str, errno| {
        check(&Launch { cwd: c_string(cwd), ..launch }, Step::Directory, errno);
    };
    check_cwd(Launch::sh("true"), "/no/such", libc::ENOENT);
    check_cwd(Launch::sh("true"), "/dev/null", libc::ENOTDIR);
    // As the user, not as the starting process.
    check_cwd(Launch::sh("true").nobody(), directory.0.to_str().unwrap(), libc::EACCES);
}

#[test]
fn files_are_opened_as_the_user() {
    need_root();
    let directory = Directory::new("files");
    let file = c_string(directory.0.join("out").to_str().unwrap());
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();

    let mut output = Launch::sh("true").nobody();
    output.stdout = Some(open(&file, flags));
    check(&output, Step::Stdout, libc::EACCES);
    let mut input = Launch::sh("true");
    input.stdin = open(&file, libc::O_RDONLY);
    check(&input, Step::Stdin, libc::ENOENT);
    let mut error = Launch::sh("true");
    error.stderr = open(c"/", flags);
    check(&error, Step::Stderr, libc::EISDIR);
}

#[test]
fn limits_processors_and_groups_that_are_refused() {
    need_root();
    let mut limits = Launch::sh("true");
    limits.rlimits = vec![(libc::RLIMIT_NOFILE.cast_signed(), 20, 10)];
    check(&limits, Step::Limits, libc::EINVAL);
    let mut processors = Launch::sh("true");
    processors.processors = Some(vec![100_000]);
    check(&processors, Step::Processors, libc::EINVAL);
    let mut companion = Launch::sh("true");
    companion.companions = vec![c"/no/such/cgroup.procs".to_owned()];
    check(&companion, Step::Companions, libc::ENOENT);
    let mut passed = Launch::sh("true");
    passed.pass = vec![(1_000_000, 3)];
    check(&passed, Step::Descriptors, libc::EBADF);
}

#[test]
fn a_failure_below_a_minder_is_reported_and_its_status_told() {
    let mut process = Launch::program(&["no-such-program"]).minded().start(None);
    let expected = Report::Failed { step: Step::Execute, errno: libc::ENOENT };
    assert_eq!(process.report(), expected);
    assert!(process.number().unwrap() > process.pid());
    assert_eq!(process.number(), Some(127 << 8));
    assert_eq!(process.number(), None);
    assert_eq!(process.wait(), WaitStatus::Exited(Pid::from_raw(process.pid()), 0));
}

#[test]
fn the_user_must_be_allowed_to_become_another() {
    need_root();
    let launch = || {
        let mut launch = Launch::sh("true");
        launch.identity = Some(Identity { uid: 0, gid: 0, groups: vec![] });
        launch
    };
    let failed = Report::Failed { step: Step::Identity, errno: libc::EPERM };
    assert_eq!(crate::support::as_nobody(|| launch().start(None).report()), failed);
    assert_ne!(NOBODY, 0);
}

fn plain<'a>(program: &'a [CString], argv: &'a [CString]) -> Spawn<'a> {
    Spawn {
        argv,
        env: [&[], &[]],
        program,
        cwd: c"/",
        umask: 0,
        nice: None,
        rlimits: &[],
        identity: None,
        cgroup: None,
        companions: &[],
        limits_memory: false,
        ipc: None,
        processors: None,
        held_by_group: false,
        stdio: [StdioFd::Null, StdioFd::Null, StdioFd::Null],
        pass: &[],
        new_session: false,
        terminal: false,
        minder: false,
        isolated: false,
        adopts_orphans: false,
        ends_with_parent: false,
        complaint: None,
    }
}

#[test]
fn what_makes_no_sense_is_refused_at_once() {
    let (program, argv) = ([c"/bin/true".to_owned()], [c"true".to_owned()]);
    let base = plain(&program, &argv);
    let refused = |made: Spawn| {
        assert_eq!(
            Nursery::new().spawn(&made, &Unwanted::look_up()).unwrap_err().raw_os_error(),
            Some(libc::EINVAL),
            "{made:?}"
        );
    };
    refused(Spawn { argv: &[], ..base.clone() });
    refused(Spawn { program: &[], ..base.clone() });
    refused(Spawn { pass: &[(0, 2)], ..base.clone() });
    refused(Spawn { pass: &[(0, 5), (1, 5)], ..base.clone() });
    let stdio = [StdioFd::Null, StdioFd::Stdout, StdioFd::Null];
    refused(Spawn { stdio, ..base.clone() });
}

#[test]
fn of_several_each_starts_or_fails_by_itself() {
    let program = [c"/bin/sh".to_owned()];
    let argv = |script: &CStr| [c"sh".to_owned(), c"-c".to_owned(), script.to_owned()];
    let (three, none, five) = (argv(c"exit 3"), [], argv(c"exit 5"));
    let nowhere = [c"/nonexistent".to_owned()];
    let (mut nursery, unwanted) = (Nursery::new(), Unwanted::look_up());
    let made = [
        plain(&program, &three),
        plain(&program, &none),
        plain(&nowhere, &three),
        plain(&program, &five),
    ]
    .map(|spawn| nursery.spawn(&spawn, &unwanted));
    let ends: Vec<_> = made
        .into_iter()
        .map(|made| {
            let child = made.map_err(|error| error.raw_os_error())?;
            let status = nix::sys::wait::waitpid(Pid::from_raw(child.pid), None).unwrap();
            let WaitStatus::Exited(_, status) = status else { panic!("{status:?}") };
            Ok((status, read_report(child.report.as_fd()).ok()))
        })
        .collect();
    let failed = Report::Failed { step: Step::Execute, errno: libc::ENOENT };
    let expected = [
        Ok((3, Some(Report::Running))),
        Err(Some(libc::EINVAL)),
        Ok((127, Some(failed))),
        Ok((5, Some(Report::Running))),
    ];
    // While others of them are being set up they hold its report open.
    for (index, (end, expected)) in ends.into_iter().zip(expected).enumerate() {
        match (end, expected) {
            (Ok((status, None)), Ok((wanted, _))) => assert_eq!(status, wanted, "{index}"),
            (end, expected) => assert_eq!(end, expected, "{index}"),
        }
    }
}

#[test]
fn a_process_killed_before_it_ran_ends_the_report() {
    let subtree = crate::support::Subtree::new("early");
    let group = subtree.group("g");
    group.request_freeze().unwrap();
    let mut process = Launch::sh("true").start(Some(&group));
    group.kill().unwrap();
    let pid = Pid::from_raw(process.pid());
    let killed = WaitStatus::Signaled(pid, nix::sys::signal::Signal::SIGKILL, false);
    assert_eq!(process.wait(), killed);
    assert_eq!(process.report(), Report::Running);
}

#[test]
fn the_fixture_that_hangs_can_be_killed() {
    let stuck = Forked::stuck();
    drop(stuck);
    assert!(!LATE.is_zero());
}
