//! The session against a real core, without a process.

use crate::protocol::{PROTOCOL, Wrong, parse_answer, parse_greeting};
use crate::{Greeting, Mode, NodeSession, Out, Session, parse_node_answer};
use serde_json::{Value, json};
use tutti_core::{Core, Event, Order};
use tutti_types::{
    ClassName, ClusterTime, EndReason, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish,
    OnBadExit, OnNodeLoss, Params, ProcessorSet, RequestId, TaskStatus, UserId, default_classes,
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
        self.answer_until(orders, &Value::Null)
    }

    fn answer_until(&mut self, orders: &Value, until: &Value) -> Vec<Event> {
        let answer = json!({"round": self.session.round(), "orders": orders, "until": until});
        let answer = answer.to_string();
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

/// A world with one row, its program in charge.
fn world_of_one_row() -> World {
    let mut world = World::new();
    let mut params = world.core.params().clone();
    params.set("rows", 1).unwrap();
    world.put(&Event::SetParams { params });
    world.begin();
    world.line();
    world.answer(&json!([]));
    world.line();
    world
}

impl World {
    fn is_due(&self) -> bool {
        self.session.due(self.now) <= self.now
    }

    fn end(&mut self, job: u64) {
        let jobs = vec![JobId(job)];
        self.put(&Event::JobsEnded { jobs, status: TaskStatus::Exited(0) });
    }
}

#[test]
fn a_program_that_rests_is_asked_when_a_new_job_would_fit() {
    let mut world = world_of_one_row();
    let new_jobs = json!({"new_jobs": true});
    world.answer_until(&json!([]), &new_jobs);
    let first = world.submit(3);
    assert!(world.is_due(), "it fits");
    assert_eq!(of(&world.line(), "request").len(), 1);
    world.answer_until(&json!([{"order": "start", "job": first}]), &new_jobs);
    assert!(!world.is_due(), "that it is started is no news");
    let second = world.submit(2);
    assert!(!world.is_due(), "one processor is free");
    world.end(first);
    assert!(world.is_due(), "it fits now");
    let line = world.line();
    assert_eq!(of(&line, "request")[0]["job"], second, "{line}");
    // The first came and went; the program knows it by its own order.
    assert_eq!(of(&line, "ended"), [json!({"event": "ended", "job": first})], "{line}");
    assert!(of(&line, "started").is_empty() && of(&line, "gone").is_empty(), "{line}");
    // What came while the program was asked counts, too.
    let third = world.submit(1);
    world.answer_until(&json!([]), &new_jobs);
    assert!(world.is_due());
    assert_eq!(of(&world.line(), "request")[0]["job"], third);
}

#[test]
fn a_program_that_waits_for_processors_is_asked_when_so_many_are_free() {
    let mut world = world_of_one_row();
    world.answer(&json!([]));
    let (first, second) = (world.submit(1), world.submit(2));
    world.line();
    let starts = [first, second].map(|job| json!({"order": "start", "job": job}));
    let waits = json!({"free": 4});
    world.answer_until(&json!(starts), &waits);
    for _ in 0..300 {
        world.submit(1);
    }
    world.end(second);
    assert!(!world.is_due());
    world.end(first);
    assert!(world.is_due());
    assert_eq!(of(&world.line(), "request").len(), 300);
    world.answer_until(&json!([]), &waits);
    assert!(!world.is_due(), "they are free already, and nothing is new");
    world.submit(1);
    assert!(world.is_due());
}

#[test]
fn what_is_more_than_news_of_jobs_ends_a_rest() {
    let mut world = world_of_one_row();
    let first = world.submit(1);
    world.answer(&json!([]));
    world.line();
    let rests = json!({});
    let timer = json!({"order": "timer", "after_ns": 5_000_000_000_u64});
    world.answer_until(&json!([timer]), &rests);
    let at = world.now + Nanos::from_secs(5);
    assert_eq!(world.session.due(world.now), at, "a timer comes at its time");
    world.now = at;
    world.line();
    world.answer_until(&json!([]), &rests);
    assert_eq!(world.session.due(world.now), ClusterTime::NEVER);
    let cancel = |job| Event::Cancel { job, reason: EndReason::Cancelled, at_once: true };
    world.put(&cancel(JobId(first)));
    assert!(world.is_due(), "a job of the line is gone");
    world.line();
    world.answer_until(&json!([{"order": "start", "job": first}]), &rests);
    assert!(world.session.due(world.now) < ClusterTime::NEVER, "a refusal comes");
    world.line();
    world.answer_until(&json!([]), &rests);
    world.join(1, 2);
    assert!(world.is_due(), "a node is new");
    world.line();
    world.answer_until(&json!([]), &rests);
    for _ in 0..499 {
        world.submit(1);
    }
    assert!(!world.is_due());
    world.submit(1);
    assert!(world.is_due(), "so many news come without what is waited for");
    world.line();
    world.answer_until(&json!([]), &rests);
    world.put(&Event::PolicyInCharge { on: false });
    assert!(world.is_due(), "it is not in charge");
}

#[test]
fn news_of_nodes_are_of_those_that_changed() {
    let mut world = World::new();
    (1..20).for_each(|node| world.join(node, 4));
    world.begin();
    assert_eq!(of(&world.line(), "node").len(), 20);
    world.answer(&json!([]));
    world.line();
    world.answer(&json!([]));
    let drained = Event::SetDrained { node: NodeId(7), reason: Some(String::new()) };
    world.put(&drained);
    let line = world.line();
    let nodes = of(&line, "node");
    assert_eq!((nodes.len(), &nodes[0]["takes_jobs"]), (1, &json!(false)), "{line}");
    assert_eq!(nodes[0]["node"], 7);
}

#[test]
fn who_yields_hears_of_news_in_lots_and_of_timers_at_once() {
    let mut world = World::new();
    world.begin();
    world.line();
    world.answer(&json!([{"order": "yield"}, {"order": "timer", "after_ns": 5_000_000_000u64}]));
    // What the program knows already makes no round.
    world.submit(1);
    let minute = world.now + Nanos::from_secs(60);
    let timer = world.now + Nanos::from_secs(5);
    assert_eq!(world.session.due(world.now), timer);
    world.now = timer;
    let line = world.line();
    assert_eq!((of(&line, "timer").len(), of(&line, "started").len()), (1, 1), "{line}");
    world.answer(&json!([]));
    world.submit(1);
    assert_eq!(world.session.due(world.now), world.now + Nanos::from_secs(60));
    assert!(world.session.due(world.now) > minute);
    for _ in 0..99 {
        world.submit(1);
    }
    assert_eq!(world.session.due(world.now), world.now, "100 of them");
    world.line();
    world.answer(&json!([{"order": "take_charge"}]));
    world.submit(1);
    assert_eq!(world.session.due(world.now), world.now);
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

/// A part on a node that has two jobs, each in a row of its own.
fn world_with_rows() -> (World, NodeSession, Vec<u64>) {
    let mut world = World::new();
    world.begin();
    world.line();
    world.answer(&json!([]));
    let jobs: Vec<u64> = (0..2).map(|_| world.submit(4)).collect();
    world.line();
    let start = |job: &u64| json!({"order": "start", "job": job, "row": "new"});
    assert_eq!(world.answer(&jobs.iter().map(start).collect()).len(), 2);
    let mut part = NodeSession::new(Mode::Live, NodeId(0), "n0");
    part.begin();
    part.note_timetable(&world.core.timetable(NodeId(0)).unwrap());
    (world, part, jobs)
}

fn candidates(timetable: &Value, slot: usize) -> Vec<u64> {
    let all = timetable["slots"][slot]["candidates"].as_array().unwrap();
    all.iter().map(|it| it["job"].as_u64().unwrap()).collect()
}

#[test]
fn a_part_on_a_node_arranges_its_timetable_and_the_core_reckons_by_that() {
    let (mut world, mut part, jobs) = world_with_rows();
    assert_eq!(part.due(world.now), world.now);
    let line: Value = serde_json::from_str(&part.line(world.now)).unwrap();
    assert_eq!(candidates(&line["timetable"], 0), jobs, "{line}");
    let row = line["timetable"]["slots"][0]["row"].as_u64().unwrap();
    let second = json!({"job": jobs[1], "if_absent": "hold"});
    let text = json!({"round": 1, "orders": [
        {"order": "arrange", "row": row, "candidates": [second]},
        {"order": "arrange", "row": row, "candidates": [second, {"job": 77}]},
        {"order": "message", "text": "hello"},
    ]});
    part.take(parse_node_answer(text.to_string().as_bytes(), 1).unwrap());
    let mut refusals = Vec::new();
    while let Some((index, out)) = part.next(world.now) {
        match out {
            Out::Message(text) => world.session.parts().take_in(NodeId(0), text),
            Out::Arrange { row, candidates } => {
                let order = Order::Arrange { node: NodeId(0), row, candidates };
                let parts = world.session.parts();
                match parts.consider(&world.core, world.now, order) {
                    Ok(event) => world.put(&event),
                    Err(reason) => refusals.push((index, reason)),
                }
            }
        }
    }
    assert_eq!(refusals, [(1, format!("job 77 is no candidate of row {row} on node 0"))]);
    let line = world.line();
    assert_eq!(of(&line, "message"), [json!({"event": "message", "node": 0, "text": "hello"})]);
    part.note_timetable(&world.core.timetable(NodeId(0)).unwrap());
    let line: Value = serde_json::from_str(&part.line(world.now)).unwrap();
    assert_eq!(candidates(&line["timetable"], 0), [jobs[1], jobs[0]], "{line}");
    // The second has all turns now, and the first none.
    world.now = ClusterTime(world.now.0 + 10_000_000_000);
    world.put(&Event::Tick);
    let runs = |job: u64| world.core.runs_in(tutti_types::JobId(job)).len();
    assert_eq!((runs(jobs[0]), runs(jobs[1])), (0, 2));
    // Without the program the built-in order holds again.
    world.put(&Event::PolicyInCharge { on: false });
    world.now = ClusterTime(world.now.0 + 10_000_000_000);
    world.put(&Event::Tick);
    let runs = |job: u64| world.core.runs_in(tutti_types::JobId(job)).len();
    assert_eq!((runs(jobs[0]), runs(jobs[1])), (1, 1));
}

#[test]
fn what_a_part_says_is_bounded() {
    let (world, mut part, _) = world_with_rows();
    let wrong = |orders: Value| {
        let text = json!({"round": 7, "orders": orders}).to_string();
        matches!(parse_node_answer(text.as_bytes(), 7), Err(Wrong::Malformed(_)))
    };
    assert!(wrong(json!([{"order": "message", "text": "x".repeat(1025)}])));
    assert!(wrong(json!([{"order": "start", "job": 1}])), "that is not a node's matter");
    assert!(wrong(json!([{"order": "arrange", "candidates": vec![json!({"job": 1}); 257]}])));
    assert!(wrong(json!([{"order": "timer"}])));
    assert!(parse_node_answer(b"{\"round\":6}", 7).is_err());
    part.line(world.now);
    let says = json!({"round": 1, "orders": vec![json!({"order": "message", "text": "x"}); 1000]});
    part.take(parse_node_answer(says.to_string().as_bytes(), 1).unwrap());
    let mut passed = 0;
    while part.next(world.now).is_some() {
        passed += 1;
    }
    assert!((100..110).contains(&passed), "{passed}");
    // Refusals alone make no round.
    assert_eq!(part.due(world.now), ClusterTime::NEVER);
    (0..200).for_each(|number| part.take_in(number.to_string()));
    let line: Value = serde_json::from_str(&part.line(world.now)).unwrap();
    assert_eq!(of(&line, "message").len(), 100);
    assert_eq!(of(&line, "messages_lost"), [json!({"event": "messages_lost", "count": 100})]);
    assert_eq!(of(&line, "refused").len(), 100);
}

#[test]
fn messages_to_parts_need_parts_and_a_node() {
    let (mut world, ..) = world_with_rows();
    world.line();
    let message = json!([{"order": "message", "node": 0, "text": "x"}]);
    world.answer(&message);
    assert!(world.session.parts().take_out().is_empty());
    world.session.parts().want(true);
    world.submit(1);
    let line = world.line();
    assert!(of(&line, "refused")[0]["reason"].as_str().unwrap().contains("policy_node"), "{line}");
    let both = json!([{"order": "message", "text": "all"},
        {"order": "message", "node": 9, "text": "x"}, message[0]]);
    world.answer(&both);
    let sent = world.session.parts().take_out();
    assert_eq!(sent, [(None, "all".to_owned()), (Some(NodeId(0)), "x".to_owned())]);
}
