//! What the library asks of its host: each call is a message to the keeper.
//!
//! The library calls from a thread of its own. What a call says is in the keeper's socket before
//! the call returns, so before the task goes on: the keeper hears that a task has finalized before
//! it can see the task's end.

use crate::library::{Library, text_of};
use crate::requests::{self, Requests};
use crate::types::{DONE, Info, ModexCallback, Module, NOT_SUPPORTED, OpCallback, Proc, SUCCESS};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tutti_wire::frame;
use tutti_wire::pmix::{ALL_RANKS, FENCE_PART_BYTES, FromPmix};

/// What all calls share. Set before the library is initialized.
pub(crate) static SERVICE: OnceLock<Service> = OnceLock::new();

/// The step that is served.
pub(crate) struct Service {
    pub(crate) keeper: Mutex<UnixStream>,
    pub(crate) space: CString,
    /// Tasks of the whole step.
    pub(crate) size: u32,
    /// The ranks of this node: the first, and how many.
    pub(crate) local: (u32, u32),
    pub(crate) fences: Mutex<Fences>,
    pub(crate) requests: Mutex<Requests>,
}

/// Fences that wait for the other nodes. The keeper knows only the first.
#[derive(Default)]
pub(crate) struct Fences {
    waiting: VecDeque<Fence>,
    /// What has come of the answer for the first.
    answer: Vec<u8>,
}

struct Fence {
    callback: ModexCallback,
    passed: *mut c_void,
    data: Vec<u8>,
}

// SAFETY: the pointer is the library's. It is only passed back, which any thread may do.
unsafe impl Send for Fence {}

/// Fences that may wait. More are refused.
const FENCES_MAX: usize = 64;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Tells the keeper, at once.
    pub(crate) fn tell(&self, message: &FromPmix) {
        let mut bytes = Vec::new();
        // Messages are far shorter than the longest frame.
        if frame::encode(message, &mut bytes).is_err() {
            return;
        }
        let mut keeper = lock(&self.keeper);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match keeper.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room(&keeper),
                // The keeper is gone, and the main thread ends this process.
                Err(_) => return,
            }
        }
    }

    /// The place of a task of this node.
    pub(crate) fn task(&self, proc: &Proc) -> Option<u32> {
        let place = proc.rank.checked_sub(self.local.0)?;
        (place < self.local.1 && proc.is_of(&self.space)).then_some(place)
    }

    /// Whether these are all tasks of the step.
    fn is_all(&self, procs: &[Proc]) -> bool {
        let is_own = procs.iter().all(|proc| proc.is_of(&self.space));
        let mut ranks: Vec<u32> = procs.iter().map(|proc| proc.rank).collect();
        ranks.sort_unstable();
        is_own && (ranks.contains(&ALL_RANKS) || ranks.into_iter().eq(0..self.size))
    }

    /// Sends what this node says in the first fence that waits.
    fn send_fence(&self, data: &[u8]) {
        let mut parts = data.chunks(FENCE_PART_BYTES).peekable();
        if parts.peek().is_none() {
            self.tell(&FromPmix::Fence { is_last: true, data: Vec::new().into() });
        }
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            self.tell(&FromPmix::Fence { is_last, data: part.to_vec().into() });
        }
    }

    /// A part of what all nodes said in the first fence has come.
    pub(crate) fn on_fenced(&self, is_last: bool, data: &[u8]) {
        let mut fences = lock(&self.fences);
        fences.answer.extend_from_slice(data);
        if !is_last {
            return;
        }
        let answer = std::mem::take(&mut fences.answer);
        let Some(fence) = fences.waiting.pop_front() else { return };
        if let Some(next) = fences.waiting.front() {
            self.send_fence(&next.data);
        }
        drop(fences);
        finish(fence.callback, fence.passed, answer);
    }
}

fn wait_for_room(keeper: &UnixStream) {
    let mut poll = libc::pollfd { fd: keeper.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointer is to one value of ours.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
}

/// Hands over what a fence has gathered.
pub(crate) fn finish(callback: ModexCallback, passed: *mut c_void, answer: Vec<u8>) {
    let Some(callback) = callback else { return };
    let answer = Box::new(answer);
    let (data, length) = (answer.as_ptr().cast::<c_char>(), answer.len());
    // SAFETY: what is passed is the library's own, and the answer lives until `release`.
    unsafe { callback(SUCCESS, data, length, passed, Some(release), Box::into_raw(answer).cast()) };
}

unsafe extern "C" fn release(answer: *mut c_void) {
    // SAFETY: it is what `finish` has made of a box, and it comes once.
    drop(unsafe { Box::from_raw(answer.cast::<Vec<u8>>()) });
}

/// Tells the keeper of a task, if it is one of this node.
///
/// # Safety
/// The pointer must be to a process, or null.
unsafe fn tell_of(proc: *const Proc, message: impl Fn(u32) -> FromPmix) {
    // SAFETY: as the caller promises.
    let (Some(service), Some(proc)) = (SERVICE.get(), unsafe { proc.as_ref() }) else { return };
    if let Some(task) = service.task(proc) {
        service.tell(&message(task));
    }
}

unsafe extern "C" fn connected(
    proc: *const Proc,
    _object: *mut c_void,
    _infos: *const Info,
    _count: usize,
    _callback: OpCallback,
    _passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a process.
    unsafe { tell_of(proc, |task| FromPmix::Connected { task }) };
    DONE
}

unsafe extern "C" fn finalized(
    proc: *const Proc,
    _object: *mut c_void,
    callback: OpCallback,
    _passed: *mut c_void,
) -> c_int {
    // Without a callback the library only reports that a connection was lost.
    if callback.is_some() {
        // SAFETY: the library passes a process.
        unsafe { tell_of(proc, |task| FromPmix::Finalized { task }) };
    }
    DONE
}

unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    code: c_int,
    message: *const c_char,
    _procs: *mut Proc,
    _count: usize,
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a text or nothing, and a process.
    unsafe {
        // Open MPI says so where the program gives no reason.
        let message = Some(text_of(message)).filter(|it| it != "N/A").unwrap_or_default();
        tell_of(proc, |task| FromPmix::Abort { task, code, message: message.clone() });
        if let Some(callback) = callback {
            callback(SUCCESS, passed);
        }
    }
    SUCCESS
}

/// Called when all tasks of this node have entered a fence in which tasks of other nodes take part.
///
/// The data stays the library's: nothing says that all versions let the host free it.
unsafe extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    data: *mut c_char,
    length: usize,
    callback: ModexCallback,
    passed: *mut c_void,
) -> c_int {
    let Some(service) = SERVICE.get() else { return NOT_SUPPORTED };
    let (procs, data) = match (procs.is_null(), data.is_null()) {
        (true, _) => return NOT_SUPPORTED,
        // SAFETY: the library passes so many processes, and so many bytes.
        (false, true) => (unsafe { std::slice::from_raw_parts(procs, count) }, Vec::new()),
        // SAFETY: as above.
        (false, false) => unsafe {
            let data = std::slice::from_raw_parts(data.cast::<u8>(), length);
            (std::slice::from_raw_parts(procs, count), data.to_vec())
        },
    };
    let is_own = procs.iter().all(|proc| proc.is_of(&service.space));
    if is_own && service.local.1 == service.size {
        finish(callback, passed, data);
        return SUCCESS;
    }
    // Tasks of other steps take part, or some of the step's alone.
    if !is_own || !service.is_all(procs) {
        return service.meet_in_fence(procs, data, callback, passed);
    }
    let mut fences = lock(&service.fences);
    if fences.waiting.len() >= FENCES_MAX {
        return NOT_SUPPORTED;
    }
    if fences.waiting.is_empty() {
        service.send_fence(&data);
    }
    fences.waiting.push_back(Fence { callback, passed, data });
    SUCCESS
}

/// The library has informed the tasks of this node; there is nothing else to do.
unsafe extern "C" fn done() -> c_int {
    DONE
}

/// What is to become of a job is asked of `tutti`. But without this the library would not take the
/// files that a task names to be removed after it, as Open MPI 5 does: it removes them by itself.
unsafe extern "C" fn control() -> c_int {
    NOT_SUPPORTED
}

/// The callbacks at their places. What has none is answered by the library at once: not supported.
pub(crate) fn module(library: &Library) -> Module {
    let mut module: Module = [std::ptr::null_mut(); 64];
    module[1] = finalized as *mut c_void;
    module[2] = abort as *mut c_void;
    module[3] = fence as *mut c_void;
    module[4] = requests::direct_modex as *mut c_void;
    module[5] = requests::publish as *mut c_void;
    module[6] = requests::lookup as *mut c_void;
    module[7] = requests::unpublish as *mut c_void;
    module[8] = requests::spawn as *mut c_void;
    module[9] = requests::connect as *mut c_void;
    module[10] = requests::disconnect as *mut c_void;
    // Registration and deregistration for events, and events.
    for place in [11, 12, 14] {
        module[place] = done as *mut c_void;
    }
    module[19] = control as *mut c_void;
    if library.has_groups {
        module[25] = requests::group as *mut c_void;
    }
    module[27] = connected as *mut c_void;
    module
}
