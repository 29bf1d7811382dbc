//! Output files of jobs, for readers that have another file system.
//!
//! The controller names the path and the owner of the job, so only files are read that a job of
//! this user was to write. They are read with the owner's rights. How long that takes is in the
//! hands of the file system, so threads of their own do it, a bounded number for each user.

use super::beside::Teller;
use super::driver::Agent;
use super::upgrade::path_of;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tutti_node::output_files::{Owner, begin_of_last, open};
use tutti_node::workers::{Bounds, Workers};
use tutti_wire::limits::OUTPUT_PIECE_BYTES;
use tutti_wire::output::{OutputFrom, OutputPiece};
use tutti_wire::tree::{Answer, FromAgent};

/// How many threads read.
const BOUNDS: Bounds = Bounds { of_user: 2, all: 8 };

/// Pieces of a user's files that are asked for at once.
const PIECES_PER_USER_MAX: usize = 64;

/// The threads that read, and for which users.
pub(super) struct OutputReaders {
    workers: Workers,
    /// Pieces under way, by user.
    under_way: BTreeMap<u32, usize>,
}

impl Default for OutputReaders {
    fn default() -> Self {
        Self { workers: Workers::new(BOUNDS), under_way: BTreeMap::new() }
    }
}

impl OutputReaders {
    /// Whether one more piece of this user's files may be read.
    fn begin(&mut self, uid: u32) -> bool {
        let count = self.under_way.entry(uid).or_default();
        let has_room = *count < PIECES_PER_USER_MAX;
        *count += usize::from(has_room);
        has_room
    }

    fn done(&mut self, uid: u32) {
        if let Some(count) = self.under_way.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&uid);
            }
        }
    }
}

impl Agent {
    /// Reads a piece of an output file beside the loop; the answer, if there is one at once.
    pub(super) fn read_output(
        &mut self,
        query: u64,
        path: &[u8],
        uid: u32,
        from: OutputFrom,
    ) -> Option<Answer> {
        let own = geteuid();
        if !own.is_root() && own.as_raw() != uid {
            return Some(Answer::Failed(format!("this agent may not read files of user {uid}")));
        }
        if !self.processes.readers.begin(uid) {
            return Some(Answer::Failed(format!(
                "{PIECES_PER_USER_MAX} readers of files of user {uid} wait already; try again later"
            )));
        }
        let path = path_of(path);
        let teller: Teller = self.processes.beside.teller();
        let work = move || {
            // Whatever becomes of the reading, the reader is not counted any more.
            let piece = catch_unwind(AssertUnwindSafe(|| piece_of(&path, uid, from)));
            let answer = match piece {
                Ok(Ok(piece)) => Answer::Output(piece),
                Ok(Err(error)) => Answer::Failed(why_not(&path, &error)),
                Err(_) => Answer::Failed("the reader of the output file has failed".into()),
            };
            teller.tell(Box::new(move |agent| {
                agent.processes.readers.done(uid);
                agent.tell_controller(FromAgent::Answer { query, answer });
            }));
        };
        self.processes.readers.workers.start_for_sure(uid, Box::new(work));
        None
    }
}

fn why_not(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("there is no file {} there", path.display()),
        _ => format!("cannot read the output file {} there: {error}", path.display()),
    }
}

fn piece_of(path: &Path, uid: u32, from: OutputFrom) -> io::Result<OutputPiece> {
    if !path.is_absolute() {
        return Err(io::Error::other("its path has no beginning"));
    }
    piece(&open(path, Owner::numbered(uid).as_ref())?, from)
}

fn piece(file: &File, from: OutputFrom) -> io::Result<OutputPiece> {
    let length = file.metadata()?.len();
    let at = match from {
        // Another launch of the job emptied it.
        OutputFrom::At(at) if at > length => 0,
        OutputFrom::At(at) => at,
        OutputFrom::LastLines(lines) => begin_of_last(file, lines)?,
    };
    let count = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
    let mut data = vec![0; count.min(OUTPUT_PIECE_BYTES)];
    let mut filled = 0;
    while filled < data.len() {
        match file.read_at(&mut data[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(OutputPiece { at, length, data: data.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_piece_is_bounded_and_one_behind_the_end_is_the_first() {
        let path = std::env::temp_dir().join(format!("tutti-pieces-{}", std::process::id()));
        fs::write(&path, [&vec![b'x'; OUTPUT_PIECE_BYTES][..], b"\nlast\n"].concat()).unwrap();
        let uid = geteuid().as_raw();
        let piece = |from| piece_of(&path, uid, from).unwrap();
        let length = OUTPUT_PIECE_BYTES as u64 + 6;
        let first = piece(OutputFrom::At(0));
        assert_eq!((first.data.len(), first.length), (OUTPUT_PIECE_BYTES, length));
        assert_eq!(&**piece(OutputFrom::LastLines(1)).data, b"last\n");
        assert_eq!(piece(OutputFrom::At(length)).data.len(), 0);
        assert_eq!(piece(OutputFrom::At(length + 1)), first);
        fs::remove_file(&path).unwrap();
        assert_eq!(
            piece_of(&path, uid, OutputFrom::At(0)).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(piece_of(Path::new("out"), uid, OutputFrom::At(0)).is_err());
    }

    #[test]
    fn readers_of_one_users_files_are_bounded() {
        let mut readers = OutputReaders::default();
        assert_eq!((0..100).filter(|_| readers.begin(7)).count(), PIECES_PER_USER_MAX);
        assert!(readers.begin(8));
        readers.done(7);
        assert!(readers.begin(7) && !readers.begin(7));
    }
}
