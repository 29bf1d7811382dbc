//! Jobs that are submitted over HTTP: by `tutti submit` itself, as a process of its own, so that
//! directory and environment are the job's alone.

use std::io::Write;
use std::process::{Command, Stdio};
use tutti_web::{Answer, Failure, Submission, Work};
use tutti_wire::code::{Code, TABLE};

/// The program that runs, also after another has its name.
const ITSELF: &str = "/proc/self/exe";

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
    command.envs(&submission.environment).stdin(match script {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    });
    let failed = |error: std::io::Error| match &submission.directory {
        Some(directory) if !std::path::Path::new(directory).is_dir() => {
            Failure::new(Code::BadValue, format!("there is no directory {directory}"))
        }
        _ => Failure::new(Code::CannotUnderstand, format!("cannot submit this: {error}")),
    };
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let (Some(mut input), Some(script)) = (process.stdin.take(), script) {
        // What is not read is declined, and the answer says why.
        let _ = input.write_all(script.as_bytes());
    }
    let done = process.wait_with_output().map_err(failed)?;
    let number = String::from_utf8_lossy(&done.stdout).trim().parse();
    match number {
        Ok(number) if done.status.success() => Ok(number),
        _ => Err(why(&String::from_utf8_lossy(&done.stderr))),
    }
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
