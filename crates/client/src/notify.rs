//! Options by which a job notifies its user.

use anyhow::Context;
use clap::Args;
use std::io::Read;
use std::path::PathBuf;
use tutti_node::codes::coded;
use tutti_wire::code::Code;
use tutti_wire::limits::NOTIFY_KEY_BYTES_MAX;
use tutti_wire::notify::{Notify, NotifyOn, NotifyWay};

const HEADING: &str = "Notification";

// No doc comment: clap would show it as the verb's own text.
#[allow(missing_docs, reason = "clap would show it")]
#[derive(Args, Clone, Debug, Default)]
pub struct NotifyOptions {
    /// Notify at the job's start, end or fail, such as end,fail; all or none [default: end, if one
    /// of the options below is given; by mail to you, if none is]
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<NotifyOn>, help_heading = HEADING)]
    pub notify: Option<NotifyOn>,

    /// Mail to this address
    #[arg(long, value_name = "ADDRESS", value_parser = mail, help_heading = HEADING)]
    pub notify_mail: Vec<NotifyWay>,

    /// Run this line of a shell on the controller's machine, as you; its input is JSON
    #[arg(long, value_name = "CMD", value_parser = command, help_heading = HEADING)]
    pub notify_command: Vec<NotifyWay>,

    /// Post JSON to this URL
    #[arg(long, value_name = "URL", value_parser = webhook, help_heading = HEADING)]
    pub notify_webhook: Vec<NotifyWay>,

    /// File with the key that signs webhooks, of 16 to 128 bytes
    #[arg(long, value_name = "FILE", requires = "notify_webhook", help_heading = HEADING)]
    pub notify_key: Option<PathBuf>,
}

fn checked(way: NotifyWay) -> Result<NotifyWay, String> {
    way.check().map_err(|error| error.to_string())?;
    Ok(way)
}

fn mail(text: &str) -> Result<NotifyWay, String> {
    checked(NotifyWay::Mail(text.into()))
}

fn command(text: &str) -> Result<NotifyWay, String> {
    checked(NotifyWay::Command(text.into()))
}

fn webhook(text: &str) -> Result<NotifyWay, String> {
    checked(NotifyWay::Webhook(text.into()))
}

impl NotifyOptions {
    /// What the options ask for; `None`: nothing is asked, and the site's default holds.
    ///
    /// # Errors
    /// If it is too much, or the key can't be read.
    pub fn request(&self) -> anyhow::Result<Option<Notify>> {
        let ways = [&self.notify_mail, &self.notify_command, &self.notify_webhook];
        let ways: Vec<NotifyWay> = ways.into_iter().flatten().cloned().collect();
        if self.notify.is_none() && ways.is_empty() {
            return Ok(None);
        }
        let on = self.notify.unwrap_or(NotifyOn { end: true, ..NotifyOn::default() });
        let key = self.notify_key.as_ref().map(read_key).transpose()?;
        let notify = Notify { on, ways, key: key.map(Into::into) };
        notify.check().map_err(|error| coded(Code::BadValue, error))?;
        Ok(Some(notify))
    }
}

/// The key in a file, without the line end behind it.
fn read_key(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read the key {}", path.display());
    let mut key = Vec::new();
    let file = std::fs::File::open(path).with_context(failed)?;
    file.take(NOTIFY_KEY_BYTES_MAX as u64 + 2).read_to_end(&mut key).with_context(failed)?;
    let key = key.strip_suffix(b"\n").unwrap_or(&key);
    Ok(key.strip_suffix(b"\r").unwrap_or(key).to_vec())
}
