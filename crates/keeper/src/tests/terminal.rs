//! Terminals of rank 0.

use super::super::fixture::{Membership, Peer, Scene, Told, bytes, hear_out, shell, wait_for};
use super::{in_both, with_input};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, Rank, StepKey, TaskStatus};
use tutti_wire::Role;
use tutti_wire::attach::{FromFrontEnd, Stream, TerminalSize, ToFrontEnd};
use tutti_wire::launch::{InputTo, Launch};

const SIZE: TerminalSize = TerminalSize { rows: 21, columns: 91 };

/// A front end that wants a terminal.
fn attached(scene: &Scene, job: u64) -> Peer {
    let mut front = Peer::connect(&scene.socket(), Role::FrontEnd);
    let key = StepKey::first(JobId(job));
    front.send(&FromFrontEnd::Attach { key, received: None, terminal: Some(SIZE) });
    front.greeting();
    assert_eq!(front.next(), Some(ToFrontEnd::Attached { heard: 0 }));
    front
}

fn typed(text: &str) -> FromFrontEnd {
    FromFrontEnd::Input { rank: Some(Rank(0)), data: bytes(text) }
}

/// A shell that reads its input, in the directory of the scene.
fn reader(scene: &Scene, tasks: u32, text: &str) -> Launch {
    let mut launch = with_input(shell(1, tasks, text), InputTo::Rank(0));
    launch.spec.directory = bytes(scene.directory.to_str().unwrap());
    launch
}

fn end_of(scene: &mut Scene, front: &mut Peer) -> Told {
    let mut told = hear_out(front);
    scene.reports(1, &mut told);
    told
}

/// Reads what a task shows, up to this text.
fn hear_up_to(front: &mut Peer, text: &str) {
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(text) {
        match front.next::<ToFrontEnd>() {
            Some(ToFrontEnd::Output { stream: Stream::Output, data, .. }) => shown.extend(data),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&shown)),
        }
    }
}

#[test]
fn rank_0_has_a_terminal_of_its_session_and_others_have_pipes() {
    in_both(|scene| {
        let about = "stty size; test -t 0 && test -t 1 && test -t 2 && echo all > /dev/tty; exit 3";
        let line = format!("if [ $TUTTI_RANK = 0 ]; then {about}; fi; test -t 1 || echo pipe");
        scene.start(&reader(scene, 2, &line));
        let mut front = attached(scene, 1);
        let told = end_of(scene, &mut front);
        assert_eq!((told.stdout(0), told.stdout(1)), ("21 91\r\nall\r\n".into(), "pipe\n".into()));
        assert_eq!(told.status(0), TaskStatus::Exited(3));
    });
}

#[test]
fn keys_sizes_and_the_end_of_input_reach_the_terminal() {
    in_both(|scene| {
        let line = "stty -echo; echo up; read line; echo got $line; stty size; cat; exit 4";
        scene.start(&reader(scene, 1, line));
        let mut front = attached(scene, 1);
        hear_up_to(&mut front, "up\r\n");
        front.send(&FromFrontEnd::Resize { size: TerminalSize { rows: 7, columns: 9 } });
        front.send(&typed("one\r"));
        hear_up_to(&mut front, "got one\r\n7 9\r\n");
        front.send(&typed("half"));
        front.send(&FromFrontEnd::Input { rank: Some(Rank(0)), data: ByteBuf::new() });
        let told = end_of(scene, &mut front);
        assert_eq!((told.stdout(0).as_str(), told.status(0)), ("half", TaskStatus::Exited(4)));
    });
}

#[test]
fn a_terminal_that_all_have_closed_can_be_opened_again_and_its_output_ends_with_the_task() {
    let mut scene = Scene::new(Membership::Groups);
    let line = "echo one; exec < /dev/null > /dev/null 2>&1; sleep 0.2; echo two > /dev/tty";
    scene.start(&reader(&scene, 1, line));
    let mut front = attached(&scene, 1);
    let told = end_of(&mut scene, &mut front);
    assert_eq!(told.stdout(0), "one\r\ntwo\r\n");
}

#[test]
fn the_other_end_of_a_terminal_is_never_passed_on() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&reader(&scene, 1, "echo up; read line; echo $line"));
    let mut front = attached(&scene, 1);
    hear_up_to(&mut front, "up\r\n");
    front.send(&FromFrontEnd::WantPipe { rank: Rank(0), stream: Stream::Output });
    front.send(&typed("one\r"));
    let told = end_of(&mut scene, &mut front);
    assert_eq!(told.stdout(0), "one\r\none\r\n");
}

#[test]
fn a_terminal_hangs_up_when_its_front_end_is_gone() {
    in_both(|scene| {
        let line = "trap 'echo hup > heard; exit 5' HUP; echo up; while :; do sleep 0.01; done";
        scene.start(&reader(scene, 1, line));
        let mut front = attached(scene, 1);
        hear_up_to(&mut front, "up\r\n");
        drop(front);
        let heard = scene.directory.join("heard");
        wait_for("SIGHUP", || std::fs::read(&heard).is_ok_and(|it| it == b"hup\n").then_some(()));
        let mut told = Told::default();
        scene.reports(1, &mut told);
        assert_eq!(told.reported[&0].0, TaskStatus::Exited(5));
        std::fs::remove_file(heard).unwrap();
    });
}
