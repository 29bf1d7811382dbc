//! `tutti run`.

use crate::exit::{self, Exit};
use crate::front::{
    self, JobOptions, OutputOptions, RunOptions, job_request, parse_input, pattern_parser,
};
use clap::Args;
use std::ffi::OsString;
use tutti_wire::launch::{InputTo, Stdio};

#[derive(Args, Debug)]
#[command(after_help = exit::TABLE)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobOptions,

    /// Begin each line of output with its rank
    #[arg(short = 'l', long)]
    label: bool,

    /// Pass output on as it comes, even if lines of ranks get mixed
    #[arg(long, conflicts_with = "label")]
    raw: bool,

    /// Write output to a file: %j job, %r rank, %x name; errors go with it unless --error says where
    #[arg(short = 'o', long, value_name = "PATTERN", value_parser = pattern_parser())]
    output: Option<OsString>,

    /// Write standard error to a file
    #[arg(short = 'e', long, value_name = "PATTERN", value_parser = pattern_parser())]
    error: Option<OsString>,

    /// Who gets standard input: none, a rank, all, or tagged (each line begins with RANK:)
    #[arg(short = 'i', long, value_name = "WHO", default_value = "0", value_parser = parse_input)]
    input: InputTo,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn execute(args: RunArgs) -> anyhow::Result<Exit> {
    let stdio = Stdio::FrontEnd { input: args.input };
    let request = job_request(&args.job, "interactive", &args.command, None, stdio)?;
    let output =
        OutputOptions { label: args.label, raw: args.raw, output: args.output, error: args.error };
    front::run(request, RunOptions { output, input: args.input })
}
