//! What a machine keeps of the cluster that it is part of: its name there, its credentials, where
//! the head is; and on the head, the authority and the tokens that were given out.
//!
//! The head is the machine with the controller. All of it lies in a directory that only the owner
//! of the instance can read, and that outlives the instance.

use crate::codes::coded;
use crate::instance::{Instance, may_run_instance};
use crate::state_dir::Directory;
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tutti_secure::{
    Admission, Authority, Clock, Credentials, Endpoint, Fingerprint, Key, Name, Role, Secret,
    Token, Tokens, UnixTime, Users,
};
use tutti_wire::code::Code;
use tutti_wire::limits::TRANSPORT_VERSION;

/// The port that agents listen at, unless another is named.
pub const PORT: u16 = 7716;

/// The file that is locked, in the directory of all this.
const LOCK: &str = "lock";

/// What a machine is in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The cluster's name.
    pub cluster: String,
    /// The machine's name in it.
    pub name: String,
    /// Where its agent listens for others, if it does: an address and a port.
    pub listen: Option<String>,
    /// Where others reach it.
    pub address: Option<String>,
    /// Where the head is reached; empty on the head itself.
    pub head: Vec<String>,
    /// Whether root of other machines is root in the cluster.
    pub trusts_root: bool,
    /// Whether it is a client machine: users submit there, and no task runs there.
    #[serde(default)]
    pub is_client: bool,
    /// How long the certificates are good for that the head signs, in seconds, if not as long as
    /// usual.
    #[serde(default)]
    pub certificates_s: Option<u64>,
}

/// What the head remembers of the machines that have joined.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Register {
    tokens: Tokens,
    /// When each machine was given its certificate, in seconds since 1970, by its name.
    members: BTreeMap<String, u64>,
    /// Those of them whose root is root in the cluster.
    #[serde(default)]
    admins: BTreeSet<String>,
    /// Those of them that are client machines, and the users that each may speak for.
    #[serde(default)]
    clients: BTreeMap<String, Users>,
    /// The fingerprints of the keys that each may show: that of its certificate, and while that is
    /// renewed those before and after.
    #[serde(default)]
    keys: BTreeMap<String, BTreeSet<Fingerprint>>,
}

impl Register {
    /// What a machine is to the cluster, if it is a member.
    fn role_of(&self, name: &str) -> Option<Role> {
        let role = match (self.admins.contains(name), self.clients.contains_key(name)) {
            (_, true) => Role::Client,
            (true, false) => Role::Admin,
            (false, false) => Role::Node,
        };
        self.members.contains_key(name).then_some(role)
    }

    /// A machine was given this certificate, and has joined.
    fn enter(&mut self, name: &Name, certificate: &[u8], now: UnixTime) -> anyhow::Result<()> {
        let key = Fingerprint::of_key_in(certificate)?;
        self.members.insert(name.to_string(), now.as_secs());
        self.keys.insert(name.to_string(), [key].into());
        Ok(())
    }
}

/// The members of the cluster, as its head has written it down: read again only when it was written
/// again, since thousands may join at once.
#[derive(Debug)]
pub struct Members {
    place: Place,
    /// Which file was read: each writing makes another.
    file: Option<(u64, SystemTime)>,
    register: Register,
}

impl Members {
    /// Those of the cluster that is kept there.
    pub fn of(place: Place) -> Self {
        Self { place, file: None, register: Register::default() }
    }

    /// Why a peer that has the certificate of this name, and of this role where that is known, and
    /// has shown this key, is none of the cluster, if so: another may have its name by now.
    pub fn objection(
        &mut self,
        name: &str,
        role: Option<Role>,
        key: Fingerprint,
    ) -> Option<String> {
        if crate::platform::processes::are_simulated() {
            return None;
        }
        self.read_again();
        let rejoin = "`tutti down` there ends what is left on it, `tutti leave` and a new token let it join again";
        let Some(known) = self.register.role_of(name) else {
            return Some(format!("node {name} was removed from the cluster; {rejoin}"));
        };
        let is_it = role.is_none_or(|role| role == known)
            && match self.register.keys.get(name) {
                Some(keys) => keys.contains(&key),
                // It joined when an earlier build wrote the register: the first to come is taken to
                // be it.
                None => self.place.note_key(name, key).is_ok(),
            };
        (!is_it).then(|| {
            format!(
                "the machine that comes as node {name} was removed from the cluster, or has an old copy of a certificate: another \
                 machine is that node; {rejoin}, by another name"
            )
        })
    }

    /// Whether a client machine may speak for a user of an instance that belongs to `owner`: never
    /// for root. The owner is not one of all ordinary users, and must be named.
    pub fn may_speak_for(&mut self, client: &str, uid: u32, owner: u32) -> bool {
        self.read_again();
        match self.register.clients.get(client) {
            Some(Users::All) => !may_run_instance(uid, owner),
            Some(Users::Only(users)) => uid != 0 && users.contains(&uid),
            None => false,
        }
    }

    /// The client machines, by name.
    pub fn clients(&mut self) -> impl Iterator<Item = (&String, &Users)> {
        self.read_again();
        self.register.clients.iter()
    }

    /// Whether there is a client machine of this name.
    pub fn is_client(&mut self, name: &str) -> bool {
        self.read_again();
        self.register.clients.contains_key(name)
    }

    fn read_again(&mut self) {
        let file = fs::metadata(self.place.path.join("register.json"));
        let file = file.and_then(|file| Ok((file.ino(), file.modified()?))).ok();
        if file.is_none() || file != self.file {
            self.register = self.place.register().unwrap_or_default();
            self.file = file;
        }
    }
}

/// Where it is kept.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    /// The state directory, if it lies there.
    within: Option<PathBuf>,
}

impl Place {
    /// That of an instance.
    pub fn of(instance: &Instance) -> Self {
        let within = instance.private.then(|| instance.directory().to_owned());
        Self { path: instance.cluster_directory(), within }
    }

    /// What is there, if anything. In another user's directory that user could have us read and
    /// write anything.
    fn open(&self) -> anyhow::Result<Option<Directory>> {
        let Some(within) = &self.within else { return Directory::open(&self.path) };
        Directory::open(within)?.map_or(Ok(None), |within| within.below(&self.path))
    }

    /// What this machine is; `None`: nothing but itself.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn membership(&self) -> anyhow::Result<Option<Membership>> {
        self.read("member.json")
    }

    /// Keeps what this machine is, which is a member or head already.
    ///
    /// # Errors
    /// If it is in no cluster any more, or the file can't be written.
    pub fn keep(&self, membership: &Membership) -> anyhow::Result<()> {
        // Another process may write the same file, over the same temporary one.
        let _lock = self.lock()?;
        self.put(membership)
    }

    /// Writes what this machine is; the caller holds the lock.
    fn put(&self, membership: &Membership) -> anyhow::Result<()> {
        self.write("member.json", membership)
    }

    /// The machine leaves the cluster: it has nothing of it any more.
    pub fn forget(&self) -> anyhow::Result<()> {
        self.open()?;
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Makes this machine the head of a new cluster; false if it is one, or a member, already.
    pub fn found(&self, membership: &Membership) -> anyhow::Result<bool> {
        self.begin(|| self.fill(membership))
    }

    /// Fills the directory of a machine that is in no cluster, with the file that says otherwise
    /// last; false if it is in one by now. Others may be about the same.
    fn begin(&self, fill: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<bool> {
        self.make()?;
        let _lock = self.lock()?;
        if self.membership()?.is_some() {
            return Ok(false);
        }
        for entry in fs::read_dir(&self.path)? {
            let file = entry?.path();
            // An interrupted process has left it.
            if !file.ends_with(LOCK) {
                fs::remove_file(&file)
                    .with_context(|| format!("cannot remove {}", file.display()))?;
            }
        }
        fill()?;
        Ok(true)
    }

    fn fill(&self, membership: &Membership) -> anyhow::Result<()> {
        let now = Clock::system().now();
        let (cluster, name) = (Name::new(&membership.cluster)?, Name::new(&membership.name)?);
        let mut authority = Authority::create(&cluster, now)?;
        authority.save(&self.path)?;
        if let Some(seconds) = membership.certificates_s {
            authority = authority.with_lifetime(Duration::from_secs(seconds));
        }
        let key = Key::generate()?;
        let certificate = authority.sign(&key.request()?, Role::Node, &name, now)?;
        Credentials::new(key, &certificate, authority.certificate())?.save(&self.path)?;
        let mut register = Register::default();
        register.enter(&name, &certificate, now)?;
        self.write("register.json", &register)?;
        self.put(membership)
    }

    /// Makes this machine a member; false if it is one, or a head, already.
    pub fn join(&self, membership: &Membership, credentials: &Credentials) -> anyhow::Result<bool> {
        self.begin(|| {
            credentials.save(&self.path)?;
            self.put(membership)
        })
    }

    /// What this machine shows to others.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        Ok(Credentials::load(&self.path)?)
    }

    /// Keeps what it shows from now on.
    pub fn keep_credentials(&self, credentials: &Credentials) -> anyhow::Result<()> {
        Ok(credentials.save(&self.path)?)
    }

    /// The authority, on the head.
    fn authority(&self) -> anyhow::Result<Authority> {
        let authority = Authority::load(&self.path)?;
        let lifetime_s = self.membership()?.and_then(|membership| membership.certificates_s);
        Ok(match lifetime_s {
            Some(seconds) => authority.with_lifetime(Duration::from_secs(seconds)),
            None => authority,
        })
    }

    /// Signs another certificate for a machine that is a member. Its connection has begun with the
    /// first of these keys, and it has the other by now; it may show any of the two until it has
    /// the new one, which may get lost on its way.
    ///
    /// # Errors
    /// If it is none any more, or the request is no good.
    pub fn sign_again(
        &self,
        name: &str,
        [shown, current]: [Fingerprint; 2],
        request: &[u8],
    ) -> anyhow::Result<Vec<u8>> {
        let authority = self.authority()?;
        self.with_register(|register| {
            let role = register.role_of(name).context("it was removed from the cluster")?;
            let keys = register.keys.entry(name.to_owned()).or_insert([shown, current].into());
            if !keys.contains(&shown) || !keys.contains(&current) {
                bail!("it was removed from the cluster, and another machine has its name");
            }
            let now = Clock::system().now();
            let certificate = authority.sign(request, role, &Name::new(name)?, now)?;
            *keys = [shown, current, Fingerprint::of_key_in(&certificate)?].into();
            Ok(certificate)
        })
    }

    /// Notes the key of a machine of which none is on record.
    fn note_key(&self, name: &str, key: Fingerprint) -> anyhow::Result<()> {
        self.with_register(|register| {
            let keys = register.keys.entry(name.to_owned()).or_insert([key].into());
            anyhow::ensure!(keys.contains(&key), "another was noted meanwhile");
            Ok(())
        })
    }

    /// This machine's end of connections with others.
    pub fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let credentials = self.credentials()?;
        Ok(Endpoint::new(&credentials, TRANSPORT_VERSION, Clock::system())?)
    }

    /// Gives out a token, for a machine that is to be this.
    pub fn invite(&self, admission: Admission, lifetime: Duration) -> anyhow::Result<Token> {
        let authority = Authority::load(&self.path)?;
        self.with_register(|register| {
            let now = Clock::system().now();
            let fingerprint = authority.fingerprint();
            Ok(register.tokens.issue(&fingerprint, admission, now, lifetime)?)
        })
    }

    /// Takes back an unused token.
    pub fn revoke(&self, token: &Token) -> anyhow::Result<()> {
        self.with_register(|register| {
            register.tokens.revoke(token.secret());
            Ok(())
        })
    }

    /// Takes back all unused tokens; how many those were.
    pub fn revoke_all(&self) -> anyhow::Result<u64> {
        self.with_register(|register| {
            let revoked = register.tokens.revoke_all(Clock::system().now());
            Ok(u64::try_from(revoked).unwrap_or(u64::MAX))
        })
    }

    /// Takes a token for a certificate: that, and the authority's. `as_client` is whether the
    /// newcomer takes itself for a client machine.
    ///
    /// # Errors
    /// What the newcomer should know.
    pub fn admit(
        &self,
        secret: &[u8],
        name: &str,
        request: &[u8],
        as_client: bool,
    ) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let name = Name::new(name)?;
        let secret: Secret = Secret::from_bytes(secret).context("the token is cut")?;
        let authority = self.authority()?;
        self.with_register(|register| {
            if register.members.contains_key(name.as_str()) {
                bail!(
                    "the cluster has a node named {name}: take another name with --name, or have \
                     that one removed with `tutti nodes remove {name}`"
                );
            }
            let now = Clock::system().now();
            // A bad request must not cost the token.
            authority.sign(request, Role::Node, &name, now)?;
            match (register.tokens.admission(&secret, now)?, as_client) {
                (Admission::Client(_), false) => {
                    bail!("the token is for a client machine: join with `tutti join --client`");
                }
                (Admission::Node | Admission::Admin, true) => bail!(
                    "the token is for a machine that runs tasks; `tutti invite --client` at the head \
                     prints one for a client machine"
                ),
                _ => {}
            }
            let admission = register.tokens.redeem(&secret, now)?;
            let certificate = authority.sign(request, admission.role(), &name, now)?;
            register.enter(&name, &certificate, now)?;
            match admission {
                Admission::Node => {}
                Admission::Admin => drop(register.admins.insert(name.to_string())),
                Admission::Client(users) => {
                    register.clients.insert(name.to_string(), users);
                }
            }
            Ok((certificate, authority.certificate().to_vec()))
        })
    }

    /// Gives machines certificates as if each had joined: for a benchmark that has thousands. Takes
    /// names and requests; gives the certificates and the authority's.
    pub fn enrol(&self, requests: &[(String, Vec<u8>)]) -> anyhow::Result<(Vec<Vec<u8>>, Vec<u8>)> {
        let (authority, now) = (Authority::load(&self.path)?, Clock::system().now());
        self.with_register(|register| {
            let mut certificates = Vec::new();
            for (name, request) in requests {
                let name = Name::new(name)?;
                let certificate = authority.sign(request, Role::Node, &name, now)?;
                register.enter(&name, &certificate, now)?;
                certificates.push(certificate);
            }
            Ok((certificates, authority.certificate().to_vec()))
        })
    }

    fn register(&self) -> anyhow::Result<Register> {
        Ok(self.read::<Register>("register.json")?.unwrap_or_default())
    }

    /// Gives a client machine other users; whether there is one of this name.
    ///
    /// # Errors
    /// If it can't be written down.
    pub fn set_users(&self, name: &str, users: Users) -> anyhow::Result<bool> {
        self.with_register(|register| {
            let known = register.clients.get_mut(name);
            Ok(known.map(|known| *known = users).is_some())
        })
    }

    /// A machine belongs to the cluster no more; whether it did.
    pub fn expel(&self, name: &str) -> anyhow::Result<bool> {
        if self.membership()?.is_none() {
            return Ok(false);
        }
        self.with_register(|register| {
            register.admins.remove(name);
            register.clients.remove(name);
            register.keys.remove(name);
            Ok(register.members.remove(name).is_some())
        })
    }

    fn with_register<T>(
        &self,
        change: impl FnOnce(&mut Register) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let _lock = self.lock()?;
        let mut register = self.register()?;
        let result = change(&mut register)?;
        self.write("register.json", &register)?;
        Ok(result)
    }

    /// No other process changes what is there, as long as that is held.
    fn lock(&self) -> anyhow::Result<Flock<File>> {
        let path = self.path.join(LOCK);
        let directory = self.open()?;
        let directory = directory.with_context(|| format!("{} is gone", self.path.display()))?;
        let file = directory.file(&path, OFlag::O_WRONLY | OFlag::O_CREAT);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?)
    }

    /// Makes the directory, unless it is there.
    ///
    /// # Errors
    /// If it can't be made, or others could have put something there.
    pub fn make(&self) -> anyhow::Result<()> {
        self.open()?;
        // Others may look for a journal there.
        if let Some(lasting) = self.path.parent().filter(|_| self.within.is_none()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(lasting)
                .with_context(|| format!("cannot make {}", lasting.display()))?;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .with_context(|| format!("cannot make {}", self.path.display()))?;
        self.open().map(drop)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let path = self.path.join(name);
        let Some(directory) = self.open()? else { return Ok(None) };
        let mut text = Vec::new();
        let file = directory.file(&path, OFlag::O_RDONLY);
        match file.and_then(|mut file| file.read_to_end(&mut text)) {
            Ok(_) => Ok(Some(serde_json::from_slice(&text).with_context(|| {
                format!(
                    "{} is damaged; restore it, or `tutti leave` and join again",
                    path.display()
                )
            })?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let path = path.display();
                let reason = format!(
                    "only root, or the owner of the instance, may do that: others can't read {path}"
                );
                Err(coded(Code::NotAllowed, reason))
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The old file stays until the new one is whole.
    fn write(&self, name: &str, what: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(what)?;
        let directory = self.open()?;
        let directory = directory.with_context(|| format!("{} is gone", self.path.display()))?;
        directory.write(&path, &text).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Head {
        directory: PathBuf,
        place: Place,
    }

    impl Drop for Head {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    impl Head {
        fn new(name: &str) -> Self {
            let name = format!("tutti-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            fs::create_dir_all(&directory).unwrap();
            let place = Place::of(&Instance::at(directory.clone()));
            let membership = Membership {
                cluster: "test".into(),
                name: "head".into(),
                listen: None,
                address: None,
                head: Vec::new(),
                trusts_root: false,
                is_client: false,
                certificates_s: None,
            };
            place.found(&membership).unwrap();
            Self { directory, place }
        }

        /// A machine joins by a token; gives its key.
        fn admit(&self, admission: Admission, name: &str) -> Fingerprint {
            let is_client = admission.role() == Role::Client;
            let token = self.place.invite(admission, Duration::from_secs(60)).unwrap();
            let signed = self.place.admit(token.secret().as_bytes(), name, &request(), is_client);
            Fingerprint::of_key_in(&signed.unwrap().0).unwrap()
        }

        fn renew(&self, name: &str, shown: Fingerprint, current: Fingerprint) -> Fingerprint {
            let signed = self.place.sign_again(name, [shown, current], &request()).unwrap();
            Fingerprint::of_key_in(&signed).unwrap()
        }
    }

    fn request() -> Vec<u8> {
        Key::generate().unwrap().request().unwrap()
    }

    #[test]
    fn several_processes_keep_what_the_machine_is_at_the_same_time() {
        let head = Head::new("several");
        let known = head.place.membership().unwrap().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| head.place.keep(&known).unwrap()));
            }
        });
        assert_eq!(head.place.membership().unwrap(), Some(known));
    }

    #[test]
    fn who_was_removed_is_known_by_its_key_when_another_has_its_name() {
        let head = Head::new("removed");
        let mut members = Members::of(head.place.clone());
        let mut says = |role, key| members.objection("a", role, key).unwrap_or_default();
        let first = head.admit(Admission::Node, "a");
        assert_eq!((says(Some(Role::Node), first), says(None, first)), Default::default());
        assert!(says(Some(Role::Admin), first).contains("another machine is that node"));
        assert!(head.place.expel("a").unwrap());
        assert!(says(None, first).contains("node a was removed from the cluster"));
        head.place.sign_again("a", [first; 2], &request()).unwrap_err();
        let second = head.admit(Admission::Node, "a");
        assert_eq!(says(Some(Role::Node), second), "");
        assert!(says(Some(Role::Node), first).contains("another machine is that node"));
        for keys in [[first, first], [first, second], [second, first]] {
            let refused = head.place.sign_again("a", keys, &request()).unwrap_err();
            assert!(refused.to_string().contains("another machine has its name"), "{refused}");
        }
        assert_eq!(says(None, head.renew("a", second, second)), "");
    }

    #[test]
    fn a_member_may_show_its_old_key_while_the_new_one_is_under_way() {
        let head = Head::new("renewed");
        let mut members = Members::of(head.place.clone());
        let mut may = |key| members.objection("a", Some(Role::Node), key).is_none();
        let first = head.admit(Admission::Node, "a");
        // It never got that, and asks again.
        let lost = head.renew("a", first, first);
        assert!(may(first) && may(lost));
        let second = head.renew("a", first, first);
        assert!(may(first) && may(second) && !may(lost));
        // It has it, and asks over the same connection.
        let third = head.renew("a", first, second);
        assert!(may(first) && may(second) && may(third));
        // Over another one.
        let fourth = head.renew("a", third, third);
        assert!(may(third) && may(fourth) && !may(first) && !may(second));
    }

    #[test]
    fn of_who_joined_before_keys_were_kept_the_first_counts() {
        let head = Head::new("earlier");
        let key = head.admit(Admission::Node, "a");
        let keys = head.place.with_register(|register| Ok(std::mem::take(&mut register.keys)));
        assert!(keys.unwrap().contains_key("a"));
        let mut members = Members::of(head.place.clone());
        assert_eq!(members.objection("a", Some(Role::Node), key), None);
        let other = Fingerprint::from_bytes([7; 32]);
        assert!(members.objection("a", Some(Role::Node), other).is_some());
        assert_eq!(members.objection("a", Some(Role::Node), key), None);
    }

    #[test]
    fn a_client_machine_speaks_for_the_users_of_its_token_and_never_for_root() {
        let head = Head::new("client");
        let mut members = Members::of(head.place.clone());
        let some = Admission::Client(Users::Only([0, 7, 1000].into()));
        let key = head.admit(some, "desk");
        head.admit(Admission::Client(Users::All), "hall");
        head.admit(Admission::Node, "a");
        for (client, uid, owner, may) in [
            ("desk", 7, 0, true),
            ("desk", 8, 0, false),
            ("desk", 0, 0, false),
            ("desk", 1000, 1000, true),
            ("hall", 8, 0, true),
            ("hall", 0, 0, false),
            ("hall", 1000, 1000, false),
            ("a", 7, 0, false),
            ("none", 7, 0, false),
        ] {
            assert_eq!(members.may_speak_for(client, uid, owner), may, "{client} for {uid}");
        }
        // By its certificate it is a client, and nothing else.
        assert_eq!(members.objection("desk", Some(Role::Client), key), None);
        for role in [Role::Node, Role::Admin] {
            assert!(members.objection("desk", Some(role), key).is_some());
        }
        let signed = head.place.sign_again("desk", [key, key], &request()).unwrap();
        let key = Fingerprint::of_key_in(&signed).unwrap();
        assert_eq!(members.objection("desk", Some(Role::Client), key), None);
        assert!(head.place.expel("desk").unwrap());
        assert!(!members.may_speak_for("desk", 7, 0) && !members.is_client("desk"));
    }

    #[test]
    fn a_token_of_the_other_kind_is_refused_and_stays_good() {
        let head = Head::new("kinds");
        let all = Admission::Client(Users::All);
        for (admission, as_client) in [(Admission::Node, true), (all, false)] {
            let token = head.place.invite(admission, Duration::from_secs(60)).unwrap();
            let secret = token.secret().as_bytes();
            let name = if as_client { "a" } else { "desk" };
            let refused = head.place.admit(secret, name, &request(), as_client);
            assert!(refused.unwrap_err().to_string().contains("client machine"));
            head.place.admit(secret, name, &request(), !as_client).unwrap();
        }
    }
}
