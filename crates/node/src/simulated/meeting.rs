//! What a simulated process does that is a rank of an MPI program: now and then it stores values at
//! its node's PMI server, waits in a barrier for all other ranks, and looks up what one of them has
//! stored.

use super::stream::Stream;
use std::io::Read;
use tutti_types::{JobId, Rank};

/// How long a process that waits for an answer waits before it looks again.
pub const LOOK_NS: u64 = 20_000_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 900;

/// See the head of the file.
#[derive(Debug)]
pub struct Meeting {
    server: Stream,
    job: JobId,
    rank: Rank,
    size: u32,
    rounds: u64,
    /// Barriers that are behind it.
    met: u64,
    stage: Stage,
    /// Answers that it waits for, and the beginning of one.
    awaited: usize,
    unread: String,
    space: String,
    pub wrong: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It computes.
    Away,
    /// It has begun, and asked for the name of its space.
    Beginning,
    /// It waits in a barrier.
    Waiting,
    /// It looks up what another rank has stored.
    Looking,
    /// It ends.
    Finalizing,
    /// It has ended, or its server is gone, or a rank of its node.
    Over,
}

/// What a rank stores before a round's barrier; one of its values, so that they differ in number.
fn value(job: JobId, rank: u32, round: u64) -> String {
    format!("{job}-{rank}-{round}-{:x>width$}", "", width = VALUE_BYTES)
}

impl Meeting {
    /// A rank with this connection of its server.
    pub const fn new(server: Stream, (job, rank): (JobId, Rank), size: u32, rounds: u64) -> Self {
        Self {
            server,
            job,
            rank,
            size,
            rounds,
            met: 0,
            stage: Stage::Away,
            awaited: 0,
            unread: String::new(),
            space: String::new(),
            wrong: None,
        }
    }

    /// Of so many equal parts of its life, the part after which it does something next.
    pub const fn parts(&self) -> (u64, u64) {
        (self.met + 1, self.rounds + 1)
    }

    /// Whether it has not yet said that it ends.
    pub fn is_due(&self, is_done: bool) -> bool {
        match self.stage {
            Stage::Over => false,
            Stage::Away => self.met < self.rounds || is_done,
            _ => true,
        }
    }

    /// Does what can be done, where its next part of its life is over. Gives whether it waits.
    pub fn go_on(&mut self) -> bool {
        if self.stage == Stage::Away {
            self.step();
        }
        while self.stage != Stage::Away && self.stage != Stage::Over {
            match self.answer() {
                Some(answer) => self.hear(&answer),
                None => return self.stage != Stage::Over,
            }
        }
        false
    }

    /// Says the next commands.
    fn step(&mut self) {
        let rank = self.rank.0;
        let space = &self.space;
        let (commands, stage) = match self.stage {
            Stage::Away if self.space.is_empty() => (
                vec!["init pmi_version=1 pmi_subversion=1".to_owned(), "get_my_kvsname".into()],
                Stage::Beginning,
            ),
            Stage::Away if self.met == self.rounds => (vec!["finalize".into()], Stage::Finalizing),
            Stage::Away | Stage::Beginning => {
                let value = value(self.job, rank, self.met);
                let count = 1 + (u64::from(rank) + self.met) % 6;
                let put = |number| {
                    format!("put kvsname={space} key={rank}-{}-{number} value={value}", self.met)
                };
                let puts = (0..count).map(put);
                (puts.chain(["barrier_in".to_owned()]).collect(), Stage::Waiting)
            }
            Stage::Waiting => {
                let (other, met) = (self.other(), self.met);
                (vec![format!("get kvsname={space} key={other}-{met}-0")], Stage::Looking)
            }
            Stage::Looking | Stage::Finalizing | Stage::Over => (Vec::new(), Stage::Over),
        };
        (self.awaited, self.stage) = (commands.len(), stage);
        let text: String = commands.iter().map(|command| format!("cmd={command}\n")).collect();
        if self.server.write_of_process(text.as_bytes()).is_none() {
            self.stage = Stage::Over;
        }
    }

    /// The rank of which it looks something up after this barrier.
    fn other(&self) -> u32 {
        let further = u32::try_from(self.met % 7).unwrap_or(0);
        (self.rank.0 + 1 + further) % self.size
    }

    /// A line that has come.
    fn answer(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.find('\n') {
                let rest = self.unread.split_off(end + 1);
                return Some(std::mem::replace(&mut self.unread, rest));
            }
            let mut room = [0; 4096];
            match self.server.read(&mut room) {
                Ok(count) if count > 0 => {
                    self.unread.push_str(&String::from_utf8_lossy(&room[..count]));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                _ => {
                    self.stage = Stage::Over;
                    return None;
                }
            }
        }
    }

    fn hear(&mut self, answer: &str) {
        self.awaited = self.awaited.saturating_sub(1);
        let field = |name: &str| {
            let mut words = answer.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)).unwrap_or_default()
        };
        if let Some(space) = answer.strip_prefix("cmd=my_kvsname").map(|_| field("kvsname=")) {
            self.space = space.to_owned();
        } else if self.stage == Stage::Looking {
            let wanted = value(self.job, self.other(), self.met);
            if field("value=") != wanted {
                let (rank, job) = (self.rank, self.job);
                self.wrong = Some(format!(
                    "rank {rank} of job {job} looked up what rank {} stored, and got {answer:?}",
                    self.other()
                ));
            }
        } else if field("rc=") != "0" {
            // A rank of this node has ended.
            self.stage = Stage::Over;
        }
        if self.awaited > 0 || self.stage == Stage::Over {
            return;
        }
        match self.stage {
            Stage::Beginning | Stage::Waiting => self.step(),
            Stage::Looking => (self.met, self.stage) = (self.met + 1, Stage::Away),
            _ => self.stage = Stage::Over,
        }
    }
}
