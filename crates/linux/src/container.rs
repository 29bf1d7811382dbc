//! Whether this process runs in a container, and of which kind.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// Inode of the pid namespace that the machine boots with (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Where a WSL machine has the sockets by which it starts Windows programs.
const OF_WSL: &str = "/run/WSL";

/// Files that a container manager makes, and what it is called.
const MARKS: [(&str, &str); 2] = [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")];

/// The kind of the container, such as `docker`, `podman`, `kubernetes` or `wsl`; `container` where
/// the processes have a pid namespace of their own and no manager left its mark. `None`: the
/// machine itself, as far as can be seen.
#[must_use]
pub fn kind() -> Option<String> {
    // A container on such a machine has the machine's kernel, but not its sockets.
    let is_wsl = is_wsl(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default());
    if is_wsl && Path::new(OF_WSL).is_dir() {
        return Some("wsl".into());
    }
    // Marks are also in images that a machine was made from.
    if pid_namespace().is_none_or(|own| own == FIRST_PID_NAMESPACE) {
        return is_wsl.then(|| "wsl".into());
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        || Path::new("/var/run/secrets/kubernetes.io").is_dir()
    {
        return Some("kubernetes".into());
    }
    if let Some((_, name)) = MARKS.into_iter().find(|(mark, _)| Path::new(mark).exists()) {
        return Some(name.into());
    }
    let named = fs::read_to_string("/run/systemd/container").ok();
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    Some(named.unwrap_or_else(|| if is_wsl { "wsl" } else { "container" }.into()))
}

/// What tells the pid namespace of this process from others of the machine.
pub(crate) fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|it| it.st_ino())
}

fn is_wsl(release: &str) -> bool {
    release.to_ascii_lowercase().contains("microsoft")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wsl_is_known_by_its_kernel() {
        assert!(is_wsl("5.15.167.4-microsoft-standard-WSL2\n"));
        assert!(is_wsl("4.4.0-19041-Microsoft"));
        assert!(!is_wsl("6.1.0-13-amd64"));
    }
}
