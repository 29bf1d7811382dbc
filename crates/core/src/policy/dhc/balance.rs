//! Balance: jobs that permit it go to blocks with fewer jobs, where others have ended.

use super::place;
use crate::apply::Core;
use crate::migrate::Move;
use crate::policy::is_plain;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};

impl Core {
    /// A job that goes to another block of its level, in a row that there is. It is one of the
    /// block with the most jobs, if another has at least two fewer.
    pub(crate) fn move_to_lighter(&self) -> Option<Move> {
        let levels = self.matrix.levels()?;
        let mut loaded: Vec<(u32, JobId)> = Vec::new();
        for (job, record) in self.jobs.iter() {
            if let Some(block) = levels.block_of(job)
                && record.may_migrate()
                && is_plain(&record.spec)
            {
                loaded.push((levels.jobs_at(block), job));
            }
        }
        loaded.sort_by_key(|&(jobs, job)| (core::cmp::Reverse(jobs), core::cmp::Reverse(job)));
        loaded.into_iter().find_map(|(jobs, job)| {
            let block = levels.block_of(job)?;
            let tasks = self.jobs.get(&job)?.spec.tasks;
            let lighter = levels.map(u64::from(tasks))?.block;
            if lighter.level != block.level || levels.jobs_at(lighter) + 1 >= jobs {
                return None;
            }
            let rows: Vec<RowId> = self.matrix.rows_of(levels, block.level).collect();
            let (row, parts) = place(self.machine(), levels, (tasks, lighter), &rows)?;
            Some(Move { job, row, parts })
        })
    }
}
