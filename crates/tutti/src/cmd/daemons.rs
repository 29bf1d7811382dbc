//! The daemons' own verbs, started by the supervisor or a systemd unit, not by users.

use clap::Args;
use std::path::PathBuf;
use tutti_agent::AgentOptions;
use tutti_client::output::print;
use tutti_controller::ControllerOptions;
use tutti_keeper::KeeperOptions;
use tutti_linux::cgroup::Hierarchy;
use tutti_node::executable::own_path;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::limits;
use tutti_node::membership::Place;
use tutti_node::pidlock::Sole;
use tutti_node::shared_images::SharedImages;
use tutti_wire::limits::PROTOCOL_VERSION;

#[derive(Args, Debug)]
pub(crate) struct DaemonArgs {
    /// The state directory of the instance
    #[arg(long)]
    directory: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Go on with what a controller of the same supervisor was about that has failed
    #[arg(long)]
    successor: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KeeperArgs {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Take over what the keeper left that ran in this process: the descriptor of its state
    #[arg(long, value_name = "DESCRIPTOR")]
    take_over: Option<i32>,

    /// Only say whether a keeper's state of this form can be taken over, and which protocol is
    /// spoken
    #[arg(long, value_name = "FORM")]
    can_take_over: Option<u16>,

    /// With that: also whether the controller reads a journal of this form
    #[arg(long, value_name = "FORM", requires = "can_take_over")]
    reads_journal: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// The name that the node joins under
    #[arg(long)]
    node: Option<String>,
}

pub(crate) fn controller(args: ControllerArgs) -> anyhow::Result<Exit> {
    limits::prepare_daemon();
    let instance = Instance::at(args.daemon.directory);
    let _sole = Sole::claim(&instance, "controller")?;
    tutti_controller::main(ControllerOptions { instance, is_successor: args.successor })?;
    Ok(Exit::OK)
}

pub(crate) fn agent(args: AgentArgs) -> anyhow::Result<Exit> {
    limits::prepare_daemon();
    let instance = Instance::at(args.daemon.directory);
    let _sole = Sole::claim(&instance, "agent")?;
    let place = Place::of(&instance);
    let membership = place.membership()?;
    let member = membership.as_ref().map(|membership| membership.name.clone());
    tutti_agent::main(AgentOptions {
        controller: instance.controller_socket(),
        keeper: instance.keeper_socket(),
        gate: instance.gate_socket(),
        vacate: instance.vacate_socket(),
        supervisor: instance.supervisor_socket(),
        cgroup_name: instance.cgroup_name(),
        node: args.node.or(member).unwrap_or_else(tutti_node::instance::host_name),
        private: instance.private,
        membership,
        place,
        program: own_path().ok(),
        released: instance.released(),
        images: SharedImages::read(&instance.shared_images_file()).map(|shared| shared.place),
    })?;
    Ok(Exit::OK)
}

pub(crate) fn keeper(args: KeeperArgs) -> anyhow::Result<Exit> {
    if let Some(form) = args.can_take_over {
        tutti_keeper::check(form)?;
        if let Some(form) = args.reads_journal {
            reads_journal(form)?;
        }
        print(&format!("protocol {PROTOCOL_VERSION}\n"))?;
        return Ok(Exit::OK);
    }
    limits::prepare_daemon();
    let instance = Instance::at(args.daemon.directory);
    let cgroup_root = Hierarchy::find(&instance.cgroup_name()).ok().map(|h| h.path().to_owned());
    let options = KeeperOptions {
        socket: instance.keeper_socket(),
        instance_uid: nix::unistd::geteuid().as_raw(),
        spool: instance.spool(),
        images: instance.images(),
        shared_images: SharedImages::read(&instance.shared_images_file()),
        scratch: instance.scratch(),
        cgroup_root,
        released: instance.released_file(),
    };
    match args.take_over {
        Some(state) => tutti_keeper::successor(options, state)?,
        None => tutti_keeper::main(options)?,
    }
    Ok(Exit::OK)
}

/// Whether a controller of this release goes on with a journal of this form.
fn reads_journal(form: u32) -> anyhow::Result<()> {
    let (release, latest) = (env!("CARGO_PKG_VERSION"), tutti_journal::SCHEMA_VERSION);
    anyhow::ensure!(
        tutti_journal::reads(form),
        "the journal has form {form}; tutti {release} reads forms up to {latest}"
    );
    Ok(())
}

#[derive(Args, Debug)]
pub(crate) struct NotifierArgs {
    /// The state directory of the instance
    #[arg(long, required_unless_present = "deliver")]
    directory: Option<PathBuf>,

    /// Deliver the notification that standard input has, as its user
    #[arg(long, conflicts_with = "directory")]
    deliver: bool,
}

/// The process that delivers notifications.
pub(crate) fn notifier(args: &NotifierArgs) -> anyhow::Result<Exit> {
    let Some(directory) = args.directory.as_ref().filter(|_| !args.deliver) else {
        return tutti_notifier::deliver();
    };
    let instance = Instance::at(directory.clone());
    let _sole = Sole::claim(&instance, "notifier")?;
    tutti_notifier::main(&instance)?;
    Ok(Exit::OK)
}

/// The process that a keeper starts for a job whose tasks share files.
pub(crate) fn writer() -> anyhow::Result<Exit> {
    tutti_client::write()
}

/// Arguments of the process that saves the processes of a task.
#[derive(Args, Debug)]
pub(crate) struct SaverArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<std::ffi::OsString>,
}

/// The process that a keeper starts for a task whose processes can be saved to an image.
pub(crate) fn saver(args: &SaverArgs) -> anyhow::Result<Exit> {
    tutti_keeper::save(&args.words)?;
    Ok(Exit::OK)
}

/// The process that a keeper starts for tasks that a task spawns.
pub(crate) fn spawner() -> anyhow::Result<Exit> {
    tutti_client::spawn()
}

/// Arguments of the process that serves PMIx.
#[derive(Args, Debug)]
pub(crate) struct PmixArgs {
    /// Print the version of this library, and end
    #[arg(long, value_name = "LIBRARY")]
    version_of: Option<PathBuf>,
}

/// The process that a keeper starts for a job of Open MPI.
pub(crate) fn pmix_server(args: &PmixArgs) -> anyhow::Result<Exit> {
    use std::os::unix::ffi::OsStrExt;
    match &args.version_of {
        Some(library) => {
            let version = tutti_pmix::version_of(library.as_os_str().as_bytes())?;
            print(&format!("{version}\n"))?;
        }
        None => tutti_pmix::serve()?,
    }
    Ok(Exit::OK)
}

/// What systemd calls when the service of an instance has stopped.
pub(crate) fn make_startable() -> anyhow::Result<Exit> {
    tutti_node::service::make_startable()?;
    Ok(Exit::OK)
}
