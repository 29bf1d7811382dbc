//! The life of the process: an order of the keeper, the library, then messages until the end.

use crate::calls::{Fences, SERVICE, Service, lock, module};
use crate::confine::{confine, end_with_keeper};
use crate::infos::{flag, free, list, made, number, process, rank, small, text};
use crate::library::{Library, text_of};
use crate::requests::Requests;
use crate::types::{HERE, Info, Proc, WITHOUT_A_WORD};
use anyhow::{Context as _, bail};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use tutti_linux::inherited::Inherited;
use tutti_node::helper_user::become_user;
use tutti_node::link::Link;
use tutti_wire::Role;
use tutti_wire::pmix::{
    FromPmix, PMIX_FD, PMIX_FRAME_BYTES_MAX, PmixNode, PmixOrder, PmixSpace, ToPmix,
};

/// Which short form of lists the library makes. Of long lists it would make compressed bytes, which
/// are no text.
const REGEX: &str = "PMIX_MCA_preg";

/// Serves the step that the keeper orders which has started this process. Does not return once
/// tasks are served: the process ends with its connection.
///
/// # Errors
/// If there is no such keeper.
pub fn serve() -> anyhow::Result<()> {
    let mut inherited = Inherited::take_all().context("cannot see what was passed on")?;
    let socket = inherited.take(PMIX_FD).context("this verb is for the keeper")?;
    let socket = UnixStream::from(socket);
    let keeper = Mutex::new(socket.try_clone()?);
    let mut link = Link::new(socket)?;
    link.limit(PMIX_FRAME_BYTES_MAX);
    link.greet(Role::FrontEnd);
    let ToPmix::Order(order) = link.call().context("the keeper gives no order")? else {
        bail!("the keeper gives no order");
    };
    let PmixSpace { name, nodes, node, .. } = &order.space;
    let local = nodes.get(*node as usize).map_or(0, |node| node.tasks);
    let service = SERVICE.get_or_init(|| Service {
        keeper,
        space: CString::new(name.as_bytes()).unwrap_or_default(),
        size: nodes.iter().map(|node| node.tasks).sum(),
        local: (nodes.iter().take(*node as usize).map(|node| node.tasks).sum(), local),
        fences: Mutex::new(Fences::default()),
        requests: Mutex::new(Requests::default()),
    });
    let served = match begin(&order, service) {
        Ok(served) => served,
        Err(error) => {
            service.tell(&FromPmix::Failed { reason: format!("{error:#}") });
            return Ok(());
        }
    };
    service.tell(&FromPmix::Ready);
    while let Ok(message) = link.call() {
        match message {
            ToPmix::Order(_) => break,
            ToPmix::Fenced { is_last, data } => service.on_fenced(is_last, &data),
            // Without it, what is asked of that step is not found.
            ToPmix::Space(space) => drop(served.register_space(&space, 0)),
            ToPmix::Gone { space } => served.deregister_space(&space),
            ToPmix::Answer { number, answer } => service.on_answer(number, answer),
            ToPmix::Fetch { number, rank } => service.on_fetch(&served.library, number, rank),
            ToPmix::RanksFailed { ranks } => {
                ranks.into_iter().for_each(|rank| served.name_failed(&service.space, rank));
            }
        }
    }
    // The library's own end would wait for threads, and nothing is left for it to do.
    // SAFETY: takes no pointer, and does not return.
    unsafe { libc::_exit(0) }
}

/// What the library has been told of.
struct Served {
    library: Library,
    /// The directory for its files.
    directory: String,
}

fn begin(order: &PmixOrder, service: &Service) -> anyhow::Result<Served> {
    let (tasks, memory_bytes) = (u64::from(service.local.1), order.memory_bytes);
    confine(tasks, memory_bytes).context("cannot confine the PMIx server")?;
    become_user(order.identity.as_ref()).context("cannot become the user of the PMIx server")?;
    // A keeper that has ended before is seen at the connection.
    end_with_keeper().context("cannot end with the keeper")?;
    for variable in &order.environment {
        if let Some((name, value)) = OsStr::from_bytes(variable).to_str().and_then(pair) {
            // SAFETY: there is no other thread yet.
            unsafe { std::env::set_var(name, value) };
        }
    }
    if std::env::var_os(REGEX).is_none() {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var(REGEX, "native") };
    }
    let names: Vec<Vec<u8>> = order.libraries.iter().map(|name| name.to_vec()).collect();
    let library = Library::load(&names)?;
    let directory = directory(Path::new(OsStr::from_bytes(&order.directory)))?;
    let directory = directory.to_string_lossy().into_owned();
    let space = &order.space;
    let here = space.nodes.get(space.node as usize).context("the order names no node")?;
    let mut infos = [
        text("pmix.srvr.tmpdir", &directory),
        text("pmix.sys.tmpdir", &directory),
        text("pmix.hname", &here.name),
    ];
    // The library may change it, and keeps it.
    let module = Box::leak(Box::new(module(&library)));
    // SAFETY: both live on, and are of the form that the library expects.
    let status = unsafe { (library.init)(module, infos.as_mut_ptr(), infos.len()) };
    library.check(status, "begin")?;
    let served = Served { library, directory };
    served.register_space(space, service.local.1)?;
    for place in 0..service.local.1 {
        let proc = Proc::new(&service.space, service.local.0 + place);
        register_client(&library, &proc)?;
        let variables = environment(&library, &proc)?;
        service.tell(&FromPmix::Environment { variables });
    }
    Ok(served)
}

fn pair(variable: &str) -> Option<(&str, &str)> {
    variable.split_once('=').filter(|(name, _)| !name.is_empty())
}

/// Makes the directory for the library's files, for the user alone.
fn directory(parent: &Path) -> anyhow::Result<PathBuf> {
    let path = parent.join("tutti-pmix");
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot make the directory '{}'", path.display()))?;
    Ok(path)
}

/// The end of an operation of the library.
static ENDED: (Mutex<Option<c_int>>, Condvar) = (Mutex::new(None), Condvar::new());

unsafe extern "C" fn on_ended(status: c_int, _passed: *mut c_void) {
    *lock(&ENDED.0) = Some(status);
    ENDED.1.notify_all();
}

/// Waits for an operation that has begun with this status.
fn wait(library: &Library, begun: c_int, what: &str) -> anyhow::Result<()> {
    library.check(begun, what)?;
    if begun == crate::types::DONE {
        return Ok(());
    }
    let mut ended = lock(&ENDED.0);
    loop {
        if let Some(status) = ended.take() {
            return library.check(status, what);
        }
        ended = ENDED.1.wait(ended).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Served {
    /// Tells the library of a step, of which it serves so many tasks.
    fn register_space(&self, space: &PmixSpace, served: u32) -> anyhow::Result<()> {
        // Tasks of another step count as on other nodes. Open MPI 5 divides collectives by node,
        // and all tasks must see the same nodes. A task that asked for a spawn would find its
        // children on its node; the other tasks and the children would not.
        let mut space = space.clone();
        if served == 0 {
            space.nodes.iter_mut().for_each(|node| node.name.push('+'));
        }
        let space = &space;
        let mut infos = of_step(&self.library, (space, served), &self.directory)?;
        let size = c_int::try_from(served)?;
        let name = CString::new(space.name.as_bytes())?;
        let (list, count) = (infos.as_mut_ptr(), infos.len());
        let none = std::ptr::null_mut();
        let register = self.library.register_space;
        // SAFETY: name and list live until the callback has come, which is waited for.
        let begun = unsafe { register(name.as_ptr(), size, list, count, Some(on_ended), none) };
        let done = wait(&self.library, begun, "register the job");
        free(infos);
        done
    }

    /// Has the library tell the tasks of this node that a rank has failed: those that have asked
    /// for events and have not ended.
    fn name_failed(&self, space: &CStr, of: u32) {
        let none = std::ptr::null_mut();
        let proc = Proc::new(space, of);
        let infos = [process("pmix.evproc", proc)];
        let notify = self.library.notify;
        // SAFETY: process and list live until the callback has come, which is waited for.
        let begun = unsafe {
            notify(WITHOUT_A_WORD, &proc, HERE, infos.as_ptr(), infos.len(), Some(on_ended), none)
        };
        // Without it the tasks see the loss at their connections, if at all.
        let _ = wait(&self.library, begun, "tell of a failed rank");
        free(infos.into());
    }

    /// Has the library forget another step.
    fn deregister_space(&self, space: &str) {
        let Ok(name) = CString::new(space) else { return };
        let none = std::ptr::null_mut();
        // SAFETY: the name lives until the callback has come, which is waited for.
        unsafe { (self.library.deregister_space)(name.as_ptr(), Some(on_ended), none) };
        // It says nothing of an error.
        let _ = wait(&self.library, crate::types::SUCCESS, "forget a step");
    }
}

/// What the library is to know of a step.
fn of_step(
    library: &Library,
    (space, served): (&PmixSpace, u32),
    directory: &str,
) -> anyhow::Result<Vec<Info>> {
    let names: Vec<&str> = space.nodes.iter().map(|node| node.name.as_str()).collect();
    let firsts = firsts(&space.nodes);
    let ranks_of = |(first, node): (&u32, &PmixNode)| {
        let ranks = (0..node.tasks).map(|place| (first + place).to_string());
        ranks.collect::<Vec<_>>().join(",")
    };
    let ranks: Vec<String> = firsts.iter().zip(&space.nodes).map(ranks_of).collect();
    let place = space.node as usize;
    let (Some(here), Some(first)) = (ranks.get(place), firsts.get(place)) else {
        bail!("the order names no node");
    };
    let local = space.nodes.get(place).map_or(0, |node| node.tasks);
    let size: u32 = space.nodes.iter().map(|node| node.tasks).sum();
    let programs = programs(space, size);
    let mut infos = vec![
        number("pmix.univ.size", space.universe.max(size)),
        number("pmix.job.size", size),
        number("pmix.max.size", space.universe.max(size)),
        number("pmix.job.napps", u32::try_from(programs.len())?),
        number("pmix.local.size", local),
        number("pmix.node.size", local),
        number("pmix.num.nodes", u32::try_from(space.nodes.len())?),
        rank("pmix.lldr", *first),
        made("pmix.nmap", compact(library, library.regex, &names.join(","))?),
        made("pmix.pmap", compact(library, library.ppn, &ranks.join(";"))?),
        text("pmix.jobid", &space.name),
        text("pmix.tmpdir", directory),
        text("pmix.nsdir", directory),
        flag("pmix.tdir.rmclean", true),
    ];
    if served > 0 {
        infos.push(text("pmix.lpeers", here));
    }
    if let [(_, tasks)] = programs[..] {
        infos.push(number("pmix.app.size", tasks));
    }
    if let Some((parent, of)) = &space.parent {
        infos.push(flag("pmix.spawned", true));
        infos.push(process("pmix.parent", Proc::new(&CString::new(parent.as_bytes())?, *of)));
    }
    for (place, (first, node)) in (0..).zip(firsts.iter().zip(&space.nodes)) {
        let of_node = |task| of_task((first + task, task), (place, node), &programs);
        infos.extend((0..node.tasks).map(of_node));
    }
    Ok(infos)
}

/// The first rank of each program, and how many tasks run it.
fn programs(space: &PmixSpace, size: u32) -> Vec<(u32, u32)> {
    let mut first = 0;
    let each = |tasks: &u32| {
        let program = (first, *tasks);
        first += tasks;
        program
    };
    match &space.programs[..] {
        [] => vec![(0, size)],
        some => some.iter().map(each).collect(),
    }
}

/// What the library is to know of a task. A list that lacks one of these is worse than none.
fn of_task((of, local): (u32, u32), (node, on): (u32, &PmixNode), programs: &[(u32, u32)]) -> Info {
    let of_programs = (0..).zip(programs).filter(|(_, (first, _))| *first <= of);
    let (program, leader) = of_programs.last().map_or((0, 0), |(at, (first, _))| (at, *first));
    let infos = vec![
        rank("pmix.rank", of),
        number("pmix.appnum", program),
        rank("pmix.apprank", of - leader),
        rank("pmix.aldr", leader),
        rank("pmix.grank", of),
        small("pmix.lrank", local),
        small("pmix.nrank", local),
        number("pmix.nodeid", node),
        text("pmix.hname", &on.name),
        number("pmix.reinc", 0),
    ];
    list("pmix.pdata", infos)
}

/// The first rank of each node.
fn firsts(nodes: &[PmixNode]) -> Vec<u32> {
    let next = |first: &mut u32, node: &PmixNode| {
        let own = *first;
        *first += node.tasks;
        Some(own)
    };
    nodes.iter().scan(0, next).collect()
}

type Compact = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;

/// A list in the library's own short form.
fn compact(library: &Library, by: Compact, list: &str) -> anyhow::Result<*mut c_char> {
    let list = CString::new(list)?;
    let mut short = std::ptr::null_mut();
    // SAFETY: the list ends with a zero byte; the result is a text of the library, or not set.
    let status = unsafe { by(list.as_ptr(), &raw mut short) };
    library.check(status, "describe the nodes")?;
    Ok(short)
}

fn register_client(library: &Library, proc: &Proc) -> anyhow::Result<()> {
    let none = std::ptr::null_mut();
    // SAFETY: take no pointers. The process lives until the callback has come, which is waited for.
    let begun = unsafe {
        let (uid, gid) = (libc::getuid(), libc::getgid());
        (library.register_client)(proc, uid, gid, none, Some(on_ended), none)
    };
    wait(library, begun, "register a task")
}

/// The variables that a task must find.
fn environment(library: &Library, proc: &Proc) -> anyhow::Result<Vec<serde_bytes::ByteBuf>> {
    // The library frees and replaces it, so it must be of the C library's making.
    // SAFETY: takes no pointer.
    let mut variables: *mut *mut c_char =
        unsafe { libc::calloc(1, size_of::<*mut c_char>()) }.cast();
    // SAFETY: the list ends with a null pointer.
    let status = unsafe { (library.setup_fork)(proc, &raw mut variables) };
    library.check(status, "set up a task")?;
    let mut found = Vec::new();
    // SAFETY: the list ends with a null pointer, and each before it is a text.
    unsafe {
        while !variables.is_null() && !(*variables).is_null() {
            found.push(text_of(*variables).into_bytes().into());
            variables = variables.add(1);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_over_the_nodes() {
        let node = |tasks| PmixNode { node: Default::default(), name: "n".into(), tasks };
        assert_eq!(firsts(&[node(2), node(3), node(1)]), [0, 2, 5]);
        assert!(firsts(&[]).is_empty());
    }
}
