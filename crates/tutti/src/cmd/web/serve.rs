//! Begins the server, and prints where it is.

use super::metrics_token;
use super::open::Opener;
use super::source::Instance;
use nix::sys::signal::{SigSet, Signal};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tutti_client::output::print;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_web::{Failure, Gate, Listening, Place, Server};
use tutti_wire::code::Code;

fn error(failure: Failure) -> anyhow::Error {
    coded(failure.code, failure.text)
}

/// Serves until a signal ends it.
pub(super) fn serve(
    listen: &str,
    open: bool,
    metrics_token_file: Option<&Path>,
) -> anyhow::Result<Exit> {
    let place: Place = listen.parse().map_err(|reason: String| {
        coded(Code::BadValue, format!("cannot listen on {listen:?}: {reason}"))
    })?;
    let metrics_token = metrics_token_file.map(metrics_token::read).transpose()?;
    // Without an instance there is nothing to see, and its text says how to start one.
    drop(tutti_client::connect()?);
    let listening = Listening::at(&place).map_err(error)?;
    let mut gate = Gate::new().map_err(error)?;
    if let Some(token) = metrics_token {
        gate = gate.with_metrics_token(token);
    }
    let gate = Arc::new(gate);
    let opener = Arc::new(Mutex::new(None));
    end_by_signals(&opener)?;
    let origin = listening.origin();
    let on_session: Box<dyn Fn() + Send + Sync> = match origin {
        None => {
            let path = listen.strip_prefix("unix:").unwrap_or(listen);
            print(&format!("curl --unix-socket {path} http://localhost/v1/jobs\n"))?;
            Box::new(|| {})
        }
        Some(origin) => {
            let address = move |gate: &Gate| format!("{origin}/?token={}", gate.token());
            print(&format!("{}\n", address(&gate)))?;
            say!("tutti: the address is good for one browser; Ctrl-C ends the page");
            if open {
                *opener.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Opener::open(&address(&gate))?);
            }
            let (gate, opener) = (Arc::clone(&gate), Arc::clone(&opener));
            Box::new(move || {
                // The file with the address that was used is of no more use.
                opener.lock().unwrap_or_else(PoisonError::into_inner).take();
                say!("tutti: for another browser: {}", address(&gate));
            })
        }
    };
    let server = Server { listening, gate, source: Arc::new(Instance::default()), on_session };
    tutti_linux::code_pages::unmap_used();
    server.serve().map_err(error)?;
    Ok(Exit::OK)
}

/// Ends the process on signals, without a file that it has made.
fn end_by_signals(opener: &Arc<Mutex<Option<Opener>>>) -> anyhow::Result<()> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    // Threads that are started later have the same.
    set.thread_block()?;
    let opener = Arc::clone(opener);
    std::thread::Builder::new().name("web-signals".into()).spawn(move || {
        let signal = set.wait();
        opener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let code = match signal {
            Ok(Signal::SIGINT) | Err(_) => 0,
            Ok(signal) => 128 + signal as i32,
        };
        std::process::exit(code);
    })?;
    Ok(())
}
