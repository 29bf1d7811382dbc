//! The ledger as form 4 of the journal has it: no grace of jobs, and one standing for all that are
//! ending.

use super::account::{Account, Standing};
use super::paces::{Clocks, Due, Paces};
use super::{Ledger, Moved, Rows, Runs, Stage};
use crate::frame::Frame;
use crate::state::ordered::Ordered;
use crate::state::table::Table;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use serde::Deserialize;
use tutti_types::ids::{JobId, RowId};
use tutti_types::time::{ClusterTime, Nanos};

#[derive(Debug, Deserialize)]
enum FormerStanding {
    New,
    Open,
    Held,
    Ending,
    Halted,
}

#[derive(Debug, Deserialize)]
struct FormerAccount {
    settled: u64,
    runs: Runs,
    began: u64,
    begins: ClusterTime,
    processors: u64,
    limit: Option<u64>,
    standing: FormerStanding,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is read to get at what follows; the lists are made anew")]
struct FormerPace {
    jobs: Ordered<Due>,
    next: Option<ClusterTime>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is read to get at what follows; the lists are made anew")]
struct FormerPaces {
    by_runs: BTreeMap<Runs, FormerPace>,
    leaving: BTreeMap<RowId, u64>,
    last: BTreeMap<JobId, (Rows, u64)>,
}

/// See the head of the file.
#[derive(Debug, Deserialize)]
pub(crate) struct FormerLedger {
    now: ClusterTime,
    frame: Frame,
    clocks: Clocks,
    accounts: Table<FormerAccount>,
    limited: usize,
    #[expect(dead_code, reason = "the lists are made anew")]
    paces: FormerPaces,
    stages: VecDeque<Stage>,
    moved: Moved,
}

impl FormerLedger {
    /// The ledger of now, given the grace of each job and when one that is ending is killed, unless
    /// it was already.
    pub(crate) fn upgrade(
        self,
        grace: impl Fn(JobId) -> Nanos,
        killed_at: impl Fn(JobId) -> Option<ClusterTime>,
    ) -> Ledger {
        let Self { now, frame, clocks, accounts: former, limited, paces: _, stages, moved } = self;
        let (mut accounts, mut paces) = (Table::default(), Paces::default());
        for (job, account) in former.iter() {
            let standing = match account.standing {
                FormerStanding::New => Standing::New,
                FormerStanding::Open => Standing::Open,
                FormerStanding::Held => Standing::Held,
                FormerStanding::Ending => killed_at(job).map_or(Standing::Killed, Standing::Ending),
                FormerStanding::Halted => Standing::Halted,
            };
            let account = Account {
                settled: account.settled,
                runs: account.runs.clone(),
                began: account.began,
                begins: account.begins,
                processors: account.processors,
                limit: account.limit,
                grace: grace(job).0,
                standing,
                lent: 0,
            };
            paces.enter(job, &account);
            accounts.insert(job, account);
        }
        let lent = BTreeSet::new();
        Ledger { now, frame, clocks, accounts, limited, paces, stages, moved, lent }
    }
}
