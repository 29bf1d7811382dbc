//! What is believed of a user on another node.
//!
//! The user's machine says which user it is. Where the head trusts root of that machine, all of it
//! counts. Where not, only the number of the user does, and never root's: groups and limits are
//! rights that root there could make up, so they are what this machine knows of that user. A user
//! that this machine does not know has one group by the word of a node, and no job from a client
//! machine.

use super::error::Problem;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use std::collections::BTreeMap;
use std::ffi::CString;
use tutti_node::platform::time::monotonic_ns;
use tutti_wire::branch::{Vouch, is_client};
use tutti_wire::code::Code;
use tutti_wire::launch::Credentials;

/// The groups below are the system's own, by custom: `disk`, `shadow`, `docker`.
const USERS_GID_MIN: u32 = 1000;

/// For how long it holds what this machine has said of a user.
const KEPT_NS: u64 = 60_000_000_000;

/// Of so many users it is kept what was said.
const USERS_MAX: usize = 4096;

/// What this machine knows of a user.
#[derive(Clone, Debug)]
struct Account {
    gid: u32,
    groups: Vec<u32>,
}

/// What this machine has said lately of users that others vouched for; nothing: that it does not
/// know the user. To ask it may take long where a directory server has the answer, and no other
/// client is served meanwhile.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    said: BTreeMap<u32, (u64, Option<Account>)>,
}

impl Accounts {
    /// The user that the jobs run as.
    ///
    /// # Errors
    /// If the machine's word does not do, or the user is unknown.
    pub(super) fn credentials(&mut self, vouch: &Vouch) -> Result<Credentials, Problem> {
        let Vouch { uid, gid, .. } = *vouch;
        if vouch.is_trusted {
            return Ok(Credentials { uid, gid, groups: vouch.groups.clone() });
        }
        let known = self.known(uid, monotonic_ns(), look_up)?;
        let Some(Account { gid: own, groups }) = known else {
            return unknown(uid, gid, is_client(vouch.node));
        };
        // The user may have chosen another of the user's groups.
        let gid = if groups.contains(&gid) { gid } else { own };
        Ok(Credentials { uid, gid, groups })
    }

    fn known(
        &mut self,
        uid: u32,
        now_ns: u64,
        look_up: impl FnOnce(u32) -> Result<Option<Account>, Problem>,
    ) -> Result<Option<Account>, Problem> {
        let holds = |said_ns: u64| now_ns.saturating_sub(said_ns) < KEPT_NS;
        if let Some((_, account)) = self.said.get(&uid).filter(|(said_ns, _)| holds(*said_ns)) {
            return Ok(account.clone());
        }
        let account = look_up(uid)?;
        self.said.retain(|_, (said_ns, _)| holds(*said_ns));
        if self.said.len() < USERS_MAX {
            self.said.insert(uid, (now_ns, account.clone()));
        }
        Ok(account)
    }
}

fn look_up(uid: u32) -> Result<Option<Account>, Problem> {
    let user = User::from_uid(Uid::from_raw(uid)).map_err(|error| cannot_look_up(uid, error))?;
    let Some(user) = user else { return Ok(None) };
    let name = CString::new(user.name).map_err(|error| cannot_look_up(uid, error))?;
    let groups = getgrouplist(&name, user.gid).map_err(|error| cannot_look_up(uid, error))?;
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Ok(Some(Account { gid: user.gid.as_raw(), groups }))
}

fn unknown(uid: u32, gid: u32, is_client: bool) -> Result<Credentials, Problem> {
    if is_client {
        let reason = format!(
            "the head knows no user {uid}, and takes no group from a client machine: make the user \
             known at the head"
        );
        return Err(Problem::new(Code::NotAllowed, reason));
    }
    if gid >= USERS_GID_MIN {
        return Ok(Credentials { uid, gid, groups: Vec::new() });
    }
    let reason = format!(
        "the head knows no user {uid}, and does not take group {gid} from a machine whose root it \
         does not trust: make the user known there, or have the machine join by what `tutti invite --admin` \
         prints"
    );
    Err(Problem::new(Code::NotAllowed, reason))
}

fn cannot_look_up(uid: u32, error: impl std::error::Error) -> Problem {
    Problem::new(Code::System, format!("cannot look up the groups of user {uid}: {error}"))
}

/// Lowers the limits of the user's tasks to those that this instance has, where more would be the
/// machine's word.
pub(super) fn lower_limits(vouch: &Vouch, here: &[u64], limits: &mut [(u32, u64, u64)]) {
    if vouch.is_trusted {
        return;
    }
    for (resource, soft, hard) in limits {
        if let Some(&most) = here.get(*resource as usize) {
            *soft = most.min(*soft);
            *hard = most.min(*hard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::NodeId;
    use tutti_wire::branch::client_number;

    fn vouch(uid: u32, gid: u32, is_trusted: bool) -> Vouch {
        let (node, groups, hard_limits) = (NodeId(1), vec![gid, 6, 42], Vec::new());
        Vouch { node, uid, gid, groups, pid: 1, hard_limits, is_trusted }
    }

    /// No system has such a user.
    const UNKNOWN: u32 = 0x7fff_fff0;

    #[test]
    fn groups_count_only_by_the_word_of_a_machine_whose_root_is_trusted() {
        let believed = |uid, gid, is_trusted| {
            let who = Accounts::default().credentials(&vouch(uid, gid, is_trusted)).ok()?;
            Some((who.gid, who.groups))
        };
        assert_eq!(believed(UNKNOWN, 0, true), Some((0, vec![0, 6, 42])));
        assert_eq!(believed(UNKNOWN, 1000, false), Some((1000, vec![])));
        assert_eq!(believed(UNKNOWN, 999, false), None);
        assert_eq!(believed(UNKNOWN, 0, false), None);
        let of_client = Vouch { node: client_number(0), ..vouch(UNKNOWN, 1000, false) };
        assert!(Accounts::default().credentials(&of_client).is_err());
        // A user in the list of users here is in the groups that the list has.
        let here = User::from_uid(Uid::from_raw(65534)).unwrap();
        if let Some(nobody) = here {
            let (gid, groups) = believed(65534, 0, false).unwrap();
            assert_eq!(gid, nobody.gid.as_raw());
            assert!(groups.contains(&gid) && !groups.contains(&42), "{groups:?}");
        }
    }

    #[test]
    fn what_was_said_of_a_user_holds_for_a_while_and_is_not_asked_for_again() {
        let mut accounts = Accounts::default();
        let mut asked = Vec::new();
        let mut known = |uid: u32, now_s: u64| {
            let account = accounts.known(uid, now_s * 1_000_000_000, |uid| {
                asked.push((uid, now_s));
                Ok((uid != UNKNOWN).then(|| Account { gid: uid, groups: vec![uid] }))
            });
            account.ok().flatten().map(|account| account.gid)
        };
        assert_eq!((known(7, 100), known(7, 159), known(7, 161)), (Some(7), Some(7), Some(7)));
        // An unknown user could have it be asked for ever, too.
        assert_eq!((known(UNKNOWN, 161), known(UNKNOWN, 162)), (None, None));
        assert_eq!(asked, [(7, 100), (7, 161), (UNKNOWN, 161)]);
    }

    #[test]
    fn limits_are_those_of_here_or_lower() {
        let lowered = |is_trusted| {
            let mut limits = [(0, 5, u64::MAX), (1, 1, 2), (2, 7, 7)];
            lower_limits(&vouch(UNKNOWN, 1000, is_trusted), &[9, 9, 0], &mut limits);
            limits
        };
        assert_eq!(lowered(false), [(0, 5, 9), (1, 1, 2), (2, 0, 0)]);
        assert_eq!(lowered(true), [(0, 5, u64::MAX), (1, 1, 2), (2, 7, 7)]);
    }
}
