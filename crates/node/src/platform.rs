//! The kernel as the daemons use it: time, groups of processes, processes, and connections.
//!
//! Without the feature `simulation` this is a list of other names for `tutti-linux` and the
//! standard library, and costs nothing. With it, a thread that is at a simulated machine
//! ([`crate::simulated`]) finds that machine here; every other thread finds the kernel.

/// Clocks, and what tells a process from an earlier one.
#[cfg(not(feature = "simulation"))]
pub mod time {
    pub use tutti_linux::clock::{boottime_ns, monotonic_ns};
    pub use tutti_linux::system_clock::system_clock;

    /// What people's clocks say, in milliseconds since 1970.
    pub fn wall_ms() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// How much of the week has passed for people here.
    pub fn local_week() -> tutti_types::Nanos {
        crate::calendar::local_week()
    }

    /// How long it takes until clocks here are put forward or back, as far as is known.
    pub fn clocks_change_in() -> Option<tutti_types::Nanos> {
        crate::calendar::clocks_change_in()
    }

    /// What tells this start of the machine from others; nothing where the kernel does not say.
    pub fn boot() -> u64 {
        let id = tutti_linux::proc::boot_id().unwrap_or_default();
        let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or_default()
    }

    /// The number of this process.
    pub fn process_id() -> u32 {
        std::process::id()
    }
}

/// Random numbers that can't be guessed.
#[cfg(not(feature = "simulation"))]
pub mod chance {
    pub use tutti_secure::random_number as number;
}

/// Groups of processes: freezing, killing, limits.
#[cfg(not(feature = "simulation"))]
pub mod groups {
    pub use tutti_linux::cgroup::{Cgroup, Haste, Hierarchy, freeze_all};
    pub use tutti_linux::signal::{halt_group, resume_group_except};
}

/// Making, signalling and ending processes of tasks.
#[cfg(not(feature = "simulation"))]
pub mod processes {
    pub use nix::sys::signal::kill;
    pub use tutti_linux::signal::{send_to_group, send_to_one};
    pub use tutti_linux::spawn::Nursery;

    /// Whether tasks here are unknown to the kernel. Only the fault simulation has such tasks.
    pub const fn are_simulated() -> bool {
        false
    }

    /// What of this process's own tasks must not have.
    pub fn unwanted() -> tutti_linux::spawn::Unwanted {
        tutti_linux::spawn::Unwanted::look_up()
    }
}

/// What a machine has.
#[cfg(not(feature = "simulation"))]
pub mod hardware {
    pub use super::this_machine::{features, usable_memory_bytes, usable_processors};
    pub use tutti_linux::devices::gpus;
    pub use tutti_linux::proc::{busy_processors, hard_limits};
}

/// What this machine has, also where others are simulated.
pub mod this_machine {
    use std::collections::BTreeSet;
    use tutti_linux::allowance::Allowance;
    use tutti_types::FeatureName;
    use tutti_types::limits::FEATURES_MAX;

    /// The processors that jobs may have here: not more than a quota leaves time for.
    pub fn usable_processors() -> Vec<u32> {
        Allowance::read().processors()
    }

    /// What programs may need of the processors here, by name.
    pub fn features() -> BTreeSet<FeatureName> {
        let found = tutti_linux::processor::features().into_iter().take(FEATURES_MAX);
        found.map(FeatureName::from).collect()
    }

    /// The memory that jobs may have here, bytes.
    pub fn usable_memory_bytes() -> tutti_linux::Result<u64> {
        Ok(Allowance::read().memory_of(tutti_linux::proc::memory_total_bytes()?))
    }
}

/// Connections, and the daemons that one can begin with.
#[cfg(not(feature = "simulation"))]
pub mod ways {
    use std::io;
    use std::path::Path;

    /// A connection on this machine.
    pub use std::os::unix::net::UnixStream as Stream;

    /// Connects to a daemon of this machine.
    pub fn connect(path: &Path) -> io::Result<Stream> {
        Stream::connect(path)
    }

    /// Both ends of a connection.
    pub fn pair() -> io::Result<(Stream, Stream)> {
        Stream::pair()
    }
}

#[cfg(feature = "simulation")]
pub use crate::simulated::outside::{chance, groups, hardware, processes, time, ways};
