//! How a machine becomes a member, and stays one.

use crate::forger::Forged;
use crate::world::{Cluster, DAY, VERSION, meet, name};
use std::io::{Read, Write};
use std::time::Duration;
use tutti_secure::{
    Admission, Credentials, Distrust, Key, Newcomer, Refusal, Role, Secret, SecureStream,
    StreamError, Token,
};

const HOUR: Duration = Duration::from_secs(3600);

fn newcomer(cluster: &Cluster, token: &Token) -> Newcomer {
    Newcomer::new(token, VERSION, cluster.clock()).unwrap()
}

fn issue(cluster: &mut Cluster) -> Token {
    let (fingerprint, now) = (cluster.authority.fingerprint(), cluster.now());
    cluster.tokens.issue(&fingerprint, Admission::Node, now, HOUR).unwrap()
}

fn send(stream: &mut SecureStream, message: &[u8]) {
    stream.write_all(&u32::try_from(message.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(message).unwrap();
}

fn receive(stream: &mut SecureStream) -> Vec<u8> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut message = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut message).unwrap();
    message
}

#[test]
fn a_machine_joins_by_its_token_and_is_a_member_then() {
    let mut cluster = Cluster::new("c1");
    let first = cluster.node("first");
    // As it comes to the other machine: typed.
    let token: Token = issue(&mut cluster).to_string().parse().unwrap();

    let met =
        meet(|socket| newcomer(&cluster, &token).connect(socket), |socket| first.accept(socket));
    let (mut joining, mut accepted) = met.both();
    assert_eq!(joining.peer().unwrap().member, cluster.named(Role::Node, "first"));
    assert_eq!(accepted.peer(), None);

    let key = Key::generate().unwrap();
    send(&mut joining, &postcard::to_allocvec(token.secret()).unwrap());
    send(&mut joining, &key.request().unwrap());

    let secret: Secret = postcard::from_bytes(&receive(&mut accepted)).unwrap();
    let request = receive(&mut accepted);
    let role = cluster.tokens.redeem(&secret, cluster.now()).unwrap();
    let signed =
        cluster.authority.sign(&request, role.role(), &name("second"), cluster.now()).unwrap();
    send(&mut accepted, &signed);
    send(&mut accepted, cluster.authority.certificate());

    let credentials =
        Credentials::new(key, &receive(&mut joining), &receive(&mut joining)).unwrap();
    assert!(token.is_of(&credentials.authority_fingerprint()));
    assert_eq!(*credentials.member(), cluster.named(Role::Node, "second"));

    let second = cluster.endpoint(&credentials);
    let (to_first, from_second) =
        meet(|socket| second.connect(socket), |socket| first.accept(socket)).both();
    assert_eq!(to_first.peer().unwrap().member, cluster.named(Role::Node, "first"));
    assert_eq!(from_second.peer().unwrap().member, cluster.named(Role::Node, "second"));
    assert_eq!(from_second.peer().unwrap().key, credentials.key_fingerprint());
    assert_ne!(to_first.peer().unwrap().key, credentials.key_fingerprint());
    assert_eq!(from_second.peer().unwrap().expires, credentials.expires());
    // And the other way round.
    let (to_second, _) =
        meet(|socket| first.connect(socket), |socket| second.accept(socket)).both();
    assert_eq!(to_second.peer().unwrap().member, cluster.named(Role::Node, "second"));

    assert_eq!(cluster.tokens.redeem(token.secret(), cluster.now()), Err(Refusal::Used));
}

#[test]
fn a_newcomer_speaks_with_nobody_but_the_cluster_of_its_token() {
    let mut cluster = Cluster::new("c1");
    let token = issue(&mut cluster);
    // Another cluster that gives itself the same name, as a machine in the middle would.
    let impostor = Cluster::new("c1");
    let other = impostor.node("first");
    let met =
        meet(|socket| newcomer(&cluster, &token).connect(socket), |socket| other.accept(socket));
    assert_eq!(met.client_error(), StreamError::Distrust(Distrust::OtherClusterThanToken));
    assert_eq!(met.server_error(), StreamError::Refused);
}

#[test]
fn the_authoritys_certificate_alone_makes_nobody_a_member() {
    // That certificate is public; a peer that shows it beside one of its own has no more by it.
    let mut cluster = Cluster::new("c1");
    let token = issue(&mut cluster);
    let impostor = Cluster::new("c1");
    let server = Forged::beside(&impostor, cluster.authority.certificate());
    let met = server.met_by_newcomer(&newcomer(&cluster, &token));
    assert_eq!(met, Err(StreamError::OtherAuthority));
}

#[test]
fn a_newcomer_does_not_take_an_expired_server() {
    let mut cluster = Cluster::new("c1");
    let first = cluster.node("first");
    cluster.pass(31 * DAY);
    let token = issue(&mut cluster);
    let met =
        meet(|socket| newcomer(&cluster, &token).connect(socket), |socket| first.accept(socket));
    assert_eq!(met.client_error(), StreamError::PeerRanOut);
}

#[test]
fn a_member_renews_over_a_connection_that_is_there() {
    let cluster = Cluster::new("c1");
    let first = cluster.node("first");
    let old = cluster.member(Role::Node, "second");
    let second = cluster.endpoint(&old);
    let (mut asking, mut asked) =
        meet(|socket| second.connect(socket), |socket| first.accept(socket)).both();

    assert!(!old.renewal_due(cluster.now()));
    cluster.pass(20 * DAY - Duration::from_secs(1));
    assert!(!old.renewal_due(cluster.now()));
    cluster.pass(Duration::from_secs(1));
    assert!(old.renewal_due(cluster.now()));

    let key = Key::generate().unwrap();
    send(&mut asking, &key.request().unwrap());
    let request = receive(&mut asked);
    let who = asked.peer().unwrap().member.clone();
    let signed = cluster.authority.sign(&request, who.role, &who.name, cluster.now()).unwrap();
    send(&mut asked, &signed);
    let new = Credentials::new(key, &receive(&mut asking), old.authority_certificate()).unwrap();
    assert_eq!(new.member(), old.member());
    assert!(!new.renewal_due(cluster.now()));

    // By the time that the old one has run out, the new one is good.
    cluster.pass(10 * DAY + Duration::from_secs(1));
    let first = cluster.node("first");
    let refused = meet(|socket| second.connect(socket), |socket| first.accept(socket));
    assert_eq!(refused.server_error(), StreamError::PeerRanOut);
    assert_eq!(refused.client_error(), StreamError::RanOut);
    let second = cluster.endpoint(&new);
    meet(|socket| second.connect(socket), |socket| first.accept(socket)).both();
}
