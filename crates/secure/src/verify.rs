//! Trust: in members of the one cluster, and in no host name.
//!
//! The public certificate authorities of the world have no say here. A peer is good if its
//! certificate is signed by our authority, is within its time, is made for its end of the
//! connection and names a member of our cluster. A joining machine knows of the authority by its
//! token alone; it looks for it among the certificates that it is shown.

use crate::certificate::Certificate;
use crate::name::Name;
use crate::token::Token;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// Why a certificate that is in order for TLS is not for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The peer has shown no certificate of the authority that the token names.
    #[error("the peer does not belong to the cluster that the token is of")]
    OtherClusterThanToken,
    /// The peer's certificate names no member of the cluster.
    #[error("the certificate of the peer does not name a member of this cluster")]
    NoMember,
}

impl From<Distrust> for Error {
    fn from(distrust: Distrust) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))
    }
}

/// How a client knows its server.
#[derive(Debug)]
enum Trust {
    Authority { roots: RootCertStore, cluster: Name },
    Token(Token),
}

/// Judges servers.
#[derive(Debug)]
pub(crate) struct ServerJudge {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerJudge {
    pub(crate) fn of_authority(
        authority: &CertificateDer<'static>,
        cluster: &Name,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let trust = Trust::Authority { roots: roots(authority)?, cluster: cluster.clone() };
        Ok(Self { trust, algorithms: provider.signature_verification_algorithms })
    }

    pub(crate) fn of_token(token: Token, provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { trust: Trust::Token(token), algorithms }
    }

    fn check_chain(
        &self,
        certificate: &CertificateDer<'_>,
        roots: &RootCertStore,
        cluster: &Name,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], now, algorithms)?;
        Ok(check_member(certificate, cluster)?)
    }
}

impl ServerCertVerifier for ServerJudge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::Authority { roots, cluster } => {
                self.check_chain(end_entity, roots, cluster, now)?;
            }
            Trust::Token(token) => {
                let authority = intermediates
                    .iter()
                    .filter_map(|shown| Certificate::read(shown).ok())
                    .find(|shown| token.is_of(&shown.fingerprint()))
                    .ok_or(Distrust::OtherClusterThanToken)?;
                let cluster = authority.cluster().map_err(|_| Distrust::NoMember)?;
                self.check_chain(end_entity, &roots(authority.der())?, &cluster, now)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Judges clients, which may also have no certificate: those have nothing but a token.
#[derive(Debug)]
pub(crate) struct ClientJudge {
    inner: Arc<dyn ClientCertVerifier>,
    cluster: Name,
}

impl ClientJudge {
    pub(crate) fn new(
        authority: &CertificateDer<'static>,
        cluster: &Name,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let roots = Arc::new(roots(authority)?);
        let inner = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .allow_unauthenticated()
            .clear_root_hint_subjects()
            .build()
            .map_err(|error: VerifierBuilderError| Error::General(error.to_string()))?;
        Ok(Self { inner, cluster: cluster.clone() })
    }
}

impl ClientCertVerifier for ClientJudge {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, &[], now)?;
        check_member(end_entity, &self.cluster)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn check_member(certificate: &CertificateDer<'_>, cluster: &Name) -> Result<(), Distrust> {
    let member = Certificate::read(certificate).and_then(|certificate| certificate.member());
    match member {
        Ok(member) if member.cluster == *cluster => Ok(()),
        _ => Err(Distrust::NoMember),
    }
}

fn roots(authority: &CertificateDer<'static>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(roots)
}
