//! Opens the page in a browser.
//!
//! The address has a secret, and all users see the arguments of a process. So the browser gets the
//! name of a file that leads to the page, and only its user can read the file.

use anyhow::Context;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tutti_node::codes::coded;
use tutti_wire::code::Code;

/// The file that leads to the page. It goes with this.
pub(super) struct Opener {
    directory: PathBuf,
}

impl Opener {
    /// Writes the file, and has a browser open it.
    pub(super) fn open(address: &str) -> anyhow::Result<Self> {
        let place = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let place = place.filter(|place| place.is_dir()).unwrap_or_else(std::env::temp_dir);
        let directory = place.join(format!("tutti-web-{}", std::process::id()));
        let why = || format!("cannot make {}", directory.display());
        // It fails if there is one: the directory of another user is not used.
        fs::DirBuilder::new().mode(0o700).create(&directory).with_context(why)?;
        let this = Self { directory };
        let path = this.directory.join("page.html");
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(
            file,
            "<!doctype html><meta charset=\"utf-8\"><title>Tutti</title>\
             <meta http-equiv=\"refresh\" content=\"0;url={address}\"><a href=\"{address}\">Tutti</a>"
        )?;
        drop(file);
        let mut command = Command::new("xdg-open");
        command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| {
            let reason = format!(
                "cannot run xdg-open: {error}; open the printed address yourself, without --open"
            );
            coded(Code::System, reason)
        })?;
        std::thread::spawn(move || {
            let mut child = child;
            if !child.wait().is_ok_and(|status| status.success()) {
                say!("tutti: xdg-open could not open a browser; open the printed address yourself");
            }
        });
        Ok(this)
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
