//! Pipes that a front end reads itself.

use super::super::fixture::{Membership, Peer, Scene, Told, bytes, hear_out, shell};
use super::in_both;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tutti_types::{Rank, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, Stream, ToFrontEnd};

const OF: (Rank, Stream) = (Rank(0), Stream::Output);

/// Hears how the task begins, then takes its pipe.
fn take_pipe(front: &mut Peer) -> File {
    let mut begun = Vec::new();
    let mut error_ended = false;
    while begun != b"begins\n" || !error_ended {
        match front.next::<ToFrontEnd>() {
            Some(ToFrontEnd::Output { stream: Stream::Output, data, .. }) => begun.extend(data),
            Some(ToFrontEnd::Output { stream: Stream::Error, .. }) => error_ended = true,
            other => panic!("unexpected: {other:?}"),
        }
    }
    let (rank, stream) = OF;
    front.send(&FromFrontEnd::WantPipe { rank, stream });
    assert_eq!(front.next(), Some(ToFrontEnd::Pipe { rank, stream }));
    let pipe = File::from(front.descriptors.pop_front().unwrap().unwrap());
    // Whether one waits is up to us: the keeper has an end of its own.
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    pipe
}

/// Says how it begins, and goes on when it is told to.
fn talker(scene: &Scene, job: u64, rest: &str) -> tutti_wire::launch::Launch {
    let text = format!("exec 2>&-; echo begins; while [ ! -e go ]; do sleep 0.01; done; {rest}");
    let mut launch = shell(job, 1, &text);
    launch.spec.directory = bytes(scene.directory.to_str().unwrap());
    launch
}

fn go(scene: &Scene) {
    std::fs::write(scene.directory.join("go"), "").unwrap();
}

#[test]
fn what_comes_after_a_pipe_is_passed_on_comes_through_it() {
    in_both(|scene| {
        scene.start(&talker(scene, 1, "head -c 5000000 /dev/zero; exit 3"));
        let mut front = scene.attached(1);
        let mut pipe = take_pipe(&mut front);
        front.send(&FromFrontEnd::PipeTaken { rank: OF.0, stream: OF.1 });
        go(scene);
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 5_000_000);
        let told = hear_out(&mut front);
        assert_eq!(told.ends[&0].0, TaskStatus::Exited(3));
        assert!(!told.output.contains_key(&(0, Stream::Output)));
        scene.reports(1, &mut Told::default());
    });
}

#[test]
fn a_pipe_that_is_lost_on_the_way_is_read_by_the_keeper() {
    in_both(|scene| {
        scene.start(&talker(scene, 1, "head -c 5000000 /dev/zero"));
        let mut front = scene.attached(1);
        drop(take_pipe(&mut front));
        go(scene);
        front.send(&FromFrontEnd::PipeLost { rank: OF.0, stream: OF.1 });
        let told = hear_out(&mut front);
        assert_eq!(told.output[&(0, Stream::Output)].len(), 5_000_000);
        scene.reports(1, &mut Told::default());
    });
}

/// Told to forget the job meanwhile, as it is when the job has ended.
#[test]
fn an_end_waits_until_somebody_has_the_pipe() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&talker(&scene, 1, "echo last"));
    let mut front = scene.attached(1);
    let mut pipe = take_pipe(&mut front);
    go(&scene);
    scene.reports(1, &mut Told::default());
    front.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut room = [0; 10];
    assert!((&front.stream).read(&mut room).is_err(), "the end was told too early");
    front.send(&FromFrontEnd::PipeTaken { rank: OF.0, stream: OF.1 });
    assert_eq!(hear_out(&mut front).ends[&0].0, TaskStatus::Exited(0));
    let mut last = String::new();
    pipe.read_to_string(&mut last).unwrap();
    assert_eq!(last, "last\n");
}

#[test]
fn a_front_end_that_vanishes_with_a_pipe_harms_no_task() {
    in_both(|scene| {
        scene.start(&talker(scene, 1, "head -c 5000000 /dev/zero && echo survived > survived"));
        let mut front = scene.attached(1);
        let pipe = take_pipe(&mut front);
        front.send(&FromFrontEnd::PipeTaken { rank: OF.0, stream: OF.1 });
        go(scene);
        drop((front, pipe));
        let mut told = Told::default();
        scene.reports(1, &mut told);
        assert_eq!(told.status(0), TaskStatus::Exited(0));
        assert!(scene.directory.join("survived").exists());
    });
}

/// It has its end wait, and holds the pipe open: the keeper must not wait for the end of it.
#[test]
fn a_front_end_with_a_pipe_cannot_stop_the_keeper() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&talker(&scene, 1, "true"));
    let mut front = scene.attached(1);
    let pipe = take_pipe(&mut front);
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let open = OpenOptions::new().write(true).open(path).unwrap();
    front.send(&FromFrontEnd::PipeTaken { rank: OF.0, stream: OF.1 });
    drop(front);
    go(&scene);
    scene.reports(1, &mut Told::default());
    drop((pipe, open));
}

#[test]
fn senseless_words_about_pipes_change_nothing() {
    let mut scene = Scene::new(Membership::Groups);
    scene.start(&talker(&scene, 1, "echo whole"));
    let mut front = scene.attached(1);
    let stream = Stream::Output;
    front.send(&FromFrontEnd::PipeTaken { rank: Rank(0), stream });
    front.send(&FromFrontEnd::PipeLost { rank: Rank(0), stream });
    front.send(&FromFrontEnd::WantPipe { rank: Rank(7), stream });
    go(&scene);
    let told = hear_out(&mut front);
    assert_eq!(told.output[&(0, stream)], b"begins\nwhole\n");
    scene.reports(1, &mut Told::default());
}
