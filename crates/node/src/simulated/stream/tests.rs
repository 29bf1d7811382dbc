//! Connections in memory are as the kernel's: to whatever is done with one of each, both give the
//! same answers.

use super::*;
use crate::link::Poller;
use proptest::prelude::*;

/// Something that is done with an end of a connection.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Read(usize, usize),
    Watch(usize, bool, bool),
    EndWriting(usize),
    Close(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let side = 0..2_usize;
    let step = prop_oneof![
        6 => (side.clone(), 0..200_usize).prop_map(|(side, count)| Step::Write(side, count)),
        6 => (side.clone(), 1..300_usize).prop_map(|(side, count)| Step::Read(side, count)),
        3 => (side.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(side, read, write)| Step::Watch(side, read, write)),
        1 => side.clone().prop_map(Step::EndWriting),
        1 => side.prop_map(Step::Close),
    ];
    prop::collection::vec(step, 1..30)
}

/// Both ends of a connection, and their watchers.
struct Ends {
    ends: [Option<Stream>; 2],
    poller: Poller,
    written: u8,
}

impl Ends {
    fn over((one, other): (Stream, Stream)) -> Self {
        let poller = Poller::new().unwrap();
        for (token, end) in [(0, &one), (1, &other)] {
            end.set_nonblocking(true).unwrap();
            poller.add(end, token, Interest::READ).unwrap();
        }
        Self { ends: [Some(one), Some(other)], poller, written: 0 }
    }

    /// What it answers, and what is ready then.
    fn do_step(&mut self, step: &Step) -> String {
        let answer = self.answer(step).map_err(|error| error.kind());
        let mut ready = Vec::new();
        self.poller.look(&mut ready).unwrap();
        format!("{answer:?} {ready:?}")
    }

    fn answer(&mut self, step: &Step) -> io::Result<Vec<u8>> {
        let (Step::Write(side, _) | Step::Read(side, _) | Step::Watch(side, ..)) = step else {
            let (Step::EndWriting(side) | Step::Close(side)) = step else { unreachable!() };
            return match (&self.ends[*side], step) {
                (Some(end), Step::EndWriting(_)) => {
                    // The other end may be gone.
                    let _ = end.shutdown(Shutdown::Write);
                    Ok(Vec::new())
                }
                _ => {
                    self.ends[*side] = None;
                    Ok(Vec::new())
                }
            };
        };
        let Some(end) = &mut self.ends[*side] else { return Ok(Vec::new()) };
        match *step {
            Step::Write(_, count) => {
                self.written = self.written.wrapping_add(1);
                Ok(end.write(&vec![self.written; count])?.to_le_bytes().into())
            }
            Step::Read(_, count) => {
                let mut room = vec![0; count];
                let count = end.read(&mut room)?;
                room.truncate(count);
                Ok(room)
            }
            // To be watched for nothing and hear nothing is nothing that anybody does.
            Step::Watch(_, read, write) => {
                let read = read || !write;
                self.poller.modify(&*end, *side as u64, Interest { read, write })?;
                Ok(Vec::new())
            }
            Step::EndWriting(_) | Step::Close(_) => Ok(Vec::new()),
        }
    }
}

proptest! {
    #[test]
    fn connections_in_memory_answer_as_the_kernels_do(steps in steps()) {
        let (one, other) = UnixStream::pair().unwrap();
        let mut real = Ends::over((one.into(), other.into()));
        let mut simulated = Ends::over(pair().unwrap());
        for (number, step) in steps.iter().enumerate() {
            prop_assert_eq!(simulated.do_step(step), real.do_step(step), "{}: {:?}", number, step);
        }
    }
}

#[test]
fn what_is_not_read_stays_until_there_is_room() {
    let (mut one, mut other) = pair().unwrap();
    let data = vec![7; 1 << 20];
    let first = one.write(&data).unwrap();
    assert_eq!(one.write(&data).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let mut all = 0;
    while let Ok(bytes) = other.read_at_most(64 << 10) {
        all += bytes.len();
    }
    assert_eq!(all, first);
    assert_eq!(one.write(b"more").unwrap(), 4);
    drop(one);
    assert_eq!(other.read_at_most(2).unwrap(), b"mo");
    assert_eq!(other.read_at_most(9).unwrap(), b"re");
    assert_eq!(other.read_at_most(9).unwrap(), b"", "then its end");
}
