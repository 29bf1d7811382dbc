//! One agent, and what its neighbours say of streams.

use super::*;
use crate::clock::ClusterClock;
use crate::peer::Neighbour;
use crate::routes::{Child, Routes};
use crate::transport::Carrier;
use crate::tree::TreeOptions;
use crate::tree::children::Below;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tutti_node::instance::Instance;
use tutti_node::membership;
use tutti_secure::{Fingerprint, Member, Name};
use tutti_types::{NodeSpec, ProcessorSet};
use tutti_wire::branch::{FromBranch, Joining, Order, Origin, Recipients, Report, ToBranch};
use tutti_wire::frame::{FrameBuffer, decode};
use tutti_wire::tree::{FromAgent, Join, Settings, ToAgent};

const LEFT: Child = 1000;
const RIGHT: Child = 1001;

/// Nodes below each of them, and one that is not below.
const ON_LEFT: Place = Place::Node(NodeId(1));
const ON_RIGHT: Place = Place::Node(NodeId(2));
const HERE: Place = Place::Node(NodeId(0));
const ELSEWHERE: Place = Place::Node(NodeId(9));

/// The stream that the node on the left has opened.
const TUNNEL: TunnelId = TunnelId { opener: NodeId(1), number: 77 };

/// An agent with two children, with one node below each.
struct Bench {
    tree: Tree,
    poller: Poller,
    directory: PathBuf,
    left: Link<Carrier>,
    right: Link<Carrier>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Bench {
    fn new(name: &str, is_root: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("tutti-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let instance = Instance::at(directory.clone());
        let options = TreeOptions {
            name: "here".into(),
            controller: instance.controller_socket(),
            keeper: instance.keeper_socket(),
            gate: instance.gate_socket(),
            private: true,
            membership: None,
            place: membership::Place::of(&instance),
        };
        let poller = Poller::new().expect("a descriptor");
        let mut tree = Tree::new(options, ClusterClock::default(), &poller);
        tree.routes = Routes::new("here".into(), is_root);
        tree.routes.note_own(1);
        welcome(&mut tree, "here", 0);
        let left = child(&mut tree, &poller, LEFT, "left", 1);
        let right = child(&mut tree, &poller, RIGHT, "right", 2);
        Self { tree, poller, directory, left, right }
    }

    /// Whether a part of a stream is passed on that has come this way.
    fn passes(&mut self, came: Way, from: Place, to: Place, part: Part) -> bool {
        self.tree.on_tunnelled(came, Tunnelled { from, to, tunnel: TUNNEL, part });
        !std::mem::take(&mut self.tree.ways.tunnelled).is_empty()
    }

    /// A child says this, and a round is over.
    fn hear(&mut self, from: Child, part: Tunnelled) {
        let link = if from == LEFT { &mut self.left } else { &mut self.right };
        link.send(&FromBranch::Tunnel(part));
        link.flush().expect("it takes it");
        self.tree.on_ready(from, &self.poller);
        self.tree.settle(&self.poller);
    }
}

/// A child of this name and node has come and joined.
fn child(tree: &mut Tree, poller: &Poller, token: Child, name: &str, node: u32) -> Link<Carrier> {
    let link = |end: UnixStream| {
        end.set_nonblocking(true).expect("a socket");
        Link::over(Carrier::Local(Stream::from(end)))
    };
    let (own, theirs) = UnixStream::pair().expect("two ends");
    let (mut own, mut theirs) = (link(own), link(theirs));
    own.greet(Role::Server);
    poller.add(&own, token, Interest::READ).expect("it can be watched");
    let named = |name: &str| Name::new(name).expect("a name");
    let member = Member { cluster: named("c"), role: tutti_secure::Role::Node, name: named(name) };
    let key = Fingerprint::from_bytes([0; 32]);
    let below = Below::new(Neighbour::new(own, token), (&member, key), u64::MAX);
    tree.branch.children.insert(token, below);
    let here =
        FromBranch::Here { name: name.into(), address: String::new(), unreachable: Vec::new() };
    theirs.greet(Role::Agent);
    theirs.send(&here);
    theirs.flush().expect("it takes it");
    tree.on_child(token);
    tree.settle(poller);
    theirs.receive().expect("it is there");
    assert!(matches!(theirs.next(), Ok(Some(ToBranch::Taken { .. }))));
    let spec = NodeSpec { name: name.into(), processors: ProcessorSet::default(), memory_bytes: 0 };
    let (held, attach, address) = (Vec::new(), Vec::new().into(), String::new());
    let join = Join {
        spec,
        held,
        attach,
        address,
        tasks_max: 1,
        keeper: 1,
        features: [].into(),
        devices: Vec::new(),
        swap: tutti_wire::report::NodeSwap::default(),
        images: None,
    };
    let joining = Joining { attempt: 1, life: 1, ..Joining::default() };
    let mut report = Report { from: Origin::Joiner(joining), report: FromAgent::Join(join) };
    assert!(tree.routes.note_report(token, &mut report));
    welcome(tree, name, node);
    assert!(tree.routes.is_below(NodeId(node), token));
    theirs
}

fn welcome(tree: &mut Tree, name: &str, node: u32) {
    let settings = Settings { fan_out: 2, ..Settings::default() };
    let (node, known) = (NodeId(node), Vec::new());
    let order = ToAgent::Welcome { node, clock_ahead_ns: 0, settings, known };
    let life = u64::from(name != "here");
    let to = Recipients::Joiner { name: name.into(), attempt: 1, life };
    assert_eq!(tree.routes.split(Order { to, order }).orders.len(), 1);
}

fn bytes(data: &[u8]) -> Part {
    Part::Bytes(data.to_vec().into())
}

fn open(node: u32) -> Part {
    let (groups, hard_limits, is_trusted) = (Vec::new(), Vec::new(), false);
    let node = NodeId(node);
    Part::Open(Vouch { node, uid: 1, gid: 1, groups, pid: 1, hard_limits, is_trusted })
}

/// The parts of streams that a child has been sent.
fn sent(link: &mut Link<Carrier>) -> Vec<Tunnelled> {
    link.receive().expect("it is there");
    let mut parts = Vec::new();
    while let Some(message) = link.next::<ToBranch>().expect("a message") {
        if let ToBranch::Tunnel(part) = message {
            parts.push(part);
        }
    }
    parts
}

#[test]
fn a_part_of_a_stream_comes_from_the_side_where_its_end_is() {
    let mut bench = Bench::new("sides", false);
    let (left, right) = (Way::Down(LEFT), Way::Down(RIGHT));
    for (came, from, to, passes) in [
        (left, ON_LEFT, ON_RIGHT, true),
        (left, ON_LEFT, HERE, true),
        (left, ON_LEFT, Place::Controller, true),
        (left, ON_LEFT, ELSEWHERE, true),
        (Way::Up, ELSEWHERE, ON_LEFT, true),
        (Way::Up, Place::Controller, ON_LEFT, true),
        (Way::Up, ELSEWHERE, HERE, true),
        // In the name of a node that is not below it, of the controller, of this node.
        (right, ON_LEFT, Place::Controller, false),
        (right, ELSEWHERE, ON_LEFT, false),
        (right, Place::Controller, ON_LEFT, false),
        (right, HERE, ON_LEFT, false),
        (Way::Up, ON_RIGHT, ON_LEFT, false),
        (Way::Up, HERE, ON_LEFT, false),
        // Nor is anything sent back where it came from.
        (Way::Up, Place::Controller, ELSEWHERE, false),
    ] {
        for part in [bytes(b"a"), Part::Taken(1), Part::End(None)] {
            let shown = format!("{part:?} from {from:?} to {to:?} over {came:?}");
            assert_eq!(bench.passes(came, from, to, part), passes, "{shown}");
        }
    }
    // A stream has the name of the agent that opens it, which vouches for no other node's users.
    assert!(bench.passes(left, ON_LEFT, Place::Controller, open(1)));
    assert!(!bench.passes(left, ON_LEFT, Place::Controller, open(2)));
    assert!(!bench.passes(right, ON_RIGHT, Place::Controller, open(2)), "it is called after 1");
    assert!(!bench.passes(right, ON_RIGHT, Place::Controller, open(1)));
}

#[test]
fn who_has_moved_is_heard_from_where_it_is_now() {
    let mut bench = Bench::new("moved", false);
    let (left, right) = (Way::Down(LEFT), Way::Down(RIGHT));
    bench.tree.routes.gone(LEFT, vec![NodeId(1)]);
    assert!(!bench.passes(left, ON_LEFT, Place::Controller, bytes(b"a")));
    assert!(bench.passes(Way::Up, ON_LEFT, ON_RIGHT, bytes(b"a")), "it is elsewhere");
    assert!(bench.passes(right, ON_RIGHT, ON_LEFT, bytes(b"a")));
    // Without a parent, those below still have each other.
    bench.tree.routes.leave();
    assert!(bench.passes(right, ON_RIGHT, ON_LEFT, bytes(b"a")));
}

#[test]
fn what_is_forged_of_a_stream_reaches_no_daemon_and_cuts_nobodys_but_who_sent_it() {
    let mut bench = Bench::new("forged", true);
    let controller = UnixListener::bind(&bench.tree.options.controller).expect("a socket");
    controller.set_nonblocking(true).expect("a socket");
    let of_left = |part| Tunnelled { from: ON_LEFT, to: Place::Controller, tunnel: TUNNEL, part };
    bench.hear(LEFT, of_left(open(1)));
    let (mut daemon, _) = controller.accept().expect("it is connected with the controller");
    daemon.set_nonblocking(true).expect("a socket");
    let mut introduction = FrameBuffer::new();
    let mut room = [0; 4096];
    let count = daemon.read(&mut room).expect("it says for whom");
    introduction.extend(&room[..count]);
    introduction.next_frame().expect("a greeting");
    let vouch = introduction.next_frame().expect("a frame").map(decode::<Vouch>);
    assert!(matches!(vouch, Some(Ok(Vouch { uid: 1, .. }))));
    for part in [bytes(b"forged"), Part::Taken(1), Part::End(Some(refusal("cut", Code::Other)))] {
        // In the other's name, and in its own; towards either end.
        bench.hear(RIGHT, of_left(part.clone()));
        let (from, to) = (ON_RIGHT, Place::Controller);
        bench.hear(RIGHT, Tunnelled { from, to, tunnel: TUNNEL, part: part.clone() });
        let (from, to) = (Place::Controller, ON_LEFT);
        bench.hear(RIGHT, Tunnelled { from, to, tunnel: TUNNEL, part });
    }
    // As an agent that opens it once more, which would be answered with its end.
    bench.hear(RIGHT, of_left(open(1)));
    assert!(sent(&mut bench.left).is_empty(), "the other hears of it");
    let answers = sent(&mut bench.right);
    assert!(answers.iter().all(|it| matches!(it.part, Part::End(_))), "{answers:?}");
    let speaks = |it: &&Tunnelled| matches!(&it.part, Part::End(Some(it)) if it.reason == "its agent speaks for another node");
    assert_eq!(answers.iter().filter(speaks).count(), 5, "{answers:?}");
    bench.hear(LEFT, of_left(bytes(b"theirs")));
    let count = daemon.read(&mut room).expect("what was really said");
    assert_eq!(&room[..count], b"theirs");
    daemon.write_all(b"answer").expect("it is taken");
    let token = bench.tree.entrance.next_token;
    bench.tree.on_ready(token, &bench.poller);
    bench.tree.settle(&bench.poller);
    let answers = sent(&mut bench.left);
    assert!(matches!(&answers[..], [it] if it.part == bytes(b"answer")), "{answers:?}");
}
