//! Whether the write-ahead log of SQLite is whole, found out before SQLite opens it: where a frame
//! of it is not what was written, SQLite takes that for the end, and drops without a word all that
//! was committed after it.
//!
//! A log is a header of 32 bytes, then frames: 24 bytes and a page. A frame has the salts of the
//! header, and a checksum of itself and of all before it since the header; the last one of each
//! transaction says so (it *commits*). When all is copied into the file the log begins anew with
//! other salts, and what is behind its last frame is of the time before.
//!
//! What the end of a process can leave, however sudden: whole transactions, then some frames of one
//! that was not done. A transaction that could not be written, since the disk was full, leaves such
//! frames too, also behind a shorter one that was written over it, but as good as never its last
//! frame. And SQLite's other file, the index of the log (`-shm`), says how far it was committed.
//!
//! What a loss of power can leave: all of that, and of what was not brought to disk yet any part,
//! such as a later transaction without the one before. Not so the header, which is on disk before
//! anything is written behind it (and is in one sector). The index counts for nothing then: it may
//! have come to disk before the log.
//!
//! So, in this order:
//! - A header that is not whole, with anything behind it, is damage.
//! - If the machine was not started since, and the index is whole: damage, if the log does not go
//!   as far as the index says, or not with the same checksum. (A reader of the log since has made
//!   the index anew, from what there is.)
//! - The first frame that does not fit is looked at, and those behind it. If a frame that commits
//!   is whole behind it, though not what it goes on from, then a transaction was lost that had been
//!   written. Where the machine was not started since, that is damage. Otherwise it may be either,
//!   and is reported: what was not on disk was lost.
//! - A log without a file to go with is damage: SQLite would remove it.

use crate::JournalError;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// How a log begins; the last bit says in which order the bytes of a number are for checksums.
const MAGIC: u32 = 0x377f_0682;

/// The index of a log: its version, and how long its header is, of which it has two.
const INDEX_VERSION: u32 = 3_007_000;
const INDEX_HEADER_BYTES: usize = 48;

/// Whether what was written can have been lost though it was no damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// The machine is known not to have been started since.
    Stayed,
    /// It may have been.
    MayHaveGone,
}

type Checksum = [u32; 2];

/// The file beside a journal with this ending.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Looks at the log of the journal at this path, before anything in this process has that open: to
/// close a file takes away SQLite's locks on it. Says what is to be reported.
///
/// # Errors
/// If it can't be read, or is damaged.
pub(crate) fn check(path: &Path, power: Power) -> Result<Option<String>, JournalError> {
    let log = beside(path, "-wal");
    let seen = look(path, &log, power).map_err(|error| JournalError::Storage {
        path: log.clone(),
        what: "read",
        why: error.to_string(),
    })?;
    match seen {
        Seen::Good => Ok(None),
        Seen::Damaged(what) => Err(JournalError::Damaged { path: path.into(), what }),
        Seen::Torn(frame) => Ok(Some(format!(
            "frame {frame} of {} is not what was written, and others follow it: so a loss of power may leave it, or \
             the file is damaged; what happened last is forgotten",
            log.display()
        ))),
    }
}

/// What a reader does not see of the log, since it is not whole. A controller may write it
/// meanwhile, so that half a frame is read.
pub(crate) fn remark(path: &Path) -> Option<String> {
    let log = beside(path, "-wal");
    let seen = look(path, &log, Power::MayHaveGone).ok()?;
    if seen == Seen::Good || look(path, &log, Power::MayHaveGone).ok()? != seen {
        return None;
    }
    match seen {
        Seen::Good => None,
        Seen::Damaged(what) => Some(what),
        Seen::Torn(frame) => Some(format!(
            "frame {frame} of its log (-wal) is not what was written, and others follow it"
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Good,
    /// From this frame on, though others follow.
    Torn(u64),
    Damaged(String),
}

fn look(path: &Path, log: &Path, power: Power) -> std::io::Result<Seen> {
    let is_empty = is_empty(path)?;
    let index = match power {
        Power::Stayed if !is_empty => Index::read(&beside(path, "-shm")),
        _ => None,
    };
    let expected = index.map_or(0, |index| index.frames);
    let mut found = Found::default();
    let mut salts = [0; 8];
    match File::open(log) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) => {
            let mut reader = BufReader::with_capacity(1 << 16, file);
            let mut header = [0; HEADER_BYTES];
            let read = read_all(&mut reader, &mut header)?;
            if let Some(header) = Header::read(&header).filter(|_| read == header.len()) {
                found = walk(&header, &mut reader, expected)?;
                salts = header.salts;
            } else if has_something(&mut reader)? {
                return Ok(Seen::Damaged(
                    "the header of its log (-wal) is not what was written".into(),
                ));
            }
        }
    }
    if is_empty && found.committed > 0 {
        let what = "it is empty or gone, and its log (-wal) is there, which is of no use alone";
        return Ok(Seen::Damaged(what.into()));
    }
    if let Some(index) = index {
        // When the log begins anew, its header is written after the index.
        let is_whole = index.frames == 0
            || (salts == index.salts && found.at_expected == Some(index.checksum));
        if !is_whole {
            let (good, written) = (found.committed, index.frames);
            let what =
                format!("its log (-wal) is good up to frame {good}, and {written} were written");
            return Ok(Seen::Damaged(what));
        }
    }
    Ok(match (found.bad_before_commit, power) {
        (None, _) => Seen::Good,
        (Some(frame), Power::MayHaveGone) => Seen::Torn(frame),
        (Some(frame), Power::Stayed) => Seen::Damaged(format!(
            "frame {frame} of its log (-wal) is not what was written, and others follow it"
        )),
    })
}

/// Whether there is no database at this path.
fn is_empty(path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.len() == 0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy)]
struct Header {
    salts: [u8; 8],
    checksum: Checksum,
    page_bytes: usize,
    has_big_ends: bool,
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let magic = big(bytes, 0);
        let has_big_ends = magic & 1 == 1;
        let page_bytes = big(bytes, 8) as usize;
        let is_size = page_bytes.is_power_of_two() && (512..=65_536).contains(&page_bytes);
        let checksum = sum([0; 2], &bytes[..24], has_big_ends);
        let is_whole = checksum == [big(bytes, 24), big(bytes, 28)];
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[16..24]);
        (magic & !1 == MAGIC && is_size && is_whole).then_some(Self {
            salts,
            checksum,
            page_bytes,
            has_big_ends,
        })
    }
}

/// What a frame says of itself, and what the checksum would be after it.
struct Frame<'a> {
    bytes: &'a [u8],
    header: &'a Header,
}

impl Frame<'_> {
    fn stored(&self) -> Checksum {
        [big(self.bytes, 16), big(self.bytes, 20)]
    }

    fn after(&self, before: Checksum) -> Checksum {
        let order = self.header.has_big_ends;
        sum(sum(before, &self.bytes[..8], order), &self.bytes[FRAME_HEADER_BYTES..], order)
    }

    /// Whether it is what was written, if that is what it goes on from.
    fn follows(&self, before: Checksum) -> bool {
        let has_salts = self.bytes[8..16] == self.header.salts;
        has_salts && big(self.bytes, 0) != 0 && self.after(before) == self.stored()
    }

    fn commits(&self) -> bool {
        big(self.bytes, 4) != 0
    }
}

#[derive(Default)]
struct Found {
    /// How many frames are good up to the last one that commits.
    committed: u64,
    /// The checksum after the frame up to which it is expected to be, if it is.
    at_expected: Option<Checksum>,
    /// The first one that is not good, if one that commits is whole behind it.
    bad_before_commit: Option<u64>,
}

fn walk(header: &Header, from: &mut impl Read, expected: u64) -> std::io::Result<Found> {
    let mut found = Found::default();
    let mut bytes = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let mut before = header.checksum;
    let mut bad: Option<u64> = None;
    // What the frame after the first bad one goes on from if only the checksum there is bad.
    let mut otherwise = None;
    let mut number = 0;
    while read_all(from, &mut bytes)? == bytes.len() {
        number += 1;
        let frame = Frame { bytes: &bytes, header };
        match bad {
            None if frame.follows(before) => {
                if frame.commits() {
                    found.committed = number;
                }
                if number == expected {
                    found.at_expected = Some(frame.stored());
                }
            }
            None => {
                bad = Some(number);
                otherwise = Some(frame.after(before));
            }
            Some(_) => {
                let fits = frame.follows(before)
                    || otherwise.take().is_some_and(|before| frame.follows(before));
                if fits && frame.commits() {
                    found.bad_before_commit = bad;
                    break;
                }
            }
        }
        before = frame.stored();
    }
    Ok(found)
}

/// What the index of a log says.
#[derive(Clone, Copy)]
struct Index {
    frames: u64,
    checksum: Checksum,
    salts: [u8; 8],
}

impl Index {
    /// Nothing if there is none, or it is not whole: its writer may have ended meanwhile.
    fn read(path: &Path) -> Option<Self> {
        let mut both = [0; 2 * INDEX_HEADER_BYTES];
        File::open(path).and_then(|mut file| file.read_exact(&mut both)).ok()?;
        let (one, other) = both.split_at(INDEX_HEADER_BYTES);
        // It is read where it was written: numbers are as the machine has them.
        let checksum = sum([0; 2], &one[..40], cfg!(target_endian = "big"));
        let is_whole = one == other
            && own(one, 0) == INDEX_VERSION
            && checksum == [own(one, 40), own(one, 44)];
        let mut salts = [0; 8];
        salts.copy_from_slice(&one[32..40]);
        let checksum = [own(one, 24), own(one, 28)];
        is_whole.then_some(Self { frames: own(one, 16).into(), checksum, salts })
    }
}

/// SQLite's checksum, going on from another.
fn sum([mut one, mut other]: Checksum, bytes: &[u8], has_big_ends: bool) -> Checksum {
    let word = if has_big_ends { big } else { little };
    for pair in bytes.chunks_exact(8) {
        one = one.wrapping_add(word(pair, 0)).wrapping_add(other);
        other = other.wrapping_add(word(pair, 4)).wrapping_add(one);
    }
    [one, other]
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    word
}

fn big(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(word(bytes, at))
}

fn little(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(word(bytes, at))
}

fn own(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(word(bytes, at))
}

/// As many bytes as there are.
fn read_all(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match from.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Whether anything but zeros follows.
fn has_something(from: &mut impl Read) -> std::io::Result<bool> {
    let mut bytes = [0; 4096];
    loop {
        match read_all(from, &mut bytes)? {
            0 => return Ok(false),
            count if bytes[..count].iter().any(|byte| *byte != 0) => return Ok(true),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;
    use std::fs;
    use std::io::Write;

    const TRANSACTIONS: u8 = 9;

    /// A database, its log and the index of that, as a process leaves them that is killed after its
    /// ninth transaction.
    struct Left {
        database: Vec<u8>,
        log: Vec<u8>,
        index: Vec<u8>,
        directory: tempfile::TempDir,
    }

    /// Without making it empty first, which some file systems take time for.
    fn put(path: &Path, bytes: &[u8]) {
        let mut open = fs::OpenOptions::new();
        let mut file = open.create(true).truncate(false).write(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }

    impl Left {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("written");
            let connection = Connection::open(&path).unwrap();
            connection.pragma_update(None, "page_size", 512).unwrap();
            connection.pragma_update(None, "journal_mode", "wal").unwrap();
            connection.execute_batch("CREATE TABLE one (number INTEGER, body BLOB)").unwrap();
            // So that there are frames of an earlier time behind those of now.
            connection.execute("INSERT INTO one VALUES (0, zeroblob(16000))", []).unwrap();
            connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
            for number in 1..=TRANSACTIONS {
                let body = vec![number; 40 + 120 * usize::from(number)];
                let row = (number, body);
                connection.execute("INSERT INTO one VALUES (?, ?)", row).unwrap();
            }
            let read = |ending| fs::read(beside(&path, ending)).unwrap();
            let (database, log, index) = (read(""), read("-wal"), read("-shm"));
            let left = Self { database, log, index, directory };
            left.put_others();
            left
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("left")
        }

        fn put(&self, log: &[u8]) -> PathBuf {
            let path = self.path();
            put(&beside(&path, "-wal"), log);
            path
        }

        fn put_others(&self) {
            put(&self.path(), &self.database);
            put(&beside(&self.path(), "-shm"), &self.index);
        }

        fn looks(&self, log: &[u8], power: Power) -> Seen {
            let path = self.put(log);
            look(&path, &beside(&path, "-wal"), power).unwrap()
        }

        /// Up to which transaction SQLite sees it, and all before.
        fn is_seen_up_to(&self) -> u8 {
            let path = self.path();
            let _ = fs::remove_file(beside(&path, "-shm"));
            let connection = Connection::open(path).unwrap();
            connection.pragma_update(None, "synchronous", "off").unwrap();
            let mut statement = connection.prepare("SELECT number, body FROM one").unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let rows: Vec<(u8, Vec<u8>)> = rows.map(Result::unwrap).collect();
            for (place, (number, body)) in (0..).zip(&rows) {
                assert_eq!(*number, place);
                assert!(body.iter().all(|byte| byte == number));
            }
            let seen = u8::try_from(rows.len()).unwrap() - 1;
            drop(statement);
            drop(connection);
            self.put_others();
            seen
        }

        /// Where the frames of now begin and end, and which of them commit.
        fn frames(&self) -> Vec<(usize, bool)> {
            let index = Index::read(&beside(&self.put(&self.log), "-shm")).unwrap();
            let bytes = FRAME_HEADER_BYTES + 512;
            let frames =
                (0..usize::try_from(index.frames).unwrap()).map(|n| HEADER_BYTES + n * bytes);
            frames.map(|at| (at, big(&self.log, at + 4) != 0)).collect()
        }
    }

    #[test]
    fn a_log_that_is_whole_is_good() {
        let left = Left::new();
        for power in [Power::Stayed, Power::MayHaveGone] {
            assert_eq!(left.looks(&left.log, power), Seen::Good);
            assert_eq!(left.is_seen_up_to(), TRANSACTIONS);
        }
        assert!(left.log.len() > HEADER_BYTES + left.frames().len() * 536, "something behind it");
    }

    #[test]
    fn each_byte_that_is_another_is_noticed_or_does_no_harm() {
        let left = Left::new();
        let frames = left.frames();
        let end = frames.last().unwrap().0 + 536;
        let commits: Vec<usize> = frames.iter().filter(|(_, it)| *it).map(|(at, _)| *at).collect();
        let last_begins = commits[commits.len() - 2] + 536;
        for at in (0..end).chain((end..left.log.len()).step_by(64)) {
            let mut log = left.log.clone();
            log[at] ^= 1 << (at % 8);
            let stayed = left.looks(&log, Power::Stayed);
            assert_eq!(stayed != Seen::Good, at < end, "byte {at}");
            let gone = left.looks(&log, Power::MayHaveGone);
            let is_last = (last_begins..end).contains(&at);
            match gone {
                Seen::Damaged(_) => assert!(at < HEADER_BYTES, "byte {at}"),
                Seen::Torn(frame) => {
                    let frame = usize::try_from(frame).unwrap() - 1;
                    assert!((frames[frame].0..frames[frame].0 + 536).contains(&at), "byte {at}");
                }
                // As after a loss of power: one that was not all on disk never was.
                Seen::Good if is_last => {
                    if at % 16 == 0 {
                        assert_eq!(left.is_seen_up_to(), TRANSACTIONS - 1, "byte {at}");
                    }
                }
                Seen::Good => {
                    assert!(at >= end, "byte {at}");
                    assert_eq!(left.is_seen_up_to(), TRANSACTIONS);
                }
            }
        }
    }

    #[test]
    fn whatever_its_length_what_is_seen_is_a_beginning() {
        let left = Left::new();
        let frames = left.frames();
        for length in 0..left.log.len() {
            let log = &left.log[..length];
            let is_whole = length >= frames.last().unwrap().0 + 536;
            assert_eq!(left.looks(log, Power::Stayed) == Seen::Good, is_whole, "{length} bytes");
            assert_eq!(left.looks(log, Power::MayHaveGone), Seen::Good, "{length} bytes");
            if length % 32 == 0 {
                let commits = frames.iter().filter(|(at, it)| *it && at + 536 <= length).count();
                assert_eq!(usize::from(left.is_seen_up_to()), commits, "{length} bytes");
            }
        }
    }

    #[test]
    fn a_transaction_of_which_an_earlier_frame_is_not_there_yet_was_never_written() {
        let left = Left::new();
        let frames = left.frames();
        let last = frames.len() - 1;
        assert!(!frames[last - 1].1 && !frames[last - 2].1, "a transaction of several frames");
        // That it was is seen by its last one, if that goes on from one that is there.
        for (gone, seen) in [(last - 2, Seen::Torn(last as u64 - 1)), (last - 1, Seen::Good)] {
            let mut log = left.log.clone();
            log[frames[gone].0..frames[gone + 1].0].fill(0);
            assert_eq!(left.looks(&log, Power::MayHaveGone), seen);
            assert_eq!(left.is_seen_up_to(), TRANSACTIONS - 1);
            log.truncate(frames[last].0);
            assert_eq!(left.looks(&log, Power::MayHaveGone), Seen::Good);
        }
    }

    #[test]
    fn what_a_write_that_failed_leaves_behind_a_shorter_one_is_no_damage() {
        let left = Left::new();
        let frames = left.frames();
        let mut log = left.log.clone();
        // Frames without the last one of their transaction, which go on from others.
        let salts = left.log[16..24].to_vec();
        for at in [0, 536] {
            let at = frames.last().unwrap().0 + 536 + at;
            log[at..at + 8].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 0]);
            log[at + 8..at + 16].copy_from_slice(&salts);
        }
        fs::remove_file(beside(&left.put(&log), "-shm")).unwrap();
        let path = left.path();
        for power in [Power::Stayed, Power::MayHaveGone] {
            assert!(look(&path, &beside(&path, "-wal"), power).unwrap() == Seen::Good);
        }
    }

    #[test]
    fn without_an_index_a_whole_transaction_behind_a_bad_frame_is_damage_if_the_power_stayed() {
        let left = Left::new();
        let mut log = left.log.clone();
        log[left.frames()[2].0 + 100] ^= 4;
        let path = left.put(&log);
        fs::remove_file(beside(&path, "-shm")).unwrap();
        let Err(JournalError::Damaged { what, .. }) = check(&path, Power::Stayed) else {
            panic!("it is good");
        };
        assert!(what.contains("frame 3 "), "{what}");
        let remark = check(&path, Power::MayHaveGone).unwrap().unwrap();
        assert!(remark.contains("frame 3 "), "{remark}");
        assert_eq!(fs::read(beside(&path, "-wal")).unwrap(), log);
    }

    #[test]
    fn a_log_without_its_file_is_damage() {
        let left = Left::new();
        let path = left.put(&left.log);
        fs::write(&path, "").unwrap();
        for _ in 0..2 {
            for power in [Power::Stayed, Power::MayHaveGone] {
                assert!(check(&path, power).is_err());
            }
            let _ = fs::remove_file(&path);
        }
        fs::remove_file(beside(&path, "-wal")).unwrap();
        assert_eq!(check(&path, Power::Stayed).unwrap(), None, "nothing is there");
    }
}
