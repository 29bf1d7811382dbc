//! Lives of processes as told, and lives made at random against a plain model of what is true.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn forest(orphans: Orphans) -> Forest<u8> {
    let mut forest = Forest::default();
    forest.set_orphans(orphans);
    forest.add_task(0, Origin::OneRoot);
    forest.began(0, 10, SECOND);
    forest
}

fn pairs(forest: &Forest<u8>, task: u8) -> Vec<(i32, Option<i32>)> {
    forest.members(task).iter().map(|member| (member.pid, member.parent)).collect()
}

#[test]
fn children_go_to_their_nearest_living_ancestor() {
    let mut forest = forest(Orphans::Ancestor);
    for (parent, child) in [(10, 11), (11, 12), (12, 13), (12, 14)] {
        forest.forked(parent, child, 2 * SECOND);
    }
    forest.exited(12, 3 * SECOND);
    let expected = [(10, None), (11, Some(10)), (13, Some(11)), (14, Some(11))];
    assert_eq!(pairs(&forest, 0), expected);
    forest.exited(11, 4 * SECOND);
    forest.exited(10, 4 * SECOND);
    assert_eq!(pairs(&forest, 0), [(13, None), (14, None)], "the task itself is what is left");
    assert_eq!(forest.tally(0), Tally { created: 5, living: 2, peak: 5 });
}

#[test]
fn or_to_the_task() {
    let mut forest = forest(Orphans::Task);
    forest.forked(10, 11, SECOND);
    forest.forked(11, 12, SECOND);
    forest.exited(11, 2 * SECOND);
    assert_eq!(pairs(&forest, 0), [(10, None), (12, None)]);
}

#[test]
fn a_subtree_is_a_process_with_all_below_it() {
    let mut forest = forest(Orphans::Ancestor);
    for (parent, child) in [(10, 11), (11, 12), (10, 13)] {
        forest.forked(parent, child, SECOND);
    }
    let pids: Vec<i32> = forest.subtree(11).iter().map(|member| member.pid).collect();
    assert_eq!(pids, [11, 12]);
    assert!(forest.subtree(99).is_empty());
    assert_eq!((forest.task_of(12), forest.task_of(99)), (Some(0), None));
}

#[test]
fn who_is_found_with_an_unknown_parent_is_below_the_root_while_that_lives() {
    let mut forest = forest(Orphans::Ancestor);
    let seen = |pid, parent| Seen { pid, parent, born_ns: 2 * SECOND };
    let root = Seen { pid: 10, parent: 1, born_ns: SECOND };
    forest.repair(0, &[root, seen(11, 1), seen(12, 11)]);
    assert_eq!(pairs(&forest, 0), [(10, None), (11, Some(10)), (12, Some(11))]);
    forest.repair(0, &[seen(11, 1), seen(12, 11), seen(13, 1)]);
    assert_eq!(pairs(&forest, 0), [(11, None), (12, Some(11)), (13, None)]);
}

#[test]
fn the_root_of_what_ran_before_is_the_oldest() {
    let mut forest: Forest<u8> = Forest::default();
    forest.add_task(0, Origin::OneRoot);
    forest.add_task(1, Origin::Several);
    let seen = |pid, parent, born| Seen { pid, parent, born_ns: born * SECOND };
    forest.repair(0, &[seen(5, 1, 9), seen(7, 1, 3), seen(8, 5, 10)]);
    assert_eq!(pairs(&forest, 0), [(7, None), (5, Some(7)), (8, Some(5))]);
    forest.repair(1, &[seen(20, 1, 9), seen(21, 1, 3)]);
    assert_eq!(pairs(&forest, 1), [(20, None), (21, None)]);
}

#[test]
fn an_event_that_comes_after_the_sighting_still_tells_the_parent() {
    let mut forest = forest(Orphans::Ancestor);
    // 11 made 12 and ended; only 12 is found, with init as its parent.
    let root = Seen { pid: 10, parent: 1, born_ns: SECOND };
    forest.repair(0, &[root, Seen { pid: 12, parent: 1, born_ns: 2 * SECOND }]);
    forest.forked(10, 11, 2 * SECOND);
    forest.forked(11, 12, 2 * SECOND + 10_000_000);
    assert_eq!(pairs(&forest, 0), [(10, None), (11, Some(10)), (12, Some(11))]);
    forest.exited(11, 2 * SECOND + 20_000_000);
    assert_eq!(pairs(&forest, 0), [(10, None), (12, Some(10))]);
    assert_eq!(forest.tally(0).created, 3);
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut forest = forest(Orphans::Ancestor);
    forest.forked(10, 11, 2 * SECOND);
    forest.forked(11, 12, 2 * SECOND);
    // The end of 11 was missed; a stranger has its number now, and its child is none of ours.
    forest.forked(500, 11, 9 * SECOND);
    forest.forked(11, 501, 9 * SECOND);
    assert_eq!(pairs(&forest, 0), [(10, None), (12, Some(10))]);
    // The end of an earlier 12 is reported after the later one was found.
    forest.repair(0, &[Seen { pid: 12, parent: 10, born_ns: 20 * SECOND }]);
    forest.exited(12, 10 * SECOND);
    assert_eq!(pairs(&forest, 0).len(), 1);
}

#[test]
fn when_processes_lived_is_remembered_until_their_task_is_forgotten() {
    let mut forest = forest(Orphans::Ancestor);
    forest.forked(10, 11, 2 * SECOND);
    forest.exited(11, 3 * SECOND);
    let life = |born, ended| Life { born_ns: born * SECOND, ended_ns: ended * SECOND };
    let expected = BTreeMap::from([(10, life(1, 9)), (11, life(2, 3))]);
    assert_eq!(forest.lives(0, 9 * SECOND), expected);
    assert_eq!(forest.past, 1);
    forest.remove_task(0);
    assert!(forest.past == 0 && forest.lives(0, 9 * SECOND).is_empty());
}

/// What is true: every process there ever was, with its parent by place in the list.
#[derive(Default)]
struct World {
    all: Vec<Lived>,
    now: u64,
}

struct Lived {
    pid: i32,
    parent: Option<usize>,
    born: u64,
    lives: bool,
}

impl World {
    fn living(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&at| self.all[at].lives).collect()
    }

    fn birth(&mut self, parent: Option<usize>) -> &Lived {
        let used: BTreeSet<i32> = self.living().iter().map(|&at| self.all[at].pid).collect();
        // Numbers come round quickly.
        let last = self.all.last().map_or(99, |life| life.pid);
        let next = (1..).map(|n| 100 + (last - 100 + n) % 40).find(|pid| !used.contains(pid));
        self.all.push(Lived { pid: next.unwrap(), parent, born: self.now, lives: true });
        self.all.last().unwrap()
    }

    /// The nearest living ancestor.
    fn heir(&self, at: usize) -> Option<i32> {
        let mut above = self.all[at].parent;
        while let Some(at) = above.filter(|&at| !self.all[at].lives) {
            above = self.all[at].parent;
        }
        above.map(|at| self.all[at].pid)
    }

    /// As `/proc` has it: orphans belong to init.
    fn seen(&self) -> Vec<Seen> {
        let parent = |at: usize| self.all[at].parent.filter(|&it| self.all[it].lives);
        let seen = |at: usize| Seen {
            pid: self.all[at].pid,
            parent: parent(at).map_or(1, |it| self.all[it].pid),
            born_ns: self.all[at].born,
        };
        self.living().into_iter().map(seen).collect()
    }

    fn true_pairs(&self) -> BTreeMap<i32, Option<i32>> {
        self.living().into_iter().map(|at| (self.all[at].pid, self.heir(at))).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    Exit(usize),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let step = prop_oneof![
        4 => any::<usize>().prop_map(Step::Fork),
        3 => any::<usize>().prop_map(Step::Exit),
        1 => Just(Step::Look),
    ];
    prop::collection::vec((step, prop::bool::weighted(0.8)), 0..200)
}

/// Plays a life. Where `all_told`, every event is; otherwise some get lost, and a look repairs
/// that.
fn play(steps: &[(Step, bool)], all_told: bool) -> (World, Forest<u8>) {
    let (mut world, mut forest) = (World::default(), Forest::default());
    forest.add_task(0, Origin::OneRoot);
    world.now = SECOND;
    let root = world.birth(None);
    forest.began(0, root.pid, root.born);
    for (step, told) in steps {
        let told = all_told || *told;
        world.now += SECOND;
        let living = world.living();
        match step {
            Step::Fork(which) if !living.is_empty() && living.len() < 30 => {
                let parent = living[which % living.len()];
                let parent_pid = world.all[parent].pid;
                let child = world.birth(Some(parent));
                if told {
                    forest.forked(parent_pid, child.pid, child.born + 1000);
                }
            }
            Step::Exit(which) if !living.is_empty() => {
                let ended = living[which % living.len()];
                world.all[ended].lives = false;
                if told {
                    forest.exited(world.all[ended].pid, world.now);
                }
            }
            Step::Look => forest.repair(0, &world.seen()),
            Step::Fork(_) | Step::Exit(_) => {}
        }
        check(&forest);
    }
    (world, forest)
}

/// Each process is below its parent and none is above itself.
fn check(forest: &Forest<u8>) {
    let members = forest.members(0);
    assert_eq!(members.len(), forest.processes.len(), "somebody can't be reached from the top");
    assert_eq!(forest.tally(0).living, members.len() as u64);
    let record = &forest.tasks[&0];
    assert_eq!(record.members.len(), members.len());
    assert!(record.root.is_none_or(|root| record.members.contains(&root)));
    for member in members {
        if let Some(parent) = member.parent {
            assert!(forest.processes[&parent].children.contains(&member.pid));
        }
    }
}

proptest! {
    #[test]
    fn with_every_event_the_forest_is_the_truth(steps in steps()) {
        let (world, forest) = play(&steps, true);
        let found: BTreeMap<i32, Option<i32>> = pairs(&forest, 0).into_iter().collect();
        prop_assert_eq!(found, world.true_pairs());
        prop_assert_eq!(forest.tally(0).created, world.all.len() as u64);
    }

    #[test]
    fn with_lost_events_a_look_finds_every_process_and_no_other(steps in steps()) {
        let (world, mut forest) = play(&steps, false);
        forest.repair(0, &world.seen());
        check(&forest);
        let found: BTreeSet<i32> = pairs(&forest, 0).into_iter().map(|(pid, _)| pid).collect();
        prop_assert_eq!(found, world.true_pairs().into_keys().collect::<BTreeSet<i32>>());
    }
}
