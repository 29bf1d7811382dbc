use super::{Changes, Matrix, Owner};
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use tutti_types::placing::Packing;

/// A matrix of nodes 0, 1, ... with so many processors each.
fn matrix(widths: &[u32]) -> Matrix {
    let mut matrix = Matrix::default();
    for (node, &width) in (0..).zip(widths) {
        matrix.add_node(NodeId(node), &ProcessorSet::first(width));
    }
    matrix
}

/// Places a job on processors given as (node, processors).
fn place(matrix: &mut Matrix, job: u64, row: Option<u64>, parts: &[(u32, &[u32])]) -> u64 {
    let parts = parts.iter().map(|&(node, set)| (NodeId(node), set.iter().copied().collect()));
    matrix
        .place(
            JobId(job),
            (&ClassName::new("a"), Owner::default()),
            row.map(RowId),
            parts.collect(),
        )
        .0
}

/// The matrix as text: a line a row, homes then guests in brackets.
fn drawn(matrix: &Matrix) -> String {
    let line = |(id, row): (RowId, &super::Row)| {
        let homes = matrix.seats().filter(|(_, seat)| seat.row == id);
        let homes: Vec<String> = homes.map(|(job, _)| job.to_string()).collect();
        assert_eq!(row.homes, homes.len() as u64);
        let guests: Vec<String> = row.guests.iter().map(ToString::to_string).collect();
        format!("{id}: {} [{}]\n", homes.join(" "), guests.join(" "))
    };
    matrix.rows().map(line).collect()
}

#[test]
fn idle_processors_of_a_row_go_to_guests() {
    let mut m = matrix(&[2, 2]);
    let first = place(&mut m, 1, None, &[(0, &[0, 1])]);
    let second = place(&mut m, 2, None, &[(0, &[0]), (1, &[0])]);
    place(&mut m, 3, Some(second), &[(1, &[1])]);
    m.settle(&mut Changes::default());
    // Job 2 can't be a guest in row 1: one of its processors is taken there.
    assert_eq!(drawn(&m), format!("{first}: 1 [3]\n{second}: 2 3 []\n"));
}

#[test]
fn a_home_evicts_guests_and_they_come_back_when_it_is_suspended() {
    let mut m = matrix(&[2]);
    place(&mut m, 1, None, &[(0, &[0])]);
    place(&mut m, 2, None, &[(0, &[0, 1])]);
    place(&mut m, 3, Some(1), &[(0, &[1])]);
    m.settle(&mut Changes::default());
    assert_eq!(drawn(&m), "1: 1 3 []\n2: 2 []\n");
    m.deactivate(JobId(2));
    m.settle(&mut Changes::default());
    assert_eq!(drawn(&m), "1: 1 3 []\n2: 2 []\n", "a row of suspended jobs has no slot");
    m.deactivate(JobId(3));
    m.activate(JobId(2));
    m.settle(&mut Changes::default());
    assert_eq!(drawn(&m), "1: 1 3 []\n2: 2 []\n", "a gang does not split");
}

/// Row 1 is of level 0, rows 2 and 3 are of level 1. As job 3 moves to row 2, row 3 is of level 0.
#[test]
fn a_row_that_comes_to_a_lower_level_as_a_home_moves_has_its_others_move_too() {
    let mut m = matrix(&[4]);
    m.follow_levels(true, &std::collections::BTreeMap::new());
    place(&mut m, 1, None, &[(0, &[0])]);
    place(&mut m, 2, None, &[(0, &[0, 1])]);
    place(&mut m, 5, Some(2), &[(0, &[2, 3])]);
    place(&mut m, 3, None, &[(0, &[0, 1])]);
    place(&mut m, 4, Some(3), &[(0, &[3])]);
    assert_eq!(m.unify(Packing::FirstFit), []);
    m.remove(JobId(2));
    let moved = [(JobId(3), RowId(2)), (JobId(4), RowId(1))];
    assert_eq!(m.unify(Packing::FirstFit), moved);
}

#[test]
fn a_home_moves_to_an_earlier_row_when_its_processors_come_free() {
    let mut m = matrix(&[2]);
    place(&mut m, 1, None, &[(0, &[0, 1])]);
    place(&mut m, 2, None, &[(0, &[0])]);
    place(&mut m, 3, None, &[(0, &[0, 1])]);
    m.remove(JobId(1));
    m.unify(Packing::FirstFit);
    m.settle(&mut Changes::default());
    assert_eq!(drawn(&m), "2: 2 []\n3: 3 []\n");
    m.remove(JobId(2));
    place(&mut m, 4, Some(3), &[]);
    place(&mut m, 5, None, &[(0, &[1])]);
    m.remove(JobId(3));
    m.unify(Packing::FirstFit);
    m.settle(&mut Changes::default());
    assert_eq!(drawn(&m), "3: 4 5 []\n");
}

#[test]
fn the_index_knows_what_is_free() {
    let mut m = matrix(&[4, 8, 4]);
    place(&mut m, 1, None, &[(1, &[0, 1, 2, 3, 4, 5])]);
    place(&mut m, 2, Some(1), &[(0, &[0])]);
    let row = m.row(RowId(1)).unwrap();
    assert_eq!(row.index.free(), 9);
    let widest: Vec<(u32, u32)> =
        row.index.widest(m.loads()).map(|(free, node)| (free, node.0)).collect();
    assert_eq!(widest, [(4, 2), (3, 0), (2, 1)]);
    assert_eq!(row.index.least_loaded(m.loads(), 2, |_| true), Some(NodeId(2)));
    assert_eq!(row.index.least_loaded(m.loads(), 2, |node| node.0 == 1), Some(NodeId(1)));
    assert_eq!(m.free_on(Some(RowId(1)), NodeId(1)).to_string(), "6-7");
    m.remove(JobId(1));
    m.remove(JobId(2));
    assert_eq!(m.row_count(), 0);
    assert_eq!(m.blank().free(), 16);
}

#[test]
fn a_lost_node_takes_its_parts_along() {
    let mut m = matrix(&[2, 2]);
    place(&mut m, 1, None, &[(0, &[0, 1]), (1, &[0, 1])]);
    place(&mut m, 2, None, &[(1, &[0])]);
    m.remove_node(NodeId(1));
    m.unify(Packing::FirstFit);
    m.settle(&mut Changes::default());
    assert_eq!(m.seat(JobId(1)).unwrap().parts.len(), 1);
    assert!(m.seat(JobId(2)).unwrap().parts.is_empty());
    m.add_node(NodeId(1), &ProcessorSet::first(3));
    assert_eq!(m.row(RowId(1)).unwrap().index.free(), 3);
    m.remove(JobId(1));
    m.remove(JobId(2));
    assert_eq!(m.row_count(), 0);
    assert_eq!(m.blank().free(), 5);
}
