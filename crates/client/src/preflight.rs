//! Whether a background job can start, and where its output will be.
//!
//! What its tasks find when they start decides. But a slip that can be seen when the job is handed
//! in is better told then and there, to the user, with the user's rights.

use anyhow::Context;
use nix::unistd::{AccessFlags, eaccess};
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tutti_linux::spawn::program_candidates;
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_types::{JobId, Rank};
use tutti_wire::code::Code;
use tutti_wire::launch::{LaunchSpec, Stdio};
use tutti_wire::pattern::{PatternValues, expand, names_rank};
use tutti_wire::script::interpreter;

/// Checks what a launch names: its directory, its program, its files. On a client machine, nothing:
/// those of the nodes count.
///
/// # Errors
/// Names the first that is missing or may not be used.
pub fn check_launch(launch: &LaunchSpec) -> anyhow::Result<()> {
    if Instance::locate().is_client() {
        return Ok(());
    }
    let directory = path_of(&launch.directory);
    let shown = directory.display();
    check_access(directory, AccessFlags::X_OK, || format!("cannot start in '{shown}'"))?;
    match &launch.script {
        Some(text) => check_interpreter(&shown_program(launch), text, directory)?,
        None => {
            let file = check_program(launch, directory)?;
            check_interpreter(&file.to_string_lossy(), &first_bytes(&file), directory)?;
        }
    }
    let Stdio::Files { input, output, error, .. } = &launch.stdio else { return Ok(()) };
    if let Some(input) = input.as_ref().filter(|pattern| is_fixed(path_of(pattern))) {
        let path = directory.join(path_of(input));
        let shown = path.display();
        check_access(&path, AccessFlags::R_OK, || format!("cannot read the input file '{shown}'"))?;
    }
    for pattern in std::iter::once(output).chain(error) {
        check_output(directory, path_of(pattern))?;
    }
    Ok(())
}

fn shown_program(launch: &LaunchSpec) -> Cow<'_, str> {
    launch.argv.first().map_or("".into(), |name| String::from_utf8_lossy(name))
}

/// The files that a program's name may mean, in the order in which the kernel is asked for them.
fn files_of(name: &CStr, directory: &Path) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH");
    let candidates = program_candidates(name, path.as_ref().map(|path| path.as_bytes()));
    let files = candidates.iter().map(|file| directory.join(path_of(file.to_bytes())));
    files.filter(|file| file.is_file()).collect()
}

fn may_execute(file: &PathBuf) -> bool {
    eaccess(file, AccessFlags::X_OK).is_ok()
}

/// As much as the kernel reads to find an interpreter; nothing of a file that can't be read.
fn first_bytes(file: &Path) -> Vec<u8> {
    use std::io::Read;
    const FIRST_BYTES: u64 = 256;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(file) {
        let _ = file.take(FIRST_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// Checks that the interpreter of a script is there, and the program that `env` looks for.
fn check_interpreter(script: &str, text: &[u8], directory: &Path) -> anyhow::Result<()> {
    let Some((name, argument)) = interpreter(text) else { return Ok(()) };
    let shown = String::from_utf8_lossy(name);
    let file = directory.join(path_of(name));
    if !file.is_file() {
        let reason = format!("line 1 of {script} names an interpreter that is not here: {shown}");
        return Err(coded(Code::NotExecutable, reason));
    }
    if !may_execute(&file) {
        let reason = format!("line 1 of {script}: the interpreter {shown} may not be executed");
        return Err(coded(Code::NotExecutable, reason));
    }
    let Some(wanted) = wanted_of_env(name, argument) else { return Ok(()) };
    let Ok(program) = CString::new(wanted) else { return Ok(()) };
    if files_of(&program, directory).iter().any(may_execute) {
        return Ok(());
    }
    let wanted = String::from_utf8_lossy(wanted);
    let reason = format!("line 1 of {script}: {shown} finds no program {wanted} in PATH");
    Err(coded(Code::NotExecutable, reason))
}

/// The program that `env` starts, as far as a `#!` line says it plainly.
fn wanted_of_env<'a>(interpreter: &[u8], argument: &'a [u8]) -> Option<&'a [u8]> {
    if interpreter.rsplit(|&byte| byte == b'/').next() != Some(b"env") {
        return None;
    }
    // Without -S all that follows is one word.
    let Some(words) = argument.strip_prefix(b"-S") else {
        return (!argument.is_empty() && !argument.starts_with(b"-")).then_some(argument);
    };
    let mut words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.find(|word| !word.contains(&b'='))?;
    (!first.starts_with(b"-") && !first.iter().any(|byte| b"$'\"\\".contains(byte)))
        .then_some(first)
}

/// The file of a program.
///
/// # Errors
/// If there is none that may be executed.
fn check_program(launch: &LaunchSpec, directory: &Path) -> anyhow::Result<PathBuf> {
    let shown = shown_program(launch);
    let name = launch.argv.first().map_or(&b""[..], |name| name);
    let name = CString::new(name).context("the program's name has a zero byte in it")?;
    let mut found = files_of(&name, directory);
    if let Some(place) = found.iter().position(may_execute) {
        return Ok(found.swap_remove(place));
    }
    let is_path = name.to_bytes().contains(&b'/');
    if let Some(file) = found.first() {
        let file = if is_path { shown } else { file.to_string_lossy() };
        let reason = format!("'{file}' may not be executed; `chmod +x` would allow it");
        return Err(coded(Code::NotExecutable, reason));
    }
    if is_path {
        if directory.join(path_of(name.to_bytes())).is_dir() {
            return Err(coded(Code::NotExecutable, format!("'{shown}' is a directory")));
        }
        return Err(coded(Code::NoProgram, format!("no such program: {shown}")));
    }
    let hint = if directory.join(&*shown).is_file() {
        format!("; the file here is ./{shown}")
    } else if shown.contains(' ') {
        "; each word is one argument: without quotes around all of them, or as `sh -c '...'`".into()
    } else {
        String::new()
    };
    let reason = format!("no such program: {shown} (searched for in PATH{hint})");
    Err(coded(Code::NoProgram, reason))
}

/// Only what holds for every task can be checked: directories and files without letters.
fn check_output(directory: &Path, pattern: &Path) -> anyhow::Result<()> {
    let path = directory.join(pattern);
    let shown = path.display();
    if is_fixed(pattern) && path.exists() {
        if path.is_dir() {
            return Err(coded(Code::BadFile, format!("the output file '{shown}' is a directory")));
        }
        let what = || format!("cannot write the output file '{shown}'");
        return check_access(&path, AccessFlags::W_OK, what);
    }
    let Some(parent) = path.parent().filter(|parent| is_fixed(parent)) else { return Ok(()) };
    if !parent.is_dir() {
        let parent = parent.display();
        let reason = format!("there is no directory '{parent}' for the output file; make it first");
        return Err(coded(Code::BadFile, reason));
    }
    let what = || format!("cannot make the output file '{shown}'");
    check_access(parent, AccessFlags::W_OK | AccessFlags::X_OK, what)
}

fn check_access(path: &Path, how: AccessFlags, what: impl Fn() -> String) -> anyhow::Result<()> {
    eaccess(path, how)
        .map_err(|errno| coded(Code::BadFile, format!("{}: {}", what(), errno.desc())))
}

/// Whether a pattern, or a part of one, is the same for every job and task.
fn is_fixed(pattern: &Path) -> bool {
    !pattern.as_os_str().as_bytes().contains(&b'%')
}

/// The file that the output of a submitted job goes to, as its user would name it from here.
pub fn output_file(launch: &LaunchSpec, job: JobId) -> Option<String> {
    let Stdio::Files { output, .. } = &launch.stdio else { return None };
    let node = nix::unistd::gethostname().unwrap_or_default();
    let user = std::env::var("USER").unwrap_or_else(|_| nix::unistd::getuid().to_string());
    let values = PatternValues {
        job,
        rank: Rank(0),
        name: &launch.name,
        node: &node.to_string_lossy(),
        user: &user,
        step: tutti_types::StepId::FIRST.0,
    };
    let name = expand(output, &values).ok()?;
    let mut path = path_of(&launch.directory).join(path_of(&name));
    if let Ok(below) = std::env::current_dir()
        .and_then(|here| path.strip_prefix(here).map(Path::to_owned).map_err(std::io::Error::other))
    {
        path = below;
    }
    let more = if names_rank(output) { " and so on, a file for each rank" } else { "" };
    Some(format!("{}{more}", path.display()))
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
