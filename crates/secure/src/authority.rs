//! The cluster's own authority: it says which machines are members, by certificates that it signs.
//!
//! It is made once, with the cluster, and kept in one file that only its owner can read. A holder
//! of that file is the cluster: it names every node and admin.

use crate::certificate::{Certificate, CertificateError, Fingerprint};
use crate::clock::{after, before};
use crate::key::{Key, KeyError};
use crate::key_file::{self, Existing, FileError};
use crate::limits::{AUTHORITY_LIFETIME, CERTIFICATE_LIFETIME, CLOCK_SKEW, REQUEST_BYTES_MAX};
use crate::name::{Member, Name, Role, cluster_uri};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{CertificateSigningRequestDer, UnixTime};
use std::path::Path;
use std::time::Duration;
use time::OffsetDateTime;

/// The file of an authority, in the directory that it is saved in.
const FILE: &str = "authority.pem";

/// Why an authority can't be made or does not sign.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Its file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What its file holds is no authority.
    #[error("the file of the authority holds a certificate that is not an authority's")]
    Certificate(#[from] CertificateError),
    /// The machine has no random numbers, or a key can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A time that no certificate can carry.
    #[error("the clock says {0} s after 1970, which can't be: set the machine's clock")]
    Clock(u64),
    /// The request is longer than any that is made here.
    #[error(
        "the request for a certificate has {bytes} bytes, and {REQUEST_BYTES_MAX} at most are taken"
    )]
    RequestTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The request is none, or is not signed with the key that it names.
    #[error("this is no request for a certificate")]
    Request(#[source] rcgen::Error),
    /// The request is for a kind of key that is not used here.
    #[error("the request is for another kind of key than ECDSA on P-256")]
    RequestKey,
    /// The authority itself has run out.
    #[error(
        "the authority of the cluster has run out: make a new one, and let all machines join again"
    )]
    RanOut,
}

/// A cluster's authority.
#[derive(Debug)]
pub struct Authority {
    cluster: Name,
    certificate: Certificate,
    key: Key,
    lifetime: Duration,
}

impl Authority {
    /// Makes the authority of a new cluster. It is nowhere but in memory until it is saved.
    ///
    /// # Errors
    /// If the machine gives no random numbers, or the time is absurd.
    pub fn create(cluster: &Name, now: UnixTime) -> Result<Self, AuthorityError> {
        let key = Key::generate()?;
        let end = after(now, AUTHORITY_LIFETIME);
        let mut params = params(&cluster_uri(cluster), cluster.as_str(), now, end)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(key.pair()).map_err(KeyError::from)?;
        Self::assemble(key, Certificate::read(certificate.der())?)
    }

    /// Reads it from the directory that it was saved in.
    ///
    /// # Errors
    /// If it is not there, others can read it, or the file is damaged.
    pub fn load(directory: &Path) -> Result<Self, AuthorityError> {
        let (key, [certificate]) = key_file::read(&directory.join(FILE))?;
        Self::assemble(key, Certificate::read(&certificate)?)
    }

    /// Writes it into a directory, which must be there.
    ///
    /// # Errors
    /// If there is one already, or the directory can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), FileError> {
        let path = directory.join(FILE);
        key_file::write(&path, &self.key, &[self.certificate.der()], Existing::Keep)
    }

    fn assemble(key: Key, certificate: Certificate) -> Result<Self, AuthorityError> {
        let cluster = certificate.cluster()?;
        certificate.check(key.public(), &certificate)?;
        Ok(Self { cluster, certificate, key, lifetime: CERTIFICATE_LIFETIME })
    }

    /// The certificates that it signs are to be good for so long.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// The cluster.
    #[must_use]
    pub const fn cluster(&self) -> &Name {
        &self.cluster
    }

    /// By what a token names it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate.fingerprint()
    }

    /// Its own certificate (DER), which every member has beside its own.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        self.certificate.der()
    }

    /// When it runs out.
    #[must_use]
    pub const fn expires(&self) -> UnixTime {
        self.certificate.not_after
    }

    /// Makes the certificate (DER) of a member from its [request](Key::request). Whether the
    /// machine is that member is the caller's to know: by a token, or by the certificate that it
    /// has.
    ///
    /// # Errors
    /// If the request is none, or the authority has run out.
    pub fn sign(
        &self,
        request: &[u8],
        role: Role,
        name: &Name,
        now: UnixTime,
    ) -> Result<Vec<u8>, AuthorityError> {
        if now >= self.expires() {
            return Err(AuthorityError::RanOut);
        }
        let member = Member { cluster: self.cluster.clone(), role, name: name.clone() };
        let end = after(now, self.lifetime).min(self.expires());
        let mut params = params(&member.to_string(), name.as_str(), now, end)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages(role);
        // Of what is asked for, the key alone is taken over.
        let key = requested_key(request)?;
        let issuer = Issuer::from_ca_cert_der(self.certificate.der(), self.key.pair())
            .map_err(KeyError::from)?;
        let signed = params.signed_by(&key, &issuer).map_err(KeyError::from)?;
        Ok(signed.der().to_vec())
    }
}

/// The key that a request is for, which it was signed with.
fn requested_key(request: &[u8]) -> Result<impl PublicKeyData, AuthorityError> {
    if request.len() > REQUEST_BYTES_MAX {
        return Err(AuthorityError::RequestTooLong { bytes: request.len() });
    }
    let request = CertificateSigningRequestDer::from(request);
    let request =
        CertificateSigningRequestParams::from_der(&request).map_err(AuthorityError::Request)?;
    if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
        return Err(AuthorityError::RequestKey);
    }
    Ok(request.public_key)
}

/// The certificate of an admin or a client lets no member connect to it.
fn usages(role: Role) -> Vec<ExtendedKeyUsagePurpose> {
    match role {
        Role::Node => {
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
        }
        Role::Admin | Role::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
}

/// What all certificates have: the member's name, and a lifetime.
fn params(
    uri: &str,
    common_name: &str,
    now: UnixTime,
    end: UnixTime,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(KeyError::from)?)];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date(before(now, CLOCK_SKEW))?;
    params.not_after = date(end)?;
    params.serial_number = Some(serial_number()?);
    Ok(params)
}

fn date(time: UnixTime) -> Result<OffsetDateTime, AuthorityError> {
    i64::try_from(time.as_secs())
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .ok_or(AuthorityError::Clock(time.as_secs()))
}

/// A random one: certificates of one key, too, are distinguished.
fn serial_number() -> Result<SerialNumber, KeyError> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    // A positive number without a leading zero, whatever was drawn.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
