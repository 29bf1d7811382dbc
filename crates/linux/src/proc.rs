//! Reading `/proc`: one process, the tree below it, and a few facts of the machine.
//!
//! All of it is a snapshot that may be stale when it is returned. Code that acts on it by number
//! must check [`ProcessStat::start_time`] against what was seen before: numbers are used again.

use crate::procfile::read_bytes;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

const PROC: &str = "/proc";
/// `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Where the parent of a vfork waits, depending on what the compiler of the kernel inlined.
const VFORK: [&str; 3] = ["kernel_clone", "wait_for_vfork_done", "_do_fork"];

/// `/proc/PID/stat`, the parts that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Number of the process.
    pub pid: i32,
    /// Name of the program or thread, up to 15 bytes; what is not UTF-8 is replaced.
    pub comm: String,
    /// `R` running, `S` sleeping, `D` in the kernel, `T` stopped, `t` stopped by a tracer,
    /// `Z` ended but not reaped, `X` about to vanish, `I` idle kernel thread. Of the first thread.
    pub state: char,
    /// Parent; 0 where it lies outside this pid namespace.
    pub ppid: i32,
    /// Process group.
    pub pgrp: i32,
    /// Session.
    pub session: i32,
    /// What the kernel calls its flags: `PF_` and so on in its sources.
    pub flags: u32,
    /// Processor time in user mode, clock ticks (see `sysconf(_SC_CLK_TCK)`, mostly 100 a second).
    pub utime: u64,
    /// Processor time in the kernel, clock ticks.
    pub stime: u64,
    /// Threads that exist.
    pub threads: u32,
    /// When it started, clock ticks since boot. With `pid` it names a process for good.
    pub start_time: u64,
    /// Memory that it has in the machine, pages.
    pub resident_pages: u64,
}

impl ProcessStat {
    /// Reads the state of process `pid`.
    ///
    /// # Errors
    /// [`Error::is_gone`] when there is no such process; [`Error::Malformed`] for a kernel that
    /// writes the file in another way.
    pub fn read(pid: i32) -> Result<Self> {
        Self::read_file(&PathBuf::from(format!("{PROC}/{pid}/stat")))
    }

    /// Reads a file with the format of `/proc/PID/stat`.
    ///
    /// # Errors
    /// As [`ProcessStat::read`].
    pub fn read_file(path: &Path) -> Result<Self> {
        let text = read_bytes(path).map_err(Error::file("read", path))?;
        Self::parse(&text)
            .ok_or_else(|| Error::Malformed { path: path.to_owned(), wanted: "process state" })
    }

    /// Takes the line apart. The name stands in parentheses and may hold any byte, `)` and
    /// spaces and newlines too; no other field can, so the last `)` ends it.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let comm = text.get(open + 1..close)?;
        let pid = std::str::from_utf8(&text[..open]).ok()?.trim().parse().ok()?;
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered from 1 in proc(5); the state is field 3.
        fn field<T: FromStr>(fields: &[&str], number: usize) -> Option<T> {
            fields.get(number - 3)?.parse().ok()
        }
        Some(Self {
            pid,
            comm: String::from_utf8_lossy(comm).into_owned(),
            state: field(&fields, 3)?,
            ppid: field(&fields, 4)?,
            pgrp: field(&fields, 5)?,
            session: field(&fields, 6)?,
            flags: field(&fields, 9)?,
            utime: field(&fields, 14)?,
            stime: field(&fields, 15)?,
            threads: field(&fields, 20)?,
            start_time: field(&fields, 22)?,
            resident_pages: field(&fields, 24)?,
        })
    }

    /// When it started, nanoseconds since boot.
    #[must_use]
    pub fn born_ns(&self) -> u64 {
        self.start_time.saturating_mul(ns_per_tick())
    }

    /// Processor time of it, children left out.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.utime.saturating_add(self.stime).saturating_mul(ns_per_tick()))
    }

    /// Memory that it has in the machine, bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        // SAFETY: takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        self.resident_pages.saturating_mul(u64::try_from(page).unwrap_or(4096))
    }

    /// Whether it is a thread of the kernel.
    #[must_use]
    pub const fn is_of_the_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether it has ended and waits to be reaped. (The first thread may end before others.)
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// Whether no thread of it can run: each is stopped, has ended, or waits in the kernel for the
    /// child of a vfork, after which it would stop before doing anything if it was told to.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let process = PathBuf::from(format!("{PROC}/{}", self.pid));
        // A stop reaches the threads one by one; the first may be there before the others.
        thread_is_held(self.state, &process)
            && (self.threads <= 1
                || numbers_in(&process.join("task")).iter().all(|tid| {
                    let thread = process.join(format!("task/{tid}"));
                    Self::read_file(&thread.join("stat"))
                        .map_or(true, |stat| thread_is_held(stat.state, &thread))
                }))
    }
}

/// How long a clock tick of `/proc` is.
fn ns_per_tick() -> u64 {
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(ticks).unwrap_or(100).max(1)
}

/// The program and arguments of a process, with spaces between them; the name in brackets where
/// there are none (a process that has ended, or took them away). What is not UTF-8 is replaced.
#[must_use]
pub fn command_line(stat: &ProcessStat) -> String {
    let words = fs::read(format!("{PROC}/{}/cmdline", stat.pid)).unwrap_or_default();
    let text = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    if text.is_empty() { format!("[{}]", stat.comm) } else { text }
}

/// The wait status of a process that has ended and is not reaped, where the reader may know it.
pub(crate) fn ended_status(pid: i32) -> Option<i32> {
    const EXIT_CODE: usize = 52;
    let text = fs::read(format!("{PROC}/{pid}/stat")).ok()?;
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    let fields: Vec<&str> = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().collect();
    // Zero is also what a reader without the right sees.
    let code = fields.get(EXIT_CODE - 3)?.parse().ok()?;
    (fields.first() == Some(&"Z") && may_trace(pid)).then_some(code)
}

/// Whether the kernel lets us look into a process: a reader without the right is shown zeros.
fn may_trace(pid: i32) -> bool {
    fs::read_link(format!("{PROC}/{pid}/ns/user")).is_ok()
}

/// A process's parent, the parent of that, and so on, to the first process.
#[must_use]
pub fn ancestors(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut at = pid;
    while let Ok(stat) = ProcessStat::read(at)
        && stat.ppid > 0
        && !found.contains(&stat.ppid)
    {
        found.push(stat.ppid);
        at = stat.ppid;
    }
    found
}

/// The numbers of all processes, ended ones that are not reaped included.
#[must_use]
pub fn all() -> Vec<i32> {
    numbers_in(Path::new(PROC))
}

/// The threads of a process; none if it has ended.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&PathBuf::from(format!("{PROC}/{pid}/task")))
}

/// Whether a thread belongs to a process.
pub(crate) fn is_thread_of(pid: i32, thread: i32) -> bool {
    Path::new(&format!("{PROC}/{pid}/task/{thread}")).exists()
}

/// The process that a thread belongs to; `None` if it has ended.
pub(crate) fn process_of(thread: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("{PROC}/{thread}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The user that a process is of: real, effective, saved and for files.
///
/// # Errors
/// [`Error::is_gone`] when there is no such process.
pub fn user_ids(pid: i32) -> Result<[u32; 4]> {
    let path = PathBuf::from(format!("{PROC}/{pid}/status"));
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    let ids: Option<Vec<u32>> =
        ids.and_then(|ids| ids.split_whitespace().map(|id| id.parse().ok()).collect());
    ids.and_then(|ids| ids.try_into().ok()).ok_or(Error::Malformed { path, wanted: "user" })
}

/// Without this a tree could not be stopped in which a parent waits for the child of a vfork that
/// was stopped before it executed its program.
fn thread_is_held(state: char, directory: &Path) -> bool {
    match state {
        'T' | 't' | 'Z' | 'X' => true,
        'D' => wchan_file(&directory.join("wchan")).is_some_and(|at| VFORK.contains(&&*at)),
        _ => false,
    }
}

/// All descendants of `root`, without itself, parents before their children, siblings in the order
/// in which they were made. Empty if there is no such process.
///
/// While processes of the tree come and go it may miss some (but none of a tree that is stopped).
///
/// # Errors
/// When `/proc` itself cannot be read.
pub fn descendants(root: i32) -> Result<Vec<i32>> {
    descendants_at_most(root, usize::MAX)
}

/// As [`descendants`], but none is looked for once there are more than `most`: a tree may grow
/// faster than it is read.
///
/// # Errors
/// When `/proc` itself cannot be read.
pub fn descendants_at_most(root: i32, most: usize) -> Result<Vec<i32>> {
    let tree = Tree::read()?;
    let mut found = tree.children(root);
    let mut next = 0;
    while let Some(&pid) = found.get(next)
        && found.len() <= most
    {
        found.extend(tree.children(pid));
        next += 1;
    }
    Ok(found)
}

/// The children of a process, by whichever of its threads. Where the kernel can say so, no other
/// process is looked at.
///
/// # Errors
/// When `/proc` itself cannot be read.
pub fn children(pid: i32) -> Result<Vec<i32>> {
    Ok(Tree::read()?.children(pid))
}

/// Parents and children: asked of the kernel anew for each process, or, where it was built without
/// `/proc/PID/task/TID/children`, from one scan of all processes; or known of some processes only.
pub(crate) enum Tree {
    Live,
    /// By parent.
    Scanned(BTreeMap<i32, Vec<i32>>),
    /// By parent, with the start time of each.
    Listed {
        children: BTreeMap<i32, Vec<i32>>,
        began: BTreeMap<i32, u64>,
    },
}

impl Tree {
    pub(crate) fn read() -> Result<Self> {
        if Path::new("/proc/thread-self/children").exists() {
            return Ok(Self::Live);
        }
        Self::scan(Path::new(PROC))
    }

    /// Reads the parent of every process under `proc`.
    fn scan(proc: &Path) -> Result<Self> {
        fs::metadata(proc).map_err(Error::file("read", proc))?;
        Ok(Self::Scanned(by_parent(&stats(proc, &numbers_in(proc)))))
    }

    /// As the processes of a list are related, with those whose parent is none of them.
    ///
    /// One may end before it is looked at, and its number be that of another user's process then:
    /// that is not in the list when it is read again. It is among the tops, but [`Tree::may_be`]
    /// excludes it: one that began with it meanwhile may have to be looked for.
    pub(crate) fn among(list: impl Fn() -> Result<Vec<i32>>) -> Result<(Self, Vec<i32>)> {
        let listed = list()?;
        let mut found = stats(Path::new(PROC), &listed);
        let still: BTreeSet<i32> = list()?.into_iter().collect();
        found.retain(|stat| still.contains(&stat.pid));
        let began: BTreeMap<i32, u64> =
            found.iter().map(|stat| (stat.pid, stat.start_time)).collect();
        let gone = listed.into_iter().filter(|pid| !began.contains_key(pid));
        let tops = found.iter().filter(|stat| !began.contains_key(&stat.ppid));
        let tops = tops.map(|stat| stat.pid).chain(gone).collect();
        Ok((Self::Listed { children: by_parent(&found), began }, tops))
    }

    /// Whether a process that was found by its number can be the one that is meant.
    pub(crate) fn may_be(&self, stat: &ProcessStat) -> bool {
        match self {
            Self::Live | Self::Scanned(_) => true,
            Self::Listed { began, .. } => began.get(&stat.pid) == Some(&stat.start_time),
        }
    }

    pub(crate) fn children(&self, pid: i32) -> Vec<i32> {
        match self {
            Self::Live => live_children(pid),
            Self::Scanned(children) | Self::Listed { children, .. } => {
                children.get(&pid).cloned().unwrap_or_default()
            }
        }
    }
}

/// What is said of these processes, those that are gone left out.
fn stats(proc: &Path, pids: &[i32]) -> Vec<ProcessStat> {
    let read = |pid: &i32| ProcessStat::read_file(&proc.join(format!("{pid}/stat"))).ok();
    pids.iter().filter_map(read).collect()
}

/// These processes by their parent, in the order in which they are named.
fn by_parent(stats: &[ProcessStat]) -> BTreeMap<i32, Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for stat in stats {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    children
}

/// A child belongs to the thread that made it.
fn live_children(pid: i32) -> Vec<i32> {
    let tasks = PathBuf::from(format!("{PROC}/{pid}/task"));
    let of_thread = |tid: i32| fs::read_to_string(tasks.join(format!("{tid}/children")));
    numbers_in(&tasks)
        .into_iter()
        .filter_map(|tid| of_thread(tid).ok())
        .flat_map(|text| {
            text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        })
        .collect()
}

/// The entries of a directory whose name is a number; none if it has vanished.
fn numbers_in(directory: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The kernel function in which the first thread of a process waits; `None` if it runs, has ended,
/// or the reader may not know.
#[must_use]
pub fn wchan(pid: i32) -> Option<String> {
    wchan_file(Path::new(&format!("{PROC}/{pid}/wchan")))
}

fn wchan_file(path: &Path) -> Option<String> {
    let name = fs::read_to_string(path).ok()?;
    (!name.is_empty() && name != "0").then_some(name)
}

/// A process that does not do what it was told, and where it hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckProcess {
    /// Its number.
    pub pid: i32,
    /// Its name; empty if it ended meanwhile.
    pub comm: String,
    /// The kernel function in which it waits, if known.
    pub wchan: Option<String>,
}

impl StuckProcess {
    /// What is known of process `pid` now.
    #[must_use]
    pub fn look_at(pid: i32) -> Self {
        let comm = ProcessStat::read(pid).map(|stat| stat.comm).unwrap_or_default();
        Self { pid, comm, wchan: wchan(pid) }
    }

    /// Process `pid`, if one of its threads is not held by the freezer of cgroup2.
    pub(crate) fn if_not_frozen(pid: i32, sleepers: Sleepers) -> Option<Self> {
        let stat = ProcessStat::read(pid).ok().filter(|stat| !stat.has_ended())?;
        let tasks = PathBuf::from(format!("{PROC}/{pid}/task"));
        let running = numbers_in(&tasks).into_iter().find_map(|tid| {
            let state = ProcessStat::read_file(&tasks.join(format!("{tid}/stat"))).ok()?.state;
            let wchan = wchan_file(&tasks.join(format!("{tid}/wchan")));
            (!counts_as_frozen(state, wchan.as_deref(), sleepers)).then_some(wchan)
        })?;
        Some(Self { pid, comm: stat.comm, wchan: running })
    }
}

/// What to make of a thread that sleeps in an unknown place. It may sit in the freezer, and the
/// reader have no right to see that; or be between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleepers {
    AreFrozen,
    AreStuck,
}

/// The freezer counts as frozen what sits in its trap, what is stopped, and the parent of a vfork,
/// which cannot go on before its frozen child.
fn counts_as_frozen(state: char, wchan: Option<&str>, sleepers: Sleepers) -> bool {
    // The trap itself, or what the compiler of the kernel has inlined it into.
    const HELD: [&str; 4] = ["do_freezer_trap", "get_signal", "ptrace_stop", "do_signal_stop"];
    match (state, wchan) {
        ('T' | 't' | 'Z' | 'X', _) => true,
        ('S', None) => sleepers == Sleepers::AreFrozen,
        (_, at) => at.is_some_and(|at| HELD.contains(&at) || VFORK.contains(&at)),
    }
}

impl std::fmt::Display for StuckProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.pid, self.comm)?;
        self.wchan.as_ref().map_or(Ok(()), |at| write!(f, " in {at}"))
    }
}

/// The identity of this boot of the machine: changes with each, the same for all processes.
///
/// # Errors
/// When `/proc/sys/kernel/random/boot_id` cannot be read.
pub fn boot_id() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    Ok(text.trim().to_owned())
}

/// Memory of the machine that the kernel manages, bytes.
///
/// # Errors
/// When `/proc/meminfo` cannot be read or has no `MemTotal` in kB.
pub fn memory_total_bytes() -> Result<u64> {
    memory_in(Path::new("/proc/meminfo"), "MemTotal")
}

/// Memory of the machine that can be had without swapping, bytes.
///
/// # Errors
/// When `/proc/meminfo` cannot be read or has no `MemAvailable` in kB.
pub fn memory_available_bytes() -> Result<u64> {
    memory_in(Path::new("/proc/meminfo"), "MemAvailable")
}

/// How many processes wanted to run on average over the last minute, five and fifteen minutes, in
/// thousandths.
///
/// # Errors
/// If the kernel does not tell.
pub fn load_averages() -> Result<[u32; 3]> {
    load_averages_in(Path::new("/proc/loadavg"))
}

fn load_averages_in(path: &Path) -> Result<[u32; 3]> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let averages: Vec<u32> = text.split_whitespace().take(3).map_while(thousandths).collect();
    averages
        .try_into()
        .map_err(|_| Error::Malformed { path: path.to_owned(), wanted: "load averages" })
}

/// Time in which some task of the machine waited for a processor, since the machine began, in
/// microseconds. `None` if the kernel does not count it, by its settings or before Linux 4.20.
#[must_use]
pub fn cpu_pressure_us() -> Option<u64> {
    stalled_us(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// The total of the line `some` of a file of pressure.
fn stalled_us(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// `1.25` as 1250.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, hundredths) = text.split_once('.')?;
    let (whole, hundredths) = (whole.parse::<u32>().ok()?, hundredths.parse::<u32>().ok()?);
    whole.checked_mul(1000)?.checked_add(hundredths.checked_mul(10)?)
}

/// How much of a processor was used since the machine began, in microseconds; as exact as the
/// kernel's ticks, mostly of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// By processes that give way to others (`nice`).
    pub niced_us: u64,
    /// By all others, and the kernel.
    pub us: u64,
}

/// How busy each of the processors was that this process may use.
///
/// # Errors
/// If the kernel does not tell.
pub fn busy_processors() -> Result<BTreeMap<u32, Busy>> {
    let path = Path::new("/proc/stat");
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    busy_in(&text, &online_processors(), ns_per_tick() / 1000)
        .filter(|busy| !busy.is_empty())
        .ok_or(Error::Malformed { path: path.to_owned(), wanted: "processor times" })
}

/// User, nice, system, then idle and waiting, which are no use, then interrupts of both kinds. What
/// guests of this machine used is part of user and nice.
fn busy_in(text: &str, processors: &[u32], tick_us: u64) -> Option<BTreeMap<u32, Busy>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some((number, times)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        if let Some(number) = number.parse().ok().filter(|number| processors.contains(number)) {
            let times: Vec<u64> =
                times.split_whitespace().map_while(|it| it.parse().ok()).collect();
            let [user, nice, system, _, _, hard, soft, ..] = times[..] else { return None };
            let used = [user, system, hard, soft].into_iter().fold(0, u64::saturating_add);
            let [us, niced_us] = [used, nice].map(|ticks| ticks.saturating_mul(tick_us));
            all.insert(number, Busy { niced_us, us });
        }
    }
    Some(all)
}

fn memory_in(path: &Path, wanted: &'static str) -> Result<u64> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    text.lines()
        .find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| Error::Malformed { path: path.to_owned(), wanted })
}

/// The processors that this process may use, ascending, as the kernel numbers them.
#[must_use]
pub fn online_processors() -> Vec<u32> {
    processors_of(0).unwrap_or_else(|| {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..u32::try_from(count).unwrap_or(1)).collect()
    })
}

/// As [`online_processors`], of thread `tid`, 0 for the calling one; `None` if it has ended.
#[must_use]
pub fn processors_of(tid: i32) -> Option<Vec<u32>> {
    // In words, since the kernel wants whole ones; 1024 processors first, then more.
    let mut mask = vec![0_u64; 16];
    while mask.len() <= 16_384 {
        // SAFETY: the buffer is as long as said.
        let result = unsafe {
            libc::sched_getaffinity(tid, mask.len() * size_of::<u64>(), mask.as_mut_ptr().cast())
        };
        if result == 0 {
            return Some(set_bits(&mask));
        }
        if Error::last("sched_getaffinity").errno() != Some(libc::EINVAL) {
            return None;
        }
        // The kernel has more processors than the mask.
        mask = vec![0; mask.len() * 2];
    }
    None
}

fn set_bits(words: &[u64]) -> Vec<u32> {
    let bits = words.iter().flat_map(|&word| (0..64).map(move |bit| word >> bit & 1 == 1));
    (0_u32..).zip(bits).filter_map(|(number, is_set)| is_set.then_some(number)).collect()
}

/// The hard limits on a process's resources, in the order of the kernel's numbers of these;
/// `u64::MAX`: none. Only if the process is this user's: a number may have become another's.
///
/// # Errors
/// If there is no such process of this user.
pub fn hard_limits(pid: i32, uid: u32) -> Result<Vec<u64>> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let path = Path::new("/proc").join(pid.to_string()).join("limits");
    // What is open belongs to one process, whatever becomes of the number.
    let mut file = fs::File::open(&path).map_err(Error::file("open", &path))?;
    if file.metadata().map_err(Error::file("read", &path))?.uid() != uid {
        return Err(Error::Malformed { path, wanted: "process of the user" });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(Error::file("read", &path))?;
    Ok(hard_limits_in(&text))
}

/// The kernel lists them in the order of their numbers: name, soft and hard limit, unit.
fn hard_limits_in(text: &str) -> Vec<u64> {
    const NAME_WIDTH: usize = 26;
    let hard = |line: &str| match line.get(NAME_WIDTH..)?.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    text.lines().skip(1).map(|line| hard(line).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: &str) -> String {
        format!(
            "4711 ({comm}) S 1 4711 4700 0 -1 4194560 91 0 0 0 17 4 0 0 20 0 3 0 88123 2703360 \
             215 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    }

    #[test]
    fn processors_are_busy_with_all_but_waiting() {
        let text = "cpu  111 222 333 444 555 666 777 888 999 1111\n\
             cpu0 1 2 3 1000 2000 4 5 3000 9000 9000\n\
             cpu1 10 20 30 1000 2000 40 50 3000 9000 9000\n\
             cpu10 100 200 300 1000 2000 400 500 3000 9000 9000\n\
             intr 5 6 7\n";
        let busy = |us, niced_us| Busy { niced_us, us };
        let two = BTreeMap::from([(0, busy(1300, 200)), (10, busy(130_000, 20_000))]);
        assert_eq!(busy_in(text, &[0, 10], 100), Some(two));
        assert_eq!(busy_in(text, &[1, 7], 100), Some([(1, busy(13_000, 2000))].into()));
        assert_eq!(busy_in(text, &[7], 100), Some(BTreeMap::new()));
        assert_eq!(busy_in("cpu0 1 2 3\n", &[0], 100), None);
        let all = || busy_processors().unwrap().values().map(|it| it.us + it.niced_us).sum::<u64>();
        let before = all();
        assert!(before > 0 && all() >= before);
    }

    #[test]
    fn limits_are_told_by_number() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max cpu time              unlimited            unlimited            seconds   \n\
             Max file size             7                    9                    bytes     \n";
        assert_eq!(hard_limits_in(text), [u64::MAX, 9]);
        let uid = nix::unistd::geteuid().as_raw();
        let own = hard_limits(std::process::id().cast_signed(), uid).unwrap();
        let number = libc::RLIMIT_NOFILE as usize;
        let nofile = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        assert_eq!((own.len(), own[number]), (16, nofile.unwrap().1));
        assert!(hard_limits(std::process::id().cast_signed(), uid + 1).is_err());
    }

    #[test]
    fn a_name_may_hold_anything() {
        for comm in ["sh", "", "a b", ")", "(", ") R 1 (", "x) Z 9 9", "\n) T\n", "tm (sd-pam)"] {
            let stat = ProcessStat::parse(line(comm).as_bytes()).expect(comm);
            let expected = ProcessStat {
                pid: 4711,
                comm: comm.to_owned(),
                state: 'S',
                ppid: 1,
                pgrp: 4711,
                session: 4700,
                flags: 4_194_560,
                utime: 17,
                stime: 4,
                threads: 3,
                start_time: 88123,
                resident_pages: 215,
            };
            assert_eq!(stat, expected);
        }
    }

    #[test]
    fn the_kernels_threads_say_so() {
        // `kthreadd`, as the kernel shows it.
        let text = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 4 0 0 20 0 1 0 8 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        assert!(ProcessStat::parse(text.as_bytes()).unwrap().is_of_the_kernel());
        assert!(!ProcessStat::parse(line("sh").as_bytes()).unwrap().is_of_the_kernel());
        let own = ProcessStat::read(std::process::id().cast_signed()).unwrap();
        assert!(!own.is_of_the_kernel());
    }

    #[test]
    fn a_name_that_is_not_text_is_replaced() {
        let mut bytes = line("ab").into_bytes();
        bytes[6] = 0xff;
        assert_eq!(ProcessStat::parse(&bytes).expect("parses").comm, "\u{fffd}b");
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        for text in ["", "1", "1 (", ")1 (", "1 (a", "1 (a)", "x (a) S 1", "1 (a) S 1 2 3"] {
            assert_eq!(ProcessStat::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn parse_survives_every_prefix() {
        let text = line("a) b");
        for end in 0..text.len() {
            let _ = ProcessStat::parse(&text.as_bytes()[..end]);
        }
    }

    #[test]
    fn ancestors_go_up_to_the_first_process() {
        let own = ancestors(std::process::id().cast_signed());
        assert_eq!(own.first(), Some(&nix::unistd::getppid().as_raw()));
        assert!(ancestors(i32::MAX).is_empty());
        assert!(all().contains(&std::process::id().cast_signed()));
    }

    #[test]
    fn this_process_reads_itself() {
        let own = i32::try_from(std::process::id()).unwrap();
        let stat = ProcessStat::read(own).unwrap();
        assert_eq!((stat.pid, stat.ppid), (own, nix::unistd::getppid().as_raw()));
        assert!(!stat.is_stopped() && !stat.has_ended());
        assert!(ProcessStat::read(i32::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn a_scan_finds_the_same_children_as_the_kernel() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (own, pid) = (std::process::id().cast_signed(), child.id().cast_signed());
        let scanned = Tree::scan(Path::new(PROC)).unwrap();
        let found = (Tree::Live.children(own), scanned.children(own), descendants(own).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.0.contains(&pid) && found.1.contains(&pid) && found.2.contains(&pid));
    }

    #[test]
    fn a_number_that_has_left_the_list_is_nobodys() {
        let own = std::process::id().cast_signed();
        let stat = ProcessStat::read(own).unwrap();
        let lists = std::cell::RefCell::new(vec![vec![own], vec![own]]);
        let next = || Ok(lists.borrow_mut().pop().unwrap_or_default());
        let (tree, tops) = Tree::among(next).unwrap();
        assert!(tops == [own] && tree.may_be(&stat));
        assert!(!tree.may_be(&ProcessStat { start_time: stat.start_time + 1, ..stat.clone() }));
        // As when it has ended, and another has its number.
        *lists.borrow_mut() = vec![Vec::new(), vec![own]];
        let (tree, tops) = Tree::among(next).unwrap();
        assert!(tops == [own] && !tree.may_be(&stat));
    }

    #[test]
    fn facts_of_the_machine() {
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(memory_total_bytes().unwrap() > 1 << 20);
        assert!(!online_processors().is_empty());
        assert!(load_averages().is_ok());
        assert_eq!(thousandths("12.34"), Some(12_340));
        assert_eq!(thousandths("12"), None);
        assert_eq!(set_bits(&[0b1001, 1 << 63]), [0, 3, 127]);
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=91.60 avg60=96.49 avg300=96.09 total=29439078688\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(stalled_us(text), Some(29_439_078_688));
        for damaged in ["", "full total=7\n", "some avg10=0.00\n", "some total=-1\n"] {
            assert_eq!(stalled_us(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn who_counts_as_frozen() {
        use Sleepers::{AreFrozen, AreStuck};
        assert!(counts_as_frozen('S', Some("do_freezer_trap"), AreStuck));
        assert!(counts_as_frozen('D', Some("kernel_clone"), AreStuck));
        assert!(counts_as_frozen('T', None, AreStuck));
        assert!(counts_as_frozen('S', None, AreFrozen));
        assert!(!counts_as_frozen('S', None, AreStuck));
        assert!(!counts_as_frozen('R', None, AreFrozen));
        assert!(!counts_as_frozen('D', Some("nfs_wait_bit_killable"), AreFrozen));
    }
}
