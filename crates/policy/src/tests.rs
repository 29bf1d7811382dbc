//! The session against a real core, without a process.

use crate::protocol::{PROTOCOL, Wrong, parse_answer, parse_greeting};
use crate::{Greeting, Mode, Session};
use serde_json::{Value, json};
use tutti_core::{Core, Event};
use tutti_types::{
    ClassName, ClusterTime, GroupId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish, OnBadExit,
    OnNodeLoss, Params, ProcessorSet, RequestId, UserId, default_classes,
};

/// A core under `external` with a node of four processors, and a program that knows all.
struct World {
    core: Core,
    session: Session,
    now: ClusterTime,
}

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

impl World {
    fn new() -> Self {
        let mut params = Params::default();
        params.choose("policy", "external").unwrap();
        let core = Core::new(params, default_classes());
        let (session, now) = (Session::new(Mode::Live), ClusterTime(1_000_000_000));
        let mut world = Self { core, session, now };
        world.join(0, 4);
        world
    }

    fn begin(&mut self) {
        let greeting = Greeting { protocol: PROTOCOL, places: true };
        self.session.begin(greeting, &self.core);
    }

    fn put(&mut self, event: &Event) {
        self.core.apply(self.now, event, &mut Vec::new());
        self.session.note(&self.core, event);
    }

    fn join(&mut self, node: u32, processors: u32) {
        let processors = ProcessorSet::first(processors);
        let spec = NodeSpec { name: format!("n{node}"), processors, memory_bytes: 0 };
        self.put(&Event::NodeJoined { node: NodeId(node), spec });
    }

    fn submit(&mut self, tasks: u32) -> u64 {
        self.put(&Event::Submit { request: RequestId(0), spec: spec(tasks) });
        self.core.jobs_made()
    }

    fn line(&mut self) -> Value {
        serde_json::from_str(&self.session.line(&self.core, self.now)).unwrap()
    }

    /// Answers; gives the events that followed.
    fn answer(&mut self, orders: &Value) -> Vec<Event> {
        let answer = json!({"round": self.session.round(), "orders": orders}).to_string();
        self.session.take(parse_answer(answer.as_bytes(), self.session.round()).unwrap());
        let mut events = Vec::new();
        while let Some(event) = self.session.next(&self.core, self.now) {
            self.put(&event);
            events.push(event);
        }
        events
    }
}

fn of(line: &Value, event: &str) -> Vec<Value> {
    let events = line["events"].as_array().unwrap();
    events.iter().filter(|it| it["event"] == event).cloned().collect()
}

#[test]
fn an_order_is_done_once_and_its_news_come_back() {
    let mut world = World::new();
    world.submit(4);
    let (wide, small) = (world.submit(4), world.submit(1));
    world.begin();
    let line = world.line();
    // The first was started before the program was there.
    assert_eq!(of(&line, "started").len(), 3, "{line}");
    assert_eq!(line["in_charge"], false);
    let events = world.answer(&json!([]));
    assert_eq!(events, [Event::PolicyInCharge { on: true }]);
    let (third, fourth) = (world.submit(4), world.submit(1));
    let line = world.line();
    assert_eq!(of(&line, "request").len(), 2, "{line}");
    let start = json!({"order": "start", "job": third, "row": "new"});
    let events = world.answer(&json!([start, start, {"order": "start", "job": 99}]));
    assert_eq!(events.len(), 1, "{events:?}");
    let line = world.line();
    assert_eq!(of(&line, "started")[0]["job"], third);
    let refused = of(&line, "refused");
    assert_eq!(refused[0]["reason"], format!("job {third} is not in line"));
    assert_eq!((&refused[1]["index"], &refused[1]["job"]), (&json!(2), &json!(99)));
    assert_eq!(world.answer(&json!([{"order": "decline", "job": fourth}])).len(), 1);
    assert!(world.core.job(tutti_types::JobId(fourth), world.now).is_none());
    assert!(wide < small);
}

#[test]
fn what_is_free_is_right_after_a_node_was_lost() {
    let mut world = World::new();
    world.join(1, 2);
    world.begin();
    world.line();
    world.answer(&json!([]));
    let job = world.submit(6);
    world.line();
    world.answer(&json!([{"order": "start", "job": job}]));
    let free = |line: &Value, node: u64| {
        let found = of(line, "node").into_iter().rfind(|it| it["node"] == node);
        found.map(|node| node["free"].clone())
    };
    let line = world.line();
    assert_eq!(free(&line, 1).unwrap().as_object().unwrap().values().next().unwrap(), "");
    world.answer(&json!([]));
    world.put(&Event::NodeLost { node: NodeId(1) });
    let line = world.line();
    assert_eq!(of(&line, "node_gone"), [json!({"event": "node_gone", "node": 1})]);
    world.answer(&json!([]));
    world.join(1, 2);
    let line = world.line();
    assert_eq!(free(&line, 1), Some(json!({})), "{line}");
}

#[test]
fn orders_that_are_no_starts_have_a_rate() {
    let mut world = World::new();
    world.begin();
    world.line();
    world.answer(&json!([]));
    let job = world.submit(4);
    let mut done = 0;
    for _ in 0..5 {
        world.line();
        let class = |n| if n % 2 == 0 { "interactive" } else { "production" };
        let order = |n| json!({"order": "class", "job": job, "class": class(n)});
        done += world.answer(&(0..1000).map(order).collect()).len();
    }
    assert!((900..=1000).contains(&done), "{done}");
    // Refusals alone make fewer and fewer rounds.
    let mut rounds = 0;
    while world.session.due(world.now) < ClusterTime::NEVER {
        world.now = world.session.due(world.now);
        world.line();
        world.answer(&json!([{"order": "start", "job": 99}]));
        rounds += 1;
        assert!(rounds < 20);
    }
}

#[test]
fn a_job_with_which_the_program_fails_twice_is_left_to_the_built_in_policy() {
    let mut world = World::new();
    world.begin();
    world.line();
    world.answer(&json!([]));
    let jobs: Vec<u64> = (0..40).map(|_| world.submit(4)).collect();
    let bad = jobs[17];
    for life in 0.. {
        assert!(life < 10, "the job keeps the program out");
        world.session.failed();
        world.put(&Event::PolicyInCharge { on: false });
        world.begin();
        let fails = |line: &Value| of(line, "request").iter().any(|it| it["job"] == bad);
        let mut is_ok = true;
        while is_ok && world.session.due(world.now) <= world.now {
            is_ok = !fails(&world.line());
            if is_ok {
                world.answer(&json!([]));
            }
        }
        if is_ok {
            break;
        }
    }
    assert!(world.core.outside_decides());
    let gets = |job: &&u64| world.core.request(tutti_types::JobId(**job)).is_some();
    assert!(!jobs.iter().filter(gets).any(|job| *job == bad));
}

#[test]
fn answers_are_bounded_and_garbage_is_no_answer() {
    assert!(parse_greeting(b"{\"protocol\":1}").is_ok());
    assert_eq!(parse_greeting(b"{\"protocol\":2}"), Err(Wrong::OtherProtocol(2)));
    let wrong = |text: &str| parse_answer(text.as_bytes(), 7).unwrap_err();
    assert_eq!(wrong("{\"round\":6}"), Wrong::OtherRound { answered: 6, asked: 7 });
    let orders = vec![json!({"order": "start", "job": 1}); 1001];
    assert_eq!(wrong(&json!({"round": 7, "orders": orders}).to_string()), Wrong::TooMany(1001));
    let deep = "[".repeat(100_000);
    let texts = ["", "rubbish", "[]", "{\"round\":-1}", "{\"round\":7,\"orders\":{}}", &deep];
    for text in texts {
        assert!(matches!(wrong(text), Wrong::Malformed(_)), "{text}");
    }
    let place = |processors: &str| {
        let places = json!([{"node": 0, "processors": processors}]);
        json!({"round": 7, "orders": [{"order": "start", "job": 1, "places": places}]}).to_string()
    };
    assert!(parse_answer(place("0-3,8").as_bytes(), 7).is_ok());
    for processors in ["", "3-0", "0-4000000000", "8,0-3", "0,0", "a"] {
        assert!(matches!(wrong(&place(processors)), Wrong::Malformed(_)), "{processors}");
    }
}
