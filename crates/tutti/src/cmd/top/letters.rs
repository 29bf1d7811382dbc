//! A letter for each job that has processors.

use std::collections::BTreeMap;
use tutti_types::JobId;

/// Letters of jobs: a job keeps its own as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Letters {
    of: BTreeMap<JobId, char>,
    /// How many were given.
    given: usize,
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Of jobs without a letter.
const ANY: char = '#';

impl Letters {
    /// These are the jobs that are there, and no others.
    pub(super) fn update(&mut self, jobs: impl Iterator<Item = JobId> + Clone) {
        self.of.retain(|job, _| jobs.clone().any(|other| other == *job));
        for job in jobs {
            if !self.of.contains_key(&job)
                && let Some(letter) = self.free()
            {
                self.of.insert(job, letter);
            }
        }
    }

    /// The next free one, so that a letter is seldom given again soon.
    fn free(&mut self) -> Option<char> {
        let count = LETTERS.len();
        let mut next = LETTERS.chars().cycle().skip(self.given % count).take(count);
        let place = next.position(|letter| !self.of.values().any(|given| *given == letter))?;
        self.given += place + 1;
        LETTERS.chars().nth((self.given - 1) % count)
    }

    pub(super) fn get(&self, job: JobId) -> char {
        self.of.get(&job).copied().unwrap_or(ANY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_keeps_its_letter_and_none_is_given_twice() {
        let mut letters = Letters::default();
        let update = |letters: &mut Letters, jobs: &[u64]| {
            letters.update(jobs.iter().map(|job| JobId(*job)));
        };
        update(&mut letters, &[3, 5]);
        assert_eq!((letters.get(JobId(3)), letters.get(JobId(5))), ('A', 'B'));
        update(&mut letters, &[5, 9]);
        assert_eq!((letters.get(JobId(5)), letters.get(JobId(9))), ('B', 'C'));
        let many: Vec<u64> = (5..=70).collect();
        update(&mut letters, &many);
        let mut given: Vec<char> = many.iter().map(|job| letters.get(JobId(*job))).collect();
        assert_eq!((given[0], given[4]), ('B', 'C'));
        assert_eq!(given.iter().filter(|letter| **letter == ANY).count(), 4);
        given.retain(|letter| *letter != ANY);
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 62);
    }
}
