//! Names of clusters and of their members, and how a certificate says them.
//!
//! A certificate names its owner by one URI, `tutti://CLUSTER/ROLE/NAME`; an authority's own names
//! the cluster alone, `tutti://CLUSTER`. Names are made of letters, digits, `-`, `.` and `_`, so
//! that nothing in a URI has to be escaped and no two spellings mean the same.

use crate::limits::NAME_BYTES_MAX;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "tutti://";

/// The name of a cluster, a node or an admin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name: a name begins with a letter or digit, goes on with letters, digits, '-', '.' and '_', \
     and has at most {NAME_BYTES_MAX} of them"
)]
pub struct NameError(String);

impl Name {
    /// Takes a text as a name.
    ///
    /// # Errors
    /// If it has other characters than a name may have, or too many.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let good = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if good {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError(text.chars().take(NAME_BYTES_MAX).collect()))
    }

    /// The name as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// What the owner of a certificate is to the cluster.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Role {
    /// A machine that runs tasks, or the controller: others may connect to it.
    Node,
    /// An administrator's machine that directs the cluster. No member connects to it.
    Admin,
    /// A machine from which users submit, look and cancel. It runs no task, and no member connects
    /// to it.
    Client,
}

/// The users that a client machine may speak for, by number. Root is never one of them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Users {
    /// Every ordinary user.
    All,
    /// These alone.
    Only(BTreeSet<u32>),
}

/// What the owner of a token may become.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Admission {
    /// A node.
    Node,
    /// An administrator's machine.
    Admin,
    /// A client machine that may speak for these users.
    Client(Users),
}

impl Admission {
    /// The role in the certificate.
    #[must_use]
    pub const fn role(&self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Admin => Role::Admin,
            Self::Client(_) => Role::Client,
        }
    }
}

impl Role {
    const ALL: [Self; 3] = [Self::Node, Self::Admin, Self::Client];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Admin => "admin",
            Self::Client => "client",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A peer with a certificate of the cluster's authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The cluster.
    pub cluster: Name,
    /// What it is there.
    pub role: Role,
    /// Its own name, among those of its role.
    pub name: Name,
}

impl Member {
    /// The member that a URI names; `None` if it names none.
    pub(crate) fn from_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let (cluster, role, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let role = Role::ALL.into_iter().find(|known| known.as_str() == role)?;
        Some(Self { cluster: Name::new(cluster).ok()?, role, name: Name::new(name).ok()? })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster, self.role, self.name)
    }
}

/// The URI of a cluster's authority.
pub(crate) fn cluster_uri(cluster: &Name) -> String {
    format!("{SCHEME}{cluster}")
}

/// The cluster that the URI of an authority names; `None` if it names none.
pub(crate) fn cluster_of_uri(uri: &str) -> Option<Name> {
    Name::new(uri.strip_prefix(SCHEME)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_and_its_uri_are_one() {
        let uri = "tutti://cluster-1/node/n01.example.org";
        assert_eq!(Member::from_uri(uri).unwrap().to_string(), uri);
        assert_eq!(Member::from_uri("tutti://c/admin/ann").unwrap().role, Role::Admin);
    }

    #[test]
    fn what_names_nobody_is_no_member() {
        for uri in [
            "",
            "tutti://",
            "tutti://c",
            "tutti://c/node",
            "tutti://c/node/",
            "tutti://c/node/a/b",
            "tutti://c/root/a",
            "tutti://c/Node/a",
            "tutti://c//a",
            "https://c/node/a",
            "tutti://c/node/a b",
            "tutti://c/node/%61",
        ] {
            assert_eq!(Member::from_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn names_are_bounded_and_plain() {
        assert!(Name::new(&"a".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(Name::new("0.a_b-c").is_ok());
        for bad in ["", "-a", ".", "a/b", "ä", "a b", "a\n", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }
}
