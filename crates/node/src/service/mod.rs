//! Where systemd runs the machine, the system's instance is a service of it: started at boot, with
//! its messages in the journal of the system (`journalctl -u tutti`). Elsewhere, and for instances
//! of a user's own, `tutti up` starts the supervisor itself.
//!
//! The unit's main process is the supervisor. It ends the jobs when it is told to stop; to change
//! the executable while jobs run is what reloading is for.

use crate::codes::coded;
use crate::executable::own_path;
use crate::instance::Instance;
use anyhow::Context;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tracing::warn;
use tutti_linux::cgroup::{DAEMONS, Unit, is_systemd_here};
use tutti_wire::code::Code;

mod bounded;
mod bus;
mod scope;

pub use scope::{
    ENDS_WITH_SESSION, STOP, attach, ends_with_session, enter, has_manager, place_of_unit, subtrees,
};

/// Where an administrator's units are.
const UNITS: &str = "/etc/systemd/system";

/// Where the units of packages are.
const PACKAGED_UNITS: &str = "/usr/lib/systemd/system";

/// Where a package puts the executable.
const PACKAGED_PROGRAM: &str = "/usr/bin/tutti";

/// The service of an instance.
#[derive(Debug)]
pub struct Service {
    unit: String,
    directory: PathBuf,
}

impl Service {
    /// That of this instance; `None` where it is not systemd's affair.
    pub fn of(instance: &Instance) -> Option<Self> {
        let is_systems = !instance.private && nix::unistd::geteuid().is_root();
        if is_systems && is_systemd_here() { Self::named_after(instance) } else { None }
    }

    /// One unit for each directory in `/run`: `tutti.service`, `tutti-lab.service`; none for a name
    /// that units can't have.
    fn named_after(instance: &Instance) -> Option<Self> {
        let directory = instance.directory().to_owned();
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        let name = directory.file_name()?.to_str()?;
        let unit = name.chars().all(good).then(|| format!("{name}.service"))?;
        Some(Self { unit, directory })
    }

    /// How its messages are read.
    pub fn journal_hint(&self) -> String {
        format!("journalctl -u {}", self.unit.trim_end_matches(".service"))
    }

    /// Starts it, now and whenever the machine starts; waits until it takes jobs.
    ///
    /// # Errors
    /// If the unit can't be written, or with what systemd says.
    pub fn start(&self) -> anyhow::Result<()> {
        if let Some(words) = too_old(version()) {
            return Err(coded(Code::NotStarted, words));
        }
        let program = own_path()?;
        let path = Path::new(UNITS).join(&self.unit);
        // That of the package serves its program, unless one of `tutti up` hides it already.
        if path.exists() || !self.has_packaged_unit(&program) {
            let text = unit_text(&self.directory, &program, Some(version().unwrap_or(0)))?;
            if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                fs::write(&path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", &self.unit]).map(drop).map_err(|it| self.not_started(&it))
    }

    /// It is not started any more when the machine starts, and is told to end if it still runs.
    ///
    /// # Errors
    /// With what systemd says.
    pub fn stop(&self) -> anyhow::Result<()> {
        if self.is_installed() {
            systemctl(&["disable", "--now", &self.unit])?;
        }
        Ok(())
    }

    /// Whether systemd knows the unit: `tutti up` or a package has written it.
    pub fn is_installed(&self) -> bool {
        [UNITS, PACKAGED_UNITS].iter().any(|units| Path::new(units).join(&self.unit).exists())
    }

    /// Starts it, if systemd does not do so already, as it is installed; waits until it takes jobs.
    ///
    /// # Errors
    /// With what systemd says.
    pub fn start_again(&self) -> anyhow::Result<()> {
        systemctl(&["start", &self.unit]).map(drop).map_err(|error| self.not_started(&error))
    }

    fn not_started(&self, error: &anyhow::Error) -> anyhow::Error {
        let hint = self.journal_hint();
        coded(Code::NotStarted, format!("{error:#}; `{hint}` says why"))
    }

    /// Whether a package has installed the unit of this instance for this program.
    fn has_packaged_unit(&self, program: &Path) -> bool {
        program == Path::new(PACKAGED_PROGRAM)
            && Path::new(PACKAGED_UNITS).join(&self.unit).exists()
    }
}

/// From this version on systemd starts the main process of a unit in a group below that of the
/// unit, if told to.
const HAS_SUBGROUPS: u32 = 254;

/// The first systemd that moves processes into a group below a unit, which the daemons of a later
/// supervisor need.
const LEAST: u32 = 238;

/// What is wrong with a systemd of this version, if it is too old for units of Tutti.
fn too_old(version: Option<u32>) -> Option<String> {
    let version = version.filter(|&version| version < LEAST)?;
    Some(format!("Tutti's units need systemd {LEAST} or later, and this is systemd {version}"))
}

/// How a unit begins that `tutti up` has written.
const MADE_BY_UP: &str = "# Made by `tutti up`, and made again by the next one.";

/// Which version of systemd runs here.
fn version() -> Option<u32> {
    let said = systemctl(&["--version"]).ok()?;
    said.strip_prefix("systemd ")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How long `systemctl` may take: longer than a start or a stop of the unit may.
const SYSTEMCTL_WITHIN: Duration = Duration::from_secs(120);

/// What it printed.
fn systemctl(args: &[&str]) -> anyhow::Result<String> {
    let done = bounded::run(Command::new("systemctl").args(args), SYSTEMCTL_WITHIN);
    let done = done.map_err(|error| {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        match kind {
            Some(ErrorKind::NotFound) => {
                anyhow::anyhow!("systemd runs here, but there is no systemctl")
            }
            _ => error,
        }
    })?;
    if !done.status.success() {
        anyhow::bail!("systemctl {}: {}", args.join(" "), done.stderr.trim());
    }
    Ok(done.stdout)
}

/// The unit that a package installs, for all versions of systemd.
///
/// # Errors
/// Never: its paths can be written.
pub fn packaged_unit() -> anyhow::Result<String> {
    unit_text(Path::new("/run/tutti"), Path::new(PACKAGED_PROGRAM), None)
}

/// The unit of the instance in this directory, by this executable, for this version of systemd;
/// without a version, for a package.
///
/// # Errors
/// If one of the paths can't be written in a unit.
fn unit_text(directory: &Path, program: &Path, version: Option<u32>) -> anyhow::Result<String> {
    // In command lines, and only there, a dollar begins a variable.
    let (directory, program) = (quoted(directory)?, quoted(program)?.replace('$', "$$"));
    // What can't say where the first daemon begins has it begin where it can't if jobs are left.
    let by_systemd = format!("DelegateSubgroup={DAEMONS}");
    let by_hand = format!("ExecStopPost=\"{program}\" make-startable");
    let (origin, leaf) = match version {
        Some(HAS_SUBGROUPS..) => (MADE_BY_UP, by_systemd),
        Some(_) => (MADE_BY_UP, by_hand),
        // Before that version, systemd ignores the first line; from it on, the second one does
        // nothing.
        None => ("# Part of the package tutti.", format!("{by_systemd}\n{by_hand}")),
    };
    Ok(format!(
        "{origin} Changes of your own belong into a drop-in:\n\
         # `systemctl edit`.\n\
         [Unit]\n\
         Description=Tutti, a gang scheduler\n\
         Wants=network-online.target\n\
         After=network-online.target time-sync.target\n\
         # However often it fails, it is tried again: its jobs run on meanwhile.\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         Environment=\"TUTTI_DIR={directory}\"\n\
         ExecStart=\"{program}\" up --foreground\n\
         # Another executable, while jobs run: `systemctl reload`. Stopping and restarting end the jobs.\n\
         ExecReload=\"{program}\" upgrade\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # The supervisor ends the jobs, and then all that it has started. If it fails itself, all that goes on,\n\
         # and the next one takes it over.\n\
         KillMode=process\n\
         TimeoutStartSec=60\n\
         TimeoutStopSec=90\n\
         # All groups of processes lie within the unit's own: the daemons in a leaf, the jobs beside it.\n\
         Delegate=yes\n\
         {leaf}\n\
         TasksMax=infinity\n\
         LimitNOFILE=524288\n\
         LimitMEMLOCK=infinity\n\
         # Whatever runs out of memory, it is not what holds the jobs.\n\
         OOMScoreAdjust=-900\n\
         OOMPolicy=continue\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// When the service has stopped, though jobs of it go on: systemd is to be able to start it again.
///
/// # Errors
/// What the kernel says.
pub fn make_startable() -> anyhow::Result<()> {
    Ok(Unit::own().map_or(Ok(()), |unit| unit.make_startable())?)
}

/// A path as it is written between quotes in a unit.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    let text = text.with_context(|| format!("{path:?} can't be written in a unit of systemd"))?;
    Ok(text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// Tells the parent of this process that the instance takes jobs, if it wants to know
/// (`man sd_notify`).
pub fn say_ready() {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let sent = match address.to_str().and_then(|text| text.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            std::os::unix::net::SocketAddr::from_abstract_name(name)
                .and_then(|address| socket.send_to_addr(b"READY=1\n", &address))
        }
        None => socket.send_to(b"READY=1\n", &address),
    };
    if let Err(error) = sent {
        warn!("cannot tell systemd that the instance is up: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Service, too_old, unit_text};
    use crate::instance::Instance;
    use std::path::Path;

    #[test]
    fn each_instance_of_the_system_has_a_unit() {
        for (directory, unit) in
            [("/run/tutti", "tutti.service"), ("/run/tutti-lab", "tutti-lab.service")]
        {
            let service = Service::named_after(&Instance::at(directory.into()));
            assert_eq!(service.unwrap().unit, unit);
        }
        let odd = Instance::at("/run/tutti-a b".into());
        assert!(Service::named_after(&odd).is_none(), "no name of a unit");
        assert!(Service::of(&Instance::at("/tmp/own".into())).is_none(), "of a user's own");
    }

    #[test]
    fn a_systemd_that_is_too_old_is_named_with_what_is_needed() {
        let said = too_old(Some(237)).unwrap();
        assert!(said.contains("238") && said.contains("systemd 237"), "{said}");
        assert_eq!([too_old(Some(238)), too_old(None)], [None, None]);
    }

    #[test]
    fn a_late_systemd_starts_the_first_daemon_in_its_leaf() {
        let text =
            unit_text(Path::new("/run/tutti"), Path::new("/usr/bin/tutti"), Some(257)).unwrap();
        assert!(
            text.contains("\nDelegateSubgroup=daemons\n") && !text.contains("ExecStopPost"),
            "{text}"
        );
    }

    #[test]
    fn a_unit_names_its_paths_as_systemd_reads_them() {
        let text =
            unit_text(Path::new("/run/tutti-lab"), Path::new("/opt/a \"b\" %c$d/tutti"), Some(252));
        let text = text.unwrap();
        for line in [
            "Environment=\"TUTTI_DIR=/run/tutti-lab\"",
            "ExecStart=\"/opt/a \\\"b\\\" %%c$$d/tutti\" up --foreground",
            "ExecStopPost=\"/opt/a \\\"b\\\" %%c$$d/tutti\" make-startable",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
        assert!(
            unit_text(Path::new("/run/a\nExecStartPre=/bin/sh"), Path::new("/x"), Some(0)).is_err()
        );
    }

    #[test]
    fn the_unit_of_a_package_fits_all_versions_of_systemd() {
        let text = super::packaged_unit().unwrap();
        for line in [
            "Environment=\"TUTTI_DIR=/run/tutti\"",
            "ExecStart=\"/usr/bin/tutti\" up --foreground",
            "DelegateSubgroup=daemons",
            "ExecStopPost=\"/usr/bin/tutti\" make-startable",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
        assert!(!text.contains("Made by"), "{text}");
    }
}
