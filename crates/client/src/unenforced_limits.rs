//! What was asked for, and nothing can hold tasks to.

use super::connect::dial;
use super::void_options::Conditional;
use nix::unistd::geteuid;
use tutti_linux::peer::peer_credentials;
use tutti_linux::rt::nice_of;
use tutti_node::instance::Instance;
use tutti_node::link::Link;
use tutti_wire::code::Code;
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::report::{AgentStatus, StatusReport};

const OPEN_DEVICES: &str = "other jobs can open this job's devices, since nothing closes them there; \
                            `tutti doctor` says what would";

/// Limits that a job asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    memory: bool,
    processes: bool,
    devices: bool,
    nice: i32,
    conditional: Conditional,
}

impl Asked {
    /// What a request asks for.
    pub fn of(request: &JobRequest) -> Self {
        Self {
            memory: request.memory_per_task_bytes.is_some(),
            processes: request.launch.processes_max.is_some(),
            devices: request.resources.iter().any(|wish| wish.devices().is_some()),
            nice: request.launch.nice,
            conditional: Conditional::of(request),
        }
    }

    /// Says which of them the kernel will not hold tasks to. Of limits, only a user's own instance
    /// may lack the means: root's has them, or `tutti doctor` shows how to change that. Also says
    /// which options have no effect.
    /// `controller`: a connection, where there is one.
    pub fn say_unheld(self, controller: Option<&Link>) {
        let instance = Instance::locate();
        self.conditional.say_void(&instance);
        if instance.private {
            self.say_niced(controller, &instance);
        } else if !self.devices {
            return;
        }
        if !(self.memory || self.processes || self.devices) {
            return;
        }
        // A keeper that does not answer now is no reason to give up a job that is accepted.
        let Ok(mut link) = dial(&instance) else { return };
        link.send(&Request::Status);
        if let Ok(Reply::Status(status)) = link.call()
            && let Some(text) = self.unheld(&status)
        {
            say!("tutti: {}", Code::GoesWithout.mark(&text));
        }
    }

    /// Says that tasks get a higher nice value than their user has here: only root can lower that
    /// of an instance.
    fn say_niced(self, controller: Option<&Link>, instance: &Instance) {
        if geteuid().is_root() {
            return;
        }
        let own = if controller.is_none() { dial(instance).ok() } else { None };
        let Some(controller) = controller.or(own.as_ref()) else { return };
        let daemons = peer_credentials(controller.stream()).map(|peer| nice_of(peer.pid));
        if let Ok(nice) = daemons
            && nice > self.nice
        {
            let text = format!(
                "the job has nice value {nice} and not {}: its instance was started with that, and only root could \
                 lower it. `tutti down` ends the instance; the next job then starts one from here",
                self.nice
            );
            say!("tutti: {}", Code::GoesWithout.mark(&text));
        }
    }

    fn unheld(self, status: &StatusReport) -> Option<String> {
        let is_none = |limit: fn(&AgentStatus) -> &String| {
            status.agents.iter().any(|agent| limit(agent) == "none")
        };
        let options: Vec<&str> = [
            ("-m", self.memory && is_none(|agent| &agent.memory_limit)),
            ("--max-processes", self.processes && is_none(|agent| &agent.process_limit)),
        ]
        .into_iter()
        .filter_map(|(option, is_unheld)| is_unheld.then_some(option))
        .collect();
        if self.devices && is_none(|agent| &agent.device_control) {
            return Some(OPEN_DEVICES.into());
        }
        (!options.is_empty()).then(|| {
            format!(
                "nothing holds tasks to {} in this instance of your own; `tutti doctor` says what would",
                options.join(" and ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_and_is_not_held_is_said() {
        let agent = |memory: &str, processes: &str| AgentStatus {
            memory_limit: memory.into(),
            process_limit: processes.into(),
            ..AgentStatus::default()
        };
        let said = |memory, processes, agent| {
            let status = StatusReport { agents: vec![agent], ..StatusReport::default() };
            let conditional = Conditional::default();
            let asked = Asked { memory, processes, devices: false, nice: 0, conditional };
            asked.unheld(&status).unwrap_or_default()
        };
        assert!(said(true, false, agent("none", "none")).contains("to -m in"));
        assert!(said(true, true, agent("none", "none")).contains("to -m and --max-processes in"));
        assert_eq!(said(true, true, agent("v2", "v2")), "");
        assert_eq!(said(false, true, agent("none", "v2")), "");
    }
}
