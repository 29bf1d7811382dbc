//! What jobs are to run, as the controller keeps it until they end.
//!
//! A user's jobs mostly have the same environment, but for a variable or two, the same limits, and
//! often the same script. A hundred thousand of them are queued at times. So each launch is cut
//! into chunks ([`tutti_journal::cut`]), equal chunks of a user are kept once, here and in the
//! journal, and each job refers to its chunks. What that takes is counted for each user, since all
//! others need the memory and the disk, too.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use tutti_journal::{ChunkId, Journal, Piece, Segment, cut, join};
use tutti_wire::launch::LaunchSpec;

/// What each job takes at least, in bytes.
pub(super) const KEPT_PER_JOB_BYTES: usize = 3 << 9;

/// What each part takes beside itself, in bytes: its place among the others, here and in the
/// journal, and what the allocator adds.
const EACH_BYTES: usize = 128;

/// A part of a launch: a chunk that has a number, or what is one job's own.
struct Part {
    chunk: Option<ChunkId>,
    bytes: Box<[u8]>,
}

/// A chunk in a [`Shelf`], found by its bytes.
struct Chunk(Rc<Part>);

impl Borrow<[u8]> for Chunk {
    fn borrow(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Hash for Chunk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.bytes.hash(state);
    }
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl Eq for Chunk {}

/// A launch that is not kept yet.
pub(super) struct Request {
    name: String,
    pieces: Vec<Piece>,
    beside: usize,
}

impl Request {
    /// One with which so many bytes are kept beside it.
    pub(super) fn new(launch: LaunchSpec, beside: usize) -> Self {
        Self { pieces: cut(&launch), name: launch.name, beside }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// What a job is to run. It has to be given back to the [`Shelf`] that it is from.
pub(super) struct Kept {
    name: Box<str>,
    parts: Box<[Rc<Part>]>,
    /// What is kept beside it and counts with it, in bytes.
    beside: usize,
}

impl Kept {
    /// What `tutti ps` calls the job.
    pub(super) const fn name(&self) -> &str {
        &self.name
    }

    /// All of it, to be sent. There is always something: what is not a launch is neither accepted
    /// nor taken over.
    pub(super) fn whole(&self) -> Option<LaunchSpec> {
        join(self.parts.iter().map(|part| &part.bytes[..])).ok()
    }

    /// All of it, to be stored.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let segment = |part: &Rc<Part>| match part.chunk {
            Some(chunk) => Segment::Shared(chunk),
            None => Segment::Own(part.bytes.to_vec().into()),
        };
        self.parts.iter().map(segment).collect()
    }

    fn own_bytes(&self) -> usize {
        let own = self.parts.iter().filter(|part| part.chunk.is_none());
        own.map(|part| bytes_of(&part.bytes)).sum::<usize>()
            + per_job_bytes(&self.name, self.parts.len())
            + self.beside
    }
}

/// What a job takes beside the bytes of its parts.
const fn per_job_bytes(name: &str, parts: usize) -> usize {
    KEPT_PER_JOB_BYTES + name.len() + parts * size_of::<Rc<Part>>()
}

const fn bytes_of(part: &[u8]) -> usize {
    EACH_BYTES + part.len()
}

/// The chunks that an earlier controller has stored, while they are taken over. Each has jobs of
/// one user alone.
#[derive(Default)]
pub(super) struct Former {
    stored: BTreeMap<ChunkId, Vec<u8>>,
    taken: BTreeMap<ChunkId, Rc<Part>>,
}

impl Former {
    pub(super) const fn new(stored: BTreeMap<ChunkId, Vec<u8>>) -> Self {
        Self { stored, taken: BTreeMap::new() }
    }

    /// The chunks that were not taken over.
    pub(super) fn rest(self) -> impl Iterator<Item = ChunkId> {
        self.stored.into_keys()
    }
}

/// What the jobs of one user keep here.
#[derive(Default)]
pub(super) struct Shelf {
    chunks: HashSet<Chunk>,
    bytes: usize,
}

impl Shelf {
    /// How much that takes, in bytes, roughly.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How much more it would take with this, at most.
    pub(super) fn more_with(&self, request: &Request) -> usize {
        let is_new = |piece: &&Piece| !(piece.is_shared && self.chunks.contains(&piece.bytes[..]));
        let new = request.pieces.iter().filter(is_new).map(|piece| bytes_of(&piece.bytes));
        new.sum::<usize>() + per_job_bytes(&request.name, request.pieces.len()) + request.beside
    }

    /// Keeps a launch; what is new of it is noted in the journal.
    pub(super) fn keep(&mut self, request: Request, journal: &mut Journal) -> Kept {
        self.keep_as(request, |bytes| journal.note_chunk(bytes))
    }

    fn keep_as(&mut self, request: Request, mut number: impl FnMut(&[u8]) -> ChunkId) -> Kept {
        let part = |piece: Piece| {
            let Piece { bytes, is_shared } = piece;
            if !is_shared {
                return Rc::new(Part { chunk: None, bytes: bytes.into() });
            }
            if let Some(known) = self.chunks.get(&bytes[..]) {
                return Rc::clone(&known.0);
            }
            let chunk = Some(number(&bytes));
            self.add(Part { chunk, bytes: bytes.into() })
        };
        let parts = request.pieces.into_iter().map(part).collect();
        self.take_in(Kept { name: request.name.into(), parts, beside: request.beside })
    }

    /// Takes over a job of an earlier controller.
    pub(super) fn take_over(
        &mut self,
        (name, beside): (String, usize),
        segments: Vec<Segment>,
        former: &mut Former,
    ) -> Kept {
        let part = |segment: Segment| match segment {
            Segment::Own(bytes) => {
                Some(Rc::new(Part { chunk: None, bytes: bytes.into_vec().into() }))
            }
            Segment::Shared(chunk) => {
                if let Some(known) = former.taken.get(&chunk) {
                    return Some(Rc::clone(known));
                }
                let bytes = former.stored.remove(&chunk)?.into();
                let part = self.add(Part { chunk: Some(chunk), bytes });
                former.taken.insert(chunk, Rc::clone(&part));
                Some(part)
            }
        };
        let parts = segments.into_iter().filter_map(part).collect();
        self.take_in(Kept { name: name.into(), parts, beside })
    }

    /// Keeps once more what is kept already.
    pub(super) fn share(&mut self, kept: &Kept) -> Kept {
        let (name, parts) = (kept.name.clone(), kept.parts.clone());
        self.take_in(Kept { name, parts, beside: kept.beside })
    }

    fn add(&mut self, part: Part) -> Rc<Part> {
        self.bytes += bytes_of(&part.bytes);
        let part = Rc::new(part);
        self.chunks.insert(Chunk(Rc::clone(&part)));
        part
    }

    fn take_in(&mut self, kept: Kept) -> Kept {
        self.bytes += kept.own_bytes();
        kept
    }

    /// Keeps it no longer, nor does the journal.
    pub(super) fn let_go(&mut self, kept: Kept, journal: &mut Journal) {
        self.let_go_as(kept, |chunk| journal.drop_chunk(chunk));
    }

    fn let_go_as(&mut self, kept: Kept, mut drop_chunk: impl FnMut(ChunkId)) {
        self.bytes -= kept.own_bytes();
        for part in kept.parts {
            // This one, and the shelf's own.
            let is_last = Rc::strong_count(&part) == 2;
            if let Some(chunk) = part.chunk.filter(|_| is_last) {
                self.bytes -= bytes_of(&part.bytes);
                self.chunks.remove(&part.bytes[..]);
                drop_chunk(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_wire::launch::{OpenMode, Stdio};

    fn launch(environment: &[&str], limit: u64) -> LaunchSpec {
        let bytes = |text: &str| text.as_bytes().to_vec().into();
        LaunchSpec {
            name: "job".into(),
            argv: vec![bytes("true")],
            script: None,
            environment: environment.iter().map(|text| bytes(text)).collect(),
            directory: bytes("/"),
            umask: 0o022,
            rlimits: vec![(7, limit, limit)],
            stdio: Stdio::Files {
                input: None,
                output: bytes("out"),
                error: None,
                mode: OpenMode::Append,
            },
            processes_max: None,
            adopt: Vec::new(),
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        }
    }

    fn long(letter: &str) -> String {
        (0..5_000).map(|number| format!("{letter}{number}=")).collect()
    }

    /// A shelf, and the chunks that the journal would have.
    #[derive(Default)]
    struct Kit {
        shelf: Shelf,
        stored: BTreeMap<ChunkId, Vec<u8>>,
        next: u64,
    }

    impl Kit {
        fn keep(&mut self, environment: &[&str], limit: u64) -> Kept {
            let request = Request::new(launch(environment, limit), 100);
            let (before, more) = (self.shelf.bytes(), self.shelf.more_with(&request));
            let kept = self.shelf.keep_as(request, |bytes| {
                self.next += 1;
                self.stored.insert(ChunkId(self.next), bytes.to_vec());
                ChunkId(self.next)
            });
            assert!(self.shelf.bytes() - before <= more, "as it was foretold");
            kept
        }

        fn let_go(&mut self, kept: Kept) {
            self.shelf.let_go_as(kept, |chunk| drop(self.stored.remove(&chunk)));
        }
    }

    #[test]
    fn what_is_kept_is_what_was_given() {
        let mut kit = Kit::default();
        let (one, other) = (long("A"), long("B"));
        let given: [(&[&str], u64); 4] =
            [(&[&one, "B=2"], 1), (&["B=2", &one, &other], 2), (&[], 1), (&[&one, "B=2"], 1)];
        for (environment, limit) in given {
            let kept = kit.keep(environment, limit);
            assert_eq!(kept.whole().unwrap(), launch(environment, limit));
        }
    }

    #[test]
    fn jobs_that_have_the_same_share_it_in_memory_and_in_the_journal() {
        let text = long("A");
        let mut kit = Kit::default();
        let mut kept = vec![kit.keep(&[&text], 1)];
        let one = kit.shelf.bytes();
        assert!(one > text.len());
        kept.extend((0..10).map(|_| kit.keep(&[&text], 1)));
        kept.extend((0..10).map(|number| kit.keep(&[&text, &format!("N={number}")], 1)));
        let stored: usize = kit.stored.values().map(Vec::len).sum();
        assert!(kit.shelf.bytes() < 3 * one && stored < 2 * one, "{} {stored}", kit.shelf.bytes());
        let rows: usize = kept.iter().map(|kept| kept.segments().len()).sum();
        assert!(rows < 21 * 100, "{rows}");
    }

    #[test]
    fn the_next_controller_keeps_the_same_and_counts_the_same() {
        let (one, other) = (long("A"), long("B"));
        let mut kit = Kit::default();
        let environments: [&[&str]; 4] = [&[&one], &[&one, &other], &["A=1"], &[&one]];
        let kept = environments.map(|environment| kit.keep(environment, 1));
        let mut next = Kit { stored: kit.stored.clone(), ..Kit::default() };
        let mut former = Former::new(kit.stored.clone());
        let all = kept.map(|kept| {
            let segments = kept.segments();
            next.shelf.take_over(("job".into(), 100), segments, &mut former)
        });
        drop(former);
        assert_eq!(next.shelf.bytes(), kit.shelf.bytes());
        for (kept, environment) in all.into_iter().zip(environments) {
            assert_eq!(kept.whole().unwrap(), launch(environment, 1));
            next.let_go(kept);
        }
        assert!(next.stored.is_empty() && next.shelf.chunks.is_empty());
        assert_eq!(next.shelf.bytes(), 0);
    }

    #[test]
    fn nothing_stays_when_all_are_gone_in_whichever_order() {
        let (one, other) = (long("A"), long("B"));
        let environments: [&[&str]; 4] = [&[&one], &[&one, &other], &[&one, &one], &[&one]];
        for first in 0..environments.len() {
            let mut kit = Kit::default();
            let mut kept: Vec<Kept> = environments.iter().map(|it| kit.keep(it, 1)).collect();
            kept.rotate_left(first);
            for one in kept {
                assert!(kit.shelf.bytes() > 0 && !kit.stored.is_empty());
                kit.let_go(one);
            }
            assert_eq!(kit.shelf.bytes(), 0);
            assert!(kit.shelf.chunks.is_empty() && kit.stored.is_empty());
        }
    }
}
