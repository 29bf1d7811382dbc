//! What all tasks of a job run, from its launch.

use super::context::Context;
use super::environment;
use super::script;
use super::starters;
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use serde_bytes::ByteBuf;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tutti_linux::rt;
use tutti_linux::spawn::{Identity, program_candidates};
use tutti_node::executable::RUNNING;
use tutti_node::helper_user::word_of;
use tutti_types::{ControlMethod, Rank, TaskStatus};
use tutti_wire::handover::{HandedCommand, HandedProgram};
use tutti_wire::launch::{Credentials, Launch, Stdio};
use tutti_wire::spawn::Spawned;

/// Why a task can't be started.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: TaskStatus,
    pub(super) detail: String,
}

impl Refusal {
    pub(super) const fn new(detail: String) -> Self {
        Self { status: TaskStatus::NotExecutable, detail }
    }

    pub(super) fn io(what: &str, error: &io::Error) -> Self {
        Self::new(format!("{what}: {}", reason(error)))
    }
}

/// A command, in the form that starting a process wants.
pub(super) struct Command {
    pub(super) argv: Vec<CString>,
    pub(super) candidates: Vec<CString>,
    pub(super) directory: CString,
}

/// What all tasks of a job run, in the form that starting a process wants.
pub(super) struct Program {
    /// What those run that are not in `others`.
    pub(super) command: Command,
    /// What spawned tasks run of the programs behind the first, each with the lowest rank.
    pub(super) others: Vec<(u32, Command)>,
    pub(super) environment: Vec<CString>,
    pub(super) rlimits: Vec<(i32, u64, u64)>,
    pub(super) identity: Option<Identity>,
}

impl Program {
    /// Prepares a launch; writes its script, if it has one.
    pub(super) fn new(
        launch: &Launch,
        scratch: Option<&Path>,
        context: &Context,
    ) -> Result<Self, Refusal> {
        let spec = &launch.spec;
        let identity = identity(&launch.credentials, context.launching.uid)?;
        if launch.serves {
            return server(launch, identity.as_ref(), scratch, context);
        }
        let mut argv = Vec::new();
        let mut name = spec.argv.first().map_or(&b""[..], |name| name);
        let (script_path, command);
        if let Some(text) = &spec.script {
            let owner = identity.is_some().then_some(&launch.credentials);
            script_path = script::write(&context.launching.spool, launch.job, text, owner)
                .map_err(Refusal::new)?;
            command = script::command(text, script_path.as_os_str().as_bytes());
            name = &command[0];
            for word in &command {
                argv.push(without_zero_byte("an argument", word)?);
            }
        } else {
            argv.push(without_zero_byte("the program's name", name)?);
        }
        starters::prepare(launch, &context.launching.spool);
        for word in spec.argv.iter().skip(1) {
            argv.push(without_zero_byte("an argument", word)?);
        }
        let name = without_zero_byte("the program's name", name)?;
        let candidates = match spec.script {
            // An interpreter is never searched for.
            Some(_) => vec![name],
            None => program_candidates(&name, environment::value_of(launch, "PATH")),
        };
        let directory = without_zero_byte("the directory's name", &spec.directory)?;
        let (command, others) = match &launch.spawned {
            None => (Command { argv, candidates, directory }, Vec::new()),
            Some(spawned) => commands(launch, spawned)?,
        };
        Ok(Self {
            command,
            others,
            environment: environment::of_job(launch, scratch, Some(&context.launching.spool)),
            rlimits: rlimits(launch, context.launching.descriptors, |resource| {
                context.limit_most(resource)
            }),
            identity,
        })
    }
}

/// What runs outside of its job's group and turns: a program of ours, whatever the launch names.
///
/// As a helper does, it becomes the job's user by itself ([`tutti_node::helper_user`]). Until then
/// it has the rights of the keeper. So its environment has nothing that the user chose but the name
/// of a directory.
fn server(
    launch: &Launch,
    identity: Option<&Identity>,
    scratch: Option<&Path>,
    context: &Context,
) -> Result<Program, Refusal> {
    let mut environment = environment::of_job(launch, scratch, None);
    environment.retain(|it| it.as_bytes().starts_with(b"TMPDIR="));
    Ok(Program {
        command: command_of_server(launch, identity)?,
        others: Vec::new(),
        environment,
        rlimits: rlimits(launch, context.launching.descriptors, |resource| {
            context.limit_most(resource)
        }),
        identity: None,
    })
}

/// The first word is the user; those of the launch follow, which are checked by that user's rights.
/// Files that the user names would be opened with the rights of the keeper: there are none.
fn command_of_server(launch: &Launch, identity: Option<&Identity>) -> Result<Command, Refusal> {
    if !matches!(launch.spec.stdio, Stdio::FrontEnd { .. }) {
        return Err(Refusal::new("what serves a job has the streams of a front end".into()));
    }
    let user = word_of(identity.map(|_| &launch.credentials));
    let mut argv: Vec<CString> = [c"tutti", c"pvm-node", c"--"].map(CString::from).into();
    argv.push(without_zero_byte("the user", user.as_bytes())?);
    for word in launch.spec.argv.iter().skip(1) {
        argv.push(without_zero_byte("an argument", word)?);
    }
    let candidates = vec![CString::new(RUNNING).unwrap_or_default()];
    Ok(Command { argv, candidates, directory: CString::from(c"/") })
}

/// The programs of tasks that others have spawned.
fn commands(launch: &Launch, spawned: &Spawned) -> Result<(Command, Vec<(u32, Command)>), Refusal> {
    let mut from = 0_u32;
    let mut all = Vec::new();
    for program in &spawned.programs {
        let name = program.argv.first().map_or(&b""[..], |name| name);
        let name = without_zero_byte("the program's name", name)?;
        let words = program.argv.iter().map(|word| without_zero_byte("an argument", word));
        let directory = program.directory.as_ref().unwrap_or(&launch.spec.directory);
        let command = Command {
            argv: words.collect::<Result<_, _>>()?,
            candidates: program_candidates(&name, environment::value_of(launch, "PATH")),
            directory: without_zero_byte("the directory's name", directory)?,
        };
        all.push((from, command));
        from = from.saturating_add(program.tasks);
    }
    if all.is_empty() {
        return Err(Refusal::new("nothing is named that was to be spawned".into()));
    }
    let others = all.split_off(1);
    all.pop().map(|(_, command)| (command, others)).ok_or_else(|| Refusal::new(String::new()))
}

impl Program {
    /// What a task runs.
    pub(super) fn command_of(&self, rank: Rank) -> &Command {
        let others = self.others.iter().rev();
        let found = others.map(|(from, command)| (*from, command)).find(|it| it.0 <= rank.0);
        found.map_or(&self.command, |(_, command)| command)
    }
}

/// Texts for another program, and back.
fn to_bytes(texts: &[CString]) -> Vec<ByteBuf> {
    texts.iter().map(|text| ByteBuf::from(text.as_bytes())).collect()
}

fn from_bytes(texts: Vec<ByteBuf>) -> io::Result<Vec<CString>> {
    texts.into_iter().map(|text| Ok(CString::new(text.into_vec())?)).collect()
}

impl Command {
    fn hand_over(&self, from: u32) -> HandedCommand {
        HandedCommand {
            from,
            argv: to_bytes(&self.argv),
            candidates: to_bytes(&self.candidates),
            directory: ByteBuf::from(self.directory.as_bytes()),
        }
    }

    fn take_over(handed: HandedCommand) -> io::Result<(u32, Self)> {
        let command = Self {
            argv: from_bytes(handed.argv)?,
            candidates: from_bytes(handed.candidates)?,
            directory: CString::new(handed.directory.into_vec())?,
        };
        Ok((handed.from, command))
    }
}

impl Program {
    /// What another program must know to start more of it.
    pub(super) fn hand_over(&self) -> HandedProgram {
        HandedProgram {
            argv: to_bytes(&self.command.argv),
            candidates: to_bytes(&self.command.candidates),
            environment: to_bytes(&self.environment),
            directory: ByteBuf::from(self.command.directory.as_bytes()),
            others: self.others.iter().map(|(from, command)| command.hand_over(*from)).collect(),
            rlimits: self.rlimits.clone(),
            identity: self.identity.as_ref().map(|it| (it.uid, it.gid, it.groups.clone())),
        }
    }

    /// Goes on with one of another program.
    pub(super) fn take_over(handed: HandedProgram) -> io::Result<Self> {
        Ok(Self {
            command: Command {
                argv: from_bytes(handed.argv)?,
                candidates: from_bytes(handed.candidates)?,
                directory: CString::new(handed.directory.into_vec())?,
            },
            others: handed.others.into_iter().map(Command::take_over).collect::<io::Result<_>>()?,
            environment: from_bytes(handed.environment)?,
            rlimits: handed.rlimits,
            identity: handed.identity.map(|(uid, gid, groups)| Identity { uid, gid, groups }),
        })
    }
}

/// Root becomes the job's owner; others can only start their own.
pub(super) fn identity(credentials: &Credentials, uid: u32) -> Result<Option<Identity>, Refusal> {
    let Credentials { uid: wanted, gid, ref groups } = *credentials;
    match uid {
        0 => Ok(Some(Identity { uid: wanted, gid, groups: groups.clone() })),
        _ if uid == wanted => Ok(None),
        _ => Err(Refusal::new(format!(
            "this instance runs as user {uid} and can't start programs as user {wanted}"
        ))),
    }
}

/// The limits of the job's front end, as far as this process can give them: `most` says how much
/// that is.
fn rlimits(
    launch: &Launch,
    descriptors: (u64, u64),
    most: impl Fn(i32) -> u64,
) -> Vec<(i32, u64, u64)> {
    let of_user = &launch.spec.rlimits;
    let mut limits: Vec<(i32, u64, u64)> = of_user
        .iter()
        .filter_map(|&(resource, soft, hard)| Some((i32::try_from(resource).ok()?, soft, hard)))
        .collect();
    let nofile = libc::RLIMIT_NOFILE.cast_signed();
    if !limits.iter().any(|&(resource, ..)| resource == nofile) {
        limits.push((nofile, descriptors.0, descriptors.1));
    }
    for (resource, soft, hard) in &mut limits {
        let most = most(*resource);
        (*soft, *hard) = (most.min(*soft), most.min(*hard));
    }
    limit_priority(&mut limits, launch.control, rt::task_priority_max());
    limits
}

/// Keeps real-time tasks below the switch thread, which must take their processor from them. A job
/// that is switched by priority gets none: weights of groups do not count for real-time threads.
fn limit_priority(limits: &mut Vec<(i32, u64, u64)>, control: ControlMethod, task_max: u64) {
    let rtprio = libc::RLIMIT_RTPRIO.cast_signed();
    let most = if control == ControlMethod::Priority { 0 } else { task_max };
    let place = limits.iter().position(|&(resource, ..)| resource == rtprio);
    let (soft, hard) = match place.map(|place| limits.swap_remove(place)) {
        Some((_, soft, hard)) => (soft, hard),
        // Inherited.
        None => getrlimit(Resource::RLIMIT_RTPRIO).unwrap_or((0, 0)),
    };
    if place.is_some() || hard > most {
        limits.push((rtprio, soft.min(most), hard.min(most)));
    }
}

pub(super) fn without_zero_byte(what: &str, text: &[u8]) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::new(format!("{what} has a zero byte in it")))
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_wire::launch::InputTo;

    #[test]
    fn what_serves_a_job_becomes_its_user_by_itself_and_opens_no_file_of_it() {
        let mut launch = crate::fixture::launch(1, 1, &["anything", "-s"]);
        launch.credentials = Credentials { uid: 1000, gid: 100, groups: vec![7, 8] };
        launch.spec.stdio = Stdio::FrontEnd { input: InputTo::All };
        let words = |launch: &Launch, uid| {
            let user = identity(&launch.credentials, uid).unwrap();
            let argv = command_of_server(launch, user.as_ref()).ok()?.argv;
            Some(argv.iter().map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        let by_root = words(&launch, 0).unwrap();
        assert_eq!(by_root, ["tutti", "pvm-node", "--", "1000:100:7,8", "-s"]);
        assert_eq!(words(&launch, 1000).unwrap()[3], "-");
        launch.spec.stdio = Stdio::Files {
            input: None,
            output: b"/etc/passwd".to_vec().into(),
            error: None,
            mode: Default::default(),
        };
        assert_eq!(words(&launch, 0), None);
    }

    #[test]
    fn tasks_get_no_higher_limits_than_their_keeper_can_give() {
        let (core, files) = (libc::RLIMIT_CORE, libc::RLIMIT_NOFILE);
        let mut launch = crate::fixture::launch(1, 1, &["true"]);
        launch.spec.rlimits = vec![(core, 7, u64::MAX), (files, 100, 200)];
        let limits = |most: fn(i32) -> u64| {
            let mut limits = rlimits(&launch, (1, 2), most);
            limits.retain(|it| it.0 != libc::RLIMIT_RTPRIO.cast_signed());
            limits
        };
        let (core, files) = (core.cast_signed(), files.cast_signed());
        assert_eq!(limits(|_| u64::MAX), [(core, 7, u64::MAX), (files, 100, 200)]);
        assert_eq!(limits(|_| 150), [(core, 7, 150), (files, 100, 150)]);
        assert_eq!(limits(|_| 0), [(core, 0, 0), (files, 0, 0)]);
    }

    #[test]
    fn tasks_have_less_real_time_priority_than_the_switch_thread() {
        let rtprio = libc::RLIMIT_RTPRIO.cast_signed();
        let limited = |limits: &[(i32, u64, u64)], control| {
            let mut limits = limits.to_vec();
            limit_priority(&mut limits, control, 98);
            limits
        };
        let other = (libc::RLIMIT_CORE.cast_signed(), 1, 2);
        let asked = [(rtprio, 30, libc::RLIM_INFINITY), other];
        assert_eq!(limited(&asked, ControlMethod::Freeze), [other, (rtprio, 30, 98)]);
        assert_eq!(limited(&asked, ControlMethod::Signal), [other, (rtprio, 30, 98)]);
        assert_eq!(limited(&asked, ControlMethod::Priority), [other, (rtprio, 0, 0)]);
    }
}
