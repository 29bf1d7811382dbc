//! Which users may submit jobs, and from which machines: while nothing is granted, all users may,
//! from everywhere; then only those with a grant. Root always may.
//!
//! Which machine a request comes from, and which machines a list of names means, only the driver
//! knows; so it asks here before it hands a request in.

use crate::apply::Core;
use tutti_types::access::{Access, Grantee, Origin};
use tutti_types::ids::{GroupId, UserId};

impl Core {
    /// What is granted; nothing: all users may submit jobs.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// Whether a user that is in these groups may submit jobs, where `is_there` says whether the
    /// machine of the request is in a list.
    pub fn may_submit(
        &self,
        user: UserId,
        mut groups: impl Iterator<Item = GroupId>,
        is_there: impl Fn(&str) -> bool,
    ) -> bool {
        let from_there = |grantee| match self.access.get(&grantee) {
            Some(Origin::Anywhere) => true,
            Some(Origin::Machines(list)) => is_there(list),
            None => false,
        };
        self.access.is_empty()
            || user.0 == 0
            || from_there(Grantee::Everybody)
            || from_there(Grantee::User(user))
            || groups.any(|group| from_there(Grantee::Group(group)))
    }

    /// An administrator grants something, or takes it back.
    pub(crate) fn on_set_access(&mut self, grantee: Grantee, origin: Option<&Origin>) {
        match origin {
            Some(origin) => self.access.insert(grantee, origin.clone()),
            None => self.access.remove(&grantee),
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::Core;
    use tutti_types::access::{Grantee, Origin};
    use tutti_types::class::default_classes;
    use tutti_types::ids::{GroupId, UserId};
    use tutti_types::params::Params;

    fn may(core: &Core, user: u32, groups: &[u32], machine: &str) -> bool {
        let groups = groups.iter().copied().map(GroupId);
        core.may_submit(UserId(user), groups, |list| list == machine)
    }

    #[test]
    fn nobody_is_shut_out_before_something_is_granted_and_root_never() {
        let mut core = Core::new(Params::default(), default_classes());
        assert!(may(&core, 7, &[], "a"));
        core.on_set_access(Grantee::User(UserId(8)), Some(&Origin::Anywhere));
        assert!(may(&core, 8, &[], "a") && may(&core, 0, &[], "a"));
        assert!(!may(&core, 7, &[8], "a"), "a group of the same number is not the user");
        core.on_set_access(Grantee::User(UserId(8)), None);
        assert!(may(&core, 7, &[], "a"));
    }

    #[test]
    fn who_is_granted_more_than_once_has_all_of_it() {
        let mut core = Core::new(Params::default(), default_classes());
        let machines = |list: &str| Origin::Machines(list.into());
        core.on_set_access(Grantee::Everybody, Some(&machines("login")));
        core.on_set_access(Grantee::Group(GroupId(5)), Some(&machines("a")));
        assert!(may(&core, 7, &[], "login") && !may(&core, 7, &[], "a"));
        assert!(may(&core, 7, &[4, 5], "login") && may(&core, 7, &[4, 5], "a"));
        assert!(!may(&core, 7, &[4, 5], "b"));
    }
}
