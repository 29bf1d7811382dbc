//! `tutti`: one executable for all roles. This file parses the command line and chooses the role;
//! what a role does is in its own module.
#![deny(unsafe_code)]
#![cfg_attr(not(test), no_main)]
// They panic without a reader: `output::print` and `say!` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

mod cmd;
mod slurm;
mod supervise;

/// Where the C library begins. The standard library's own beginning would read through a file of
/// the kernel's for the bounds of the stack, which takes a tenth of the time in which a front end
/// is ready: only to name the thread whose stack ran over.
#[cfg(not(test))]
#[allow(unsafe_code, reason = "no other function has this name")]
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    tutti_linux::stdio::begin();
    let exit = std::panic::catch_unwind(run).map_or(EXIT_PANICKED, std::ffi::c_int::from);
    // What has no end of a line yet.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    exit
}

/// As programs in Rust do.
#[cfg(not(test))]
const EXIT_PANICKED: std::ffi::c_int = 101;

#[cfg_attr(test, allow(dead_code, reason = "tests have a beginning of their own"))]
fn run() -> u8 {
    if let Some((name, command, words)) = slurm::called() {
        return slurm::execute(name, command, &words);
    }
    let verb = match cmd::parse() {
        Ok(verb) => verb,
        Err(exit) => return exit.code(),
    };
    let fails_with = verb.fails_with();
    match cmd::execute(verb) {
        Ok(exit) => exit.code(),
        Err(error) => {
            if broken_pipe(&error) {
                return tutti_node::exit::Exit::READER_GONE.code();
            }
            let text = tutti_node::codes::code_of(&error).mark(&format!("{error:#}"));
            tutti_node::say::failure(format_args!("tutti: {text}"));
            fails_with.code()
        }
    }
}

/// Whether the verb's output has no reader. A connection that broke is another matter.
fn broken_pipe(error: &anyhow::Error) -> bool {
    let of_output = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    !error.chain().any(|cause| cause.is::<tutti_node::link::LinkError>())
        && error.chain().any(of_output)
}
