//! The front end of a simulated job: it attaches to the keepers, again if the way breaks, and
//! compares what it gets with what the tasks say.

use super::script::Plan;
use std::collections::BTreeMap;
use std::path::Path;
use tutti_node::link::Link;
use tutti_node::simulated::machine::with_here;
use tutti_node::simulated::process::line;
use tutti_types::{EndReason, JobId, Outcome, Rank, StepKey};
use tutti_wire::Role;
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::branch::Through;
use tutti_wire::local::KeeperAt;

/// As long as the real one looks for a keeper, how often, and when the job has ended
/// (`client/src/keeper.rs`).
const PATIENCE_NS: u64 = 100_000_000_000;
const PATIENCE_AT_END_NS: u64 = 5_000_000_000;
const RETRY_NS: u64 = 100_000_000;
const RETRY_LATER_NS: u64 = 500_000_000;
const LATER_NS: u64 = 3_000_000_000;

struct Keeper {
    at: KeeperAt,
    link: Option<Link>,
    /// Bytes of frames that came over earlier connections, and over this one before they counted.
    received: u64,
    counts_from: Option<u64>,
    away_since_ns: Option<u64>,
    tried_ns: u64,
    /// Whether it has taken the front end in: it begins no task before.
    is_attached: bool,
    is_over: bool,
}

/// See the head of the file.
pub(super) struct Front {
    job: JobId,
    plan: Plan,
    keepers: Vec<Keeper>,
    output: BTreeMap<Rank, Vec<u8>>,
    /// What ranks are to say, of those that have said something.
    expected: BTreeMap<Rank, Vec<u8>>,
    ended: Option<(Option<Outcome>, u64)>,
    /// Whether some output may be missing: the way to it was lost for good.
    is_cut: bool,
    /// A keeper did not take it in, or the controller has forgotten its beginning: its user is
    /// told, and it ends.
    pub(super) has_given_up: bool,
    pub(super) wrong: Option<String>,
}

impl Front {
    pub(super) fn new(job: JobId, plan: Plan) -> Self {
        Self {
            job,
            plan,
            keepers: Vec::new(),
            output: BTreeMap::new(),
            expected: BTreeMap::new(),
            ended: None,
            is_cut: false,
            has_given_up: false,
            wrong: None,
        }
    }

    /// The job begins: these have its tasks.
    pub(super) fn start(&mut self, attach: Vec<KeeperAt>, now_ns: u64) {
        if !self.keepers.is_empty() {
            return;
        }
        let keeper = |at: KeeperAt| Keeper {
            at,
            link: None,
            received: 0,
            counts_from: None,
            away_since_ns: Some(now_ns),
            tried_ns: 0,
            is_attached: false,
            is_over: false,
        };
        self.keepers = attach.into_iter().map(keeper).collect();
    }

    /// The controller says that it is accepted, perhaps again. If it does not know that it has
    /// begun, it gives up.
    pub(super) fn on_accepted(&mut self, waits: &str) {
        self.has_given_up |= !waits.is_empty() && !self.keepers.is_empty();
    }

    /// The controller says that it has ended.
    pub(super) fn on_end(&mut self, outcome: Outcome, now_ns: u64) {
        self.ended.get_or_insert((Some(outcome), now_ns));
    }

    /// The controller knows nothing of it.
    pub(super) fn on_lost(&mut self, now_ns: u64) {
        self.ended.get_or_insert((None, now_ns));
        self.is_cut = true;
    }

    pub(super) fn has_heard_of_the_end(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether there is nothing more to come.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() && self.keepers.iter().all(|keeper| keeper.is_over)
    }

    /// When to look again though nothing comes.
    pub(super) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = |keeper: &&Keeper| !keeper.is_over;
        let waiting = self.keepers.iter().filter(waits);
        let retry_ns = waiting
            .filter_map(|keeper| keeper.away_since_ns)
            .map(|since_ns| retry_ns(since_ns, now_ns));
        retry_ns.min().map(|retry_ns| now_ns + retry_ns)
    }

    pub(super) fn step(&mut self, now_ns: u64) {
        let (job, ended_ns) = (self.job, self.ended.map(|(_, at_ns)| at_ns));
        let mut keepers = std::mem::take(&mut self.keepers);
        for keeper in keepers.iter_mut().filter(|keeper| !keeper.is_over) {
            keeper.look_for(job, now_ns);
            self.hear(keeper, now_ns);
            let Some(since_ns) = keeper.away_since_ns else { continue };
            let is_late = now_ns > since_ns + PATIENCE_NS
                || ended_ns.is_some_and(|ended| now_ns > ended.max(since_ns) + PATIENCE_AT_END_NS);
            if is_late {
                self.is_cut = true;
                keeper.is_over = true;
            }
        }
        self.keepers = keepers;
        if self.is_over() && self.wrong.is_none() {
            self.wrong = self.judge();
        }
    }

    fn hear(&mut self, keeper: &mut Keeper, now_ns: u64) {
        let Some(mut link) = keeper.link.take() else { return };
        let received = link.receive();
        let mut is_good = true;
        loop {
            match link.next::<ToFrontEnd>() {
                Ok(Some(message)) => self.on_message(keeper, &mut link, message),
                Ok(None) => break,
                Err(_) => {
                    is_good = false;
                    break;
                }
            }
        }
        is_good &= received.is_ok() && link.flush().is_ok();
        if keeper.is_over {
            return;
        }
        if is_good {
            keeper.link = Some(link);
            return;
        }
        if let Some(from) = keeper.counts_from.take() {
            keeper.received += link.taken_bytes() - from;
        }
        keeper.away_since_ns.get_or_insert(now_ns);
        if matches!(keeper.at, KeeperAt::Here(_)) && keeper.is_attached {
            // Where no way breaks, the keeper has ended, and its tasks with it.
            keeper.is_over = true;
            self.is_cut = true;
        }
    }

    fn on_message(&mut self, keeper: &mut Keeper, link: &mut Link, message: ToFrontEnd) {
        match message {
            ToFrontEnd::Attached { .. } => {
                keeper.is_attached = true;
                keeper.away_since_ns = None;
                keeper.counts_from = Some(link.taken_bytes());
            }
            ToFrontEnd::Output { rank, stream: Stream::Output, data } => {
                self.output.entry(rank).or_default().extend_from_slice(&data);
                self.compare(rank);
            }
            ToFrontEnd::Output { .. }
            | ToFrontEnd::TaskEnded { .. }
            | ToFrontEnd::Pipe { .. }
            | ToFrontEnd::ReturnPipe { .. }
            | ToFrontEnd::Skipped { .. }
            | ToFrontEnd::Killed => {}
            ToFrontEnd::Refused { .. } => {
                keeper.is_over = true;
                self.is_cut = true;
                self.has_given_up = true;
            }
            ToFrontEnd::Finished => {
                keeper.is_over = true;
                if matches!(keeper.at, KeeperAt::Node(_)) {
                    link.send(&FromFrontEnd::Done);
                    let _ = link.flush();
                }
            }
        }
    }

    /// What a rank is to say, at most.
    fn expected(&self, rank: Rank) -> Vec<u8> {
        (0..self.plan.lines).flat_map(|number| line(rank, number).into_bytes()).collect()
    }

    fn compare(&mut self, rank: Rank) {
        if !self.expected.contains_key(&rank) {
            self.expected.insert(rank, self.expected(rank));
        }
        let expected = &self.expected[&rank];
        let output = self.output.get(&rank).map_or(&[][..], |output| output);
        if !expected.starts_with(output) && self.wrong.is_none() {
            let shown = String::from_utf8_lossy(output);
            self.wrong = Some(format!("rank {rank} of job {} said: {shown:?}", self.job));
        }
    }

    /// A job whose tasks all have run to their ends has said all.
    fn judge(&self) -> Option<String> {
        let (outcome, _) = self.ended?;
        let outcome = outcome?;
        // If a node was lost, its tasks were, and the job may have gone on.
        let is_whole = outcome.reason == EndReason::Completed
            && i32::from(outcome.exit_code) == self.plan.code;
        if self.is_cut || !is_whole {
            return None;
        }
        let lacks =
            |rank: &Rank| self.output.get(rank).map_or(0, Vec::len) != self.expected(*rank).len();
        let rank = (0..self.plan.tasks).map(Rank).find(lacks)?;
        Some(format!("output of rank {rank} of job {} is missing", self.job))
    }
}

/// How long one waits between two attempts to reach a keeper that is away since then.
const fn retry_ns(since_ns: u64, now_ns: u64) -> u64 {
    if now_ns.saturating_sub(since_ns) > LATER_NS { RETRY_LATER_NS } else { RETRY_NS }
}

impl Keeper {
    fn look_for(&mut self, job: JobId, now_ns: u64) {
        let retry_ns = self.away_since_ns.map_or(RETRY_NS, |since_ns| retry_ns(since_ns, now_ns));
        if self.link.is_some() || now_ns < self.tried_ns + retry_ns && self.tried_ns > 0 {
            return;
        }
        self.tried_ns = now_ns.max(1);
        let is_far = matches!(self.at, KeeperAt::Node(_));
        let path = if is_far { "/world/gate" } else { "/world/keeper" };
        let Some(Ok(stream)) = with_here(|machine, _| machine.connect(Path::new(path))) else {
            return;
        };
        let Ok(mut link) = Link::new(stream) else { return };
        if let KeeperAt::Node(node) = self.at {
            link.greet(Role::Gate);
            link.send(&Through { node });
        }
        link.greet(Role::FrontEnd);
        link.send(&FromFrontEnd::Attach {
            key: StepKey::first(job),
            received: is_far.then_some(self.received),
            terminal: None,
        });
        if link.flush().is_ok() {
            self.link = Some(link);
        }
    }
}
