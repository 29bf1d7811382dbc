//! The disk of a simulated machine under the controller's journal: what was written is there for
//! the next controller, what was brought to disk also after a loss of power; writing and bringing
//! to disk can fail.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tutti_journal::{
    Append, ChunkId, EndedSize, EndedSpan, JournalError, Loaded, Number, Published, Row, Snapshot,
    Store, Sync, Used,
};
use tutti_node::simulated::machine::is_cut_off;
use tutti_types::{JobId, NodeId};

/// All that lies there.
#[derive(Clone, Debug, Default)]
struct Content {
    rows: BTreeMap<Number, Row>,
    snapshots: BTreeMap<Number, Snapshot>,
    chunks: BTreeMap<ChunkId, Vec<u8>>,
    jobs: BTreeMap<JobId, (Vec<u8>, Option<u64>)>,
    keepers: BTreeMap<NodeId, Vec<u8>>,
    ended: BTreeMap<JobId, (u64, u32, Vec<u8>)>,
    published: BTreeMap<Number, Published>,
    used: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    written: Content,
    /// As a loss of power leaves it, and what was written since, one after the other.
    safe: Content,
    unsafe_yet: Vec<Append>,
    /// Whether something was taken out since, so that they are not all.
    has_less: bool,
    /// Nothing can be written; nothing can be brought to disk.
    is_full: bool,
    is_broken: bool,
    /// How much was ever written.
    pub(super) appends: u64,
}

/// See the head of the file. Copies are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power is gone: of what was not brought to disk, so many of the first writes are there
    /// all the same, and of the next one, if it is torn, the half of its first entry.
    pub(super) fn lose_power(&self, kept: impl FnOnce(usize) -> usize, is_torn: bool) {
        let mut state = self.state();
        let kept = kept(state.unsafe_yet.len());
        let mut content = std::mem::take(&mut state.safe);
        let mut not_safe = std::mem::take(&mut state.unsafe_yet).into_iter();
        for append in not_safe.by_ref().take(kept) {
            content.add(&append);
        }
        let next = not_safe.next().filter(|_| is_torn);
        if let Some(mut row) = next.and_then(|append| append.rows.into_iter().next()) {
            row.body.truncate(row.body.len() / 2);
            content.rows.insert(row.number, row);
        }
        state.safe = content.clone();
        state.written = content;
        state.has_less = false;
    }

    /// Whether a controller after a loss of power would take a job for one that has not ended.
    pub(super) fn lacks_the_end_of(&self, job: JobId) -> bool {
        let state = self.state();
        state.safe.jobs.contains_key(&job)
    }

    /// Whether all that is written comes to disk.
    pub(super) fn takes_all(&self) -> bool {
        let state = self.state();
        !state.is_full && !state.is_broken
    }

    /// Whether it takes anything.
    pub(super) fn set_full(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    /// Whether anything can be brought to it.
    pub(super) fn set_broken(&self, is_broken: bool) {
        self.state().is_broken = is_broken;
    }
}

impl Content {
    fn add(&mut self, append: &Append) {
        self.rows.extend(append.rows.iter().map(|row| (row.number, row.clone())));
        self.chunks.extend(append.chunks.iter().cloned());
        for (job, body) in &append.accepted {
            self.jobs.insert(*job, (body.clone(), None));
        }
        for (job, at) in &append.launched {
            if let Some((_, launched)) = self.jobs.get_mut(job) {
                *launched = *at;
            }
        }
        self.keepers.extend(append.keepers.iter().cloned());
        for (job, ended_ms, uid, body) in &append.ended {
            self.jobs.remove(job);
            self.ended.insert(*job, (*ended_ms, *uid, body.clone()));
        }
        self.jobs.retain(|job, _| !append.dropped_jobs.contains(job));
        for chunk in &append.dropped_chunks {
            self.chunks.remove(chunk);
        }
        self.published.extend(append.published.iter().map(|it| (it.number, it.clone())));
        for _ in 0..append.published_gone {
            self.published.pop_first();
        }
        self.used.extend(append.used.iter().cloned());
        if let Some(snapshot) = &append.snapshot {
            self.snapshots.insert(snapshot.number, snapshot.clone());
        }
    }

    fn from(&self, snapshot: Option<&Snapshot>) -> Loaded {
        let after = snapshot.map_or(0, |snapshot| snapshot.number) + 1;
        Loaded {
            snapshot: snapshot.cloned(),
            rows: self.rows.range(after..).map(|(_, row)| row.clone()).collect(),
            chunks: self.chunks.clone(),
            jobs: self.jobs.values().cloned().collect(),
            keepers: self.keepers.values().cloned().collect(),
            ..Loaded::default()
        }
    }
}

fn refused(what: &'static str, why: &str) -> JournalError {
    JournalError::Storage { path: PathBuf::from("the journal"), what, why: why.to_owned() }
}

impl Store for SimulatedDisk {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let state = self.state();
        Ok(state.written.from(state.written.snapshots.values().next_back()))
    }

    fn load_all(&mut self) -> Result<Loaded, JournalError> {
        Ok(self.state().written.from(None))
    }

    fn append(&mut self, append: &Append) -> Result<(), JournalError> {
        let mut state = self.state();
        if state.is_full {
            return Err(refused("written", "no space left on device"));
        }
        if append.rows.iter().any(|row| state.written.rows.contains_key(&row.number)) {
            return Err(refused("written", "there is such an entry already"));
        }
        if is_cut_off() {
            return Ok(());
        }
        state.written.add(append);
        state.unsafe_yet.push(append.clone());
        state.appends += 1;
        Ok(())
    }

    fn cut_back(&mut self, from: Number) -> Result<(), JournalError> {
        let mut state = self.state();
        state.written.rows.retain(|&number, _| number < from);
        state.written.published.retain(|_, event| event.entry < from);
        state.has_less = true;
        Ok(())
    }

    fn forget_ended(&mut self, before_ms: u64, most: u64) -> Result<EndedSize, JournalError> {
        let mut state = self.state();
        let old = state.written.ended.iter().filter(|(_, (ended_ms, ..))| *ended_ms < before_ms);
        let mut old: Vec<(u64, JobId)> =
            old.map(|(&job, &(ended_ms, ..))| (ended_ms, job)).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let mut gone = EndedSize::default();
        state.has_less |= !old.is_empty();
        for (_, job) in old {
            if let Some((_, _, body)) = state.written.ended.remove(&job) {
                gone.jobs += 1;
                gone.bytes += body.len() as u64;
            }
        }
        Ok(gone)
    }

    fn ended_size(&mut self) -> Result<EndedSize, JournalError> {
        let state = self.state();
        let bytes = state.written.ended.values().map(|(.., body)| body.len() as u64).sum();
        Ok(EndedSize { jobs: state.written.ended.len() as u64, bytes })
    }

    fn ended(&mut self, within: &EndedSpan, most: usize) -> Result<Vec<Vec<u8>>, JournalError> {
        let state = self.state();
        let is_within = |job: JobId, ended_ms: u64, uid: u32| {
            within.uid.is_none_or(|wanted| wanted == uid)
                && within.since_ms.is_none_or(|since| ended_ms >= since)
                && within.until_ms.is_none_or(|until| ended_ms < until)
                && within.after.is_none_or(|after| (ended_ms, job) < after)
        };
        let found = state.written.ended.iter();
        let found = found.filter(|(job, (ended_ms, uid, _))| is_within(**job, *ended_ms, *uid));
        let mut found: Vec<(u64, JobId, Vec<u8>)> =
            found.map(|(&job, (ended_ms, _, body))| (*ended_ms, job, body.clone())).collect();
        found.sort_unstable_by_key(|(ended_ms, job, _)| std::cmp::Reverse((*ended_ms, *job)));
        Ok(found.into_iter().take(most).map(|(.., body)| body).collect())
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.state().written.ended.get(&job).map(|(.., body)| body.clone()))
    }

    fn published_size(&mut self) -> Result<(Number, u64, u64), JournalError> {
        let state = self.state();
        let last = state.written.published.keys().next_back();
        let bytes = state.written.published.values().map(|event| event.body.len() as u64).sum();
        Ok((last.copied().unwrap_or(0), state.written.published.len() as u64, bytes))
    }

    fn published_lengths(&mut self, most: u64) -> Result<Vec<u64>, JournalError> {
        let state = self.state();
        let lengths = state.written.published.values().map(|event| event.body.len() as u64);
        Ok(lengths.take(usize::try_from(most).unwrap_or(usize::MAX)).collect())
    }

    fn published_first(&mut self) -> Result<Option<Number>, JournalError> {
        Ok(self.state().written.published.keys().next().copied())
    }

    fn published(&mut self, after: Number, most: usize) -> Result<Vec<Published>, JournalError> {
        let state = self.state();
        let behind = state.written.published.range(after.saturating_add(1)..);
        Ok(behind.take(most).map(|(_, event)| event.clone()).collect())
    }

    fn used(
        &mut self,
        since_ms: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Vec<Used>, JournalError> {
        let state = self.state();
        let mut bytes = 0;
        let within = state.written.used.range(since_ms..until_ms.max(since_ms));
        let fits = |(_, body): &(&u64, &Vec<u8>)| {
            let is_first = bytes < bytes_max;
            bytes += body.len();
            is_first
        };
        Ok(within.take_while(fits).map(|(&until_ms, body)| (until_ms, body.clone())).collect())
    }

    fn forget_used(&mut self, before_ms: u64, bytes_max: u64) -> Result<(), JournalError> {
        let mut state = self.state();
        let used = &mut state.written.used;
        let count = used.len();
        used.retain(|&until_ms, _| until_ms >= before_ms);
        while used.values().map(|body| body.len() as u64).sum::<u64>() > bytes_max {
            used.pop_first();
        }
        let is_less = used.len() < count;
        state.has_less |= is_less;
        Ok(())
    }

    fn syncer(&mut self) -> Result<Box<dyn Sync>, JournalError> {
        Ok(Box::new(self.clone()))
    }
}

impl Sync for SimulatedDisk {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state();
        if state.is_broken {
            return Err(io::Error::other("the disk does not answer"));
        }
        let State { written, safe, unsafe_yet, has_less, .. } = &mut *state;
        if std::mem::take(has_less) {
            safe.clone_from(written);
            unsafe_yet.clear();
        }
        unsafe_yet.drain(..).for_each(|append| safe.add(&append));
        Ok(())
    }
}
