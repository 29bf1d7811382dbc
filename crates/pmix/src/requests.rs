//! What a task asks for beyond its own step: names, connections, data of other steps, spawns.
//!
//! Each call of the library is a request with a number to the keeper. The call ends at once. The
//! library's callback is called when the answer has come.

use crate::calls::{SERVICE, Service, finish, lock};
use crate::infos;
use crate::library::{Library, text_of};
use crate::types::{
    App, BAD_PARAMETER, BOOL, BYTES, ByteObject, DONE, DUPLICATE, Data, INT, Info, InfoCallback,
    KEY_BYTES, LookupCallback, ModexCallback, NO_ROOM, NOT_FOUND, NOT_SUPPORTED, OpCallback,
    PERSISTENCE, Proc, Published, Release, SPACE_BYTES, STRING, SUCCESS, SpawnCallback, TIMEOUT,
    UINT32, UNREACHABLE, Value as Raw,
};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use tutti_types::digest::Digest;
use tutti_wire::frame;
use tutti_wire::pmix::{
    ASKS_MAX, Answer, Ask, Found, FromPmix, MODEX_BYTES_MAX, Meeting, Members,
    PMIX_FRAME_BYTES_MAX, Refused, Value,
};
use tutti_wire::spawn::{Spawned, SpawnedProgram};

/// Room for what is around a request in its message.
const AROUND_BYTES: usize = 64;

/// The longest list that is read of a task.
const WORDS_MAX: usize = 8 << 10;

/// The key of what nodes say of their members of a group.
const GROUP_DATA: &str = "pmix.grp.endpt";

/// An operation on a group.
const FOUND_GROUP: c_int = 0;

/// A published value that is removed by the first that reads it.
const FIRST_READ: u8 = 1;

/// Requests that wait for answers.
#[derive(Default)]
pub(crate) struct Requests {
    next: u32,
    waiting: BTreeMap<u32, Waiting>,
}

/// The callback for an answer, with what is passed back to it.
enum Waiting {
    Done(OpCallback, *mut c_void),
    Found(LookupCallback, *mut c_void),
    Spawned(SpawnCallback, *mut c_void),
    Data(ModexCallback, *mut c_void),
    /// With its members.
    Group(InfoCallback, *mut c_void, Vec<Proc>),
}

// SAFETY: the pointers are the library's. They are only passed back, which any thread may do.
unsafe impl Send for Waiting {}

const fn status_of(why: Refused) -> c_int {
    match why {
        Refused::NotFound => NOT_FOUND,
        Refused::Taken => DUPLICATE,
        Refused::NoRoom => NO_ROOM,
        Refused::NotSupported => NOT_SUPPORTED,
        Refused::Ended => UNREACHABLE,
        Refused::Late => TIMEOUT,
        Refused::Invalid => BAD_PARAMETER,
    }
}

impl Service {
    /// Sends a request of a task; the library's status for the call.
    fn ask(&self, task: u32, ask: Ask, waiting: Waiting) -> c_int {
        if !ask.is_within_limits() || frame::encoded_len(&ask) > PMIX_FRAME_BYTES_MAX - AROUND_BYTES
        {
            return NO_ROOM;
        }
        let mut requests = lock(&self.requests);
        if requests.waiting.len() >= ASKS_MAX {
            return NO_ROOM;
        }
        let mut number = requests.next;
        while requests.waiting.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        requests.next = number.wrapping_add(1);
        requests.waiting.insert(number, waiting);
        drop(requests);
        self.tell(&FromPmix::Ask { number, task, ask });
        SUCCESS
    }

    /// The keeper has answered a request.
    pub(crate) fn on_answer(&self, number: u32, answer: Answer) {
        let Some(waiting) = lock(&self.requests).waiting.remove(&number) else { return };
        let status = match &answer {
            Answer::Refused(why) => status_of(*why),
            _ => SUCCESS,
        };
        match waiting {
            // SAFETY: these are the library's, each with what it has passed.
            Waiting::Done(Some(callback), passed) => unsafe { callback(status, passed) },
            Waiting::Found(Some(callback), passed) => {
                let Answer::Found(found) = answer else {
                    let none = std::ptr::null_mut();
                    // SAFETY: as above; nothing is passed.
                    return unsafe { callback(status, none, 0, passed) };
                };
                let mut list: Vec<Published> = found.iter().map(published).collect();
                // SAFETY: as above; the library copies what the list points to, which lives on.
                unsafe { callback(status, list.as_mut_ptr(), list.len(), passed) };
            }
            Waiting::Spawned(Some(callback), passed) => {
                let mut space = [0; SPACE_BYTES];
                if let Answer::Started(name) = &answer {
                    copy(name.as_bytes(), &mut space);
                }
                // SAFETY: as above; the name has an end.
                unsafe { callback(status, space.as_mut_ptr().cast(), passed) };
            }
            Waiting::Data(Some(callback), passed) => match answer {
                Answer::Data(data) => finish(Some(callback), passed, data.into_vec()),
                _ => {
                    let (none, nothing) = (std::ptr::null(), std::ptr::null_mut());
                    // SAFETY: as above; nothing is passed.
                    unsafe { callback(status, none, 0, passed, None, nothing) };
                }
            },
            Waiting::Group(Some(callback), passed, members) => {
                let found = match answer {
                    Answer::Group { number, data } => Ok((number, members, data.into_vec())),
                    _ => Err(status),
                };
                found_group(callback, passed, found);
            }
            Waiting::Done(None, _)
            | Waiting::Found(None, _)
            | Waiting::Spawned(None, _)
            | Waiting::Data(None, _)
            | Waiting::Group(None, ..) => {}
        }
    }

    /// Asks for something that all these tasks do together.
    fn meet(&self, (meeting, data): (Meeting, Vec<u8>), procs: &[Proc], waiting: Waiting) -> c_int {
        let mut spaces: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for proc in procs {
            let space = CStr::from_bytes_until_nul(&proc.space).unwrap_or_default();
            let space = space.to_string_lossy().into_owned();
            spaces.entry(space).or_default().push(proc.rank);
        }
        let members = spaces.into_iter().map(|(space, ranks)| Members { space, ranks }).collect();
        // The keeper takes it as the step's, so any task of this node will do.
        self.ask(0, Ask::Meet { meeting, members, data: data.into() }, waiting)
    }

    /// A fence with tasks of other steps.
    pub(crate) fn meet_in_fence(
        &self,
        procs: &[Proc],
        data: Vec<u8>,
        callback: ModexCallback,
        passed: *mut c_void,
    ) -> c_int {
        self.meet((Meeting::Fence, data), procs, Waiting::Data(callback, passed))
    }

    /// The keeper wants to know what a task of this node has said of itself.
    pub(crate) fn on_fetch(&self, library: &Library, number: u32, rank: u32) {
        let proc = Proc::new(&self.space, rank);
        let passed = Box::into_raw(Box::new(number));
        // SAFETY: the process lives during the call, and the library copies it.
        let status = unsafe { (library.fetch)(&raw const proc, Some(fetched), passed.cast()) };
        if status != SUCCESS {
            // SAFETY: made above, and no callback comes.
            drop(unsafe { Box::from_raw(passed) });
            self.tell(&FromPmix::Fetched { number, data: None });
        }
    }
}

unsafe extern "C" fn fetched(status: c_int, data: *mut c_char, length: usize, passed: *mut c_void) {
    // SAFETY: it is what `on_fetch` has made of a box, and it comes once.
    let number = *unsafe { Box::from_raw(passed.cast::<u32>()) };
    let is_there = status == SUCCESS && !data.is_null() && length <= MODEX_BYTES_MAX;
    // SAFETY: the library passes so many bytes.
    let data = is_there.then(|| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) });
    if let Some(service) = SERVICE.get() {
        service.tell(&FromPmix::Fetched { number, data: data.map(ByteBuf::from) });
    }
}

fn copy(from: &[u8], to: &mut [u8]) {
    let length = from.len().min(to.len() - 1);
    to[..length].copy_from_slice(&from[..length]);
}

/// How many bytes a value of a type without pointers has.
const fn plain_bytes(kind: u16) -> Option<usize> {
    match kind {
        // Flags, bytes, small numbers, ranges and the like.
        1 | 2 | 7 | 12 | 30 | 32..=34 | 37 => Some(1),
        8 | 13 | 36 => Some(2),
        // Numbers of processes, ranks, states and so on.
        5 | 6 | 9 | 11 | 14 | 16 | 20 | 35 | 40 => Some(4),
        4 | 10 | 15 | 17 | 19 => Some(8),
        18 => Some(16),
        _ => None,
    }
}

/// A value for the keeper; `None` if it is of a type that points elsewhere.
///
/// # Safety
/// It must be the library's.
unsafe fn taken(raw: &Raw) -> Option<Value> {
    let bytes = match raw.kind {
        // SAFETY: of this type it is a text, or null.
        STRING => unsafe { bytes_of(raw.data.string) }.into(),
        BYTES => {
            // SAFETY: of this type it is so many bytes.
            let object = unsafe { raw.data.bytes };
            match object.bytes.is_null() {
                true => ByteBuf::new(),
                false => {
                    let bytes = object.bytes.cast::<u8>();
                    // SAFETY: as above.
                    let bytes = unsafe { std::slice::from_raw_parts(bytes, object.size) };
                    bytes.to_vec().into()
                }
            }
        }
        kind => {
            let length = plain_bytes(kind)?;
            // SAFETY: a value of this type has so many bytes.
            unsafe { std::slice::from_raw_parts((&raw const raw.data).cast::<u8>(), length) }
                .to_vec()
                .into()
        }
    };
    Some(Value { kind: raw.kind, bytes })
}

/// A published value, in the library's form. What it points to is not freed: it is little, and the
/// library may keep it.
fn published(found: &Found) -> Published {
    let space = CString::new(found.space.as_bytes()).unwrap_or_default();
    let mut key = [0; KEY_BYTES];
    copy(&found.name, &mut key);
    let Value { kind, bytes } = &found.value;
    let mut data = Data { words: [0; 3] };
    match *kind {
        STRING => {
            let text: Vec<u8> = bytes.iter().copied().take_while(|byte| *byte != 0).collect();
            data.string = CString::new(text).unwrap_or_default().into_raw();
        }
        BYTES => {
            let size = bytes.len();
            let bytes = Box::into_raw(bytes.to_vec().into_boxed_slice()).cast::<c_char>();
            data.bytes = ByteObject { bytes, size };
        }
        kind => {
            let length = plain_bytes(kind).unwrap_or(0).min(bytes.len());
            // SAFETY: a value has 24 bytes, and no type has more here.
            unsafe {
                bytes.as_ptr().copy_to_nonoverlapping((&raw mut data).cast::<u8>(), length);
            }
        }
    }
    Published { proc: Proc::new(&space, found.rank), key, value: Raw { kind: *kind, data } }
}

/// # Safety
/// It must be null or a text with an end.
unsafe fn bytes_of(text: *const c_char) -> Vec<u8> {
    if text.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// The texts of a list that ends with a null pointer.
///
/// # Safety
/// It must be such a list, or null.
unsafe fn words(mut list: *const *const c_char) -> Vec<ByteBuf> {
    let mut words = Vec::new();
    // SAFETY: as the caller promises.
    unsafe {
        while !list.is_null() && !(*list).is_null() && words.len() < WORDS_MAX {
            words.push(bytes_of(*list).into());
            list = list.add(1);
        }
    }
    words
}

/// # Safety
/// There must be so many, or it is null.
unsafe fn list_of<'a, T>(list: *const T, count: usize) -> &'a [T] {
    match list.is_null() {
        true => &[],
        // SAFETY: as the caller promises.
        false => unsafe { std::slice::from_raw_parts(list, count) },
    }
}

fn key_of(info: &Info) -> &[u8] {
    CStr::from_bytes_until_nul(&info.key).unwrap_or_default().to_bytes()
}

/// A number of the keys for the library, such as a time.
fn number_of(info: &Info) -> Option<u32> {
    match info.value.kind {
        // SAFETY: the type says which it is.
        INT => u32::try_from(unsafe { info.value.data.int }).ok(),
        // SAFETY: as above.
        UINT32 => Some(unsafe { info.value.data.uint32 }),
        _ => None,
    }
}

/// The task that asks, if it is one of this node.
///
/// # Safety
/// The pointer must be to a process, or null.
unsafe fn asker(proc: *const Proc) -> Option<(&'static Service, u32)> {
    // SAFETY: as the caller promises.
    let (service, proc) = (SERVICE.get()?, unsafe { proc.as_ref() }?);
    Some((service, service.task(proc)?))
}

pub(crate) unsafe extern "C" fn publish(
    proc: *const Proc,
    infos: *const Info,
    count: usize,
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a process.
    let Some((service, task)) = (unsafe { asker(proc) }) else { return NOT_SUPPORTED };
    let (mut names, mut once) = (Vec::new(), false);
    // SAFETY: the library passes so many.
    for info in unsafe { list_of(infos, count) } {
        match key_of(info) {
            b"pmix.persist" if info.value.kind == PERSISTENCE => {
                // SAFETY: of this type it is one byte.
                once = unsafe { info.value.data.byte } == FIRST_READ;
            }
            b"pmix.persist" | b"pmix.range" | b"pmix.euid" | b"pmix.egid" => {}
            key => {
                // SAFETY: it is the library's.
                let Some(value) = (unsafe { taken(&info.value) }) else { return NOT_SUPPORTED };
                names.push((ByteBuf::from(key), value));
            }
        }
    }
    service.ask(task, Ask::Publish { names, once }, Waiting::Done(callback, passed))
}

pub(crate) unsafe extern "C" fn lookup(
    proc: *const Proc,
    keys: *const *const c_char,
    infos: *const Info,
    count: usize,
    callback: LookupCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a process.
    let Some((service, task)) = (unsafe { asker(proc) }) else { return NOT_SUPPORTED };
    let (mut waits, mut time_s) = (false, 0);
    // SAFETY: the library passes so many.
    for info in unsafe { list_of(infos, count) } {
        match key_of(info) {
            b"pmix.wait" => waits = true,
            b"pmix.timeout" => time_s = number_of(info).unwrap_or(0),
            _ => {}
        }
    }
    // SAFETY: the library passes such a list.
    let ask = Ask::Lookup { names: unsafe { words(keys) }, wait_s: waits.then_some(time_s) };
    service.ask(task, ask, Waiting::Found(callback, passed))
}

pub(crate) unsafe extern "C" fn unpublish(
    proc: *const Proc,
    keys: *const *const c_char,
    _infos: *const Info,
    _count: usize,
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a process.
    let Some((service, task)) = (unsafe { asker(proc) }) else { return NOT_SUPPORTED };
    // SAFETY: the library passes such a list.
    let ask = Ask::Unpublish { names: unsafe { words(keys) } };
    service.ask(task, ask, Waiting::Done(callback, passed))
}

/// A program of a spawn.
///
/// # Safety
/// It must be the library's.
unsafe fn program(app: &App) -> Option<SpawnedProgram> {
    // SAFETY: the library passes texts and lists of them.
    let (command, mut argv) = unsafe { (bytes_of(app.command), words(app.argv)) };
    // The first word is the program's name.
    match argv.first_mut() {
        Some(first) if !command.is_empty() => *first = command.into(),
        Some(_) => {}
        None => argv.push(command.into()),
    }
    // SAFETY: the library passes a text, or nothing.
    let mut directory = unsafe { bytes_of(app.directory) };
    // SAFETY: the library passes so many.
    for info in unsafe { list_of(app.infos, app.count) } {
        if key_of(info) == b"pmix.wdir" && info.value.kind == STRING {
            // SAFETY: of this type it is a text.
            directory = unsafe { bytes_of(info.value.data.string) };
        }
    }
    Some(SpawnedProgram {
        tasks: u32::try_from(app.tasks).ok()?,
        argv,
        directory: Some(directory.into()).filter(|it: &ByteBuf| !it.is_empty()),
        path: None,
    })
}

pub(crate) unsafe extern "C" fn spawn(
    proc: *const Proc,
    infos: *const Info,
    info_count: usize,
    apps: *const App,
    count: usize,
    callback: SpawnCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a process.
    let Some((service, task)) = (unsafe { asker(proc) }) else { return NOT_SUPPORTED };
    let (mut spawned, mut environment) = (Spawned::default(), Vec::<ByteBuf>::new());
    let is_not_mpi = |info: &Info| {
        // SAFETY: of this type it is one byte.
        key_of(info) == b"pmix.nonpmi"
            && (info.value.kind != BOOL || unsafe { info.value.data.byte } != 0)
    };
    // SAFETY: the library passes so many.
    let is_mpi = !unsafe { list_of(infos, info_count) }.iter().any(is_not_mpi);
    // SAFETY: the library passes so many.
    for app in unsafe { list_of(apps, count) } {
        // SAFETY: it is the library's.
        let Some(program) = (unsafe { program(app) }) else { return BAD_PARAMETER };
        spawned.programs.push(program);
        // SAFETY: the library passes such a list.
        for variable in unsafe { words(app.environment) } {
            let name = |it: &[u8]| it.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
            if !environment.iter().any(|it| name(it) == name(&variable)) {
                environment.push(variable);
            }
        }
    }
    let ask = Ask::Spawn { spawned, environment, is_mpi };
    service.ask(task, ask, Waiting::Spawned(callback, passed))
}

/// All tasks of this node that are among these have come to a meeting without data.
///
/// # Safety
/// There must be so many processes.
unsafe fn meet(
    meeting: Meeting,
    (procs, count): (*const Proc, usize),
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    let Some(service) = SERVICE.get() else { return NOT_SUPPORTED };
    // SAFETY: as the caller promises.
    let procs = unsafe { list_of(procs, count) };
    service.meet((meeting, Vec::new()), procs, Waiting::Done(callback, passed))
}

pub(crate) unsafe extern "C" fn connect(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes so many.
    unsafe { meet(Meeting::Connect, (procs, count), callback, passed) }
}

pub(crate) unsafe extern "C" fn disconnect(
    procs: *const Proc,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    callback: OpCallback,
    passed: *mut c_void,
) -> c_int {
    // SAFETY: the library passes so many.
    unsafe { meet(Meeting::Disconnect, (procs, count), callback, passed) }
}

/// Tells the library the number of a group and its members, or why there is none.
fn found_group(
    callback: unsafe extern "C" fn(c_int, *mut Info, usize, *mut c_void, Release, *mut c_void),
    passed: *mut c_void,
    found: Result<(u32, Vec<Proc>, Vec<u8>), c_int>,
) {
    let none = std::ptr::null_mut();
    match found {
        Ok((number, members, data)) => {
            let number = infos::size("pmix.grp.ctxid", number as usize);
            let mut list = vec![number, infos::processes("pmix.grp.mbrs", members)];
            if !data.is_empty() {
                list.push(infos::bytes(GROUP_DATA, &data));
            }
            let (first, count) = (list.as_mut_ptr(), list.len());
            let kept = Box::into_raw(Box::new(list)).cast();
            // SAFETY: what is passed is the library's own, and it lives until `release_group`.
            unsafe { callback(SUCCESS, first, count, passed, Some(release_group), kept) };
        }
        // SAFETY: as above; nothing is passed.
        Err(status) => unsafe { callback(status, none, 0, passed, None, none.cast()) },
    }
}

unsafe extern "C" fn release_group(kept: *mut c_void) {
    // SAFETY: it is what `found_group` has made of a box, and it comes once.
    infos::free(*unsafe { Box::from_raw(kept.cast::<Vec<Info>>()) });
}

/// Called when all tasks of this node that are members of a group want to found or to end it.
pub(crate) unsafe extern "C" fn group(
    operation: c_int,
    name: *const c_char,
    procs: *const Proc,
    count: usize,
    infos: *const Info,
    info_count: usize,
    callback: InfoCallback,
    passed: *mut c_void,
) -> c_int {
    let (Some(service), Some(callback)) = (SERVICE.get(), callback) else { return NOT_SUPPORTED };
    if operation != FOUND_GROUP {
        // For a group of one node the library calls again unless it is answered by the return.
        return DONE;
    }
    // SAFETY: the library passes a text, and so many processes.
    let (name, procs) = unsafe { (bytes_of(name), list_of(procs, count)) };
    // SAFETY: as above.
    let said = unsafe { list_of(infos, info_count) }.iter().find(|it| is_group_data(it));
    // SAFETY: it is the library's.
    let said = said.and_then(|it| unsafe { taken(&it.value) });
    let data = said.map_or_else(Vec::new, |value| value.bytes.into_vec());
    let meeting = Meeting::Group(Digest::of(&name));
    let waiting = Waiting::Group(Some(callback), passed, procs.to_vec());
    service.meet((meeting, data), procs, waiting)
}

fn is_group_data(info: &Info) -> bool {
    info.value.kind == BYTES && key_of(info) == GROUP_DATA.as_bytes()
}

/// What a task of another step, or of another node, has said of itself.
pub(crate) unsafe extern "C" fn direct_modex(
    proc: *const Proc,
    _infos: *const Info,
    _count: usize,
    callback: ModexCallback,
    passed: *mut c_void,
) -> c_int {
    let Some(service) = SERVICE.get() else { return NOT_SUPPORTED };
    // SAFETY: the library passes a process.
    let Some(proc) = (unsafe { proc.as_ref() }) else { return BAD_PARAMETER };
    // What a task of another node of this step has said was gathered in a fence, or is not known.
    if proc.is_of(&service.space) {
        return NOT_FOUND;
    }
    // SAFETY: a name space has an end.
    let space = unsafe { text_of(proc.space.as_ptr().cast()) };
    let ask = Ask::Modex { space, rank: proc.rank };
    service.ask(0, ask, Waiting::Data(callback, passed))
}
