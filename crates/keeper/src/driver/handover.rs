//! A keeper upgrades to another executable without letting go of its tasks.
//!
//! 1. The supervisor has asked the other executable whether it understands what would be handed
//!    over (`tutti keeper --can-take-over FORM`), and tells us to upgrade to it.
//! 2. At the end of a round, when all that was heard is dealt with, everything is written to a file
//!    in memory (`wire/src/handover.rs`), and the descriptors in it are marked to stay open.
//! 3. `execve`: the process keeps its number, so its tasks are still its children, minders see no
//!    end of it, and the supervisor nothing at all. What is in pipes and sockets waits there.
//!    Children that still use our memory (`linux/src/spawn/spawn_pool.rs`) keep it until their
//!    programs run; the kernel gives this process a new one.
//! 4. The other program takes everything up, reaps what has ended meanwhile, and says that it is
//!    done.
//!
//! If anything fails before or at step 3, nothing has changed. A keeper that is killed in between
//! has taken its tasks along, as a keeper that is killed always does.

use super::{Keeper, Newcomer, close_memory};
use crate::KeeperOptions;
use crate::context::Context;
use crate::job::Job;
use crate::outlet::Outlet;
use crate::watch::Watch;
use anyhow::Context as _;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::execv;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_linux::inherited::{Inherited, keep_all_open};
use tutti_node::instance::may_run_instance;
use tutti_node::link::{Interest, Link};
use tutti_types::StepKey;
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::handover::{
    FORM, FromHolder, HANDOVER_BYTES_MAX, Handover, HeldLink, HeldNewcomer, ToHolder,
};
use tutti_wire::limits::{FRAME_BYTES_MAX, NEWCOMER_FRAME_BYTES_MAX, PROTOCOL_VERSION};

/// What the supervisor may say: a path.
const ORDER_BYTES_MAX: usize = 8 << 10;

/// What a keeper is to upgrade to.
pub(super) struct Successor {
    program: PathBuf,
    protocol: u16,
    /// The asker, which is told.
    asker: Link,
}

/// Whether this program could take over what a keeper of that form hands over.
///
/// # Errors
/// If not, with both forms.
pub fn check(form: u16) -> anyhow::Result<()> {
    anyhow::ensure!(
        form == FORM,
        "the keeper that runs would hand over form {form}; tutti {} understands form {FORM}",
        env!("CARGO_PKG_VERSION")
    );
    Ok(())
}

/// Goes on as the keeper that executed this program: `state` is the descriptor of what it left.
///
/// # Errors
/// If that can't be read; then its tasks are lost.
pub fn successor(options: KeeperOptions, state: i32) -> anyhow::Result<()> {
    close_memory(&options)?;
    let mut inherited = Inherited::take_all().context("cannot see what was handed over")?;
    let taken = read_state(&mut inherited, state)
        .and_then(|handed| Keeper::take_over(options, handed, &mut inherited));
    drop(inherited);
    let mut keeper = taken.context("cannot take over from the keeper before")?;
    for job in keeper.jobs.values_mut() {
        job.begin_again(&mut keeper.context);
    }
    keeper.reap();
    keeper.settle();
    keeper.run()
}

fn read_state(inherited: &mut Inherited, state: i32) -> anyhow::Result<Handover> {
    let mut file = File::from(inherited.take(state).context("nothing was handed over")?);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(HANDOVER_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(Handover::decode(&bytes)?)
}

impl Keeper {
    /// The supervisor wants us to upgrade to another executable.
    pub(super) fn on_supervisor(&mut self, number: u64) {
        let Some(newcomer) = self.door.newcomers.get_mut(&number) else { return };
        if !may_run_instance(newcomer.uid, self.options.instance_uid) {
            let why = format!("user {} may not be its supervisor", newcomer.uid);
            return self.drop_newcomer(number, &why);
        }
        newcomer.link.limit(ORDER_BYTES_MAX);
        match newcomer.link.next::<ToHolder>() {
            Ok(Some(ToHolder::Upgrade { program, protocol })) => {
                let Some(newcomer) = self.remove_newcomer(number) else { return };
                let mut asker = newcomer.link;
                asker.greet(Role::Server);
                let program = PathBuf::from(OsStr::from_bytes(&program));
                self.end.successor = Some(Successor { program, protocol, asker });
            }
            Ok(None) => {}
            Err(error) => self.drop_newcomer(number, &error.to_string()),
        }
    }

    /// Does what the supervisor has asked for. Returns if that can't be done, as if it had not been
    /// asked.
    pub(super) fn upgrade(&mut self) {
        let Some(mut successor) = self.end.successor.take() else { return };
        self.context.emptied.remove_all();
        for job in self.jobs.values_mut() {
            job.end_look(&mut self.context);
        }
        let Err(error) = self.try_to_upgrade(&successor);
        let reason = format!("{error:#}");
        warn!(code = %Code::NotUpgraded, "not upgraded: {reason}");
        successor.asker.send(&FromHolder::Refused { reason });
        // So little always fits into a socket from which nothing was to be read yet.
        let _ = successor.asker.flush();
    }

    fn try_to_upgrade(&self, successor: &Successor) -> anyhow::Result<std::convert::Infallible> {
        self.check_for_upgrade(successor.protocol)?;
        let bytes = self.hand_over(successor).encode()?;
        let mut state = File::from(memfd_create(c"tutti-keeper", MFdFlags::MFD_CLOEXEC)?);
        state.write_all(&bytes).context("cannot write what is to be handed over")?;
        let program = CString::new(successor.program.as_os_str().as_bytes())?;
        let words = [
            CString::from(c"tutti"),
            CString::from(c"keeper"),
            CString::from(c"--directory"),
            CString::new(self.options.directory().as_os_str().as_bytes())?,
            CString::from(c"--take-over"),
            CString::new(state.as_raw_fd().to_string())?,
        ];
        // What does not belong to anything in there is closed by the program that takes over.
        let executed = keep_all_open(true).map_err(anyhow::Error::from).and_then(|()| {
            execv(&program, &words)
                .with_context(|| format!("cannot execute {}", successor.program.display()))
        });
        keep_all_open(false).context("tasks may inherit what is none of theirs")?;
        executed
    }

    fn check_for_upgrade(&self, protocol: u16) -> anyhow::Result<()> {
        anyhow::ensure!(self.end.stop_at_ns.is_none(), "the instance is ending");
        if protocol != PROTOCOL_VERSION {
            let attached = self.jobs.values().filter(|job| job.readers.front.is_some());
            let attached: Vec<String> = attached.map(|job| job.launch.job.to_string()).collect();
            anyhow::ensure!(
                attached.is_empty(),
                "it speaks version {protocol} of the protocol, and what takes the output of job {} speaks version \
                 {PROTOCOL_VERSION}: wait until those jobs have ended, or cancel them",
                attached.join(", ")
            );
        }
        Ok(())
    }

    fn hand_over(&self, successor: &Successor) -> Handover {
        let lossless = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let endings = self.context.endings.iter();
        let newcomers = self.door.newcomers.values();
        Handover {
            protocol: PROTOCOL_VERSION,
            incarnation: self.incarnation,
            descriptors: self.context.launching.descriptors,
            listener: self.door.listener.as_raw_fd(),
            // Those that wait to be viewers come again, as viewers do.
            newcomers: newcomers.filter(|it| !it.views).map(Newcomer::hand_over).collect(),
            asker: Some(successor.asker.hand_over()),
            agent: self.agent.as_ref().map(|(link, ..)| link.hand_over()),
            jobs: self.jobs.values().map(Job::hand_over).collect(),
            lease_until_ns: self.lease.until_ns(),
            names: self.context.mpi.names.clone(),
            hub: self.context.mpi.hub.clone(),
            far: self.context.mpi.far.clone(),
            endings: endings.map(|(&(job, index), &at)| (at, job, lossless(index))).collect(),
            spares: self.context.launching.scratches.hand_over(),
        }
    }
    fn take_over(
        options: KeeperOptions,
        handed: Handover,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Self> {
        let mut context = Context::new(&options)?;
        context.launching.descriptors = handed.descriptors;
        context.mpi.names = handed.names;
        context.mpi.hub = handed.hub;
        context.mpi.far = handed.far;
        let ending = |(at, job, index): (u64, StepKey, u32)| ((job, index as usize), at);
        context.endings = handed.endings.into_iter().map(ending).collect();
        let listener = UnixListener::from(inherited.take(handed.listener)?);
        let mut jobs = BTreeMap::new();
        for job in handed.jobs {
            let job = Job::take_over(job, &mut context, inherited)?;
            context.touched.insert(job.key());
            context.note_exchange(job.key());
            jobs.insert(job.key(), job);
        }
        let in_use: Vec<&Path> = jobs.values().flat_map(|job| job.traces.directories()).collect();
        context.launching.scratches.take_over(handed.spares, &in_use);
        let mut keeper = Self::over(options, listener, context)?;
        keeper.incarnation = handed.incarnation;
        keeper.jobs = jobs;
        keeper.lease.renew(handed.lease_until_ns);
        if handed.protocol == PROTOCOL_VERSION {
            keeper.take_over_connections(handed.agent, handed.newcomers, inherited)?;
        }
        if let Some(asker) = handed.asker {
            keeper.answer(asker, inherited)?;
        }
        Ok(keeper)
    }

    /// Connected clients go on as if nothing had happened. Those of another version of the protocol
    /// find their connections broken, and are told of the versions when they come again.
    fn take_over_connections(
        &mut self,
        agent: Option<HeldLink>,
        newcomers: Vec<HeldNewcomer>,
        inherited: &mut Inherited,
    ) -> io::Result<()> {
        if let Some(agent) = agent {
            let link = Link::take_over(agent, FRAME_BYTES_MAX, inherited)?;
            let token = self.context.watches.add(&link, Watch::Agent, Interest::READ)?;
            self.context.agent_connected = true;
            self.agent = Some((link, token, Interest::READ));
            // What was heard and not dealt with; the rest comes as ever.
            self.take_orders();
        }
        for held in newcomers {
            let number = self.door.newcomers_so_far;
            self.door.newcomers_so_far += 1;
            let newcomer = Newcomer::take_over(held, number, &mut self.context, inherited)?;
            self.door.newcomers.insert(number, newcomer);
            self.on_newcomer(number);
        }
        Ok(())
    }

    fn answer(&self, asker: HeldLink, inherited: &mut Inherited) -> io::Result<()> {
        let mut asker = Link::take_over(asker, ORDER_BYTES_MAX, inherited)?;
        let jobs = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        asker.send(&FromHolder::Done { jobs });
        // The asker may be gone: then it is not told.
        let _ = asker.flush();
        Ok(())
    }
}

impl Newcomer {
    fn hand_over(&self) -> HeldNewcomer {
        HeldNewcomer {
            link: self.link.hand_over(),
            uid: self.uid,
            outlet: self.outlet.as_ref().map(Outlet::hand_over),
            waits: self.waits,
            received: self.received,
            until_ns: self.until_ns,
            terminal: self.terminal,
        }
    }

    fn take_over(
        held: HeldNewcomer,
        number: u64,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let link = Link::take_over(held.link, NEWCOMER_FRAME_BYTES_MAX, inherited)?;
        // What a client that waits for its job sends waits in the kernel.
        let interest = if held.waits.is_some() { Interest::NONE } else { Interest::READ };
        let token = context.watches.add(&link, Watch::Newcomer(number), interest)?;
        Ok(Self {
            link,
            token,
            uid: held.uid,
            outlet: held.outlet.map(|outlet| Outlet::take_over(outlet, inherited)).transpose()?,
            waits: held.waits,
            views: false,
            received: held.received,
            until_ns: held.until_ns,
            terminal: held.terminal,
        })
    }
}
