//! Swap: what the machine has of it, and the memory of single processes moved out and back.
//!
//! Memory of a group leaves by the group's own means where there are any
//! ([`Cgroup::swap_out`](crate::cgroup::Cgroup::swap_out)). Here is what is left: advice for each
//! mapping of a process (`process_madvise`, Linux 5.10). The kernel takes it for processes that are
//! frozen or stopped, too. Pages that several processes share stay.

use crate::pidfd::{self, Held, for_each_listed};
use crate::procfile::read_text;
use crate::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// By what memory of jobs is moved out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBy {
    /// `memory.reclaim` of a group of v2 (Linux 5.19).
    Reclaim,
    /// The limit of a group of v1, which is lowered for that.
    Limit,
    /// Advice for each mapping of each process.
    Advice,
    /// Nothing.
    #[default]
    None,
}

impl SwapBy {
    /// What reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reclaim => "memory.reclaim",
            Self::Limit => "memory.limit_in_bytes",
            Self::Advice => "process_madvise",
            Self::None => "none",
        }
    }
}

/// The swap space of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapSpace {
    /// All of it.
    pub total_bytes: u64,
    /// What of it is free.
    pub free_bytes: u64,
}

impl SwapSpace {
    /// Reads it; nothing where the kernel does not say.
    #[must_use]
    pub fn read() -> Self {
        read_text(Path::new("/proc/meminfo")).map_or_else(|_| Self::default(), |it| Self::of(&it))
    }

    fn of(meminfo: &str) -> Self {
        let bytes = |key: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
            kib.map_or(0, |kib: u64| kib << 10)
        };
        Self { total_bytes: bytes("SwapTotal:"), free_bytes: bytes("SwapFree:") }
    }

    /// What of it memory of jobs may take, in bytes.
    #[must_use]
    pub const fn usable_bytes(self) -> u64 {
        self.free_bytes.saturating_sub(self.total_bytes / 16)
    }

    /// Whether there is swap space, and the sixteenth of it that stays free for what else the
    /// machine runs is all that is left.
    #[must_use]
    pub const fn is_short(self) -> bool {
        self.total_bytes > 0 && self.usable_bytes() == 0
    }
}

/// What a mapping is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_WILLNEED`: read what was moved out.
    Back,
    /// `MADV_PAGEOUT`: move it out.
    Out,
}

/// The most of a mapping that one call is about, in bytes: how often it is asked whether to go on.
const CALL_BYTES: u64 = 64 << 20;

/// The most threads that memory comes back by.
const THREADS_MAX: usize = 8;

/// For fewer bytes, no thread is made.
const THREAD_BYTES_MIN: u64 = 4 << 20;

/// Whether the kernel takes advice for other processes from this one.
#[must_use]
pub fn takes_advice() -> bool {
    let Ok(own) = pidfd::open(std::process::id().cast_signed()) else { return false };
    // About no byte at all: only the right to ask counts.
    advise(own.as_raw_fd(), (0, 0), Advice::Out).is_ok()
}

fn advise(process: i32, (from, to): (u64, u64), advice: Advice) -> nix::Result<()> {
    let advice = match advice {
        Advice::Back => libc::MADV_WILLNEED,
        Advice::Out => libc::MADV_PAGEOUT,
    };
    let range = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(from).unwrap_or(0)),
        iov_len: usize::try_from(to - from).unwrap_or(0),
    };
    // SAFETY: `range` is one range, as said. Its address is of another process, and not used here.
    let result = unsafe {
        libc::syscall(libc::SYS_process_madvise, process, &raw const range, 1_usize, advice, 0_u32)
    };
    nix::errno::Errno::result(result).map(drop)
}

/// Advises the kernel about all memory of the listed processes, as long as `goes_on`. What comes
/// back does so by several threads: the time goes to allocating pages, not to reading them.
///
/// # Errors
/// What reading the list says.
pub fn advise_all(
    list: impl Fn() -> Result<Vec<i32>>,
    advice: Advice,
    goes_on: &dyn Fn() -> bool,
) -> Result<()> {
    let threads = match advice {
        Advice::Back => std::thread::available_parallelism().map_or(1, usize::from),
        Advice::Out => 1,
    };
    for_each_listed(list, |process| {
        let pieces = pieces(&mappings(process));
        let (large, small): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|(from, to)| to - from >= THREAD_BYTES_MIN);
        for pieces in small.chunks(1).chain(large.chunks(threads.min(THREADS_MAX))) {
            if goes_on() {
                advise_at_once(process.as_fd().as_raw_fd(), pieces, advice);
            }
        }
    })
    .map(drop)
}

/// Parts of these mappings of as much as one call is about.
fn pieces(mappings: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let step = usize::try_from(CALL_BYTES).unwrap_or(usize::MAX);
    let parts = |&(from, to): &(u64, u64)| {
        (from..to).step_by(step).map(move |from| (from, to.min(from + CALL_BYTES)))
    };
    mappings.iter().flat_map(parts).collect()
}

/// Advice about several pieces of memory, with a thread for each but the first.
fn advise_at_once(process: i32, pieces: &[(u64, u64)], advice: Advice) {
    let about = |piece: (u64, u64)| {
        // Some mappings can't be moved; the process may have ended.
        let _ = advise(process, piece, advice);
    };
    let Some((&first, others)) = pieces.split_first() else { return };
    std::thread::scope(|scope| {
        for &piece in others {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || about(piece));
            if thread.is_err() {
                about(piece);
            }
        }
        about(first);
    });
}

/// Where the memory of a process is mapped.
fn mappings(process: &Held) -> Vec<(u64, u64)> {
    let maps = read_text(&PathBuf::from(format!("/proc/{}/maps", process.pid())));
    maps.map_or_else(|_| Vec::new(), |maps| maps.lines().filter_map(range).collect())
}

/// The addresses of one line of `/proc/PID/maps`; none for what the kernel itself has there.
fn range(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let is_of_kernel = words.nth(4).is_some_and(|name| name.starts_with("[v"));
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?)).filter(|(from, to)| from < to && !is_of_kernel)
}

/// The memory that processes have here, in bytes: what several share counts for each.
#[must_use]
pub fn resident_bytes(processes: &[i32]) -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let page = page.ok().flatten().and_then(|it| u64::try_from(it).ok()).unwrap_or(4096);
    let pages = processes.iter().filter_map(|pid| {
        let text = read_text(&PathBuf::from(format!("/proc/{pid}/statm"))).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    pages.sum::<u64>().saturating_mul(page)
}

/// An error that says what a file should have held.
pub(crate) fn malformed(path: &Path) -> Error {
    Error::Malformed { path: path.to_owned(), wanted: "a number of bytes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_space_is_read_and_a_part_stays_free() {
        let text = "MemTotal: 9 kB\nSwapTotal:  1024 kB\nSwapFree:        64 kB\n";
        let space = SwapSpace::of(text);
        assert_eq!(space, SwapSpace { total_bytes: 1 << 20, free_bytes: 64 << 10 });
        assert!(space.is_short());
        assert!(!SwapSpace { free_bytes: (64 << 10) + 1, ..space }.is_short());
        assert!(!SwapSpace::of("").is_short(), "without any, pages of files can still leave");
    }

    #[test]
    fn mappings_of_the_kernel_are_left_out() {
        let line = "7f00-7fff rw-p 00000000 00:00 0";
        assert_eq!(range(&format!("{line}   [heap]")), Some((0x7f00, 0x7fff)));
        assert_eq!(range(line), Some((0x7f00, 0x7fff)));
        assert_eq!(range(&format!("{line}   [vdso]")), None);
        assert_eq!(range("nonsense"), None);
    }

    #[test]
    fn large_mappings_are_cut_and_none_of_it_is_left_out() {
        let (call, page) = (CALL_BYTES, 4096);
        assert_eq!(pieces(&[(0, page), (call, 2 * call)]), [(0, page), (call, 2 * call)]);
        let cut =
            [(page, call + page), (call + page, 2 * call + page), (2 * call + page, 3 * call)];
        assert_eq!(pieces(&[(page, 3 * call)]), cut);
    }

    #[test]
    fn advice_about_a_process_is_taken_and_its_memory_stays_the_same() {
        if !takes_advice() {
            return;
        }
        let own = std::process::id().cast_signed();
        // More than one piece, so that several threads advise.
        let memory = vec![7_u8; 160 << 20];
        advise_all(|| Ok(vec![own]), Advice::Out, &|| true).unwrap();
        advise_all(|| Ok(vec![own]), Advice::Back, &|| true).unwrap();
        assert!(memory.iter().all(|&byte| byte == 7));
        assert!(resident_bytes(&[own]) > 160 << 20);
        assert_eq!(resident_bytes(&[0]), 0);
    }
}
