//! Any lines as what the tasks of a job on two nodes say to their servers.
//!
//! The first byte of a line chooses the node and the task. What nodes exchange comes to both of them.

use tutti_types::{JobId, LaunchId, Rank, UserId};
use tutti_wire::pmi::{Effect, Names, STORE_BYTES_MAX, Server, ServerSpec};

/// The parts that are passed on for one line at most.
const PARTS_MAX: usize = 64;

fn server(ranks: [u32; 2]) -> Server {
    Server::new(ServerSpec {
        job: JobId(7),
        user: UserId(1000),
        size: 4,
        ranks: ranks.map(Rank).into(),
        space_name: "kvs_7".into(),
        process_mapping: Some("(vector,(0,2,2))".into()),
        attributes: Vec::new(),
    })
}

fn check(server: &Server, effects: &[Effect]) {
    assert!(server.bytes() <= STORE_BYTES_MAX);
    for effect in effects {
        if let Effect::Reply { line, .. } = effect {
            let ends = line.iter().filter(|byte| **byte == b'\n').count();
            assert!(ends == 1 && line.ends_with(b"\n"), "one line is one answer");
        }
    }
}

/// See the file.
pub fn pmi(input: &[u8]) {
    let launch = LaunchId::first(JobId(7));
    let mut nodes = [server([0, 1]), server([2, 3])];
    let mut names = Names::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((&first, line)) = line.split_first() else { continue };
        let (node, task) = (usize::from(first & 1), usize::from(first >> 1) % 3);
        let mut effects = Vec::new();
        nodes[node].handle(task, line, &mut names, &mut effects);
        for _ in 0..PARTS_MAX {
            let Some(part) = nodes[node].next_part(launch) else { break };
            nodes.iter_mut().for_each(|server| server.hear(&part, &mut effects));
        }
        nodes.iter().for_each(|server| check(server, &effects));
    }
    for server in &mut nodes {
        // A keeper that takes over has the same.
        let stored = postcard::to_allocvec(server).expect("it has no map without a length");
        let again: Server = postcard::from_bytes(&stored).expect("it was just written");
        assert_eq!(again.bytes(), server.bytes());
        let mut effects = Vec::new();
        server.give_up_barriers(|task| task == 0, &mut effects);
        check(server, &effects);
    }
}
