//! Any bytes as what the PMIx server of a job says to its keeper: a length of one byte, then that
//! many bytes of a message.

use tutti_wire::frame::decode;
use tutti_wire::pmix::{
    FENCE_PART_BYTES, FromPmix, Heard, Session, VARIABLE_BYTES_MAX, VARIABLES_MAX,
};

const TASKS: usize = 2;

/// See the file.
pub fn pmix(input: &[u8]) {
    let Some((&first, mut rest)) = input.split_first() else { return };
    let mut session = Session::new(TASKS, first & 1 == 1);
    while let Some((&length, after)) = rest.split_first() {
        let (message, next) = after.split_at(usize::from(length).min(after.len()));
        rest = next;
        let Ok(message) = decode::<FromPmix>(message) else { continue };
        let before = session.clone();
        match session.hear(message) {
            // What is invalid changes nothing.
            Err(_) => assert_eq!(session, before),
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
            Ok(Heard::Ready) => assert!(!before.is_ready() && session.is_ready()),
            Ok(Heard::Nothing | Heard::Failed(_)) => {}
        }
        for task in 0..=TASKS {
            let variables = session.environment(task);
            assert!(variables.len() <= VARIABLES_MAX);
            assert!(variables.iter().all(|it| it.len() <= VARIABLE_BYTES_MAX && !it.contains(&0)));
        }
    }
}
