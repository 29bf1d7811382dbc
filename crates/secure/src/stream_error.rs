//! Why a connection is of no more use, in words that say what to do.

use crate::verify::Distrust;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::io;

/// Why a connection failed. [`SecureStream`](crate::SecureStream) hands it out inside of an
/// [`io::Error`]; [`StreamError::of`] finds it there.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// The peer's certificate has run out.
    #[error(
        "the peer's certificate has run out: it must join again (or the clock of this machine is fast)"
    )]
    PeerRanOut,
    /// The peer's certificate is not valid yet.
    #[error("the peer's certificate is not valid yet: set the clock of this machine, it is slow")]
    PeerNotYet,
    /// The peer is no member of our cluster.
    #[error("the peer belongs to another cluster: its certificate is signed by another authority")]
    OtherAuthority,
    /// The peer has a certificate of our authority, but none for this.
    #[error(
        "the peer's certificate is not made for this end of a connection: only nodes are connected to"
    )]
    WrongRole,
    /// The peer's certificate is in order, but not for us.
    #[error(transparent)]
    Distrust(#[from] Distrust),
    /// The peer says that our certificate has run out.
    #[error(
        "the peer says that our certificate has run out: join again (or its clock or ours is wrong)"
    )]
    RanOut,
    /// The peer does not know our authority, or does not want our certificate otherwise.
    #[error("the peer does not take our certificate: it belongs to another cluster, or we do")]
    Refused,
    /// The peer's messages are of another version.
    #[error("the peer is of another version of Tutti: use the same on all machines")]
    OtherVersion,
    /// What came is not TLS 1.3, or not of Tutti.
    #[error("the peer does not speak the protocol of Tutti: is it the right port?")]
    NotTutti,
    /// The connection ended without a farewell: something may be missing.
    #[error("the connection broke")]
    Truncated,
    /// We gave up before the handshake was over.
    #[error("the connection was given up before it was made")]
    GivenUp,
    /// Everything else.
    #[error("the secure connection failed")]
    Tls(#[source] Error),
}

impl StreamError {
    /// The reason inside of an error of a stream; `None` if it was the kernel's.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::Truncated => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(why) => of_certificate(why),
            Error::AlertReceived(alert) => of_alert(alert),
            Error::NoApplicationProtocol => Self::OtherVersion,
            Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered)
            | Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired)
            | Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic) => Self::NotTutti,
            other => Self::Tls(other),
        }
    }
}

fn of_certificate(why: CertificateError) -> StreamError {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            StreamError::PeerRanOut
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            StreamError::PeerNotYet
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            StreamError::OtherAuthority
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            StreamError::WrongRole
        }
        CertificateError::Other(ref other) => match other.0.downcast_ref::<Distrust>() {
            Some(distrust) => StreamError::Distrust(*distrust),
            None => StreamError::Tls(Error::InvalidCertificate(why)),
        },
        why => StreamError::Tls(Error::InvalidCertificate(why)),
    }
}

fn of_alert(alert: AlertDescription) -> StreamError {
    match alert {
        AlertDescription::CertificateExpired => StreamError::RanOut,
        AlertDescription::NoApplicationProtocol => StreamError::OtherVersion,
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError => StreamError::Refused,
        alert => StreamError::Tls(Error::AlertReceived(alert)),
    }
}
