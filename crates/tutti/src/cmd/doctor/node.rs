//! What an agent reports of its node, or an instance that does not run would have, as findings.

use super::finding::{Finding, Fix};
use crate::cmd::job_range::user_name;
use nix::unistd::Uid;
use tutti_client::output::counted;
use tutti_node::service::has_manager;
use tutti_wire::report::{AgentStatus, NodeSwap, SwapMeans};
use tutti_wire::units::format_bytes;

/// Gives a user's own units all controllers.
const DROP_IN: &str = "\
mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' \\
  >/etc/systemd/system/user@.service.d/delegate.conf
systemctl daemon-reload    # then log in anew, `tutti down`";

/// Gives the controllers of v1 to v2.
const UNIFIED: &str = "boot with systemd.unified_cgroup_hierarchy=1";
const NO_V1: &str = "boot with cgroup_no_v1=all, and mount cgroup v2 at /sys/fs/cgroup";

const CONTAINER: &str = "give the container a writable cgroup: docs/admin/containers.md";

/// What there is nothing of without cgroups.
const NEED_CGROUPS: [&str; 6] = ["memory", "processes", "affinity", "cpu", "accounts", "devices"];

/// A node, and what of its surroundings decides on what can be done.
pub(super) struct Node<'a> {
    pub(super) status: &'a AgentStatus,
    /// Whether the instance is a user's own.
    pub(super) private: bool,
    /// Whether it is one of several.
    pub(super) several: bool,
}

impl Node<'_> {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![
            self.machine(),
            self.tracking(),
            self.limit("memory", &self.status.memory_limit),
            self.limit("processes", &self.status.process_limit),
            self.affinity(),
            self.weight(),
            self.accounts(),
            self.swap(),
            self.devices(),
            self.priority(),
            self.births(),
            self.ipc(),
        ];
        if !self.status.freezer {
            for finding in &mut findings {
                finding.implied = NEED_CGROUPS.contains(&finding.topic);
            }
        }
        findings.extend(self.logout());
        if self.several {
            for finding in &mut findings {
                finding.nodes.push(self.status.node.clone());
            }
        }
        findings
    }

    fn machine(&self) -> Finding {
        let AgentStatus { kernel, cpus, memory_bytes, quota_milli, container, .. } = self.status;
        let quota = quota_milli.map_or(String::new(), |milli| {
            format!(" (a quota leaves time for {}.{:03})", milli / 1000, milli % 1000)
        });
        let cpus = counted(u64::from(*cpus), "CPU");
        let memory = format_bytes(*memory_bytes);
        let manager = if self.status.systemd { ", systemd" } else { "" };
        let place = match container.as_str() {
            "" => String::new(),
            kind => format!(", in a container ({kind})"),
        };
        let text = format!("Linux {kernel}, {cpus}{quota}, {memory}{manager}{place}");
        let layout = match self.status.layout.as_str() {
            "v2" => "cgroup v2",
            "hybrid" => "cgroup v2 beside v1, which has the controllers",
            "v1" => "cgroup v1 alone",
            _ => "no cgroups mounted",
        };
        Finding::good("machine", text).detail(layout)
    }

    fn tracking(&self) -> Finding {
        let AgentStatus { cgroup, births, kills, .. } = self.status;
        if !self.status.freezer {
            let text = "no cgroup can be written: tasks are stopped by signals, no limit is enforced, \
                        and a task that becomes another user escapes";
            return Finding::fair("tracking", "cgroups", text)
                .detail(format!("a task that kills its supervisor escapes as well\n{cgroup}"))
                .fix(self.cgroup_fixes());
        }
        let mut detail = vec![format!("in {cgroup}")];
        detail.push(if self.status.uid == 0 {
            "no process can leave its task".into()
        } else {
            "a task of the same user can leave its cgroup on purpose; it is brought back within a \
             second, and ended with its job at the latest"
                .into()
        });
        detail.extend(match births.as_str() {
            "clone3" => Some("tasks are made in their cgroups (clone3)".to_owned()),
            "moved" => Some(
                "tasks move into their cgroups before they run: this kernel, or a filter of the \
                 container, has no clone3 (Linux 5.7)"
                    .into(),
            ),
            _ => None,
        });
        detail.extend(match kills.as_str() {
            "cgroup.kill" => Some("cgroups are killed by cgroup.kill".to_owned()),
            "signals" if births != "none" => {
                Some("cgroups are killed by signals: no cgroup.kill (Linux 5.14)".into())
            }
            _ => None,
        });
        Finding::good("tracking", "tasks have cgroups, and are frozen while others run")
            .detail(detail.join("\n"))
    }

    /// How jobs get cgroups where there are none.
    fn cgroup_fixes(&self) -> Vec<Fix> {
        let gives = "give jobs cgroups";
        let AgentStatus { uid, systemd, container, layout, .. } = self.status;
        if !container.is_empty() && container != "wsl" {
            return vec![Fix::root(gives, CONTAINER)];
        }
        if layout == "v1" || layout == "none" {
            return vec![Fix::root(gives, self.unified())];
        }
        if *uid == 0 {
            return Vec::new();
        }
        let mut fixes = vec![Fix::root("run an instance for all users", "sudo tutti up")];
        if *systemd {
            // The instance was started before this session, or the manager refused.
            let steps = match has_manager() {
                true => {
                    "your systemd runs, and made no unit when the instance started (its log says why): \
                     `tutti down`, then start again"
                }
                false => "log in (ssh, console, not su), then `tutti down` and start again",
            };
            fixes.insert(0, Fix::you("have your own systemd make cgroups", steps));
        } else {
            let shell = std::os::unix::process::parent_id();
            let group = format!("/sys/fs/cgroup/of-{uid}");
            let steps = format!(
                "mkdir -p {group} && chown -R {uid} {group}\necho {shell} >{group}/cgroup.procs\n\
                 # then `tutti down; tutti up` in this shell, {shell}"
            );
            fixes.push(Fix::root("give this shell a subtree of cgroups", steps));
        }
        fixes
    }

    const fn unified(&self) -> &'static str {
        if self.status.systemd { UNIFIED } else { NO_V1 }
    }

    /// How a controller that is missing is had.
    fn controller_fix(&self, gives: &str) -> Option<Fix> {
        let AgentStatus { freezer, uid, systemd, container, layout, .. } = self.status;
        // Without any cgroup, that is what is missing.
        if !freezer {
            return None;
        }
        Some(match (container.as_str(), layout.as_str()) {
            ("" | "wsl", "v2") if *uid != 0 && *systemd => Fix::root(gives, DROP_IN),
            ("" | "wsl", "hybrid" | "v1") => Fix::root(gives, self.unified()),
            ("" | "wsl", _) => Fix::root(
                gives,
                "write +cpu +cpuset +io +memory +pids to cgroup.subtree_control above it",
            ),
            _ => Fix::root(gives, CONTAINER),
        })
    }

    /// `-m` or `--max-processes`.
    fn limit(&self, topic: &'static str, by: &str) -> Finding {
        let (option, loss, controller) = match topic {
            "memory" => ("-m", "memory limits", "memory"),
            _ => ("--max-processes", "process limits", "pids"),
        };
        if by != "none" {
            let text = format!("{option} is enforced by the kernel");
            return Finding::good(topic, text)
                .detail(format!("controller {controller}, cgroup {by}"));
        }
        let text = match topic {
            "memory" => {
                "-m is not enforced; it only decides which jobs fit together (controller memory)"
            }
            _ => "--max-processes is not enforced (controller pids)",
        };
        Finding::fair(topic, loss, text).fix(self.controller_fix(&format!("enforce {option}")))
    }

    fn affinity(&self) -> Finding {
        let by = &self.status.processors;
        if by != "none" {
            let text = "jobs are held to their CPUs by the kernel";
            return Finding::good("affinity", text)
                .detail(format!("controller cpuset, cgroup {by}"));
        }
        let text = "a job that leaves its CPUs (taskset, mpirun) is brought back only within a second \
                    (controller cpuset)";
        Finding::minor("affinity", text).fix(self.controller_fix("hold jobs to their CPUs"))
    }

    fn weight(&self) -> Finding {
        let by = &self.status.weight;
        if by != "none" {
            let text = "jobs with control=priority make way by their weight";
            return Finding::good("cpu", text).detail(format!("controller cpu, cgroup {by}"));
        }
        let text = "jobs with control=priority are frozen instead of making way (controller cpu)";
        Finding::minor("cpu", text).fix(self.controller_fix("let jobs make way by weight"))
    }

    fn devices(&self) -> Finding {
        let AgentStatus { gpus, device_control, uid, .. } = self.status;
        let found = match gpus {
            0 => "no GPU found".to_owned(),
            count => format!("{} found", counted(u64::from(*count), "GPU")),
        };
        if device_control != "none" {
            let text = format!("{found}; devices of a job are closed to other jobs");
            let by = match device_control.as_str() {
                "v1" => "by the controller devices of cgroup v1",
                _ => "by a BPF program at each job's cgroup",
            };
            let detail = format!("{by}; `tutti nodes device` lists them");
            return Finding::good("devices", text).detail(detail);
        }
        let text = format!("{found}; nothing closes devices of a job to other jobs");
        let why = match uid {
            0 => {
                "this kernel loads no program of the kind BPF_PROG_TYPE_CGROUP_DEVICE \
                  (CONFIG_CGROUP_BPF) and has no controller devices of cgroup v1, or no cgroup of \
                  v2 can be written"
            }
            _ => "only an instance of root can close them",
        };
        match gpus {
            0 => Finding::good("devices", found).detail(format!("nothing would close them: {why}")),
            _ => Finding::minor("devices", text).detail(why),
        }
    }

    /// `--swap`.
    fn swap(&self) -> Finding {
        let NodeSwap { by, total_bytes, free_bytes } = self.status.swap;
        let way = match by {
            SwapMeans::Reclaim => "by memory.reclaim of each job's cgroup",
            SwapMeans::Limit => {
                "by the memory limit of each job's cgroup, lowered while it is frozen"
            }
            SwapMeans::Advice => "by advice for each mapping of a job's processes",
            SwapMeans::None => {
                let text = "memory of suspended jobs can't be swapped out: no controller memory, and \
                            this user may not advise the kernel about other processes";
                return Finding::minor("swap", text);
            }
        };
        if total_bytes == 0 {
            let text = "no swap space: of jobs with --swap only pages of files leave";
            return Finding::good("swap", text).detail(format!("{way}; swapon adds swap space"));
        }
        let (free, total) = (format_bytes(free_bytes), format_bytes(total_bytes));
        let text =
            format!("suspended jobs with --swap leave memory; {free} of {total} swap are free");
        Finding::good("swap", text).detail(way)
    }

    fn accounts(&self) -> Finding {
        let AgentStatus { memory_counted, io_counted, .. } = self.status;
        let kinds = [
            (memory_counted, "the memory of jobs without -m"),
            (io_counted, "what jobs read and write (controller io)"),
        ];
        let unknown: Vec<&str> =
            kinds.iter().filter_map(|(counted, kind)| (!**counted).then_some(*kind)).collect();
        if unknown.is_empty() {
            return Finding::good("accounts", "the kernel counts all that jobs use");
        }
        let detail = "`tutti history` shows what is known of single processes, with >= or ?; memory takes a cgroup \
                      and Linux 5.19, I/O takes CAP_NET_ADMIN outside of containers, or the controller io";
        Finding::minor("accounts", format!("the kernel does not count {}", unknown.join(", or ")))
            .detail(detail)
            .fix(self.controller_fix("count all that jobs use"))
    }

    fn priority(&self) -> Finding {
        let realtime = &self.status.realtime;
        if realtime == "yes" {
            return Finding::good("priority", "the switch thread has real-time priority");
        }
        let text = "the switch thread has no real-time priority: a switch of busy jobs may take \
                    milliseconds";
        let steps = match (self.status.uid, self.status.container.is_empty()) {
            (_, false) => "run the container with --cap-add SYS_NICE".to_owned(),
            (0, true) => "allow it: CAP_SYS_NICE, or LimitRTPRIO=99 in the unit".to_owned(),
            (uid, true) => {
                let name = user_name(Uid::from_raw(uid));
                format!(
                    "echo '{name} - rtprio 99' >/etc/security/limits.d/tutti.conf\n# then log in anew"
                )
            }
        };
        Finding::minor("priority", text)
            .detail(realtime.trim_start_matches("no: "))
            .fix([Fix::root("make switches prompter", steps)])
    }

    fn births(&self) -> Finding {
        let events = &self.status.process_events;
        if events == "yes" {
            return Finding::good("births", "the kernel reports each process that begins or ends");
        }
        let text = "the kernel does not report processes; /proc is read once a second instead";
        let detail = "an orphan whose parent lived for less may be shown below the root of its task; \
                      Linux 6.6 and later report to all users, older ones to root, none within containers";
        let detail = format!("{}\n{detail}", events.trim_start_matches("no: "));
        Finding::minor("births", text).detail(detail)
    }

    fn ipc(&self) -> Finding {
        if self.status.ipc == "yes" {
            let text = "each job has its own System V IPC and message queues, which end with it";
            return Finding::good("ipc", text);
        }
        let text = "message queues and semaphores that jobs leave stay";
        let detail = format!(
            "no IPC namespaces: {}; `tutti doctor --leftovers` lists what is left",
            self.status.ipc.trim_start_matches("no: ")
        );
        Finding::minor("ipc", text).detail(detail)
    }

    /// Of a user's own instance where sessions decide on what lives.
    fn logout(&self) -> Option<Finding> {
        if !self.private || !self.status.systemd || self.status.uid == 0 {
            return None;
        }
        Some(if self.status.ends_at_logout {
            let text = "jobs end when you log out for the last time";
            let fix = Fix::you("keep jobs after logout", "loginctl enable-linger");
            Finding::minor("logout", text).fix([fix])
        } else {
            Finding::good("logout", "jobs go on after logout (lingering)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{By, Verdict};
    use super::*;

    /// A user's instance in a delegated unit, as Debian sets it up.
    fn of_a_user() -> AgentStatus {
        let yes = || "yes".to_owned();
        let v2 = || "v2".to_owned();
        AgentStatus {
            uid: 1000,
            systemd: true,
            layout: v2(),
            freezer: true,
            births: "clone3".into(),
            memory_limit: v2(),
            process_limit: v2(),
            weight: v2(),
            processors: "none".into(),
            memory_counted: true,
            realtime: "no: EPERM".into(),
            process_events: yes(),
            ipc: yes(),
            ends_at_logout: true,
            ..AgentStatus::default()
        }
    }

    fn findings(status: &AgentStatus) -> Vec<Finding> {
        Node { status, private: true, several: false }.findings()
    }

    fn find(findings: &[Finding], topic: &str) -> Finding {
        findings.iter().find(|it| it.topic == topic).cloned().unwrap()
    }

    #[test]
    fn a_user_with_the_usual_delegation_lacks_nothing_that_matters() {
        let found = findings(&of_a_user());
        assert!(found.iter().all(|it| it.verdict <= Verdict::Minor), "{found:?}");
        for (topic, controller) in [("affinity", "cpuset"), ("accounts", "io")] {
            let missing = find(&found, topic);
            assert_eq!(missing.verdict, Verdict::Minor, "{topic}");
            assert!(missing.text.contains(controller), "{}", missing.text);
            let [fix] = &missing.fixes[..] else { panic!("{topic}: {:?}", missing.fixes) };
            assert_eq!(fix.by, By::Root);
            assert!(fix.steps.contains("user@.service.d/delegate.conf"), "{}", fix.steps);
            assert!(fix.steps.contains("Delegate=cpu cpuset io memory pids"), "{}", fix.steps);
        }
        let logout = find(&found, "logout");
        assert_eq!(logout.fixes, [Fix::you("keep jobs after logout", "loginctl enable-linger")]);
    }

    #[test]
    fn each_controller_that_is_missing_is_named_with_what_is_lost() {
        let none = || "none".to_owned();
        let mut status = of_a_user();
        (status.memory_limit, status.process_limit, status.weight) = (none(), none(), none());
        let found = findings(&status);
        let expected = [
            ("memory", Verdict::Fair, "-m is not enforced"),
            ("processes", Verdict::Fair, "--max-processes is not enforced"),
            ("affinity", Verdict::Minor, "leaves its CPUs"),
            ("cpu", Verdict::Minor, "control=priority"),
            ("accounts", Verdict::Minor, "read and write"),
        ];
        let controllers = ["memory", "pids", "cpuset", "cpu", "io"];
        for ((topic, verdict, text), controller) in expected.into_iter().zip(controllers) {
            let missing = find(&found, topic);
            assert_eq!(missing.verdict, verdict, "{topic}");
            assert!(missing.text.contains(text), "{}", missing.text);
            assert!(
                missing.text.contains(&format!("controller {controller})")),
                "{}",
                missing.text
            );
            assert!(!missing.fixes.is_empty(), "{topic}");
        }
    }

    #[test]
    fn what_helps_depends_on_where_it_runs() {
        let steps = |change: fn(&mut AgentStatus), topic| {
            let mut status = of_a_user();
            change(&mut status);
            let fixes = find(&findings(&status), topic).fixes;
            fixes.iter().map(|fix| fix.steps.clone()).collect::<Vec<_>>().join("\n")
        };
        let hybrid = steps(|it| (it.layout, it.systemd) = ("hybrid".into(), false), "accounts");
        assert_eq!(hybrid, NO_V1);
        let container = |it: &mut AgentStatus| it.container = "docker".into();
        assert_eq!(steps(container, "affinity"), CONTAINER);
        let none = |it: &mut AgentStatus| it.freezer = false;
        let helps = steps(none, "tracking");
        assert!(helps.contains("log in") && helps.contains("sudo tutti up"), "{helps}");
        assert_eq!(steps(none, "affinity"), "", "the cgroup comes first");
        let bare = steps(|it| (it.freezer, it.systemd) = (false, false), "tracking");
        assert!(bare.contains("chown -R 1000 /sys/fs/cgroup/of-1000"), "{bare}");
    }
}
