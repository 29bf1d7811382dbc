//! What is made ready before the fork, since the child must not allocate. The child may use it
//! after the caller that asked for it has gone on, so all of it is owned.

use super::{Identity, Spawn, StdioFd};
use crate::disposition::is_default;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

/// Where programs are searched for when `PATH` is not set, as the C library does.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// What of the caller's own its children must not have; looked up once for many of them.
#[derive(Clone, Debug)]
pub struct Unwanted {
    /// Signals that are not at their default.
    pub(super) signals: Vec<c_int>,
    /// Whether its OOM score is another than that of ordinary processes.
    pub(super) oom_score: bool,
    /// Whether what processes have in memory that become another user may be shown to anybody: to
    /// that user's debuggers, or to readers of their core dumps. So it is where that can't be
    /// known.
    pub(super) shows_memory: bool,
}

impl Unwanted {
    /// As it is now.
    #[must_use]
    pub fn look_up() -> Self {
        let oom_score = std::fs::read("/proc/self/oom_score_adj");
        Self {
            signals: (1..=SIGNALS).filter(|&signal| !is_default(signal)).collect(),
            oom_score: oom_score.map_or(true, |score| score != b"0\n"),
            shows_memory: shows_memory(std::fs::read("/proc/sys/fs/suid_dumpable").ok().as_deref()),
        }
    }
}

/// By what `fs.suid_dumpable` says, if that can be read.
fn shows_memory(setting: Option<&[u8]>) -> bool {
    setting.is_none_or(|value| value.trim_ascii() != b"0")
}

const SIGNALS: c_int = 64;

/// Where a standard stream goes, with nothing borrowed.
#[derive(Debug)]
pub(super) enum Stream {
    /// Among the descriptors to arrange.
    Given,
    Null,
    /// Where standard output goes.
    Output,
    File {
        path: CString,
        flags: c_int,
        mode: u32,
    },
}

/// Everything for the child, in the form that system calls want.
#[derive(Debug)]
pub(super) struct Plan {
    /// What the pointers point to.
    _texts: Vec<CString>,
    /// Null-terminated, as `execve` wants it.
    pub(super) argv: Vec<*const c_char>,
    pub(super) env: Vec<*const c_char>,
    /// `/bin/sh FILE arguments`, for a script without `#!`; the child fills in element 1.
    pub(super) shell_argv: Vec<*const c_char>,
    pub(super) program: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) umask: u32,
    pub(super) nice: Option<c_int>,
    pub(super) rlimits: Vec<(c_int, u64, u64)>,
    pub(super) identity: Option<Identity>,
    pub(super) companions: Vec<CString>,
    /// The IPC namespace to enter.
    pub(super) ipc: Option<RawFd>,
    pub(super) new_session: bool,
    pub(super) terminal: bool,
    pub(super) adopts_orphans: bool,
    pub(super) ends_with_parent: bool,
    pub(super) complaint: Option<CString>,
    pub(super) stdio: [Stream; 3],
    /// See [`Unwanted`].
    pub(super) signals: Vec<c_int>,
    pub(super) oom_score: bool,
    /// Source (later: its copy out of the way) and target of each descriptor to arrange.
    pub(super) moves: Vec<(RawFd, RawFd)>,
    /// Targets from 3 on, ascending.
    pub(super) kept: Vec<RawFd>,
    /// Above all targets; where the report descriptor ends up.
    pub(super) first_free: RawFd,
    /// The mask of processors, in words.
    pub(super) processors: Option<Vec<u64>>,
    pub(super) held_by_group: bool,
    pub(super) report: RawFd,
    pub(super) status: Option<RawFd>,
}

impl Plan {
    /// # Errors
    /// `EINVAL` for what cannot be carried out.
    pub(super) fn new(
        spawn: &Spawn,
        unwanted: &Unwanted,
        report: RawFd,
        status: Option<RawFd>,
    ) -> io::Result<Self> {
        let follows_output =
            |stream: usize| matches!(spawn.stdio[stream], StdioFd::Stdout) && stream < 2;
        let mut kept: Vec<RawFd> = spawn.pass.iter().map(|&(_, target)| target).collect();
        kept.sort_unstable();
        let collide = kept.windows(2).any(|pair| pair[0] == pair[1]);
        if spawn.program.is_empty()
            || spawn.argv.is_empty()
            || collide
            || kept.first().is_some_and(|&target| target < 3)
            || (0..3).any(follows_output)
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let texts: Vec<CString> =
            [spawn.argv, spawn.env[0], spawn.env[1]].into_iter().flatten().cloned().collect();
        let (arguments, environment) = texts.split_at(spawn.argv.len());
        let (argv, env) = (pointers(arguments), pointers(environment));
        let mut shell_argv = vec![c"/bin/sh".as_ptr(), ptr::null()];
        shell_argv.extend(&argv[1..]);
        Ok(Self {
            _texts: texts,
            argv,
            env,
            shell_argv,
            program: spawn.program.to_vec(),
            cwd: spawn.cwd.to_owned(),
            umask: spawn.umask,
            nice: spawn.nice,
            rlimits: spawn.rlimits.to_vec(),
            identity: spawn.identity.clone(),
            companions: spawn.companions.to_vec(),
            ipc: spawn.ipc.map(|namespace| namespace.as_raw_fd()),
            new_session: spawn.new_session,
            terminal: spawn.terminal,
            adopts_orphans: spawn.adopts_orphans,
            ends_with_parent: spawn.ends_with_parent,
            complaint: spawn.complaint.map(CStr::to_owned),
            stdio: [&spawn.stdio[0], &spawn.stdio[1], &spawn.stdio[2]].map(Stream::of),
            signals: unwanted.signals.clone(),
            oom_score: unwanted.oom_score,
            moves: moves(spawn),
            first_free: kept.last().map_or(3, |last| last.saturating_add(1)),
            kept,
            processors: spawn.processors.map(words),
            held_by_group: spawn.held_by_group,
            report,
            status,
        })
    }
}

fn moves(spawn: &Spawn) -> Vec<(RawFd, RawFd)> {
    let streams = (0..).zip(&spawn.stdio).filter_map(|(target, stream)| match stream {
        StdioFd::Fd(fd) => Some((fd.as_raw_fd(), target)),
        StdioFd::Open { .. } | StdioFd::Stdout | StdioFd::Null => None,
    });
    streams.chain(spawn.pass.iter().copied()).collect()
}

impl Stream {
    fn of(stdio: &StdioFd) -> Self {
        match stdio {
            StdioFd::Fd(_) => Self::Given,
            StdioFd::Null => Self::Null,
            StdioFd::Stdout => Self::Output,
            StdioFd::Open { path, flags, mode } => {
                Self::File { path: path.clone(), flags: *flags, mode: *mode }
            }
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The bit mask that `sched_setaffinity` takes.
pub(crate) fn words(processors: &[u32]) -> Vec<u64> {
    let count = processors.iter().max().map_or(0, |&last| last as usize / 64 + 1);
    let mut words = vec![0; count];
    for &processor in processors {
        words[processor as usize / 64] |= 1 << (processor % 64);
    }
    words
}

/// The files that `name` may mean, in the order in which to try them: itself if it holds a slash,
/// else in each directory of `path`, the `PATH` of the new process's environment.
#[must_use]
pub fn program_candidates(name: &CStr, path: Option<&[u8]>) -> Vec<CString> {
    let name = name.to_bytes();
    if name.is_empty() {
        // Tried and not found, as everywhere.
        return vec![CString::default()];
    }
    if name.contains(&b'/') {
        return CString::new(name).into_iter().collect();
    }
    let directories = path.unwrap_or(PATH_DEFAULT).split(|&byte| byte == b':');
    directories
        .filter_map(|directory| {
            let directory = if directory.is_empty() { b".".as_slice() } else { directory };
            CString::new([directory, b"/", name].concat()).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_only_where_nobody_else_may_see_it() {
        assert!(!shows_memory(Some(b"0\n")));
        assert!([Some(&b"1\n"[..]), Some(b"2\n"), None].into_iter().all(shows_memory));
    }

    #[test]
    fn names_are_searched_for_like_the_c_library_does() {
        let check = |name: &CStr, path: Option<&[u8]>, expected: &[&CStr]| {
            let found = program_candidates(name, path);
            let found: Vec<&CStr> = found.iter().map(CString::as_c_str).collect();
            assert_eq!(found, expected);
        };
        check(c"ls", Some(b"/a:/b"), &[c"/a/ls", c"/b/ls"]);
        check(c"ls", Some(b":/b:"), &[c"./ls", c"/b/ls", c"./ls"]);
        check(c"ls", None, &[c"/bin/ls", c"/usr/bin/ls"]);
        check(c"./ls", Some(b"/a"), &[c"./ls"]);
        check(c"", Some(b"/a"), &[c""]);
    }

    #[test]
    fn processors_become_bits() {
        assert_eq!(words(&[0, 2]), [5]);
        assert_eq!(words(&[64, 1]), [2, 1]);
        assert!(words(&[]).is_empty());
    }
}
