//! A secure stream behaves as a non-blocking socket does.

use crate::world::{Cluster, meet, sockets, wait};
use proptest::prelude::*;
use std::io::{self, ErrorKind, Read, Write};
use std::thread;
use tutti_secure::limits::{INPUT_BYTES_BULK, UNSENT_BYTES_MAX};
use tutti_secure::{SecureStream, StreamError};

/// More than that no kernel holds for us on loopback.
const KERNEL_BYTES: usize = 32 << 20;

/// Two members that are connected, and neither of them blocks.
fn connected() -> (SecureStream, SecureStream) {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (mut one, mut other) =
        meet(|socket| node.connect(socket), |socket| node.accept(socket)).both();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Bytes that are nowhere the same.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|place| u8::try_from(place * 31 % 251).unwrap()).collect()
}

/// Sends all, as a poller does.
fn send(stream: &mut SecureStream, mut bytes: &[u8], piece: usize) {
    while !bytes.is_empty() || stream.wants_write() {
        let result = match bytes {
            [] => stream.flush().map(|()| 0),
            _ => stream.write(&bytes[..piece.min(bytes.len())]),
        };
        match result {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let write = stream.wants_write() || !stream.is_handshaking();
                wait(stream, false, write);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads so much, as a poller does, by pieces.
fn receive(stream: &mut SecureStream, length: usize, piece: usize) -> Vec<u8> {
    let (mut heard, mut room) = (Vec::new(), vec![0; piece]);
    while heard.len() < length {
        if !stream.has_unread() {
            wait(stream, true, false);
        }
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(!stream.has_unread(), "a poller would not rest");
            }
            Err(error) => panic!("{error}"),
        }
    }
    heard
}

#[test]
fn nothing_is_written_before_the_handshake_is_over_and_pollers_rest() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (one, other) = sockets();
    let (mut client, mut server) = (node.connect(one).unwrap(), node.accept(other).unwrap());
    for _ in 0..3 {
        assert!(would_block(&client.write(b"early")));
        assert!(client.is_handshaking() && !client.wants_write() && client.peer().is_none());
    }
    while client.is_handshaking() || server.is_handshaking() {
        for stream in [&mut server, &mut client] {
            let result = stream.read(&mut [0]);
            assert!(would_block(&result), "{result:?}");
        }
    }
    send(&mut client, b"now", 3);
    assert_eq!(receive(&mut server, 3, 10), b"now");
}

#[test]
fn who_does_not_read_is_not_written_to() {
    let (mut one, mut other) = connected();
    let all = text(1 << 20);
    let mut sent = Vec::new();
    loop {
        match one.write(&all) {
            Ok(count) => {
                assert!(count <= UNSENT_BYTES_MAX);
                sent.extend_from_slice(&all[..count]);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        assert!(sent.len() < KERNEL_BYTES, "there is no end to what is taken");
    }
    assert!(one.wants_write());
    assert!(would_block(&one.flush()) && would_block(&one.write(b"more")));
    let length = sent.len();
    let heard = thread::scope(|scope| {
        scope.spawn(|| send(&mut one, &[], 1));
        receive(&mut other, length, 1 << 16)
    });
    assert!(heard == sent, "it is not the same");
    assert!(!one.wants_write());
}

#[test]
fn who_reads_little_at_once_is_told_that_there_is_more() {
    let (mut one, mut other) = connected();
    let all = text(100_000);
    send(&mut one, &all, 1000);
    assert_eq!(receive(&mut other, all.len(), 7), all);
    assert!(!other.has_unread());
    assert!(would_block(&other.read(&mut [0])));
}

#[test]
fn a_short_read_leaves_nothing_behind() {
    let (mut one, mut other) = connected();
    send(&mut one, &text(40_000), 1000);
    let mut room = vec![0; INPUT_BYTES_BULK * 2];
    let mut total = 0;
    while total < 40_000 {
        wait(&other, true, false);
        if let Ok(count) = other.read(&mut room) {
            total += count;
            assert!(!other.has_unread());
        }
    }
}

#[test]
fn a_farewell_ends_one_direction() {
    let (mut one, mut other) = connected();
    send(&mut one, b"the end", 7);
    one.shutdown().unwrap();
    one.shutdown().unwrap();
    assert_eq!(one.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(receive(&mut other, 8, 100), b"the end");
    assert!(!other.wants_read());
    assert_eq!(other.read(&mut [0]).unwrap(), 0);

    send(&mut other, b"an answer", 9);
    assert_eq!(receive(&mut one, 9, 100), b"an answer");
    other.shutdown().unwrap();
    assert_eq!(receive(&mut one, 1, 100), b"");
    assert_eq!(one.read(&mut [0]).unwrap(), 0);
}

#[test]
fn who_says_farewell_in_the_midst_of_the_handshake_hears_nothing_more() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (one, other) = sockets();
    let (mut client, mut server) = (node.connect(one).unwrap(), node.accept(other).unwrap());
    assert!(would_block(&server.read(&mut [0])));
    let given_up = server.shutdown().unwrap_err();
    assert_eq!(StreamError::of(&given_up), Some(&StreamError::GivenUp));
    client.set_nonblocking(false).unwrap();
    let _ = client.write_all(b"for nobody");
    assert!(server.read(&mut [0; 10]).is_err() && server.peer().is_none());
}

#[test]
fn a_farewell_waits_for_what_was_written() {
    let (mut one, mut other) = connected();
    let all = text(1 << 20);
    let mut sent = 0;
    while let Ok(count) = one.write(&all) {
        sent += count;
    }
    assert!(would_block(&one.shutdown()));
    let heard = thread::scope(|scope| {
        scope.spawn(|| {
            while would_block(&one.shutdown()) {
                wait(&one, false, true);
            }
        });
        receive(&mut other, usize::MAX, 1 << 16)
    });
    assert_eq!(heard.len(), sent);
}

#[test]
fn a_peer_that_is_gone_is_an_error_not_a_panic() {
    let (mut one, other) = connected();
    drop(other);
    let mut result = Ok(0);
    for _ in 0..1000 {
        result = one.write(&text(10_000));
        if result.is_err() {
            break;
        }
    }
    assert!(result.is_err() && !would_block(&result), "{result:?}");
    assert!(one.read(&mut [0]).is_err());
}

#[test]
fn an_empty_read_or_write_is_nothing() {
    let (mut one, mut other) = connected();
    assert_eq!(one.write(b"").unwrap(), 0);
    assert_eq!(one.read(&mut []).unwrap(), 0);
    assert!(would_block(&other.read(&mut [0])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn both_directions_at_once_whatever_the_pieces(
        lengths in prop::array::uniform2(0_usize..2_000_000),
        pieces in prop::array::uniform4(1_usize..400_000),
    ) {
        let (mut one, mut other) = connected();
        // Three bytes at a time would take all day.
        let pieces = pieces.map(|piece| piece.max(500));
        let (there, back) = (text(lengths[0]), text(lengths[1]));
        thread::scope(|scope| {
            scope.spawn(|| {
                send(&mut one, &there, pieces[0]);
                assert!(receive(&mut one, back.len(), pieces[1]) == back);
            });
            assert!(receive(&mut other, there.len(), pieces[2]) == there);
            send(&mut other, &back, pieces[3]);
        });
    }
}
