//! A controller that does a round when it is told to: for simulations, which have it beside all the
//! others in one thread.

use super::driver::{Driver, blank_core};
use super::time_base::Former;
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
    /// One that takes over what is stored; `former` is what is known of the one before, if the
    /// machine was not started since.
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

    /// A client has connected.
    ///
    /// # Errors
    /// If the kernel does not name the user.
    pub fn take_in(&mut self, stream: Stream) -> std::io::Result<()> {
        self.driver.take_in(stream)
    }

    /// Whether anything has come that it has not taken in.
    pub fn look(&mut self) -> bool {
        self.driver.intake.poller.look(&mut self.ready).is_ok() && !self.ready.is_empty()
    }

    /// Readable when something has come.
    pub fn poller(&self) -> &Poller {
        &self.driver.intake.poller
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
        (due != ClusterTime::NEVER).then(|| due.0.saturating_sub(self.driver.clock.clock_ahead.0))
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
        self.driver.ends.ended.get(job).map(|ended| ended.outcome)
    }

    /// What is known of why it ended so.
    pub fn why(&self, job: JobId) -> Option<String> {
        self.driver.ends.ended.get(job).map(|ended| ended.report.detail.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};
    use tutti_core::JobState;
    use tutti_journal::SqliteStore;
    use tutti_node::link::Link;
    use tutti_types::{
        ClassName, FirstStep, LaunchId, Nanos, NodeId, NodeSpec, OnBadExit, OnNodeLoss,
    };
    use tutti_wire::Role;
    use tutti_wire::branch::{FromBranch, Joining, Origin, Passed, Recipients, Report, ToBranch};
    use tutti_wire::code::Code;
    use tutti_wire::event::{EventQuery, EventRecord, What};
    use tutti_wire::launch::{LaunchSpec, OpenMode, Stdio};
    use tutti_wire::local::{
        JobRequest, NodeChange, NodesRequest, Reply, Request, Section, Setting, SubmitKey,
    };
    use tutti_wire::pmi::{Barrier, BarrierGroup, Exchange, Values};
    use tutti_wire::report::SwitchRecord;
    use tutti_wire::tree::{Answer, FromAgent, Join, ToAgent};

    /// A connection of this process, of which the controller has the other end.
    fn connection(role: Role) -> (Link, UnixStream) {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let mut own = Link::new(own).expect("a socket");
        own.greet(role);
        (own, theirs)
    }

    /// A report that a node of this name has joined.
    fn join(name: &str) -> FromBranch {
        joins(&[name.to_owned()])
    }

    /// The same of several, all in one branch.
    fn joins(names: &[String]) -> FromBranch {
        FromBranch::Reports((1..).zip(names).map(|(attempt, name)| joined(attempt, name)).collect())
    }

    fn joined(attempt: u64, name: &str) -> Report {
        joined_with(attempt, name, Vec::new())
    }

    /// The same for an agent that has these launches.
    fn joined_with(attempt: u64, name: &str, held: Vec<LaunchId>) -> Report {
        let spec = NodeSpec {
            name: name.into(),
            processors: [0].into_iter().collect(),
            memory_bytes: 1 << 30,
        };
        let join = Join {
            spec,
            held,
            attach: Vec::new().into(),
            address: String::new(),
            tasks_max: 1,
            features: [].into(),
            keeper: 1,
            devices: Vec::new(),
            swap: tutti_wire::report::NodeSwap::default(),
            images: None,
        };
        let from = Origin::Joiner(Joining { attempt, life: 1, ..Joining::default() });
        Report { from, report: FromAgent::Join(join) }
    }

    /// Accepts new clients after all was said, and does rounds until the client has its answer.
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

    /// A controller, a client of it, and an agent with nodes of these names; and the directory of
    /// its journal.
    fn cluster(name: &str, names: &[String]) -> (Stepped, Link, Link, PathBuf) {
        let directory = std::env::temp_dir().join(format!("tutti-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let store = SqliteStore::open(&directory.join("journal.db")).expect("a journal");
        let mut controller = Stepped::start(Box::new(store), None).expect("a controller");
        let (client, client_end) = connection(Role::Client);
        let (mut agent, agent_end) = connection(Role::Agent);
        controller.take_in(client_end.into()).expect("it is taken in");
        controller.take_in(agent_end.into()).expect("it is taken in");
        for names in names.chunks(100) {
            agent.send(&joins(names));
            agent.flush().expect("the controller is there");
            controller.look();
            controller.round();
        }
        (controller, client, agent, directory)
    }

    #[test]
    fn nodes_come_in_pages_by_number() {
        let names: Vec<String> = (0..2345).map(|number| format!("n{number}")).collect();
        let (mut controller, mut client, mut agent, directory) = cluster("pages", &names);
        let (mut seen, mut from, mut pages) = (Vec::new(), Some(NodeId(0)), 0);
        while let Some(first) = from {
            client.send(&Request::Nodes { from: first });
            client.flush().expect("the controller is there");
            agent.receive().expect("the controller is there");
            let reply = answer(&mut controller, &mut client, Vec::new());
            let Reply::Nodes { nodes, next } = reply else { panic!("{reply:?}") };
            assert!(!nodes.is_empty() && nodes.len() <= 1000);
            seen.extend(nodes.into_iter().map(|node| node.name));
            (from, pages) = (next, pages + 1);
        }
        assert_eq!((seen, pages), (names, 3));
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// Does rounds until the client has its answer, and answers for the nodes: so many switches
    /// each.
    fn answer_with_switches(
        (controller, client, agent): (&mut Stepped, &mut Link, &mut Link),
        records: usize,
    ) -> Reply {
        let none = Vec::new;
        let record = SwitchRecord {
            due_ns: 0,
            began_ns: 0,
            stopped_ns: 0,
            devices_ns: 0,
            resumed_ns: 0,
            left: none(),
            yields: none(),
            came: none(),
            running: none(),
            stragglers: 0,
        };
        loop {
            controller.look();
            controller.round();
            agent.receive().expect("the controller is there");
            while let Some(message) = agent.next::<ToBranch>().expect("a message") {
                let ToBranch::Orders(orders) = message else { continue };
                for order in orders {
                    let (Recipients::Nodes(nodes), ToAgent::Ask { query, .. }) =
                        (order.to, order.order)
                    else {
                        continue;
                    };
                    for node in nodes {
                        let answer = Answer::Switches(vec![record.clone(); records]);
                        let report = FromAgent::Answer { query, answer };
                        let from = Origin::Nodes(vec![node]);
                        agent.send(&FromBranch::Reports(vec![Report { from, report }]));
                    }
                }
            }
            agent.flush().expect("the controller is there");
            client.receive().expect("the controller is there");
            if let Some(reply) = client.next().expect("a message") {
                return reply;
            }
        }
    }

    /// A node answers as many switches as are asked for, or more than half a page, or few.
    #[test]
    fn what_nodes_answer_comes_in_pages_by_its_length() {
        let names: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
        let (mut controller, mut client, mut agent, directory) = cluster("answers", &names);
        for (count, records, pages) in
            [(200_000, 200_000, 5), (1, 60_000, 5), (1, 30_000, 2), (1, 1, 1)]
        {
            let (mut seen, mut from, mut answers) = (Vec::new(), Some(NodeId(0)), 0);
            while let Some(first) = from {
                client.send(&Request::Switches { count, from: first });
                client.flush().expect("the controller is there");
                let all = (&mut controller, &mut client, &mut agent);
                let reply = answer_with_switches(all, records);
                let Reply::Switches { nodes, next } = reply else { panic!("{reply:?}") };
                assert!(nodes.iter().all(|(_, switches)| switches.len() == records));
                seen.extend(nodes.into_iter().map(|(name, _)| name));
                (from, answers) = (next, answers + 1);
            }
            assert_eq!((&seen, answers), (&names, pages), "{records} each");
        }
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    #[test]
    fn what_an_agent_tells_comes_before_what_a_client_asks_in_the_same_round() {
        let directory = std::env::temp_dir().join(format!("tutti-round-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let store = SqliteStore::open(&directory.join("journal.db")).expect("a journal");
        let mut controller = Stepped::start(Box::new(store), None).expect("a controller");
        // What is new in that round: nothing, the client, the agent, both.
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
            assert!(matches!(reply, Reply::Nodes { .. }), "{is_new:?}: {reply:?}");
        }
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// Events behind a number, and the number of the latest.
    fn events(controller: &mut Stepped, client: &mut Link, after: u64) -> (Vec<EventRecord>, u64) {
        let query = EventQuery { after: Some(after), ..EventQuery::default() };
        client.send(&Request::Events(query));
        client.flush().expect("the controller is there");
        let reply = answer(controller, client, Vec::new());
        let Reply::Events { events, last, .. } = reply else { panic!("{reply:?}") };
        (events, last)
    }

    /// The nodes that joined, are back, are out of reach or lost, and when a controller started.
    fn words(events: &[EventRecord]) -> Vec<String> {
        let word = |record: &EventRecord| match &record.event.what {
            What::ControllerStarted { .. } => Some("started".to_owned()),
            What::NodeJoined { node, .. } => Some(format!("joined {node}")),
            What::NodeBack { node } => Some(format!("back {node}")),
            What::NodeUnreachable { node } => Some(format!("unreachable {node}")),
            What::NodeLost { node } => Some(format!("lost {node}")),
            _ => None,
        };
        events.iter().filter_map(word).collect()
    }

    #[test]
    fn changes_of_one_round_have_entries_of_their_own() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (mut controller, mut client, _agent, directory) = cluster("entries", &names);
        let (events, _) = events(&mut controller, &mut client, 0);
        assert_eq!(words(&events), ["started", "joined a", "joined b"]);
        let entries: Vec<u64> = events.iter().map(|event| event.entry).collect();
        assert!(entries.windows(2).all(|pair| pair[0] < pair[1]), "{entries:?}");
        assert!(entries[2] <= controller.driver.memory.journal.noted());
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// A controller that takes over the journal there, with a client and an agent.
    fn follower(directory: &Path, former: Option<Former>) -> (Stepped, Link, Link) {
        let store = SqliteStore::open(&directory.join("journal.db")).expect("a journal");
        let mut controller = Stepped::start(Box::new(store), former).expect("a controller");
        let (client, client_end) = connection(Role::Client);
        let (agent, agent_end) = connection(Role::Agent);
        controller.take_in(client_end.into()).expect("it is taken in");
        controller.take_in(agent_end.into()).expect("it is taken in");
        controller.round();
        (controller, client, agent)
    }

    #[test]
    fn a_controller_that_takes_over_reports_what_comes_back_and_nothing_else() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (mut controller, mut client, agent, directory) = cluster("takeover", &names);
        drop(agent);
        let mut until = 0;
        while controller.core().nodes().any(|view| !view.away) {
            (_, until) = events(&mut controller, &mut client, 0);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let (so_far, _) = events(&mut controller, &mut client, until);
        until = so_far.last().map_or(until, |event| event.number);
        let former = Some(controller.as_former());
        drop((controller, client));
        // An agent comes back.
        let (mut controller, mut client, mut agent) = follower(&directory, former);
        let (seen, _) = events(&mut controller, &mut client, until);
        assert_eq!(words(&seen), ["started"]);
        agent.send(&joins(&names[..1]));
        agent.flush().expect("the controller is there");
        controller.look();
        controller.round();
        let (seen, last) = events(&mut controller, &mut client, until);
        assert_eq!(words(&seen), ["started", "back a"]);
        // It goes out of service, and the power goes.
        let from = Origin::Nodes(vec![NodeId(0)]);
        let report = FromAgent::Leaving;
        agent.send(&FromBranch::Reports(vec![Report { from, report }]));
        agent.flush().expect("the controller is there");
        controller.look();
        controller.round();
        let (seen, last) = events(&mut controller, &mut client, last);
        assert_eq!(words(&seen), ["lost a"]);
        drop((controller, client, agent));
        let (mut controller, mut client, mut agent) = follower(&directory, None);
        let (seen, _) = events(&mut controller, &mut client, last);
        assert_eq!(words(&seen), ["started"], "the node is not there again by itself");
        agent.send(&joins(&names));
        agent.flush().expect("the controller is there");
        controller.look();
        controller.round();
        let (seen, _) = events(&mut controller, &mut client, last);
        assert_eq!(words(&seen), ["started", "joined a", "back b"]);
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// A client that waits for events from now on.
    fn reader(controller: &mut Stepped, user: Option<String>) -> Link {
        let (mut reader, end) = connection(Role::Client);
        controller.take_in(end.into()).expect("it is taken in");
        let query = EventQuery { wait: true, user, ..EventQuery::default() };
        reader.send(&Request::Events(query));
        reader.flush().expect("the controller is there");
        controller.look();
        controller.round();
        reader
    }

    fn reply_to(reader: &mut Link) -> Option<Reply> {
        reader.receive().expect("the controller is there");
        reader.next().expect("a message")
    }

    #[test]
    fn readers_are_few_and_hear_after_the_round_in_which_something_happened() {
        let names = ["a".to_owned()];
        let (mut controller, _client, mut agent, directory) = cluster("readers", &names);
        let too_much = |reply: Option<Reply>| {
            assert!(
                matches!(&reply, Some(Reply::Failed { code, .. }) if *code == Code::TooMuchAsked),
                "{reply:?}"
            );
        };
        too_much(reply_to(&mut reader(&mut controller, Some("u".repeat(256)))));
        let mut readers: Vec<Link> = (0..64).map(|_| reader(&mut controller, None)).collect();
        assert!(readers.iter_mut().all(|reader| reply_to(reader).is_none()));
        too_much(reply_to(&mut reader(&mut controller, None)));
        // The place of one that is gone is free.
        readers.pop();
        controller.look();
        controller.round();
        readers.push(reader(&mut controller, None));
        assert!(reply_to(&mut readers[63]).is_none());
        agent.send(&joins(&["b".to_owned()]));
        agent.flush().expect("the controller is there");
        controller.look();
        controller.round();
        assert!(readers.iter_mut().all(|reader| reply_to(reader).is_none()));
        assert!(controller.due_ns().is_some(), "the readers are due");
        controller.look();
        controller.round();
        for reader in &mut readers {
            let mut reply = reply_to(reader);
            // They are answered together, at most once in some milliseconds of the machine's clock.
            let until = Instant::now() + Duration::from_secs(20);
            while reply.is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
                controller.look();
                controller.round();
                reply = reply_to(reader);
            }
            let Some(Reply::Events { events, .. }) = &reply else { panic!("{reply:?}") };
            assert_eq!(words(events), ["joined b"]);
        }
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// What a request has changed, as events say it.
    fn changes(controller: &mut Stepped, client: &mut Link, request: &Request) -> Vec<String> {
        let (all, _) = events(controller, client, 0);
        let until = all.last().map_or(0, |event| event.number);
        client.send(request);
        client.flush().expect("the controller is there");
        let reply = answer(controller, client, Vec::new());
        assert!(!matches!(reply, Reply::Failed { .. }), "{reply:?}");
        let (new, _) = events(controller, client, until);
        let word = |record: &EventRecord| match &record.event.what {
            What::SettingChanged { kind, values, .. } => format!("{kind:?} {}", values.join(" ")),
            other => panic!("{other:?}"),
        };
        let latest = controller.driver.memory.journal.noted();
        assert_eq!(new.last().map(|event| event.entry), Some(latest));
        new.iter().map(word).collect()
    }

    #[test]
    fn an_allowance_changes_in_one_event_and_a_rule_by_use_says_what_it_is() {
        let (mut controller, mut client, _agent, directory) = cluster("settings", &["a".into()]);
        let mut of = |request: &Request| changes(&mut controller, &mut client, request);
        let allowance = |user: &str, value: &str| Setting {
            line: 0,
            section: Section::Bank,
            during: None,
            name: user.into(),
            value: value.into(),
        };
        let set = |settings| Request::Configure { settings, dry_run: false };
        let bank = |value: &str| set(vec![allowance("0", value)]);
        for (value, said) in [("9h/month", ""), ("9h/day", ""), ("8h", ""), ("none", "none")] {
            assert_eq!(of(&bank(value)), [format!("Bank {said}")], "{value}");
        }
        let two = ["0", "1"].map(|user| allowance(user, "9h/day"));
        assert_eq!(of(&set(two.into())), ["Bank ", "Bank "]);
        let class = |rule: &str| Request::SetClass {
            class: ClassName::new("interactive"),
            settings: vec![("after".into(), rule.into())],
        };
        assert_eq!(of(&class("10m:production")), ["Class after=10m:production"]);
        assert_eq!(of(&class("none")), ["Class after=none"]);
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    #[test]
    fn of_connections_with_requests_left_those_served_least_come_first() {
        let (mut controller, _client, _agent, directory) = cluster("turns", &["a".into()]);
        let asks = |_: usize| {
            let (mut client, end) = connection(Role::Client);
            (0..3).for_each(|_| client.send(&Request::Bank));
            client.flush().expect("the controller is there");
            controller.take_in(end.into()).expect("it is taken in");
            client
        };
        let clients: Vec<Link> = (0..3).map(asks).collect();
        controller.look();
        controller.round();
        let driver = &mut controller.driver;
        let tokens: Vec<u64> = driver.intake.unread.iter().copied().collect();
        assert_eq!(tokens.len(), 3, "each has requests left");
        for (token, served) in tokens.iter().zip([5, 1, 5]) {
            let connection = driver.intake.connections.get_mut(token).expect("it is there");
            assert!(connection.served > Nanos::ZERO, "the first was answered");
            connection.served = Nanos(served);
        }
        assert_eq!(driver.take_unread(), [tokens[1], tokens[2], tokens[0]]);
        drop((controller, clients));
        let _ = std::fs::remove_dir_all(&directory);
    }

    /// A job of a task on each of two nodes.
    fn of_two_nodes() -> JobRequest {
        let none = Vec::new;
        let bytes = |text: &str| serde_bytes::ByteBuf::from(text);
        JobRequest {
            class: ClassName::new("interactive"),
            tasks: 2,
            processors_per_task: Some(1),
            memory_per_task_bytes: None,
            time_limit: None,
            deadline: None,
            grace: Nanos::ZERO,
            weights: None,
            nodes: NodesRequest::default(),
            on_bad_exit: OnBadExit::default(),
            on_node_loss: OnNodeLoss::default(),
            no_requeue: false,
            within: None,
            launch: LaunchSpec {
                name: "it".into(),
                argv: vec![bytes("/bin/true")],
                script: None,
                environment: Vec::new(),
                directory: bytes("/"),
                umask: 0o022,
                rlimits: Vec::new(),
                stdio: Stdio::Files {
                    input: None,
                    output: bytes("/dev/null"),
                    error: None,
                    mode: OpenMode::default(),
                },
                processes_max: None,
                adopt: Vec::new(),
                nice: 0,
                slurm: false,
                resume: None,
                vacate: None,
            },
            queue: None,
            names_class: true,
            hold: false,
            resources: Vec::new(),
            first: FirstStep::EachSlot,
            after: None,
            singleton: false,
            begin_ms: None,
            warning: None,
            checkpoint: None,
            array: None,
            notify: None,
            policy_args: none(),
            swap: false,
        }
    }

    /// A part of what the first node has stored before a barrier; there are always more.
    fn stored(job: JobId, number: u32) -> FromBranch {
        let value = |place: u32| (vec![0; 16].into(), vec![place.to_le_bytes()[0]; 1000].into());
        let values = Values::from((0..100).map(value).collect::<Vec<_>>());
        let barrier = Barrier { group: BarrierGroup::World, tag: 0, round: 0 };
        let launch = LaunchId::first(job);
        let (is_last, bytes) = (false, values.bytes());
        let exchange = Exchange { launch, barrier, number, is_last, bytes, values };
        FromBranch::Exchange(Passed { nodes: vec![NodeId(0)], exchange })
    }

    #[test]
    fn a_job_that_stores_too_much_before_a_barrier_is_ended_at_once() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (mut controller, mut client, mut agent, directory) = cluster("greedy", &names);
        client.send(&Request::Submit(of_two_nodes(), SubmitKey([7; 16])));
        client.flush().expect("the controller is there");
        let reply = answer(&mut controller, &mut client, Vec::new());
        let Reply::Accepted { job, .. } = reply else { panic!("{reply:?}") };
        let kept = |controller: &Stepped| {
            let entry = &controller.driver.jobs[&job];
            (entry.run.exchanges.gathered_bytes(), entry.detail())
        };
        let mut most = 0;
        for number in 0..30 {
            agent.send(&stored(job, number));
            agent.flush().expect("the controller is there");
            controller.look();
            controller.round();
            let (bytes, detail) = kept(&controller);
            most = most.max(bytes);
            if bytes == 0 {
                assert!(most > 500_000, "it was ended at {most} bytes");
                assert!(detail.contains("stored more than"), "{detail}");
                let view = controller.core().job(job, controller.now()).expect("it ends");
                assert!(matches!(view.state, JobState::Ending { .. }), "{:?}", view.state);
                drop(controller);
                let _ = std::fs::remove_dir_all(&directory);
                return;
            }
        }
        panic!("{most} bytes are kept");
    }

    /// A part of what these nodes have stored before a round of a barrier, as one.
    fn of_nodes(job: JobId, nodes: &[u32], round: u32, part: (u32, bool)) -> FromBranch {
        let key = format!("{nodes:?} {round} {}", part.0).into_bytes();
        let values = Values::from(vec![(key.into(), vec![0; 8].into())]);
        let barrier = Barrier { group: BarrierGroup::World, tag: 0, round };
        let (launch, (number, is_last)) = (LaunchId::first(job), part);
        let bytes = values.bytes();
        let exchange = Exchange { launch, barrier, number, is_last, bytes, values };
        FromBranch::Exchange(Passed {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            exchange,
        })
    }

    /// Has the controller hear this. Gives the nodes, the rounds and the keys of the answers.
    fn answers(
        controller: &mut Stepped,
        agent: &mut Link,
        messages: &[FromBranch],
    ) -> Vec<(usize, u32, usize)> {
        messages.iter().for_each(|message| agent.send(message));
        agent.flush().expect("the controller is there");
        for _ in 0..3 {
            controller.look();
            controller.round();
            controller.bring_to_disk();
        }
        agent.receive().expect("the controller is there");
        let mut answers = Vec::new();
        while let Some(message) = agent.next::<ToBranch>().expect("a message") {
            if let ToBranch::Exchanged(Passed { nodes, exchange }) = message {
                answers.push((nodes.len(), exchange.barrier.round, exchange.values.len()));
            }
        }
        answers
    }

    #[test]
    fn what_is_said_once_more_of_an_earlier_barrier_ends_no_job_whose_other_ranks_have_ended() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (mut controller, mut client, mut agent, directory) = cluster("late", &names);
        client.send(&Request::Submit(of_two_nodes(), SubmitKey([8; 16])));
        client.flush().expect("the controller is there");
        let reply = answer(&mut controller, &mut client, Vec::new());
        let Reply::Accepted { job, .. } = reply else { panic!("{reply:?}") };
        let mut hear = |messages: &[FromBranch]| answers(&mut controller, &mut agent, messages);
        let whole = (0, true);
        // Each node for itself, then both as one, in parts of which the first comes once more.
        let single = [0, 1].map(|node| of_nodes(job, &[node], 0, whole));
        assert_eq!(hear(&single), [(2, 0, 2)]);
        let of_both = |part| of_nodes(job, &[0, 1], 1, part);
        assert_eq!(hear(&[of_both((0, false))]), []);
        assert_eq!(hear(&[of_both((0, false)), of_both((1, true))]), [(2, 1, 2)]);
        // The task of the first node has got it and ends. The other node's agent was started again,
        // and its keeper sends all that it knows.
        let launch = LaunchId::first(job);
        let (status, rank) = (tutti_types::TaskStatus::Exited(0), tutti_types::Rank(0));
        let usage = tutti_wire::launch::Usage::default();
        let report = FromAgent::TaskEnded { launch, rank, status, detail: String::new(), usage };
        let ended = Report { from: Origin::Nodes(vec![NodeId(0)]), report };
        let again = [0, 1].map(|round| of_nodes(job, &[1], round, whole));
        let [earlier, latest] = again;
        assert_eq!(hear(&[FromBranch::Reports(vec![ended]), earlier, latest]), [(1, 1, 2)]);
        let view = controller.core().job(job, controller.now()).expect("it runs");
        assert!(!matches!(view.state, JobState::Ending { .. }), "{:?}", view.state);
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }

    #[test]
    fn a_barrier_waits_for_what_a_node_sends_again_that_has_just_joined_again() {
        let names = ["a".to_owned(), "b".to_owned()];
        let (mut controller, mut client, mut agent, directory) = cluster("rejoined", &names);
        client.send(&Request::Submit(of_two_nodes(), SubmitKey([9; 16])));
        client.flush().expect("the controller is there");
        let reply = answer(&mut controller, &mut client, Vec::new());
        let Reply::Accepted { job, .. } = reply else { panic!("{reply:?}") };
        let mut hear = |messages: &[FromBranch]| answers(&mut controller, &mut agent, messages);
        // The other node's task has entered the barrier and died. What it stored was lost with an
        // agent between, which is gone.
        let launch = LaunchId::first(job);
        let again = joined_with(3, "b", vec![launch]);
        let (status, rank) = (tutti_types::TaskStatus::Exited(0), tutti_types::Rank(1));
        let usage = tutti_wire::launch::Usage::default();
        let report = FromAgent::TaskEnded { launch, rank, status, detail: String::new(), usage };
        let ended = Report { from: Origin::Nodes(vec![NodeId(1)]), report };
        let first = of_nodes(job, &[0], 0, (0, true));
        assert_eq!(hear(&[FromBranch::Reports(vec![again, ended]), first]), []);
        assert_eq!(hear(&[of_nodes(job, &[1], 0, (0, true))]), [(2, 0, 2)]);
        let view = controller.core().job(job, controller.now()).expect("it runs");
        assert!(!matches!(view.state, JobState::Ending { .. }), "{:?}", view.state);
        drop(controller);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
