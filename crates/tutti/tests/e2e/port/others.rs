//! Other clusters, other releases, and a second daemon for what has one.

use super::{
    Calm, LET_GO, Speaker, dial, invite, is_closed, later_greeting, log, two_and_a_stranger,
};
use crate::cluster::Bed;
use crate::harness::eventually;
use serde_json::Value;
use tutti_secure::{Admission, Authority, Clock, Credentials, Endpoint, Key, Name, Role, Tokens};
use tutti_wire::limits::{PROTOCOL_VERSION, TRANSPORT_VERSION};
use tutti_wire::{Hello, Role as Speaks};

#[test]
fn another_cluster_of_the_same_name_is_a_stranger() {
    let bed = two_and_a_stranger();
    let calm = Calm::before(&bed, &[1, 2]);
    let now = Clock::system().now();
    let other = Authority::create(&Name::new("tutti").unwrap(), now).unwrap();
    let key = Key::generate().unwrap();
    let request = key.request().unwrap();
    let certificate = other.sign(&request, Role::Node, &Name::new("n2").unwrap(), now).unwrap();
    let credentials = Credentials::new(key, &certificate, other.certificate()).unwrap();
    let endpoint = Endpoint::new(&credentials, TRANSPORT_VERSION, Clock::system()).unwrap();
    let mut stream = endpoint.connect(dial(&bed, 3)).unwrap();
    stream.set_nonblocking(false).unwrap();
    let error = stream.handshake().unwrap_err();
    assert!(error.to_string().contains("belongs to another cluster"), "{error}");
    is_closed(stream, "another cluster");
    // A head that has another authority than the token says: a machine that joins is told before it
    // says it.
    let token =
        Tokens::default().issue(&other.fingerprint(), Admission::Node, now, LET_GO).unwrap();
    let address = bed.node(1).address();
    let done = bed.tutti(3, &["join", &address, &token.to_string(), "--name", "n3"]);
    done.expect(1).says("[T061]");
    calm.expect_undisturbed();
}

#[test]
fn who_is_of_another_release_hears_both_versions() {
    let bed = two_and_a_stranger();
    let calm = Calm::before(&bed, &[1, 2]);
    let (ours, theirs) = (PROTOCOL_VERSION, PROTOCOL_VERSION + 1);
    let both = format!("speaks protocol version {theirs}, this is version {ours}");
    let token = invite(&bed);
    let mut newcomer = Speaker::newcomer(&bed, &token);
    let mut member = Speaker::member(&bed, 2);
    for (speaker, role) in [(&mut newcomer, Speaks::Newcomer), (&mut member, Speaks::Agent)] {
        speaker.write(&later_greeting(role));
        assert_eq!(
            speaker.hear(|payload| Hello::decode(payload).map(|hello| hello.role)),
            Some(Ok(Speaks::Server)),
            "it must hear which version this is"
        );
        is_closed(&mut speaker.stream, "another release");
    }
    eventually("both are named twice", || (log(&bed, 1).matches(&both).count() == 2).then_some(()));
    // The other way round: the head is of a later release, and keeps the token.
    let now = Clock::system().now();
    let authority = Authority::create(&Name::new("later").unwrap(), now).unwrap();
    let later =
        Tokens::default().issue(&authority.fingerprint(), Admission::Node, now, LET_GO).unwrap();
    let listener = bed.node(3).listen().unwrap();
    let joining = std::thread::scope(|scope| {
        scope.spawn(|| {
            let key = Key::generate().unwrap();
            let request = key.request().unwrap();
            let name = Name::new("head").unwrap();
            let certificate = authority.sign(&request, Role::Node, &name, now).unwrap();
            let credentials = Credentials::new(key, &certificate, authority.certificate()).unwrap();
            let endpoint = Endpoint::new(&credentials, TRANSPORT_VERSION, Clock::system()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            let mut head = Speaker::over(endpoint.accept(socket).unwrap());
            head.write(&later_greeting(Speaks::Server));
            // A token is not told to a peer that can't understand it.
            let said = head.hear(|payload| Hello::decode(payload).map(|hello| hello.role));
            assert_eq!(said, Some(Ok(Speaks::Newcomer)));
            assert_eq!(head.hear(<[u8]>::len), None, "it says more than its greeting");
        });
        let later = later.to_string();
        bed.tutti(3, &["join", &bed.node(3).address(), &later, "--name", "n3"])
    });
    joining.expect(1).says(&both).says("[T012]");
    // No token was used up.
    let address = bed.node(1).address();
    drop(listener);
    bed.tutti(3, &["join", &address, &token.to_string(), "--name", "n3"]).expect(0);
    bed.tutti(3, &["down"]).expect(0);
    calm.expect_undisturbed();
}

#[test]
fn a_second_daemon_for_a_state_directory_ends_with_the_reason() {
    let bed = Bed::up(2, &[0]);
    let calm = Calm::before(&bed, &[1, 2]);
    for (number, role) in [(1, "agent"), (2, "agent"), (1, "controller")] {
        let directory = bed.node(number).directory().display().to_string();
        let pid = bed.node(number).daemon(role).unwrap();
        let second = bed.tutti(number, &[role, "--directory", &directory]);
        second.expect(1).says(&format!("runs already, as process {pid}")).says("[T014]");
    }
    let Value::Array(nodes) = bed.tutti(2, &["nodes", "--json"]).expect(0).json() else {
        panic!("no list of nodes")
    };
    assert_eq!(nodes.len(), 2);
    calm.expect_undisturbed();
}
