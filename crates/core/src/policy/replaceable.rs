//! A policy is replaceable: one that is as small as can be, in a file of its own.
//!
//! It stands in for an entry of [`POLICIES`](super::POLICIES), the list that a policy of the
//! product is added to. Of the core only [`of`](super::of) knows of it, in builds for tests alone.
//! The guide's page on policies in Rust shows that file.

use super::{ALONE, Policy};
use crate::apply::Core;
use crate::check::check;
use crate::event::Event;
use crate::view::JobState;
use core::cell::Cell;
use tutti_types::default_classes;
use tutti_types::ids::{ClassName, GroupId, JobId, NodeId, ProcessorSet, RequestId, UserId};
use tutti_types::job::{JobSpec, NodeSpec, OnBadExit, TaskStatus};
use tutti_types::params::Params;
use tutti_types::time::{ClusterTime, Nanos};

std::thread_local! {
    static IN_PLACE: Cell<Option<&'static Policy>> = const { Cell::new(None) };
}

/// The policy that a test has put in place of those of the list.
pub(super) fn in_place() -> Option<&'static Policy> {
    IN_PLACE.get()
}

fn states(core: &Core) -> [bool; 2] {
    [1, 2].map(|job| {
        let view = core.job(JobId(job), core.now());
        view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
    })
}

#[test]
fn a_policy_is_added_by_one_file_and_the_list() {
    let mut core = Core::new(Params::default(), default_classes());
    let apply = |core: &mut Core, event: &Event| {
        core.apply(ClusterTime(0), event, &mut alloc::vec::Vec::new());
        assert_eq!(check(core), [], "after {event:?}");
    };
    let processors = ProcessorSet::first(2);
    let spec = NodeSpec { name: "n".into(), processors, memory_bytes: 1000 };
    apply(&mut core, &Event::NodeJoined { node: NodeId(0), spec });
    let submit = |core: &mut Core| {
        let spec = JobSpec {
            owner: UserId(1),
            group: GroupId(1),
            class: ClassName::new("production"),
            tasks: 1,
            processors_per_task: Some(1),
            memory_per_task_bytes: None,
            time_limit: None,
            grace: Nanos::ZERO,
            attached: false,
            movable: false,
            weights: None,
            resources: alloc::vec::Vec::new(),
            deadline: None,
            nodes: tutti_types::NodeWish::default(),
            on_node_loss: tutti_types::OnNodeLoss::default(),
            on_bad_exit: OnBadExit::Continue,
        };
        apply(core, &Event::Submit { request: RequestId(0), spec });
    };
    IN_PLACE.set(Some(&ALONE));
    submit(&mut core);
    submit(&mut core);
    assert_eq!(states(&core), [true, false], "there is a processor for each");
    let ended = Event::JobsEnded { jobs: [JobId(1)].into(), status: TaskStatus::Exited(0) };
    apply(&mut core, &ended);
    assert_eq!(states(&core), [false, true]);
    submit(&mut core);
    IN_PLACE.set(None);
    // The line is looked at anew when parameters change, as a policy is chosen by one.
    let mut params = Params::default();
    params.choose("policy", "space").unwrap();
    apply(&mut core, &Event::SetParams { params });
    let view = core.job(JobId(3), core.now());
    assert!(
        view.is_some_and(|view| matches!(view.state, JobState::Running { .. })),
        "another policy"
    );
}

#[test]
fn the_page_of_the_guide_shows_this_policy() {
    let page = include_str!("../../../../docs/guide/policy-in-rust.md");
    assert!(page.contains(include_str!("alone.rs")));
}
