//! Tasks that the tasks of a job start (`MPI_Comm_spawn`): what is asked for, and the messages
//! between a keeper and the spawner that it starts for it.
//!
//! A spawner is a process of the job's user. It asks the controller for a step as `tutti run`
//! inside the job does, and is that step's front end. Its first descriptor above the standard
//! streams is a connection with its keeper. On it comes one [`SpawnOrder`], and it answers by one
//! [`SpawnAnswer`].

use crate::launch::{Credentials, LaunchSpec};
use crate::limits::{SPAWN_BYTES_MAX, SPAWN_PROGRAMS_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, Rank, StepId};

/// The number of the descriptor at which a spawner finds its keeper.
pub const SPAWNER_FD: i32 = 3;

/// What tasks ask to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// The programs, in the order of the ranks of their tasks; at most [`SPAWN_PROGRAMS_MAX`].
    pub programs: Vec<SpawnedProgram>,
    /// Keys and values that the tasks find in their key space.
    pub preput: Vec<(ByteBuf, ByteBuf)>,
    /// The step and the rank that ask. The keeper sets it.
    pub parent: Option<(StepId, Rank)>,
}

/// One of the programs that are started together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnedProgram {
    /// How many tasks run it; there may be none.
    pub tasks: u32,
    /// The program and its arguments.
    pub argv: Vec<ByteBuf>,
    /// Where it starts; `None`: where the tasks did that ask for it.
    pub directory: Option<ByteBuf>,
    /// Directories where it is looked for first, separated by colons.
    pub path: Option<ByteBuf>,
}

/// What a text takes beside its bytes, about.
const EACH: usize = 32;

impl SpawnedProgram {
    fn bytes(&self) -> usize {
        let argv: usize = self.argv.iter().map(|word| word.len() + EACH).sum();
        let places = [self.directory.as_ref(), self.path.as_ref()];
        argv + places.into_iter().flatten().map(|text| text.len()).sum::<usize>() + 3 * EACH
    }
}

impl Spawned {
    /// What it takes, about, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let preput = self.preput.iter().map(|(key, value)| key.len() + value.len() + 2 * EACH);
        self.programs.iter().map(SpawnedProgram::bytes).sum::<usize>() + preput.sum::<usize>()
    }

    /// Whether it is within the limits that hold for all.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        self.programs.len() <= SPAWN_PROGRAMS_MAX
            && self.bytes() <= SPAWN_BYTES_MAX
            && !self.argv_is_missing()
    }

    /// Whether one of its programs has no name.
    #[must_use]
    pub fn argv_is_missing(&self) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|it| it.argv.is_empty())
    }

    /// How many tasks it asks for; `None` if no number can say that.
    #[must_use]
    pub fn tasks(&self) -> Option<u32> {
        self.programs.iter().try_fold(0_u32, |sum, program| sum.checked_add(program.tasks))
    }

    /// The number of the program that a rank runs, from 0.
    #[must_use]
    pub fn program_of(&self, rank: Rank) -> usize {
        let mut end = 0_u32;
        let holds = |program: &SpawnedProgram| {
            end = end.saturating_add(program.tasks);
            rank.0 < end
        };
        self.programs.iter().position(holds).unwrap_or(0)
    }
}

/// What a spawner is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// The job.
    pub job: JobId,
    /// The step whose tasks ask.
    pub step: StepId,
    /// What the tasks are to run.
    pub spawned: Spawned,
    /// Which user the process is to become; `None`: it is the job's already.
    pub identity: Option<Credentials>,
    /// As the tasks that ask have it: environment, limits, directory.
    pub launch: LaunchSpec,
    /// Whether slots may be free in a moment: others that were spawned have not ended.
    pub may_wait: bool,
}

/// What became of a spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnAnswer {
    /// The step is being started.
    Started {
        /// Its number in the job.
        step: StepId,
    },
    /// It is not.
    Refused {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_rank_finds_its_program() {
        let program =
            |tasks| SpawnedProgram { tasks, argv: vec![ByteBuf::from("p")], ..Default::default() };
        let spawned =
            Spawned { programs: [2, 0, 1].map(program).to_vec(), preput: vec![], parent: None };
        let found: Vec<usize> = (0..3).map(|rank| spawned.program_of(Rank(rank))).collect();
        assert_eq!(found, [0, 0, 2]);
        assert_eq!(spawned.tasks(), Some(3));
        assert!(spawned.is_within_limits());
        let too_many = [u32::MAX, 1].map(program).to_vec();
        assert_eq!(Spawned { programs: too_many, preput: vec![], parent: None }.tasks(), None);
        let many = vec![program(1); SPAWN_PROGRAMS_MAX + 1];
        assert!(!Spawned { programs: many, preput: vec![], parent: None }.is_within_limits());
        assert!(!Spawned::default().is_within_limits());
    }
}
