//! The command line: one file a verb, and the table of them here.

mod access;
mod adopt;
mod after;
pub(crate) mod alloc;
mod at;
mod attach;
mod bank;
pub(crate) mod batch;
mod bench;
mod checkpoint;
mod cluster;
mod completion;
mod daemons;
mod demo;
mod doctor;
mod events;
pub(crate) mod exec;
mod explain;
mod help;
mod history;
pub(crate) mod job_range;
mod jobs;
mod join_ssh;
mod leftover_ipc;
mod leftovers;
mod list;
mod logs;
mod man;
mod metrics;
mod nodes;
mod orders;
mod params;
mod pvm;
mod queue;
mod quick;
mod reference;
mod replace_file;
mod report;
mod resource;
pub(crate) mod run;
mod show;
mod slurm;
mod spawn;
mod steps;
pub(crate) mod submit;
mod switches;
mod timeline;
mod top;
mod tree;
mod up;
mod upgrade;
pub(crate) mod usage;
mod web;
mod weight;
mod when;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tutti_client::output::colours::{self, ColorChoice};
use tutti_node::codes::{code_of, coded};
use tutti_node::exit::Exit;
use tutti_node::instance::said_cluster;
use tutti_wire::code::Code;

/// A gang scheduler: parallel jobs share machines in space and in time.
#[derive(Parser, Debug)]
#[command(name = "tutti", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    colours: ColourArgs,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What each verb takes; the help of all verbs together explains it.
#[derive(clap::Args, Clone, Copy, Debug)]
struct ColourArgs {
    /// When tables and messages have colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, global = true, hide = true)]
    color: ColorChoice,
}

/// The verbs. [`help::GROUPS`] is the order in which `tutti --help` lists them.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Run a parallel job, and show its output
    Run(run::RunArgs),
    /// Submit a job, a command or a script, to run in the background
    Submit(submit::SubmitArgs),
    /// Submit a batch script: it runs once, with processors for many tasks
    Batch(batch::BatchArgs),
    /// Hold processors for a command or shell that runs here
    Alloc(alloc::AllocArgs),
    /// Run a program of PVM in a virtual machine of its own, as a job
    Pvm(pvm::PvmArgs),
    /// Start further tasks of a job, from one of its programs
    Spawn(spawn::SpawnArgs),
    /// Run a command in a running job, beside one of its tasks
    Exec(exec::ExecArgs),
    /// Make running processes a job, with their descendants
    Adopt(adopt::AdoptArgs),
    /// Wait for jobs to end, and exit with the highest of their exit codes
    Wait(jobs::WaitArgs),
    /// List jobs
    Ps(list::PsArgs),
    /// Show a job: command, nodes, limits, files, states
    Show(show::ShowArgs),
    /// Print the output of a submitted job, and follow it
    Logs(logs::LogsArgs),
    /// See the output of a running job, and give it input
    Attach(attach::AttachArgs),
    /// Print what happens to jobs and nodes, as lines of JSON
    Events(events::EventsArgs),
    /// Write what ran when and where, as a trace for Perfetto or a picture
    Timeline(timeline::TimelineArgs),
    /// Watch the matrix, jobs and processes
    Top(top::TopArgs),
    /// Serve a page with the matrix, jobs and nodes, and an HTTP interface
    Web(web::WebArgs),
    /// List jobs that have ended, and what they used
    History(history::HistoryArgs),
    /// Add up what users, groups, classes or queues got
    Report(report::ReportArgs),
    /// Replay the journal, and check that the scheduler decides as it did
    Replay(tutti_experiments::ReplayArgs),
    /// List nodes; drain, resume, remove and name them
    Nodes(nodes::NodesArgs),
    /// End jobs: SIGTERM, then SIGKILL after their grace
    Cancel(jobs::CancelArgs),
    /// Send a signal to a job, a task or a process
    Signal(jobs::SignalArgs),
    /// Suspend jobs, tasks or processes: they get no turns until resumed
    #[command(after_help = jobs::SUSPEND_EXAMPLES)]
    Suspend(jobs::TargetArgs),
    /// Resume suspended jobs, tasks or processes
    #[command(after_help = jobs::RESUME_EXAMPLES)]
    Resume(jobs::TargetArgs),
    /// Keep waiting jobs out of the line until they are released
    #[command(after_help = orders::HOLD_EXAMPLES)]
    Hold(orders::JobsArgs),
    /// Put held jobs in line, each at its place by arrival
    #[command(after_help = orders::RELEASE_EXAMPLES)]
    Release(orders::JobsArgs),
    /// End the run of jobs, and have them wait in line again
    Requeue(orders::RequeueArgs),
    /// Have jobs save their state and wait in line, to resume later
    Checkpoint(checkpoint::CheckpointArgs),
    /// Give jobs another class, whether they wait or run
    Class(orders::ClassArgs),
    /// Give jobs another time limit, whether they wait or run
    Limit(orders::LimitArgs),
    /// Move a waiting job in line, as an administrator
    Move(orders::MoveArgs),
    /// Show and change parameters and classes, while jobs run
    Params(params::ParamsArgs),
    /// Show and change queues, which have limits and defaults of jobs
    Queue(queue::QueueArgs),
    /// Show and set how much processor time users and groups may use
    Bank(bank::BankArgs),
    /// Show and set how much more some users may use than others
    Weight(weight::WeightArgs),
    /// Have parameters, nodes and held jobs change at some hour or day
    At(at::AtArgs),
    /// Show and set counted resources, such as licences
    Resource(resource::ResourceArgs),
    /// Show and set which users may submit jobs, and from which machines
    Access(access::AccessArgs),
    /// Print figures for monitoring, as OpenMetrics text
    Metrics(metrics::MetricsArgs),
    /// Show how exact the latest switches were
    Switches(switches::SwitchesArgs),
    /// Start an instance: the system's as root, a private one otherwise
    Up(up::UpArgs),
    /// End all jobs and the instance
    Down(up::DownArgs),
    /// Upgrade the instance to another executable while jobs run
    Upgrade(upgrade::UpgradeArgs),
    /// Print the command by which another machine joins the cluster
    Invite(cluster::InviteArgs),
    /// Make this machine a node of a cluster
    Join(cluster::JoinArgs),
    /// Take this machine out of its cluster
    Leave(cluster::LeaveArgs),
    /// Check this machine, and show how to fix what does not work
    Doctor(doctor::DoctorArgs),
    /// See two jobs take turns; leaves nothing behind
    Demo(demo::DemoArgs),
    /// Explain a code of a message, such as T021, and what to do
    Explain(explain::ExplainArgs),
    /// Simulate a workload under a policy
    Sim(Box<tutti_experiments::SimArgs>),
    /// Measure this machine
    Bench(bench::BenchArgs),
    /// Use the names of Slurm's commands, and check scripts for it
    Slurm(slurm::SlurmArgs),
    /// Print the script by which a shell completes verbs and options
    Completion(completion::CompletionArgs),
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
    #[command(hide = true)]
    Work(tutti_client::work::WorkArgs),
    #[command(hide = true)]
    Controller(daemons::ControllerArgs),
    #[command(hide = true)]
    Agent(daemons::AgentArgs),
    #[command(hide = true)]
    Keeper(daemons::KeeperArgs),
    #[command(hide = true)]
    Notifier(daemons::NotifierArgs),
    #[command(hide = true)]
    Measure,
    #[command(hide = true)]
    Writer,
    #[command(hide = true)]
    Saver(daemons::SaverArgs),
    #[command(hide = true)]
    Spawner,
    #[command(hide = true)]
    PmixServer(daemons::PmixArgs),
    #[command(hide = true)]
    PvmManager(pvm::ManagerArgs),
    #[command(hide = true)]
    PvmDaemon(pvm::DaemonArgs),
    #[command(hide = true)]
    PvmNode(pvm::NodeArgs),
    #[command(hide = true)]
    Supervise(upgrade::SuperviseArgs),
    #[command(hide = true)]
    MakeStartable,
}

impl Verb {
    /// The exit code for an error of Tutti's own: `run` must not be mistaken for its job.
    pub(crate) const fn fails_with(&self) -> Exit {
        match self {
            Self::Run(_) | Self::Alloc(_) | Self::Exec(_) | Self::Wait(_) | Self::Attach(_) => {
                Exit::TUTTI_FAILED
            }
            Self::Pvm(_) | Self::PvmManager(_) | Self::Spawn(_) => Exit::TUTTI_FAILED,
            Self::Logs(args) if args.follows() => Exit::TUTTI_FAILED,
            _ => Exit::FAILED,
        }
    }
}

/// Parses the command line.
///
/// # Errors
/// The exit code, once what there is to say was printed: help, version, or what is wrong.
pub(crate) fn parse() -> Result<Verb, Exit> {
    colours::choose(ColorChoice::Auto);
    try_parse().map_err(|error| say_usage(&error))
}

/// Says help, the version, or what is wrong with a command line; the exit code for that.
fn say_usage(error: &clap::Error) -> Exit {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    if error.kind() == ErrorKind::DisplayVersion {
        // Every verb has the program's version; clap would print the verb's name before it.
        let _ = tutti_client::output::print(concat!("tutti ", env!("CARGO_PKG_VERSION"), "\n"));
    } else if code == 0 || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A broken pipe of `tutti --help | head` is no error.
        let _ = error.print();
    } else {
        let words: Vec<_> = std::env::args_os().collect();
        let text = Code::CannotUnderstand.mark(&usage::explain(error, &words));
        tutti_node::say::failure(format_args!("{text}"));
    }
    Exit::usage(code)
}

fn try_parse() -> Result<Verb, clap::Error> {
    let verb = quick::parse().map_or_else(parse_by_whole_table, Ok)?;
    if let Verb::Run(args) = &verb {
        args.check()?;
    }
    Ok(verb)
}

fn parse_by_whole_table() -> Result<Verb, clap::Error> {
    use clap::{CommandFactory, FromArgMatches};
    let mut command = help::grouped(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    colours::choose(cli.colours.color);
    Ok(cli.verb)
}

/// Does what the verb says.
///
/// # Errors
/// What failed, and what to do about it.
#[expect(clippy::too_many_lines, reason = "one arm for each verb")]
pub(crate) fn execute(verb: Verb) -> anyhow::Result<Exit> {
    said_cluster()?;
    match verb {
        Verb::Run(args) => run::execute(args),
        Verb::Submit(args) => submit::execute(args),
        Verb::Batch(args) => batch::execute(args),
        Verb::Alloc(args) => alloc::execute(args),
        Verb::Pvm(args) => pvm::execute(args),
        Verb::Spawn(args) => spawn::execute(&args),
        Verb::Exec(args) => exec::execute(args),
        Verb::Adopt(args) => adopt::execute(&args),
        Verb::Wait(args) => jobs::wait(&args),
        Verb::Ps(args) => list::ps(&args),
        Verb::Show(args) => show::execute(&args),
        Verb::Logs(args) => logs::execute(&args),
        Verb::Attach(args) => attach::execute(args),
        Verb::Events(args) => events::execute(&args),
        Verb::Timeline(args) => timeline::execute(&args),
        Verb::Metrics(args) => metrics::execute(&args),
        Verb::Top(args) => top::execute(&args),
        Verb::Web(args) => web::execute(&args),
        Verb::History(args) => history::execute(&args),
        Verb::Report(args) => report::execute(&args),
        Verb::Replay(args) => tutti_experiments::execute_replay(&args),
        Verb::Nodes(args) => nodes::execute(args),
        Verb::Cancel(args) => jobs::cancel(&args),
        Verb::Signal(args) => jobs::signal(&args),
        Verb::Suspend(args) => jobs::suspend(&args),
        Verb::Resume(args) => jobs::resume(&args),
        Verb::Hold(args) => orders::hold(&args),
        Verb::Release(args) => orders::release(&args),
        Verb::Requeue(args) => orders::requeue(&args),
        Verb::Checkpoint(args) => checkpoint::execute(&args),
        Verb::Class(args) => orders::class(&args),
        Verb::Limit(args) => orders::limit(&args),
        Verb::Move(args) => orders::move_job(&args),
        Verb::Params(args) => params::execute(args),
        Verb::Queue(args) => queue::execute(&args),
        Verb::Bank(args) => bank::execute(&args),
        Verb::Weight(args) => weight::execute(&args),
        Verb::At(args) => at::execute(&args),
        Verb::Resource(args) => resource::execute(&args),
        Verb::Access(args) => access::execute(&args),
        Verb::Switches(args) => switches::execute(&args),
        Verb::Up(args) => up::up(&args),
        Verb::Down(args) => up::down(&args),
        Verb::Upgrade(args) => upgrade::execute(&args),
        Verb::Invite(args) => cluster::invite(&args),
        Verb::Join(args) => cluster::join(&args),
        Verb::Leave(args) => cluster::leave(&args),
        Verb::Doctor(args) => doctor::execute(&args),
        Verb::Demo(args) => demo::execute(&args),
        Verb::Explain(args) => explain::execute(&args),
        Verb::Sim(args) => tutti_experiments::execute_sim(*args),
        Verb::Bench(args) => bench::execute(args),
        Verb::Slurm(args) => slurm::execute(&args),
        Verb::Completion(args) => completion::execute(&args),
        Verb::Reference(args) => reference::execute(&args),
        Verb::Work(args) => tutti_client::work::execute(&args),
        Verb::Controller(args) => daemons::controller(args),
        Verb::Agent(args) => daemons::agent(args),
        Verb::Keeper(args) => daemons::keeper(args),
        Verb::Measure => bench::measure_alone(),
        Verb::Notifier(args) => daemons::notifier(&args),
        Verb::Writer => daemons::writer(),
        Verb::Saver(args) => daemons::saver(&args),
        Verb::Spawner => daemons::spawner(),
        Verb::PmixServer(args) => daemons::pmix_server(&args),
        Verb::PvmManager(args) => pvm::manage(&args),
        Verb::PvmDaemon(args) => pvm::daemon(&args),
        Verb::PvmNode(args) => pvm::serve_node(&args),
        Verb::Supervise(args) => upgrade::supervise(args),
        Verb::MakeStartable => daemons::make_startable(),
    }
}

/// All jobs, page by page; with those that ended, also from the journal of an instance that is gone.
fn all_jobs(
    ended: bool,
    request: impl Fn(tutti_types::JobId) -> tutti_wire::local::Request,
) -> anyhow::Result<Vec<tutti_wire::report::JobReport>> {
    tutti_client::ask::pages_of_jobs(page_of_jobs(ended, request))
}

/// As [`all_jobs`]; only one page is kept at a time.
fn each_page_of_jobs(
    ended: bool,
    request: impl Fn(tutti_types::JobId) -> tutti_wire::local::Request,
    visit: impl FnMut(Vec<tutti_wire::report::JobReport>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    tutti_client::ask::each_page_of_jobs(page_of_jobs(ended, request), visit)
}

/// What answers for the page that begins with a job.
fn page_of_jobs(
    ended: bool,
    request: impl Fn(tutti_types::JobId) -> tutti_wire::local::Request,
) -> impl Fn(tutti_types::JobId) -> anyhow::Result<tutti_wire::local::Reply> {
    move |from| match ended {
        true => ask_of_the_past(&request(from)),
        false => tutti_client::ask::ask(&request(from)),
    }
}

/// As [`tutti_client::ask::ask`]; where no instance runs, the journal of the one before answers.
pub(crate) fn ask_of_the_past(
    request: &tutti_wire::local::Request,
) -> anyhow::Result<tutti_wire::local::Reply> {
    tutti_client::ask::ask(request).or_else(|error| ask_journal(request, error))
}

/// What the journal says, after an error of asking a controller; that error, unless it was that no instance runs.
pub(crate) fn ask_journal(
    request: &tutti_wire::local::Request,
    error: anyhow::Error,
) -> anyhow::Result<tutti_wire::local::Reply> {
    use tutti_node::instance::Instance;
    use tutti_node::presence::is_alive;
    use tutti_wire::local::Reply;
    let is_away = matches!(code_of(&error), Code::NoInstance | Code::ControllerAway);
    let places = Instance::of_this_user();
    if !is_away || places.iter().any(is_alive) {
        return Err(error);
    }
    for place in places {
        match tutti_controller::answer_offline(&place, request)? {
            Some(Reply::Failed { reason, code }) => return Err(coded(code, reason)),
            Some(reply) => return Ok(reply),
            None => {}
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
