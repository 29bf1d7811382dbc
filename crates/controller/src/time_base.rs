//! How far cluster time is ahead of this machine's monotonic clock.
//!
//! That clock begins anew with the machine, and cluster time must not: it goes on after the last
//! entry of the journal, which is at most ten seconds old while there are jobs. So a controller may
//! find that it has to be ahead. The one after it, since the same start of the machine, must be as
//! far ahead, or further: long after the last entry time would go back otherwise, for agents and
//! for jobs that have run meanwhile. So it is written to a file beside the sockets, with what the
//! kernel calls this start of the machine. Where that can't be read or written, the journal alone
//! counts.
//!
//! While the journal takes nothing in, that file has another name: of what this controller does
//! then, the one after it knows nothing, unless the journal has it later. To give another name
//! takes no room on a full disk.
//!
//! Another file there says how far the journal goes, so that it is noticed if it is an older copy,
//! another one, or none: written in place whenever the journal has come to disk, with what the
//! kernel calls this start of the machine. Nothing is asked of a disk for that: after a loss of
//! power it says nothing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_journal::Known;
use tutti_node::instance::Instance;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{ClusterTime, Nanos};
use tutti_wire::code::Code;

/// What lies between the last moment that is known and the first of the next controller after the
/// clock began anew.
const TIME_GAP: Nanos = Nanos::from_secs(1);

/// What the kernel calls this start of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What is known of the controller before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// How far ahead it was.
    pub ahead: Nanos,
    /// Whether it has done what the journal does not tell of.
    pub has_gap: bool,
}

/// What is known of a controller before this one, since this start of the machine; `None`: none
/// was, or it is not known.
pub(super) fn of_former(instance: &Instance) -> Option<Former> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    [false, true].into_iter().find_map(|has_gap| {
        let written = fs::read_to_string(file(instance, has_gap)).ok()?;
        Some(Former { ahead: read(&written, boot.trim())?, has_gap })
    })
}

/// Has the next one know this of this one.
pub(super) fn keep(instance: &Instance, this: Former) {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let file = file(instance, this.has_gap);
    if let Err(error) =
        write((&file, &instance.clock_next_file()), &format!("{} {}\n", boot.trim(), this.ahead.0))
    {
        warn!(code = %Code::System, "cannot write {}: {error}", file.display());
    }
}

/// Has the next one know that the journal lacks something from now on, or nothing any more. To be
/// called before anything is done that it lacks.
pub(super) fn note_gap(instance: &Instance, has_gap: bool) {
    let (from, to) = (file(instance, !has_gap), file(instance, has_gap));
    if let Err(error) = fs::rename(&from, to) {
        warn!(code = %Code::System, "cannot rename {}: {error}", from.display());
    }
}

/// What the controllers since this start of the machine have stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Their last entry, or one before it.
    pub(super) known: Known,
    /// How many jobs there were by then.
    pub(super) jobs: u64,
}

/// What a controller before this one, since this start of the machine, has said of that.
pub(super) fn reach_of_former(instance: &Instance) -> Option<Reach> {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    read_reach(&fs::read_to_string(instance.reach_file()).ok()?, boot.trim())
}

/// Where it is said to the next one.
#[derive(Debug)]
pub(super) struct ReachFile {
    file: File,
    boot: String,
}

impl ReachFile {
    /// Where it can't be written, the next one knows nothing.
    pub(super) fn open(instance: &Instance) -> Option<Self> {
        let path = instance.reach_file();
        let opened =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        match opened {
            Ok(file) => {
                let boot = fs::read_to_string(BOOT).unwrap_or_default().trim().to_owned();
                Some(Self { file, boot })
            }
            Err(error) => {
                warn!(code = %Code::System, "cannot write {}: {error}", path.display());
                None
            }
        }
    }

    /// Says it, in one piece: all that is ever written there is of one length.
    pub(super) fn say(&self, reach: Reach) {
        let Reach { known: Known { stored, seal }, jobs } = reach;
        let line = format!("{} {stored:020} {seal:010} {jobs:020}\n", self.boot);
        // Without it a later controller notices less, and nothing else is changed.
        let _ = self.file.write_all_at(line.as_bytes(), 0);
    }
}

fn read_reach(text: &str, boot: &str) -> Option<Reach> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let is_ours = words.next()? == boot && !boot.is_empty();
    let stored = words.next()?.parse().ok()?;
    let seal = words.next()?.parse().ok()?;
    let jobs = words.next()?.parse().ok()?;
    (is_ours && words.next().is_none()).then_some(Reach { known: Known { stored, seal }, jobs })
}

fn file(instance: &Instance, has_gap: bool) -> PathBuf {
    if has_gap { instance.clock_gap_file() } else { instance.clock_file() }
}

/// How far ahead a controller is, if what it knows of happened until then.
pub(super) fn clock_ahead(former: Nanos, until: ClusterTime) -> Nanos {
    going_on(former, until, ClusterTime(monotonic_ns()))
}

/// As far as the former, unless time would not go on after `until`.
fn going_on(former: Nanos, until: ClusterTime, own: ClusterTime) -> Nanos {
    let now = own + former;
    if until <= now { former } else { former + until.since(now) + TIME_GAP }
}

/// What an earlier controller has written, if that was since this start of the machine.
fn read(text: &str, boot: &str) -> Option<Nanos> {
    let (of, ahead_ns) = text.trim_end().split_once(' ')?;
    let is_ours = of == boot && !boot.is_empty();
    is_ours.then(|| ahead_ns.parse().ok().map(Nanos)).flatten()
}

/// In one piece, so that no reader gets half of it.
fn write((file, next): (&Path, &Path), text: &str) -> io::Result<()> {
    fs::write(next, text)?;
    fs::rename(next, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn time_goes_on_after_what_is_known_whatever_the_machines_clock_says() {
        let (none, one) = (Nanos::ZERO, Nanos(HOUR));
        let going_on = |former, until: u64, own: u64| {
            going_on(former, ClusterTime(until * HOUR), ClusterTime(own * HOUR))
        };
        assert_eq!(going_on(none, 10, 1), Nanos(9 * HOUR) + TIME_GAP);
        assert_eq!(going_on(one, 10, 1), Nanos(9 * HOUR) + TIME_GAP);
        assert_eq!(going_on(none, 1, 1), none);
        assert_eq!(going_on(none, 1, 2), none);
    }

    #[test]
    fn a_controller_that_follows_at_once_has_the_time_of_the_former() {
        let (ahead, own) = (Nanos(HOUR), ClusterTime(HOUR));
        let last = own + ahead;
        let soon = own + Nanos::from_millis(6);
        assert_eq!(going_on(ahead, last, soon), ahead);
    }

    #[test]
    fn the_next_controller_knows_whether_the_journal_lacks_something() {
        let directory = std::env::temp_dir().join(format!("tutti-ahead-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let instance = Instance::at(directory.clone());
        assert_eq!(of_former(&instance), None);
        for has_gap in [false, true] {
            let kept = Former { ahead: Nanos(17), has_gap };
            keep(&instance, kept);
            assert_eq!(of_former(&instance), Some(kept));
            note_gap(&instance, !has_gap);
            assert_eq!(of_former(&instance), Some(Former { has_gap: !has_gap, ..kept }));
            note_gap(&instance, has_gap);
            assert_eq!(of_former(&instance), Some(kept));
            fs::remove_file(file(&instance, has_gap)).unwrap();
        }
        fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn the_next_controller_knows_how_far_the_journal_goes() {
        let directory = std::env::temp_dir().join(format!("tutti-reach-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let instance = Instance::at(directory.clone());
        assert_eq!(reach_of_former(&instance), None);
        let file = ReachFile::open(&instance).unwrap();
        for stored in [u64::MAX, 0, 17] {
            let reach = Reach { known: Known { stored, seal: u32::MAX }, jobs: stored / 2 };
            file.say(reach);
            assert_eq!(reach_of_former(&instance), Some(reach));
        }
        let text = fs::read_to_string(instance.reach_file()).unwrap();
        assert_eq!(read_reach(&text, "another start"), None);
        assert_eq!(read_reach(&text[..text.len() - 1], text.split(' ').next().unwrap()), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_was_written_counts_since_the_same_start_of_the_machine_only() {
        assert_eq!(read("a-b 17\n", "a-b"), Some(Nanos(17)));
        for (text, boot) in
            [("a-b 17", "a-c"), (" 17", ""), ("a-b", "a-b"), ("a-b x", "a-b"), ("", "a")]
        {
            assert_eq!(read(text, boot), None, "{text:?}");
        }
    }
}
