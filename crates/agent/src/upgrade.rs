//! The node upgrades to another executable, by the controller's word: the supervisor is told so,
//! and that ends this agent, unless it refuses.

use super::driver::Agent;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tutti_node::executable;
use tutti_node::link::Interest;
use tutti_node::order::Order;
use tutti_wire::tree::{Answer, FromAgent};

/// What the poller calls the supervisor's answer.
pub(super) const SUPERVISOR: u64 = 8;

/// An order that the supervisor was given, and the question that it belongs to.
#[derive(Debug)]
pub(super) struct UnderWay {
    query: u64,
    order: Order,
}

impl Agent {
    /// Passes the order on. It is answered when the supervisor refuses, at once if it can't be
    /// told.
    pub(super) fn upgrade(&mut self, query: u64, program: &Path) -> Option<Answer> {
        if self.service.upgrade.is_some() {
            return Some(Answer::Failed("an upgrade of it is under way already".into()));
        }
        let given = Order::give(&self.options.supervisor, program).and_then(|order| {
            order.do_not_wait()?;
            self.poller.add(&order, SUPERVISOR, Interest::READ)?;
            Ok(order)
        });
        match given {
            Ok(order) => {
                self.service.upgrade = Some(UnderWay { query, order });
                None
            }
            Err(error) => {
                Some(Answer::Failed(format!("its supervisor can't be asked to upgrade: {error:#}")))
            }
        }
    }

    /// The supervisor has something to say to that.
    pub(super) fn on_supervisor(&mut self) {
        let Some(going) = &mut self.service.upgrade else { return };
        let Some(heard) = going.order.heard() else { return };
        let answer = match heard {
            Ok(_) => Answer::Done,
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        let query = going.query;
        self.service.upgrade = None;
        self.tell_controller(FromAgent::Answer { query, answer });
    }
}

/// A path as it was sent.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Whether this agent runs that executable, and if not, which.
pub(super) fn runs(program: &Path) -> Answer {
    if executable::runs(program) {
        return Answer::Done;
    }
    let running = std::fs::read_link(executable::RUNNING).unwrap_or_default();
    Answer::Failed(format!("it runs {}", running.display()))
}
