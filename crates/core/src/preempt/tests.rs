use super::Place;
use crate::apply::Core;
use crate::state::record::{Binding, Part};
use crate::view::JobState;
use crate::{Action, Event, check::check};
use tutti_types::default_classes;
use tutti_types::ids::{ClassName, GroupId, JobId, NodeId, ProcessorSet, RequestId, UserId};
use tutti_types::job::{EndReason, JobSpec, NodeSpec, OnBadExit, TaskStatus};
use tutti_types::params::Params;
use tutti_types::time::{ClusterTime, Nanos};

const FIRST: JobId = JobId(1);
const SECOND: JobId = JobId(2);

/// Two nodes of two processors, and jobs of tasks with 100 bytes each.
struct Machine {
    core: Core,
    now: u64,
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self { core: Core::new(Params::default(), default_classes()), now: 0 };
        for node in [0, 1] {
            let processors = ProcessorSet::first(2);
            let spec = NodeSpec { name: "n".into(), processors, memory_bytes: 1000 };
            machine.apply(&Event::NodeJoined { node: NodeId(node), spec });
        }
        machine
    }

    fn apply(&mut self, event: &Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.core.apply(ClusterTime(self.now), event, &mut actions);
        assert_eq!(check(&self.core), [], "after {event:?}");
        actions
    }

    fn submit(&mut self, tasks: u32, movable: bool) {
        let spec = JobSpec {
            owner: UserId(1),
            group: GroupId(1),
            class: ClassName::new("production"),
            tasks,
            processors_per_task: Some(1),
            memory_per_task_bytes: Some(100),
            time_limit: Some(Nanos::from_millis(50)),
            grace: Nanos::from_millis(10),
            attached: false,
            movable,
            weights: None,
            resources: Vec::new(),
            deadline: None,
            nodes: tutti_types::NodeWish::default(),
            on_node_loss: tutti_types::OnNodeLoss::default(),
            on_bad_exit: OnBadExit::Continue,
        };
        self.apply(&Event::Submit { request: RequestId(0), spec });
    }

    /// Time passes, in milliseconds.
    fn at(&mut self, now: u64) -> Vec<Action> {
        self.now = now * 1_000_000;
        self.apply(&Event::Tick)
    }

    /// The first job begins to leave.
    fn move_out(&mut self) -> Vec<Action> {
        self.core.move_out(FIRST);
        self.apply(&Event::Tick)
    }

    fn moved_out(&mut self) -> Vec<Action> {
        self.apply(&Event::MovedOut { job: FIRST })
    }

    fn moved_in(&mut self) -> Vec<Action> {
        self.apply(&Event::MovedIn { job: FIRST })
    }

    fn place(&self) -> Option<Place> {
        self.core.job(FIRST, ClusterTime(self.now)).map(|view| view.place)
    }

    fn service(&self) -> u64 {
        self.core.service(FIRST).0 / 1_000_000
    }

    fn memory(&self) -> Vec<u64> {
        self.core.nodes().map(|node| node.admitted_bytes).collect()
    }

    /// Kills the first job, and says that nothing of it is left.
    fn end(&mut self) {
        self.apply(&Event::Cancel { job: FIRST, reason: EndReason::Cancelled, at_once: true });
        self.apply(&Event::JobsEnded { jobs: vec![FIRST], status: TaskStatus::Signaled(9) });
        assert_eq!(self.place(), None);
    }
}

fn asks(actions: &[Action], what: &Action) -> bool {
    actions.contains(what)
}

#[test]
fn who_leaves_holds_its_processors_until_they_are_free_and_runs_on_none() {
    let mut m = Machine::new();
    m.submit(2, false);
    m.submit(4, false);
    m.apply(&Event::Cancel { job: SECOND, reason: EndReason::Cancelled, at_once: true });
    m.apply(&Event::JobsEnded { jobs: vec![SECOND], status: TaskStatus::Signaled(9) });
    m.at(20);
    let actions = m.move_out();
    assert!(asks(&actions, &Action::MoveOut { job: FIRST }));
    let told =
        |action: &Action| matches!(action, Action::Timetable { .. } | Action::Timetables { .. });
    assert!(told(&actions[0]), "it is out of the timetables first: {actions:?}");
    m.at(30);
    assert_eq!((m.place(), m.service()), (Some(Place::Leaving), 20));
    assert_eq!(m.core.nodes().next().unwrap().used, ProcessorSet::first(2));
    let timetable = m.core.timetable(NodeId(0)).unwrap();
    assert!(timetable.slots.iter().all(|slot| slot.candidates.is_empty()));
    // The policy gang preempts no job, so it comes back at once.
    assert!(asks(&m.moved_out(), &Action::MoveIn { job: FIRST }));
    m.at(40);
    assert_eq!((m.place(), m.service()), (Some(Place::Coming), 20));
    m.moved_in();
    assert_eq!(m.place(), Some(Place::Home));
    let ended = m.at(70);
    assert!(ended.iter().any(|a| matches!(a, Action::Terminate { .. })), "its 50 are over");
    assert_eq!(m.service(), 50);
}

#[test]
fn who_comes_back_finds_its_processors_in_a_new_row_if_need_be() {
    let mut m = Machine::new();
    m.submit(2, false);
    m.move_out();
    // Its processors count as taken still, so this one gets a row of its own, and moves up.
    m.submit(4, false);
    m.moved_out();
    m.moved_in();
    assert_eq!(m.core.rows().count(), 2);
    assert_eq!(m.core.parts(FIRST)[0].node, NodeId(0), "where its tasks are");
}

#[test]
fn whoever_is_out_of_place_can_be_killed_and_lose_a_node() {
    for steps in 0..3 {
        for kill in [true, false] {
            let mut m = Machine::new();
            m.submit(4, false);
            m.move_out();
            if steps > 0 {
                m.moved_out();
            }
            if steps > 1 {
                m.moved_in();
            }
            if kill {
                let cancel =
                    Event::Cancel { job: FIRST, reason: EndReason::Cancelled, at_once: true };
                assert!(asks(&m.apply(&cancel), &Action::Kill { job: FIRST, node: NodeId(1) }));
            } else {
                let actions = m.apply(&Event::NodeLost { node: NodeId(0) });
                assert!(asks(&actions, &Action::Kill { job: FIRST, node: NodeId(1) }), "{steps}");
            }
            m.moved_out();
            m.end();
            assert_eq!(m.memory(), [0, 0]);
        }
    }
}

#[test]
fn a_killed_job_that_was_leaving_stays_aside_until_it_is_gone() {
    let mut m = Machine::new();
    m.submit(4, false);
    m.move_out();
    m.apply(&Event::Cancel { job: FIRST, reason: EndReason::Cancelled, at_once: true });
    m.moved_out();
    assert_eq!((m.place(), m.memory()), (Some(Place::Aside), vec![200, 200]));
    let again =
        NodeSpec { name: "n".into(), processors: ProcessorSet::first(2), memory_bytes: 1000 };
    let actions = m.apply(&Event::NodeJoined { node: NodeId(1), spec: again });
    assert!(asks(&actions, &Action::Kill { job: FIRST, node: NodeId(1) }), "it may have missed it");
    assert_eq!(m.core.nodes().next().unwrap().jobs, [FIRST]);
    let actions = m.apply(&Event::NodeLost { node: NodeId(0) });
    assert!(!asks(&actions, &Action::Kill { job: FIRST, node: NodeId(1) }), "once is enough");
    assert_eq!(m.memory(), [0, 200]);
    m.apply(&Event::JobCleared { job: FIRST, nodes: vec![NodeId(1)] });
    assert_eq!((m.place(), m.memory()), (None, vec![0, 0]));
}

#[test]
fn suspended_on_the_way_it_comes_back_without_turns() {
    let mut m = Machine::new();
    m.submit(2, false);
    m.move_out();
    m.apply(&Event::Suspend { job: FIRST });
    m.moved_out();
    m.moved_in();
    m.at(20);
    assert_eq!((m.place(), m.service()), (Some(Place::Home), 0));
    m.apply(&Event::Resume { job: FIRST });
    m.at(30);
    assert_eq!(m.service(), 10);
    m.move_out();
    m.apply(&Event::Suspend { job: FIRST });
    m.apply(&Event::Resume { job: FIRST });
    m.at(50);
    assert_eq!(m.service(), 10, "resumed, and not back yet");
}

#[test]
fn who_is_asked_to_end_on_the_way_gets_its_turns_when_it_is_back() {
    let mut m = Machine::new();
    m.submit(2, false);
    m.move_out();
    let actions =
        m.apply(&Event::Cancel { job: FIRST, reason: EndReason::Cancelled, at_once: false });
    assert!(actions.iter().any(|a| matches!(a, Action::Terminate { .. })));
    m.moved_out();
    m.moved_in();
    let state = m.core.job(FIRST, ClusterTime(0)).unwrap().state;
    assert!(matches!(state, JobState::Ending { .. }));
    m.at(5);
    assert_eq!(m.service(), 5);
    let actions = m.at(10);
    assert!(asks(&actions, &Action::Kill { job: FIRST, node: NodeId(0) }), "its grace is over");
    m.end();
}

#[test]
fn who_is_movable_goes_on_elsewhere_and_takes_its_memory_along() {
    let mut m = Machine::new();
    m.submit(2, true);
    m.submit(2, false);
    assert_eq!(m.memory(), [200, 200]);
    m.move_out();
    let mut actions = Vec::new();
    // What a policy would do that has found another place.
    let residence = m.core.residence_mut(FIRST).unwrap();
    residence.place = Place::Aside;
    m.core.matrix.remove(FIRST);
    m.core.ledger.leave(FIRST);
    m.core.aside.insert(FIRST);
    assert!(m.core.is_movable(FIRST) && !m.core.is_movable(SECOND));
    let part =
        Part { binding: Binding::Own(1), ..Part::new(NodeId(1), ProcessorSet::first(2), 0, 2) };
    m.core.move_to(FIRST, None, vec![part]);
    m.core.apply(ClusterTime(0), &Event::Tick, &mut actions);
    assert!(asks(&actions, &Action::MoveIn { job: FIRST }));
    assert_eq!(check(&m.core), []);
    assert_eq!((m.core.parts(FIRST)[0].node, m.memory()), (NodeId(1), vec![0, 400]));
    m.moved_in();
    m.end();
    assert_eq!(m.memory(), [0, 200]);
}
