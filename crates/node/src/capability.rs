//! What this process can do for jobs, as an agent reports it and as `tutti doctor` foretells it for
//! an instance that does not run yet.

use crate::codes::coded;
use crate::platform::groups::Hierarchy;
use crate::service::ends_with_session;
use std::path::Path;
use std::sync::OnceLock;
use tutti_linux::allowance::Allowance;
use tutti_linux::cgroup::{Cgroup, LimitBy, LimitSupport, Unit, is_systemd_here, layout};
use tutti_linux::ipc_namespace::Maker;
use tutti_linux::kernel::{self, Births};
use tutti_linux::swap::{SwapSpace, takes_advice};
use tutti_linux::{container, proc};
use tutti_wire::code::Code;
use tutti_wire::report::{AgentStatus, NodeSwap, SwapMeans};

/// Whether an instance can run on this kernel at all.
///
/// # Errors
/// If it lacks a call without a fall-back: which, and from which release on there is it.
pub fn check_kernel() -> anyhow::Result<()> {
    let Some(call) = kernel::missing_call() else { return Ok(()) };
    let reason = format!(
        "this kernel, {}, has no {call}, or a filter of the container forbids it; Linux {} or later is needed",
        kernel::release(),
        kernel::LEAST_RELEASE
    );
    Err(coded(Code::OldKernel, reason))
}

/// What reports call the way in which a limit is enforced.
pub const fn limit_name(by: LimitBy) -> &'static str {
    match by {
        LimitBy::V2 => "v2",
        LimitBy::V1 => "v1",
        LimitBy::None => "none",
    }
}

/// All but what an agent alone knows: its name, its processes and its switches.
pub fn of_this_process(hierarchy: Option<&Hierarchy>) -> AgentStatus {
    let mut status = of_this_machine();
    let Some(hierarchy) = hierarchy else { return status };
    let limits = hierarchy.limits();
    set_limits(&mut status, limits);
    let top = hierarchy.path();
    status.cgroup = top.display().to_string();
    status.freezer = true;
    status.device_control = device_control(top).into();
    status.swap = swap_space(swap_means(Some(hierarchy)));
    status.births = match kernel::births() {
        Births::IntoGroup => "clone3",
        Births::Moved => "moved",
    }
    .into();
    status.kills = if kernel::kills_groups_at_once(top) { "cgroup.kill" } else { "signals" }.into();
    status.memory_counted = match limits.memory {
        LimitBy::V2 => top.join("memory.peak").exists(),
        LimitBy::V1 => true,
        LimitBy::None => false,
    };
    let handed_down =
        std::fs::read_to_string(top.join("cgroup.subtree_control")).unwrap_or_default();
    status.io_counted = handed_down.split_whitespace().any(|name| name == "io");
    status
}

/// By what the memory of jobs is moved out.
pub fn swap_means(hierarchy: Option<&Hierarchy>) -> SwapMeans {
    let counted = hierarchy.map_or(LimitBy::None, |hierarchy| hierarchy.limits().memory);
    let reclaims = |top: &Hierarchy| top.path().join("memory.reclaim").exists();
    match counted {
        LimitBy::V2 if hierarchy.is_some_and(reclaims) => SwapMeans::Reclaim,
        LimitBy::V1 => SwapMeans::Limit,
        _ if takes_advice() => SwapMeans::Advice,
        _ => SwapMeans::None,
    }
}

/// How memory that is moved out by these means can be swapped now.
pub fn swap_space(by: SwapMeans) -> NodeSwap {
    let SwapSpace { total_bytes, free_bytes } = SwapSpace::read();
    NodeSwap { by, total_bytes, free_bytes }
}

/// By what devices are closed to jobs that have a cgroup: `bpf`, `v1`, or `none`.
pub fn device_control(top: &Path) -> &'static str {
    let by_v1 = || Cgroup::open(top).and_then(|group| group.check_devices_in_v1()).is_ok();
    match tutti_linux::device_control::check() {
        Ok(()) => "bpf",
        Err(_) if by_v1() => "v1",
        Err(_) => "none",
    }
}

/// What holds with or without cgroups.
pub fn of_this_machine() -> AgentStatus {
    static IPC: OnceLock<String> = OnceLock::new();
    let allowance = Allowance::read();
    let none = || limit_name(LimitBy::None).to_owned();
    AgentStatus {
        uid: nix::unistd::geteuid().as_raw(),
        kernel: kernel::release(),
        container: container::kind().unwrap_or_default(),
        systemd: is_systemd_here(),
        cpus: u32::try_from(allowance.processors().len()).unwrap_or(u32::MAX),
        quota_milli: allowance.quota_milli,
        memory_bytes: allowance.memory_of(proc::memory_total_bytes().unwrap_or(0)),
        layout: layout().name().into(),
        births: none(),
        kills: "signals".into(),
        memory_limit: none(),
        process_limit: none(),
        processors: none(),
        weight: none(),
        device_control: none(),
        swap: swap_space(swap_means(None)),
        gpus: u32::try_from(tutti_linux::devices::gpus().len()).unwrap_or(u32::MAX),
        ipc: IPC.get_or_init(ipc).clone(),
        ends_at_logout: is_systemd_here()
            && Unit::own().is_some_and(|unit| is_of_a_user(unit.group()))
            && ends_with_session(),
        ..AgentStatus::default()
    }
}

fn set_limits(status: &mut AgentStatus, limits: LimitSupport) {
    let name = |by| limit_name(by).to_owned();
    status.memory_limit = name(limits.memory);
    status.process_limit = name(limits.processes);
    status.processors = name(limits.processors);
    status.weight = name(limits.weight);
}

/// Whether this group is below a user's service manager.
fn is_of_a_user(group: &Path) -> bool {
    group.ancestors().any(|it| it.ends_with("user.slice"))
}

/// Whether an IPC namespace can be made; tried.
fn ipc() -> String {
    match Maker::new().take() {
        Ok(_) => "yes".into(),
        Err(error) => format!("no: {error}"),
    }
}

/// What a delegated unit of a service manager has, by the controllers that the manager can hand
/// down; nothing is made.
pub fn of_unit_below(group: &Path) -> Option<AgentStatus> {
    let offered = std::fs::read_to_string(group.join("cgroup.controllers")).ok()?;
    let has = |name: &str| offered.split_whitespace().any(|it| it == name);
    let by = |name: &str| if has(name) { LimitBy::V2 } else { LimitBy::None };
    let mut status = of_this_machine();
    set_limits(
        &mut status,
        LimitSupport {
            memory: by("memory"),
            processes: by("pids"),
            weight: by("cpu"),
            processors: by("cpuset"),
        },
    );
    status.cgroup = group.display().to_string();
    status.freezer = true;
    status.ends_at_logout = is_of_a_user(group) && ends_with_session();
    status.memory_counted = has("memory");
    status.io_counted = has("io");
    Some(status)
}
