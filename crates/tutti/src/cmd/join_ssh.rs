//! `tutti join --ssh HOSTS`, at the head: has many machines join, each by `tutti join` over ssh.
//!
//! Each machine gets a token of its own, on its standard input: no list of processes shows it.

use super::cluster::membership_of_head;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tutti_client::output::print;
use tutti_node::codes::coded;
use tutti_node::executable::{RUNNING, own_path};
use tutti_node::exit::Exit;
use tutti_node::instance::{Instance, said_cluster};
use tutti_node::membership::{Membership, Place};
use tutti_secure::Admission;
use tutti_wire::code::Code;
use tutti_wire::host_list::{HostItem, parse_host_list};

/// How long a token is good for: what copying the executable and starting may take.
const TOKEN_LIFETIME: Duration = Duration::from_secs(900);

/// Options of ssh, unless the administrator sets others. Many sessions at once can't ask questions,
/// and a machine that is off must not delay the others.
const SSH_OPTIONS: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"];

#[derive(Args, Debug)]
#[command(next_help_heading = "At the head, over ssh")]
pub(crate) struct SshArgs {
    /// Machines that join, such as a[1-8],b; needs root there
    #[arg(long, value_name = "HOSTS", num_args = 1.., conflicts_with_all = ["head", "token", "name", "listen"])]
    pub(crate) ssh: Vec<String>,

    /// Command for remote commands, such as "ssh -l root -p 2222"
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "ssh")]
    ssh_with: String,

    /// Path of tutti on those machines; it is copied there if missing or different [default: its
    /// path here]
    #[arg(long, value_name = "PATH", requires = "ssh")]
    program: Option<PathBuf>,

    /// Do not copy tutti
    #[arg(long, requires = "ssh")]
    no_copy: bool,

    /// Maximum number of machines at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "ssh",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    at_once: u16,
}

/// What is the same for all machines.
struct Plan<'a> {
    ssh: Vec<&'a str>,
    /// The digest of the executable here, and where it is there, as a shell reads it.
    digest: Option<String>,
    program: String,
    copies: bool,
    place: Place,
    head: String,
}

/// Has the machines join; one line each, as they are done.
///
/// # Errors
/// If none could even be tried.
pub(crate) fn execute(args: &SshArgs) -> anyhow::Result<Exit> {
    let hosts = hosts(&args.ssh)?;
    let place = Place::of(&Instance::locate());
    let membership = membership_of_head(&place, "machines are added by ssh")?;
    let program = args.program.clone().map_or_else(own_path, Ok)?;
    let program = program.to_str().context("--program can't be written for a shell")?;
    let plan = Plan {
        ssh: args.ssh_with.split_whitespace().collect(),
        program: quoted(program),
        digest: digest_of(Path::new(RUNNING)),
        copies: !args.no_copy,
        place,
        head: head_address(&membership)?,
    };
    ensure!(!plan.ssh.is_empty(), "--ssh-with needs a command");
    let failed = join_all(&plan, &hosts, usize::from(args.at_once))?;
    if failed == 0 {
        return Ok(Exit::OK);
    }
    say!("tutti: {failed} of {} machines did not join", hosts.len());
    Ok(Exit::FAILED)
}

/// Gives how many did not join.
fn join_all(plan: &Plan<'_>, hosts: &[String], at_once: usize) -> anyhow::Result<usize> {
    let (waiting, failed) = (Mutex::new(hosts.iter()), Mutex::new(0));
    let next = || waiting.lock().ok().and_then(|mut hosts| hosts.next());
    std::thread::scope(|scope| {
        let serve = || -> anyhow::Result<()> {
            while let Some(host) = next() {
                match plan.join(host) {
                    Ok(said) => print(&format!("{host}: {said}\n"))?,
                    Err(error) => {
                        let code = tutti_node::codes::code_of(&error);
                        say!("{host}: {}", code.mark(&format!("{error:#}")));
                        if let Ok(mut failed) = failed.lock() {
                            *failed += 1;
                        }
                    }
                }
            }
            Ok(())
        };
        let workers: Vec<_> = (0..at_once.min(hosts.len())).map(|_| scope.spawn(serve)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a thread ended before its time"))??;
        }
        anyhow::Ok(())
    })?;
    Ok(failed.into_inner().unwrap_or(hosts.len()))
}

impl Plan<'_> {
    /// Has one machine join; what it says to that, in a line.
    fn join(&self, host: &str) -> anyhow::Result<String> {
        if self.copies {
            self.bring_program(host)?;
        }
        let token = self.place.invite(Admission::Node, TOKEN_LIFETIME)?;
        let mut input = memory_file()?;
        writeln!(input, "{token}")?;
        input.rewind()?;
        let cluster = said_cluster()?;
        let cluster = cluster.map_or_else(String::new, |name| format!("TUTTI_CLUSTER={name} "));
        let line = format!("{cluster}{} join {} -", self.program, quoted(&self.head));
        let said = self.on(host, &line, input.into());
        // It may have been seen there. If the machine has not joined, or was in the cluster
        // already, it is still good.
        let _ = self.place.revoke(&token);
        Ok(said?.lines().next().unwrap_or("it has joined").to_owned())
    }

    /// Sees to it that there is the same executable there as here.
    fn bring_program(&self, host: &str) -> anyhow::Result<()> {
        // One that is missing, or can't be read, has none.
        let find = format!("p=$(command -v {0} || printf %s {0})", self.program);
        let line = format!("{find}; {DIGEST} 2> /dev/null < \"$p\" || true");
        let theirs = self.on(host, &line, Stdio::null())?;
        if self.digest.as_deref().is_some_and(|ours| ours == theirs.trim()) {
            return Ok(());
        }
        let program = File::open(RUNNING).context("cannot read the executable that runs here")?;
        let line = format!(
            "set -e; {find}; mkdir -p \"$(dirname \"$p\")\"; n=\"$p.$$\"; cat > \"$n\"; chmod 755 \"$n\"; \
             mv \"$n\" \"$p\""
        );
        self.on(host, &line, program.into()).context("cannot copy tutti there")?;
        Ok(())
    }

    /// Runs a line of shell on a machine; gives what it prints.
    fn on(&self, host: &str, line: &str, input: Stdio) -> anyhow::Result<String> {
        let mut command = Command::new(self.ssh[0]);
        // Of two options that contradict each other the first counts.
        command.args(&self.ssh[1..]).args(SSH_OPTIONS).arg(host).arg(line).stdin(input);
        let Output { status, stdout, stderr } =
            command.output().with_context(|| format!("cannot run {}", self.ssh[0]))?;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            let said = said.trim().trim_start_matches("tutti: ");
            match said.is_empty() {
                true => bail!("{} ended with {status}", self.ssh[0]),
                false => bail!("{said}"),
            }
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// What tells executables apart, on any machine: of one release there may be several builds.
const DIGEST: &str = "sha256sum";

/// What the executable's digest is said to be; nothing if that can't be found out.
fn digest_of(program: &Path) -> Option<String> {
    let output = Command::new(DIGEST).stdin(File::open(program).ok()?).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn hosts(lists: &[String]) -> anyhow::Result<Vec<String>> {
    let mut hosts = Vec::new();
    for item in parse_host_list(&lists.join(","))? {
        match item {
            HostItem::Names(names) => match names.iter().find(|name| name.starts_with('-')) {
                // The command would take it for an option, and some of those run commands here.
                Some(name) => {
                    let reason = format!("{name} is no machine: a name does not begin with -");
                    return Err(coded(Code::BadValue, reason));
                }
                None => hosts.extend(names),
            },
            HostItem::Set(set) => {
                let reason = format!("set:{set} is of nodes that have joined; name machines");
                return Err(coded(Code::BadValue, reason));
            }
        }
    }
    Ok(hosts)
}

/// Where the others reach this machine.
fn head_address(membership: &Membership) -> anyhow::Result<String> {
    membership.address.clone().ok_or_else(|| {
        let reason = "other machines can't reach this one; `tutti up --listen ADDRESS` says where";
        coded(Code::Membership, reason)
    })
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A file that has no name: no other process can open it.
fn memory_file() -> anyhow::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let file =
        memfd_create(c"tutti-token", MFdFlags::MFD_CLOEXEC).context("no room for a token")?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::{hosts, quoted};

    #[test]
    fn lists_are_of_machines() {
        let lists = ["a[1-2]".to_owned(), "b".to_owned()];
        assert_eq!(hosts(&lists).unwrap(), ["a1", "a2", "b"]);
        for wrong in ["set:gpu", "-oProxyCommand=sh", "a,-b[1-2]"] {
            assert!(hosts(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_word_stays_one_word_whatever_is_in_it() {
        assert_eq!(quoted("a b;c"), "'a b;c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
