//! `tutti web`: the page and the HTTP interface of the user that starts it.

#[cfg(feature = "web")]
mod metrics_token;
#[cfg(feature = "web")]
mod open;
#[cfg(feature = "web")]
mod serve;
#[cfg(feature = "web")]
mod source;
#[cfg(feature = "web")]
mod submission;

use clap::Args;
use std::path::PathBuf;
use tutti_node::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tutti web                          print the address of the page
  tutti web --open                   also open it in a browser
  tutti web --listen 127.0.0.1:PORT  at this port
  tutti web --listen unix:/run/user/1000/tutti-web   for curl --unix-socket
  tutti web --listen 127.0.0.1:9495 --metrics-token-file metrics.token

The page has your rights, and is for you alone: each address is good for one \
browser. It ends with Ctrl-C. To see it from another machine, run \
`ssh -L PORT:127.0.0.1:PORT MACHINE` there, and open the address with that port.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WebArgs {
    /// Loopback address with a port, where 0 is any free one; or unix:PATH
    #[arg(short, long, value_name = "PLACE", default_value = "127.0.0.1:0")]
    listen: String,

    /// Open the page in a browser
    #[arg(long)]
    open: bool,

    /// Let a scraper read /metrics by the token in this file, as a bearer token
    #[arg(long, value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
}

#[cfg(feature = "web")]
pub(crate) fn execute(args: &WebArgs) -> anyhow::Result<Exit> {
    serve::serve(&args.listen, args.open, args.metrics_token_file.as_deref())
}

#[cfg(not(feature = "web"))]
pub(crate) fn execute(args: &WebArgs) -> anyhow::Result<Exit> {
    let WebArgs { listen: _, open: _, metrics_token_file: _ } = args;
    let reason = "this program was built without the feature `web`; use one that has it";
    Err(tutti_node::codes::coded(tutti_wire::code::Code::CannotUnderstand, reason))
}
