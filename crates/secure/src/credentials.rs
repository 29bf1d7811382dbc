//! What a member shows to the others: its key, its certificate, and the authority's.

use crate::certificate::{Certificate, CertificateError, Fingerprint};
use crate::clock::after;
use crate::key::Key;
use crate::key_file::{self, Existing, FileError};
use crate::limits::{CLOCK_SKEW, RENEWAL_PARTS};
use crate::name::{Member, Name};
use rustls::pki_types::{CertificateDer, UnixTime};
use std::path::Path;
use std::time::Duration;

/// The file of a member, in the directory that it is saved in.
const FILE: &str = "credentials.pem";

/// Why credentials can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Their file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Key and certificates don't belong together.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A member's own credentials.
#[derive(Debug)]
pub struct Credentials {
    key: Key,
    member: Member,
    certificate: Certificate,
    authority: Certificate,
}

impl Credentials {
    /// Puts together the key that a request was made with, the certificate that came back, and the
    /// authority's (both DER).
    ///
    /// # Errors
    /// If they don't belong together.
    pub fn new(key: Key, certificate: &[u8], authority: &[u8]) -> Result<Self, CertificateError> {
        let (certificate, authority) =
            (Certificate::read(certificate)?, Certificate::read(authority)?);
        certificate.check(key.public(), &authority)?;
        let member = certificate.member()?;
        if member.cluster != authority.cluster()? {
            return Err(CertificateError::OtherAuthority);
        }
        Ok(Self { key, member, certificate, authority })
    }

    /// Reads them from the directory that they were saved in.
    ///
    /// # Errors
    /// If they are not there, others can read them, or the file is damaged.
    pub fn load(directory: &Path) -> Result<Self, CredentialsError> {
        let (key, [certificate, authority]) = key_file::read(&directory.join(FILE))?;
        Ok(Self::new(key, &certificate, &authority)?)
    }

    /// Writes them into a directory, which must be there, in the place of older ones.
    ///
    /// # Errors
    /// If the directory can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), FileError> {
        let certificates = [self.certificate.der(), self.authority.der()];
        key_file::write(&directory.join(FILE), &self.key, &certificates, Existing::Replace)
    }

    /// The member that they name.
    #[must_use]
    pub const fn member(&self) -> &Member {
        &self.member
    }

    /// The fingerprint of the member's own key.
    #[must_use]
    pub const fn key_fingerprint(&self) -> Fingerprint {
        self.certificate.key
    }

    /// The fingerprint of the authority.
    #[must_use]
    pub fn authority_fingerprint(&self) -> Fingerprint {
        self.authority.fingerprint()
    }

    /// The authority's certificate (DER).
    #[must_use]
    pub fn authority_certificate(&self) -> &[u8] {
        self.authority.der()
    }

    /// When they run out.
    #[must_use]
    pub const fn expires(&self) -> UnixTime {
        self.certificate.not_after
    }

    /// Whether it is time to ask for a new certificate: with a new [`Key`], over a connection that
    /// is there, before [`Self::expires`].
    #[must_use]
    pub fn renewal_due(&self, now: UnixTime) -> bool {
        let (over, of) = RENEWAL_PARTS;
        now >= after(self.made(), self.lifetime() * over / of)
    }

    /// For how long they were made.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(self.expires().as_secs().saturating_sub(self.made().as_secs()))
    }

    fn made(&self) -> UnixTime {
        after(self.certificate.not_before, CLOCK_SKEW)
    }

    pub(crate) const fn cluster(&self) -> &Name {
        &self.member.cluster
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// The certificates as they are shown: with the authority's, which a joining machine knows by
    /// its fingerprint alone.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.der().clone(), self.authority.der().clone()]
    }

    pub(crate) const fn authority(&self) -> &CertificateDer<'static> {
        self.authority.der()
    }
}
