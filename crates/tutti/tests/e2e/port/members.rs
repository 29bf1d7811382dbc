//! Members that misbehave, are copied, or whose clocks are wrong.

use super::{
    Calm, LET_GO, Speaker, dial, dial_to, frame, head_says, invite, is_closed, log, memory_kib,
    two_and_a_stranger,
};
use crate::cluster::{Bed, switches};
use crate::clusters::shifted_clock;
use crate::harness::{Running, eventually};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tutti_types::{NodeSpec, ProcessorSet};
use tutti_wire::branch::{
    FromBranch, Joining, Origin, Part, Place, Refusal, Report, Through, ToBranch, Tunnelled,
};
use tutti_wire::code::Code;
use tutti_wire::frame::decode;
use tutti_wire::limits::FRAME_BYTES_MAX;
use tutti_wire::tree::{FromAgent, Join, ToAgent};
use tutti_wire::{Hello, Role as Speaks};

fn here(name: &str) -> FromBranch {
    FromBranch::Here { name: name.into(), address: String::new(), unreachable: Vec::new() }
}

fn to_branch(speaker: &mut Speaker) -> Option<ToBranch> {
    speaker.hear(|payload| decode::<ToBranch>(payload).unwrap())
}

/// What a node of this name asks to join with.
fn joining(name: &str) -> FromBranch {
    let spec =
        NodeSpec { name: name.into(), processors: ProcessorSet::first(64), memory_bytes: 1 << 40 };
    let (held, attach, address) = (Vec::new(), Vec::new().into(), String::new());
    let join = Join {
        spec,
        held,
        attach,
        address,
        tasks_max: 9,
        keeper: 9,
        features: [].into(),
        devices: Vec::new(),
        swap: tutti_wire::report::NodeSwap::default(),
        images: None,
    };
    let from = Origin::Joiner(Joining { attempt: 1, life: 9, depth: 1, ..Joining::default() });
    FromBranch::Reports(vec![Report { from, report: FromAgent::Join(join) }])
}

/// The first order that comes.
#[track_caller]
fn order(member: &mut Speaker) -> ToAgent {
    loop {
        match to_branch(member) {
            Some(ToBranch::Orders(mut orders)) => break orders.remove(0).order,
            Some(_) => {}
            None => panic!("it was let go without a word"),
        }
    }
}

/// Why a machine may not join that has asked to.
#[track_caller]
fn refusal(member: &mut Speaker) -> String {
    loop {
        if let ToAgent::Refused { reason } = order(member) {
            break reason;
        }
    }
}

/// A member that is part of the tree as this node, and does nothing of what it is told.
fn joined(bed: &Bed, number: usize) -> (Speaker, Place) {
    let mut member = Speaker::member(bed, number);
    let name = bed.node(number).name();
    member.greet(Speaks::Agent);
    member.say(&here(name));
    assert!(matches!(to_branch(&mut member), Some(ToBranch::Taken { .. })));
    member.say(&joining(name));
    let ToAgent::Welcome { node, .. } = order(&mut member) else { panic!("it may not join") };
    (member, Place::Node(node))
}

/// The next part of a stream that a member is sent.
#[track_caller]
fn part(member: &mut Speaker) -> Tunnelled {
    loop {
        match to_branch(member) {
            Some(ToBranch::Tunnel(part)) => break part,
            Some(_) => {}
            None => panic!("it was let go"),
        }
    }
}

/// A client on a node, which wants to speak with the keeper of another, and says something.
fn client(bed: &Bed, on: usize, far: Place, says: &[u8]) -> UnixStream {
    let Place::Node(node) = far else { panic!("no node") };
    let mut client = UnixStream::connect(bed.node(on).directory().join("gate.sock")).unwrap();
    client.set_read_timeout(Some(LET_GO)).unwrap();
    let gate = Hello { role: Speaks::Gate }.to_frame();
    client.write_all(&[&gate[..], &frame(&Through { node }), says].concat()).unwrap();
    client
}

fn bytes(data: &[u8]) -> Part {
    Part::Bytes(data.to_vec().into())
}

#[test]
fn a_member_has_no_say_in_the_streams_of_others() {
    let bed = Bed::up(4, &[0]);
    bed.tutti(3, &["down"]).expect(0);
    bed.tutti(4, &["down"]).expect(0);
    let ((mut far, far_end), (mut forger, own)) = (joined(&bed, 3), joined(&bed, 4));
    let mut client = client(&bed, 2, far_end, b"question");
    let opened = part(&mut far);
    let Part::Open(vouch) = &opened.part else { panic!("{opened:?}") };
    assert_eq!(part(&mut far).part, bytes(b"question"));
    let (near_end, tunnel) = (opened.from, opened.tunnel);
    // Another has told the forger which stream it is.
    let mut forge = |from, to, part| {
        forger.say(&FromBranch::Tunnel(Tunnelled { from, to, tunnel, part }));
    };
    let cut = Refusal { reason: "cut".into(), code: Code::Other };
    for part in [bytes(b"forged"), Part::Taken(9), Part::End(Some(cut))] {
        for from in [far_end, own, Place::Controller] {
            forge(from, near_end, part.clone());
        }
        forge(near_end, far_end, part.clone());
        forge(own, far_end, part);
    }
    forge(near_end, Place::Controller, Part::Open(vouch.clone()));
    forge(own, Place::Controller, Part::Open(vouch.clone()));
    // So many were not its to say.
    for _ in 0..8 {
        let Part::End(Some(refusal)) = part(&mut forger).part else { panic!("it is answered") };
        assert_eq!(refusal.reason, "its agent speaks for another node");
        assert_eq!(refusal.code, Code::NotTrusted);
    }
    client.write_all(b"more").unwrap();
    let more = std::iter::repeat_with(|| part(&mut far)).find(|it| it.from != own).unwrap();
    assert_eq!((more.from, more.part), (near_end, bytes(b"more")));
    let answer = |part| FromBranch::Tunnel(Tunnelled { from: far_end, to: near_end, tunnel, part });
    far.say(&answer(bytes(b"answer")));
    far.say(&answer(Part::End(None)));
    let mut answered = Vec::new();
    client.read_to_end(&mut answered).unwrap();
    assert_eq!(answered, b"answer");
    bed.tutti(2, &["run", "-N", "2", "--nodes", "n[1-2]", "true"]).expect(0);
}

#[test]
fn who_was_removed_does_not_come_back_when_another_has_its_name() {
    let bed = Bed::up(3, &[0]);
    let kept = bed.node(3).directory().join("cluster");
    let (before, after) = (bed.audit.work.join("before"), bed.audit.work.join("after"));
    bed.tutti(3, &["down"]).expect(0);
    std::fs::rename(&kept, &before).unwrap();
    bed.tutti(1, &["nodes", "remove", "n3"]).expect(0);
    bed.bed().join(bed.node(3)).unwrap();
    bed.tutti(3, &["down"]).expect(0);
    std::fs::rename(&kept, &after).unwrap();
    let is_told = |reason: &str| reason.contains("another machine is that node");
    // The head knows at once, an inner agent when the controller says so.
    let mut removed = Speaker::with(&before, dial(&bed, 3));
    removed.greet(Speaks::Agent);
    let answer = to_branch(&mut removed);
    assert!(matches!(&answer, Some(ToBranch::Refused { reason }) if is_told(reason)), "{answer:?}");
    head_says(&bed, "by another name [T061]");
    is_closed(removed.stream, "who was removed");
    let mut removed = Speaker::with(&before, dial_to(&bed, 3, 2));
    removed.greet(Speaks::Agent);
    removed.say(&here("n3"));
    assert!(matches!(to_branch(&mut removed), Some(ToBranch::Taken { .. })));
    // Nor does anybody come through it.
    removed.say(&joining("n9"));
    assert_eq!(refusal(&mut removed), "no machine joins through node n3");
    removed.say(&joining("n3"));
    let reason = refusal(&mut removed);
    assert!(is_told(&reason), "{reason}");
    is_closed(removed.stream, "who was removed");
    // All of the old machine.
    std::fs::rename(&before, &kept).unwrap();
    let old = bed.start(3, &["up"]);
    eventually("it hears why", || is_told(&log(&bed, 3)).then_some(()));
    drop(old);
    bed.tutti(3, &["down"]);
    eventually("it is gone", || (!bed.node(3).directory().join("lock").exists()).then_some(()));
    // And the one that has the name now.
    std::fs::remove_dir_all(&kept).unwrap();
    std::fs::rename(&after, &kept).unwrap();
    bed.tutti(3, &["up"]).expect(0);
    bed.tutti(3, &["run", "-N", "3", "true"]).expect(0);
}

#[test]
fn where_all_are_the_heads_own_children_nobody_joins_for_another() {
    let bed = Bed::of(3, &[0]);
    bed.tutti(1, &["up", "--listen", &bed.node(1).address(), "--name", "n1"]).expect(0);
    for number in [2, 3] {
        bed.bed().join(bed.node(number)).unwrap();
        bed.tutti(number, &["down"]).expect(0);
    }
    let (mut member, _) = joined(&bed, 3);
    member.say(&joining("n2"));
    assert_eq!(refusal(&mut member), "no machine joins through node n3");
    bed.tutti(2, &["up"]).expect(0);
    eventually("n2 has joined itself", || (bed.states()["n2"] == "up").then_some(()));
}

#[test]
fn who_does_not_go_when_it_is_removed_is_cut_off() {
    let bed = Bed::up_with(3, &[0], &["lease=5s"]);
    bed.tutti(3, &["down"]).expect(0);
    let (mut stays, own) = joined(&bed, 3);
    let mut client = client(&bed, 2, own, b"question");
    assert!(matches!(part(&mut stays).part, Part::Open(_)));
    let removing = bed.start(1, &["nodes", "remove", "n3"]);
    let deadline = Instant::now() + 4 * LET_GO;
    let reason = loop {
        assert!(Instant::now() < deadline, "it is not cut off");
        // It says that it is there, and nothing of going.
        stays.say(&FromBranch::Clock { asked_ns: 1 });
        match to_branch(&mut stays) {
            Some(ToBranch::Refused { reason }) => break reason,
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
            None => panic!("it was let go without a word"),
        }
    };
    assert_eq!(reason, "its node was removed from the cluster");
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "the stream goes on");
    removing.wait().expect(0);
    assert!(!bed.states().contains_key("n3"));
    is_closed(stays.stream, "who was removed");
    bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
}

#[test]
fn a_member_that_misbehaves_is_let_go() {
    let bed = Bed::up(3, &[0]);
    bed.tutti(3, &["down"]).expect(0);
    let calm = Calm::before(&bed, &[1, 2]);
    let agent = Hello { role: Speaks::Agent }.to_frame();
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
    let here_again = [frame(&here("n3")), frame(&here("n3"))].concat();
    let clock = frame(&FromBranch::Clock { asked_ns: 1 });
    let mut misbehaving = Vec::new();
    for (who, bytes) in [
        ("no message", &[&[9, 0, 0, 0][..], &[0xee; 9]].concat()),
        ("too long a frame", &too_long.to_vec()),
        ("half a frame", &[&[200, 0, 0, 0][..], &[1; 50]].concat()),
        ("nothing", &Vec::new()),
        ("who is here twice", &here_again),
        ("who asks before he is taken", &clock),
    ] {
        let mut member = Speaker::member(&bed, 3);
        member.greet(Speaks::Agent);
        member.write(bytes);
        misbehaving.push((member.stream, who));
    }
    for (stream, who) in misbehaving {
        is_closed(stream, who);
    }
    // A peer that takes another's name.
    let mut member = Speaker::member(&bed, 3);
    member.greet(Speaks::Agent);
    member.say(&here("n2"));
    let answer = to_branch(&mut member);
    let is_told = |reason: &str| reason.contains("is not that of a node named n2");
    assert!(matches!(&answer, Some(ToBranch::Refused { reason }) if is_told(reason)), "{answer:?}");
    is_closed(member.stream, "who takes another's name");
    // A peer that is taken, asks without end and reads nothing.
    let mut member = Speaker::member(&bed, 3);
    member.greet(Speaks::Agent);
    member.say(&here("n3"));
    assert!(matches!(to_branch(&mut member), Some(ToBranch::Taken { .. })));
    let (questions, before_kib) = (clock.repeat(1000), memory_kib(&bed));
    let asking = Instant::now();
    while asking.elapsed() < Duration::from_secs(3) {
        member.write(&questions);
    }
    bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
    let more_kib = memory_kib(&bed).saturating_sub(before_kib);
    assert!(more_kib < 32 << 10, "the agent has {more_kib} KiB more");
    drop(member);
    // A peer that is taken, and silent.
    let mut member = Speaker::over(Speaker::member(&bed, 3).stream);
    member.write(&agent);
    member.say(&here("n3"));
    is_closed(member.stream, "who is taken and says nothing");
    head_says(&bed, "said nothing for too long");
    calm.expect_undisturbed();
    bed.tutti(3, &["up"]).expect(0);
    bed.tutti(3, &["run", "-N", "3", "true"]).expect(0);
}

#[test]
fn a_copy_of_a_node_does_not_get_its_place() {
    let bed = two_and_a_stranger();
    let calm = Calm::before(&bed, &[1, 2]);
    let mut copy = Speaker::member(&bed, 2);
    copy.greet(Speaks::Agent);
    copy.say(&here("n2"));
    assert!(matches!(to_branch(&mut copy), Some(ToBranch::Taken { .. })));
    copy.say(&joining("n2"));
    let reason = refusal(&mut copy);
    assert!(reason.contains("a node named n2 has joined already"), "{reason}");
    is_closed(copy.stream, "who is refused");
    // A real one: the state of n2, taken along to another machine.
    let state = |number: usize| bed.node(number).directory().join("cluster");
    std::fs::create_dir_all(state(3)).unwrap();
    for entry in std::fs::read_dir(state(2)).unwrap().flatten() {
        std::fs::copy(entry.path(), state(3).join(entry.file_name())).unwrap();
    }
    let copy = bed.start(3, &["up"]);
    eventually("the copy hears why", || {
        log(&bed, 3).contains("a node named n2 has joined already").then_some(())
    });
    drop(copy);
    bed.node(3).signal("up", Signal::SIGTERM).unwrap();
    eventually("it is gone", || (!bed.node(3).directory().join("lock").exists()).then_some(()));
    calm.expect_undisturbed();
}

/// The last moments at which all of two nodes switched together.
fn latest_together(bed: &Bed) -> Option<u64> {
    let nodes = switches(bed);
    let (one, other) = (nodes.get("n1")?, nodes.get("n2")?);
    one.intersection(other).map(|record| record.0).max()
}

#[test]
fn a_wall_clock_that_is_set_changes_nothing_but_who_is_let_in() {
    let bed = Bed::of(2, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    bed.tutti(1, &["params", "quantum=50ms", "lease=5m"]).expect(0);
    let wall = bed.audit.work.join("wall");
    let set = |seconds: i64| std::fs::write(&wall, seconds.to_string()).unwrap();
    set(0);
    let token = invite(&bed).to_string();
    let mut join = bed.node(2).tutti(&["join", &address, &token, "--name", "n2"]);
    join.env("LD_PRELOAD", shifted_clock()).env("WALL", &wall);
    Running::start(join).wait().expect(0);
    let job = ["submit", "--parsable", "-N", "2", "-n", "4", "-o", "/dev/null", "--", "sleep"];
    let jobs = [0, 1].map(|_| {
        let job = bed.tutti(1, &[&job[..], &[&bed.audit.nap]].concat()).expect(0).text();
        job.trim().to_owned()
    });
    let switch_on = || {
        let before = eventually("they switch together", || latest_together(&bed));
        let after = before + 10 * 50_000_000;
        eventually("they still do", || latest_together(&bed).filter(|&last| last > after));
    };
    // By hours, and by more than a certificate is good for: a connected machine stays so.
    for seconds in [3600, -7200, 40 * 86_400, -40 * 86_400] {
        set(seconds);
        switch_on();
        bed.tutti(2, &["run", "-N", "2", "true"]).expect(0);
    }
    for (seconds, why) in [(40 * 86_400, "has run out"), (-40 * 86_400, "is not valid yet")] {
        set(seconds);
        let node = bed.node(2);
        let former = node.daemon("agent").unwrap();
        node.signal("agent", Signal::SIGKILL).unwrap();
        eventually("another agent", || node.daemon("agent").filter(|&agent| agent != former));
        // It is told why, and what to look at.
        eventually(why, || {
            let log = log(&bed, 2);
            (log.contains(why) && log.contains("the clock of this machine")).then_some(())
        });
        eventually("it is missed", || (bed.states()["n2"] == "unreachable").then_some(()));
        set(0);
        eventually("it is back", || (bed.states()["n2"] == "up").then_some(()));
        switch_on();
    }
    for job in &jobs {
        let shown = bed.tutti(1, &["ps", "--json", job]).expect(0).json();
        assert_eq!(shown[0]["state"], "running");
    }
    bed.tutti(1, &["cancel", "--now", &jobs[0], &jobs[1]]).expect(0);
}
