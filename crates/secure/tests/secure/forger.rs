//! A peer that makes certificates and connections that this crate would not make.

use crate::files::Directory;
use crate::world::{Cluster, meet_with};
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tutti_secure::{Endpoint, Newcomer, Role, StreamError};

/// What a forger shows.
pub(crate) struct Forged {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
    protocols: Vec<Vec<u8>>,
}

impl Forged {
    /// A member of the cluster as it should be, to be changed.
    pub(crate) fn like(cluster: &Cluster) -> Self {
        Self::of_uri(cluster, "tutti://c/node/b")
    }

    /// One that the authority itself has given another name.
    pub(crate) fn of_uri(cluster: &Cluster, uri: &str) -> Self {
        let (authority, key) = authority(cluster);
        let issuer = Issuer::from_ca_cert_der(&authority, key).unwrap();
        let (certificate, key) = signed_by(&issuer, uri);
        Self::showing(vec![certificate, authority], key)
    }

    /// One that a member has signed a certificate for, as if it were an authority.
    pub(crate) fn signed_by_member(cluster: &Cluster) -> Self {
        let (member, key) = (cluster.member(Role::Node, "b"), Directory::new());
        member.save(&key.path).unwrap();
        let text = fs::read(key.path.join("credentials.pem")).unwrap();
        let key = KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from_pem_slice(&text).unwrap(),
            &PKCS_ECDSA_P256_SHA256,
        );
        let mut shown: Vec<_> =
            CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().unwrap();
        let issuer = Issuer::from_ca_cert_der(&shown[0], key.unwrap()).unwrap();
        let (certificate, key) = signed_by(&issuer, "tutti://c/node/thief");
        shown.insert(0, certificate);
        Self::showing(shown, key)
    }

    /// One with a certificate of its own authority, with another's beside it.
    pub(crate) fn beside(cluster: &Cluster, authority: &[u8]) -> Self {
        let mut forged = Self::like(cluster);
        forged.chain[1] = CertificateDer::from(authority.to_vec());
        forged
    }

    fn showing(chain: Vec<CertificateDer<'static>>, key: KeyPair) -> Self {
        Self { chain, key, protocols: vec![b"tutti/7".to_vec()] }
    }

    /// One that speaks these protocols.
    pub(crate) fn speaking(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        self
    }

    /// Connects to an endpoint: what does that say?
    pub(crate) fn connects_to(self, endpoint: &Endpoint) -> Result<(), StreamError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Credulous))
            .with_client_auth_cert(self.chain, key(&self.key))
            .unwrap();
        config.alpn_protocols = self.protocols;
        let nobody = ServerName::try_from("nobody").unwrap();
        let tls = ClientConnection::new(Arc::new(config), nobody).unwrap();
        meet_with(|socket| endpoint.accept(socket), |socket| talk(socket, tls.into()))
    }

    /// Is connected to by a member: what does that say?
    pub(crate) fn met_by(self, endpoint: &Endpoint) -> Result<(), StreamError> {
        let tls = self.server();
        meet_with(|socket| endpoint.connect(socket), |socket| talk(socket, tls))
    }

    /// Accepts a connection of a peer with a token.
    pub(crate) fn met_by_newcomer(self, newcomer: &Newcomer) -> Result<(), StreamError> {
        let tls = self.server();
        meet_with(|socket| newcomer.connect(socket), |socket| talk(socket, tls))
    }

    fn server(self) -> Connection {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.chain, key(&self.key))
            .unwrap();
        config.alpn_protocols = self.protocols;
        ServerConnection::new(Arc::new(config)).unwrap().into()
    }
}

/// What a forger has to say: as much as is listened to.
fn talk(mut socket: TcpStream, mut tls: Connection) {
    tls.writer().write_all(b"!").unwrap();
    while tls.complete_io(&mut socket).is_ok() {
        match tls.reader().read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

fn signed_by(issuer: &Issuer<'_, KeyPair>, uri: &str) -> (CertificateDer<'static>, KeyPair) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params.signed_by(&key, issuer).unwrap().der().clone(), key)
}

/// The key of an authority, from its file.
fn authority(cluster: &Cluster) -> (CertificateDer<'static>, KeyPair) {
    let directory = Directory::new();
    cluster.authority.save(&directory.path).unwrap();
    let text = fs::read(directory.path.join("authority.pem")).unwrap();
    let key = PrivatePkcs8KeyDer::from_pem_slice(&text).unwrap();
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).unwrap();
    (CertificateDer::from_pem_slice(&text).unwrap(), key)
}

fn key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts every peer as what it says it is.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
