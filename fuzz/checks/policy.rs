//! Any lines as what a site's policy program answers: the first as its greeting, the others as its
//! answers to rounds.
//!
//! What can be read is within its bounds. The orders go through a session to a core with a node,
//! jobs that run and jobs in line, and the session can say how it went on.

use tutti_core::{Core, Event};
use tutti_policy::protocol::{Item, ORDERS_MAX, parse_answer, parse_greeting};
use tutti_policy::{Mode, Session, Wrong};
use tutti_types::{
    ClassName, ClusterTime, GroupId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish, OnBadExit,
    OnNodeLoss, Params, ProcessorSet, RequestId, UserId, default_classes,
};

/// The length of what is said of a wrong answer, at most.
const WRONG_CHARS_MAX: usize = 400;

/// The length of the word of a timer, at most.
const TAG_BYTES_MAX: usize = 64;

/// The round for which answers are read that are not for the one that was asked.
const ROUND: u64 = 7;

fn spec(tasks: u32) -> JobSpec {
    JobSpec {
        owner: UserId(1000),
        group: GroupId(100),
        class: ClassName::new("production"),
        tasks,
        processors_per_task: Some(1),
        memory_per_task_bytes: None,
        time_limit: None,
        grace: Nanos::ZERO,
        attached: false,
        movable: false,
        deadline: None,
        weights: None,
        resources: Vec::new(),
        nodes: NodeWish::default(),
        on_node_loss: OnNodeLoss::default(),
        on_bad_exit: OnBadExit::default(),
    }
}

/// A core under `external` with a node, and a session that has seen all of it.
struct World {
    core: Core,
    session: Session,
    now: ClusterTime,
}

impl World {
    fn new() -> Self {
        let mut params = Params::default();
        params.choose("policy", "external").expect("there is this policy");
        let (core, session) = (Core::new(params, default_classes()), Session::new(Mode::Live));
        let mut world = Self { core, session, now: ClusterTime(1_000_000_000) };
        let processors = ProcessorSet::first(4);
        let spec_of_node = NodeSpec { name: "n0".into(), processors, memory_bytes: 1 << 30 };
        world.put(&Event::NodeJoined { node: NodeId(0), spec: spec_of_node });
        for tasks in [4, 4, 1, 9] {
            world.put(&Event::Submit { request: RequestId(0), spec: spec(tasks) });
        }
        world
    }

    fn put(&mut self, event: &Event) {
        self.core.apply(self.now, event, &mut Vec::new());
        self.session.note(&self.core, event);
    }

    /// Asks, and does what the answer says.
    fn round(&mut self, line: &[u8]) {
        self.now = self.now + Nanos::from_secs(1);
        let asked = self.session.line(&self.core, self.now);
        assert!(!asked.trim_end_matches('\n').contains('\n'), "a round is one line");
        let Some(answer) = [self.session.round(), ROUND].into_iter().find_map(|it| read(line, it))
        else {
            return;
        };
        self.session.take(answer);
        // An order is an event at most, and so is each change of who decides.
        for _ in 0..=2 * ORDERS_MAX {
            let Some(event) = self.session.next(&self.core, self.now) else { return };
            self.put(&event);
        }
        panic!("an answer has no end");
    }
}

fn is_short(wrong: &Wrong) -> bool {
    wrong.to_string().chars().count() <= WRONG_CHARS_MAX
}

fn read(line: &[u8], asked: u64) -> Option<tutti_policy::Answer> {
    let answer = match parse_answer(line, asked) {
        Ok(answer) => answer,
        Err(wrong) => {
            assert!(is_short(&wrong), "{wrong}");
            return None;
        }
    };
    assert!(answer.round == asked && answer.items.len() <= ORDERS_MAX);
    for item in &answer.items {
        if let Item::Timer(_, tag) = item {
            assert!(tag.len() <= TAG_BYTES_MAX);
        }
    }
    Some(answer)
}

/// See the file.
pub fn policy(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut world = World::new();
    match parse_greeting(lines.next().unwrap_or_default()) {
        Ok(greeting) => world.session.begin(greeting, &world.core),
        Err(wrong) => {
            assert!(is_short(&wrong), "{wrong}");
            let greeting = parse_greeting(br#"{"protocol":1,"places":true}"#);
            world.session.begin(greeting.expect("it is one"), &world.core);
        }
    }
    // Without an answer to what there is at first, no program is in charge.
    world.round(format!(r#"{{"round":{}}}"#, world.session.round() + 1).as_bytes());
    lines.for_each(|line| world.round(line));
}
