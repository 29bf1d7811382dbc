//! A file that holds a private key with the certificates that belong to it, as PEM.
//!
//! One file, so that key and certificate are never of two times. It is written beside its place and
//! moved there whole; it is its owner's alone, and is not used if others can read it.

use crate::key::Key;
use crate::limits::FILE_BYTES_MAX;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The access rights that only the owner of a key may have.
const OTHERS: u32 = 0o077;

/// Why a file with a key can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The kernel said so.
    #[error("can't {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is one already, and it is not to be lost.
    #[error("{} is there already: it is kept; move it away to make a new one", .0.display())]
    Exists(PathBuf),
    /// Others than its owner may read or write it.
    #[error(
        "{path} holds a private key and others have access to it (mode {mode:03o}): `chmod 600 {path}`, \
         and if another user may have read it, make a new one",
        path = path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its access rights.
        mode: u32,
    },
    /// It does not hold what it should.
    #[error("{} does not hold a key and its certificates: restore it from a copy, or make a new one", .0.display())]
    Malformed(PathBuf),
}

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// Writes a key and its certificates.
pub(crate) fn write(
    path: &Path,
    key: &Key,
    certificates: &[&CertificateDer<'_>],
    existing: Existing,
) -> Result<(), FileError> {
    let mut text = pem("PRIVATE KEY", key.to_pkcs8().secret_pkcs8_der());
    for certificate in certificates {
        text.push_str(&pem("CERTIFICATE", certificate));
    }
    let beside = path.with_extension("new");
    write_beside(&beside, text.as_bytes()).map_err(failed("write", &beside))?;
    let moved = match existing {
        Existing::Replace => fs::rename(&beside, path),
        // A rename would replace what another process has put there meanwhile; a link does not.
        Existing::Keep => fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside)),
    };
    match moved {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Nothing was moved; the copy with the key must not stay.
            let _ = fs::remove_file(&beside);
            return Err(FileError::Exists(path.to_owned()));
        }
        Err(error) => return Err(failed("write", path)(error)),
    }
    let directory = path.parent().unwrap_or(path);
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("write", directory))
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Reads a key and its certificates, of which there must be as many as are asked for.
pub(crate) fn read<const CERTIFICATES: usize>(
    path: &Path,
) -> Result<(Key, [CertificateDer<'static>; CERTIFICATES]), FileError> {
    let text = read_private(path)?;
    let malformed = || FileError::Malformed(path.to_owned());
    let key = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| malformed())?;
    let key = Key::from_pkcs8(&key).map_err(|_| malformed())?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| malformed())?;
    Ok((key, certificates.try_into().map_err(|_| malformed())?))
}

fn read_private(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(failed("read", path))?;
    let mode = file.metadata().map_err(failed("read", path))?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(FileError::Open { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX as u64).read_to_end(&mut text).map_err(failed("read", path))?;
    Ok(text)
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { operation, path, source }
}

fn pem(label: &str, content: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in data_encoding::BASE64.encode(content).as_bytes().chunks(64) {
        text.extend(line.iter().map(|&byte| char::from(byte)));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
