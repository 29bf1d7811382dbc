//! Carrying out what a script says.

use super::engine::{HEAD, What, World};
use super::script::{Act, CLASSES};
use tutti_node::simulated::machine::{Daemon, machine, name_of};
use tutti_types::ClassName;
use tutti_wire::local::{NodeChange, Request};
use tutti_wire::report::Target;

/// By how much a clock goes otherwise when it is warmer, in thousand-millionths.
const DRIFT_PPB: i64 = 1_000;

/// So long agent and keeper of a machine are both stopped at most: less than the controller waits
/// beyond a lease (`core/src/longer_leases.rs`). If nothing is there to suspend tasks, they run on,
/// and nothing is promised. The controller's own machine has no lease that could end.
const BOTH_STOPPED_NS: u64 = 1_000_000_000;

fn target(job: tutti_types::JobId) -> Target {
    Target { job, rank: None, pid: None }
}

/// At most so many things a daemon may do before it is killed in the middle of something.
const FEW: u64 = 40;

impl World {
    /// What is set before anything else happens.
    pub(super) fn prepare(&mut self) {
        let settings = self.script.params.clone();
        self.users.command(Request::SetParams { settings });
        for &class in CLASSES {
            // Namespaces are the kernel's: there are none here.
            let mut settings = vec![("ipc".to_owned(), "node".to_owned())];
            if self.script.making_way == Some(class) {
                settings.push(("control".to_owned(), "priority".to_owned()));
            }
            self.users.command(Request::SetClass { class: ClassName::new(class), settings });
        }
        self.wake_users();
    }

    fn change_node(&mut self, site: usize, change: NodeChange) {
        self.users.command(Request::ChangeNodes { nodes: name_of(site), change });
    }

    pub(super) fn act(&mut self, number: usize) {
        let act = self.script.acts[number].act.clone();
        self.say(format_args!("#{}: {act:?}", self.script.acts[number].number));
        let now_ns = self.now_ns;
        match act {
            Act::Submit(plan) => self.users.submit(plan),
            Act::Cancel(before, at_once) => {
                self.on_latest(before, |job| Request::Cancel { target: target(job), at_once })
            }
            Act::Suspend(before) => {
                self.on_latest(before, |job| Request::Suspend { target: target(job) });
            }
            Act::Resume(before) => {
                self.on_latest(before, |job| Request::Resume { target: target(job) });
            }
            Act::Lend(before, lends) => {
                self.on_latest(before, |job| Request::Lend { job, lends });
            }
            Act::Drain(site) => {
                self.change_node(site, NodeChange::Drain { reason: String::new() });
            }
            Act::Undrain(site) => self.change_node(site, NodeChange::Resume),
            Act::Set(name, value) => {
                let settings = vec![(name.to_owned(), value)];
                self.users.command(Request::SetParams { settings });
            }
            Act::Crash(site, daemon, back_ns) => {
                if self.seat(site, daemon).daemon.is_some() {
                    self.crash_now_or_amid(site, daemon, back_ns);
                }
            }
            Act::Stop(site, daemon, for_ns) => {
                let for_ns = for_ns.min(self.may_stop_ns(site, daemon));
                let until_ns = now_ns.saturating_add(for_ns);
                if daemon == Daemon::Controller {
                    self.lapses.note_stop(now_ns, until_ns);
                }
                let seat = self.seat(site, daemon);
                seat.stopped_until_ns = seat.stopped_until_ns.max(until_ns);
            }
            Act::PowerLoss(site, off_ns) => self.lose_power(site, off_ns),
            Act::Cut(from, to, both) => {
                for (&one, &other) in from.iter().flat_map(|one| to.iter().map(move |it| (one, it)))
                {
                    let mut due = self.network.cut(one, other, now_ns);
                    if both {
                        due.append(&mut self.network.cut(other, one, now_ns));
                    }
                    due.into_iter().for_each(|(at, what)| self.plan(at, What::Deliver(what)));
                }
            }
            Act::Mend => self.mend(),
            Act::DiskFull(is_full) => {
                self.disk.set_full(is_full);
                self.note_disk();
            }
            Act::DiskBroken(is_broken) => {
                self.disk.set_broken(is_broken);
                self.note_disk();
            }
            Act::Drift(site, is_faster) => machine(site, |machine| {
                let change = if is_faster { DRIFT_PPB } else { -DRIFT_PPB };
                machine.clock.drift(now_ns, machine.clock.ppb + change);
            }),
            Act::Slow(site, ns) => self.sites[site].slow_ns = ns,
            Act::WallStep(site, ms) => machine(site, |machine| machine.clock.wall_ahead_ms += ms),
            Act::Latency(least, more) => self.network.latency_ns = (least, more),
        }
        self.wake_users();
    }

    /// How long a daemon may be stopped now.
    fn may_stop_ns(&mut self, site: usize, daemon: Daemon) -> u64 {
        let other = match daemon {
            Daemon::Agent => Daemon::Keeper,
            Daemon::Keeper => Daemon::Agent,
            Daemon::Controller => return u64::MAX,
        };
        let is_alone = site != HEAD && self.seat(site, other).stopped_until_ns > self.now_ns;
        if is_alone { BOTH_STOPPED_NS } else { u64::MAX }
    }

    fn note_disk(&mut self) {
        self.launches.lose(self.now_ns);
        self.lapses.note_disk(self.disk.takes_all(), self.now_ns);
    }

    fn on_latest(&mut self, before: u64, request: impl Fn(tutti_types::JobId) -> Request) {
        if let Some(job) = self.users.latest(before) {
            self.users.command(request(job));
        }
    }

    fn mend(&mut self) {
        let due = self.network.mend(self.now_ns);
        due.into_iter().for_each(|(at_ns, what)| self.plan(at_ns, What::Deliver(what)));
    }

    /// Kills a daemon between one thing that it does and the next, or in the middle of something.
    fn crash_now_or_amid(&mut self, site: usize, daemon: Daemon, back_ns: u64) {
        if self.script.cuts_short && self.random.one_in(2) {
            let left = u32::try_from(self.random.any_length(FEW)).unwrap_or(1) - 1;
            self.seat(site, daemon).cut = Some((left, back_ns));
        } else {
            self.crash(site, daemon, back_ns);
        }
    }

    /// From now on nothing fails any more, and nothing is held back by anybody.
    pub(super) fn calm_down(&mut self) {
        self.mend();
        self.disk.set_full(false);
        self.disk.set_broken(false);
        for site in 0..self.sites.len() {
            self.sites[site].slow_ns = 0;
            for daemon in [Daemon::Controller, Daemon::Agent, Daemon::Keeper] {
                self.seat(site, daemon).stopped_until_ns = 0;
                self.seat(site, daemon).cut = None;
                self.wake_soon(site, daemon);
            }
            self.change_node(site, NodeChange::Resume);
        }
        for job in self.users.accepted.keys().copied().collect::<Vec<_>>() {
            self.users.command(Request::Resume { target: target(job) });
        }
        self.wake_users();
    }
}
