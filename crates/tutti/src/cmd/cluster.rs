//! `tutti invite`, `tutti join`, `tutti leave`: which machines make up the cluster.

use super::join_ssh::{self, SshArgs};
use super::up::free_address;
use anyhow::Context;
use clap::Args;
use nix::net::if_::InterfaceFlags;
use nix::unistd::User;
use std::collections::BTreeSet;
use std::io::{BufRead, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use tutti_client::output::{counted, print};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::{Instance, host_name, said_cluster};
use tutti_node::link::FarLink;
use tutti_node::membership::{Membership, PORT, Place};
use tutti_node::presence;
use tutti_secure::{
    Admission, Clock, Credentials, Key, Name, Newcomer, Role as MemberRole, Token, Users,
};
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::limits::TRANSPORT_VERSION;
use tutti_wire::units::{format_seconds, parse_duration};

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any token has.
const TOKEN_BYTES_MAX: u64 = 1 << 10;

/// How all ordinary users of a client machine are written.
const ALL_USERS: &str = "all";

/// So many users of a client machine can be named.
const USERS_MAX: usize = 1000;

/// Certificates and tokens know no less than seconds.
const LIFETIME_MIN: Duration = Duration::from_secs(1);

const INVITE_EXAMPLES: &str = "\
Examples:
  tutti invite                         prints the command to run there
  tutti invite --parsable --for 10m    a token alone, for scripts
  tutti invite --client --users ada,bob
                                       for a machine that runs no task
  tutti invite --revoke                unused tokens become invalid";

const JOIN_EXAMPLES: &str = "\
Examples:
  tutti join 192.0.2.1 TOKEN           on the new machine, as root
  tutti join --ssh 'a[1-8]'            at the head: eight machines over ssh
  tutti join --client 192.0.2.1 TOKEN  on a machine that is to run no task";

const LEAVE_EXAMPLES: &str = "\
Examples:
  tutti down                           first: end the instance of this machine
  tutti leave                          then: take the machine out of its cluster";

#[derive(Args, Debug)]
#[command(after_help = INVITE_EXAMPLES)]
pub(crate) struct InviteArgs {
    /// Lifetime of the token
    #[arg(long, value_name = "TIME", default_value = "1h")]
    r#for: String,

    /// Let root of that machine be root in the cluster; no other machine connects to it then
    #[arg(long)]
    admin: bool,

    /// For a machine from which users submit, look and cancel, and that runs no task
    #[arg(long, requires = "users", conflicts_with = "admin")]
    client: bool,

    /// Users of the client machine: names or numbers, or all for every user but root
    #[arg(long, value_name = "USERS", value_delimiter = ',', requires = "client")]
    users: Vec<String>,

    /// Print only the token, for scripts
    #[arg(long)]
    parsable: bool,

    /// Revoke all unused tokens, and print none
    #[arg(long, conflicts_with_all = ["for", "admin", "parsable", "client"])]
    revoke: bool,
}

pub(crate) fn invite(args: &InviteArgs) -> anyhow::Result<Exit> {
    let instance = Instance::locate();
    let lifetime = Duration::from_nanos(parse_duration(&args.r#for)?.0);
    if lifetime < LIFETIME_MIN {
        let reason = format!(
            "--for {}: this time is too short for a token; it may be 1s or more",
            args.r#for
        );
        return Err(coded(Code::BadValue, reason));
    }
    let place = Place::of(&instance);
    let membership = membership_of_head(&place, "machines are invited")?;
    if args.revoke {
        let revoked = counted(place.revoke_all()?, "token");
        print(&format!("{revoked} revoked; machines that have joined stay\n"))?;
        return Ok(Exit::OK);
    }
    let admission = match (args.admin, args.client) {
        (_, true) => Admission::Client(users_of_client(&args.users)?),
        (true, false) => Admission::Admin,
        (false, false) => Admission::Node,
    };
    let option = if args.client { "--client " } else { "" };
    let token = place.invite(admission, lifetime)?;
    if args.parsable {
        print(&format!("{token}\n"))?;
    } else {
        print(&invitation(&membership, option, &token, lifetime))?;
    }
    Ok(Exit::OK)
}

/// The users that a client machine may speak for, by the head's list of users.
pub(super) fn users_of_client(named: &[String]) -> anyhow::Result<Users> {
    if named == [ALL_USERS] {
        return Ok(Users::All);
    }
    let mut users = BTreeSet::new();
    for name in named {
        let found = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
        let Some(uid) = found.or_else(|| name.parse().ok()) else {
            let reason = format!("--users: there is no user {name}; write names, numbers or all");
            return Err(coded(Code::BadValue, reason));
        };
        if uid == 0 {
            let reason = "--users: root of a client machine is never root in the cluster; \
                          `tutti invite --admin` is for the machine of an administrator";
            return Err(coded(Code::BadValue, reason));
        }
        users.insert(uid);
    }
    if users.len() > USERS_MAX {
        let reason = format!("--users: at most {USERS_MAX} users can be named; write all");
        return Err(coded(Code::BadValue, reason));
    }
    Ok(Users::Only(users))
}

/// What the machine is, which must be the head: this is `done` there alone.
pub(super) fn membership_of_head(place: &Place, done: &str) -> anyhow::Result<Membership> {
    let Some(membership) = place.membership()? else {
        return Err(coded(
            Code::Membership,
            format!(
                "this machine is in no cluster; `tutti up --listen {}` makes it the head of one",
                address_of_this_machine()
            ),
        ));
    };
    if !membership.head.is_empty() {
        return Err(coded(
            Code::Membership,
            format!("{done} at the head of the cluster: {}", membership.head.join(", ")),
        ));
    }
    Ok(membership)
}

/// An address that others may reach this machine at, to be shown as an example.
pub(super) fn address_of_this_machine() -> String {
    let addresses = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut of_networks = addresses.filter_map(|it| {
        let address = it.address?.as_sockaddr_in()?.ip();
        let is_one = !address.is_loopback() && !address.is_link_local();
        (is_one && it.flags.contains(InterfaceFlags::IFF_UP)).then(|| address.to_string())
    });
    of_networks.next().unwrap_or_else(|| "ADDRESS".into())
}

/// What to do elsewhere with a token, and with this option of `tutti join`.
pub(crate) fn invitation(
    membership: &Membership,
    option: &str,
    token: &Token,
    lifetime: Duration,
) -> String {
    let address = membership.address.as_deref().unwrap_or("ADDRESS");
    let address = address.strip_suffix(&format!(":{PORT}")).unwrap_or(address);
    // Of several on a machine, the same one is meant there.
    let which = said_cluster().ok().flatten();
    let which = which.map_or_else(String::new, |name| format!("TUTTI_CLUSTER={name} "));
    format!(
        "to add a machine, within {}, run there:\n\n    {which}tutti join {option}{address} {token}\n\n",
        format_seconds(lifetime.as_secs())
    )
}

#[derive(Args, Debug)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct JoinArgs {
    /// Head of the cluster, as HOST or HOST:PORT
    #[arg(value_name = "HOST", required_unless_present = "ssh")]
    head: Option<String>,

    /// Token that `tutti invite` printed at the head, for one machine; - reads it from standard
    /// input
    #[arg(value_name = "TOKEN", required_unless_present = "ssh")]
    token: Option<String>,

    /// Name of this machine in the cluster [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Address of this machine for the others, as HOST or HOST:PORT; none if they can't reach it
    /// [default: the address from which it reaches the head]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// As a client machine: users submit, look and cancel here, and no task runs here
    #[arg(long, conflicts_with_all = ["listen", "ssh"])]
    client: bool,

    #[command(flatten)]
    ssh: SshArgs,
}

pub(crate) fn join(args: &JoinArgs) -> anyhow::Result<Exit> {
    // Without them, `ssh` is there.
    let (Some(head), Some(token)) = (&args.head, &args.token) else {
        return join_ssh::execute(&args.ssh);
    };
    let instance = Instance::to_start();
    let place = Place::of(&instance);
    let token: Token = match token.as_str() {
        "-" => token_of_input()?.parse()?,
        token => token.parse()?,
    };
    if let Some(membership) = place.membership()? {
        if token.is_of(&place.credentials()?.authority_fingerprint()) {
            let hint = match presence::is_supervised(&instance) {
                true => "",
                false => ", and down: `tutti up` starts it",
            };
            let (name, cluster) = (membership.name, membership.cluster);
            let what = if membership.is_client { "client machine" } else { "node" };
            print(&format!("{name} is a {what} of cluster {cluster} already{hint}\n"))?;
            return Ok(Exit::OK);
        }
        return Err(coded(
            Code::Membership,
            format!(
                "this machine is {} of cluster {} already: `tutti up` starts it, `tutti leave` takes it \
             out of the cluster",
                membership.name, membership.cluster
            ),
        ));
    }
    if presence::is_supervised(&instance) {
        return Err(coded(
            Code::Membership,
            "an instance runs here; end it first with `tutti down`",
        ));
    }
    let name = args.name.clone().unwrap_or_else(host_name);
    Name::new(&name)?;
    // Looked at first: otherwise it would be known by an address that it has not, and the token
    // gone.
    let listen = args.listen.as_deref().filter(|listen| *listen != "none");
    let listen = listen.map(|listen| refuse_if_nowhere(listen).and_then(|()| free_address(listen)));
    let listen = listen.transpose()?;
    let head = with_port(head);
    let (mut membership, credentials) = redeem(&head, &token, name, args.client)?;
    match listen {
        None if args.listen.is_some() => membership.listen = None,
        Some(listen) if credentials.member().role == MemberRole::Node => {
            membership.listen = Some(listen);
            membership.address.clone_from(&membership.listen);
        }
        _ => {}
    }
    instance.prepare()?;
    if !place.join(&membership, &credentials)? {
        let reason = "this machine has become part of a cluster just now: see `tutti nodes`";
        return Err(coded(Code::Membership, reason));
    }
    tutti_client::start(&instance).with_context(|| {
        format!("{} is in cluster {}, but", membership.name, membership.cluster)
    })?;
    print(&welcome(&membership, credentials.member().role, instance.private))?;
    Ok(Exit::OK)
}

/// What to say on a machine that has joined, and what to do next there.
fn welcome(membership: &Membership, role: MemberRole, is_private: bool) -> String {
    let Membership { name, cluster, .. } = membership;
    // Whether root of this machine is root there, the head alone knows.
    let who = match role {
        MemberRole::Client => {
            return format!(
                "{name} is a client machine of cluster {cluster}: it runs no task\nnext, as one of \
                 the users that were named at the head: `tutti nodes`, `tutti run -n 2 COMMAND`; \
                 `tutti down` ends the connection, `tutti leave` after that leaves the cluster\n"
            );
        }
        MemberRole::Node if !is_private => ", as an ordinary user",
        MemberRole::Node | MemberRole::Admin => "",
    };
    format!(
        "{name} is a node of cluster {cluster}\nnext{who}: `tutti nodes`, `tutti run -n 2 COMMAND`; \
         `tutti down` takes it out of service, `tutti leave` after that out of the cluster\n"
    )
}

/// A line of standard input; no longer than any token is.
fn token_of_input() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().take(TOKEN_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// The address with the usual port, if it has none.
pub(crate) fn with_port(address: &str) -> String {
    let has_port = address.parse::<SocketAddr>().is_ok()
        || address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{address}]:{PORT}"),
        Err(_) if has_port => address.to_owned(),
        Err(_) => format!("{address}:{PORT}"),
    }
}

/// An address that means all of this machine's is none that another machine could be told.
pub(crate) fn refuse_if_nowhere(listen: &str) -> anyhow::Result<()> {
    // A machine that can't listen there says so later.
    let mut found = with_port(listen).to_socket_addrs().into_iter().flatten();
    if found.any(|address| address.ip().is_unspecified()) {
        let reason = format!(
            "{listen} stands for every address of this machine; name the one \
             that the other machines reach it at"
        );
        return Err(coded(Code::BadValue, reason));
    }
    Ok(())
}

/// A connection to the head; whatever keeps it from being made, the same is to be looked at.
fn reach(head: &str) -> anyhow::Result<TcpStream> {
    let lost = |reason: String| coded(Code::OutOfReach, reason);
    let found = head.to_socket_addrs();
    let found = found.map_err(|error| lost(format!("no such machine: {head}: {error}")))?;
    let sockets = found.map(|address| TcpStream::connect_timeout(&address, PATIENCE));
    let socket = sockets.reduce(Result::or).unwrap_or_else(|| Err(ErrorKind::NotFound.into()));
    socket.map_err(|error| {
        lost(format!(
            "cannot reach {head}: {error}; the head must have been started with `tutti up --listen \
             ADDRESS`, be meant by that address and port, and no firewall may keep them from this machine"
        ))
    })
}

/// Takes the token to the head, for a certificate of a key that is made here and never leaves.
fn redeem(
    head: &str,
    token: &Token,
    name: String,
    is_client: bool,
) -> anyhow::Result<(Membership, Credentials)> {
    let socket = reach(head)?;
    let local = socket.local_addr()?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let newcomer = Newcomer::new(token, TRANSPORT_VERSION, Clock::system())?;
    let mut stream = newcomer.connect(socket)?;
    stream.set_nonblocking(false)?;
    let key = Key::generate()?;
    let mut link = FarLink::over(stream);
    let answers_badly = || format!("the machine at {head} did not answer well");
    link.greet(Role::Newcomer);
    link.meet().with_context(answers_badly)?;
    link.send(&Redeem {
        secret: token.secret().as_bytes().to_vec().into(),
        name: name.clone(),
        request: key.request()?.into(),
        is_client,
    });
    match link.call().with_context(answers_badly)? {
        Redeemed::Refused { reason } => Err(coded(Code::NotTrusted, reason)),
        Redeemed::Taken { cluster, certificate, authority, addresses } => {
            let credentials = Credentials::new(key, &certificate, &authority)?;
            let mut heads = vec![head.to_owned()];
            heads.extend(addresses.into_iter().filter(|address| address != head));
            // Nothing connects to an admin, or to a client.
            let is_node = credentials.member().role == MemberRole::Node;
            let address = is_node.then(|| SocketAddr::new(local.ip(), PORT).to_string());
            let membership = Membership {
                cluster,
                name,
                listen: address.clone(),
                address,
                head: heads,
                trusts_root: false,
                is_client: credentials.member().role == MemberRole::Client,
                certificates_s: None,
            };
            Ok((membership, credentials))
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = LEAVE_EXAMPLES)]
pub(crate) struct LeaveArgs {}

pub(crate) fn leave(_args: &LeaveArgs) -> anyhow::Result<Exit> {
    let instance = Instance::to_start();
    let place = Place::of(&instance);
    let Some(membership) = place.membership()? else {
        return Err(coded(Code::Membership, "this machine is in no cluster"));
    };
    if presence::is_supervised(&instance) || presence::has_keeper(&instance) {
        return Err(coded(Code::Membership, "the instance runs; end it first with `tutti down`"));
    }
    place.forget()?;
    if !membership.head.is_empty() {
        // Another cluster numbers its jobs anew.
        let _ = std::fs::remove_file(instance.released_file());
    }
    print(&format!("this machine has left cluster {}\n", membership.cluster))?;
    let next = match membership.head.is_empty() {
        true => "it was the head: the cluster is no more, and each of its nodes is free for another after \
                 `tutti down` and `tutti leave` there"
            .to_owned(),
        false => format!("at the head, `tutti nodes remove {}` forgets it", membership.name),
    };
    print(&format!("{next}\n"))?;
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn an_address_without_a_port_gets_the_usual_one() {
        for (given, whole) in [
            ("head", "head:7716"),
            ("head:80", "head:80"),
            ("10.0.0.1", "10.0.0.1:7716"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("::1", "[::1]:7716"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(with_port(given), whole, "{given}");
        }
    }
}
