//! `tutti`: one executable for all roles. This file parses the command line and chooses the role;
//! what a role does is in its own module.
#![forbid(unsafe_code)]
// They panic if nobody reads: `output::print` and `say!` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod say;

mod agent;
mod calendar;
mod cmd;
mod codes;
mod controller;
mod executable;
mod exit;
mod front;
mod instance;
mod keeper;
mod link;
mod membership;
mod output;
mod outside;
mod parameter;
mod sender;
mod service;
mod sole;
mod supervise;
mod trusted;
#[cfg(test)]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let verb = match cmd::parse() {
        Ok(verb) => verb,
        Err(exit) => return ExitCode::from(exit.code()),
    };
    let fails_with = verb.fails_with();
    match cmd::execute(verb) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            if broken_pipe(&error) {
                return ExitCode::from(exit::Exit::READER_GONE.code());
            }
            say!("tutti: {}", codes::code_of(&error).mark(&format!("{error:#}")));
            ExitCode::from(fails_with.code())
        }
    }
}

/// Whether nobody reads what the verb prints. A connection that broke is another matter.
fn broken_pipe(error: &anyhow::Error) -> bool {
    let of_output = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    !error.chain().any(|cause| cause.is::<link::LinkError>()) && error.chain().any(of_output)
}
