//! Viewers of a job: they see its output beside the front end, and never hold it up.

use super::super::fixture::{Peer, Scene, hear_out, launch, shell};
use super::{in_both, with_input};
use serde_bytes::ByteBuf;
use std::io::Write;
use std::os::unix::net::UnixStream;
use tutti_types::{JobId, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};
use tutti_wire::frame::encode;
use tutti_wire::launch::InputTo;
use tutti_wire::{Hello, Role};

/// A viewer that has asked for the job. It is greeted once the keeper has taken in what it asked.
fn asked(scene: &Scene, job: u64) -> Peer {
    let mut words = Hello { role: Role::FrontEnd }.to_frame().to_vec();
    encode(&FromFrontEnd::Watch { job: JobId(job) }, &mut words).unwrap();
    let mut stream = UnixStream::connect(scene.socket()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
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
