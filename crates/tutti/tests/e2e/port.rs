//! The port for other machines, attacked: by a peer without a certificate, by a member that
//! misbehaves, by another cluster and another release. It costs the attacker its connection, and no
//! other anything.

mod members;
mod others;

use crate::cluster::Bed;
use crate::harness::{eventually, status_of, within};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_secure::{Clock, Credentials, Endpoint, Key, Newcomer, SecureStream, Token};
use tutti_wire::frame::{FrameBuffer, decode, encode};
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::limits::{PROTOCOL_VERSION, TRANSPORT_VERSION};
use tutti_wire::{Hello, Role as Speaks};

/// A silent connection is closed after 5 seconds; a machine may be busy.
const LET_GO: Duration = Duration::from_secs(15);

/// A job on some nodes and what their daemons are, before a peer misbehaves.
struct Calm<'a> {
    bed: &'a Bed,
    nodes: Vec<usize>,
    job: String,
    agents: BTreeMap<usize, Option<i32>>,
    descriptors: usize,
}

impl<'a> Calm<'a> {
    fn before(bed: &'a Bed, nodes: &[usize]) -> Self {
        let count = nodes.len().to_string();
        let job = ["submit", "--parsable", "-N", &count, "-o", "/dev/null", "--", "sleep"];
        let job = bed.tutti(1, &[&job[..], &[&bed.audit.nap]].concat()).expect(0).text();
        let job = job.trim().to_owned();
        eventually("the job runs", || {
            let jobs = bed.tutti(1, &["ps", "--json", &job]).expect(0).json();
            (jobs[0]["state"] == "running").then_some(())
        });
        let agents = agents(bed, nodes);
        let descriptors = eventually("no verb is connected any more", || {
            let count = descriptors(bed);
            std::thread::sleep(Duration::from_millis(50));
            (count == descriptors(bed)).then_some(count)
        });
        Self { bed, nodes: nodes.to_vec(), job, agents, descriptors }
    }

    /// Fails if anything of it was disturbed, or is left of the attacker.
    #[track_caller]
    fn expect_undisturbed(self) {
        let bed = self.bed;
        within(LET_GO, "nothing of the strangers is left", || {
            (descriptors(bed) <= self.descriptors).then_some(())
        });
        assert_eq!(agents(bed, &self.nodes), self.agents, "an agent ended");
        let jobs = bed.tutti(1, &["ps", "--json", &self.job]).expect(0).json();
        assert_eq!(jobs[0]["state"], "running");
        for &number in &self.nodes {
            let log = log(bed, number);
            assert!(!log.contains("lost the branch of n2"), "{log}");
            assert!(!log.contains("lost the connection"), "{log}");
        }
        bed.tutti(2, &["run", "-N", &self.nodes.len().to_string(), "true"]).expect(0);
        bed.tutti(1, &["cancel", "--now", &self.job]).expect(0);
    }
}

fn agents(bed: &Bed, nodes: &[usize]) -> BTreeMap<usize, Option<i32>> {
    nodes.iter().map(|&number| (number, bed.node(number).daemon("agent"))).collect()
}

fn descriptors(bed: &Bed) -> usize {
    let agent = bed.node(1).daemon("agent").unwrap();
    std::fs::read_dir(format!("/proc/{agent}/fd")).unwrap().count()
}

/// What the head's agent has in memory.
fn memory_kib(bed: &Bed) -> u64 {
    let size = status_of(bed.node(1).daemon("agent").unwrap(), "VmRSS").unwrap();
    size.trim_end_matches(" kB").parse().unwrap()
}

fn log(bed: &Bed, number: usize) -> String {
    std::fs::read_to_string(bed.node(number).directory().join("log")).unwrap_or_default()
}

/// Waits until the head's log has this.
#[track_caller]
fn head_says(bed: &Bed, text: &str) {
    eventually(text, || log(bed, 1).contains(text).then_some(()));
}

/// A connection to the head.
fn dial(bed: &Bed, from: usize) -> TcpStream {
    dial_to(bed, from, 1)
}

fn dial_to(bed: &Bed, from: usize, to: usize) -> TcpStream {
    let socket = bed.node(from).dial(&bed.node(to).address()).unwrap();
    socket.set_read_timeout(Some(LET_GO)).unwrap();
    socket.set_write_timeout(Some(LET_GO)).unwrap();
    socket
}

/// Fails unless the other end closes the connection.
#[track_caller]
fn is_closed(mut stream: impl Read, who: &str) {
    let deadline = Instant::now() + LET_GO;
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return,
            Ok(_) => assert!(Instant::now() < deadline, "{who}: is still spoken with"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("{who}: the connection is still there")
            }
            Err(_) => return,
        }
    }
}

/// One that has come through the handshake.
struct Speaker {
    stream: SecureStream,
    input: FrameBuffer,
}

impl Speaker {
    fn over(mut stream: SecureStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.handshake().unwrap();
        Self { stream, input: FrameBuffer::new() }
    }

    /// A peer with a token, and nothing else.
    fn newcomer(bed: &Bed, token: &Token) -> Self {
        let newcomer = Newcomer::new(token, TRANSPORT_VERSION, Clock::system()).unwrap();
        Self::over(newcomer.connect(dial(bed, 3)).unwrap())
    }

    /// A peer with the certificate of this node.
    fn member(bed: &Bed, number: usize) -> Self {
        Self::with(&bed.node(number).directory().join("cluster"), dial(bed, 3))
    }

    /// A peer with the certificate that is kept there.
    fn with(directory: &Path, socket: TcpStream) -> Self {
        let credentials = Credentials::load(directory).unwrap();
        let endpoint = Endpoint::new(&credentials, TRANSPORT_VERSION, Clock::system()).unwrap();
        Self::over(endpoint.connect(socket).unwrap())
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    fn say(&mut self, message: &impl serde::Serialize) -> bool {
        self.write(&frame(message))
    }

    /// The next frame; nothing if the connection is closed.
    fn hear<T>(&mut self, read: impl Fn(&[u8]) -> T) -> Option<T> {
        loop {
            if let Some(payload) = self.input.next_frame().unwrap() {
                return Some(read(payload));
            }
            let mut piece = vec![0; 64 << 10];
            match self.stream.read(&mut piece) {
                Ok(count @ 1..) => self.input.extend(&piece[..count]),
                _ => return None,
            }
        }
    }

    /// Greets, and takes in the other greeting.
    fn greet(&mut self, role: Speaks) {
        self.write(&Hello { role }.to_frame());
        assert_eq!(self.hear(|payload| Hello::decode(payload).unwrap().role), Some(Speaks::Server));
    }
}

fn frame(message: &impl serde::Serialize) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(message, &mut frame).unwrap();
    frame
}

/// The greeting of a later release.
fn later_greeting(role: Speaks) -> [u8; 12] {
    let mut greeting = Hello { role }.to_frame();
    greeting[9..11].copy_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
    greeting
}

fn invite(bed: &Bed) -> Token {
    let token = bed.tutti(1, &["invite", "--parsable"]).expect(0).text();
    token.trim().parse().unwrap()
}

/// The first words of a member.
fn client_hello(bed: &Bed) -> Vec<u8> {
    let listener = bed.node(3).listen().unwrap();
    let near = bed.node(3).dial(&bed.node(3).address()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let newcomer = Newcomer::new(&invite(bed), TRANSPORT_VERSION, Clock::system()).unwrap();
    drop(newcomer.connect(near).unwrap());
    let mut hello = Vec::new();
    let _ = far.read_to_end(&mut hello);
    assert!(hello.len() > 100, "{hello:?}");
    hello
}

/// Two machines in a cluster, and a third with a network and nothing else.
fn two_and_a_stranger() -> Bed {
    let bed = Bed::of(3, &[0]);
    let address = bed.node(1).address();
    bed.tutti(1, &["up", "--listen", &address, "--name", "n1", "--trust-root"]).expect(0);
    bed.bed().join(bed.node(2)).unwrap();
    bed
}

#[test]
fn strangers_are_let_go_and_disturb_nobody() {
    let bed = two_and_a_stranger();
    let (hello, token) = (client_hello(&bed), invite(&bed));
    let calm = Calm::before(&bed, &[1, 2]);
    // Refused at once.
    let noise: Vec<u8> =
        (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let huge_record = [&[22, 3, 1, 0xff, 0xff][..], &vec![1; 0xffff]].concat();
    for (who, bytes) in
        [("HTTP", &b"GET / HTTP/1.1\r\n\r\n"[..]), ("noise", &noise), ("a record", &huge_record)]
    {
        let mut socket = dial(&bed, 3);
        let _ = socket.write_all(bytes);
        is_closed(socket, who);
    }
    head_says(&bed, "is it the right port?");
    // A connection that goes no further is closed after a while; all of them wait at the same time.
    let mut silent: Vec<(&str, Box<dyn Read>)> = Vec::new();
    for (who, length) in
        [("nothing", 0), ("half a record", 3), ("half a hello", 90), ("a hello", hello.len())]
    {
        let mut socket = dial(&bed, 3);
        socket.write_all(&hello[..length]).unwrap();
        silent.push((who, Box::new(socket)));
    }
    let greeting = Hello { role: Speaks::Newcomer }.to_frame();
    for (who, bytes) in [
        ("a newcomer who says nothing", &[][..]),
        ("half a greeting", &greeting[..7]),
        ("a greeting", &greeting),
        ("half a request", &[&greeting[..], &[200, 0, 0, 0, 1, 2, 3]].concat()),
    ] {
        let mut newcomer = Speaker::newcomer(&bed, &token);
        newcomer.write(bytes);
        silent.push((who, Box::new(newcomer.stream)));
    }
    let mut slow = dial(&bed, 3);
    for byte in hello.iter().cycle() {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(60));
    }
    for (who, stream) in silent {
        is_closed(stream, who);
    }
    // A peer that wants what is not its own, or announces what no peer may say.
    let agent = Hello { role: Speaks::Agent }.to_frame();
    let huge = [&greeting[..], &u32::MAX.to_le_bytes()].concat();
    let long = [&greeting[..], &(16_u32 << 10).to_le_bytes()].concat();
    for (who, bytes) in [
        ("an agent without a certificate", &agent[..]),
        ("a huge greeting", &[0xff, 0xff, 0xff, 0, 1]),
        ("a huge frame", &huge),
        ("a long request", &long),
    ] {
        let mut newcomer = Speaker::newcomer(&bed, &token);
        newcomer.write(bytes);
        is_closed(newcomer.stream, who);
    }
    let mut guesser = Speaker::newcomer(&bed, &token);
    guesser.greet(Speaks::Newcomer);
    let request = Key::generate().unwrap().request().unwrap();
    let secret = vec![7; token.secret().as_bytes().len()].into();
    guesser.say(&Redeem { secret, name: "n9".into(), request: request.into(), is_client: false });
    let answer = guesser.hear(|payload| decode::<Redeemed>(payload).unwrap());
    assert!(
        matches!(&answer, Some(Redeemed::Refused { reason }) if reason.contains("token")),
        "{answer:?}"
    );
    is_closed(guesser.stream, "who guesses a token");
    calm.expect_undisturbed();
}

#[test]
fn many_who_say_nothing_keep_nobody_out() {
    let bed = two_and_a_stranger();
    let calm = Calm::before(&bed, &[1, 2]);
    // More than may be there at once.
    let silent: Vec<TcpStream> = (0..700).map(|_| dial(&bed, 2)).collect();
    bed.bed().join(bed.node(3)).unwrap();
    bed.tutti(3, &["run", "-N", "3", "true"]).expect(0);
    bed.tutti(3, &["down"]).expect(0);
    for socket in silent {
        is_closed(socket, "who says nothing");
    }
    calm.expect_undisturbed();
}
