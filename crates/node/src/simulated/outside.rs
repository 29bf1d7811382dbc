//! What the daemons have from outside in tests: the kernel's, or, in a simulated world, that of the
//! simulated machine that the thread is at. The other half of [`crate::platform`].

/// Clocks, and what tells a process from an earlier one.
pub mod time {
    use crate::simulated::machine::{here, own_ns, with_here};
    use tutti_linux::system_clock::{NotSynchronised, SystemClock};
    use tutti_types::Nanos;

    pub fn monotonic_ns() -> u64 {
        own_ns().unwrap_or_else(tutti_linux::clock::monotonic_ns)
    }

    pub fn boottime_ns() -> u64 {
        match own_ns() {
            Some(own_ns) => own_ns + with_here(|it, _| it.clock.slept_ns).unwrap_or(0),
            None => tutti_linux::clock::boottime_ns(),
        }
    }

    /// Nothing keeps the system's clocks of simulated machines.
    pub fn system_clock() -> Result<SystemClock, NotSynchronised> {
        match here() {
            Some(_) => Err(NotSynchronised),
            None => tutti_linux::system_clock::system_clock(),
        }
    }

    pub fn wall_ms() -> u64 {
        with_here(|machine, now| machine.clock.wall_ms(now)).unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }

    pub fn local_week() -> Nanos {
        let week = |ms: u64| Nanos::from_millis(ms % (7 * 24 * 3600 * 1000));
        with_here(|machine, now| week(machine.clock.wall_ms(now)))
            .unwrap_or_else(crate::calendar::local_week)
    }

    /// Clocks of simulated machines are never put forward or back.
    pub fn clocks_change_in() -> Option<Nanos> {
        if here().is_some() { None } else { crate::calendar::clocks_change_in() }
    }

    /// No numbers that are near each other: more than that tells cluster times apart.
    pub fn boot() -> u64 {
        with_here(|machine, _| machine.boots.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap_or(0)
    }

    pub fn process_id() -> u32 {
        if here().is_some() { 1 } else { std::process::id() }
    }
}

/// What can't be guessed without the seed.
pub mod chance {
    use crate::simulated::machine::with_here;
    use tutti_secure::NoRandomness;

    pub fn number() -> Result<u64, NoRandomness> {
        with_here(|machine, _| Ok(machine.random.next()))
            .unwrap_or_else(tutti_secure::random_number)
    }
}

pub mod groups {
    pub use crate::simulated::groups::{
        Cgroup, Haste, Hierarchy, freeze_all, halt_group, resume_group_except,
    };
}

/// Making, signalling and ending processes of tasks.
pub mod processes {
    use crate::simulated::machine::{here, is_cut_off, with_here};
    use nix::errno::Errno;
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;
    use std::io;
    use std::sync::OnceLock;
    use tutti_linux::spawn::{Child, Spawn, Unwanted};

    /// Whether tasks here are unknown to the kernel.
    pub fn are_simulated() -> bool {
        here().is_some()
    }

    pub fn kill(pid: Pid, signal: Signal) -> nix::Result<()> {
        if is_cut_off() {
            return Ok(());
        }
        let done = with_here(|machine, now| machine.signal(pid.as_raw(), signal as i32, now));
        match done {
            None => nix::sys::signal::kill(pid, signal),
            Some(true) => Ok(()),
            Some(false) => Err(Errno::ESRCH),
        }
    }

    /// Each simulated task leads a group of its own, and is all of it.
    pub fn send_to_group(leader: i32, signal: i32) {
        if is_cut_off() {
            return;
        }
        if with_here(|machine, now| machine.signal(leader, signal, now)).is_none() {
            tutti_linux::signal::send_to_group(leader, signal);
        }
    }

    /// To one process, which is all of a simulated task.
    pub fn send_to_one(pid: i32, signal: i32) {
        if is_cut_off() {
            return;
        }
        if with_here(|machine, now| machine.signal(pid, signal, now)).is_none() {
            tutti_linux::signal::send_to_one(pid, signal);
        }
    }

    /// Simulated tasks have nothing of this process: what is said of it then is what was found
    /// first.
    pub fn unwanted() -> Unwanted {
        static FIRST: OnceLock<Unwanted> = OnceLock::new();
        match here() {
            None => Unwanted::look_up(),
            Some(_) => FIRST.get_or_init(Unwanted::look_up).clone(),
        }
    }

    /// Where tasks are made.
    #[derive(Default)]
    pub struct Nursery(tutti_linux::spawn::Nursery);

    impl Nursery {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn of_daemon() -> Self {
            match here() {
                None => Self(tutti_linux::spawn::Nursery::of_daemon()),
                Some(_) => Self::new(),
            }
        }

        pub fn is_exposed(&self) -> bool {
            self.0.is_exposed()
        }

        pub fn protect(&mut self) -> bool {
            self.0.protect()
        }

        pub fn spawn(&mut self, spawn: &Spawn, unwanted: &Unwanted) -> io::Result<Child> {
            if is_cut_off() {
                return Err(io::Error::other("killed before"));
            }
            let simulated = with_here(|machine, now| machine.spawn(spawn, now));
            simulated.unwrap_or_else(|| self.0.spawn(spawn, unwanted))
        }
    }
}

/// What a machine has.
pub mod hardware {
    use crate::platform::this_machine;
    use crate::simulated::machine::{here, with_here};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::OnceLock;
    use tutti_linux::proc::Busy;
    use tutti_types::FeatureName;

    pub fn usable_processors() -> Vec<u32> {
        with_here(|machine, _| (0..machine.processors).collect())
            .unwrap_or_else(this_machine::usable_processors)
    }

    /// Simulated machines are all alike.
    pub fn features() -> BTreeSet<FeatureName> {
        with_here(|_, _| BTreeSet::new()).unwrap_or_else(this_machine::features)
    }

    pub fn gpus() -> Vec<tutti_linux::devices::Gpu> {
        with_here(|_, _| Vec::new()).unwrap_or_else(tutti_linux::devices::gpus)
    }

    pub fn usable_memory_bytes() -> tutti_linux::Result<u64> {
        let simulated = with_here(|machine, _| u64::from(machine.processors) << 30);
        simulated.map_or_else(this_machine::usable_memory_bytes, Ok)
    }

    pub fn busy_processors() -> tutti_linux::Result<BTreeMap<u32, Busy>> {
        with_here(|_, _| Ok(BTreeMap::new())).unwrap_or_else(tutti_linux::proc::busy_processors)
    }

    /// All users of simulated machines are this process, which has the same limits all the time.
    pub fn hard_limits(pid: i32, uid: u32) -> tutti_linux::Result<Vec<u64>> {
        static OWN: OnceLock<Vec<u64>> = OnceLock::new();
        if here().is_none() {
            return tutti_linux::proc::hard_limits(pid, uid);
        }
        if let Some(own) = OWN.get() {
            return Ok(own.clone());
        }
        let limits = tutti_linux::proc::hard_limits(pid, uid)?;
        Ok(OWN.get_or_init(|| limits).clone())
    }
}

/// Connections, and what a daemon can begin one with.
pub mod ways {
    use crate::simulated::machine::{here, with_here, with_machines};
    use std::io;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use tutti_secure::Member;

    pub use crate::simulated::stream::Stream;

    pub fn connect(path: &Path) -> io::Result<Stream> {
        with_here(|machine, _| machine.connect(path))
            .unwrap_or_else(|| UnixStream::connect(path).map(Stream::from))
    }

    pub fn pair() -> io::Result<(Stream, Stream)> {
        if here().is_some() {
            return crate::simulated::stream::pair();
        }
        let (one, other) = UnixStream::pair()?;
        Ok((one.into(), other.into()))
    }

    /// To the agent of another machine; `None`: not in a simulated world.
    pub fn far(address: &str) -> Option<(io::Result<Stream>, Member)> {
        with_machines(|machines, here| machines.dial(here, address))
    }

    /// Where other machines of a simulated world reach this one.
    pub fn own_address() -> Option<String> {
        with_here(|machine, _| machine.address.clone())
    }
}
