//! `tutti-bench tree`: the control tree at the size of a large cluster.
//!
//! The head is an instance of the benchmark's own, with its controller and agent. The other nodes
//! are agents in this process that have nothing but their places in the tree, over TLS like all
//! others (`agent/src/hollow.rs`). A message to all is a question that the controller asks every
//! node; it counts as done when the last answer is with the asker.
//!
//! With `--star` the head trusts no member's root, as heads do unless they are told to, and so all
//! are its own children.
//!
//! All of them share the processors of this machine, so the time that passes grows with the number
//! of nodes here. What each must do is told beside it: on machines of their own that is what a
//! message takes, once for each step down.

use super::figures::{self, Figure};
use super::{Bench, progress};
use anyhow::{Context, ensure};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tutti_agent::{BARRIERS, Hollow, HollowAgents, HollowNode, RANKS_PER_NODE};
use tutti_client::output::{Align, Table, print_json, print_table};
use tutti_client::scratch::{ScratchInstance, remove_on_signal};
use tutti_node::instance::Instance;
use tutti_node::membership::{Membership, Place};
use tutti_secure::{Credentials, Key};
use tutti_types::{JobId, Nanos, NodeId, Params};
use tutti_wire::launch::{OpenMode, Stdio};
use tutti_wire::local::{Reply, Request};
use tutti_wire::units::{format_bytes, format_duration_short};

/// How long all may take to join.
const PATIENCE: Duration = Duration::from_secs(300);

/// Threads that have the agents.
const THREADS: usize = 2;

/// What an agent has open: its poller, its port, the connection with its parent, and the parent's
/// end of that.
const DESCRIPTORS_EACH: u64 = 4;

/// What all else has open, and the agents on their way from one parent to another.
const DESCRIPTORS_BESIDE: u64 = 1024;

/// The sizes at which something must be reached.
const JOINING_NODES: usize = 256;
const MESSAGE_NODES: usize = 4096;

#[derive(Args, Debug)]
pub(super) struct TreeArgs {
    /// How many nodes besides the head
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 256, 1024, 4096])]
    nodes: Vec<usize>,

    /// How many agents connect to the same one
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 16, 32, 64])]
    fan_out: Vec<u32>,

    /// All connect to the head, as they do where it was not started with `--trust-root`
    #[arg(long, conflicts_with = "fan_out")]
    star: bool,

    /// How many messages
    #[arg(long)]
    rounds: Option<usize>,

    /// Also exchange a card of 1 KiB of each of 16 hollow ranks per node, as MPI programs do at
    /// their start
    #[arg(long)]
    exchange: bool,
}

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report(Vec<Row>);

#[derive(Debug, Serialize)]
struct Row {
    nodes: usize,
    /// Nothing where all are the head's own children.
    fan_out: Option<u32>,
    /// The most connections between a node and the head.
    depth: u16,
    /// Until all had joined.
    joining_ms: u64,
    /// A question to all and all their answers, the median.
    message_us: u64,
    /// The same, the slowest.
    message_max_us: u64,
    /// Processor time of the head's controller and agent for one question.
    head_cpu_us: u64,
    /// Processor time of the others for one question, each.
    node_cpu_ns: u64,
    /// The most that the clock of any node may be off.
    clock_error_us: u64,
    /// What the controller takes for each node.
    controller_bytes_per_node: u64,
    /// What hollow ranks exchanged, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<Exchanged>,
}

/// A barrier before which each rank has stored a card, in the mean.
#[derive(Debug, Serialize)]
struct Exchanged {
    ranks: u64,
    /// Until all nodes have the cards of all.
    took_us: u64,
    /// Messages with cards between the head's agent and its children, and what the cards take.
    head_received: u64,
    head_received_bytes: u64,
    head_sent: u64,
    head_sent_bytes: u64,
    /// Processor time of the head's controller and agent.
    head_cpu_us: u64,
}

pub(super) fn measure(bench: &Bench, args: &TreeArgs) -> anyhow::Result<Report> {
    let most = args.nodes.iter().copied().max().unwrap_or(0);
    let shapes = match args.star {
        true => vec![None],
        false => args.fan_out.iter().copied().map(Some).collect(),
    };
    let fan_out = shapes.iter().copied().max().flatten().unwrap_or(0);
    make_room(most, fan_out)?;
    let cluster = Cluster::found(most, !args.star)?;
    let rounds = args.rounds.unwrap_or(if bench.quick { 5 } else { 21 }).max(1);
    let mut rows = Vec::new();
    for &nodes in &args.nodes {
        for &fan_out in &shapes {
            let shape =
                fan_out.map_or_else(|| "all at the head".into(), |it| format!("fan-out {it}"));
            progress(&format!("tree: {nodes} nodes, {shape}"));
            rows.push(cluster.measure(nodes, fan_out, rounds, args.exchange)?);
        }
    }
    Ok(Report(rows))
}

/// All agents are in this process, each with its descriptors.
pub(super) fn make_room(nodes: usize, fan_out: u32) -> anyhow::Result<()> {
    tutti_node::limits::make_room();
    let (room, _) =
        getrlimit(Resource::RLIMIT_NOFILE).context("cannot read how many files may be open")?;
    let needed = u64::try_from(nodes)? * DESCRIPTORS_EACH + u64::from(fan_out) + DESCRIPTORS_BESIDE;
    ensure!(
        needed <= room,
        "{nodes} nodes need {needed} open files, and {room} are allowed here; raise the hard limit \
         (`ulimit -Hn`), run it as root, or ask for fewer with --nodes"
    );
    Ok(())
}

impl Report {
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(&self.0);
        }
        self.show_table()?;
        self.show_exchanges()?;
        let goals: Vec<Figure> = self.0.iter().filter_map(Row::goal).collect();
        if goals.is_empty() {
            return Ok(());
        }
        tutti_client::output::print("\n")?;
        figures::show(&goals, false)
    }

    fn show_table(&self) -> anyhow::Result<()> {
        let mut table = Table::new(&[
            ("NODES", Align::Right),
            ("FAN-OUT", Align::Right),
            ("DEPTH", Align::Right),
            ("JOINING", Align::Right),
            ("MESSAGE", Align::Right),
            ("SLOWEST", Align::Right),
            ("CPU: HEAD", Align::Right),
            ("EACH NODE", Align::Right),
            ("CLOCK", Align::Right),
            ("CONTROLLER", Align::Right),
        ]);
        let us = |us: u64| format_duration_short(Nanos(us * 1000));
        for row in &self.0 {
            table.row([
                row.nodes.to_string(),
                row.fan_out.map_or_else(|| "-".into(), |fan_out| fan_out.to_string()),
                row.depth.to_string(),
                us(row.joining_ms * 1000),
                us(row.message_us),
                us(row.message_max_us),
                us(row.head_cpu_us),
                format_duration_short(Nanos(row.node_cpu_ns)),
                us(row.clock_error_us),
                format!("{} a node", format_bytes(row.controller_bytes_per_node)),
            ]);
        }
        print_table(&table)
    }
}

impl Report {
    fn show_exchanges(&self) -> anyhow::Result<()> {
        if self.0.iter().all(|row| row.exchange.is_none()) {
            return Ok(());
        }
        tutti_client::output::print("\n")?;
        let mut table = Table::new(&[
            ("NODES", Align::Right),
            ("FAN-OUT", Align::Right),
            ("RANKS", Align::Right),
            ("EXCHANGE", Align::Right),
            ("HEAD: RECEIVED", Align::Right),
            ("SENT", Align::Right),
            ("CPU", Align::Right),
        ]);
        for (row, it) in self.0.iter().filter_map(|row| Some((row, row.exchange.as_ref()?))) {
            let passed = |parts: u64, bytes| format!("{parts}, {}", format_bytes(bytes));
            table.row([
                row.nodes.to_string(),
                row.fan_out.map_or_else(|| "-".into(), |fan_out| fan_out.to_string()),
                it.ranks.to_string(),
                format_duration_short(Nanos(it.took_us * 1000)),
                passed(it.head_received, it.head_received_bytes),
                passed(it.head_sent, it.head_sent_bytes),
                format_duration_short(Nanos(it.head_cpu_us * 1000)),
            ]);
        }
        print_table(&table)
    }
}

impl Row {
    /// What must be reached at this size, with the fan-out that clusters have unless they are told
    /// otherwise.
    fn goal(&self) -> Option<Figure> {
        if self.fan_out.map(u64::from) != Some(Params::default().fan_out()) {
            return None;
        }
        let nodes = self.nodes;
        let (what, took, most) = match nodes {
            JOINING_NODES => {
                let took = Nanos::from_millis(self.joining_ms);
                (format!("{nodes} nodes join"), took, Nanos::from_secs(5))
            }
            MESSAGE_NODES => {
                let took = Nanos(self.message_us * 1000);
                (
                    format!("a message to {nodes} nodes and all answers"),
                    took,
                    Nanos::from_millis(100),
                )
            }
            _ => return None,
        };
        let (measured, must_reach) = (format_duration_short(took), format_duration_short(most));
        Some(Figure::goal(&what, measured, &must_reach, took <= most))
    }
}

/// What heads and members are made of: certificates are made once.
pub(super) struct Cluster {
    directory: PathBuf,
    head: Membership,
    members: Vec<Hollow>,
}

impl Cluster {
    /// Makes the certificates of a head and so many members.
    ///
    /// # Errors
    /// If there is no room for them, or the system makes no keys.
    pub(super) fn found(members: usize, trusts_root: bool) -> anyhow::Result<Self> {
        progress(&format!("tree: certificates of {members} nodes"));
        let directory = std::env::temp_dir().join(format!("tutti-tree-{}", std::process::id()));
        remove_on_signal(&directory)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let head = Membership {
            cluster: "bench".into(),
            name: "head".into(),
            listen: Some(address.clone()),
            address: Some(address.clone()),
            head: Vec::new(),
            trusts_root,
            is_client: false,
            certificates_s: None,
        };
        let mut cluster = Self { directory, head, members: Vec::new() };
        let place = Place::of(&cluster.instance("head"));
        place.found(&cluster.head)?;
        let names: Vec<String> = (0..members).map(|number| format!("m{number}")).collect();
        let keys: Vec<Key> = names.iter().map(|_| Key::generate()).collect::<Result<_, _>>()?;
        let requests: Vec<(String, Vec<u8>)> = names
            .iter()
            .zip(&keys)
            .map(|(name, key)| Ok((name.clone(), key.request()?)))
            .collect::<anyhow::Result<_>>()?;
        let (certificates, authority) = place.enrol(&requests)?;
        for ((name, key), certificate) in names.into_iter().zip(keys).zip(certificates) {
            let membership = Membership {
                name: name.clone(),
                listen: Some("127.0.0.1:0".into()),
                address: None,
                head: vec![address.clone()],
                trusts_root: false,
                is_client: false,
                ..cluster.head.clone()
            };
            let instance = cluster.instance(&name);
            let own = Place::of(&instance);
            own.join(&membership, &Credentials::new(key, &certificate, &authority)?)?;
            cluster.members.push(Hollow {
                controller: instance.controller_socket(),
                keeper: instance.keeper_socket(),
                gate: instance.gate_socket(),
                vacate: instance.vacate_socket(),
                supervisor: instance.supervisor_socket(),
                private: true,
                membership: Some(membership),
                place: own,
                cgroup_name: String::new(),
                node: name,
                program: None,
                released: JobId(0),
                images: None,
            });
        }
        Ok(cluster)
    }

    fn instance(&self, name: &str) -> Instance {
        Instance::at(self.directory.join(name))
    }

    /// Starts the head.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn head(&self) -> anyhow::Result<ScratchInstance> {
        let from = self.instance("head").cluster_directory();
        ScratchInstance::prepared("bench", |instance| {
            let to = instance.cluster_directory();
            Place::of(instance).make()?;
            for file in std::fs::read_dir(&from)?.flatten() {
                std::fs::copy(file.path(), to.join(file.file_name()))?;
            }
            Ok(())
        })
    }

    /// Starts so many members, each with one processor, and waits until the head has let all of
    /// them in.
    ///
    /// # Errors
    /// If that takes too long.
    pub(super) fn join(&self, nodes: usize) -> anyhow::Result<HollowAgents> {
        self.join_as(nodes, HollowNode::default())
    }

    /// The same, for nodes that have this.
    ///
    /// # Errors
    /// If that takes too long.
    pub(super) fn join_as(&self, nodes: usize, node: HollowNode) -> anyhow::Result<HollowAgents> {
        let begun = Instant::now();
        let agents = HollowAgents::start(self.members[..nodes].to_vec(), node, THREADS);
        while agents.joined() < nodes {
            ensure!(begun.elapsed() < PATIENCE, "{} of {nodes} have joined", agents.joined());
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(agents)
    }

    fn measure(
        &self,
        nodes: usize,
        fan_out: Option<u32>,
        rounds: usize,
        exchanges: bool,
    ) -> anyhow::Result<Row> {
        let own = self.head()?;
        if let Some(fan_out) = fan_out {
            own.set("fan_out", &fan_out.to_string())?;
        }
        let Reply::Status(status) = own.ask(&Request::Status)? else {
            return tutti_client::ask::unexpected();
        };
        let head_pids: Vec<i32> = std::iter::once(status.pid)
            .chain(status.agents.iter().map(|agent| agent.pid))
            .collect();
        let before_kb = super::idle::kilobytes(status.pid, "Rss:")?;
        let begun = Instant::now();
        let node = match exchanges {
            true => {
                let alone = HollowNode::default();
                HollowNode { processors: RANKS_PER_NODE, has_ranks: true, ..alone }
            }
            false => HollowNode::default(),
        };
        let agents = self.join_as(nodes, node)?;
        let joining_ms = u64::try_from(begun.elapsed().as_millis())?;
        // What joining has begun is to be over.
        std::thread::sleep(Duration::from_secs(2));
        let mut times_us = Vec::new();
        let used_before = Used::read(&head_pids)?;
        for _ in 0..rounds {
            let asked = Instant::now();
            let latest = Request::Switches { count: 1, from: NodeId(0) };
            let Reply::Switches { nodes: answers, .. } = own.ask(&latest)? else {
                return tutti_client::ask::unexpected();
            };
            times_us.push(u64::try_from(asked.elapsed().as_micros())?);
            ensure!(answers.len() == nodes + 1, "{} of {nodes} nodes answered", answers.len() - 1);
        }
        let used = Used::read(&head_pids)?;
        let questions = u64::try_from(rounds)?;
        times_us.sort_unstable();
        let after_kb = super::idle::kilobytes(status.pid, "Rss:")?;
        let reports = tutti_client::ask::pages_of_nodes(|from| own.ask(&Request::Nodes { from }))?;
        let exchange = match exchanges {
            true => Some(exchange(&own, &agents, nodes, &head_pids)?),
            false => None,
        };
        // They would say that they miss it.
        agents.end()?;
        own.end()?;
        Ok(Row {
            nodes,
            fan_out,
            depth: reports.iter().filter_map(|report| report.depth).max().unwrap_or(0),
            joining_ms,
            message_us: times_us.get(rounds / 2).copied().context("there was no round")?,
            message_max_us: times_us.last().copied().unwrap_or(0),
            head_cpu_us: used.head_ns.saturating_sub(used_before.head_ns) / questions / 1000,
            node_cpu_ns: used.others_ns.saturating_sub(used_before.others_ns)
                / questions
                / u64::try_from(nodes.max(1))?,
            clock_error_us: reports.iter().filter_map(|it| it.clock_error_ns).max().unwrap_or(0)
                / 1000,
            controller_bytes_per_node: after_kb.saturating_sub(before_kb) * 1024
                / u64::try_from(nodes.max(1))?,
            exchange,
        })
    }
}

/// Has ranks of all nodes but the head exchange their cards.
fn exchange(
    own: &ScratchInstance,
    agents: &HollowAgents,
    nodes: usize,
    head_pids: &[i32],
) -> anyhow::Result<Exchanged> {
    let ranks = u32::try_from(nodes)? * RANKS_PER_NODE;
    let null = || serde_bytes::ByteBuf::from(&b"/dev/null"[..]);
    let stdio = Stdio::Files { input: None, output: null(), error: None, mode: OpenMode::Append };
    let options = super::options(ranks, Some(1))?;
    let argv = ["hollow".into()];
    let mut request = tutti_client::job_request(&options, "production", &argv, None, stdio)?;
    request.nodes.exclude = Some("head".into());
    let before = Used::read(head_pids)?;
    let key = tutti_client::new_key()?;
    let Reply::Accepted { job, .. } = own.ask(&Request::Submit(request, key))? else {
        return tutti_client::ask::unexpected();
    };
    own.wait(job)?;
    let used = Used::read(head_pids)?;
    let (met, barriers) = (agents.met(), u64::from(BARRIERS));
    let each = |count: &AtomicU64| count.load(Ordering::Relaxed) / barriers;
    Ok(Exchanged {
        ranks: u64::from(ranks),
        took_us: met.took_ns() / 1000 / barriers,
        head_received: each(&met.at_head.up),
        head_received_bytes: each(&met.at_head.up_bytes),
        head_sent: each(&met.at_head.down),
        head_sent_bytes: each(&met.at_head.down_bytes),
        head_cpu_us: used.head_ns.saturating_sub(before.head_ns) / 1000 / barriers,
    })
}

/// Processor time used so far, in nanoseconds.
struct Used {
    /// By the head's daemons.
    head_ns: u64,
    /// By all threads of this process but the one that asks.
    others_ns: u64,
}

impl Used {
    fn read(head_pids: &[i32]) -> anyhow::Result<Self> {
        let mut head_ns = 0;
        for &pid in head_pids {
            head_ns += used_ns(pid)?;
        }
        let whole_ns = read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        let own_ns = read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        Ok(Self { head_ns, others_ns: whole_ns.saturating_sub(own_ns) })
    }
}

/// Processor time that a process has used so far, in nanoseconds.
///
/// # Errors
/// If there is no such process.
pub(super) fn used_ns(pid: i32) -> anyhow::Result<u64> {
    read_ns(clock_getcpuclockid(Pid::from_raw(pid))?)
}

fn read_ns(clock: ClockId) -> anyhow::Result<u64> {
    let time = clock_gettime(clock).context("cannot read a processor clock")?;
    Ok(u64::try_from(Duration::from(time).as_nanos())?)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
