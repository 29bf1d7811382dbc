//! `tutti resource`: how many of each counted resource there are.

use super::driver::Driver;
use super::error::Problem;
use tutti_core::{Event, JobState};
use tutti_types::limits::{RESOURCE_COUNT_MAX, RESOURCES_MAX};
use tutti_types::{ResourceName, ResourceSpec};
use tutti_wire::local::Reply;
use tutti_wire::report::ResourceReport;

impl Driver {
    pub(super) fn reply_resources(&mut self, token: u64) {
        let now = self.now();
        let mut reports: Vec<(ResourceName, ResourceReport)> = Vec::new();
        for view in self.core.resources() {
            let ResourceSpec { count, jobs_each, lent } = view.spec;
            let resource = view.name.to_string();
            let (in_use, jobs, queued) = (view.in_use, 0, 0);
            let report = ResourceReport { resource, count, in_use, jobs_each, lent, jobs, queued };
            reports.push((view.name, report));
        }
        for view in self.core.jobs(now).filter(|view| !view.spec.resources.is_empty()) {
            let waits = matches!(view.state, JobState::Queued { .. });
            for (name, report) in &mut reports {
                let asks = view.spec.resources.iter().any(|wish| wish.name == *name);
                let has = view.resources.iter().any(|grant| grant.name == *name);
                report.queued += u32::from(waits && asks);
                report.jobs += u32::from(has);
            }
        }
        let reports = reports.into_iter().map(|(_, report)| report).collect();
        self.reply(token, &Reply::Resources(reports));
    }

    pub(super) fn on_set_resources(
        &mut self,
        token: u64,
        uid: u32,
        settings: &[(String, String)],
        (jobs_each, lent): (u32, bool),
    ) {
        let orders = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let order = |(name, count): &(String, String)| order(name, count, (jobs_each, lent));
            let orders = settings.iter().map(order).collect::<Result<Vec<_>, String>>()?;
            self.check_number(&orders)?;
            Ok(orders)
        });
        match orders {
            Ok(orders) => {
                for (name, spec) in orders {
                    self.apply(&Event::SetResource { name, spec });
                }
                self.reply_resources(token);
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// There may be so many resources.
    fn check_number(&self, orders: &[(ResourceName, ResourceSpec)]) -> Result<(), String> {
        let known = |name: &ResourceName| self.core.resources().any(|view| view.name == *name);
        let new = orders.iter().filter(|(name, spec)| spec.count > 0 && !known(name)).count();
        match self.core.resources().count() + new > RESOURCES_MAX {
            true => Err(format!(
                "there can be at most {RESOURCES_MAX} resources; remove one with NAME=none first"
            )),
            false => Ok(()),
        }
    }
}

/// What a setting asks for: a resource, and how many of it there are to be.
pub(super) fn order(
    name: &str,
    count: &str,
    (jobs_each, lent): (u32, bool),
) -> Result<(ResourceName, ResourceSpec), String> {
    let name = ResourceName::new(name).map_err(|error| error.to_string())?;
    let count = match count {
        "none" => 0,
        count => {
            count.parse().ok().filter(|&count| count <= RESOURCE_COUNT_MAX).ok_or_else(|| {
                format!("invalid count {count:?} of {name}: use none, or 0 to {RESOURCE_COUNT_MAX}")
            })?
        }
    };
    if jobs_each == 0 {
        return Err("a number of which no job may have any is none; use --jobs-each 1".into());
    }
    Ok((name, ResourceSpec { count, jobs_each, lent }))
}
