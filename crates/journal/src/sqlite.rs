//! A journal in a file of SQLite: no server, and readable by SQL.
//!
//! The write-ahead log is on, and nothing waits for the disk when it commits: a commit is in the
//! kernel's hands then, which outlives the process. What brings it to disk is [`WalSync`], from
//! another thread, on the log's own descriptor: SQLite's way would hold the lock meanwhile, and
//! with it the next commit. The log is copied into the file by that thread, too, when it has grown.
//! Whether it is whole is looked at before SQLite sees it ([`crate::wal`]).
//!
//! A controller holds a lock on a file beside it (`-lock`) as long as it lives: two that do not
//! know of each other would each go on from what it knows. A reader needs none.

mod forms;
mod lock;

pub(crate) use forms::SCHEMA_WITHOUT_SINCE;
pub use lock::in_use;

use crate::chunks::ChunkId;
use crate::seal::own_seal;
use crate::store::{
    Append, EndedSize, EndedSpan, Loaded, Number, Published, Row, Snapshot, Store, Sync, Used,
};
use crate::wal::{self, Power};
use crate::{JournalError, SCHEMA_VERSION};
use forms::{ADD_PUBLISHED, ADD_USED, SCHEMA_WITHOUT_CHUNKS, SCHEMA_WITHOUT_SEALS};
use lock::lock;
use nix::fcntl::Flock;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tutti_types::{JobId, NodeId};

/// How much the log may have grown when it is copied into the file, in bytes.
const LOG_BYTES: u64 = 8 << 20;

/// How long a command of another process, which only reads, may hold us up, in milliseconds.
const BUSY_MS: u32 = 2_000;

/// How many jobs that have ended and are not what was written are reported, each once.
const BAD_KNOWN_MAX: usize = 1_000;

/// A file only its owner may read: it holds the environments of jobs.
const MODE: u32 = 0o600;

/// How a file of SQLite begins.
const MAGIC: [u8; 16] = *b"SQLite format 3\0";

/// Free pages that the file keeps, and how many more it gives back with one write. A page has 4
/// KiB.
const FREE_PAGES_KEPT: u64 = 4096;
const FREE_PAGES_AT_ONCE: u64 = 256;

/// A file of an earlier form that has at most so many pages in use is written anew, so that it can
/// shrink later.
const REWRITTEN_PAGES_MAX: u64 = 16_384;

/// See the module.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    /// What was found out about its log.
    remark: Option<String>,
    /// Whether pages are free that are to be given back.
    is_long: bool,
    /// Its form: another than the latest one for a reader.
    form: u32,
    /// Jobs that have ended and are not what was written; the first ones were told.
    bad_ended: Vec<JobId>,
    bad_told: usize,
    /// Held while this lives; after the connection, which is closed first.
    lock: Option<Flock<File>>,
}

impl SqliteStore {
    /// Opens the journal at this path, and makes it if there is none. The machine may have lost its
    /// power since it was written.
    ///
    /// # Errors
    /// If it can't be opened, another controller has it, it is damaged, is no journal, or is that
    /// of a later Tutti.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let store = Self::open_after(path, Power::MayHaveGone)?;
        let copies = store.copies_back_at_the_end(true);
        store.explain("opened", copies)?;
        Ok(store)
    }

    /// Opens it for a controller that may find it damaged all the same: its log stays until
    /// [`Store::syncer`] is asked for.
    pub(crate) fn open_after(path: &Path, power: Power) -> Result<Self, JournalError> {
        let lock = lock(path)?;
        let remark = wal::check(path, power)?;
        let failed = |why: String| JournalError::Storage { path: path.into(), what: "opened", why };
        // SQLite would make it readable to others.
        let made = OpenOptions::new().create(true).append(true).mode(MODE).open(path);
        made.map_err(|error| failed(error.to_string()))?;
        if let Some(directory) = path.parent() {
            // The name of a new file must not be lost, either.
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(|error| failed(error.to_string()))?;
        }
        let mut store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        (store.remark, store.lock) = (remark, lock);
        Ok(store)
    }

    /// Opens a journal to be read, also one that a controller writes just now.
    ///
    /// # Errors
    /// As [`Self::open`]; also if there is none, or something else.
    pub fn open_to_read(path: &Path) -> Result<Self, JournalError> {
        let not_one = |why: &str| JournalError::NotOne { path: path.into(), why: why.into() };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => not_one("there is no such file"),
            ErrorKind::UnexpectedEof => not_one("it is too short to be one"),
            ErrorKind::IsADirectory => not_one("it is a directory"),
            _ => {
                let why = error.to_string();
                JournalError::Storage { path: path.into(), what: "opened", why }
            }
        };
        let mut begin = [0; MAGIC.len()];
        // Before it is opened: a pipe would have us wait for its other end.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(not_one("it is no file"));
        }
        File::open(path).and_then(|mut file| file.read_exact(&mut begin)).map_err(failed)?;
        if begin != MAGIC {
            return Err(not_one("it begins with something else"));
        }
        let remark = wal::remark(path);
        match (Self::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY), remark) {
            // Its tables are in the log.
            (Err(JournalError::NotOne { path, .. }), Some(what)) => {
                Err(JournalError::Damaged { path, what })
            }
            (store, remark) => store.map(|store| Self { remark, ..store }),
        }
    }

    /// How many jobs have not ended, as far as the journal knows.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn unfinished(&self) -> Result<u64, JournalError> {
        let count = "SELECT COUNT(*) FROM job";
        let count = self.connection.query_row(count, [], |row| row.get(0).map(number));
        self.explain("read", count)
    }

    fn connect(path: &Path, access: OpenFlags) -> Result<Self, JournalError> {
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags);
        let connection = connection.map_err(|error| explained(path, "opened", &error))?;
        let path = path.to_owned();
        let (remark, form, bad_ended, bad_told) = (None, SCHEMA_VERSION, Vec::new(), 0);
        // The first append finds out.
        let is_long = true;
        let lock = None;
        let mut store = Self { path, connection, remark, is_long, form, bad_ended, bad_told, lock };
        let writes = access.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
        let prepared = store.prepare(writes);
        store.explain("opened", prepared)??;
        Ok(store)
    }

    fn prepare(&mut self, writes: bool) -> rusqlite::Result<Result<(), JournalError>> {
        self.connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS.into()))?;
        if writes {
            // One that is refused is left as it is, with its log.
            self.copies_back_at_the_end(false)?;
            if self.pages("page_count")? == 0 {
                // Before there is anything in the file: the next writes its first page.
                self.connection.pragma_update(None, "auto_vacuum", "incremental")?;
            }
            self.connection.pragma_update(None, "journal_mode", "wal")?;
            self.connection.pragma_update(None, "synchronous", "normal")?;
            self.connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            self.connection.pragma_update(None, "journal_size_limit", stored(LOG_BYTES))?;
        }
        let found: u32 = self.connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
        match found {
            SCHEMA_VERSION => {}
            0 | SCHEMA_WITHOUT_SINCE..=SCHEMA_WITHOUT_CHUNKS if writes => {
                if let Err(error) = self.bring_on(found)? {
                    return Ok(Err(error));
                }
            }
            // A reader does not look at keepers, nor at what jobs are to run.
            SCHEMA_WITHOUT_SINCE..=SCHEMA_WITHOUT_CHUNKS => self.form = found,
            0 => {
                let (path, why) = (self.path.clone(), "its tables are another program's".into());
                return Ok(Err(JournalError::NotOne { path, why }));
            }
            found => {
                let (path, known) = (self.path.clone(), SCHEMA_VERSION);
                return Ok(Err(JournalError::TooNew { path, found, known }));
            }
        }
        if writes {
            self.connection.execute_batch(ADD_PUBLISHED)?;
            self.connection.execute_batch(ADD_USED)?;
        }
        Ok(Ok(()))
    }

    /// Whether the log is copied into the file, and goes, when this is closed.
    fn copies_back_at_the_end(&self, it_does: bool) -> rusqlite::Result<()> {
        let option = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connection.set_db_config(option, !it_does).map(drop)
    }

    fn bring_on(&mut self, from: u32) -> rusqlite::Result<Result<(), JournalError>> {
        if let Err(what) = forms::bring_on(&mut self.connection, from)? {
            return Ok(Err(self.damaged(what)));
        }
        if from != 0 {
            // Without room for that the file stays as long as it is.
            let _ = self.rewrite();
        }
        Ok(Ok(()))
    }

    fn pages(&self, which: &str) -> rusqlite::Result<u64> {
        self.connection.pragma_query_value(None, which, |row| row.get(0)).map(number)
    }

    /// Writes the file anew, as one that can give pages back.
    fn rewrite(&self) -> rusqlite::Result<()> {
        let used = self.pages("page_count")?.saturating_sub(self.pages("freelist_count")?);
        if used > REWRITTEN_PAGES_MAX {
            return Ok(());
        }
        self.connection.pragma_update(None, "auto_vacuum", "incremental")?;
        self.connection.execute_batch("VACUUM")
    }

    /// Gives pages back that are free, so many at a time; whether more are to be given back.
    fn shrink(&self) -> rusqlite::Result<bool> {
        let is_long = self.pages("freelist_count")? > FREE_PAGES_KEPT;
        if is_long {
            let vacuum = format!("PRAGMA incremental_vacuum({FREE_PAGES_AT_ONCE})");
            let mut vacuum = self.connection.prepare_cached(&vacuum)?;
            // Each step gives one page back.
            let mut pages = vacuum.query([])?;
            while pages.next()?.is_some() {}
        }
        Ok(is_long)
    }

    fn explain<T>(
        &self,
        what: &'static str,
        result: rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        result.map_err(|error| explained(&self.path, what, &error))
    }

    fn damaged(&self, what: String) -> JournalError {
        JournalError::Damaged { path: self.path.clone(), what }
    }

    /// Whether all rows have checksums.
    const fn is_sealed(&self) -> bool {
        self.form > SCHEMA_WITHOUT_SEALS
    }

    /// Whether this is the checksum of what was read.
    fn is_own(&self, seal: Option<u32>, place: &[u64], body: &[u8]) -> bool {
        !self.is_sealed() || seal == Some(own_seal(place, body))
    }

    /// The state that is found so, if there is one.
    fn snapshot(&self, found_so: &str) -> Result<Option<Snapshot>, JournalError> {
        let own = if self.is_sealed() { "own_seal" } else { "NULL" };
        let select = format!("SELECT number, seal, body, {own} FROM snapshot {found_so}");
        let found = self.connection.query_row(&select, [], |row| {
            let (number, seal, body) = (number(row.get(0)?), row.get(1)?, row.get(2)?);
            Ok((Snapshot { number, seal, body }, row.get(3)?))
        });
        let Some((snapshot, own)) = self.explain("read", found.optional())? else {
            return Ok(None);
        };
        let Snapshot { number, seal, body } = &snapshot;
        match self.is_own(own, &[*number, u64::from(*seal)], body) {
            true => Ok(Some(snapshot)),
            false => {
                Err(self.damaged(format!("the state at entry {number} is not what was written")))
            }
        }
    }

    fn read_after(&self, snapshot: Option<Snapshot>) -> rusqlite::Result<Loaded> {
        let after = snapshot.as_ref().map_or(0, |snapshot| stored(snapshot.number));
        let mut rows = self
            .connection
            .prepare("SELECT number, seal, body FROM entry WHERE number > ? ORDER BY number")?;
        let rows = rows.query_map([after], |row| {
            Ok(Row { number: number(row.get(0)?), seal: row.get(1)?, body: row.get(2)? })
        })?;
        let rows = rows.collect::<rusqlite::Result<_>>()?;
        let mut loaded = Loaded { snapshot, rows, ..Loaded::default() };
        if self.form > SCHEMA_WITHOUT_CHUNKS {
            self.read_chunks(&mut loaded)?;
        }
        self.read_jobs(&mut loaded)?;
        self.read_keepers(&mut loaded)?;
        Ok(loaded)
    }

    /// A job that names one that is left out can't be launched, which is noticed there.
    fn read_chunks(&self, into: &mut Loaded) -> rusqlite::Result<()> {
        let mut chunks = self.connection.prepare("SELECT number, body, own_seal FROM chunk")?;
        let mut chunks = chunks.query([])?;
        while let Some(row) = chunks.next()? {
            let chunk = number(row.get(0)?);
            let body: Vec<u8> = row.get(1)?;
            if self.is_own(row.get(2)?, &[chunk], &body) {
                into.chunks.insert(ChunkId(chunk), body);
            }
        }
        Ok(())
    }

    fn read_jobs(&self, into: &mut Loaded) -> rusqlite::Result<()> {
        let seals = if self.is_sealed() { "own_seal, launch_seal" } else { "NULL, NULL" };
        let select = format!("SELECT job, launched, body, {seals} FROM job ORDER BY job");
        let mut jobs = self.connection.prepare(&select)?;
        let mut jobs = jobs.query([])?;
        while let Some(row) = jobs.next()? {
            let job = number(row.get(0)?);
            let launched = row.get::<_, Option<i64>>(1)?.map(number);
            let body: Vec<u8> = row.get(2)?;
            let launch_seal: Option<u32> = row.get(4)?;
            let is_launch =
                !self.is_sealed() || launch_seal == launched.map(|at| own_seal(&[job, at], &[]));
            if !(is_launch && self.is_own(row.get(3)?, &[job], &body)) {
                into.bad_job.get_or_insert(JobId(job));
            }
            into.jobs.push((body, launched));
        }
        Ok(())
    }

    fn read_keepers(&self, into: &mut Loaded) -> rusqlite::Result<()> {
        let own = if self.is_sealed() { "own_seal" } else { "NULL" };
        let select = format!("SELECT node, body, {own} FROM keeper ORDER BY node");
        let mut keepers = self.connection.prepare(&select)?;
        let mut keepers = keepers.query([])?;
        while let Some(row) = keepers.next()? {
            let (node, body): (u32, Vec<u8>) = (row.get(0)?, row.get(1)?);
            match self.is_own(row.get(2)?, &[u64::from(node)], &body) {
                true => into.keepers.push(body),
                false => into.bad_keepers.push(NodeId(node)),
            }
        }
        Ok(())
    }

    fn write(&mut self, append: &Append) -> rusqlite::Result<()> {
        let all = self.connection.transaction()?;
        {
            let mut put = all.prepare_cached("INSERT INTO entry VALUES (?, ?, ?)")?;
            for row in &append.rows {
                put.execute(params![stored(row.number), row.seal, row.body])?;
            }
            let mut put = all.prepare_cached("INSERT INTO chunk VALUES (?, ?, ?)")?;
            for (chunk, body) in &append.chunks {
                put.execute(params![stored(chunk.0), body, own_seal(&[chunk.0], body)])?;
            }
            let put = "INSERT OR REPLACE INTO job VALUES (?, NULL, ?, ?, NULL)";
            let mut put = all.prepare_cached(put)?;
            for (job, body) in &append.accepted {
                put.execute(params![stored(job.0), body, own_seal(&[job.0], body)])?;
            }
            let put = "UPDATE job SET launched = ?, launch_seal = ? WHERE job = ?";
            let mut put = all.prepare_cached(put)?;
            for (job, launched) in &append.launched {
                let seal = launched.map(|at| own_seal(&[job.0, at], &[]));
                put.execute(params![launched.map(stored), seal, stored(job.0)])?;
            }
            let mut put = all.prepare_cached("INSERT OR REPLACE INTO keeper VALUES (?, ?, ?)")?;
            for (node, body) in &append.keepers {
                put.execute(params![node.0, body, own_seal(&[u64::from(node.0)], body)])?;
            }
            let put = "INSERT OR REPLACE INTO ended VALUES (?, ?, ?, ?, ?)";
            let mut put = all.prepare_cached(put)?;
            let mut take = all.prepare_cached("DELETE FROM job WHERE job = ?")?;
            for (job, ended_ms, uid, body) in &append.ended {
                let seal = own_seal(&[job.0, *ended_ms, u64::from(*uid)], body);
                put.execute(params![stored(job.0), stored(*ended_ms), uid, body, seal])?;
                take.execute([stored(job.0)])?;
            }
            for job in &append.dropped_jobs {
                take.execute([stored(job.0)])?;
            }
            let mut take = all.prepare_cached("DELETE FROM chunk WHERE number = ?")?;
            for chunk in &append.dropped_chunks {
                take.execute([stored(chunk.0)])?;
            }
            write_published(&all, append)?;
            let mut put = all.prepare_cached("INSERT OR REPLACE INTO used VALUES (?, ?, ?)")?;
            for (until_ms, body) in &append.used {
                put.execute(params![stored(*until_ms), body, own_seal(&[*until_ms], body)])?;
            }
            if let Some(Snapshot { number, seal, body }) = &append.snapshot {
                let put = "INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)";
                let own = own_seal(&[*number, u64::from(*seal)], body);
                all.execute(put, params![stored(*number), seal, body, own])?;
                // The one before stays, with what followed it: something to compare with.
                let kept = "(SELECT number FROM snapshot ORDER BY number DESC LIMIT 1 OFFSET 1)";
                all.execute(&format!("DELETE FROM entry WHERE number <= {kept}"), [])?;
                all.execute(&format!("DELETE FROM snapshot WHERE number < {kept}"), [])?;
            }
        }
        all.commit()
    }
}

/// Adds what readers of events are shown, and takes out what is not kept any more.
fn write_published(all: &Connection, append: &Append) -> rusqlite::Result<()> {
    let mut put = all.prepare_cached("INSERT INTO published VALUES (?, ?, ?, ?)")?;
    for Published { number, entry, body } in &append.published {
        let seal = own_seal(&[*number, *entry], body);
        put.execute(params![stored(*number), stored(*entry), body, seal])?;
    }
    if append.published_gone > 0 {
        let earliest = "SELECT number FROM published ORDER BY number LIMIT ?";
        let take = format!("DELETE FROM published WHERE number IN ({earliest})");
        all.prepare_cached(&take)?.execute([limited(append.published_gone)])?;
    }
    Ok(())
}

impl SqliteStore {
    /// Published events as they are stored; the number of the first that is not what was written.
    fn read_published(
        &self,
        after: Number,
        most: usize,
    ) -> rusqlite::Result<Result<Vec<Published>, Number>> {
        let mut rows = self.connection.prepare_cached(
            "SELECT number, entry, body, own_seal FROM published WHERE number > ? ORDER BY number LIMIT ?",
        )?;
        let mut rows = rows.query(params![limited(after), limited(most as u64)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let (number, entry) = (number(row.get(0)?), number(row.get(1)?));
            let body: Vec<u8> = row.get(2)?;
            if row.get::<_, u32>(3)? != own_seal(&[number, entry], &body) {
                return Ok(Err(number));
            }
            found.push(Published { number, entry, body });
        }
        Ok(Ok(found))
    }

    /// See [`Store::used`]. A journal that only earlier releases have written has none.
    fn read_used(
        &self,
        since_ms: i64,
        until_ms: i64,
        bytes_max: usize,
    ) -> rusqlite::Result<Vec<Used>> {
        let there = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'used'";
        if self.connection.query_row(there, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(Vec::new());
        }
        let mut rows = self.connection.prepare_cached(
            "SELECT until_ms, body, own_seal FROM used WHERE until_ms >= ? AND until_ms < ?
             ORDER BY until_ms",
        )?;
        let mut rows = rows.query([since_ms, until_ms])?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(row) = rows.next()?
        {
            let (until_ms, body): (u64, Vec<u8>) = (number(row.get(0)?), row.get(1)?);
            if row.get::<_, u32>(2)? == own_seal(&[until_ms], &body) {
                bytes += body.len();
                found.push((until_ms, body));
            }
        }
        Ok(found)
    }

    /// See [`Store::forget_used`].
    fn take_out_used(&self, before_ms: i64, bytes_max: i64) -> rusqlite::Result<()> {
        let old = "DELETE FROM used WHERE until_ms < ?";
        self.connection.prepare_cached(old)?.execute([before_ms])?;
        // Sums up from the latest back; as far as that is too much, it goes.
        let too_much = "DELETE FROM used WHERE until_ms <= (
                SELECT MAX(until_ms) FROM (
                    SELECT until_ms, SUM(LENGTH(body)) OVER (ORDER BY until_ms DESC) AS kept FROM used
                ) WHERE kept > ?
            )";
        self.connection.prepare_cached(too_much)?.execute([bytes_max])?;
        Ok(())
    }

    /// Those of them that were not known are reported.
    fn leave_out(&mut self, jobs: Vec<JobId>) {
        for job in jobs {
            if !self.bad_ended.contains(&job) && self.bad_ended.len() < BAD_KNOWN_MAX {
                self.bad_ended.push(job);
            }
        }
    }
}

/// What is kept of a job that has ended, if it is what was written.
fn whole_ended(row: &rusqlite::Row<'_>, bad: &mut Vec<JobId>) -> rusqlite::Result<Option<Vec<u8>>> {
    let job = number(row.get(0)?);
    let read = || -> rusqlite::Result<_> {
        let (ended_ms, uid): (i64, u32) = (row.get(1)?, row.get(2)?);
        let (body, seal): (Vec<u8>, Option<u32>) = (row.get(3)?, row.get(4)?);
        let is_whole = seal == Some(own_seal(&[job, number(ended_ms), u64::from(uid)], &body));
        Ok(is_whole.then_some(body))
    };
    // Also where it is not even of the right kind.
    let whole = read().ok().flatten();
    if whole.is_none() {
        bad.push(JobId(job));
    }
    Ok(whole)
}

impl Store for SqliteStore {
    fn remark(&self) -> Option<String> {
        self.remark.clone()
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        let snapshot = self.snapshot("ORDER BY number DESC LIMIT 1")?;
        self.explain("read", self.read_after(snapshot))
    }

    fn load_all(&mut self) -> Result<Loaded, JournalError> {
        let whole: rusqlite::Result<bool> = self.connection.query_row(
            "SELECT EXISTS (SELECT 1 FROM entry WHERE number = 1)",
            [],
            |row| row.get(0),
        );
        let first = match self.explain("read", whole)? {
            // All entries are there: no snapshot is needed.
            true => None,
            false => self.snapshot("ORDER BY number LIMIT 1")?,
        };
        self.explain("read", self.read_after(first))
    }

    fn append(&mut self, append: &Append) -> Result<(), JournalError> {
        let written = self.write(append);
        let frees = !append.ended.is_empty() || !append.dropped_chunks.is_empty();
        // Jobs that end free much at once: what can't be given back with them is with what comes
        // after.
        if written.is_ok() && (self.is_long || frees) {
            // All is stored; a file that is too long is shortened another time.
            self.is_long = self.shrink().unwrap_or(false);
        }
        self.explain("written", written)
    }

    fn cut_back(&mut self, from: Number) -> Result<(), JournalError> {
        let cut = ["entry WHERE number", "published WHERE entry"].into_iter().try_for_each(|it| {
            let cut = format!("DELETE FROM {it} >= ?");
            self.connection.execute(&cut, [stored(from)]).map(drop)
        });
        self.explain("written", cut)
    }

    fn forget_ended(&mut self, before_ms: u64, most: u64) -> Result<EndedSize, JournalError> {
        let forget = || -> rusqlite::Result<EndedSize> {
            let mut forget = self.connection.prepare_cached(
                "DELETE FROM ended WHERE job IN
                 (SELECT job FROM ended WHERE ended_ms < ? ORDER BY ended_ms, job LIMIT ?)
                 RETURNING LENGTH(body)",
            )?;
            let mut gone = EndedSize::default();
            for bytes in forget.query_map([limited(before_ms), limited(most)], |row| row.get(0))? {
                gone.jobs += 1;
                gone.bytes += number(bytes?);
            }
            Ok(gone)
        };
        self.explain("written", forget())
    }

    fn ended_size(&mut self) -> Result<EndedSize, JournalError> {
        let size = "SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0) FROM ended";
        let size = self.connection.query_row(size, [], |row| {
            Ok(EndedSize { jobs: number(row.get(0)?), bytes: number(row.get(1)?) })
        });
        self.explain("read", size)
    }

    fn ended(&mut self, within: &EndedSpan, most: usize) -> Result<Vec<Vec<u8>>, JournalError> {
        let mut bad = Vec::new();
        let mut read = || -> rusqlite::Result<Vec<Vec<u8>>> {
            // Each of the two is an index read backwards.
            let of_user = if within.uid.is_some() { "uid = ?5" } else { "?5 IS NULL" };
            let mut rows = self.connection.prepare_cached(&format!(
                "SELECT job, ended_ms, uid, body, own_seal FROM ended
                 WHERE {of_user} AND ended_ms >= ?1 AND ended_ms < ?2
                 AND ended_ms <= ?3 AND (ended_ms < ?3 OR job < ?4)
                 ORDER BY ended_ms DESC, job DESC"
            ))?;
            let (behind_ms, behind_job) = within.after.unwrap_or((u64::MAX, JobId(u64::MAX)));
            let bounds = params![
                limited(within.since_ms.unwrap_or(0)),
                limited(within.until_ms.unwrap_or(u64::MAX)),
                limited(behind_ms),
                limited(behind_job.0),
                within.uid,
            ];
            let mut rows = rows.query(bounds)?;
            let mut found = Vec::new();
            while found.len() < most
                && let Some(row) = rows.next()?
            {
                found.extend(whole_ended(row, &mut bad)?);
            }
            Ok(found)
        };
        let found = read();
        self.leave_out(bad);
        self.explain("read", found)
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Vec<u8>>, JournalError> {
        let mut bad = Vec::new();
        let one = "SELECT job, ended_ms, uid, body, own_seal FROM ended WHERE job = ?";
        let number = [stored(job.0)];
        let found = self.connection.query_row(one, number, |row| whole_ended(row, &mut bad));
        self.leave_out(bad);
        self.explain("read", found.optional()).map(Option::flatten)
    }

    fn published_size(&mut self) -> Result<(Number, u64, u64), JournalError> {
        let size = "SELECT COALESCE(MAX(number), 0), COUNT(*), COALESCE(SUM(LENGTH(body)), 0) FROM published";
        let size = self.connection.query_row(size, [], |row| {
            Ok((number(row.get(0)?), number(row.get(1)?), number(row.get(2)?)))
        });
        self.explain("read", size)
    }

    fn published_lengths(&mut self, most: u64) -> Result<Vec<u64>, JournalError> {
        let read = || -> rusqlite::Result<Vec<u64>> {
            let lengths = "SELECT LENGTH(body) FROM published ORDER BY number LIMIT ?";
            let mut lengths = self.connection.prepare_cached(lengths)?;
            let found = lengths.query_map([limited(most)], |row| row.get(0).map(number))?;
            found.collect()
        };
        let found = read();
        self.explain("read", found)
    }

    fn published_first(&mut self) -> Result<Option<Number>, JournalError> {
        let first = "SELECT MIN(number) FROM published";
        let first = self.connection.query_row(first, [], |row| row.get::<_, Option<i64>>(0));
        self.explain("read", first).map(|first| first.map(number))
    }

    fn published(&mut self, after: Number, most: usize) -> Result<Vec<Published>, JournalError> {
        let found = self.explain("read", self.read_published(after, most))?;
        found.map_err(|number| self.damaged(format!("event {number} is not what was written")))
    }

    fn used(
        &mut self,
        since_ms: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Vec<Used>, JournalError> {
        let found = self.read_used(limited(since_ms), limited(until_ms), bytes_max);
        self.explain("read", found)
    }

    fn forget_used(&mut self, before_ms: u64, bytes_max: u64) -> Result<(), JournalError> {
        let forgotten = self.take_out_used(limited(before_ms), limited(bytes_max));
        self.explain("written", forgotten)
    }

    fn left_out(&mut self) -> Vec<JobId> {
        let told = std::mem::replace(&mut self.bad_told, self.bad_ended.len());
        self.bad_ended[told..].to_vec()
    }

    fn syncer(&mut self) -> Result<Box<dyn Sync>, JournalError> {
        // What is written from now on rests on what was read.
        let copies = self.copies_back_at_the_end(true);
        self.explain("opened", copies)?;
        let log = wal::beside(&self.path, "-wal");
        let opened = |error: std::io::Error| {
            let (path, why) = (log.clone(), error.to_string());
            JournalError::Storage { path, what: "opened", why }
        };
        // SQLite has made it, and has it open until we end.
        let open = File::open(&log).map_err(opened)?;
        let is = (identity(&self.path).map_err(opened)?, identity(&log).map_err(opened)?);
        Ok(Box::new(WalSync { path: self.path.clone(), log, open, is }))
    }
}

/// Brings the write-ahead log to disk. It is the only file that a commit writes to, and what it
/// holds is found again after a loss of power as far as its own checksums are right.
struct WalSync {
    path: PathBuf,
    log: PathBuf,
    open: File,
    /// Which files they are: the journal, and the log.
    is: (Identity, Identity),
}

/// What tells a file from others, whatever they are called.
type Identity = (u64, u64);

fn identity(path: &Path) -> std::io::Result<Identity> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Sync for WalSync {
    fn sync(&mut self) -> std::io::Result<()> {
        if (identity(&self.path)?, identity(&self.log)?) != self.is {
            // No pattern that we write is to be found.
            let why =
                "another file was put in its place; put the right one back, or end the instance";
            return Err(std::io::Error::other(why));
        }
        self.open.sync_data()?;
        if self.open.metadata()?.len() > LOG_BYTES {
            self.copy_back().map_err(std::io::Error::other)?;
        }
        Ok(())
    }
}

impl WalSync {
    /// Copies the log into the file, so that it begins anew.
    fn copy_back(&self) -> rusqlite::Result<()> {
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }
}

/// SQLite's numbers have a sign; ours never come near where it matters.
fn stored(number: u64) -> i64 {
    number.cast_signed()
}

/// A bound; what is beyond SQLite's numbers bounds nothing.
fn limited(bound: u64) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}

fn number(stored: i64) -> u64 {
    stored.cast_unsigned()
}

fn explained(path: &Path, what: &'static str, error: &rusqlite::Error) -> JournalError {
    let path = path.into();
    let is_of_other_kind = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    );
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            JournalError::Damaged { path, what: error.to_string() }
        }
        _ if is_of_other_kind => JournalError::Damaged { path, what: error.to_string() },
        _ => JournalError::Storage { path, what, why: error.to_string() },
    }
}
