//! A policy program in a simulation: the same protocol as live, in simulated time.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tutti_core::{Core, Event};
use tutti_linux::spawn::Nursery;
use tutti_policy::protocol::{parse_answer, parse_greeting};
use tutti_policy::{Failure, Mode, Program, Session, Start};
use tutti_sim::Outside;
use tutti_types::ClusterTime;

/// How long an answer may take here: a program under a debugger is no fault.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether a policy is named by its program.
pub(super) fn is_program(policy: &str) -> bool {
    policy.contains('/')
}

/// A policy program.
pub(super) struct SimulatedPolicy {
    start: Start,
    program: Option<Program>,
    session: Session,
    nursery: Nursery,
}

impl SimulatedPolicy {
    /// One that is started with the first question.
    ///
    /// # Errors
    /// If there is no such file.
    pub(super) fn new(path: &str) -> anyhow::Result<Self> {
        let path: PathBuf = std::fs::canonicalize(path)
            .map_err(|error| anyhow::anyhow!("policy program {path}: {error}"))?;
        // One that is no text is left out.
        let variable = |(name, value): (OsString, OsString)| {
            Some(format!("{}={}", name.to_str()?, value.to_str()?))
        };
        let start = Start {
            path: path.to_string_lossy().into_owned(),
            identity: None,
            environment: std::env::vars_os().filter_map(variable).collect(),
            nice: 0,
        };
        let session = Session::new(Mode::Simulation);
        Ok(Self { start, program: None, session, nursery: Nursery::new() })
    }

    fn exchange(&mut self, core: &Core, now: ClusterTime) -> Result<(), Failure> {
        let program = match &mut self.program {
            Some(program) => program,
            None => {
                let program = Program::start(&self.start, &mut self.nursery)?;
                let program = self.program.insert(program);
                let greeting = program.exchange(&self.session.hello(core), LIMIT)?;
                self.session.begin(parse_greeting(&greeting)?, core);
                program
            }
        };
        let line = self.session.line(core, now);
        let answer = program.exchange(&line, LIMIT)?;
        self.session.take(parse_answer(&answer, self.session.round())?);
        Ok(())
    }

    /// What it wrote to its standard error.
    fn said(&mut self) -> String {
        let said = self.program.as_mut().map(Program::take_said);
        let (lines, dropped) = said.unwrap_or_default();
        let mut text = String::new();
        if dropped > 0 {
            text.push_str(&format!("\n  ({dropped} lines before)"));
        }
        lines.iter().for_each(|line| text.push_str(&format!("\n  {line}")));
        text
    }
}

impl Drop for SimulatedPolicy {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            program.finish();
        }
    }
}

impl Outside for SimulatedPolicy {
    fn note(&mut self, core: &Core, event: &Event) {
        if self.program.is_some() {
            self.session.note(core, event);
        }
    }

    fn due(&self, now: ClusterTime) -> ClusterTime {
        self.session.due(now)
    }

    fn ask(&mut self, core: &Core, now: ClusterTime) -> Result<(), String> {
        self.exchange(core, now).map_err(|why| {
            // Its last words may come a moment after its end.
            let said = self.said();
            format!("{}: {why}{said}", self.start.path)
        })
    }

    fn next(&mut self, core: &Core, now: ClusterTime) -> Option<Event> {
        self.session.next(core, now)
    }
}
