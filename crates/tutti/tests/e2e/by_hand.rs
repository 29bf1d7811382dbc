//! Clusters that are made by hand, on nodes that know nothing of each other, as the pages for
//! administrators say.

use crate::cluster::Bed;
use crate::harness::{Done, Instance, PATIENCE, Running};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The commands of the administrator's page on clusters: the one at the head, the one of another
/// machine, and those of a user.
fn told() -> [Vec<String>; 3] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (making, _) = page.split_once("\n## Sets of nodes\n").unwrap();
    let blocks = making.split("```sh\n").skip(1);
    let lines = |block: &str| {
        let (block, _) = block.split_once("```").unwrap();
        block.lines().map(str::to_owned).collect()
    };
    blocks.map(lines).collect::<Vec<_>>().try_into().unwrap()
}

/// A line as a user types it at a node.
#[track_caller]
pub(crate) fn type_in(bed: &Bed, number: usize, line: &str) -> Done {
    type_in_within(bed, number, line, PATIENCE)
}

/// The same, for lines that take longer.
#[track_caller]
pub(crate) fn type_in_within(bed: &Bed, number: usize, line: &str, limit: Duration) -> Done {
    type_in_to(bed.node(number).command("sh"), bed, line, limit)
}

/// The same by an ordinary user.
fn type_in_as_user(bed: &Bed, number: usize, line: &str) -> Done {
    let mut shell = bed.node(number).command("setpriv");
    shell.args(["--reuid=1234", "--regid=1234", "--clear-groups", "sh"]);
    type_in_to(shell, bed, line, PATIENCE)
}

fn type_in_to(mut shell: Command, bed: &Bed, line: &str, limit: Duration) -> Done {
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = bed.audit.program.parent().unwrap().display();
    shell.args(["-c", line]).env("PATH", format!("{bin}:{path}")).current_dir(&bed.audit.work);
    Running::start(shell).wait_within(limit)
}

/// The line with which another machine joins, as it was printed.
#[track_caller]
pub(crate) fn invitation(printed: &Done) -> String {
    let text = printed.text();
    let line = text.lines().find(|line| line.trim().starts_with("tutti join "));
    line.unwrap_or_else(|| panic!("no line to join with: {text}")).trim().to_owned()
}

#[test]
fn what_the_page_on_clusters_says_makes_one_of_bare_nodes() {
    let bed = Bed::of_with_processors(4, 2);
    let [at_head, elsewhere, as_user] = told();
    let [up] = &at_head[..] else { panic!("{at_head:?}") };
    let [joining] = &elsewhere[..] else { panic!("{elsewhere:?}") };
    let told_join = joining.trim_end_matches("...");
    assert!(up.contains(" 10.77.0.1") && told_join.contains(" 10.77.0.1 "), "{up} {joining}");
    let here = |line: &str| line.replace(" 10.77.0.1", &format!(" {}", bed.node(1).host()));
    let mut printed = type_in(&bed, 1, &here(up));
    for number in 2..=4 {
        printed = printed.expect(0);
        let join = invitation(&printed);
        assert!(join.starts_with(&here(told_join)), "{join}, and the page says {joining}");
        type_in(&bed, number, &join).expect(0);
        // Good for one machine.
        if number == 2 {
            type_in(&bed, 3, &join).expect(1).says("used already");
        }
        printed = type_in(&bed, 1, "tutti invite");
    }
    let [nodes, run] = &as_user[..] else { panic!("{as_user:?}") };
    for number in [1, 3] {
        bed.open_to_all(number);
        expect_all(type_in_as_user(&bed, number, nodes), type_in_as_user(&bed, number, run));
    }
}

/// Fails unless `tutti nodes` has four nodes, and `tutti run` ran a rank on each of three.
#[track_caller]
fn expect_all(nodes: Done, run: Done) {
    let table = nodes.expect(0).text();
    assert_eq!(table.lines().filter(|line| line.contains(" up ")).count(), 4, "{table}");
    let said = run.expect(0).sorted();
    let (ranks, nodes): (Vec<&str>, BTreeSet<&str>) =
        said.iter().filter_map(|line| line.split_once(": ")).unzip();
    assert_eq!((ranks, nodes.len()), (vec!["0", "1", "2"], 3), "{said:?}");
    assert!(nodes.iter().all(|node| ["n1", "n2", "n3", "n4"].contains(node)), "{said:?}");
}

#[test]
fn an_address_that_leads_nobody_to_a_machine_is_refused() {
    let bed = Bed::of(2, &[0]);
    for address in ["0.0.0.0", "0.0.0.0:7799", "[::]", "::", "[::]:7799", "0"] {
        let refused = bed.tutti(1, &["up", "--listen", address]).expect(1);
        refused.says("stands for every address of this machine").says("[T002]");
    }
    // It has become nothing by that.
    bed.tutti(1, &["invite"]).expect(1).says("in no cluster");
    let up = bed.tutti(1, &["up", "--listen", bed.node(1).host()]).expect(0);
    let join = invitation(&up);
    let refused = type_in(&bed, 2, &format!("{join} --listen 0.0.0.0")).expect(1);
    refused.says("stands for every address of this machine");
    // Nor has the token been used.
    type_in(&bed, 2, &join).expect(0);
}

#[test]
fn a_machine_alone_says_how_others_could_join() {
    let instance = Instance::of_the_system();
    let said = instance.tutti(&["up"]).expect(0).text();
    let next = said.lines().find(|line| line.starts_with("next: ")).unwrap();
    assert!(next.ends_with("` lets other machines join"), "{said}");
    assert!(next.contains("; `tutti up --listen "), "{said}");
    // A machine with a cluster is not told to begin one.
    let bed = Bed::of(1, &[0]);
    let said = bed.tutti(1, &["up", "--listen", bed.node(1).host()]).expect(0).text();
    assert!(said.contains("next: ") && !said.contains("lets other machines join"), "{said}");
}
