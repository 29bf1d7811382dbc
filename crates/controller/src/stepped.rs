//! A controller that does a round when it is told to: for simulations, which have it beside all the others in
//! one thread.

use super::ahead::Former;
use super::driver::{Driver, blank_core};
use std::path::{Path, PathBuf};
use tutti_core::Core;
use tutti_journal::{Journal, Store};
use tutti_node::instance::Instance;
use tutti_node::link::{Poller, Ready};
use tutti_node::platform::ways::Stream;
use tutti_types::{ClusterTime, JobId, Outcome};

/// See the head of the file.
pub struct Stepped {
    driver: Driver,
    ready: Vec<Ready>,
    taken_over: Option<u64>,
    /// Whether it has stored anything itself.
    has_stored: bool,
}

impl Stepped {
    /// One that takes over what is stored; `former` is what is known of the one before, if the machine was not
    /// started since.
    ///
    /// # Errors
    /// If that can't be read.
    pub fn start(store: Box<dyn Store>, former: Option<Former>) -> anyhow::Result<Self> {
        let opened = Journal::by_hand(store, Path::new("the journal"), blank_core)?;
        let taken_over = opened.1.core.as_ref().map(Core::digest);
        let instance = Instance::at(PathBuf::from("/run/tutti-world"));
        let driver = Driver::over(instance, None, opened, former, 0)?;
        Ok(Self { driver, ready: Vec::new(), taken_over, has_stored: false })
    }

    /// The digest of the state that it took over, if there was one.
    pub fn taken_over(&self) -> Option<u64> {
        self.taken_over
    }

    /// What the next one is to know of this one.
    pub fn as_former(&self) -> Former {
        self.driver.as_former()
    }

    /// Whether a controller after it would know all that it knows.
    pub fn has_stored_all(&self) -> bool {
        self.has_stored && self.driver.memory.journal.failure().is_none()
    }

    /// Somebody has connected.
    ///
    /// # Errors
    /// If the kernel does not say who.
    pub fn take_in(&mut self, stream: Stream) -> std::io::Result<()> {
        self.driver.take_in(stream)
    }

    /// Whether anything has come that it has not taken in.
    pub fn look(&mut self) -> bool {
        self.driver.poller.look(&mut self.ready).is_ok() && !self.ready.is_empty()
    }

    /// Readable when something has come.
    pub fn poller(&self) -> &Poller {
        &self.driver.poller
    }

    /// Does a round; with what [`Self::look`] has found.
    pub fn round(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        self.driver.round(&ready);
        self.has_stored = true;
        self.ready = ready;
        self.ready.clear();
    }

    /// When it has something to do, by its machine's clock.
    pub fn due_ns(&self) -> Option<u64> {
        let due = self.driver.deadline();
        (due != ClusterTime::NEVER).then(|| due.0.saturating_sub(self.driver.clock_ahead.0))
    }

    /// What is stored reaches the disk; whether anybody waited for that.
    pub fn bring_to_disk(&mut self) -> bool {
        self.driver.memory.journal.bring_to_disk()
    }

    /// The state of all decisions.
    pub fn core(&self) -> &Core {
        &self.driver.core
    }

    /// Cluster time, as it has it.
    pub fn now(&self) -> ClusterTime {
        self.driver.now()
    }

    /// Jobs that have not ended.
    pub fn jobs(&self) -> Vec<JobId> {
        self.driver.jobs.keys().copied().collect()
    }

    /// How a job ended, if it is known to have.
    pub fn ended(&self, job: JobId) -> Option<Outcome> {
        self.driver.ended.get(job).map(|ended| ended.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tutti_journal::SqliteStore;
    use tutti_node::link::Link;
    use tutti_types::NodeSpec;
    use tutti_wire::Role;
    use tutti_wire::branch::{FromBranch, Joining, Origin, Report};
    use tutti_wire::local::{NodeChange, Reply, Request};
    use tutti_wire::tree::{FromAgent, Join};

    /// A connection of this process, of which the controller has the other end.
    fn connection(role: Role) -> (Link, UnixStream) {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let mut own = Link::new(own).expect("a socket");
        own.greet(role);
        (own, theirs)
    }

    /// A report that a node of this name has joined.
    fn join(name: &str) -> FromBranch {
        let spec = NodeSpec {
            name: name.into(),
            processors: [0].into_iter().collect(),
            memory_bytes: 1 << 30,
        };
        let join = Join {
            spec,
            held: Vec::new(),
            attach: Vec::new().into(),
            address: String::new(),
            tasks_max: 1,
            keeper: 1,
        };
        let from = Origin::Joiner(Joining { attempt: 1, life: 1, ..Joining::default() });
        FromBranch::Reports(vec![Report { from, report: FromAgent::Join(join) }])
    }

    /// Takes in who is new after all was said, and does rounds until the client has its answer.
    fn answer(controller: &mut Stepped, client: &mut Link, new: Vec<UnixStream>) -> Reply {
        for stream in new {
            controller.take_in(stream.into()).expect("it is taken in");
        }
        loop {
            controller.look();
            controller.round();
            controller.bring_to_disk();
            client.receive().expect("the controller is there");
            if let Some(reply) = client.next().expect("a message") {
                return reply;
            }
        }
    }

    #[test]
    fn what_an_agent_tells_comes_before_what_a_client_asks_in_the_same_round() {
        let directory = std::env::temp_dir().join(format!("tutti-round-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let store = SqliteStore::open(&directory.join("journal.db")).expect("a journal");
        let mut controller = Stepped::start(Box::new(store), None).expect("a controller");
        // Who is new in that round: nobody, the client, the agent, both.
        for (number, is_new) in
            [[false, false], [true, false], [false, true], [true, true]].iter().enumerate()
        {
            let (mut client, client_end) = connection(Role::Client);
            let (mut agent, agent_end) = connection(Role::Agent);
            let (mut new, mut known) = (Vec::new(), Vec::new());
            for (end, is_new) in [client_end, agent_end].into_iter().zip(is_new) {
                if *is_new { new.push(end) } else { known.push(end) }
            }
            for end in known {
                controller.take_in(end.into()).expect("it is taken in");
            }
            client.flush().and_then(|()| agent.flush()).expect("the controller is there");
            controller.look();
            controller.round();
            let name = format!("n{number}");
            let change = NodeChange::Drain { reason: String::new() };
            client.send(&Request::ChangeNodes { nodes: name.clone(), change });
            agent.send(&join(&name));
            client.flush().and_then(|()| agent.flush()).expect("the controller is there");
            let reply = answer(&mut controller, &mut client, new);
            assert!(matches!(reply, Reply::Nodes(_)), "{is_new:?}: {reply:?}");
        }
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
