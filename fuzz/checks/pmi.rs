//! Any lines as what the tasks of a job on two nodes say to their servers.
//!
//! The first byte of a line chooses the node and the task. What nodes exchange comes to both of
//! them. A vertical tab stands for the end of a line within a command.

use tutti_types::{JobId, LaunchId, Rank, UserId};
use tutti_wire::limits::SPAWN_BYTES_MAX;
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
        universe: 8,
        spawned: None,
    })
}

fn check(server: &Server, effects: &[Effect]) {
    assert!(server.bytes() <= STORE_BYTES_MAX);
    for effect in effects {
        if let Effect::Reply { line, .. } = effect {
            let ends = line.iter().filter(|byte| **byte == b'\n').count();
            assert!(ends == 1 && line.ends_with(b"\n"), "one line is one answer");
        }
        if let Effect::Spawn { spawned, .. } = effect {
            assert!(spawned.is_within_limits() && spawned.bytes() <= SPAWN_BYTES_MAX);
            assert!(spawned.tasks().is_some_and(|tasks| tasks > 0));
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
        let lines: Vec<u8> =
            line.iter().map(|&byte| if byte == 0x0b { b'\n' } else { byte }).collect();
        nodes[node].handle(task, &lines, &mut names, &mut effects);
        if line.last() == Some(&b'!') {
            nodes[node].answer_spawn(task, None, &mut effects);
        }
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
