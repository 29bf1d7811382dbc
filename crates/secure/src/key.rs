//! The key of a node or an admin, which never leaves its machine, and the request for a
//! certificate.

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Why a key could not be made or used.
#[derive(Debug, thiserror::Error)]
#[error("the key can't be made or used")]
pub struct KeyError(#[from] rcgen::Error);

/// A private key (ECDSA on P-256).
#[derive(Debug)]
pub struct Key(KeyPair);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// If the machine gives no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// The request for a certificate (PKCS #10), for [`Authority::sign`](crate::Authority::sign).
    /// It carries the public key, signed with the private one, and nothing of the asking machine:
    /// that is the authority's to say.
    ///
    /// # Errors
    /// If the key can't sign.
    pub fn request(&self) -> Result<Vec<u8>, KeyError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&self.0)?.der().to_vec())
    }

    pub(crate) fn from_pkcs8(der: &PrivatePkcs8KeyDer<'_>) -> Result<Self, KeyError> {
        Ok(Self(KeyPair::from_pkcs8_der_and_sign_algo(der, &PKCS_ECDSA_P256_SHA256)?))
    }

    pub(crate) fn to_pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.serialize_der())
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.0.der_bytes()
    }

    pub(crate) const fn pair(&self) -> &KeyPair {
        &self.0
    }
}
