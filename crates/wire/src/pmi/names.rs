//! Names by which the jobs of a node find each other's addresses (`MPI_Publish_name`).

use super::{NAMES_PER_USER_MAX, SPACE_NAME_BYTES_MAX, VALUE_BYTES_MAX};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::{JobId, UserId};

/// Why a name can't be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is, by this user.
    #[error("the name is already published")]
    Taken,
    /// The name or the address is longer than any may be.
    #[error("the name or the port is too long")]
    TooLong,
    /// The user has published too many.
    #[error("at most {NAMES_PER_USER_MAX} names can be published by one user")]
    TooMany,
}

/// The names that all jobs of a node have published. Each user has names of their own: what one
/// publishes, another neither sees nor can replace by an address that leads elsewhere. Written as
/// they are for a keeper that takes another's place: a change is one of [`crate::handover::FORM`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    by_user: BTreeMap<UserId, BTreeMap<Vec<u8>, Published>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Published {
    job: JobId,
    port: Vec<u8>,
}

impl Names {
    /// No names.
    #[must_use]
    pub const fn new() -> Self {
        Self { by_user: BTreeMap::new() }
    }

    /// Publishes an address for as long as its job lives.
    ///
    /// # Errors
    /// If the name is taken, too long, or one too many.
    pub fn publish(
        &mut self,
        user: UserId,
        job: JobId,
        service: &[u8],
        port: &[u8],
    ) -> Result<(), NameError> {
        if service.len() > SPACE_NAME_BYTES_MAX || port.len() > VALUE_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let names = self.by_user.entry(user).or_default();
        if names.contains_key(service) {
            return Err(NameError::Taken);
        }
        if names.len() >= NAMES_PER_USER_MAX {
            return Err(NameError::TooMany);
        }
        names.insert(service.to_vec(), Published { job, port: port.to_vec() });
        Ok(())
    }

    /// The address behind a name.
    #[must_use]
    pub fn lookup(&self, user: UserId, service: &[u8]) -> Option<&[u8]> {
        let published = self.by_user.get(&user)?.get(service)?;
        Some(&published.port)
    }

    /// Takes a name back; false if there is none. Any job of the user may do it.
    pub fn unpublish(&mut self, user: UserId, service: &[u8]) -> bool {
        self.by_user.get_mut(&user).is_some_and(|names| names.remove(service).is_some())
    }

    /// Takes back what a job has published, when it has ended.
    pub fn forget(&mut self, job: JobId) {
        self.by_user.retain(|_, names| {
            names.retain(|_, published| published.job != job);
            !names.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_a_user_and_end_with_their_job() {
        let (ann, bob) = (UserId(1), UserId(2));
        let mut names = Names::new();
        names.publish(ann, JobId(1), b"ocean", b"port 1").unwrap();
        assert_eq!(names.publish(ann, JobId(2), b"ocean", b"port 2"), Err(NameError::Taken));
        names.publish(bob, JobId(3), b"ocean", b"port 3").unwrap();
        assert_eq!(names.lookup(ann, b"ocean"), Some(&b"port 1"[..]));
        assert!(!names.unpublish(ann, b"air") && names.unpublish(bob, b"ocean"));
        assert_eq!(names.lookup(bob, b"ocean"), None);
        names.forget(JobId(2));
        assert_eq!(names.lookup(ann, b"ocean"), Some(&b"port 1"[..]));
        names.forget(JobId(1));
        assert_eq!(names.lookup(ann, b"ocean"), None);
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names::new();
        for n in 0..NAMES_PER_USER_MAX {
            names.publish(UserId(1), JobId(1), n.to_string().as_bytes(), b"p").unwrap();
        }
        assert_eq!(names.publish(UserId(1), JobId(1), b"x", b"p"), Err(NameError::TooMany));
        assert_eq!(names.publish(UserId(2), JobId(2), b"x", b"p"), Ok(()));
        assert_eq!(
            names.publish(UserId(2), JobId(2), b"y", &[b'p'; 1025]),
            Err(NameError::TooLong)
        );
    }
}
