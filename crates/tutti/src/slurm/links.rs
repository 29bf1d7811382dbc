//! The directory of the face's names, and what a script would be read as.

use super::cluster::Cluster;
use super::options::Line;
use super::sbatch::{Reading, check_text};
use crate::cmd::batch::text_of;
use anyhow::Context;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tutti_client::output::print;
use tutti_client::slurm::NAMES;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::script::option_lines;

/// Makes the names in a directory, as links to this executable; the names that were made or stood
/// there so.
///
/// # Errors
/// If the directory can't be made or written, or has a file of such a name that is no link to a
/// `tutti`.
pub(crate) fn link(directory: &Path, names: &[&'static str]) -> anyhow::Result<Vec<&'static str>> {
    let failed = |what: String| coded(Code::BadFile, what);
    let program = std::env::current_exe().context("cannot find this executable")?;
    fs::create_dir_all(directory)
        .map_err(|error| failed(format!("cannot make {}: {error}", directory.display())))?;
    for name in names {
        let path = directory.join(name);
        match fs::read_link(&path) {
            Ok(target) if target == program => continue,
            Ok(target) if !target.ends_with("tutti") => {
                let reason = format!(
                    "{} is a link to {}; remove it, or choose another directory",
                    path.display(),
                    target.display()
                );
                return Err(failed(reason));
            }
            Ok(_) => {}
            Err(_) if path.symlink_metadata().is_ok() => {
                let reason = format!(
                    "{} is a file that is not of Tutti's; choose another directory",
                    path.display()
                );
                return Err(failed(reason));
            }
            Err(_) => {}
        }
        // In one step: another process may be starting the name just now.
        let made = directory.join(format!(".{name}.{}", std::process::id()));
        symlink(&program, &made)
            .and_then(|()| fs::rename(&made, &path))
            .map_err(|error| failed(format!("cannot make {}: {error}", path.display())))?;
    }
    Ok(names.to_vec())
}

/// Makes the names for a job that finds them in its `PATH`, if they are not there. What hinders
/// that is said; the job runs without them.
pub(crate) fn ensure() {
    let Some(directory) = tutti_client::slurm::directory() else {
        return say!("tutti: there is no directory for Slurm's commands, since HOME is not set");
    };
    if NAMES.iter().all(|name| directory.join(name).exists()) {
        return;
    }
    if let Err(error) = link(&directory, &NAMES) {
        say!("tutti: the job does not find Slurm's commands: {error}");
    }
}

/// Prints which option lines of a script would have no effect or are wrong.
pub(crate) fn check(script: &Path) -> anyhow::Result<Exit> {
    let shown = script.display().to_string();
    let text = text_of(&script.as_os_str().to_owned())?;
    let failed = |why: String| coded(Code::BadScript, format!("{shown}: {why}"));
    check_text(&text).map_err(|error| failed(error.to_string()))?;
    let lines = option_lines(&text).map_err(|error| failed(error.to_string()))?;
    let read = Reading::of(&lines, &Line::default(), Cluster::now);
    let mut text = String::new();
    for note in read.asked.notes.iter().chain(&read.quiet_notes()) {
        text.push_str(&format!("{shown}: {note}\n"));
    }
    for problem in &read.problems {
        text.push_str(&format!("{shown}: error: {problem}\n"));
    }
    if text.is_empty() {
        text = format!("{shown}: all option lines have an effect\n");
    }
    print(&text)?;
    Ok(if read.problems.is_empty() { Exit::OK } else { Exit::FAILED })
}
