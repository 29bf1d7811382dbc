//! The hub by itself: what steps of jobs hear of each other.

use super::*;
use crate::pmix::PmixNode;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use tutti_types::StepId;

const SECOND_NS: u64 = 1_000_000_000;

/// A step on its first node.
fn step(job: u64, step: u32) -> Part {
    let launch = LaunchId { job: JobId(job), number: 0, step: StepId(step) };
    Part { launch, node: NodeId(0) }
}

/// The same step on another node.
fn on(part: Part, node: u32) -> Part {
    Part { node: NodeId(node), ..part }
}

/// A step of two tasks on each of so many nodes.
fn space(part: Part, nodes: u32) -> PmixSpace {
    let node = |at| PmixNode { node: NodeId(at), name: format!("n{at}"), tasks: 2 };
    PmixSpace {
        name: format!("space-{}-{}", part.launch.job, part.launch.step),
        nodes: (0..nodes).map(node).collect(),
        node: part.node.0,
        universe: 2,
        programs: Vec::new(),
        parent: None,
    }
}

fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes())
}

/// A hub with these steps, each of user 7 on one node.
fn hub(steps: &[Part]) -> Hub {
    let mut hub = Hub::default();
    for &step in steps {
        hub.add(step, UserId(7), space(step, 1), &mut Out::new());
    }
    hub
}

/// The answers that a step hears to this.
fn ask(hub: &mut Hub, asker: Part, number: u32, what: Ask) -> Vec<(Part, u32, Answer)> {
    let mut out = Out::new();
    hub.ask((asker, number), (0, 0), what, &mut out);
    answers(out)
}

fn answers(out: Out) -> Vec<(Part, u32, Answer)> {
    let of = |(step, message)| match message {
        ToPmix::Answer { number, answer } => Some((step, number, answer)),
        _ => None,
    };
    out.into_iter().filter_map(of).collect()
}

fn publish(name: &str, once: bool) -> Ask {
    let value = Value { kind: 3, bytes: text("port") };
    Ask::Publish { names: vec![(text(name), value)], once }
}

fn look_up(name: &str, wait_s: Option<u32>) -> Ask {
    Ask::Lookup { names: vec![text(name)], wait_s }
}

fn connect(members: &[(Part, &[u32])]) -> Ask {
    let of = |(step, ranks): &(Part, &[u32])| Members {
        space: space(*step, 1).name,
        ranks: ranks.to_vec(),
    };
    let members = members.iter().map(of).collect();
    Ask::Meet { meeting: Meeting::Connect, members, data: ByteBuf::new() }
}

fn refused(why: Refused) -> Answer {
    Answer::Refused(why)
}

#[test]
fn a_name_is_found_by_the_steps_of_its_job_alone_until_its_step_ends() {
    let (first, second, other) = (step(1, 0), step(1, 1), step(2, 0));
    let mut hub = hub(&[first, second, other]);
    assert_eq!(ask(&mut hub, first, 1, publish("a", false)), [(first, 1, Answer::Done)]);
    let twice = ask(&mut hub, second, 2, publish("a", false));
    assert_eq!(twice, [(second, 2, refused(Refused::Taken))]);
    let [(_, _, Answer::Found(found))] = &ask(&mut hub, second, 3, look_up("a", None))[..] else {
        panic!("a step of the job finds it");
    };
    assert_eq!(
        (found[0].space.as_str(), found[0].value.bytes.as_ref()),
        ("space-1-0", &b"port"[..])
    );
    let none = |number| (other, number, refused(Refused::NotFound));
    assert_eq!(ask(&mut hub, other, 4, look_up("a", None)), [none(4)]);
    assert_eq!(ask(&mut hub, other, 5, Ask::Unpublish { names: vec![text("a")] }), [none(5)]);
    assert_eq!(ask(&mut hub, other, 6, publish("a", false)), [(other, 6, Answer::Done)]);
    hub.remove(first, &mut Out::new());
    let gone = ask(&mut hub, second, 7, look_up("a", None));
    assert_eq!(gone, [(second, 7, refused(Refused::NotFound))]);
    hub.remove(second, &mut Out::new());
    hub.remove(other, &mut Out::new());
    assert!(hub.is_empty(), "{hub:?}");
}

#[test]
fn a_name_that_is_read_once_is_gone_then() {
    let first = step(1, 0);
    let mut hub = hub(&[first]);
    ask(&mut hub, first, 1, publish("a", true));
    assert!(matches!(ask(&mut hub, first, 2, look_up("a", None))[0].2, Answer::Found(_)));
    assert_eq!(ask(&mut hub, first, 3, look_up("a", None))[0].2, refused(Refused::NotFound));
}

#[test]
fn a_lookup_waits_for_its_name_for_its_time_and_for_no_other_job() {
    let (first, second, other) = (step(1, 0), step(1, 1), step(2, 0));
    let mut hub = hub(&[first, second, other]);
    assert_eq!(ask(&mut hub, second, 1, look_up("a", Some(5))), []);
    assert_eq!(ask(&mut hub, other, 2, publish("a", false)), [(other, 2, Answer::Done)]);
    let heard = ask(&mut hub, first, 3, publish("a", false));
    assert!(matches!(heard[1], (step, 1, Answer::Found(_)) if step == second), "{heard:?}");
    ask(&mut hub, second, 4, look_up("b", Some(5)));
    ask(&mut hub, second, 5, look_up("b", Some(0)));
    assert_eq!(hub.due_ns(), Some(5 * SECOND_NS));
    let mut out = Out::new();
    hub.look(5 * SECOND_NS - 1, &mut out);
    assert!(out.is_empty());
    hub.look(5 * SECOND_NS, &mut out);
    assert_eq!(answers(out), [(second, 4, refused(Refused::Late))]);
    // Without a time it waits long, and not for ever.
    assert_eq!(hub.due_ns(), Some(600 * SECOND_NS));
}

#[test]
fn steps_connect_when_all_have_come_however_they_order_the_members() {
    let (first, second, third) = (step(1, 0), step(1, 1), step(1, 2));
    let mut hub = hub(&[first, second, third]);
    let some: &[u32] = &[0, 1];
    assert_eq!(ask(&mut hub, first, 1, connect(&[(first, some), (second, &[0])])), []);
    assert_eq!(ask(&mut hub, second, 2, connect(&[(second, &[1]), (first, some)])), []);
    let both = ask(&mut hub, second, 3, connect(&[(second, &[0]), (first, &[ALL_RANKS])]));
    assert_eq!(both, [(first, 1, Answer::Done), (second, 3, Answer::Done)]);
    // One that ends has the others wait no more.
    ask(&mut hub, second, 4, connect(&[(second, some), (third, some)]));
    let mut out = Out::new();
    hub.remove(third, &mut out);
    assert_eq!(answers(out), [(second, 4, refused(Refused::Ended))]);
}

#[test]
fn a_step_meets_none_of_another_job() {
    let (first, other) = (step(1, 0), step(2, 0));
    let mut hub = hub(&[first, step(1, 1), other]);
    let all: &[u32] = &[ALL_RANKS];
    for (members, why) in [
        (&[(first, all), (other, all)][..], Refused::NotFound),
        (&[(first, all), (first, all)], Refused::Invalid),
        (&[(first, all); 3], Refused::Invalid),
        (&[(other, all)], Refused::NotFound),
        (&[(first, &[7])], Refused::NotFound),
    ] {
        assert_eq!(ask(&mut hub, first, 1, connect(members)), [(first, 1, refused(why))]);
    }
    let modex = Ask::Modex { space: "space-2-0".to_string(), rank: 0 };
    assert_eq!(ask(&mut hub, first, 2, modex), [(first, 2, refused(Refused::NotFound))]);
}

/// Two steps of a job on two nodes each, as they come.
fn wide() -> (Hub, [Part; 4], Out) {
    let (first, second) = (step(1, 0), step(1, 1));
    let parts = [first, on(first, 1), second, on(second, 1)];
    let (mut hub, mut out) = (Hub::default(), Out::new());
    for part in parts {
        hub.add(part, UserId(7), space(part, 2), &mut out);
    }
    (hub, parts, out)
}

#[test]
fn steps_hear_of_each_other_once_on_all_of_their_nodes() {
    let (mut hub, parts, out) = wide();
    let mut told: Vec<(Part, &str)> = Vec::new();
    for (part, message) in &out {
        let ToPmix::Space(space) = message else { panic!("{message:?}") };
        told.push((*part, &space.name));
    }
    told.sort_unstable();
    let expected = [(0, "space-1-1"), (1, "space-1-1"), (2, "space-1-0"), (3, "space-1-0")];
    assert_eq!(told, expected.map(|(at, name)| (parts[at], name)));
    // Also on a node that has not come, and not on one that has left.
    let third = step(1, 2);
    hub.remove(parts[1], &mut Out::new());
    let mut out = Out::new();
    hub.add(third, UserId(7), space(third, 2), &mut out);
    let of_third: Vec<Part> = out.iter().map(|(part, _)| *part).collect();
    assert!(of_third.contains(&on(third, 1)) && !of_third.contains(&parts[1]), "{out:?}");
    let mut out = Out::new();
    hub.remove(parts[0], &mut out);
    let gone = |it: &&(Part, ToPmix)| matches!(it.1, ToPmix::Gone { .. });
    assert_eq!(out.iter().filter(gone).count(), 4, "{out:?}");
}

#[test]
fn steps_over_nodes_connect_when_all_parts_have_come_and_not_once_one_has_left() {
    let (mut hub, parts, _) = wide();
    let all: &[u32] = &[ALL_RANKS];
    let both = || connect(&[(parts[0], all), (parts[2], &[0, 1, 2, 3])]);
    for (number, part) in (1..).zip(&parts[..3]) {
        assert_eq!(ask(&mut hub, *part, number, both()), []);
    }
    assert_eq!(ask(&mut hub, parts[3], 4, both()).len(), 4);
    // Ranks 2 and 3 are on the second node.
    let some = || connect(&[(parts[0], &[0]), (parts[2], &[3])]);
    assert_eq!(ask(&mut hub, parts[2], 5, some()), [(parts[2], 5, refused(Refused::Invalid))]);
    assert_eq!(ask(&mut hub, parts[0], 6, some()), []);
    let mut out = Out::new();
    hub.remove_node((JobId(1), 7), NodeId(1), &mut out);
    assert!(out.is_empty(), "another launch of the job is there: {out:?}");
    hub.remove_node((JobId(1), 0), NodeId(1), &mut out);
    assert_eq!(answers(out), [(parts[0], 6, refused(Refused::Ended))]);
    let late = ask(&mut hub, parts[0], 7, some());
    assert_eq!(late, [(parts[0], 7, refused(Refused::Ended))]);
    let modex = Ask::Modex { space: "space-1-1".to_string(), rank: 2 };
    assert_eq!(ask(&mut hub, parts[0], 8, modex), [(parts[0], 8, refused(Refused::Ended))]);
    hub.remove(parts[0], &mut Out::new());
    hub.remove(parts[2], &mut Out::new());
    assert!(hub.is_empty() && hub.waiting.is_empty(), "{hub:?}");
}

#[test]
fn a_spawn_over_nodes_is_answered_when_all_of_it_is_served() {
    let (parent, child) = (step(1, 0), step(1, 1));
    let mut hub = hub(&[parent]);
    hub.await_child((parent, 1), StepId(1), &mut Out::new());
    let mut out = Out::new();
    hub.add(child, UserId(7), space(child, 2), &mut out);
    assert_eq!(answers(out), []);
    let mut out = Out::new();
    hub.add(on(child, 1), UserId(7), space(on(child, 1), 2), &mut out);
    assert_eq!(answers(out), [(parent, 1, Answer::Started("space-1-1".to_string()))]);
    // A name is there as long as any of its step is.
    assert_eq!(ask(&mut hub, child, 2, publish("a", false))[0].2, Answer::Done);
    hub.remove(child, &mut Out::new());
    assert!(matches!(ask(&mut hub, parent, 3, look_up("a", None))[0].2, Answer::Found(_)));
    hub.remove(on(child, 1), &mut Out::new());
    assert_eq!(ask(&mut hub, parent, 4, look_up("a", None))[0].2, refused(Refused::NotFound));
}

#[test]
fn data_of_a_rank_comes_from_its_step_and_from_no_other() {
    let (first, second, third) = (step(1, 0), step(1, 1), step(1, 2));
    let mut hub = hub(&[first, second, third]);
    let mut out = Out::new();
    let modex = Ask::Modex { space: "space-1-1".to_string(), rank: 1 };
    hub.ask((first, 9), (0, 0), modex.clone(), &mut out);
    let [(owner, ToPmix::Fetch { number, rank: 1 })] = out[..] else { panic!("{out:?}") };
    assert_eq!(owner, second);
    let mut out = Out::new();
    hub.fetched(third, number, Some(text("lie")), &mut out);
    assert!(out.is_empty());
    hub.fetched(second, number, Some(text("card")), &mut out);
    assert_eq!(answers(out), [(first, 9, Answer::Data(text("card")))]);
    let absent = Ask::Modex { space: "space-1-1".to_string(), rank: 2 };
    assert_eq!(ask(&mut hub, first, 8, absent), [(first, 8, refused(Refused::NotFound))]);
    hub.ask((first, 10), (0, 0), modex, &mut Out::new());
    let mut out = Out::new();
    hub.remove(second, &mut out);
    assert_eq!(answers(out), [(first, 10, refused(Refused::Ended))]);
}

#[test]
fn a_spawn_is_answered_when_the_new_step_is_served_or_has_ended() {
    let (parent, child) = (step(1, 0), step(1, 1));
    let mut hub = hub(&[parent]);
    let mut out = Out::new();
    hub.await_child((parent, 1), StepId(1), &mut out);
    hub.add(child, UserId(7), space(child, 1), &mut out);
    let kinds: Vec<bool> = out.iter().map(|it| matches!(it.1, ToPmix::Space(_))).collect();
    assert_eq!(kinds, [true, true, false], "the parent's server knows the step before: {out:?}");
    assert_eq!(answers(out), [(parent, 1, Answer::Started("space-1-1".to_string()))]);
    let mut out = Out::new();
    hub.await_child((parent, 2), StepId(1), &mut out);
    hub.await_child((parent, 3), StepId(2), &mut out);
    hub.fail_child(step(1, 2).step(), &mut out);
    hub.remove(child, &mut out);
    let gone = (parent, 3, refused(Refused::Ended));
    assert_eq!(answers(out), [(parent, 2, Answer::Started("space-1-1".to_string())), gone]);
}

#[test]
fn names_and_what_waits_are_bounded() {
    let (first, second) = (step(1, 0), step(2, 0));
    let mut hub = hub(&[first, second]);
    for number in 0..NAMES_PER_JOB_MAX {
        let done = ask(&mut hub, first, 1, publish(&number.to_string(), false));
        assert_eq!(done[0].2, Answer::Done);
    }
    assert_eq!(ask(&mut hub, first, 1, publish("x", false))[0].2, refused(Refused::NoRoom));
    // Other jobs of the user share its bytes.
    let large = || Value { kind: 27, bytes: vec![0; 64 << 10].into() };
    let mut left = NAMES_USER_BYTES_MAX / (64 << 10);
    let name = |number: usize| text(&format!("large-{number}"));
    while let Answer::Done = {
        let names = vec![(name(left), large())];
        ask(&mut hub, second, 1, Ask::Publish { names, once: false })[0].2.clone()
    } {
        left -= 1;
    }
    assert_eq!(left, 1);
    let ranks: Vec<u32> = (0..30_000).collect();
    let mut asked = 0;
    loop {
        let wide = connect(&[(first, &ranks[..ranks.len() - asked]), (step(1, 1), &[0])]);
        hub.add(step(1, 1), UserId(7), space(step(1, 1), 1), &mut Out::new());
        match ask(&mut hub, first, 2, wide).first() {
            None => asked += 1,
            Some((_, _, answer)) => break assert_eq!(*answer, refused(Refused::NoRoom)),
        }
    }
    assert!((20..60).contains(&asked), "{asked}");
}

#[test]
fn what_lookups_find_is_bounded_for_each_and_for_all_that_wait() {
    let first = step(1, 0);
    let mut hub = hub(&[first]);
    let large = || Value { kind: 27, bytes: vec![0; 60 << 10].into() };
    let names = ["a", "b"].map(|name| (text(name), large())).to_vec();
    assert_eq!(ask(&mut hub, first, 1, Ask::Publish { names, once: false })[0].2, Answer::Done);
    let names = |names: &[&str]| names.iter().map(|name| text(name)).collect();
    let two = Ask::Lookup { names: names(&["a", "b"]), wait_s: None };
    assert!(matches!(ask(&mut hub, first, 2, two)[0].2, Answer::Found(_)));
    let three = Ask::Lookup { names: names(&["a", "b", "a"]), wait_s: None };
    assert_eq!(ask(&mut hub, first, 3, three), [(first, 3, refused(Refused::NoRoom))]);
    for number in 0..100 {
        let names = names(&["a", "b", "c"]);
        assert_eq!(ask(&mut hub, first, number, Ask::Lookup { names, wait_s: Some(0) }), []);
    }
    let answers = ask(&mut hub, first, 100, publish("c", false));
    assert_eq!(answers.len(), 101);
    let found = answers.iter().filter(|it| matches!(it.2, Answer::Found(_))).count();
    assert!((50..80).contains(&found), "{found}");
    assert_eq!(answers[100].2, refused(Refused::NoRoom));
}

#[test]
fn a_lookup_that_waits_is_answered_when_all_its_names_are_there_at_once() {
    let (first, second) = (step(1, 0), step(1, 1));
    let mut hub = hub(&[first, second]);
    let names = ["a", "b", "b"].map(text).to_vec();
    let wait = Ask::Lookup { names, wait_s: Some(0) };
    assert_eq!(ask(&mut hub, second, 1, wait), []);
    let alone = |heard: Vec<(Part, u32, Answer)>| assert_eq!(heard.len(), 1, "{heard:?}");
    alone(ask(&mut hub, first, 2, publish("a", false)));
    alone(ask(&mut hub, first, 3, Ask::Unpublish { names: vec![text("a")] }));
    alone(ask(&mut hub, first, 4, publish("b", false)));
    // What is taken changes nothing.
    alone(ask(&mut hub, first, 5, publish("b", false)));
    let heard = ask(&mut hub, first, 6, publish("a", true));
    assert!(matches!(heard[1], (step, 1, Answer::Found(_)) if step == second), "{heard:?}");
    // It was read once: the next one waits, and what ends with its step is missing again.
    assert_eq!(ask(&mut hub, second, 7, look_up("a", Some(0))), []);
    let names = ["c", "b"].map(text).to_vec();
    assert_eq!(ask(&mut hub, second, 8, Ask::Lookup { names, wait_s: Some(0) }), []);
    hub.remove(first, &mut Out::new());
    hub.add(first, UserId(7), space(first, 1), &mut Out::new());
    alone(ask(&mut hub, first, 9, publish("c", false)));
    assert_eq!(ask(&mut hub, first, 10, publish("b", false)).len(), 2);
    hub.remove(first, &mut Out::new());
    hub.remove(second, &mut Out::new());
    assert!(hub.is_empty() && hub.due_ns().is_none(), "{hub:?}");
    assert!(hub.waiting.is_empty() && hub.lookups.by_name.is_empty(), "{hub:?}");
    assert!(hub.published.of_job.is_empty() && hub.published.of_user.is_empty(), "{hub:?}");
}

/// How many lookups wait in the next test, and how many names each has.
const WAITING: u32 = 100;

#[test]
fn a_publish_looks_at_the_lookups_of_its_names_alone() {
    let (first, second) = (step(1, 0), step(1, 1));
    let mut hub = hub(&[first, second]);
    for number in 0..WAITING {
        let name = format!("n{number}");
        assert_eq!(ask(&mut hub, second, number, look_up(&name, Some(0))), []);
    }
    let looked = |hub: &mut Hub, name: &str| hub.lookups.note(JobId(1), &text(name), true).len();
    assert_eq!(looked(&mut hub, "x"), 0);
    assert_eq!(looked(&mut hub, "n7"), 1);
    assert_eq!(hub.lookups.all.len(), WAITING as usize);
    assert_eq!(hub.waiting[&second.step()], WAITING as usize * (EACH + 2) + 90);
}

#[test]
fn a_parent_hears_of_silent_children_when_none_of_any_node_is_left() {
    let (mut hub, parts, _) = wide();
    let child = step(1, 1).step();
    // Its parent's rank 3 is on the second node.
    let parent = (child, StepId(0), 3);
    assert_eq!(hub.note_silent(parent, (2, 4), 0), None);
    assert_eq!(hub.note_silent(parent, (2, 4), 9), Some((parts[1], 9)));
    assert_eq!(hub.note_silent((child, StepId(7), 0), (4, 4), 0), None, "no such parent");
    assert_eq!(hub.note_silent(parent, (2, 4), 0), None);
    for part in parts {
        hub.remove(part, &mut Out::new());
    }
    assert!(hub.is_empty(), "{hub:?}");
}

#[test]
fn a_group_has_one_number_for_all_of_its_members_and_each_group_its_own() {
    let (mut hub, parts, _) = wide();
    let found = |name: u64| {
        let members = vec![Members { space: space(parts[0], 2).name, ranks: vec![0, 3] }];
        Ask::Meet { meeting: Meeting::Group(name), members, data: ByteBuf::new() }
    };
    let mut numbers = Vec::new();
    // Each node comes to them in an order of its own.
    for (number, part, name) in [(1, 0, 7), (2, 0, 8), (3, 1, 8), (4, 1, 7), (5, 0, 7), (6, 1, 7)] {
        for (_, asker, answer) in ask(&mut hub, parts[part], number, found(name)) {
            let Answer::Group { number: group, .. } = answer else { panic!("{answer:?}") };
            numbers.push((asker, group));
        }
    }
    let of = |asker| numbers.iter().find(|it| it.0 == asker).map(|it| it.1).unwrap();
    assert_eq!((of(1), of(2), of(5)), (of(4), of(3), of(6)));
    assert!(of(1) != of(2) && of(1) != of(5) && of(2) != of(5), "{numbers:?}");
}
