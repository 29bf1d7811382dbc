//! Reading certificates: member, lifetime and fingerprint.
//!
//! What is read here is our own authority's work, or is about to be compared with it; whether to
//! trust is decided in `verify`, not here.

use crate::hash::sha256;
use crate::limits::CERTIFICATE_BYTES_MAX;
use crate::name::{Member, Name, cluster_of_uri};
use rustls::pki_types::{CertificateDer, UnixTime};
use std::fmt;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// SHA-256 of a certificate (DER), as `openssl x509 -fingerprint -sha256` has it, too; or of a
/// public key.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint([u8; Self::BYTES]);

impl Fingerprint {
    /// How many bytes it has.
    pub const BYTES: usize = 32;

    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(sha256(&[certificate]))
    }

    /// That of the key which a certificate (DER) was made for.
    ///
    /// # Errors
    /// If it is none of ours.
    pub fn of_key_in(certificate: &[u8]) -> Result<Self, CertificateError> {
        Ok(Certificate::read(certificate)?.key)
    }

    /// That of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NoFingerprint;

    fn try_from(text: String) -> Result<Self, NoFingerprint> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).map_err(|_| NoFingerprint)?;
        bytes.try_into().map(Self).map_err(|_| NoFingerprint)
    }
}

/// A text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no fingerprint: it has 64 digits, from 0 to f")]
pub struct NoFingerprint;

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Why a certificate is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The bytes are no certificate.
    #[error("this is no certificate")]
    Malformed,
    /// It is one, but names no member of a cluster, or more than one.
    #[error("the certificate is not one of a Tutti cluster")]
    NamesNobody,
    /// It was made for another key.
    #[error("the certificate belongs to another key: ask for one with the key at hand")]
    OtherKey,
    /// Another authority signed it, or it was changed since.
    #[error("the certificate is not signed by the cluster's authority")]
    OtherAuthority,
}

/// A certificate that was read.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    der: CertificateDer<'static>,
    uri: String,
    /// The fingerprint of the key that it was made for.
    pub(crate) key: Fingerprint,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
}

impl Certificate {
    pub(crate) fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let parsed = parse(der)?;
        Ok(Self {
            der: CertificateDer::from(der.to_vec()),
            uri: only_uri(&parsed)?.to_owned(),
            key: Fingerprint::of(&parsed.public_key().subject_public_key.data),
            not_before: seconds(parsed.validity().not_before),
            not_after: seconds(parsed.validity().not_after),
        })
    }

    pub(crate) const fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// The member that it names.
    pub(crate) fn member(&self) -> Result<Member, CertificateError> {
        Member::from_uri(&self.uri).ok_or(CertificateError::NamesNobody)
    }

    /// The cluster whose authority it is.
    pub(crate) fn cluster(&self) -> Result<Name, CertificateError> {
        cluster_of_uri(&self.uri).ok_or(CertificateError::NamesNobody)
    }

    /// Whether it is made for this public key and signed by this authority.
    pub(crate) fn check(
        &self,
        public_key: &[u8],
        authority: &Self,
    ) -> Result<(), CertificateError> {
        let (own, issuer) = (parse(&self.der)?, parse(&authority.der)?);
        if *own.public_key().subject_public_key.data != *public_key {
            return Err(CertificateError::OtherKey);
        }
        own.verify_signature(Some(issuer.public_key()))
            .map_err(|_| CertificateError::OtherAuthority)
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    if der.len() > CERTIFICATE_BYTES_MAX {
        return Err(CertificateError::Malformed);
    }
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(CertificateError::Malformed),
    }
}

/// The one URI among its names: a member with several names could be taken for several.
fn only_uri<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, CertificateError> {
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| CertificateError::Malformed)?
        .ok_or(CertificateError::NamesNobody)?;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => Ok(uri),
        _ => Err(CertificateError::NamesNobody),
    }
}

fn seconds(time: ASN1Time) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(time.timestamp().try_into().unwrap_or(0)))
}
