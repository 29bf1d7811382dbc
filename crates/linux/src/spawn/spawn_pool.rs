//! Making children that use their parent's memory until they execute their program.
//!
//! To copy a process's memory only for it to be thrown away by the next system call but thirty
//! costs more than all of these: the tables of pages are copied, and then each page that either of
//! the two writes to. So a child gets nothing but a stack of its own, as after `vfork`; but its
//! parent does not wait, since the child may be frozen before it has come to its program. Until
//! then, the stack and the plan that it follows are *lent* to it, by a [`Nursery`], which gets them
//! back by a word that the kernel clears when a process leaves a memory.
//!
//! Some children have a copy all the same:
//! - those that can't be made in their group, because the kernel is older than 5.7 or a filter
//!   forbids `clone3`;
//! - those with a minder, which never executes anything;
//! - those in namespaces of their own;
//! - those that may be killed for want of memory before their program runs, because their group has
//!   a limit: the kernel ends all processes that share a memory with the one that it picks;
//! - those whose parent has another OOM score than tasks: the kernel sets it for all that share a
//!   memory. A [`Nursery::of_daemon`] gives itself that of tasks meanwhile (`oom_score.rs`);
//! - those that become another user while the parent's memory is open to others. The kernel closes
//!   it by itself when the child changes its user, and a parent that opens it again gives it away;
//! - those that become another user where `fs.suid_dumpable` is not 0, the kernel's own default:
//!   with 1 that user could have a look at, and write to, the memory of the parent; with 2 a core
//!   dump of the child, which that user can cause, would be one of its parent's memory.

use super::child::{self, Fork, fork_with, has_births_into_groups};
use super::prepare::{Plan, Unwanted};
use super::{Child, Spawn, raw};
use crate::oom_score::Scores;
use nix::sys::prctl::get_dumpable;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Not in libc with its proper type.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a child may use of a stack, which is a few kilobytes; and what lies before it, untouchable.
const STACK_BYTES: usize = 64 << 10;
const GUARD_BYTES: usize = 64 << 10;

/// Stacks that are kept for the next children.
const SPARE_STACKS_MAX: usize = 32;

/// Starts processes, and holds what they use until their programs run. What is in use when it is
/// dropped is never freed.
#[derive(Debug, Default)]
pub struct Nursery {
    lent: Vec<Lent>,
    stacks: Vec<Stack>,
    scores: Option<Scores>,
}

/// What a child uses.
#[derive(Debug)]
struct Lent {
    /// From a box. The child's, while it is there.
    plan: NonNull<Plan>,
    stack: Stack,
    /// Not 0 while the child is there.
    is_there: Box<AtomicU32>,
}

/// Anonymous memory, freed with this.
#[derive(Debug)]
struct Stack(NonNull<libc::c_void>);

// SAFETY: nothing of it belongs to a thread; the pointers are owned, like boxes.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Send for Stack {}

impl Nursery {
    /// Lends nothing yet.
    #[must_use]
    pub fn new() -> Self {
        // Asked of the kernel now, rather than at the first start of a process.
        has_births_into_groups();
        Self::default()
    }

    /// One of a daemon, which the kernel is to end later than what it starts when memory runs out.
    #[must_use]
    pub fn of_daemon() -> Self {
        let mut nursery = Self::new();
        nursery.scores = Scores::of_this_process();
        nursery
    }

    /// Starts a process. Returns as soon as it exists; never waits for it.
    ///
    /// Besides what `spawn` says, the child has all signals unblocked and at their default, the
    /// ordinary scheduling policy, no favourable nice value, timer slack and OOM score like others.
    ///
    /// # Errors
    /// `EINVAL` for no program, an empty `argv`, `StdioFd::Stdout` where it means nothing, or
    /// targets to pass that collide; what pipe and clone say. `EAGAIN`: too many processes.
    pub fn spawn(&mut self, spawn: &Spawn, unwanted: &Unwanted) -> io::Result<Child> {
        self.take_back();
        let is_as_tasks = self.scores.as_mut().is_some_and(Scores::expose);
        let ready = Ready::new(spawn, unwanted, unwanted.oom_score && !is_as_tasks)?;
        let _held = child::hold_signals();
        self.fork(ready)
    }

    /// How many children have not come to their programs, as far as is known.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Whether this process has the OOM score of tasks, because a child has perhaps not come to its
    /// program.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.scores.as_ref().is_some_and(Scores::is_exposed)
    }

    /// Gives this process its own OOM score back, unless a child still shares its memory: whether
    /// it has it.
    pub fn protect(&mut self) -> bool {
        self.take_back();
        if self.lent.is_empty()
            && let Some(scores) = &mut self.scores
        {
            scores.restore();
        }
        !self.is_exposed()
    }

    /// Takes back what is not used any more.
    pub fn take_back(&mut self) {
        for index in (0..self.lent.len()).rev() {
            if self.lent[index].is_there.load(Ordering::Acquire) == 0 {
                let Lent { plan, stack, .. } = self.lent.swap_remove(index);
                // SAFETY: it came from a box, and the child that borrowed it has left this memory.
                drop(unsafe { Box::from_raw(plan.as_ptr()) });
                if self.stacks.len() < SPARE_STACKS_MAX {
                    self.stacks.push(stack);
                }
            }
        }
    }

    /// To be called while signals are held.
    fn fork(&mut self, mut ready: Ready) -> io::Result<Child> {
        let report = ready.report.1.as_raw_fd();
        let (pid, pidfd) = match ready.shares_with {
            Some(group) => self.fork_sharing(ready.plan, group)?,
            // SAFETY: the child only enters `child::run`, which keeps to what is safe after a fork.
            None => match unsafe {
                fork_with(ready.namespaces, ready.group, libc::SIGCHLD, Some(report))
            }? {
                Fork::Child => child::run(&mut ready.plan),
                Fork::Parent { pid, pidfd } => (pid, pidfd),
            },
        };
        let status = ready.status.map(|(read, _)| read);
        Ok(Child { pid, pidfd, report: ready.report.0, status })
    }

    fn fork_sharing(&mut self, plan: Box<Plan>, group: BorrowedFd) -> io::Result<(i32, OwnedFd)> {
        let stack = self.stacks.pop().map_or_else(Stack::new, Ok)?;
        let is_there = Box::new(AtomicU32::new(1));
        let mut pidfd = -1;
        // SAFETY: all zero is a valid clone_args.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID;
        arguments.flags = u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP;
        arguments.pidfd = (&raw mut pidfd) as u64;
        arguments.child_tid = is_there.as_ptr() as u64;
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        arguments.stack = stack.lowest() as u64;
        arguments.stack_size = STACK_BYTES as u64;
        arguments.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
        let plan = Box::into_raw(plan);
        // SAFETY: the stack has no other user; plan, stack and word stay where they are, and none
        // reaches the plan, until the kernel has cleared the word. Signals are held.
        match unsafe { raw::clone_sharing(&mut arguments, begin, plan.cast()) } {
            Ok(pid) => {
                let plan = NonNull::new(plan).expect("it came from a box");
                self.lent.push(Lent { plan, stack, is_there });
                let pid = i32::try_from(pid).expect("process numbers are at most 2^22");
                // SAFETY: the kernel has just made it for us.
                Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
            }
            Err(error) => {
                // SAFETY: it came from a box a moment ago, and there is no child.
                drop(unsafe { Box::from_raw(plan) });
                Err(error)
            }
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        self.take_back();
        // A child may still be at it.
        std::mem::forget(std::mem::take(&mut self.lent));
    }
}

/// Where a child begins that shares our memory.
extern "C" fn begin(plan: *mut libc::c_void) -> ! {
    // SAFETY: it is the plan of this child, which no other code reaches while the child is there.
    child::run(unsafe { &mut *plan.cast::<Plan>() })
}

impl Stack {
    fn new() -> io::Result<Self> {
        let (length, flags) = (GUARD_BYTES + STACK_BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for memory that is not there yet.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags | libc::MAP_STACK, -1, 0)
        };
        let base = match NonNull::new(base) {
            Some(base) if base.as_ptr() != libc::MAP_FAILED => Self(base),
            _ => return Err(io::Error::last_os_error()),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the upper part of what has just been made, and no code uses it.
        match unsafe { libc::mprotect(base.lowest(), STACK_BYTES, access) } {
            0 => Ok(base),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn lowest(&self) -> *mut libc::c_void {
        // SAFETY: within what was mapped.
        unsafe { self.0.as_ptr().byte_add(GUARD_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: as it was mapped; the child that had it on loan has left.
        unsafe { libc::munmap(self.0.as_ptr(), GUARD_BYTES + STACK_BYTES) };
    }
}

/// A process that only has to be forked.
struct Ready<'a> {
    plan: Box<Plan>,
    group: Option<BorrowedFd<'a>>,
    /// The group that it is born into, if it may share our memory.
    shares_with: Option<BorrowedFd<'a>>,
    /// The namespaces that are made for it, as flags of `clone(2)`.
    namespaces: libc::c_int,
    report: (OwnedFd, OwnedFd),
    status: Option<(OwnedFd, OwnedFd)>,
}

impl<'a> Ready<'a> {
    fn new(spawn: &Spawn<'a>, unwanted: &Unwanted, resets_score: bool) -> io::Result<Self> {
        let report = super::pipe()?;
        let status = if spawn.minder { Some(super::pipe()?) } else { None };
        let status_child = status.as_ref().map(|(_, write)| write.as_raw_fd());
        let mut plan = Plan::new(spawn, unwanted, report.1.as_raw_fd(), status_child)?;
        plan.oom_score = resets_score;
        let group = spawn.cgroup;
        let shares_with = group.filter(|_| !resets_score && may_share(spawn, unwanted));
        let namespaces = match spawn.isolated {
            true => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
            false => 0,
        };
        Ok(Self { plan: Box::new(plan), group, shares_with, namespaces, report, status })
    }
}

/// Whether users may read the memory of their own processes that share ours. Where that can't be
/// known, they may.
fn may_be_read() -> bool {
    get_dumpable().unwrap_or(true)
}

/// See the module.
fn may_share(spawn: &Spawn, unwanted: &Unwanted) -> bool {
    raw::CAN_SHARE
        && has_births_into_groups()
        && !spawn.minder
        && !spawn.isolated
        && !spawn.limits_memory
        && (spawn.identity.is_none() || !(unwanted.shows_memory || may_be_read()))
}
