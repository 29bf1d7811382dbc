//! The unit of an instance that is no service: a scope that its supervisor has systemd make around
//! itself.
//!
//! Where a service manager runs, only it makes groups of processes, but for below a unit that it
//! has delegated. So an instance has its manager delegate one: a user's that of the user, root's
//! the system's. No right is needed for it, and nothing is asked. The scope is gone when its last
//! process is; the next supervisor joins the scope of what one before it has left: of a daemon, or
//! of jobs alone. Where no manager runs, groups are made where they may be.

use super::bus::{Bus, Method};
use super::{too_old, version};
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tutti_linux::cgroup::{DAEMONS, Hierarchy, Layout, Unit, is_systemd_here, layout, v2_point};

/// How long the manager may take to move this process.
const MOVED_WITHIN: Duration = Duration::from_secs(5);

/// How long a supervisor that was told to end may take before all that is left is killed, in
/// microseconds: more than it waits for its daemons.
const STOP_WITHIN_US: u64 = 30_000_000;

/// By which the manager stops the scope. All processes of it get that, but it is nothing to any but
/// the supervisor, which ends the jobs in good order and then the daemons.
pub const STOP: Signal = Signal::SIGURG;

const fn of_manager(name: &'static str, takes: &'static str) -> Method {
    Method {
        service: "org.freedesktop.systemd1",
        object: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        name,
        takes,
    }
}

const START: Method = of_manager("StartTransientUnit", "ssa(sv)a(sa(sv))");
const ATTACH: Method = of_manager("AttachProcessesToUnit", "ssau");

/// Brings this process, the supervisor of an instance, to where its daemons belong: to the leaf of
/// a unit that is delegated to it. `left` is a daemon that the supervisor before has left: this one
/// joins it, also if that is in no unit, since from one it could have no task begin in groups of
/// it. Where there is none, processes may be left in the `subtree` of the instance. `instance`
/// names it in the manager's tables. The name of the unit; none where no service manager runs.
///
/// # Errors
/// If there is a manager, and it makes no unit.
pub fn enter(
    instance: &str,
    is_started_by_manager: bool,
    left: Option<i32>,
    subtree: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let own = Unit::own();
    let there = left.and_then(Unit::of).or_else(|| left_in(subtree?));
    if let Some(there) = there {
        if own.as_ref() != Some(&there) {
            join(&there)?;
        }
    } else if left.is_none()
        && !(is_started_by_manager && own.is_some())
        && let Some(bus) = Bus::of_manager()
        && let Err(error) = start(&bus, instance)
        && own.is_none()
    {
        let why = "systemd makes no unit for the instance";
        return Err(error.context(too_old(version()).unwrap_or_else(|| why.to_owned())));
    }
    let Some(unit) = Unit::own() else { return Ok(None) };
    unit.settle().context("the unit of the instance can't be used")?;
    Ok(Some(unit.name().to_owned()))
}

/// The scope in which jobs of an instance are left after all its daemons were killed: from a new
/// one they could not be ended.
fn left_in(subtree: &str) -> Option<Unit> {
    let uid = geteuid();
    let slice = v2_point()?.join(match uid.is_root() {
        true => "system.slice".to_owned(),
        false => format!("user.slice/user-{uid}.slice/user@{uid}.service/app.slice"),
    });
    Unit::left_in(&slice, subtree, !uid.is_root()).filter(|_| is_systemd_here())
}

/// All subtrees of this name in which something of an instance can be: where this process would
/// find a place for one, and in the unit of daemons that were killed.
#[must_use]
pub fn subtrees(name: &str) -> Vec<Hierarchy> {
    let left = left_in(name).and_then(|unit| Hierarchy::open(&unit.group().join(name)).ok());
    let mut found: Vec<Hierarchy> = Hierarchy::existing(name).into_iter().collect();
    found.extend(left.filter(|left| found.iter().all(|it| it.path() != left.path())));
    found
}

/// Whether this user has a service manager that would make a unit for an instance.
#[must_use]
pub fn has_manager() -> bool {
    Bus::of_manager().is_some()
}

/// Has a new scope made around this process.
fn start(bus: &Bus, instance: &str) -> anyhow::Result<()> {
    let pid = std::process::id();
    let name = format!("tutti-{pid}.scope");
    let slice = if *bus == Bus::System { "system.slice" } else { "app.slice" };
    let properties: [(&str, &str, String); 8] = [
        ("Description", "s", format!("Tutti, a gang scheduler, in {instance}")),
        ("Slice", "s", slice.into()),
        ("Delegate", "b", "true".into()),
        ("TasksMax", "t", u64::MAX.to_string()),
        ("KillSignal", "i", (STOP as i32).to_string()),
        ("TimeoutStopUSec", "t", STOP_WITHIN_US.to_string()),
        ("CollectMode", "s", "inactive-or-failed".into()),
        ("PIDs", "au", pid.to_string()),
    ];
    let mut arguments = vec![name.clone(), "fail".into(), properties.len().to_string()];
    for (property, kind, value) in properties {
        arguments.extend([property.to_owned(), kind.to_owned()]);
        // Of a list, the length comes first.
        arguments.extend((kind == "au").then(|| "1".to_owned()));
        arguments.push(value);
    }
    // No other units with it.
    arguments.push("0".into());
    bus.call(START, &arguments)?;
    wait_until_in(&name)
}

/// Has this process moved to the daemons of a unit that is there.
fn join(unit: &Unit) -> anyhow::Result<()> {
    let bus = Bus::of_manager().context("the service manager of the instance is away")?;
    let (leaf, pid) = (format!("/{DAEMONS}"), std::process::id().to_string());
    bus.call(ATTACH, &[unit.name(), &leaf, "1", &pid])?;
    wait_until_in(unit.name())
}

/// Has the manager move processes into a group below the unit of this process. Of a user's process
/// in a login session, this process itself can't: the kernel asks for a right to the group above
/// both, which is the system's.
///
/// # Errors
/// If this process is in no unit, the group is not below it, or the manager refuses.
pub fn attach(pids: &[i32], group: &Path) -> anyhow::Result<()> {
    let unit = Unit::own().context("this instance has no unit")?;
    let below = group.strip_prefix(unit.group()).context("the group is not in the unit")?;
    let bus = Bus::of_manager().context("the service manager of the instance is away")?;
    let mut arguments = vec![unit.name().to_owned(), format!("/{}", below.display())];
    arguments.push(pids.len().to_string());
    arguments.extend(pids.iter().map(i32::to_string));
    bus.call(ATTACH, &arguments)?;
    Ok(())
}

/// The group whose controllers the unit of an instance that this user starts here would have; none
/// where no service manager makes one, or controllers belong to v1.
pub fn place_of_unit() -> Option<PathBuf> {
    let bus = Bus::of_manager()?;
    let top = v2_point().filter(|_| layout() == Layout::V2)?;
    let uid = geteuid();
    let place = match bus {
        Bus::System => top,
        Bus::User(_) => top.join(format!("user.slice/user-{uid}.slice/user@{uid}.service")),
    };
    Some(place).filter(|place| place.is_dir())
}

fn wait_until_in(unit: &str) -> anyhow::Result<()> {
    let patience = Instant::now() + MOVED_WITHIN;
    while Unit::own().is_none_or(|own| own.name() != unit) {
        if Instant::now() >= patience {
            bail!("systemd did not move the supervisor to {unit}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether the manager of this user's units ends when the user has no session any more, and the
/// jobs with it.
pub fn ends_with_session() -> bool {
    let name = User::from_uid(geteuid()).ok().flatten().map(|user| user.name);
    let is_kept = name.is_some_and(|name| Path::new("/var/lib/systemd/linger").join(name).exists());
    !geteuid().is_root() && !is_kept
}

/// What a user without lingering is told.
pub const ENDS_WITH_SESSION: &str =
    "your jobs end when you log out for the last time; after `loginctl enable-linger` they go on";
