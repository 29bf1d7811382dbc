//! `tutti up` and `tutti down`.

use super::submit::order;
use crate::exit::Exit;
use crate::front::start_daemon;
use crate::instance::Instance;
use crate::output::print;
use crate::supervise;
use clap::Args;
use std::time::{Duration, Instant};
use tutti_wire::local::Request;

#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Stay in the foreground, with the daemons' messages on standard error
    #[arg(long)]
    foreground: bool,

    #[arg(long, hide = true)]
    daemon: bool,
}

pub(crate) fn up(args: &UpArgs) -> anyhow::Result<Exit> {
    let instance = Instance::to_start();
    if args.daemon {
        return supervise::daemon(&instance);
    }
    if args.foreground {
        return supervise::foreground(&instance);
    }
    let kind = if instance.private { "private" } else { "system" };
    let directory = instance.directory().display().to_string();
    if !start_daemon(&instance)? {
        print(&format!("the {kind} instance in {directory} was up already\n"))?;
        return Ok(Exit::OK);
    }
    let whom = if instance.private {
        "for you alone; it ends by itself when idle"
    } else {
        "for all users of this machine"
    };
    print(&format!(
        "the {kind} instance in {directory} is up, {whom}\n\
         next: `tutti run -n 2 COMMAND`, `tutti ps`, `tutti doctor`; `tutti down` ends it\n"
    ))?;
    Ok(Exit::OK)
}

#[derive(Args, Debug)]
pub(crate) struct DownArgs {}

pub(crate) fn down(_args: &DownArgs) -> anyhow::Result<Exit> {
    let instance = Instance::locate();
    // One whose controller has just failed is there all the same.
    let patience = Instant::now() + Duration::from_secs(30);
    while !instance.answers() && supervise::is_supervised(&instance) {
        anyhow::ensure!(Instant::now() < patience, "the instance does not answer; see its log");
        std::thread::sleep(Duration::from_millis(10));
    }
    if !instance.answers() {
        // Whoever finds its sockets would wait for it.
        supervise::clean_up_for_dead(&instance);
        print(&format!("no instance runs in {}\n", instance.directory().display()))?;
        return Ok(Exit::OK);
    }
    order(&Request::Down)?;
    // The supervisor holds the lock until everything is gone.
    let patience = Instant::now() + Duration::from_secs(20);
    while supervise::is_supervised(&instance) {
        anyhow::ensure!(Instant::now() < patience, "the jobs are gone, but a daemon still runs");
        std::thread::sleep(Duration::from_millis(2));
    }
    supervise::clean_up_for_dead(&instance);
    print(&format!("the instance in {} is down\n", instance.directory().display()))?;
    if instance.log_file().exists() {
        print(&format!("what it had to say is kept in {}\n", instance.log_file().display()))?;
    }
    Ok(Exit::OK)
}
