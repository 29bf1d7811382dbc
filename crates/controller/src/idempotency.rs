//! By what keys jobs were handed in, so that a `submit` that has not heard the answer can ask
//! again.

use std::collections::{BTreeMap, VecDeque};
use tutti_types::JobId;
use tutti_wire::local::SubmitKey;

/// Keys that are known at once: a client that asks again does so within seconds, in which no
/// controller takes so many jobs.
const KEYS_MAX: usize = 50_000;

/// A key is its user's own: no other user learns of the job by it.
type Key = (u32, SubmitKey);

/// The latest keys.
#[derive(Default)]
pub(super) struct Submitted {
    jobs: BTreeMap<Key, JobId>,
    order: VecDeque<Key>,
}

impl Submitted {
    /// A job was accepted that has this key, if it has one.
    pub(super) fn note(&mut self, uid: u32, key: Option<SubmitKey>, job: JobId) {
        let Some(key) = key.map(|key| (uid, key)) else { return };
        if self.jobs.insert(key, job).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.jobs.remove(&oldest);
        }
    }

    /// The job that was accepted with this key.
    pub(super) fn find(&self, uid: u32, key: Option<SubmitKey>) -> Option<JobId> {
        self.jobs.get(&(uid, key?)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_users_own_and_the_oldest_is_forgotten_first() {
        let key = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Some(SubmitKey(bytes))
        };
        let mut submitted = Submitted::default();
        for number in 0..=KEYS_MAX as u64 {
            submitted.note(7, key(number), JobId(number));
        }
        assert_eq!(submitted.find(7, key(1)), Some(JobId(1)));
        assert_eq!(submitted.find(7, key(0)), None);
        assert_eq!(submitted.find(8, key(1)), None);
        assert_eq!(submitted.find(7, None), None);
        assert_eq!((submitted.jobs.len(), submitted.order.len()), (KEYS_MAX, KEYS_MAX));
    }
}
