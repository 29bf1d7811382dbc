//! The file with the token that a scraper of `/metrics` sends.

use nix::unistd::geteuid;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use tutti_node::codes::coded;
use tutti_web::MetricsToken;
use tutti_wire::code::Code;

/// The group may read the file, for a scraper of that group; nothing else is open to others.
const OTHERS: u32 = 0o027;

/// Reads the token.
///
/// # Errors
/// If the file can't be read, if others could read or change it, or if it has no good token.
pub(super) fn read(path: &Path) -> anyhow::Result<MetricsToken> {
    let shown = path.display();
    let of_system = |error: std::io::Error| {
        let make = "make one by `(umask 077; openssl rand -hex 32 > FILE)`";
        coded(Code::System, format!("cannot read the token in {shown}: {error}; {make}"))
    };
    // A pipe in its place makes nothing wait.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(of_system)?;
    check(&file, path)?;
    let mut text = String::new();
    let most = *MetricsToken::LENGTHS.end() as u64 + 2;
    file.take(most).read_to_string(&mut text).map_err(of_system)?;
    MetricsToken::new(&text).map_err(|failure| {
        let make = "make another one by `openssl rand -hex 32`";
        coded(failure.code, format!("the token in {shown} is no good: {}; {make}", failure.text))
    })
}

fn check(file: &File, path: &Path) -> anyhow::Result<()> {
    let (found, shown) = (file.metadata()?, path.display());
    let wrong = |text: String| Err(coded(Code::BadValue, text));
    if !found.is_file() {
        return wrong(format!("{shown} is no file; name a file that has the token"));
    }
    let own = geteuid().as_raw();
    if ![0, own].contains(&found.uid()) {
        return wrong(format!(
            "{shown} is of user {}: that user could change the token",
            found.uid()
        ));
    }
    let mode = found.mode() & 0o777;
    if mode & OTHERS != 0 {
        return wrong(format!(
            "other users could read or change {shown} (mode {mode:03o}); run `chmod 600 {shown}`, or 640 for \
             a scraper of its group"
        ));
    }
    Ok(())
}
