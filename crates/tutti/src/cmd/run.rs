//! `tutti run`.

use clap::Args;
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use tutti_client::{
    self, FILE_LETTERS, Inside, JobOptions, Label, OutputOptions, RunOptions, SCHEDULING, STDIO,
    TellEnds, job_request, parse_input, pattern_parser,
};
use tutti_node::codes::coded;
use tutti_node::exit::{self, Exit};
use tutti_types::FirstStep;
use tutti_wire::code::Code;
use tutti_wire::launch::{InputTo, Stdio};
use tutti_wire::local::JobRequest;
use tutti_wire::script::{self, LineProblem};

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobOptions,

    /// Show ranks: line (each line begins with its rank, the default), block (a line with the rank,
    /// then its lines) or json (an object for each line)
    #[arg(short = 'l', long, value_name = "HOW", value_parser = Label::parse, num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "line", help_heading = STDIO)]
    label: Option<Label>,

    /// Pass output on at once, even if lines of several ranks get mixed
    #[arg(long, conflicts_with = "label", help_heading = STDIO)]
    raw: bool,

    /// File for standard output, and for standard error without --error; patterns are below
    #[arg(short = 'o', long, value_name = "PATTERN", value_parser = pattern_parser())]
    #[arg(help_heading = STDIO)]
    output: Option<OsString>,

    /// File for standard error
    #[arg(short = 'e', long, value_name = "PATTERN", value_parser = pattern_parser())]
    #[arg(help_heading = STDIO)]
    error: Option<OsString>,

    /// Tasks that get standard input: none, a rank, all (at the pace of the slowest reader), or
    /// tagged (each line begins with RANK:)
    #[arg(short = 'i', long, value_name = "TASKS", default_value = "0", value_parser = parse_input)]
    #[arg(help_heading = STDIO)]
    input: InputTo,

    /// Give rank 0 a terminal of its own, for shells and editors; `~.` at the beginning of a line
    /// ends the job
    #[arg(long, conflicts_with_all = ["label", "output", "error"], help_heading = STDIO)]
    pty: bool,

    /// A pane for each rank, on a terminal: all read what you type, the focused one gets it; ^T ?
    /// lists keys
    #[arg(long, conflicts_with_all = ["label", "raw", "output", "error", "pty", "when"])]
    #[arg(help_heading = STDIO)]
    panes: bool,

    /// Print what the job used, in a line on standard error at its end
    #[arg(long, help_heading = STDIO)]
    summary: bool,

    /// Print when such a job would start and end, and run nothing
    #[arg(long, help_heading = SCHEDULING)]
    when: bool,

    /// With --when: as JSON
    #[arg(long, requires = "when", help_heading = SCHEDULING)]
    json: bool,

    /// Inside a job: share processors with other steps instead of waiting for free ones
    #[arg(long, help_heading = SCHEDULING)]
    overlap: bool,

    /// Inside a job: start a job of its own, not a step
    #[arg(long, conflicts_with = "overlap", help_heading = SCHEDULING)]
    outside: bool,

    /// Inside a job: a step of it, also if it has ended, which is an error then
    #[arg(long, hide = true, conflicts_with = "outside")]
    only_step: bool,

    /// With --only-step: a task of Tutti's own that serves the others, and runs out of turns, too
    #[arg(long, hide = true, requires = "only_step")]
    serves: bool,

    /// One task, which waits in slots that steps use
    #[arg(long, hide = true, conflicts_with = "overlap")]
    hold_slots: bool,

    /// The socket at standard input gets a line for each task that ends; no task gets input
    #[arg(long, hide = true, conflicts_with_all = ["input", "pty", "panes"])]
    tell_ends: bool,

    /// For `tutti spawn`: which step it is goes to the socket at standard input
    #[arg(long, hide = true, conflicts_with_all = ["input", "pty", "panes", "tell_ends"])]
    spawned: bool,

    /// What is said of tasks that fail is in the words of srun
    #[arg(long, hide = true)]
    slurm_ends: bool,

    /// For `salloc`: what is wrong is said in its words
    #[arg(long, hide = true, conflicts_with_all = ["tell_ends", "slurm_ends"])]
    for_salloc: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tutti run make -j4                        one task, shown as it runs
  tutti run -n 4 ./solver in.dat            four tasks, MPICH programs too
  tutti run -n 8 -N 2 -l ./solver           eight tasks on two nodes, labelled
  tutti run -n 4 --label=block ./solver     lines of a rank below its number
  tutti run -c 4 -m 2G -t 1h ./threads      one task, 4 processors, limits
  tutti run --pty bash                      a shell with a terminal
  tutti run --panes -n 4 ./solver           a pane for each task
  tutti run --when -n 8 -t 1h ./solver      when it would start and end
  tutti run --overlap -n 2 ./watch          in a job: a step beside its others";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{FILE_LETTERS}\n\n{}", exit::TABLE)
}

impl RunArgs {
    /// What no option alone can know.
    ///
    /// # Errors
    /// If input is for a rank that the job has not.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        if self.pty && self.input != InputTo::Rank(0) {
            return Err(clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                "--pty: what you type goes to rank 0, which has the terminal; leave --input out",
            ));
        }
        let Ok(tasks) = self.job.tasks() else { return Ok(()) };
        match self.input {
            InputTo::Rank(rank) if rank >= tasks => Err(clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                match tasks {
                    1 => format!("--input {rank}: a job of one task has rank 0 only"),
                    n => format!("--input {rank}: {n} tasks have the ranks 0 to {}", n - 1),
                },
            )),
            _ => Ok(()),
        }
    }
}

/// The program's name if it is a script, named by its path, that was written for `submit`.
///
/// # Errors
/// If the kernel can't find the script's interpreter because of the way its first line ends.
fn script_with_options(program: &OsString) -> anyhow::Result<Option<String>> {
    let Some((name, head)) = script_head(program) else { return Ok(None) };
    let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if first.ends_with(b"\r") {
        let reason = format!("{name}: line 1: {}", LineProblem::CarriageReturn);
        return Err(coded(Code::BadScript, reason));
    }
    let has_options = script::parse(&head)
        .is_ok_and(|script| !script.directives.is_empty() || !script.problems.is_empty());
    Ok(has_options.then(|| name.to_owned()))
}

/// The name and the first bytes of a script that is named by its path.
fn script_head(program: &OsString) -> Option<(&str, Vec<u8>)> {
    use std::io::Read;
    // Every launch pays for this look.
    let name = program.to_str().filter(|name| name.contains('/'))?;
    if !std::fs::metadata(name).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut head = [0; 4096];
    let count = std::fs::File::open(name).and_then(|mut file| file.read(&mut head)).ok()?;
    script::is_script(&head).then(|| (name, head[..count].to_vec()))
}

/// The job that is asked for.
///
/// # Errors
/// If its options are none of a job.
pub(crate) fn asked_by(args: &RunArgs) -> anyhow::Result<JobRequest> {
    let stdio = Stdio::FrontEnd { input: InputTo::Nobody };
    job_request(&args.job, "interactive", &args.command, None, stdio)
}

pub(crate) fn execute(args: RunArgs) -> anyhow::Result<Exit> {
    execute_with(args, |environment| environment)
}

/// As [`execute`]; the job gets what is made of this environment, a variable each (`NAME=value`).
pub(crate) fn execute_with(
    args: RunArgs,
    environment: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
) -> anyhow::Result<Exit> {
    if let Some(script) = script_with_options(&args.command[0])? {
        say!("tutti: run ignores the #TUTTI and #SBATCH lines of {script}; submit does");
    }
    let no_input = args.tell_ends || args.spawned;
    // The ranks that get input are chosen while it runs.
    let input = match args.input {
        InputTo::Rank(_) | InputTo::All if args.panes => InputTo::Tagged,
        _ if no_input => InputTo::Nobody,
        input => input,
    };
    let stdio = Stdio::FrontEnd { input };
    let mut request = job_request(&args.job, "interactive", &args.command, None, stdio)?;
    let all = std::mem::take(&mut request.launch.environment);
    let all = environment(all.into_iter().map(ByteBuf::into_vec).collect());
    request.launch.environment = all.into_iter().map(ByteBuf::from).collect();
    if args.hold_slots {
        request.first = FirstStep::Once;
    }
    if args.when {
        return super::when::of_job(request, args.json);
    }
    if args.job.slurm {
        crate::slurm::ensure();
    }
    let output = OutputOptions {
        label: args.label.unwrap_or_default(),
        raw: args.raw,
        output: args.output,
        error: args.error,
        terminal: args.pty,
    };
    let inside = Inside {
        outside: args.outside,
        overlap: args.overlap || args.serves,
        only_step: args.only_step,
        spawned: args.spawned,
        serves: args.serves,
    };
    tutti_client::run(
        request,
        RunOptions {
            output,
            input: if no_input { input } else { args.input },
            summary: args.summary,
            inside,
            terminal: args.pty,
            panes: args.panes,
            tells_ends: match (args.tell_ends, args.slurm_ends, args.for_salloc) {
                (true, ..) => TellEnds::Socket,
                (_, true, _) => TellEnds::AsSlurm,
                (.., true) => TellEnds::AsSalloc,
                (false, false, false) => TellEnds::No,
            },
        },
    )
}
