//! Jobs that are submitted over HTTP: by `tutti submit` itself, as a process of its own, so that
//! directory and environment are the job's alone.

use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tutti_web::{Answer, Failure, Submission, Work};
use tutti_wire::code::{Code, TABLE};

/// The program that runs, also after another has its name.
const ITSELF: &str = "/proc/self/exe";

/// How long the verb may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How much of what it says is read, in bytes.
const SAID_MAX: u64 = 64 << 10;

/// Submits a job; its number.
pub(super) fn submit(submission: &Submission) -> Answer<u64> {
    let mut command = Command::new(ITSELF);
    let script = match submission.work() {
        Some(Work::Command(words)) => {
            command.args(["submit", "--parsable"]).args(submission.words()).arg("--").args(words);
            None
        }
        Some(Work::Line(line)) => {
            command.args(["submit", "--parsable"]).args(submission.words());
            command.arg(format!("--wrap={line}"));
            None
        }
        Some(Work::Script(script)) => {
            command.args(["batch", "--parsable"]).args(submission.words()).arg("-");
            Some(script)
        }
        None => {
            return Err(Failure::new(Code::CannotUnderstand, "there is nothing to be started"));
        }
    };
    if let Some(directory) = &submission.directory {
        command.current_dir(directory);
    }
    // Files, and no pipes: the verb may leave unread or write what it likes.
    let file = |text: &str| -> std::io::Result<File> {
        let mut file = File::from(memfd_create("tutti-web", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let failed = |error: std::io::Error| match &submission.directory {
        Some(directory) if !std::path::Path::new(directory).is_dir() => {
            Failure::new(Code::BadValue, format!("there is no directory {directory}"))
        }
        _ => Failure::new(Code::CannotUnderstand, format!("cannot submit this: {error}")),
    };
    let mut run = || -> std::io::Result<(Option<ExitStatus>, String, String)> {
        let (mut out, mut err) = (file("")?, file("")?);
        let process = command
            .envs(&submission.environment)
            .stdin(file(script.unwrap_or_default())?)
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            .spawn()?;
        Ok((end_of(process)?, text_of(&mut out)?, text_of(&mut err)?))
    };
    let (status, said, complaint) = run().map_err(failed)?;
    match (status, said.trim().parse()) {
        (Some(status), Ok(number)) if status.success() => Ok(number),
        (Some(status), _) if status.success() => {
            let text = "with these options nothing is submitted; leave out those that only print";
            Err(Failure::new(Code::CannotUnderstand, text))
        }
        (Some(status), _) if complaint.trim().is_empty() => {
            Err(Failure::new(Code::Other, format!("`tutti submit` ended with {status}")))
        }
        (Some(_), _) => Err(why(&complaint)),
        (None, _) => {
            let text = format!("the job was not submitted within {} s", LIMIT.as_secs());
            Err(Failure::new(Code::ControllerAway, text))
        }
    }
}

/// Waits for the end of the verb, not for ever; `None` if it took too long.
fn end_of(mut process: Child) -> std::io::Result<Option<ExitStatus>> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(1));
    while begun.elapsed() < LIMIT {
        if let Some(status) = process.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    process.kill()?;
    process.wait()?;
    Ok(None)
}

/// What was written, as far as it is of use.
fn text_of(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(SAID_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the verb said, with its code; without what helps on a command line only.
fn why(said: &str) -> Failure {
    let is_hint = |line: &str| line.starts_with("`tutti ") && line.contains(" --help` shows ");
    let lines = said.lines().map(|it| it.strip_prefix("tutti: ").unwrap_or(it));
    let lines: Vec<&str> = lines.filter(|line| !is_hint(line)).collect();
    let text = lines.join("\n");
    let marked = text.rsplit_once("[T").and_then(|(_, rest)| rest.get(..3)?.parse::<u16>().ok());
    let code = marked
        .and_then(|number| TABLE.iter().map(|it| it.code).find(|code| *code as u16 == number));
    let text = match code {
        Some(code) => text.replace(&format!(" [{code}]"), ""),
        None => text,
    };
    Failure::new(code.unwrap_or(Code::Other), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_verb_says_keeps_its_code() {
        let failure = why("tutti: no such program: /nope [T004]\n");
        assert_eq!(
            (failure.code, failure.text.as_str()),
            (Code::NoProgram, "no such program: /nope")
        );
        let failure = why("tutti: a [T001]\n`tutti submit --help` shows what submit takes\n");
        assert_eq!((failure.code, failure.text.as_str()), (Code::CannotUnderstand, "a"));
        assert_eq!(why("it broke\n").code, Code::Other);
        assert_eq!(why("").text, "");
    }
}
