//! What jobs are to run, as the controller keeps it until they end.
//!
//! A user's jobs mostly have the same environment, but for a variable or two, and the same limits. A hundred thousand of
//! them stand in line at times: so each of these texts is kept once, and each job refers to it. What that takes is counted
//! for each user, since everybody else needs the memory, too.

use std::collections::HashSet;
use std::hash::Hash;
use std::rc::Rc;
use tutti_wire::launch::LaunchSpec;

/// What each job takes at least, in bytes.
pub(super) const KEPT_PER_JOB_BYTES: usize = 3 << 9;

/// What each piece that is kept once takes beside itself: its place among them, and what the allocator adds.
const EACH_BYTES: usize = 64;

/// A reference to one is half as long as to a slice, and there are many.
type Text = Box<[u8]>;
type Environment = [Rc<Text>];
type Limits = [(u32, u64, u64)];

/// What a job is to run. It has to be given back to the [`Shelf`] that it is from.
pub(super) struct Kept {
    /// All but what is below.
    spec: LaunchSpec,
    environment: Rc<Environment>,
    limits: Rc<Limits>,
}

impl Kept {
    /// What `tutti ps` calls the job.
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// All of it, to be sent or stored.
    pub(super) fn whole(&self) -> LaunchSpec {
        let text = |text: &Rc<Text>| text.to_vec().into();
        LaunchSpec {
            environment: self.environment.iter().map(text).collect(),
            rlimits: self.limits.to_vec(),
            ..self.spec.clone()
        }
    }

    fn own_bytes(&self) -> usize {
        KEPT_PER_JOB_BYTES + self.spec.bytes()
    }
}

/// What the jobs of one user keep here.
#[derive(Default)]
pub(super) struct Shelf {
    texts: Pool<Text>,
    environments: Pool<Environment>,
    limits: Pool<Limits>,
    bytes: usize,
}

impl Shelf {
    /// How much that takes, in bytes, roughly.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn keep(&mut self, mut launch: LaunchSpec) -> Kept {
        let texts = std::mem::take(&mut launch.environment);
        let texts: Vec<Rc<Text>> =
            texts.into_iter().map(|text| self.keep_text(text.into_vec().into())).collect();
        let environment = match self.environments.find(&texts) {
            Some(known) => {
                // It holds them already.
                texts.into_iter().for_each(|text| self.let_text_go(text));
                known
            }
            None => {
                self.bytes += bytes_of(&texts);
                self.environments.add(texts.into())
            }
        };
        let limits = std::mem::take(&mut launch.rlimits);
        let limits = self.limits.find(&limits).unwrap_or_else(|| {
            self.bytes += bytes_of(&limits);
            self.limits.add(limits.into())
        });
        launch.argv.shrink_to_fit();
        let kept = Kept { spec: launch, environment, limits };
        self.bytes += kept.own_bytes();
        kept
    }

    pub(super) fn let_go(&mut self, kept: Kept) {
        self.bytes -= kept.own_bytes();
        let Kept { spec: _, environment, limits } = kept;
        if let Some(last) = self.environments.let_go(environment) {
            self.bytes -= bytes_of(&last);
            let texts = last.to_vec();
            drop(last);
            texts.into_iter().for_each(|text| self.let_text_go(text));
        }
        if let Some(last) = self.limits.let_go(limits) {
            self.bytes -= bytes_of(&last);
        }
    }

    fn keep_text(&mut self, text: Text) -> Rc<Text> {
        self.texts.find(&text).unwrap_or_else(|| {
            self.bytes += bytes_of(&text);
            self.texts.add(Rc::new(text))
        })
    }

    fn let_text_go(&mut self, text: Rc<Text>) {
        if let Some(last) = self.texts.let_go(text) {
            self.bytes -= bytes_of(&last);
        }
    }
}

fn bytes_of<T>(piece: &[T]) -> usize {
    EACH_BYTES + std::mem::size_of_val(piece)
}

/// Pieces that are kept once each, as long as somebody has them.
struct Pool<T: ?Sized>(HashSet<Rc<T>>);

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn find(&self, piece: &T) -> Option<Rc<T>> {
        self.0.get(piece).cloned()
    }

    fn add(&mut self, piece: Rc<T>) -> Rc<T> {
        self.0.insert(Rc::clone(&piece));
        piece
    }

    /// Takes it back; gives it if nobody else has it any more, and it is kept no longer.
    fn let_go(&mut self, piece: Rc<T>) -> Option<Rc<T>> {
        // That one, and the pool's own.
        let is_last = Rc::strong_count(&piece) == 2;
        (is_last && self.0.remove(&piece)).then_some(piece)
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
        }
    }

    #[test]
    fn what_is_kept_is_what_was_given() {
        let mut shelf = Shelf::default();
        let given = [launch(&["A=1", "B=2"], 1), launch(&["B=2", "A=1", "A=1"], 2), launch(&[], 1)];
        let kept = given.clone().map(|launch| shelf.keep(launch));
        assert_eq!(kept.map(|kept| kept.whole()), given);
    }

    #[test]
    fn jobs_that_have_the_same_share_it() {
        let long = format!("LONG={}", "x".repeat(100_000));
        let mut shelf = Shelf::default();
        let mut kept = vec![shelf.keep(launch(&[&long], 1))];
        let one = shelf.bytes();
        assert!(one > 100_000);
        kept.extend((0..10).map(|_| shelf.keep(launch(&[&long], 1))));
        kept.extend((0..10).map(|number| shelf.keep(launch(&[&long, &format!("N={number}")], 1))));
        assert!(shelf.bytes() < 2 * one, "{}", shelf.bytes());
    }

    #[test]
    fn nothing_stays_when_all_are_gone_in_whichever_order() {
        let environments: [&[&str]; 4] = [&["A=1"], &["A=1", "B=2"], &["A=1", "A=1"], &["A=1"]];
        for first in 0..environments.len() {
            let mut shelf = Shelf::default();
            let mut kept: Vec<Kept> =
                environments.iter().map(|it| shelf.keep(launch(it, 1))).collect();
            kept.rotate_left(first);
            for one in kept {
                assert!(shelf.bytes() > 0);
                shelf.let_go(one);
            }
            assert_eq!(shelf.bytes(), 0);
            assert!(shelf.texts.0.is_empty() && shelf.environments.0.is_empty());
            assert!(shelf.limits.0.is_empty());
        }
    }
}
