//! `tutti upgrade --all`: the machines of a cluster upgrade one after the other, the head first.
//!
//! Each is told through the control tree. Its agent ends on the way; that it is there again, and
//! runs the executable, is what shows that the machine was upgraded. One that runs it already is
//! passed by, so the same words go on where a failure has stopped them.

use super::super::cluster::membership_of_head;
use super::super::nodes::clients::clients;
use super::upgrade;
use crate::supervise::what_it_speaks;
use anyhow::ensure;
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_client::ask::{ask_until_answered, pages_of_nodes, unexpected};
use tutti_client::output::print;
use tutti_node::codes::{code_of, coded};
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::membership::Place;
use tutti_wire::code::Code;
use tutti_wire::limits::PROTOCOL_VERSION;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::NodeReport;

/// How long nodes may take that are just connecting again, as after the head alone was upgraded.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// How long a machine may take to be back with its new agent.
const BACK_WITHIN: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn execute(instance: &Instance, program: &Path) -> anyhow::Result<Exit> {
    let head = membership_of_head(&Place::of(instance), "all machines are upgraded")?.name;
    let names = nodes_to_upgrade(&head)?;
    let speaks = what_it_speaks(program, instance.directory())
        .map_err(|error| coded(Code::NotUpgraded, format!("{error:#}")))?;
    if speaks != PROTOCOL_VERSION {
        let reason = format!(
            "it speaks version {speaks} of the protocol, and the cluster version {PROTOCOL_VERSION}: the head \
             would not reach the others any more; run `tutti upgrade` on each machine, the head first"
        );
        return Err(coded(Code::NotUpgraded, reason));
    }
    let upgrade = Upgrade { instance, program, head };
    for (index, name) in names.iter().enumerate() {
        match upgrade.one(name) {
            Ok(how) => print(&format!("{name} {how} {}\n", program.display()))?,
            Err(error) => {
                let reason = stopped(name, &error, &names[..index], &names[index + 1..]);
                return Err(coded(code_of(&error), reason));
            }
        }
    }
    print_clients(program)
}

/// Client machines upgrade by themselves: the cluster has no way to give them orders.
fn print_clients(program: &Path) -> anyhow::Result<Exit> {
    let names: Vec<String> = clients()?.into_iter().map(|it| it.name).collect();
    if !names.is_empty() {
        let (names, program) = (names.join(", "), program.display());
        print(&format!(
            "not upgraded, client machines: {names}; run `tutti upgrade {program}` on each\n"
        ))?;
    }
    Ok(Exit::OK)
}

/// The head, then the others by name. All must be in reach, or the first would upgrade for nothing.
fn nodes_to_upgrade(head: &str) -> anyhow::Result<Vec<String>> {
    let patience = Instant::now() + CONNECTED_WITHIN;
    let nodes = loop {
        let nodes = nodes()?;
        let away: Vec<&str> =
            nodes.iter().filter(|it| it.depth.is_none()).map(|it| it.name.as_str()).collect();
        if away.is_empty() {
            break nodes;
        }
        if Instant::now() >= patience {
            let reason = format!(
                "not in reach: {}; nothing was done. When they are back, run it again; `tutti nodes remove` \
                 takes out those that will not be",
                away.join(", ")
            );
            return Err(coded(Code::NotUpgraded, reason));
        }
        std::thread::sleep(PAUSE);
    };
    let mut names: Vec<String> = nodes.into_iter().map(|it| it.name).collect();
    names.sort_by_key(|name| (name != head, name.clone()));
    Ok(names)
}

fn nodes() -> anyhow::Result<Vec<NodeReport>> {
    pages_of_nodes(|from| ask_until_answered(&Request::Nodes { from }))
}

fn stopped(name: &str, error: &anyhow::Error, done: &[String], left: &[String]) -> String {
    let list = |names: &[String]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    format!(
        "{name} was not upgraded: {error:#}; done: {}; not tried: {}. Jobs run on; when that is fixed, the same \
         command goes on",
        list(done),
        list(left)
    )
}

struct Upgrade<'a> {
    instance: &'a Instance,
    program: &'a Path,
    head: String,
}

impl Upgrade<'_> {
    /// Has one machine upgrade; what is said of it.
    fn one(&self, name: &str) -> anyhow::Result<&'static str> {
        self.wait_for(name)?;
        if self.runs_it(name).is_ok() {
            return Ok("runs already:");
        }
        if name == self.head {
            upgrade(self.instance, self.program)?;
        } else {
            let (node, program) = (name.to_owned(), self.path());
            self.expect_done(&Request::Upgrade { node, program })?;
        }
        let patience = Instant::now() + BACK_WITHIN;
        while let Err(error) = self.wait_for(name).and_then(|()| self.runs_it(name)) {
            if Instant::now() >= patience {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
        Ok("is upgraded to")
    }

    /// Waits until the machine is in reach: a machine that was connected through one that was
    /// upgraded finds another way.
    fn wait_for(&self, name: &str) -> anyhow::Result<()> {
        let patience = Instant::now() + BACK_WITHIN;
        while !nodes()?.iter().any(|it| it.name == name && it.depth.is_some()) {
            let seconds = BACK_WITHIN.as_secs();
            ensure!(Instant::now() < patience, "it was not in reach within {seconds} s");
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn runs_it(&self, name: &str) -> anyhow::Result<()> {
        self.expect_done(&Request::Runs { node: name.to_owned(), program: self.path() })
    }

    fn path(&self) -> ByteBuf {
        ByteBuf::from(self.program.as_os_str().as_bytes())
    }

    fn expect_done(&self, request: &Request) -> anyhow::Result<()> {
        match ask_until_answered(request)? {
            Reply::Done => Ok(()),
            _ => unexpected(),
        }
    }
}
