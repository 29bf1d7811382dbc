//! Any bytes as what the PMIx servers of two steps say to their keeper: a length of seven bits,
//! with the step above them, then that many bytes of a message. The steps are of one job, or of
//! two.

use tutti_types::{JobId, LaunchId, NodeId, StepId, UserId};
use tutti_wire::frame::decode;
use tutti_wire::pmix::{
    ASKS_MAX, Answer, Ask, FENCE_PART_BYTES, FromPmix, Heard, Hub, Out, Part, PmixNode, PmixSpace,
    Session, ToPmix, VARIABLE_BYTES_MAX, VARIABLES_MAX,
};

const TASKS: usize = 2;
const NAMES: [&str; 2] = ["a", "b"];

/// The steps with what their keeper knows.
struct Steps {
    keys: [Part; 2],
    sessions: [Session; 2],
    hub: Hub,
}

/// See the file.
pub fn pmix(input: &[u8]) {
    let Some((&first, mut rest)) = input.split_first() else { return };
    let is_one_job = first & 4 == 0;
    let mut steps = Steps {
        keys: [(1, 0), (if is_one_job { 1 } else { 2 }, 1)]
            .map(|(job, step)| LaunchId { job: JobId(job), number: 0, step: StepId(step) })
            .map(|launch| Part { launch, node: NodeId(0) }),
        sessions: [(); 2].map(|()| Session::new(TASKS, first & 1 == 1)),
        hub: Hub::default(),
    };
    while let Some((&length, after)) = rest.split_first() {
        let (message, next) = after.split_at(usize::from(length & 0x7f).min(after.len()));
        rest = next;
        let Ok(message) = decode::<FromPmix>(message) else { continue };
        steps.hear(usize::from(length >> 7), message, first);
    }
    let mut out = Out::new();
    steps.hub.look(u64::MAX, &mut out);
    for key in steps.keys {
        steps.hub.remove(key, &mut out);
    }
    steps.check(out);
    assert!(steps.hub.is_empty(), "{:?}", steps.hub);
}

impl Steps {
    fn hear(&mut self, of: usize, message: FromPmix, first: u8) {
        let (key, session) = (self.keys[of], &mut self.sessions[of]);
        let before = session.clone();
        let mut out = Out::new();
        match session.hear(message) {
            // What is invalid changes nothing.
            Err(_) => assert_eq!(*session, before),
            Ok(Heard::Abort { task, message, .. }) => {
                assert!(task < TASKS && session.is_ready() && !message.contains('\n'));
            }
            Ok(Heard::FencePart { is_last, data }) => {
                assert!(data.len() <= FENCE_PART_BYTES && !before.is_fencing());
                assert_eq!(session.is_fencing(), is_last);
                if first & 2 == 2 {
                    session.end_fence();
                }
            }
            Ok(Heard::Ready) => {
                assert!(!before.is_ready() && session.is_ready());
                self.hub.add(key, UserId(7), space(of), &mut out);
            }
            Ok(Heard::Ask { number, ask: Ask::Spawn { .. }, .. }) => {
                // It is started as the other step, which may be served or not.
                let child = self.keys[1 - of].launch.step;
                self.hub.await_child((key, number), child, &mut out);
            }
            Ok(Heard::Ask { number, ask, .. }) => {
                self.hub.ask((key, number), (0, 0), ask, &mut out);
            }
            Ok(Heard::Fetched { number, data }) => self.hub.fetched(key, number, data, &mut out),
            Ok(Heard::Nothing | Heard::Failed(_)) => {}
        }
        let session = &self.sessions[of];
        assert!(session.asks().len() <= ASKS_MAX);
        for task in 0..=TASKS {
            let variables = session.environment(task);
            assert!(variables.len() <= VARIABLES_MAX);
            assert!(variables.iter().all(|it| it.len() <= VARIABLE_BYTES_MAX && !it.contains(&0)));
        }
        self.check(out);
    }

    /// Each request is answered once, and steps of two jobs hear nothing of each other.
    fn check(&mut self, out: Out) {
        let is_one_job = self.keys[0].launch.job == self.keys[1].launch.job;
        for (key, message) in out {
            let of = usize::from(key != self.keys[0]);
            match message {
                ToPmix::Answer { number, answer } => {
                    assert!(self.sessions[of].end_ask(number), "{number} was not asked");
                    let Answer::Found(found) = answer else { continue };
                    assert!(is_one_job || found.iter().all(|it| it.space == NAMES[of]));
                }
                ToPmix::Space(space) => assert!(is_one_job && space.name == NAMES[1 - of]),
                ToPmix::Gone { .. } => assert!(is_one_job),
                ToPmix::Fetch { .. }
                | ToPmix::Order(_)
                | ToPmix::Fenced { .. }
                | ToPmix::RanksFailed { .. } => {}
            }
        }
    }
}

fn space(of: usize) -> PmixSpace {
    let node = PmixNode { node: NodeId(0), name: "n".into(), tasks: 2 };
    PmixSpace {
        name: NAMES[of].into(),
        nodes: [node].into(),
        node: 0,
        universe: 4,
        programs: Vec::new(),
        parent: None,
    }
}
