//! Which executables could take the place of the one that runs.

use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tutti_journal::SCHEMA_VERSION;
use tutti_wire::handover::FORM;

/// How long an executable may take to say what it understands.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks an executable whether it could take over from the keeper and reads the journal, and which
/// version of the protocol it speaks.
///
/// # Errors
/// If it can't be executed, can't take over, or does not say so within five seconds.
pub(crate) fn what_it_speaks(program: &Path, directory: &Path) -> anyhow::Result<u16> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.args(["keeper", "--can-take-over", &FORM.to_string()]);
    command.args(["--reads-journal", &SCHEMA_VERSION.to_string(), "--directory"]).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot execute {shown}"))?;
    let patience = Instant::now() + ANSWER_WITHIN;
    while child.try_wait()?.is_none() {
        if Instant::now() >= patience {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "{shown} did not say within {} s whether it can take over",
                ANSWER_WITHIN.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = child.wait_with_output()?;
    let (said, complained) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if !done.status.success() {
        let why = complained.lines().next().unwrap_or("it does not say why").trim();
        bail!("{shown} can't take over ({}): {}", done.status, why.trim_start_matches("tutti: "));
    }
    let protocol = said.trim().strip_prefix("protocol ").and_then(|number| number.parse().ok());
    protocol.with_context(|| format!("{shown} is no tutti that can take over"))
}
