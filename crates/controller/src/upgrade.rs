//! Nodes that upgrade to another executable, one at a time: the client goes from node to node.

use super::driver::Driver;
use super::error::Problem;
use tutti_wire::code::Code;
use tutti_wire::tree::{Answer, Question};

impl Driver {
    /// Passes something about an executable on to a node's agent, for an administrator.
    pub(super) fn on_upgrade(&mut self, token: u64, uid: u32, node: &str, question: &Question) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        match self.named(node) {
            Ok(nodes) => self.ask(token, &nodes.into_iter().collect::<Vec<_>>(), question),
            Err(error) => self.fail(token, error),
        }
    }
}

/// What a question is answered with whose agent has ended.
pub(super) fn answer_of_ended(question: &Question, name: &str) -> Answer {
    match question {
        Question::Upgrade { .. } => Answer::Done,
        _ => Answer::Failed(format!(
            "node {name} is out of reach: its agent has ended, or does not answer"
        )),
    }
}

/// What a client is told if its question was answered with a failure.
pub(super) fn failure(question: &Question, reason: String) -> Problem {
    let code = match question {
        Question::Upgrade { .. } | Question::Runs { .. } => Code::NotUpgraded,
        Question::Devices { .. } => Code::BadValue,
        Question::Output { .. } => Code::NoOutput,
        _ => Code::NoPart,
    };
    Problem::new(code, reason)
}
