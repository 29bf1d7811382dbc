//! `tutti doctor --cluster`: whether every daemon of every node gives a sign of life.

use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_client::patience::give_up_after;
use tutti_node::codes::code_of;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_types::{Nanos, NodeId};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::NodeLife;
use tutti_wire::units::format_duration_short;

/// One daemon, or thread of one, and whether it lives.
#[derive(Debug, Serialize)]
struct Sign {
    /// The node's name; of the controller the instance's directory.
    node: String,
    /// `controller`, `agent`, `switch`, `keeper` or `supervisor`.
    daemon: &'static str,
    alive: bool,
    /// How long its answer took; `null`: it gave none, or is not asked but looked at.
    answered_ns: Option<u64>,
    /// What is wrong, and what to do; empty: nothing.
    problem: String,
}

pub(super) fn execute(json: bool) -> anyhow::Result<Exit> {
    let asked = Instant::now();
    // Any question that the controller answers by itself.
    let signs = match ask(&Request::Weights) {
        Ok(_) => {
            let took_ns = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // Each node has 2 s for its answer.
            give_up_after(Duration::from_secs(20));
            signs(took_ns, life_of(false)?, life_of(true)?)
        }
        // What is there takes questions and answers none.
        Err(error) if code_of(&error) == Code::ControllerAway => {
            let node = Instance::locate().directory().display().to_string();
            let problem = format!("{error:#}");
            vec![Sign { node, daemon: "controller", alive: false, answered_ns: None, problem }]
        }
        Err(error) => return Err(error),
    };
    let all_live = signs.iter().all(|sign| sign.alive);
    if json {
        print_json(&signs)?;
    } else {
        print_table(&table(&signs))?;
        print(&format!("\n{}\n", summary(&signs)))?;
    }
    Ok(if all_live { Exit::OK } else { Exit::FAILED })
}

fn life_of(of_keepers: bool) -> anyhow::Result<Vec<NodeLife>> {
    all_pages(NodeId(0), |from| match ask(&Request::SignsOfLife { of_keepers, from })? {
        Reply::SignsOfLife { nodes, next } => Ok((nodes, next)),
        _ => unexpected(),
    })
}

/// All daemons, by node.
fn signs(took_ns: u64, agents: Vec<NodeLife>, keepers: Vec<NodeLife>) -> Vec<Sign> {
    let node = Instance::locate().directory().display().to_string();
    let answered_ns = Some(took_ns);
    let mut signs =
        vec![Sign { node, daemon: "controller", alive: true, answered_ns, problem: String::new() }];
    let mut keepers: BTreeMap<String, NodeLife> =
        keepers.into_iter().map(|life| (life.node.clone(), life)).collect();
    for agent in agents {
        let keeper = keepers.remove(&agent.node);
        signs.extend(of_node(&agent, keeper.as_ref()));
    }
    signs
}

fn of_node(agent: &NodeLife, keeper: Option<&NodeLife>) -> Vec<Sign> {
    let node = &agent.node;
    let sign = |daemon, alive, answered_ns, problem: String| Sign {
        node: node.clone(),
        daemon,
        alive,
        answered_ns,
        problem: if alive { String::new() } else { problem },
    };
    let Some(alive) = agent.alive else {
        let problem = match agent.not_asked.is_empty() {
            true => format!(
                "no answer within 2s; on {node}, `kill -KILL` of its `tutti agent` has another started"
            ),
            false => format!("not connected; on {node}: tutti up"),
        };
        // What else is there, only the agent could say.
        return vec![sign("agent", false, None, problem)];
    };
    let late = "no answer within 250ms: switches are late; on the node: tutti doctor";
    let mut signs = vec![
        sign("agent", true, agent.answered_ns, String::new()),
        sign("switch", alive.after_ns.is_some(), alive.after_ns, late.into()),
    ];
    if let Some(keeper) = keeper {
        let after_ns = keeper.alive.and_then(|it| it.after_ns);
        let problem = match keeper.not_asked.is_empty() {
            true => format!("no answer within 2s; on {node}: tutti doctor"),
            false => keeper.not_asked.clone(),
        };
        signs.push(sign("keeper", after_ns.is_some(), after_ns, problem));
    }
    let unwatched = format!("ended: no daemon is started again if it fails; on {node}: tutti up");
    signs.push(sign("supervisor", alive.has_supervisor, None, unwatched));
    signs
}

fn table(signs: &[Sign]) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("DAEMON", Align::Left),
        ("STATE", Align::Left),
        ("ANSWERED IN", Align::Right),
        ("PROBLEM", Align::Left),
    ])
    .painted(&[("STATE", of_state)]);
    for sign in signs {
        let took = |ns| format_duration_short(Nanos(ns));
        table.row([
            sign.node.clone(),
            sign.daemon.into(),
            if sign.alive { "alive" } else { "SILENT" }.into(),
            sign.answered_ns.map(took).unwrap_or_default(),
            sign.problem.clone(),
        ]);
    }
    table
}

fn summary(signs: &[Sign]) -> String {
    let silent: Vec<String> = signs
        .iter()
        .filter(|sign| !sign.alive)
        .map(|sign| format!("{} of {}", sign.daemon, sign.node))
        .collect();
    match silent.is_empty() {
        true => format!("All {} daemons live.", signs.len()),
        false => format!("No sign of life: {}.", silent.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeLife, of_node, summary};
    use tutti_wire::tree::Alive;

    fn life(alive: Option<Alive>) -> NodeLife {
        NodeLife { node: "a1".into(), answered_ns: Some(5), alive, not_asked: String::new() }
    }

    #[test]
    fn what_does_not_answer_is_named() {
        let alive = Alive { after_ns: Some(7), has_supervisor: true };
        let signs = of_node(&life(Some(alive)), Some(&life(None)));
        assert_eq!(summary(&signs), "No sign of life: keeper of a1.");
        let orphan = Alive { after_ns: None, has_supervisor: false };
        let signs = of_node(&life(Some(orphan)), Some(&life(Some(alive))));
        assert_eq!(summary(&signs), "No sign of life: switch of a1, supervisor of a1.");
        assert_eq!(summary(&of_node(&life(None), None)), "No sign of life: agent of a1.");
        let signs = of_node(&life(Some(alive)), Some(&life(Some(alive))));
        assert_eq!(summary(&signs), "All 4 daemons live.");
    }
}
