//! Channels between two keepers, over a way that loses pieces.

use super::*;
use alloc::vec;

const SECOND_NS: u64 = 1_000_000_000;

fn launch() -> LaunchId {
    LaunchId::first(JobId(1))
}

fn peer(node: u32) -> Peer {
    Peer { job: JobId(1), number: 0, node: NodeId(node) }
}

fn leave(step: u32) -> Said {
    Said::Leave { launch: LaunchId { step: StepId(step), ..launch() } }
}

fn large(number: u32) -> Said {
    let data = Some(vec![u8::try_from(number % 251).unwrap(); 100 << 10].into());
    Said::Fetched { launch: launch(), number, data }
}

/// The end at this place.
fn end(at: usize) -> Peer {
    peer(u32::from(at == 1))
}

/// Two keepers: node 0 and node 1.
#[derive(Default)]
struct Both {
    ends: [Far; 2],
    now_ns: u64,
    heard: [Vec<Said>; 2],
    anew: [usize; 2],
    pieces: usize,
}

impl Both {
    fn seed(&self, at: usize) -> (u64, u64) {
        (0x1000 + at as u64, self.now_ns)
    }

    fn say(&mut self, at: usize, said: &Said) {
        let seed = self.seed(at);
        assert!(self.ends[at].say(end(1 - at), said, seed));
    }

    /// Passes pieces on until there are none, but for those that are lost.
    fn pass(&mut self, mut is_lost: impl FnMut(usize) -> bool) {
        loop {
            let mut is_quiet = true;
            for at in 0..2 {
                let Some((to, piece)) = self.ends[at].next(self.now_ns) else { continue };
                is_quiet = false;
                self.pieces += 1;
                assert_eq!(to, end(1 - at));
                assert!(piece.data.len() <= Piece::BYTES_MAX);
                if is_lost(self.pieces) {
                    continue;
                }
                let seed = self.seed(1 - at);
                let came = self.ends[1 - at].take_in(end(at), &piece, seed);
                self.anew[1 - at] += usize::from(came.is_anew);
                self.heard[1 - at].extend(came.said);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        let now_ns = self.now_ns;
        self.ends.iter_mut().for_each(|end| end.look(now_ns));
    }
}

#[test]
fn all_that_is_said_comes_once_and_in_order_however_many_pieces_are_lost() {
    for each in [0, 2, 3, 5] {
        let mut both = Both::default();
        let said: Vec<Said> = (0..20).flat_map(|at| [large(at), leave(at)]).collect();
        for it in &said {
            both.say(0, it);
        }
        both.say(1, &leave(7));
        for _ in 0..2000 {
            // Not the same ones each time.
            let noise = |piece: usize| piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            both.pass(|piece| each > 0 && noise(piece) % each == 0);
            both.wait(SECOND_NS);
        }
        assert!(both.heard[1] == said, "{each}: {}", both.heard[1].len());
        assert_eq!(both.heard[0], [leave(7)]);
        assert_eq!(both.anew, [0, 0]);
        assert!(both.ends.iter().all(|end| end.channels.values().all(|it| it.waiting.is_empty())));
    }
}

#[test]
fn little_is_on_its_way_until_it_is_known_to_have_come() {
    let mut both = Both::default();
    (0..20).for_each(|at| both.say(0, &large(at)));
    both.pass(|_| true);
    assert_eq!(both.pieces, 2);
    both.wait(SECOND_NS / 2);
    both.pass(|_| true);
    assert_eq!(both.pieces, 2);
    both.wait(SECOND_NS);
    both.pass(|_| false);
    assert_eq!(both.heard[1].len(), 20);
}

#[test]
fn a_keeper_that_knows_nothing_any_more_has_the_other_begin_anew() {
    for of in [0, 1] {
        let mut both = Both::default();
        both.say(0, &leave(1));
        both.say(1, &leave(2));
        both.pass(|_| false);
        both.ends[of] = Far { lives: 9, ..Far::default() };
        both.say(1 - of, &leave(3));
        both.say(of, &leave(4));
        for _ in 0..5 {
            both.pass(|_| false);
            both.wait(2 * SECOND_NS);
        }
        // Of what was said to the former keeper nothing comes to the next.
        assert_eq!(both.anew[1 - of], 1);
        assert_eq!(both.anew[of], 0);
        assert_eq!(both.heard[1 - of].last(), Some(&leave(4)));
        both.say(1 - of, &leave(5));
        both.pass(|_| false);
        assert_eq!(both.heard[of].last(), Some(&leave(5)));
        assert_eq!(both.anew[1 - of], 1, "it begins anew once");
    }
}

#[test]
fn a_channel_says_something_from_time_to_time_and_no_more() {
    let mut both = Both::default();
    both.say(0, &leave(1));
    both.pass(|_| false);
    let before = both.pieces;
    for _ in 0..100 {
        both.wait(SECOND_NS);
        both.pass(|_| false);
    }
    assert!((18..=22).contains(&(both.pieces - before)), "{}", both.pieces - before);
    both.ends[0].forget(peer(1));
    assert!(both.ends[0].is_empty() && both.ends[0].due_ns().is_none());
}

#[test]
fn what_no_keeper_says_ends_its_channel_and_what_is_kept_is_bounded() {
    let mut far = Far::default();
    let piece = |at, data: Vec<u8>| Piece { life: 5, of: 0, at, data: data.into(), taken: 0 };
    assert!(far.take_in(peer(1), &piece(0, vec![255; 8]), (1, 0)).is_anew);
    assert!(far.is_empty());
    // A length that is fit, and no message.
    assert!(far.take_in(peer(1), &piece(0, vec![1, 0, 0, 0, 99]), (1, 0)).is_anew);
    // What is ahead of its turn is not kept.
    let came = far.take_in(peer(1), &piece(u64::MAX, vec![0; 100]), (1, 0));
    assert!(came.said.is_empty() && !came.is_anew);
    let too_long = piece(0, vec![0; Piece::BYTES_MAX + 1]);
    assert!(far.take_in(peer(1), &too_long, (1, 0)).said.is_empty());
    let mut count = 0;
    while far.say(peer(1), &large(0), (1, 0)) {
        count += 1;
    }
    assert!((75..85).contains(&count), "{count}");
    assert!(far.is_behind(peer(1)) && !far.is_behind(peer(2)));
    for node in 2..9 {
        while far.say(peer(node), &large(0), (1, 0)) {
            count += 1;
        }
    }
    assert!((300..330).contains(&count), "of all nodes: {count}");
    far.forget(peer(3));
    assert!(far.say(peer(9), &large(0), (1, 0)), "there is room again");
    for step in 0..1000 {
        let launch = LaunchId { step: StepId(step), ..launch() };
        (0..1000).for_each(|_| far.hold(launch, ToPmix::Gone { space: "s".into() }));
    }
    assert_eq!(far.held.len(), HELD_STEPS_MAX);
    assert!(far.held.values().all(|words| words.len() == HELD_WORDS_MAX));
}
