//! Whatever comes over the network costs its own connection, and little more.

use crate::world::{Cluster, VERSION, meet, meet_with, sockets, wait};
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;
use tutti_secure::{Admission, Endpoint, Newcomer, StreamError, Token};

/// A peer that says this and nothing more, and hears the answer.
fn says(mut socket: TcpStream, bytes: &[u8]) -> Vec<u8> {
    // A refused peer may be cut off in the midst of its speech.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn accepting(endpoint: &Endpoint, bytes: &[u8]) -> StreamError {
    meet_with(|socket| endpoint.accept(socket), |socket| drop(says(socket, bytes))).unwrap_err()
}

fn connecting(endpoint: &Endpoint, bytes: &[u8]) -> StreamError {
    meet_with(|socket| endpoint.connect(socket), |socket| drop(says(socket, bytes))).unwrap_err()
}

/// The first words of a member that connects.
fn client_hello(endpoint: &Endpoint) -> Vec<u8> {
    let (one, mut other) = sockets();
    let stream = endpoint.connect(one).unwrap();
    assert!(!stream.wants_write());
    stream.socket().shutdown(Shutdown::Write).unwrap();
    let mut hello = Vec::new();
    other.read_to_end(&mut hello).unwrap();
    hello
}

#[test]
fn plain_text_is_told_apart() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-OpenSSH_10.0\r\n", b"tut", &[0; 64]] {
        assert_eq!(accepting(&node, text), StreamError::NotTutti);
    }
    assert_eq!(connecting(&node, b"220 smtp.example.org ESMTP\r\n"), StreamError::NotTutti);
}

#[test]
fn who_is_refused_is_told_in_a_few_bytes() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let mut answer = Vec::new();
    let heard = meet_with(
        |socket| node.accept(socket),
        |socket| answer = says(socket, b"GET / HTTP/1.1\r\n\r\n"),
    );
    assert_eq!(heard, Err(StreamError::NotTutti));
    // An alert, and nothing of the cluster.
    assert!(answer.len() <= 7 && answer.first() == Some(&21), "{answer:?}");
}

#[test]
fn half_a_handshake_is_no_connection() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let hello = client_hello(&node);
    for length in (0..hello.len()).step_by(7).chain([hello.len() - 1, hello.len()]) {
        assert_eq!(accepting(&node, &hello[..length]), StreamError::Truncated, "{length}");
    }
}

#[test]
fn who_says_nothing_more_gets_no_further() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let hello = client_hello(&node);
    for length in [0, 1, 5, 100, hello.len()] {
        let (one, mut other) = sockets();
        let mut stream = node.accept(one).unwrap();
        other.write_all(&hello[..length]).unwrap();
        if length > 0 {
            wait(&stream, true, false);
        }
        let blocked = stream.read(&mut [0; 10]).unwrap_err();
        assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
        assert_eq!(stream.write(b"secret").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(stream.is_handshaking() && stream.peer().is_none());
        // A poller may rest.
        assert!(stream.wants_read() && !stream.wants_write() && !stream.has_unread());
    }
}

#[test]
fn huge_records_and_messages_are_refused_at_once() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let huge_record = [&[22, 3, 1, 0xff, 0xff][..], &vec![1; 0xffff]].concat();
    assert_eq!(accepting(&node, &huge_record), StreamError::NotTutti);
    assert_eq!(connecting(&node, &huge_record), StreamError::NotTutti);

    // A greeting that would have 16 MiB, in records of the size that is allowed.
    let record = [&[22, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat();
    let mut endless = record.repeat(1024);
    endless[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    let (one, mut other) = sockets();
    let mut stream = node.accept(one).unwrap();
    let sent = thread::spawn(move || {
        let mut sent = 0;
        for piece in endless.chunks(record.len()) {
            match other.write_all(piece) {
                Ok(()) => sent += piece.len(),
                Err(_) => return sent,
            }
        }
        sent
    });
    stream.set_nonblocking(false).unwrap();
    assert!(StreamError::of(&stream.handshake().unwrap_err()).is_some());
    drop(stream);
    assert!(sent.join().unwrap() < 16 << 20, "all of it was taken");
}

#[test]
fn a_connection_that_breaks_is_told_apart_from_one_that_ends() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (mut one, mut other) =
        meet(|socket| node.connect(socket), |socket| node.accept(socket)).both();
    one.write_all(b"last words").unwrap();
    one.socket().shutdown(Shutdown::Write).unwrap();
    let mut heard = [0; 10];
    other.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"last words");
    for _ in 0..2 {
        let error = other.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(StreamError::of(&error), Some(&StreamError::Truncated));
    }
}

#[test]
fn what_came_before_rubbish_is_heard() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (mut one, mut other) =
        meet(|socket| node.connect(socket), |socket| node.accept(socket)).both();
    for _ in 0..3 {
        one.write_all(&[7; 3000]).unwrap();
    }
    let mut socket = one.socket();
    socket.write_all(b"rubbish").unwrap();
    let mut room = [0; 20_000];
    let count = other.read(&mut room).unwrap();
    assert!(count >= 3000 && room[..count].iter().all(|&byte| byte == 7), "{count}");
    assert_eq!(StreamError::of(&other.read(&mut room).unwrap_err()), Some(&StreamError::NotTutti));
    assert!(!other.wants_read() && !other.wants_write() && other.write(b"more").is_err());
}

#[test]
fn a_newcomer_learns_nothing_but_whom_it_speaks_with() {
    let mut cluster = Cluster::new("c");
    let node = cluster.node("a");
    let (fingerprint, now) = (cluster.authority.fingerprint(), cluster.now());
    let hour = Duration::from_secs(3600);
    // Any text of this form does to connect; what the secret is worth is for the caller to say.
    let token: Token = cluster.tokens.issue(&fingerprint, Admission::Node, now, hour).unwrap();
    cluster.tokens.redeem(token.secret(), now).unwrap();
    let newcomer = Newcomer::new(&token, VERSION, cluster.clock()).unwrap();
    let (_, accepted) =
        meet(|socket| newcomer.connect(socket), |socket| node.accept(socket)).both();
    assert!(!accepted.is_handshaking());
    assert_eq!(accepted.peer(), None);
}

/// Passes on what comes, with one byte changed.
fn meddle(mut from: TcpStream, mut to: TcpStream, place: usize, bits: u8) {
    let (mut seen, mut piece) = (0, [0; 256]);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if let Some(byte) = place.checked_sub(seen).and_then(|at| piece[..count].get_mut(at)) {
            *byte ^= bits;
        }
        seen += count;
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Sends text from client to server past a peer that changes a byte of what the client sends, or of
/// what it is sent: whether the server has heard all of it. It must not hear anything else.
fn past_a_meddler(cluster: &Cluster, from_client: bool, place: usize, bits: u8) -> bool {
    const TEXT: &[u8] = b"thirty bytes that have to be so";
    let node = cluster.node("a");
    let ((client, near), (far, server)) = (sockets(), sockets());
    if place != usize::MAX {
        // Where a length was changed, both sides wait for the other, until one gives up.
        for socket in [&client, &near, &far, &server] {
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        }
    }
    let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let places = if from_client { (place, usize::MAX) } else { (usize::MAX, place) };
    thread::scope(|scope| {
        scope.spawn(move || meddle(near, far, places.0, bits));
        scope.spawn(move || meddle(far_back, near_back, places.1, bits));
        let node_of_client = node.clone();
        scope.spawn(move || {
            let mut stream = node_of_client.connect(client).unwrap();
            stream.set_nonblocking(false).unwrap();
            if stream.write_all(TEXT).and_then(|()| stream.shutdown()).is_ok() {
                let _ = stream.read(&mut [0]);
            }
        });
        let mut stream = node.accept(server).unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut heard = Vec::new();
        let whole = stream.read_to_end(&mut heard).is_ok();
        assert!(TEXT.starts_with(&heard), "{heard:?}");
        whole && heard == TEXT
    })
}

#[test]
fn without_a_meddler_all_is_heard() {
    assert!(past_a_meddler(&Cluster::new("c"), true, usize::MAX, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_cost_their_own_connection(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let cluster = Cluster::new("c");
        let node = cluster.node("a");
        accepting(&node, &bytes);
        connecting(&node, &bytes);
    }

    #[test]
    fn a_greeting_with_a_changed_byte_costs_its_own_connection(
        place in any::<prop::sample::Index>(), bits in 1_u8..,
    ) {
        let cluster = Cluster::new("c");
        let node = cluster.node("a");
        let mut hello = client_hello(&node);
        let place = place.index(hello.len());
        hello[place] ^= bits;
        accepting(&node, &hello);
    }

    #[test]
    fn nobody_reads_what_was_meddled_with(
        from_client in any::<bool>(), place in 0_usize..1200, bits in 1_u8..,
    ) {
        past_a_meddler(&Cluster::new("c"), from_client, place, bits);
    }
}
