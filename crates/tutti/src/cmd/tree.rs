//! `tutti ps --tree`: the processes of jobs, as trees.

use std::collections::BTreeMap;
use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::output::{Align, Table, counted, print, print_json, print_table};
use tutti_node::exit::Exit;
use tutti_types::{Nanos, NodeId};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{ProcessReport, Target, TaskReport};
use tutti_wire::units::{format_bytes, format_duration_short};

/// Shows the processes of these.
pub(super) fn show(targets: &[Target], json: bool) -> anyhow::Result<Exit> {
    let mut tasks = Vec::new();
    for &target in targets {
        tasks.extend(all_pages(NodeId(0), |from| {
            match ask(&Request::Processes { target, from })? {
                Reply::Tasks { tasks, next, .. } => Ok((tasks, next)),
                _ => unexpected(),
            }
        })?);
    }
    tasks.sort_by_key(|task| (task.job, task.rank));
    if json {
        print_json(&tasks)?;
        return Ok(Exit::OK);
    }
    for task in &tasks {
        print(&format!("{}\n", title(task)))?;
        print_table(&table(task))?;
    }
    Ok(Exit::OK)
}

/// What stands above the processes of a task.
pub(super) fn title(task: &TaskReport) -> String {
    let processes = counted(task.processes.len() as u64 + task.left_out, "process");
    let left_out = match task.left_out {
        0 => String::new(),
        left_out => format!(" ({left_out} are not listed)"),
    };
    format!("{}.{} on {}, {processes}{left_out}", task.job, task.rank, task.node)
}

/// The processes of a task, each below its nearest living ancestor.
pub(super) fn table(task: &TaskReport) -> Table {
    let mut table = Table::new(&[
        ("PID", Align::Right),
        ("STATE", Align::Left),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("COMMAND", Align::Left),
    ])
    .can_spare(&["MEMORY", "CPU"]);
    for (branch, process) in branches(&task.processes) {
        table.row([
            process.pid.to_string(),
            process.state.clone(),
            format_duration_short(Nanos::from_millis(process.cpu_ms)),
            format_bytes(process.memory_bytes),
            format!("{branch}{}", process.command),
        ]);
    }
    table
}

/// The processes with what is drawn before each.
fn branches(processes: &[ProcessReport]) -> Vec<(String, &ProcessReport)> {
    let known = |pid: i32| processes.iter().any(|process| process.pid == pid);
    let mut children: BTreeMap<Option<i32>, Vec<&ProcessReport>> = BTreeMap::new();
    for process in processes {
        // The top of a subtree has a parent that is not among them.
        let parent = process.parent.filter(|&parent| known(parent));
        children.entry(parent).or_default().push(process);
    }
    let mut drawn = Vec::new();
    // The next ones at the end: what is drawn before them and before those below, and the node.
    let mut stack: Vec<(String, String, &ProcessReport)> = Vec::new();
    for top in children.remove(&None).unwrap_or_default().into_iter().rev() {
        stack.push((String::new(), String::new(), top));
    }
    while let Some((branch, below, process)) = stack.pop() {
        drawn.push((branch, process));
        let of_it = children.remove(&Some(process.pid)).unwrap_or_default();
        for (index, child) in of_it.into_iter().rev().enumerate() {
            let (last, line) = if index == 0 {
                ("\u{2514}\u{2500} ", "   ")
            } else {
                ("\u{251c}\u{2500} ", "\u{2502}  ")
            };
            stack.push((format!("{below}{last}"), format!("{below}{line}"), child));
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_drawn_with_the_last_child_at_a_corner() {
        let process = |pid, parent: i32| ProcessReport {
            pid,
            parent: Some(parent),
            state: "running".into(),
            cpu_ms: 0,
            memory_bytes: 0,
            command: format!("p{pid}"),
        };
        let all = [process(2, 1), process(3, 2), process(4, 3), process(5, 2), process(9, 7)];
        let drawn: Vec<String> =
            branches(&all).iter().map(|(branch, it)| format!("{branch}{}", it.command)).collect();
        let expected = [
            "p2",
            "\u{251c}\u{2500} p3",
            "\u{2502}  \u{2514}\u{2500} p4",
            "\u{2514}\u{2500} p5",
            "p9",
        ];
        assert_eq!(drawn, expected);
    }
}
