//! Which certificates are good, for what, and for how long.

use crate::forger::Forged;
use crate::world::{Cluster, DAY, VERSION, at, meet, name};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SanType,
};
use std::time::Duration;
use tutti_secure::limits::{NAME_BYTES_MAX, REQUEST_BYTES_MAX};
use tutti_secure::{
    Authority, AuthorityError, CertificateError, Credentials, Distrust, Endpoint, Key, Role,
    StreamError,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

#[test]
fn members_of_two_clusters_do_not_meet() {
    let (here, there) = (Cluster::new("here"), Cluster::new("there"));
    let (ours, theirs) = (here.node("a"), there.node("a"));
    let met = meet(|socket| theirs.connect(socket), |socket| ours.accept(socket));
    assert_eq!(met.client_error(), StreamError::OtherAuthority);
    assert_eq!(met.server_error(), StreamError::Refused);
}

#[test]
fn a_client_of_another_cluster_is_refused_also_if_it_trusts_us() {
    let (here, there) = (Cluster::new("c"), Cluster::new("c"));
    let met = Forged::beside(&there, here.authority.certificate()).connects_to(&here.node("a"));
    assert_eq!(met, Err(StreamError::OtherAuthority));
}

#[test]
fn certificates_are_good_for_their_time_alone() {
    let cluster = Cluster::new("c");
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    // The clocks of machines differ.
    cluster.set_back(Duration::from_secs(3600));
    meet(|socket| a.connect(socket), |socket| b.accept(socket)).both();
    cluster.set_back(Duration::from_secs(1));
    let met = meet(|socket| a.connect(socket), |socket| b.accept(socket));
    assert_eq!(met.client_error(), StreamError::PeerNotYet);

    cluster.pass(Duration::from_secs(3601) + 30 * DAY);
    meet(|socket| a.connect(socket), |socket| b.accept(socket)).both();
    cluster.pass(Duration::from_secs(1));
    let met = meet(|socket| a.connect(socket), |socket| b.accept(socket));
    assert_eq!(met.client_error(), StreamError::PeerRanOut);
    assert_eq!(met.server_error(), StreamError::RanOut);
}

#[test]
fn nobody_connects_to_an_admin_or_a_client() {
    let cluster = Cluster::new("c");
    for role in [Role::Admin, Role::Client] {
        let (node, ann) = (cluster.node("a"), cluster.endpoint(&cluster.member(role, "ann")));
        let (_, seen) = meet(|socket| ann.connect(socket), |socket| node.accept(socket)).both();
        assert_eq!(seen.peer().unwrap().member, cluster.named(role, "ann"));
        let met = meet(|socket| node.connect(socket), |socket| ann.accept(socket));
        assert_eq!(met.client_error(), StreamError::WrongRole);
    }
}

#[test]
fn versions_do_not_mix() {
    let cluster = Cluster::new("c");
    let old = cluster.node("a");
    let new =
        Endpoint::new(&cluster.member(Role::Node, "b"), VERSION + 1, cluster.clock()).unwrap();
    for (client, server) in [(&old, &new), (&new, &old)] {
        let met = meet(|socket| client.connect(socket), |socket| server.accept(socket));
        assert_eq!(met.client_error(), StreamError::OtherVersion);
        assert_eq!(met.server_error(), StreamError::OtherVersion);
    }
}

#[test]
fn a_member_is_no_authority() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let met = Forged::signed_by_member(&cluster).connects_to(&node);
    assert_eq!(met, Err(StreamError::OtherAuthority));
    let met = Forged::signed_by_member(&cluster).met_by(&node);
    assert_eq!(met, Err(StreamError::OtherAuthority));
}

#[test]
fn who_is_named_otherwise_is_no_member() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    assert_eq!(Forged::like(&cluster).connects_to(&node), Ok(()));
    assert_eq!(Forged::like(&cluster).met_by(&node), Ok(()));
    for uri in ["tutti://other/node/b", "tutti://c", "https://c/node/b"] {
        let no_member = Err(StreamError::Distrust(Distrust::NoMember));
        assert_eq!(Forged::of_uri(&cluster, uri).connects_to(&node), no_member, "{uri}");
        assert_eq!(Forged::of_uri(&cluster, uri).met_by(&node), no_member, "{uri}");
    }
}

#[test]
fn who_speaks_something_else_is_refused() {
    let cluster = Cluster::new("c");
    let node = cluster.node("a");
    let met = Forged::like(&cluster).speaking(&["h2", "http/1.1"]).connects_to(&node);
    assert_eq!(met, Err(StreamError::OtherVersion));
    for protocols in [&[][..], &["h2"]] {
        let met = Forged::like(&cluster).speaking(protocols).met_by(&node);
        assert_ne!(met, Ok(()));
    }
    let met = Forged::like(&cluster).speaking(&[]).connects_to(&node);
    assert_eq!(met, Err(StreamError::NotTutti));
}

fn sign(cluster: &Cluster, request: &[u8]) -> Result<Vec<u8>, AuthorityError> {
    cluster.authority.sign(request, Role::Node, &name("a"), cluster.now())
}

#[test]
fn a_request_has_no_say_but_its_key() {
    let cluster = Cluster::new("c");
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut wishes = CertificateParams::default();
    wishes.subject_alt_names = vec![SanType::URI("tutti://c/admin/root".try_into().unwrap())];
    wishes.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wishes.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
    let wished = wishes.serialize_request(&pair).unwrap();
    let signed = sign(&cluster, wished.der()).unwrap();

    let (_, certificate) = X509Certificate::from_der(&signed).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names, [GeneralName::URI("tutti://c/node/a")]);
    assert!(!certificate.is_ca());
    let usages = certificate.extended_key_usage().unwrap().unwrap();
    assert!(!usages.value.any && usages.value.server_auth && usages.value.client_auth);
    assert_eq!(*certificate.public_key().subject_public_key.data, *pair.der_bytes());
}

#[test]
fn what_is_no_request_is_not_signed() {
    let cluster = Cluster::new("c");
    let request = Key::generate().unwrap().request().unwrap();
    for length in 0..request.len() {
        assert!(sign(&cluster, &request[..length]).is_err(), "{length}");
    }
    // Without the key, no request can be signed for it.
    let mut other = request;
    *other.last_mut().unwrap() ^= 1;
    assert!(matches!(sign(&cluster, &other), Err(AuthorityError::Request(_))));
    let long = vec![0x30; REQUEST_BYTES_MAX + 1];
    assert!(matches!(sign(&cluster, &long), Err(AuthorityError::RequestTooLong { .. })));

    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let request = CertificateParams::default().serialize_request(&ed25519).unwrap();
    assert!(matches!(sign(&cluster, request.der()), Err(AuthorityError::RequestKey)));
}

#[test]
fn certificates_do_not_outlive_the_authority() {
    let cluster = Cluster::new("c");
    let request = Key::generate().unwrap().request().unwrap();
    cluster.pass(20 * 365 * DAY - DAY);
    let late = cluster.member(Role::Node, "a");
    assert_eq!(late.expires(), cluster.authority.expires());
    cluster.pass(DAY);
    assert!(matches!(sign(&cluster, &request), Err(AuthorityError::RanOut)));
}

#[test]
fn the_longest_names_do() {
    let long = "n".repeat(NAME_BYTES_MAX);
    let cluster = Cluster::new(&long);
    let node = cluster.node(&long);
    let (_, seen) = meet(|socket| node.connect(socket), |socket| node.accept(socket)).both();
    assert_eq!(seen.peer().unwrap().member, cluster.named(Role::Node, &long));
}

#[test]
fn absurd_times_are_errors() {
    for seconds in [0, u64::MAX / 2, u64::MAX] {
        let _ = Authority::create(&name("c"), at(seconds));
    }
    let far = Authority::create(&name("c"), at(u64::MAX));
    assert!(matches!(far, Err(AuthorityError::Clock(_))));
}

#[test]
fn credentials_are_of_one_key_and_one_authority() {
    let (here, there) = (Cluster::new("c"), Cluster::new("c"));
    let key = Key::generate().unwrap();
    let signed = sign(&here, &key.request().unwrap()).unwrap();
    let new = |key, certificate: &[u8], cluster: &Cluster| {
        Credentials::new(key, certificate, cluster.authority.certificate()).map(drop)
    };
    let other_key = new(Key::generate().unwrap(), &signed, &here);
    assert_eq!(other_key, Err(CertificateError::OtherKey));
    assert_eq!(new(key, &signed, &there), Err(CertificateError::OtherAuthority));
    for length in 0..signed.len() {
        let cut = new(Key::generate().unwrap(), &signed[..length], &here);
        assert_eq!(cut, Err(CertificateError::Malformed));
    }
}
