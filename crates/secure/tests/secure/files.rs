//! What is kept on disk, and which users may read it.

use crate::world::{Cluster, name};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tutti_secure::{Authority, AuthorityError, Credentials, CredentialsError, FileError, Role};

/// A directory for one test.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
}

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tutti-secure-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self { path }
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.path).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_authority_is_kept_and_signs_as_before() {
    let (directory, cluster) = (Directory::new(), Cluster::new("c"));
    cluster.authority.save(&directory.path).unwrap();
    assert_eq!(directory.names(), ["authority.pem"]);
    assert_eq!(mode(&directory.path.join("authority.pem")), 0o600);

    let loaded = Authority::load(&directory.path).unwrap();
    assert_eq!(loaded.cluster(), &name("c"));
    assert_eq!(loaded.fingerprint(), cluster.authority.fingerprint());
    let key = tutti_secure::Key::generate().unwrap();
    let request = key.request().unwrap();
    let signed = loaded.sign(&request, Role::Node, &name("a"), cluster.now()).unwrap();
    Credentials::new(key, &signed, cluster.authority.certificate()).unwrap();
}

#[test]
fn an_authority_is_never_replaced() {
    let (directory, first, second) = (Directory::new(), Cluster::new("c"), Cluster::new("c"));
    first.authority.save(&directory.path).unwrap();
    let error = second.authority.save(&directory.path).unwrap_err();
    assert!(matches!(error, FileError::Exists(_)), "{error:?}");
    assert_eq!(directory.names(), ["authority.pem"]);
    let kept = Authority::load(&directory.path).unwrap();
    assert_eq!(kept.fingerprint(), first.authority.fingerprint());
}

#[test]
fn credentials_are_kept_and_replaced_when_they_are_renewed() {
    let (directory, cluster) = (Directory::new(), Cluster::new("c"));
    cluster.member(Role::Node, "a").save(&directory.path).unwrap();
    // As a crash in the midst of writing would leave it.
    fs::write(directory.path.join("credentials.new"), "half").unwrap();
    cluster.pass(crate::world::DAY);
    let new = cluster.member(Role::Node, "a");
    new.save(&directory.path).unwrap();
    assert_eq!(directory.names(), ["credentials.pem"]);
    assert_eq!(mode(&directory.path.join("credentials.pem")), 0o600);

    let loaded = Credentials::load(&directory.path).unwrap();
    assert_eq!(loaded.member(), new.member());
    assert_eq!(loaded.expires(), new.expires());
    cluster.endpoint(&loaded);
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let (directory, cluster) = (Directory::new(), Cluster::new("c"));
    cluster.authority.save(&directory.path).unwrap();
    cluster.member(Role::Node, "a").save(&directory.path).unwrap();
    for others in [0o640, 0o604, 0o620, 0o601] {
        for file in ["authority.pem", "credentials.pem"] {
            fs::set_permissions(directory.path.join(file), Permissions::from_mode(others)).unwrap();
        }
        let error = Authority::load(&directory.path).unwrap_err();
        let AuthorityError::File(FileError::Open { mode, .. }) = error else { panic!("{error:?}") };
        assert_eq!(mode, others);
        assert!(error.to_string().contains("chmod 600 "), "{error}");
        let error = Credentials::load(&directory.path).unwrap_err();
        assert!(matches!(error, CredentialsError::File(FileError::Open { .. })), "{error:?}");
    }
}

#[test]
fn what_is_damaged_is_told_apart_from_what_is_not_there() {
    let (directory, cluster) = (Directory::new(), Cluster::new("c"));
    let error = Authority::load(&directory.path).unwrap_err();
    assert!(matches!(error, AuthorityError::File(FileError::Io { .. })), "{error:?}");

    cluster.authority.save(&directory.path).unwrap();
    let path = directory.path.join("authority.pem");
    let text = fs::read_to_string(&path).unwrap();
    let middle = text.len() / 2;
    let damaged = [
        String::new(),
        text[..middle].to_owned(),
        text.replace("CERTIFICATE", "KEY"),
        text.repeat(2),
    ];
    for content in damaged {
        fs::write(&path, &content).unwrap();
        let error = Authority::load(&directory.path).unwrap_err();
        assert!(matches!(error, AuthorityError::File(FileError::Malformed(_))), "{error:?}");
    }
    // One letter of the certificate's signature.
    let end = text.find("\n-----END CERTIFICATE").unwrap() - 8;
    let letter = if &text[end..=end] == "A" { "B" } else { "A" };
    fs::write(&path, [&text[..end], letter, &text[end + 1..]].concat()).unwrap();
    assert!(Authority::load(&directory.path).is_err());
}

#[test]
fn a_key_and_a_certificate_of_another_do_not_make_credentials() {
    let (directory, cluster) = (Directory::new(), Cluster::new("c"));
    let path = directory.path.join("credentials.pem");
    let halves = |member: &str| {
        cluster.member(Role::Node, member).save(&directory.path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let at = text.find("-----BEGIN CERTIFICATE").unwrap();
        (text[..at].to_owned(), text[at..].to_owned())
    };
    let ((key, _), (_, certificates)) = (halves("a"), halves("b"));
    fs::write(&path, key + &certificates).unwrap();
    let error = Credentials::load(&directory.path).unwrap_err();
    assert!(matches!(error, CredentialsError::Certificate(_)), "{error:?}");
}
