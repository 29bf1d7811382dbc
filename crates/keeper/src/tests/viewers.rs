//! Viewers of a job: they see its output beside the front end, and never hold it up.

use super::super::fixture::{Membership, Peer, Scene, hear_out, launch, shell, wait_for};
use super::{in_both, with_input};
use serde_bytes::ByteBuf;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tutti_types::{JobId, StepKey, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::frame::encode;
use tutti_wire::launch::InputTo;
use tutti_wire::{Hello, Role};

/// A viewer that has asked for the job. It is greeted once the keeper has taken in what it asked.
fn asked(scene: &Scene, job: u64) -> Peer {
    let mut words = Hello { role: Role::FrontEnd }.to_frame().to_vec();
    encode(&FromFrontEnd::Watch { job: JobId(job) }, &mut words).unwrap();
    let mut stream = UnixStream::connect(scene.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&words).unwrap();
    let mut viewer = Peer::over(stream);
    viewer.greeting();
    viewer
}

fn viewing(scene: &Scene, job: u64) -> Peer {
    let mut viewer = asked(scene, job);
    assert_eq!(viewer.next(), Some(ToFrontEnd::Attached { heard: 0 }));
    viewer
}

fn input(text: &str) -> FromFrontEnd {
    FromFrontEnd::Input { rank: None, data: ByteBuf::from(text.as_bytes()) }
}

#[test]
fn viewers_may_come_before_the_launch() {
    in_both(|scene| {
        let mut viewers = [asked(scene, 1), asked(scene, 1)];
        let mut front = scene.front(1);
        scene.start(&shell(1, 2, "echo seen; exit 3"));
        assert_eq!(front.next(), Some(ToFrontEnd::Attached { heard: 0 }));
        let mut told = hear_out(&mut front);
        for viewer in &mut viewers {
            assert_eq!(viewer.next(), Some(ToFrontEnd::Attached { heard: 0 }));
            let seen = hear_out(viewer);
            assert_eq!((seen.stdout(0), seen.stdout(1)), ("seen\n".into(), "seen\n".into()));
            assert_eq!(seen.ends, told.ends);
        }
        scene.reports(1, &mut told);
    });
}

#[test]
fn a_viewer_sees_output_from_now_on_as_the_front_end_does() {
    in_both(|scene| {
        scene.start(&with_input(launch(1, 1, &["cat"]), InputTo::All));
        let mut front = scene.attached(1);
        front.send(&input("early\n"));
        assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
        let mut viewer = viewing(scene, 1);
        front.send(&input("late\n"));
        front.send(&input(""));
        for peer in [&mut front, &mut viewer] {
            let told = hear_out(peer);
            assert_eq!(told.stdout(0), "late\n");
            assert_eq!(told.ends[&0].0, TaskStatus::Exited(0));
        }
    });
}

#[test]
fn a_stalled_viewer_stops_neither_the_job_nor_its_front_end() {
    in_both(|scene| {
        let mut viewer = asked(scene, 1);
        scene.start(&shell(1, 1, "head -c 20000000 /dev/zero"));
        let mut told = hear_out(&mut scene.attached(1));
        assert_eq!(told.output[&(0, Stream::Output)].len(), 20_000_000);
        // Of what it does not read in time, it learns how much that is.
        let (mut seen, mut skipped) = (0, 0);
        loop {
            match viewer.next().expect("the keeper left its viewer") {
                ToFrontEnd::Output { data, .. } => seen += data.len() as u64,
                ToFrontEnd::Skipped { bytes } => skipped += bytes,
                ToFrontEnd::Finished => break,
                ToFrontEnd::Attached { .. } | ToFrontEnd::TaskEnded { .. } => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        assert!(seen > 0 && skipped > 10_000_000, "{seen} bytes, {skipped} left out");
        assert_eq!(seen + skipped, 20_000_000);
        scene.reports(1, &mut told);
    });
}

fn refusal(viewer: &mut Peer) -> String {
    match viewer.next() {
        Some(ToFrontEnd::Refused { reason }) => {
            assert_eq!(viewer.next::<ToFrontEnd>(), None);
            reason
        }
        other => panic!("unexpected: {other:?}"),
    }
}

#[test]
fn a_viewer_hears_how_tasks_ended_and_no_text() {
    let mut scene = Scene::new(Membership::Groups);
    let mut viewer = asked(&scene, 1);
    scene.start(&launch(1, 1, &["no-such-program"]));
    let told = hear_out(&mut scene.attached(1));
    assert_eq!(told.ends[&0].0, TaskStatus::NotFound);
    assert!(told.ends[&0].1.contains("no such program"));
    let mut late = viewing(&scene, 1);
    assert_eq!(viewer.next(), Some(ToFrontEnd::Attached { heard: 0 }));
    for viewer in [&mut viewer, &mut late] {
        assert_eq!(hear_out(viewer).ends[&0], (TaskStatus::NotFound, String::new()));
    }
}

#[test]
fn viewers_of_a_job_and_of_a_user_are_bounded() {
    let mut scene = Scene::new(Membership::Groups);
    let mut viewers = Vec::new();
    for job in 1..=4 {
        scene.start(&shell(job, 1, "true"));
        viewers.extend((0..16).map(|_| viewing(&scene, job)));
        assert!(refusal(&mut asked(&scene, job)).starts_with("too many viewers"));
    }
    scene.start(&shell(5, 1, "true"));
    assert!(refusal(&mut asked(&scene, 5)).starts_with("too many of your viewers"));
    // Where one goes, there is room for another.
    viewers.pop();
    wait_for("room for a viewer", || {
        let mut viewer = asked(&scene, 5);
        (viewer.next() == Some(ToFrontEnd::Attached { heard: 0 })).then_some(())
    });
}

#[test]
fn viewers_leave_descriptors_for_front_ends_and_the_agent() {
    let mut scene = Scene::with_descriptors(80);
    let mut viewers = Vec::new();
    let refused = (1..=4).find_map(|job| {
        scene.start(&shell(job, 1, "true"));
        (0..16).find_map(|_| {
            let mut viewer = asked(&scene, job);
            match viewer.next() {
                Some(ToFrontEnd::Attached { .. }) => {
                    viewers.push(viewer);
                    None
                }
                Some(ToFrontEnd::Refused { reason }) => Some(reason),
                other => panic!("unexpected: {other:?}"),
            }
        })
    });
    let refused = refused.expect("all viewers got in");
    assert!(refused.contains("no descriptor left for a viewer"), "{refused}");
    assert!(!viewers.is_empty() && viewers.len() < 48, "{} got in", viewers.len());
    scene.attached(1);
    assert!(!scene.reconnect().is_empty());
}

/// Were its socket read on, the keeper would take in all of it.
#[test]
fn input_of_a_viewer_waits_while_tasks_do_not_read() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&with_input(shell(1, 1, "sleep 1000"), InputTo::All));
    let mut front = scene.attached(1);
    let piece = "x".repeat(60_000);
    let flood = |peer: &mut Peer| {
        let mut frame = Vec::new();
        encode(&input(&piece), &mut frame).unwrap();
        peer.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        (0..400).take_while(|_| peer.stream.write_all(&frame).is_ok()).count()
    };
    let taken = flood(&mut front);
    assert!(taken < 100, "{taken} pieces of the front end");
    let taken = flood(&mut viewing(&scene, 1));
    assert!(taken < 100, "{taken} pieces of a viewer");
}

/// The lines of one sender come whole and in order, whatever another sends meanwhile.
#[test]
fn input_of_front_end_and_viewers_comes_by_whole_messages() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&with_input(launch(1, 1, &["cat"]), InputTo::All));
    let mut front = scene.attached(1);
    let mut viewers = [viewing(&scene, 1), viewing(&scene, 1)];
    let line = |sender: usize, number: usize| format!("{sender} {number} {}\n", "x".repeat(90));
    for number in 0..200 {
        front.send(&input(&line(0, number)));
        viewers[0].send(&input(&line(1, number)));
        viewers[1].send(&input(&line(2, number)));
    }
    // All of it is there before the front end ends the input.
    let bytes: usize = (0..200).map(|number| 3 * line(0, number).len()).sum();
    let mut seen = Vec::new();
    while seen.len() < bytes {
        match viewers[0].next() {
            Some(ToFrontEnd::Output { data, .. }) => seen.extend_from_slice(&data),
            other => panic!("unexpected: {other:?}"),
        }
    }
    front.send(&input(""));
    let told = hear_out(&mut front);
    assert_eq!(told.stdout(0).as_bytes(), seen, "a viewer sees what the front end sees");
    assert_eq!(hear_out(&mut viewers[1]).stdout(0).as_bytes(), seen);
    let text = told.stdout(0);
    for sender in 0..3 {
        let of_it: String = text
            .lines()
            .filter(|line| line.starts_with(&format!("{sender} ")))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(of_it, (0..200).map(|number| line(sender, number)).collect::<String>());
    }
}

/// One that is gone, or says what it may not, costs its own connection only.
#[test]
fn viewers_that_go_or_say_what_they_may_not_change_nothing() {
    let mut scene = Scene::new(Membership::Groups);
    drop(asked(&scene, 1));
    scene.start(&with_input(launch(1, 1, &["cat"]), InputTo::All));
    let mut front = scene.attached(1);
    let mut viewer = viewing(&scene, 1);
    let mut wrong = viewing(&scene, 1);
    wrong.send(&FromFrontEnd::Attach {
        key: StepKey::first(JobId(1)),
        received: None,
        terminal: None,
    });
    assert_eq!(wrong.next::<ToFrontEnd>(), None, "it is left");
    // The end of a viewer's input is not that of the job's.
    viewer.send(&input(""));
    viewer.send(&input("one\n"));
    drop(viewing(&scene, 1));
    assert!(matches!(front.next(), Some(ToFrontEnd::Output { .. })));
    front.send(&input("two\n"));
    front.send(&input(""));
    let told = hear_out(&mut front);
    assert_eq!((told.stdout(0).as_str(), told.ends[&0].0), ("two\n", TaskStatus::Exited(0)));
    assert_eq!(hear_out(&mut viewer).stdout(0), "one\ntwo\n");
}
