//! A policy program in a simulation: the same protocol as live, in simulated time.

use super::parts::Parts;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tutti_core::{Core, Event};
use tutti_linux::spawn::Nursery;
use tutti_policy::protocol::{parse_answer, parse_greeting};
use tutti_policy::{Failure, Mode, Program, Session, Start, Wrong};
use tutti_sim::Outside;
use tutti_types::ClusterTime;

/// How long an answer may take here: a program under a debugger is no fault.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether a policy is named by its program.
pub(super) fn is_program(policy: &str) -> bool {
    policy.contains('/')
}

/// The program of the parts on nodes, in a word of a policy such as `policy-node=./part.py`.
pub(super) fn part_of(word: &str) -> Option<&str> {
    word.strip_prefix("policy-node=").or_else(|| word.strip_prefix("policy_node="))
}

/// How a program is started here, with all of this process's environment.
///
/// # Errors
/// If there is no such file.
pub(super) fn start_here(path: &str) -> anyhow::Result<Start> {
    // Links are left as they are: a program may go by the name that it was started with.
    let found = std::fs::metadata(path).and_then(|_| std::path::absolute(path));
    let path: PathBuf = found.map_err(|error| anyhow::anyhow!("policy program {path}: {error}"))?;
    // One that is no text is left out.
    let variable = |(name, value): (OsString, OsString)| {
        Some(format!("{}={}", name.to_str()?, value.to_str()?))
    };
    Ok(Start {
        path: path.to_string_lossy().into_owned(),
        identity: None,
        environment: std::env::vars_os().filter_map(variable).collect(),
        nice: 0,
        limits: None,
    })
}

/// One process, and what is said of it when it fails.
pub(super) struct Talk {
    start: Start,
    program: Option<Program>,
}

impl Talk {
    pub(super) const fn new(start: Start) -> Self {
        Self { start, program: None }
    }

    /// Starts it, and reads what it answers to the first line.
    pub(super) fn begin<T>(
        &mut self,
        hello: &str,
        nursery: &mut Nursery,
        read: impl Fn(&[u8]) -> Result<T, Wrong>,
    ) -> Result<T, String> {
        let started = Program::start(&self.start, nursery);
        self.program = Some(started.map_err(|why| self.told(&why))?);
        self.exchange(hello, read)
    }

    /// Sends it a line, and reads the answer.
    pub(super) fn exchange<T>(
        &mut self,
        line: &str,
        read: impl Fn(&[u8]) -> Result<T, Wrong>,
    ) -> Result<T, String> {
        let Some(program) = &mut self.program else { return Err(self.told(&Failure::Ended)) };
        let answer = program.exchange(line, LIMIT).and_then(|answer| Ok(read(&answer)?));
        answer.map_err(|why| self.told(&why))
    }

    /// Why it failed, and what it wrote to its standard error.
    fn told(&mut self, why: &Failure) -> String {
        let said = self.program.as_mut().map(Program::take_said);
        // Its last words may come a moment after its end.
        let (lines, dropped) = said.unwrap_or_default();
        let mut text = format!("{}: {why}", self.start.path);
        if dropped > 0 {
            text.push_str(&format!("\n  ({dropped} lines before)"));
        }
        lines.iter().for_each(|line| text.push_str(&format!("\n  {line}")));
        text
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            program.finish();
        }
    }
}

/// A policy program.
pub(super) struct SimulatedPolicy {
    talk: Talk,
    session: Session,
    parts: Option<Parts>,
    nursery: Nursery,
}

impl SimulatedPolicy {
    /// One that is started with the first question, with a part on each node or without.
    ///
    /// # Errors
    /// If there is no such file.
    pub(super) fn new(path: &str, part: Option<&str>) -> anyhow::Result<Self> {
        let mut session = Session::new(Mode::Simulation);
        session.parts().want(part.is_some());
        Ok(Self {
            talk: Talk::new(start_here(path)?),
            session,
            parts: part.map(Parts::new).transpose()?,
            nursery: Nursery::new(),
        })
    }

    fn ask_all(&mut self, core: &Core, now: ClusterTime) -> Result<(), String> {
        if self.talk.program.is_none() {
            let hello = self.session.hello(core);
            let greeting = self.talk.begin(&hello, &mut self.nursery, parse_greeting)?;
            self.session.begin(greeting, core);
            if let Some(parts) = &mut self.parts {
                parts.begin(core, now, &mut self.nursery)?;
            }
        }
        if self.session.due(now) <= now {
            let line = self.session.line(core, now);
            let round = self.session.round();
            let answer = self.talk.exchange(&line, |line| parse_answer(line, round))?;
            self.session.take(answer);
        }
        self.parts.as_mut().map_or(Ok(()), |parts| parts.ask(now))
    }
}

impl Outside for SimulatedPolicy {
    fn note(&mut self, core: &Core, event: &Event) {
        if self.talk.program.is_some() {
            self.session.note(core, event);
            if let Some(parts) = &mut self.parts {
                parts.note(core, event);
            }
        }
    }

    fn due(&self, now: ClusterTime) -> ClusterTime {
        let of_parts = self.parts.as_ref().map_or(ClusterTime::NEVER, |parts| parts.due(now));
        self.session.due(now).min(of_parts)
    }

    fn ask(&mut self, core: &Core, now: ClusterTime) -> Result<(), String> {
        self.ask_all(core, now)
    }

    fn next(&mut self, core: &Core, now: ClusterTime) -> Option<Event> {
        let of_host = self.session.next(core, now);
        of_host.or_else(|| self.parts.as_mut()?.next(&mut self.session, core, now))
    }
}
