//! Agents that are in the control tree and do little else: no keeper, no processes, no switch
//! thread. A few threads have thousands of them, so that the tree can be measured at the size of a
//! large cluster.
//!
//! All that goes over the network is as with others; what a hollow agent is asked it has nothing to
//! say to.

pub(super) mod ranks;

use self::ranks::{Met, Ranks};
use super::clock::ClusterClock;
use super::driver::AgentOptions;
use super::tree::{Heard, Tree, TreeOptions};
use anyhow::Context;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tutti_node::link::{Interest, Poller, Ready};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{Device, DeviceId, NodeSpec};
use tutti_wire::tree::{Answer, FromAgent, Join, Question, ToAgent};

/// How long one waits that has found no parent.
const RETRY_NS: u64 = 20_000_000;

/// How often a thread sees whether it is to end.
const LOOK_NS: u64 = 50_000_000;

/// Many of them.
pub struct HollowAgents {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    joined: AtomicUsize,
    /// By agent, in the order in which they were given.
    ordered: Vec<AtomicU64>,
    met: Met,
    ends: AtomicBool,
}

/// What each is told at its start.
pub type Hollow = AgentOptions;

/// What a hollow node says that it has.
#[derive(Clone, Copy, Debug)]
pub struct HollowNode {
    /// How many processors.
    pub processors: u32,
    /// How much memory, in bytes.
    pub memory_bytes: u64,
    /// How many GPUs.
    pub gpus: u32,
    /// Whether the ranks of jobs there meet in barriers and end. Else nothing comes of a launch.
    pub has_ranks: bool,
}

impl Default for HollowNode {
    fn default() -> Self {
        Self { processors: 1, memory_bytes: 1 << 30, gpus: 0, has_ranks: false }
    }
}

impl HollowNode {
    fn devices(self) -> Vec<Device> {
        let gpu = |number| {
            let id: DeviceId = format!("gpu:{number}").parse().ok()?;
            let files = vec![format!("/dev/hollow-gpu{number}")];
            Some(Device {
                id,
                files,
                maker: None,
                pci: None,
                numa: None,
                near: [].into_iter().collect(),
            })
        };
        (0..self.gpus).filter_map(gpu).collect()
    }
}

impl HollowAgents {
    /// Starts them in so many threads, for nodes that all have the same. They begin to look for
    /// their places in the tree at once.
    pub fn start(agents: Vec<Hollow>, node: HollowNode, threads: usize) -> Self {
        let ordered = agents.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { ordered, ..Shared::default() });
        let share = agents.len().div_ceil(threads.max(1)).max(1);
        let mut agents = agents.into_iter();
        let mut running: Vec<JoinHandle<anyhow::Result<()>>> = Vec::new();
        loop {
            let first = running.len() * share;
            let some: Vec<Hollow> = agents.by_ref().take(share).collect();
            if some.is_empty() {
                return Self { shared, threads: running };
            }
            let shared = shared.clone();
            running.push(std::thread::spawn(move || run((first, some), node, &shared)));
        }
    }

    /// How often one of them was let in.
    pub fn joined(&self) -> usize {
        self.shared.joined.load(Ordering::Relaxed)
    }

    /// How many messages with orders each has had from its parent, in the order in which they were
    /// given. Questions do not count.
    pub fn ordered(&self) -> Vec<u64> {
        self.shared.ordered.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// What their ranks did.
    pub fn met(&self) -> &Met {
        &self.shared.met
    }

    /// Ends them.
    ///
    /// # Errors
    /// What any of them met.
    pub fn end(self) -> anyhow::Result<()> {
        self.shared.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of agents panicked"))??;
        }
        Ok(())
    }
}

struct Agent {
    /// Its place among all.
    number: usize,
    tree: Tree,
    poller: Poller,
    join: FromAgent,
    has_ranks: bool,
    /// Those of a job that have not ended.
    ranks: Option<Ranks>,
    connect_at_ns: Option<u64>,
}

/// Those of one thread, and when each has something to do by itself.
struct Crowd<'a> {
    agents: Vec<Agent>,
    due: BTreeSet<(u64, usize)>,
    due_ns: Vec<u64>,
    shared: &'a Shared,
}

impl Crowd<'_> {
    /// A round of one of them.
    fn round(&mut self, number: usize) -> anyhow::Result<()> {
        let Some(agent) = self.agents.get_mut(number) else { return Ok(()) };
        let due_ns = agent.round(self.shared)?.unwrap_or(u64::MAX);
        self.due.remove(&(self.due_ns[number], number));
        self.due.insert((due_ns, number));
        self.due_ns[number] = due_ns;
        Ok(())
    }

    /// A round of each that has waited for this moment.
    fn on_time(&mut self) -> anyhow::Result<()> {
        let until = (monotonic_ns(), usize::MAX);
        let late: Vec<usize> = self.due.range(..=until).map(|(_, number)| *number).collect();
        late.into_iter().try_for_each(|number| self.round(number))
    }
}

/// The loop of one thread.
fn run(
    (first, options): (usize, Vec<Hollow>),
    node: HollowNode,
    shared: &Shared,
) -> anyhow::Result<()> {
    let mut poller = Poller::new()?;
    let agents: anyhow::Result<Vec<Agent>> =
        (first..).zip(options).map(|(number, it)| Agent::new(number, it, node)).collect();
    let agents = agents.context("an agent cannot start")?;
    for (number, agent) in (0_u64..).zip(&agents) {
        poller.add(&agent.poller, number, Interest::READ)?;
    }
    let due_ns = vec![0; agents.len()];
    let due = (0..agents.len()).map(|number| (0, number)).collect();
    let mut crowd = Crowd { agents, due, due_ns, shared };
    let mut ready: Vec<Ready> = Vec::new();
    while !shared.ends.load(Ordering::Relaxed) {
        crowd.on_time()?;
        let next_ns = crowd.due.first().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        poller.wait(Some(next_ns.min(monotonic_ns() + LOOK_NS)), &mut ready)?;
        // Those that another thread has ended already are not missed.
        for event in ready.iter().take_while(|_| !shared.ends.load(Ordering::Relaxed)) {
            crowd.round(usize::try_from(event.token).unwrap_or(usize::MAX))?;
        }
    }
    for agent in &mut crowd.agents {
        agent.tree.close();
    }
    Ok(())
}

impl Agent {
    fn new(number: usize, options: Hollow, node: HollowNode) -> anyhow::Result<Self> {
        let spec = NodeSpec {
            name: options.node.clone(),
            processors: (0..node.processors).collect(),
            memory_bytes: node.memory_bytes,
        };
        let join = FromAgent::Join(Join {
            spec,
            held: Vec::new(),
            attach: Vec::new().into(),
            address: String::new(),
            tasks_max: node.processors,
            keeper: 1,
            features: [].into(),
            devices: node.devices(),
            swap: tutti_wire::report::NodeSwap::default(),
            images: None,
        });
        let poller = Poller::without_deadlines()?;
        let tree = TreeOptions::of(&options);
        let mut tree = Tree::new(tree, ClusterClock::default(), &poller);
        // No connection comes here, and descriptors are few for so many.
        tree.close();
        Ok(Self {
            number,
            tree,
            poller,
            join,
            has_ranks: node.has_ranks,
            ranks: None,
            connect_at_ns: Some(0),
        })
    }

    /// One round, when something has happened, or is due. Gives when something is due next.
    fn round(&mut self, shared: &Shared) -> anyhow::Result<Option<u64>> {
        let mut ready = Vec::new();
        self.poller.look(&mut ready)?;
        for event in ready.iter() {
            let heard = self.tree.on_ready(event.token, &self.poller);
            self.on_heard(heard, shared);
        }
        self.settle(shared)
    }

    fn settle(&mut self, shared: &Shared) -> anyhow::Result<Option<u64>> {
        let now_ns = monotonic_ns();
        let heard = self.tree.on_time(now_ns);
        self.on_heard(heard, shared);
        if self.connect_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.connect_at_ns = None;
            self.tree.connect(&self.poller);
            if !self.tree.has_parent() {
                self.connect_at_ns = Some(now_ns + RETRY_NS);
            }
        }
        let heard = self.tree.settle(&self.poller);
        self.on_heard(heard, shared);
        if let Some(count) = shared.ordered.get(self.number) {
            count.store(self.tree.ordered(), Ordering::Relaxed);
        }
        Ok(self.tree.due_ns().into_iter().chain(self.connect_at_ns).min())
    }

    fn on_heard(&mut self, heard: Vec<Heard>, shared: &Shared) {
        for heard in heard {
            match heard {
                Heard::Taken => {
                    let mut join = self.join.clone();
                    if let (FromAgent::Join(join), Some(ranks)) = (&mut join, &self.ranks) {
                        join.held.push(ranks.launch());
                    }
                    self.tree.join(join);
                }
                Heard::AskAnother => self.connect_at_ns = Some(0),
                Heard::ParentLost(_) => {
                    let wait_ns = if self.tree.has_another_way() { 0 } else { RETRY_NS };
                    self.connect_at_ns = Some(monotonic_ns() + wait_ns);
                }
                Heard::Order(order) => self.on_order(order, shared),
                Heard::Exchanged(part) => {
                    let hear = |it: &mut Ranks| it.hear(&part, &mut self.tree, &shared.met);
                    if self.ranks.as_mut().is_some_and(hear) {
                        self.ranks = None;
                    }
                }
                Heard::JoinAgain | Heard::ClockStepped | Heard::Lease { .. } => {}
            }
        }
    }

    fn on_order(&mut self, order: ToAgent, shared: &Shared) {
        match order {
            ToAgent::Welcome { settings, .. } => {
                self.tree.take_settings(&settings);
                shared.joined.fetch_add(1, Ordering::Relaxed);
                if let Some(ranks) = &self.ranks {
                    // What they have said may be lost.
                    ranks.say_again(&mut self.tree);
                }
            }
            ToAgent::Settings(settings) => self.tree.take_settings(&settings),
            ToAgent::Ask { query, question } => {
                let answer = match question {
                    Question::Switches { .. } => Answer::Switches(Vec::new()),
                    _ => Answer::Failed("there is nothing here but the tree".into()),
                };
                self.tree.report(FromAgent::Answer { query, answer });
            }
            ToAgent::Launch { launch, shares } if self.has_ranks => {
                let (tree, met) = (&mut self.tree, &shared.met);
                let own = shares.first();
                self.ranks = own.map(|(_, share)| Ranks::begin(launch.id(), share, tree, met));
            }
            ToAgent::Kill { launch } | ToAgent::Terminate { launch } => match self.ranks.take() {
                Some(ranks) if ranks.launch() == launch => ranks.die(&mut self.tree),
                others => self.ranks = others,
            },
            _ => {}
        }
    }
}
