//! Appending, taking snapshots, and having the state again.

use crate::chunks::{ChunkId, Segment};
use crate::disk::Disk;
use crate::entry::{Details, EndedJob, Entry, Job, Keeper, encode};
use crate::listed::{ListedJob, SeenDetails};
use crate::replay::play;
use crate::seal::seal;
use crate::store::{
    Append, EndedSize, EndedSpan, Loaded, Number, Published, Row, Snapshot, Store, Sync, Used,
};
use crate::wal::Power;
use crate::{JournalError, SqliteStore};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use tutti_core::{Action, Core, Event, FormerCore};
use tutti_types::{ClusterTime, JobId, NodeId};
use tutti_wire::show::JobDetails;
use tutti_wire::usage::UsageSample;

/// After so many entries the state is stored: replaying them takes a fraction of a second.
const SNAPSHOT_EVERY: u64 = 20_000;

/// Every so many entries the digest of the whole state stands beside one.
const STATE_DIGEST_EVERY: u64 = 1_000;

/// Jobs that are forgotten in one go: a fraction of the time that anybody would notice.
const FORGET_AT_ONCE: u64 = 1_000;

/// Published events that are taken out in one go, and how many more than wanted there may be.
const PUBLISHED_GONE_AT_ONCE: u64 = 1_000;

/// How many intervals of the use of processors wait to be stored.
const UNSTORED_USED_MAX: usize = 12;

/// Bytes of published events that are kept: no user can fill the journal with them.
pub const PUBLISHED_BYTES_MAX: u64 = 64 << 20;

/// Room that is made at once when there are more.
const PUBLISHED_ROOM_BYTES: u64 = 1 << 20;

/// The journal of a controller that runs.
pub struct Journal {
    path: PathBuf,
    store: Box<dyn Store>,
    disk: Disk,
    /// The last entry, whether it is stored or still gathered, and its checksum.
    last: (Number, u32),
    /// The last one that is stored.
    stored: (Number, u32),
    /// What is not stored yet.
    gathered: Append,
    since_snapshot: u64,
    /// The number of the next chunk.
    next_chunk: u64,
    /// What is kept of jobs that have ended.
    ended: EndedSize,
    /// What is kept for readers of events.
    published: PublishedSize,
    /// Set while the store can't be written.
    failure: Option<String>,
}

/// How much is kept for readers of events.
#[derive(Clone, Copy, Debug, Default)]
struct PublishedSize {
    /// The last number that was given.
    last: Number,
    /// The last event that is stored.
    stored: Number,
    /// How many are stored, and how many bytes they have.
    count: u64,
    bytes: u64,
    /// How many are kept.
    most: u64,
    /// The earliest that is stored, if that was looked up since the latest removal.
    first: Option<Number>,
}

/// What is known of the controller before, since this start of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// An entry that it has stored; 0: none is known.
    pub stored: Number,
    /// The checksum there.
    pub seal: u32,
}

/// What a journal tells of the time before.
pub struct History {
    /// The state of the core after the last entry; nothing if there is none at all.
    pub core: Option<Core>,
    /// When that was.
    pub until: ClusterTime,
    /// What is kept of jobs that have not ended, and when each was launched, if it was.
    pub jobs: Vec<(Job, Option<ClusterTime>)>,
    /// The chunks of what they are to run, each once; all that they name are there, and are those
    /// of a launch.
    pub chunks: BTreeMap<ChunkId, Vec<u8>>,
    /// The latest keeper of each node.
    pub keepers: Vec<Keeper>,
    /// How many entries were applied to the latest snapshot.
    pub replayed: u64,
    /// What is to be reported: that the tail was damaged and cut back, or that there is nothing
    /// though something was stored; what happened last may be forgotten then.
    pub remark: Option<String>,
    /// Nodes whose keepers are not what was written, and are not known.
    pub bad_keepers: Vec<NodeId>,
    /// The first entry that led to something else than it did when it was written: by another
    /// release, most likely.
    pub differs_at: Option<Number>,
}

impl Journal {
    /// Opens the journal at a path, and makes it if there is none. `blank` is the state before the
    /// first entry. The machine may have lost its power since it was written.
    ///
    /// # Errors
    /// If it can't be used: see [`JournalError`].
    pub fn open(
        path: &Path,
        blank: impl FnOnce() -> Core,
    ) -> Result<(Self, History), JournalError> {
        let store = Box::new(SqliteStore::open_after(path, Power::MayHaveGone)?);
        Self::with(store, path, blank)
    }

    /// As [`Self::open`], where the machine was not started since the controller before: all that
    /// this has stored is there, or it is damaged. One that is not there at all was deleted, and is
    /// made anew.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_after(
        known: Known,
        path: &Path,
        blank: impl FnOnce() -> Core,
    ) -> Result<(Self, History), JournalError> {
        let store = Box::new(SqliteStore::open_after(path, Power::Stayed)?);
        Self::begin(store, known, path, blank, Disk::start)
    }

    /// As [`Self::open`], with another store.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with(
        store: Box<dyn Store>,
        path: &Path,
        blank: impl FnOnce() -> Core,
    ) -> Result<(Self, History), JournalError> {
        Self::begin(store, Known::default(), path, blank, Disk::start)
    }

    /// As [`Self::with`], but nothing comes to disk by itself: a simulated disk says when, by
    /// [`Self::bring_to_disk`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn by_hand(
        store: Box<dyn Store>,
        path: &Path,
        blank: impl FnOnce() -> Core,
    ) -> Result<(Self, History), JournalError> {
        Self::begin(store, Known::default(), path, blank, Disk::by_hand)
    }

    /// Brings to disk what is wanted there, of a journal that does not do so by itself; whether
    /// anything was.
    pub fn bring_to_disk(&mut self) -> bool {
        self.disk.bring()
    }

    fn begin(
        mut store: Box<dyn Store>,
        known: Known,
        path: &Path,
        blank: impl FnOnce() -> Core,
        disk: fn(Box<dyn Sync>) -> std::io::Result<Disk>,
    ) -> Result<(Self, History), JournalError> {
        let mut loaded = store.load()?;
        if let Some(what) = bad_job(&loaded) {
            return Err(JournalError::Damaged { path: path.into(), what });
        }
        let Good { last, entries, bad } = check(path, &loaded)?;
        let is_new = loaded.snapshot.is_none() && entries.is_empty();
        let mut remark = store.remark();
        if is_new && bad.is_none() && known.stored > 0 {
            remark = Some(format!(
                "the journal {} is gone, and was made anew; what was queued, set and recorded is forgotten",
                path.display()
            ));
        } else {
            expect_known(path, &loaded, last, known)?;
        }
        if let Some(from) = bad {
            store.cut_back(from)?;
            remark = Some(format!(
                "the journal {} ends with entries that are not whole, from {from} on; they were cut off, and with \
                 them what happened last",
                path.display()
            ));
        }
        let (core, until, differs_at) = core_of(path, &loaded, &entries, blank)?;
        let (stored, mut chunks) =
            (std::mem::take(&mut loaded.jobs), std::mem::take(&mut loaded.chunks));
        let next_chunk = chunks.keys().next_back().map_or(0, |last| last.0) + 1;
        let jobs = jobs_of(path, stored, &chunks)?;
        let unused = unused_chunks(&jobs, &mut chunks);
        let gathered = Append { dropped_chunks: unused, ..Append::default() };
        let replayed = entries.len() as u64;
        let ended = store.ended_size()?;
        let (stored, count, bytes) = store.published_size()?;
        let published =
            PublishedSize { last: stored, stored, count, bytes, most: u64::MAX, first: None };
        let disk = disk(store.syncer()?).map_err(|error| {
            let why = error.to_string();
            JournalError::Storage { path: path.into(), what: "brought to disk", why }
        })?;
        let journal = Self {
            path: path.into(),
            store,
            disk,
            last,
            stored: last,
            gathered,
            since_snapshot: replayed,
            next_chunk,
            ended,
            published,
            failure: None,
        };
        let core = (!is_new).then_some(core);
        let keepers = loaded.keepers.iter().map(|body| decode(path, "a keeper", 0, body));
        let keepers = keepers.collect::<Result<_, _>>()?;
        let bad_keepers = loaded.bad_keepers;
        let history = History {
            core,
            until,
            jobs,
            chunks,
            keepers,
            replayed,
            remark,
            bad_keepers,
            differs_at,
        };
        Ok((journal, history))
    }

    /// Notes an event that `core` has just been applied to, and what it led to. To be called before
    /// any of that is done.
    pub fn note(&mut self, at: ClusterTime, event: &Event, actions: &[Action], core: &Core) {
        let number = self.last.0 + 1;
        let state = number.is_multiple_of(STATE_DIGEST_EVERY).then(|| core.digest());
        let entry = Entry { at, event: event.clone(), actions: Entry::digest_of(actions), state };
        let body = encode(&entry);
        let seal = seal(self.last.1, number, &body);
        self.gathered.rows.push(Row { number, body, seal });
        self.last = (number, seal);
        self.since_snapshot += 1;
    }

    /// Notes what readers are shown of an entry; gives its number among all of these.
    pub fn publish<T: serde::Serialize>(&mut self, entry: Number, event: &T) -> Number {
        self.published.last += 1;
        let (number, body) = (self.published.last, encode(event));
        self.gathered.published.push(Published { number, entry, body });
        number
    }

    /// Leaves out numbers of published events, since some may have been given before.
    pub const fn skip_published(&mut self, count: u64) {
        self.published.last = self.published.last.saturating_add(count);
    }

    /// Keeps no more published events than about these, and no more than have
    /// [`PUBLISHED_BYTES_MAX`].
    pub const fn keep_published(&mut self, most: u64) {
        self.published.most = most;
    }

    /// The last published event that is stored, and may be shown.
    #[must_use]
    pub const fn published_until(&self) -> Number {
        self.published.stored
    }

    /// The number of the earliest published event that is kept; `None`: none is.
    ///
    /// # Errors
    /// If that can't be read.
    pub fn published_first(&mut self) -> Result<Option<Number>, JournalError> {
        if self.published.first.is_none() {
            self.published.first = self.store.published_first()?;
        }
        Ok(self.published.first)
    }

    /// Published events behind a number with the entries that they belong to, at most so many.
    ///
    /// # Errors
    /// If they can't be read, or one is not what was written.
    pub fn published<T: serde::de::DeserializeOwned>(
        &mut self,
        after: Number,
        most: usize,
    ) -> Result<Vec<(Number, Number, T)>, JournalError> {
        let found = self.store.published(after, most)?;
        let read = |it: &Published| {
            Ok((it.number, it.entry, decode(&self.path, "event", it.number, &it.body)?))
        };
        found.iter().map(read).collect()
    }

    /// How much it takes on disk, with its log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let files = [self.path.clone(), crate::wal::beside(&self.path, "-wal")];
        files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum()
    }

    /// Notes a chunk that is not stored yet; before the job that has it.
    pub fn note_chunk(&mut self, bytes: &[u8]) -> ChunkId {
        let chunk = ChunkId(self.next_chunk);
        self.next_chunk += 1;
        self.gathered.chunks.push((chunk, bytes.to_vec()));
        chunk
    }

    /// Notes that no job has this chunk any more.
    pub fn drop_chunk(&mut self, chunk: ChunkId) {
        self.gathered.dropped_chunks.push(chunk);
    }

    /// Notes a job that was accepted.
    pub fn note_job(&mut self, job: &Job) {
        self.gathered.accepted.push((job.job, encode(job)));
    }

    /// Notes that nothing is to be kept of a job, which is not known to have been accepted.
    pub fn drop_job(&mut self, job: JobId) {
        self.gathered.dropped_jobs.push(job);
    }

    /// Notes that a job was launched at this time, or is in line again.
    pub fn note_launch(&mut self, job: JobId, at: Option<ClusterTime>) {
        self.gathered.launched.push((job, at.map(|at| at.0)));
    }

    /// Notes the keeper of a node.
    pub fn note_keeper(&mut self, keeper: &Keeper) {
        self.gathered.keepers.push((keeper.node, encode(keeper)));
    }

    /// Notes how a job ended, and what it was.
    pub fn note_end(&mut self, job: &EndedJob, details: Option<&Details>) {
        let (number, mut body) = (job.report.job, encode(job));
        if let Some(details) = details {
            body.extend(encode(details));
        }
        self.ended.jobs += 1;
        self.ended.bytes += body.len() as u64;
        self.gathered.ended.push((number, job.ended_ms, job.uid, body));
    }

    /// What the processors of nodes were used for in an interval.
    pub fn note_used(&mut self, sample: &UsageSample) {
        let used = &mut self.gathered.used;
        if used.len() >= UNSTORED_USED_MAX {
            // While nothing can be stored.
            used.remove(0);
        }
        used.push((sample.until_ms, encode(sample)));
    }

    /// Such intervals that ended then or later, and before, earliest first, until they have so many
    /// bytes; times are milliseconds since 1970.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn used(
        &mut self,
        since_ms: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Vec<UsageSample>, JournalError> {
        used_within(&mut *self.store, &self.path, (since_ms, until_ms), bytes_max)
    }

    /// Forgets intervals that ended before this moment, in milliseconds since 1970, and the
    /// earliest ones while they have more bytes than these.
    ///
    /// # Errors
    /// If that can't be written.
    pub fn forget_used(&mut self, before_ms: u64, bytes_max: u64) -> Result<(), JournalError> {
        self.store.forget_used(before_ms, bytes_max)
    }

    /// Stores what was noted, for a process that is killed afterwards. If it can't be written it
    /// stays noted, and [`Self::failure`] says why.
    pub fn store(&mut self, core: &Core) {
        if self.gathered.is_empty() {
            return;
        }
        if self.since_snapshot >= SNAPSHOT_EVERY {
            self.add_snapshot(core);
        }
        self.write();
    }

    /// Stores all, with the state, so that nothing is to be replayed by the next controller.
    pub fn close(&mut self, core: &Core) {
        if self.since_snapshot > 0 {
            self.add_snapshot(core);
        }
        if !self.gathered.is_empty() {
            self.write();
        }
        self.disk.finish();
    }

    fn add_snapshot(&mut self, core: &Core) {
        let (number, seal) = self.last;
        self.gathered.snapshot = Some(Snapshot { number, seal, body: encode(core) });
        self.since_snapshot = 0;
    }

    /// How many of the earliest published events are not kept any more, and how many bytes they
    /// have; some at a time.
    fn published_gone(&mut self) -> Result<(u64, u64), JournalError> {
        let PublishedSize { count, bytes, most, .. } = self.published;
        let excess = (count + self.gathered.published.len() as u64).saturating_sub(most);
        let too_many = match excess >= (most / 10).clamp(1, PUBLISHED_GONE_AT_ONCE) {
            true => excess.min(count).min(PUBLISHED_GONE_AT_ONCE),
            false => 0,
        };
        let bytes = bytes + self.gathered.published_bytes();
        if too_many == 0 && bytes <= PUBLISHED_BYTES_MAX {
            return Ok((0, 0));
        }
        // If there is too much, some room is made for what comes next.
        let room = if bytes > PUBLISHED_BYTES_MAX { PUBLISHED_ROOM_BYTES } else { 0 };
        let excess = (bytes + room).saturating_sub(PUBLISHED_BYTES_MAX);
        let (mut gone, mut gone_bytes) = (0, 0);
        for length in self.store.published_lengths(PUBLISHED_GONE_AT_ONCE)? {
            if gone >= too_many && gone_bytes >= excess {
                break;
            }
            (gone, gone_bytes) = (gone + 1, gone_bytes + length);
        }
        Ok((gone, gone_bytes))
    }

    fn write(&mut self) {
        let written = self.published_gone().and_then(|(gone, bytes)| {
            self.gathered.published_gone = gone;
            self.store.append(&self.gathered).map(|()| (gone, bytes))
        });
        match written {
            Ok((gone, gone_bytes)) => {
                let published = &self.gathered.published;
                let count = self.published.count + published.len() as u64;
                let bytes = self.published.bytes + self.gathered.published_bytes();
                self.published.count = count.saturating_sub(gone);
                self.published.bytes = bytes.saturating_sub(gone_bytes);
                if gone > 0 {
                    self.published.first = None;
                }
                if let Some(last) = published.last() {
                    self.published.stored = last.number;
                }
                self.gathered = Append::default();
                self.stored = self.last;
                self.failure = None;
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    /// Why nothing can be stored at present.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The last entry that was noted.
    #[must_use]
    pub const fn noted(&self) -> Number {
        self.last.0
    }

    /// What the next controller is to know of this one.
    #[must_use]
    pub const fn known(&self) -> Known {
        Known { stored: self.stored.0, seal: self.stored.1 }
    }

    /// Asks that all that is stored be brought to disk soon, and not what is only noted: the disk
    /// may be done before that is stored. [`Self::wake`] becomes readable when it is there, or
    /// can't be.
    pub fn want_on_disk(&self) {
        if self.failure.is_none() {
            self.disk.want(self.stored.0);
        }
    }

    /// The last entry that a loss of power leaves there, and what the disk says if it takes no
    /// more.
    #[must_use]
    pub fn on_disk(&self) -> (Number, Option<String>) {
        self.disk.reached()
    }

    /// Readable when [`Self::on_disk`] says something new; [`Self::woken`] makes it unreadable.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.disk.wake()
    }

    /// Takes note of that.
    pub fn woken(&self) {
        self.disk.woken();
    }

    /// Jobs that ended within these bounds, latest first, at most so many.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn ended(
        &mut self,
        within: &EndedSpan,
        most: usize,
    ) -> Result<Vec<EndedJob>, JournalError> {
        let found = self.ended_list(within, most, false)?;
        Ok(found.into_iter().map(|listed| listed.job).collect())
    }

    /// The same as lists have them. `in_full`: each with what it was to run, unless an earlier
    /// release has stored it.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn ended_list(
        &mut self,
        within: &EndedSpan,
        most: usize,
        in_full: bool,
    ) -> Result<Vec<ListedJob>, JournalError> {
        listed_within(&mut *self.store, &self.path, within, most, in_full)
    }

    /// A job that ended.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn ended_job(&mut self, job: JobId) -> Result<Option<EndedJob>, JournalError> {
        ended_of(&mut *self.store, &self.path, job)
    }

    /// A job that ended, with what it was, unless an earlier release has stored it.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn ended_details(
        &mut self,
        job: JobId,
    ) -> Result<Option<(EndedJob, Option<Details>)>, JournalError> {
        details_of(&mut *self.store, &self.path, job)
    }

    /// Jobs that have ended, and were left out, since what is kept of them is not what was written;
    /// each once.
    pub fn left_out(&mut self) -> Vec<JobId> {
        self.store.left_out()
    }

    /// How much is kept of jobs that have ended, with those that are to be stored.
    #[must_use]
    pub const fn ended_size(&self) -> EndedSize {
        self.ended
    }

    /// Forgets jobs that ended before this moment, in milliseconds since 1970, and the earliest
    /// ones while more bytes are kept of them than these; a part of them at a time. Says whether
    /// there are more.
    ///
    /// # Errors
    /// If that can't be written.
    pub fn forget_ended(&mut self, before_ms: u64, bytes_max: u64) -> Result<bool, JournalError> {
        let too_old = self.store.forget_ended(before_ms, FORGET_AT_ONCE)?;
        self.take_off(too_old);
        let too_much = self.ended.bytes.saturating_sub(bytes_max);
        if too_much == 0 {
            return Ok(too_old.jobs == FORGET_AT_ONCE);
        }
        let mean = self.ended.bytes.div_ceil(self.ended.jobs.max(1)).max(1);
        let most = too_much.div_ceil(mean).min(FORGET_AT_ONCE);
        let earliest = self.store.forget_ended(u64::MAX, most)?;
        self.take_off(earliest);
        // Those that are not stored yet can't be forgotten yet.
        Ok(self.ended.bytes > bytes_max && earliest.jobs > 0)
    }

    const fn take_off(&mut self, gone: EndedSize) {
        self.ended.jobs = self.ended.jobs.saturating_sub(gone.jobs);
        self.ended.bytes = self.ended.bytes.saturating_sub(gone.bytes);
    }
}

/// Entries that are whole.
pub(crate) struct Good {
    last: (Number, u32),
    pub(crate) entries: Vec<Entry>,
    /// The first one of a tail that is not.
    pub(crate) bad: Option<Number>,
}

/// What of it is good. A tail that is not is said to be so; anything else that is wrong is an
/// error, since what came after it can't be trusted to fit.
pub(crate) fn check(path: &Path, loaded: &Loaded) -> Result<Good, JournalError> {
    let mut last = loaded.snapshot.as_ref().map_or((0, 0), |s| (s.number, s.seal));
    let mut entries = Vec::with_capacity(loaded.rows.len());
    let mut bad = None;
    for row in &loaded.rows {
        let whole = row.number == last.0 + 1 && row.seal == seal(last.1, row.number, &row.body);
        if !whole || bad.is_some() {
            bad = bad.or(Some(row.number));
            continue;
        }
        // It is what was written. To cut it off as if it was torn would forget what happened.
        entries.push(decode(path, "entry", row.number, &row.body)?);
        last = (row.number, row.seal);
    }
    // In a tail that was torn nothing fits; after damage elsewhere, rows still fit each other.
    if let Some(from) = bad {
        let fits = |pair: &[Row]| {
            let next = &pair[1];
            next.number == pair[0].number + 1
                && next.seal == seal(pair[0].seal, next.number, &next.body)
        };
        let start = loaded.rows.partition_point(|row| row.number < from);
        if loaded.rows[start..].windows(2).any(fits) {
            let what =
                format!("entry {} is not what was written, and others follow it", last.0 + 1);
            return Err(JournalError::Damaged { path: path.into(), what });
        }
    }
    Ok(Good { last, entries, bad })
}

/// The core after all entries, when the last one was, and the first one after which it did
/// something else.
fn core_of(
    path: &Path,
    loaded: &Loaded,
    entries: &[Entry],
    blank: impl FnOnce() -> Core,
) -> Result<(Core, ClusterTime, Option<u64>), JournalError> {
    let mut core = match &loaded.snapshot {
        Some(snapshot) => decode_state(path, snapshot.number, &snapshot.body)?,
        None => blank(),
    };
    let mut actions = Vec::new();
    let mut until = core.now();
    let mut differs_at = None;
    for (row, entry) in loaded.rows.iter().zip(entries) {
        let differs = play(&mut core, entry, &mut actions);
        differs_at = differs_at.or(differs.map(|_| row.number));
        until = entry.at;
    }
    Ok((core, until, differs_at))
}

/// Jobs as they were stored, each of which can be launched.
fn jobs_of(
    path: &Path,
    stored: Vec<(Vec<u8>, Option<u64>)>,
    chunks: &BTreeMap<ChunkId, Vec<u8>>,
) -> Result<Vec<(Job, Option<ClusterTime>)>, JournalError> {
    let mut owners: BTreeMap<ChunkId, u32> = BTreeMap::new();
    let jobs = stored.into_iter().map(|(body, launched)| {
        let job: Job = decode(path, "a job", 0, &body)?;
        let uid = job.credentials.uid;
        let parts = job.launch.iter().map(|segment| match segment {
            Segment::Own(bytes) => Some(&bytes[..]),
            Segment::Shared(chunk) if *owners.entry(*chunk).or_insert(uid) != uid => None,
            Segment::Shared(chunk) => chunks.get(chunk).map(|bytes| &bytes[..]),
        });
        let launch = parts.collect::<Option<Vec<&[u8]>>>();
        match launch.is_some_and(|parts| crate::join(parts).is_ok()) {
            true => Ok((job, launched.map(ClusterTime))),
            false => {
                let what = format!("what job {} is to run is not what was written", job.job);
                Err(JournalError::Damaged { path: path.into(), what })
            }
        }
    });
    jobs.collect()
}

/// Takes out the chunks that no job has.
fn unused_chunks(
    jobs: &[(Job, Option<ClusterTime>)],
    chunks: &mut BTreeMap<ChunkId, Vec<u8>>,
) -> Vec<ChunkId> {
    let segments = jobs.iter().flat_map(|(job, _)| &job.launch);
    let used: BTreeSet<ChunkId> = segments
        .filter_map(|segment| match segment {
            Segment::Own(_) => None,
            Segment::Shared(chunk) => Some(*chunk),
        })
        .collect();
    let unused: Vec<ChunkId> = chunks.keys().filter(|it| !used.contains(it)).copied().collect();
    chunks.retain(|chunk, _| used.contains(chunk));
    unused
}

/// What is wrong with what is kept of jobs, if anything is.
pub(crate) fn bad_job(loaded: &Loaded) -> Option<String> {
    let JobId(job) = loaded.bad_job?;
    Some(format!("what is kept of job {job} is not what was written"))
}

/// What is known to have been stored must be there.
fn expect_known(
    path: &Path,
    loaded: &Loaded,
    last: (Number, u32),
    known: Known,
) -> Result<(), JournalError> {
    let damaged = |what| Err(JournalError::Damaged { path: path.into(), what });
    let Known { stored, seal } = known;
    if last.0 < stored {
        let what = format!(
            "it is good up to entry {}, and entry {stored} was stored: a part is lost, or it is an older copy",
            last.0
        );
        return damaged(what);
    }
    let snapshots = loaded.snapshot.iter().map(|snapshot| (snapshot.number, snapshot.seal));
    let rows = loaded.rows.iter().map(|row| (row.number, row.seal));
    match snapshots.chain(rows).find(|(number, _)| *number == stored) {
        Some((_, found)) if found != seal => {
            damaged(format!("entry {stored} is another one than was stored: it is another journal"))
        }
        _ => Ok(()),
    }
}

/// See [`Journal::ended_list`].
pub(crate) fn listed_within(
    store: &mut dyn Store,
    path: &Path,
    within: &EndedSpan,
    most: usize,
    in_full: bool,
) -> Result<Vec<ListedJob>, JournalError> {
    let bodies = store.ended(within, most)?;
    let listed = |body: &Vec<u8>| match in_full {
        true => whole_job(path, body),
        false => listed_job(path, body),
    };
    bodies.iter().map(listed).collect()
}

/// A job that has ended, with what it was to run.
fn whole_job(path: &Path, body: &[u8]) -> Result<ListedJob, JournalError> {
    let (job, details) = ended_and_details(path, body)?;
    Ok(ListedJob::whole(job, details, body.len()))
}

/// A job that has ended, without what it was to run.
fn listed_job(path: &Path, body: &[u8]) -> Result<ListedJob, JournalError> {
    let seen = postcard::take_from_bytes::<EndedJob>(body).and_then(|(job, rest)| {
        let (seen, rest) = postcard::take_from_bytes::<SeenDetails<'_>>(rest)?;
        let steps = if rest.is_empty() { Vec::new() } else { postcard::from_bytes(rest)? };
        Ok(seen.listed(job, steps, body.len()))
    });
    // One without details, or that has an error to report.
    seen.or_else(|_| whole_job(path, body))
}

/// See [`Journal::ended_job`].
pub(crate) fn ended_of(
    store: &mut dyn Store,
    path: &Path,
    job: JobId,
) -> Result<Option<EndedJob>, JournalError> {
    let body = store.ended_job(job)?;
    body.map(|body| Ok(ended_and_details(path, &body)?.0)).transpose()
}

/// See [`Journal::ended_details`].
pub(crate) fn details_of(
    store: &mut dyn Store,
    path: &Path,
    job: JobId,
) -> Result<Option<(EndedJob, Option<Details>)>, JournalError> {
    store.ended_job(job)?.map(|body| ended_and_details(path, &body)).transpose()
}

/// See [`Journal::used`].
pub(crate) fn used_within(
    store: &mut dyn Store,
    path: &Path,
    (since_ms, until_ms): (u64, u64),
    bytes_max: usize,
) -> Result<Vec<UsageSample>, JournalError> {
    let found = store.used(since_ms, until_ms, bytes_max)?;
    let decoded =
        |(until_ms, body): &Used| decode(path, "the use of processors until", *until_ms, body);
    found.iter().map(decoded).collect()
}

/// A job that has ended, and the details that may follow, which have its queue and its slots.
fn ended_and_details(
    path: &Path,
    body: &[u8],
) -> Result<(EndedJob, Option<Details>), JournalError> {
    let (mut ended, rest) = match postcard::take_from_bytes::<EndedJob>(body) {
        Ok(found) => found,
        Err(_) => (decode(path, "a job that ended", 0, body)?, &[][..]),
    };
    if rest.is_empty() {
        return Ok((ended, None));
    }
    let what = "what a job that ended was";
    let (job, rest) = match postcard::take_from_bytes::<JobDetails>(rest) {
        Ok(found) => found,
        Err(_) => (decode(path, what, 0, rest)?, &[][..]),
    };
    // An earlier release stored no steps.
    let steps = if rest.is_empty() { Vec::new() } else { decode(path, what, 0, rest)? };
    ended.report.queue.clone_from(&job.queue);
    ended.report.first = Some(job.first.clone());
    ended.report.slots = Some(job.slots);
    ended.report.nodes_asked = job.asked.nodes;
    Ok((ended, Some(Details { job, steps })))
}

/// A state that was stored, of this form or of form 4: the one that it is to its last byte.
pub(crate) fn decode_state(path: &Path, number: Number, body: &[u8]) -> Result<Core, JournalError> {
    if let Ok((core, [])) = postcard::take_from_bytes(body) {
        return Ok(core);
    }
    match postcard::take_from_bytes::<FormerCore>(body) {
        Ok((former, [])) => Ok(former.into()),
        _ => decode(path, "the state at entry", number, body),
    }
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(
    path: &Path,
    what: &str,
    number: Number,
    body: &[u8],
) -> Result<T, JournalError> {
    postcard::from_bytes(body).map_err(|error| {
        let number = if number == 0 { String::new() } else { format!(" {number}") };
        let what = format!("{what}{number} can't be read: {error}");
        JournalError::Damaged { path: path.into(), what }
    })
}
