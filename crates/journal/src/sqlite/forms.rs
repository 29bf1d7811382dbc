//! The forms of the file: its tables, and how a file of an earlier form gets the latest one.

use super::{number, stored};
use crate::SCHEMA_VERSION;
use crate::chunks::{ChunkId, Segment, cut};
use crate::entry::{Job, encode};
use crate::rows::JobRow4;
use crate::seal::own_seal;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use tutti_types::JobId;
use tutti_wire::launch::LaunchSpec;

/// Each body has a checksum of its own ([`own_seal`]), with what it is found by; that of an entry
/// is of all before it, too, and stands beside the state after it once more. The columns that are
/// last were added last.
const SCHEMA: &str = "
    CREATE TABLE entry (number INTEGER PRIMARY KEY, seal INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE snapshot (number INTEGER PRIMARY KEY, seal INTEGER NOT NULL, body BLOB NOT NULL, own_seal INTEGER);
    CREATE TABLE job (
        job INTEGER PRIMARY KEY, launched INTEGER, body BLOB NOT NULL, own_seal INTEGER, launch_seal INTEGER
    );
    CREATE TABLE chunk (number INTEGER PRIMARY KEY, body BLOB NOT NULL, own_seal INTEGER);
    CREATE TABLE keeper (node INTEGER PRIMARY KEY, body BLOB NOT NULL, own_seal INTEGER);
    CREATE TABLE ended (
        job INTEGER PRIMARY KEY, ended_ms INTEGER NOT NULL, uid INTEGER NOT NULL, body BLOB NOT NULL, own_seal INTEGER
    );
    CREATE INDEX ended_by_time ON ended (ended_ms);
    CREATE INDEX ended_by_user ON ended (uid, ended_ms);
";

/// The form in which it was not said since when a keeper is there.
pub(crate) const SCHEMA_WITHOUT_SINCE: u32 = 2;

/// Brings that to the next one: always, which is a zero at the end.
const ADD_SINCE: &str = "UPDATE keeper SET body = CAST(body || x'00' AS BLOB)";

/// The form in which only entries had checksums.
pub(super) const SCHEMA_WITHOUT_SEALS: u32 = 3;

/// Makes room for them.
const ADD_SEALS: &str = "
    ALTER TABLE snapshot ADD COLUMN own_seal INTEGER;
    ALTER TABLE job ADD COLUMN own_seal INTEGER;
    ALTER TABLE job ADD COLUMN launch_seal INTEGER;
    ALTER TABLE keeper ADD COLUMN own_seal INTEGER;
    ALTER TABLE ended ADD COLUMN own_seal INTEGER;
";

/// The form in which each job had its whole launch.
pub(super) const SCHEMA_WITHOUT_CHUNKS: u32 = 4;

/// Makes room for chunks.
const ADD_CHUNKS: &str =
    "CREATE TABLE chunk (number INTEGER PRIMARY KEY, body BLOB NOT NULL, own_seal INTEGER)";

/// Makes room for what readers of events are shown, where there is none yet.
pub(super) const ADD_PUBLISHED: &str = "
    CREATE TABLE IF NOT EXISTS published (
        number INTEGER PRIMARY KEY, entry INTEGER NOT NULL, body BLOB NOT NULL, own_seal INTEGER NOT NULL
    )
";

/// Makes room for what the processors of nodes were used for, where there is none yet.
pub(super) const ADD_USED: &str = "
    CREATE TABLE IF NOT EXISTS used (until_ms INTEGER PRIMARY KEY, body BLOB NOT NULL, own_seal INTEGER NOT NULL)
";

/// What is sealed by itself: in which table, and by what it is found; first by the number of its
/// row.
const SEALED: [(&str, &[&str]); 4] = [
    ("snapshot", &["number", "seal"]),
    ("job", &["job"]),
    ("keeper", &["node"]),
    ("ended", &["job", "ended_ms", "uid"]),
];

/// Gives a file of this form the latest one; 0: it has no tables yet. An error in words: something
/// in it is not what was written, and nothing is changed.
pub(super) fn bring_on(
    connection: &mut Connection,
    from: u32,
) -> rusqlite::Result<Result<(), String>> {
    let all = connection.transaction()?;
    match from {
        0 => all.execute_batch(SCHEMA)?,
        SCHEMA_WITHOUT_SINCE => all.execute_batch(ADD_SINCE)?,
        _ => {}
    }
    if (1..SCHEMA_WITHOUT_CHUNKS).contains(&from) {
        all.execute_batch(ADD_SEALS)?;
        SEALED.iter().try_for_each(|(table, place)| seal_all(&all, table, place))?;
        seal_launches(&all)?;
    }
    if (1..SCHEMA_VERSION).contains(&from) {
        all.execute_batch(ADD_CHUNKS)?;
        if let Some(JobId(job)) = share_launches(&all)? {
            return Ok(Err(format!("what is kept of job {job} is not what was written")));
        }
    }
    all.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    all.commit()?;
    Ok(Ok(()))
}

/// Gives all rows of a table the checksums that they lack.
fn seal_all(all: &Connection, table: &str, place: &[&str]) -> rusqlite::Result<()> {
    let numbers = all
        .prepare(&format!("SELECT rowid FROM {table}"))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let select = format!("SELECT body, {} FROM {table} WHERE rowid = ?", place.join(", "));
    let mut select = all.prepare(&select)?;
    let mut put = all.prepare(&format!("UPDATE {table} SET own_seal = ? WHERE rowid = ?"))?;
    for row_number in numbers {
        let seal = select.query_row([row_number], |row| {
            let body: Vec<u8> = row.get(0)?;
            let parts = (1..=place.len()).map(|column| row.get(column).map(number));
            Ok(own_seal(&parts.collect::<rusqlite::Result<Vec<u64>>>()?, &body))
        })?;
        put.execute(params![seal, row_number])?;
    }
    Ok(())
}

/// The same for when jobs were launched.
fn seal_launches(all: &Connection) -> rusqlite::Result<()> {
    let launches = all
        .prepare("SELECT job, launched FROM job WHERE launched IS NOT NULL")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let mut put = all.prepare("UPDATE job SET launch_seal = ? WHERE job = ?")?;
    for (job, launched) in launches {
        put.execute(params![own_seal(&[number(job), number(launched)], &[]), job])?;
    }
    Ok(())
}

/// Has launches of form 4 as chunks, one row at a time; gives the first job that is not what was
/// written.
fn share_launches(all: &Connection) -> rusqlite::Result<Option<JobId>> {
    let jobs = all
        .prepare("SELECT job FROM job ORDER BY job")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut select = all.prepare("SELECT body, own_seal FROM job WHERE job = ?")?;
    let mut put = all.prepare("UPDATE job SET body = ?, own_seal = ? WHERE job = ?")?;
    let mut put_chunk = all.prepare("INSERT INTO chunk VALUES (?, ?, ?)")?;
    let mut known: HashMap<(u32, Vec<u8>), ChunkId> = HashMap::new();
    for row in jobs {
        let job = number(row);
        let read = |row: &rusqlite::Row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, u32>(1)?));
        let former = select.query_row([row], read).ok();
        let former = former.filter(|(body, seal)| *seal == own_seal(&[job], body));
        let former = former.and_then(|(body, _)| postcard::from_bytes::<JobRow4>(&body).ok());
        let Some(former) = former else { return Ok(Some(JobId(job))) };
        let launch: LaunchSpec = former.launch.into();
        let mut segments = Vec::new();
        for piece in cut(&launch) {
            if !piece.is_shared {
                segments.push(Segment::Own(piece.bytes.into()));
                continue;
            }
            let next = ChunkId(known.len() as u64 + 1);
            let bytes = piece.bytes.clone();
            let chunk = *known.entry((former.credentials.uid, piece.bytes)).or_insert(next);
            if chunk == next {
                let seal = own_seal(&[chunk.0], &bytes);
                put_chunk.execute(params![stored(chunk.0), bytes, seal])?;
            }
            segments.push(Segment::Shared(chunk));
        }
        let body = encode(&Job {
            job: former.job,
            credentials: former.credentials,
            key: former.key,
            user: former.user,
            name: launch.name,
            launch: segments,
            accepted: former.accepted,
            accepted_ms: former.accepted_ms,
            notify: None,
        });
        put.execute(params![body, own_seal(&[job], &body), row])?;
    }
    Ok(None)
}
