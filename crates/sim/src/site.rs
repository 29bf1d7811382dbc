//! What a site sets besides parameters, classes and hours: queues, weights, counted resources.

use crate::jobs::Job;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::Event;
use tutti_types::class::AfterUse;
use tutti_types::{
    Allowed, BankAccount, ClassName, GroupId, NodeId, NodeWish, QueueName, QueueSpec, ResourceName,
    ResourceSpec, ResourceWish, UserId,
};

/// A queue to which jobs of a workload may be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteQueue {
    /// Its name.
    pub name: QueueName,
    /// Its limits, defaults and users.
    pub spec: QueueSpec,
    /// The nodes on which its jobs run; `None`: any.
    pub nodes: Option<BTreeSet<NodeId>>,
}

/// See the module. Nothing of it: one line for all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Queues, which jobs name by their index.
    pub queues: Vec<SiteQueue>,
    /// The users of classes that not all may use, by the index of the class.
    pub class_users: BTreeMap<u16, Allowed>,
    /// The classes that jobs get by their use.
    pub class_after: Vec<(ClassName, AfterUse)>,
    /// How much more some users and groups may use than others.
    pub weights: Vec<(BankAccount, u32)>,
    /// How many there are of each counted resource.
    pub resources: Vec<(ResourceName, ResourceSpec)>,
    /// What each job of a class, or each job of all, has of them while it runs.
    pub uses: Vec<(Option<u16>, ResourceWish)>,
}

/// Why a job of a workload may not be submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// Its user may not use its queue.
    #[error("user {user} may not use queue {queue}")]
    Queue {
        /// The user.
        user: u32,
        /// The queue.
        queue: QueueName,
    },
    /// Its user may not use its class.
    #[error("user {0} may not use its class")]
    Class(u32),
}

impl Site {
    /// What tells a core of it.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let weights = self
            .weights
            .iter()
            .map(|&(account, weight)| Event::SetWeight { account, weight: Some(weight) });
        let resources =
            self.resources.iter().map(|&(name, spec)| Event::SetResource { name, spec });
        let queues = self.queues.iter().map(|queue| Event::SetQueue {
            name: queue.name.clone(),
            spec: Some(queue.spec.clone()),
        });
        let rules = self.class_after.iter().map(|(class, rule)| Event::SetClassAfter {
            class: class.clone(),
            rule: Some(rule.clone()),
        });
        weights.chain(resources).chain(queues).chain(rules)
    }

    /// The queue of a job.
    pub(crate) fn queue(&self, job: &Job) -> Option<&SiteQueue> {
        self.queues.get(usize::from(job.queue?))
    }

    /// Whether a job's user may use its queue and its class.
    pub(crate) fn check(&self, job: &Job) -> Result<(), NotAllowed> {
        let may = |allowed: &Allowed| {
            // 0 is not root here: it is an unknown user.
            let listed = allowed.users.contains(&UserId(job.user));
            allowed.is_all() || listed || allowed.groups.contains(&GroupId(job.group))
        };
        if let Some(SiteQueue { name, spec, .. }) = self.queue(job)
            && !may(&spec.allowed)
        {
            return Err(NotAllowed::Queue { user: job.user, queue: name.clone() });
        }
        match self.class_users.get(&job.class).is_none_or(may) {
            true => Ok(()),
            false => Err(NotAllowed::Class(job.user)),
        }
    }

    /// The nodes on which a job may run.
    pub(crate) fn nodes(&self, job: &Job) -> NodeWish {
        let among = self.queue(job).and_then(|queue| queue.nodes.clone());
        NodeWish { among, ..NodeWish::default() }
    }

    /// The counted resources that a job has while it runs.
    pub(crate) fn uses(&self, class: u16) -> impl Iterator<Item = ResourceWish> + '_ {
        let of_class = move |of: &Option<u16>| of.is_none_or(|of| of == class);
        self.uses.iter().filter(move |(of, _)| of_class(of)).map(|&(_, wish)| wish)
    }
}
